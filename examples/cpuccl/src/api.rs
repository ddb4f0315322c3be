//! The C functions that make, order and end things; [`crate::calls`] has those that move data. The signatures are NCCL's, with host buffers
//! and `cpuccl` streams in place of device buffers and CUDA streams.
//!
//! None is inlined, so that each has one address that a probe can be put on. As in NCCL, a call checks its own arguments and nothing else.
//!
//! # Safety
//! One contract holds for all of them, the header's: handles come from this library and were not destroyed; out-pointers are null or
//! writable; buffers have the size that the arguments say and stay untouched until the stream has reached the call.
#![expect(clippy::missing_safety_doc, reason = "one contract for all functions, above")]

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::ptr;
use std::sync::Arc;

use crate::comm::Comm;
use crate::group;
use crate::stream::Stream;
use crate::types::{Code, DataType, Error, IN_PROGRESS, Result, SUCCESS, UniqueId, code_text, fail, last_error};

/// The NCCL release whose functions these are; the first with `ncclAlltoAll`.
const VERSION: c_int = 22_800;
/// `ncclScalarHostImmediate`; the other residence is the same here, since the host's memory is the device's.
const LAST_RESIDENCE: c_int = 1;

/// The result code, noted in the thread's open group if it is an error.
pub(crate) fn code(result: Result<()>) -> Code {
    match result {
        Ok(()) => SUCCESS,
        Err(error) => {
            group::note(error);
            error.code()
        }
    }
}

/// Writes to an out-pointer.
///
/// # Safety
/// `out` is null or writable.
unsafe fn set<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return fail(Error::InvalidArgument, "an out-pointer is NULL");
    }
    // SAFETY: not null, and as promised by the caller.
    unsafe { out.write(value) };
    Ok(())
}

/// An out-pointer on its way to the thread that makes the communicator.
struct Out(*mut *const Comm);

// SAFETY: the caller keeps the place it points to until the call, or its group, has ended.
unsafe impl Send for Out {}

impl Out {
    fn new(pointer: *mut *const Comm) -> Result<Self> {
        // SAFETY: as the module says; a communicator that cannot be delivered must not be joined.
        unsafe { set(pointer, ptr::null()) }.map(|()| Self(pointer))
    }

    fn deliver(self, comm: Arc<Comm>) -> Result<()> {
        // SAFETY: as the module says.
        unsafe { set(self.0, Arc::into_raw(comm)) }
    }
}

/// `ncclGetVersion`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Code {
    // SAFETY: as the module says.
    code(unsafe { set(version, VERSION) })
}

/// `ncclGetUniqueId`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Code {
    let mut internal = [0; 128];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut internal));
    code(match read {
        // SAFETY: as the module says.
        Ok(()) => unsafe { set(id, UniqueId { internal }) },
        Err(error) => fail(Error::System, &format!("/dev/urandom: {error}")),
    })
}

/// `ncclCommInitRank`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommInitRank(comm: *mut *const Comm, nranks: c_int, id: UniqueId, rank: c_int) -> Code {
    code(init_rank(comm, nranks, id, rank))
}

/// `ncclCommInitRankConfig`; the configuration is not read: every communicator is a blocking one.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *const Comm,
    nranks: c_int,
    id: UniqueId,
    rank: c_int,
    _config: *mut c_void,
) -> Code {
    code(init_rank(comm, nranks, id, rank))
}

fn init_rank(comm: *mut *const Comm, nranks: c_int, id: UniqueId, rank: c_int) -> Result<()> {
    let out = Out::new(comm)?;
    group::create(Box::new(move || out.deliver(Comm::create(id, nranks, rank)?)))
}

/// `ncclCommSplit`; the configuration is not read.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: *const Comm,
    color: c_int,
    key: c_int,
    newcomm: *mut *const Comm,
    _config: *mut c_void,
) -> Code {
    // SAFETY: as the module says.
    let parent = unsafe { Comm::from_handle(comm) };
    code(parent.and_then(|parent| {
        let out = Out::new(newcomm)?;
        group::create(Box::new(move || parent.split(color, key)?.map_or(Ok(()), |child| out.deliver(child))))
    }))
}

/// `ncclCommFinalize`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommFinalize(comm: *const Comm) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm) }.map(|comm| comm.finish()))
}

/// `ncclCommDestroy`; waits for queued work, for ever where that hangs. NULL is allowed.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *const Comm) -> Code {
    // SAFETY: as the module says.
    code(unsafe { close(comm, false) })
}

/// `ncclCommAbort`; queued work is given up. NULL is allowed.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommAbort(comm: *const Comm) -> Code {
    // SAFETY: as the module says.
    code(unsafe { close(comm, true) })
}

/// # Safety
/// As the module says.
unsafe fn close(handle: *const Comm, abort: bool) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    // SAFETY: as promised by the caller.
    unsafe { Comm::from_handle(handle) }?.close(abort)?;
    // SAFETY: the handle's own count, given away when the communicator was delivered; `close` succeeds only once.
    unsafe { Arc::decrement_strong_count(handle) };
    Ok(())
}

/// `ncclCommCount`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommCount(comm: *const Comm, count: *mut c_int) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm).and_then(|comm| set(count, comm.ranks() as c_int)) })
}

/// `ncclCommUserRank`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommUserRank(comm: *const Comm, rank: *mut c_int) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm).and_then(|comm| set(rank, comm.rank() as c_int)) })
}

/// `ncclCommCuDevice`; there is no device, the answer is the rank.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommCuDevice(comm: *const Comm, device: *mut c_int) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm).and_then(|comm| set(device, comm.rank() as c_int)) })
}

/// `ncclCommGetAsyncError`; there is never one, a lost peer is a hang.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *const Comm, async_error: *mut Code) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm).and_then(|_| set(async_error, SUCCESS)) })
}

/// `ncclGetErrorString`
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn ncclGetErrorString(result: Code) -> *const c_char {
    code_text(result).as_ptr()
}

/// `ncclGetLastError`; the text of the calling thread's last failure, on whatever communicator.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn ncclGetLastError(_comm: *const Comm) -> *const c_char {
    last_error()
}

/// `ncclGroupStart`
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn ncclGroupStart() -> Code {
    group::start();
    SUCCESS
}

/// `ncclGroupEnd`
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn ncclGroupEnd() -> Code {
    code(group::end())
}

/// `ncclRedOpCreatePreMulSum`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut c_int,
    scalar: *const c_void,
    datatype: c_int,
    residence: c_int,
    comm: *const Comm,
) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm) }.and_then(|comm| {
        let data_type = DataType::from_c(datatype)?;
        if scalar.is_null() || data_type == DataType::F8 || !(0..=LAST_RESIDENCE).contains(&residence) {
            return fail(Error::InvalidArgument, "ncclRedOpCreatePreMulSum: scalar, type or residence");
        }
        let mut bytes = [0; 8];
        // SAFETY: the scalar is one element, at most eight bytes.
        unsafe { ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), data_type.size()) };
        // SAFETY: as the module says.
        unsafe { set(op, 0) }?;
        // SAFETY: as the module says.
        unsafe { set(op, comm.create_operator(data_type, bytes)) }
    }))
}

/// `ncclRedOpDestroy`
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn ncclRedOpDestroy(op: c_int, comm: *const Comm) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Comm::from_handle(comm) }.and_then(|comm| comm.destroy_operator(op)))
}

/// Makes a stream.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn cpucclStreamCreate(stream: *mut *const Stream) -> Code {
    // SAFETY: as the module says.
    code(unsafe { set(stream, ptr::null()).and_then(|()| set(stream, Arc::into_raw(Arc::new(Stream::new())))) })
}

/// Waits, without limit, for what was queued on the stream so far.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn cpucclStreamSynchronize(stream: *const Stream) -> Code {
    // SAFETY: as the module says.
    code(unsafe { Stream::from_handle(stream) }.map(|stream| stream.synchronize()))
}

/// `ncclSuccess` if the stream is idle, else `ncclInProgress`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn cpucclStreamQuery(stream: *const Stream) -> Code {
    // SAFETY: as the module says.
    match unsafe { Stream::from_handle(stream) } {
        Ok(stream) if stream.is_idle() => SUCCESS,
        Ok(_) => IN_PROGRESS,
        Err(error) => error.code(),
    }
}

/// Forgets a stream without waiting for it; queued work goes on. The default stream, NULL, cannot be destroyed.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn cpucclStreamDestroy(stream: *const Stream) -> Code {
    if stream.is_null() {
        return code(fail(Error::InvalidArgument, "the default stream"));
    }
    // SAFETY: as the module says; the count is the handle's own.
    code(unsafe { Stream::from_handle(stream) }.map(|_| unsafe { Arc::decrement_strong_count(stream) }))
}
