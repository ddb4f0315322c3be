//! The C functions that move data. The contract is that of [`crate::api`].
#![expect(clippy::missing_safety_doc, reason = "one contract for all functions, that of `api`")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use crate::api::code;
use crate::comm::Comm;
use crate::group::{self, Call};
use crate::protocol::{Kind, Program, Task};
use crate::stream::Stream;
use crate::types::{Code, DataType, Error, Result, fail};

/// A call on its way through the checks.
struct Request {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    count: usize,
    data_type: DataType,
}

impl Request {
    /// # Safety
    /// As `api` says.
    unsafe fn new(count: usize, data_type: c_int, comm: *const Comm, stream: *const Stream) -> Result<Self> {
        // SAFETY: as promised by the caller.
        let (comm, stream) = unsafe { (Comm::from_handle(comm)?, Stream::from_handle(stream)?) };
        let data_type = DataType::from_c(data_type)?;
        let bytes = count.checked_mul(data_type.size()).and_then(|bytes| bytes.checked_mul(comm.ranks()));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return fail(Error::InvalidArgument, &format!("{count} elements do not fit the address space"));
        }
        Ok(Self { comm, stream, count, data_type })
    }

    fn rank_argument(&self, name: &str, value: c_int) -> Result<usize> {
        match usize::try_from(value) {
            Ok(rank) if rank < self.comm.ranks() => Ok(rank),
            _ => fail(Error::InvalidArgument, &format!("{name} {value} of {} ranks", self.comm.ranks())),
        }
    }

    /// Refuses a null pointer where data is read or written.
    fn need(&self, name: &str, pointer: *const c_void) -> Result<()> {
        if pointer.is_null() && self.count > 0 {
            return fail(Error::InvalidArgument, &format!("{name} is NULL"));
        }
        Ok(())
    }

    fn task(&self, kind: Kind, op: Option<c_int>, input: *const c_void, output: *mut c_void) -> Result<Task> {
        let reduction = op.map(|op| self.comm.operator(op, self.data_type)).transpose()?;
        let program = Program::new(kind, self.count, self.data_type, self.comm.rank(), self.comm.ranks());
        Ok(Task::new(program, self.data_type, reduction, input.cast(), output.cast()))
    }

    fn submit(self, tasks: Vec<Task>) -> Result<()> {
        group::submit(Call { comm: self.comm, stream: self.stream, tasks })
    }

    /// The task that sends the `block`-th block of `buffer` to `peer`.
    fn send_block(&self, buffer: *const c_void, block: usize, peer: usize) -> Result<Task> {
        let input = buffer.cast::<u8>().wrapping_add(block * self.count * self.data_type.size());
        self.task(Kind::Send { peer }, None, input.cast(), ptr::null_mut())
    }

    /// The task that receives the `block`-th block of `buffer` from `peer`.
    fn recv_block(&self, buffer: *mut c_void, block: usize, peer: usize) -> Result<Task> {
        let output = buffer.cast::<u8>().wrapping_add(block * self.count * self.data_type.size());
        self.task(Kind::Recv { peer }, None, ptr::null(), output.cast())
    }
}

/// `ncclAllReduce`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        request.need("sendbuff", sendbuff)?;
        request.need("recvbuff", recvbuff)?;
        let task = request.task(Kind::AllReduce, Some(op), sendbuff, recvbuff)?;
        request.submit(vec![task])
    }))
}

/// `ncclBroadcast`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let root = request.rank_argument("root", root)?;
        if root == request.comm.rank() {
            request.need("sendbuff", sendbuff)?;
        }
        request.need("recvbuff", recvbuff)?;
        let task = request.task(Kind::Broadcast { root }, None, sendbuff, recvbuff)?;
        request.submit(vec![task])
    }))
}

/// `ncclBcast`, which calls the public [`ncclBroadcast`] as NCCL's does: a tracer sees one call inside another.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclBcast(
    buff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    unsafe { ncclBroadcast(buff, buff, count, datatype, root, comm, stream) }
}

/// `ncclReduce`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    root: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let root = request.rank_argument("root", root)?;
        request.need("sendbuff", sendbuff)?;
        if root == request.comm.rank() {
            request.need("recvbuff", recvbuff)?;
        }
        let task = request.task(Kind::Reduce { root }, Some(op), sendbuff, recvbuff)?;
        request.submit(vec![task])
    }))
}

/// `ncclAllGather`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(sendcount, datatype, comm, stream) }.and_then(|request| {
        request.need("sendbuff", sendbuff)?;
        request.need("recvbuff", recvbuff)?;
        let task = request.task(Kind::AllGather, None, sendbuff, recvbuff)?;
        request.submit(vec![task])
    }))
}

/// `ncclReduceScatter`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: c_int,
    op: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(recvcount, datatype, comm, stream) }.and_then(|request| {
        request.need("sendbuff", sendbuff)?;
        request.need("recvbuff", recvbuff)?;
        let task = request.task(Kind::ReduceScatter, Some(op), sendbuff, recvbuff)?;
        request.submit(vec![task])
    }))
}

/// `ncclAlltoAll`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclAlltoAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        request.need("sendbuff", sendbuff)?;
        request.need("recvbuff", recvbuff)?;
        let mut tasks = Vec::new();
        for peer in 0..request.comm.ranks() {
            tasks.push(request.send_block(sendbuff, peer, peer)?);
            tasks.push(request.recv_block(recvbuff, peer, peer)?);
        }
        request.submit(tasks)
    }))
}

/// `ncclGather`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let root = request.rank_argument("root", root)?;
        request.need("sendbuff", sendbuff)?;
        let mut tasks = vec![request.send_block(sendbuff, 0, root)?];
        if root == request.comm.rank() {
            request.need("recvbuff", recvbuff)?;
            for peer in 0..request.comm.ranks() {
                tasks.push(request.recv_block(recvbuff, peer, peer)?);
            }
        }
        request.submit(tasks)
    }))
}

/// `ncclScatter`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let root = request.rank_argument("root", root)?;
        request.need("recvbuff", recvbuff)?;
        let mut tasks = vec![request.recv_block(recvbuff, 0, root)?];
        if root == request.comm.rank() {
            request.need("sendbuff", sendbuff)?;
            for peer in 0..request.comm.ranks() {
                tasks.push(request.send_block(sendbuff, peer, peer)?);
            }
        }
        request.submit(tasks)
    }))
}

/// `ncclSend`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let peer = request.rank_argument("peer", peer)?;
        request.need("sendbuff", sendbuff)?;
        let task = request.send_block(sendbuff, 0, peer)?;
        request.submit(vec![task])
    }))
}

/// `ncclRecv`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> Code {
    // SAFETY: as `api` says.
    code(unsafe { Request::new(count, datatype, comm, stream) }.and_then(|request| {
        let peer = request.rank_argument("peer", peer)?;
        request.need("recvbuff", recvbuff)?;
        let task = request.recv_block(recvbuff, 0, peer)?;
        request.submit(vec![task])
    }))
}
