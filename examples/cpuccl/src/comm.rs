//! Communicators and their worker threads.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::protocol::{Queue, Task};
use crate::shm::Shared;
use crate::stream::{Event, lock};
use crate::types::{DataType, Error, FIRST_DYNAMIC_OP, RedOp, Result, UniqueId, fail};

/// Work that is queued together; its tasks run side by side as far as their queues allow.
#[derive(Debug)]
pub struct Batch {
    /// The tasks, in the caller's order.
    pub tasks: Vec<Task>,
    /// What the streams held before.
    pub after: Vec<Arc<Event>>,
    /// Set when the batch has ended or was given up.
    pub end: Arc<Event>,
}

/// What `ncclComm_t` points to.
#[derive(Debug)]
pub struct Comm {
    magic: u64,
    id: UniqueId,
    rank: usize,
    shared: Shared,
    splits: AtomicU32,
    /// Scalars of the dynamic operators, by handle; freed ones leave a hole that the next one takes.
    operators: Mutex<Vec<Option<Scalar>>>,
    aborted: AtomicBool,
    latest: Mutex<Arc<Event>>,
    queue: Mutex<Option<Sender<Batch>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// Type and bytes of a dynamic operator's scalar.
type Scalar = (DataType, [u8; 8]);

const MAGIC: u64 = 0x6370_7563_636c_636f;

impl Comm {
    /// Joins the communicator that `id` names. Blocks, without limit, until all ranks have.
    pub fn create(id: UniqueId, ranks: c_int, rank: c_int) -> Result<Arc<Self>> {
        let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else {
            return fail(Error::InvalidArgument, &format!("rank {rank} of {ranks}"));
        };
        if rank >= ranks {
            return fail(Error::InvalidArgument, &format!("rank {rank} of {ranks}"));
        }
        let (sender, receiver) = channel();
        let idle = Event::default();
        idle.set();
        let comm = Arc::new(Self {
            magic: MAGIC,
            id,
            rank,
            shared: Shared::open(&id, ranks)?,
            splits: AtomicU32::new(0),
            operators: Mutex::default(),
            aborted: AtomicBool::new(false),
            latest: Mutex::new(Arc::new(idle)),
            queue: Mutex::new(Some(sender)),
            worker: Mutex::default(),
        });
        let own = Arc::clone(&comm);
        let worker = thread::Builder::new().name("cpuccl-worker".to_owned()).spawn(move || own.work(&receiver));
        *lock(&comm.worker) =
            Some(worker.or_else(|error| fail(Error::Internal, &format!("no worker thread: {error}")))?);
        Ok(comm)
    }

    /// The communicator of a C handle.
    ///
    /// # Safety
    /// `handle` is null or came from this library and was not destroyed.
    pub unsafe fn from_handle(handle: *const Self) -> Result<Arc<Self>> {
        if handle.is_null() {
            return fail(Error::InvalidArgument, "the communicator is NULL");
        }
        // SAFETY: as promised by the caller; the magic number catches the most common broken promise.
        unsafe {
            if (*handle).magic != MAGIC {
                return fail(Error::InvalidArgument, "not a communicator");
            }
            Arc::increment_strong_count(handle);
            Ok(Arc::from_raw(handle))
        }
    }

    /// The caller's rank.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.shared.ranks()
    }

    /// `ncclCommSplit`: collective over this communicator, without a look at the others' arguments beyond colour and key.
    /// `None` for a negative colour.
    pub fn split(&self, colour: c_int, key: c_int) -> Result<Option<Arc<Self>>> {
        let generation = self.splits.fetch_add(1, Ordering::SeqCst) + 1;
        let all = self.shared.exchange_split(self.rank, generation, colour, key);
        if colour < 0 {
            return Ok(None);
        }
        let mut members: Vec<_> =
            (0..all.len()).filter(|&peer| all[peer].0 == colour).map(|peer| (all[peer].1, peer)).collect();
        members.sort_unstable();
        let place = members.iter().position(|&(_, peer)| peer == self.rank);
        // Both numbers are at most MAX_RANKS, and the caller's own colour is among those published.
        let (ranks, rank) = (members.len() as c_int, place.map_or(-1, |place| place as c_int));
        Self::create(self.child_id(generation, colour), ranks, rank).map(Some)
    }

    /// An id that all members of one part of one split compute alike and nobody else does: the parent's, mixed with ordinal and colour.
    fn child_id(&self, generation: u32, colour: c_int) -> UniqueId {
        let mut state = u64::from(generation) << 32 | u64::from(colour.cast_unsigned());
        let mut internal = self.id.internal;
        for byte in &mut internal {
            // splitmix64's finaliser, fed with each byte of the parent's id.
            state = (state ^ u64::from(*byte)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
            *byte = state as u8;
        }
        UniqueId { internal }
    }

    /// Makes a pre-multiplied sum; the handle is local to this communicator.
    pub fn create_operator(&self, data_type: DataType, scalar: [u8; 8]) -> c_int {
        let mut operators = lock(&self.operators);
        let free = operators.iter().position(Option::is_none).unwrap_or(operators.len());
        if free == operators.len() {
            operators.push(None);
        }
        operators[free] = Some((data_type, scalar));
        FIRST_DYNAMIC_OP + free as c_int
    }

    /// Frees a dynamic operator.
    pub fn destroy_operator(&self, handle: c_int) -> Result<()> {
        let place = handle.checked_sub(FIRST_DYNAMIC_OP).and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| lock(&self.operators).get_mut(place)?.take()) {
            Some(_) => Ok(()),
            None => fail(Error::InvalidArgument, &format!("{handle} is not a dynamic operator of this communicator")),
        }
    }

    /// The operator of a C handle for a reduction over `data_type`.
    pub fn operator(&self, handle: c_int, data_type: DataType) -> Result<RedOp> {
        if data_type == DataType::F8 {
            return fail(Error::InvalidArgument, "eight-bit floats are not reduced");
        }
        if let Some(op) = RedOp::builtin(handle)? {
            return Ok(op);
        }
        match lock(&self.operators).get((handle - FIRST_DYNAMIC_OP) as usize) {
            Some(Some((made_for, scalar))) if *made_for == data_type => Ok(RedOp::PreMulSum(*scalar)),
            _ => fail(Error::InvalidArgument, &format!("{handle} is not a dynamic operator for this type")),
        }
    }

    /// Queues a batch; the order of calls is the order of execution.
    pub fn queue(&self, batch: Batch) -> Result<()> {
        let end = Arc::clone(&batch.end);
        match lock(&self.queue).as_ref().map(|queue| queue.send(batch)) {
            Some(Ok(())) => {
                *lock(&self.latest) = end;
                Ok(())
            }
            _ => {
                // Nobody will run it, and a stream may already wait for it.
                end.set();
                fail(Error::InvalidUsage, "the communicator was destroyed or aborted")
            }
        }
    }

    /// Waits, without limit, for all queued work.
    pub fn finish(&self) {
        let latest = Arc::clone(&lock(&self.latest));
        latest.wait();
    }

    /// Takes no more work and waits for the worker's end: of all queued work, or of the current step after an abort.
    pub fn close(&self, abort: bool) -> Result<()> {
        if abort {
            self.aborted.store(true, Ordering::SeqCst);
            self.shared.ring_bell(self.rank);
        }
        drop(lock(&self.queue).take());
        let worker = lock(&self.worker).take();
        match worker.map(JoinHandle::join) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => fail(Error::Internal, "the worker thread panicked"),
            None => fail(Error::InvalidUsage, "the communicator was destroyed before"),
        }
    }

    fn work(&self, batches: &Receiver<Batch>) {
        while let Ok(batch) = batches.recv() {
            for event in batch.after {
                event.wait_unless(&self.aborted);
            }
            self.run(batch.tasks);
            batch.end.set();
        }
    }

    fn run(&self, tasks: Vec<Task>) {
        let mut queues: Vec<(Queue, Vec<Task>)> = Vec::new();
        for task in tasks.into_iter().filter(|task| !task.done()) {
            match queues.iter_mut().find(|(queue, _)| *queue == task.queue()) {
                Some((_, tasks)) => tasks.push(task),
                None => queues.push((task.queue(), vec![task])),
            }
        }
        // The head of each queue is last.
        queues.iter_mut().for_each(|(_, tasks)| tasks.reverse());
        while !queues.is_empty() && !self.aborted.load(Ordering::SeqCst) {
            let bell = self.shared.bell(self.rank);
            let mut moved = false;
            for (_, tasks) in &mut queues {
                while let Some(task) = tasks.last_mut() {
                    if !task.advance(&self.shared) {
                        break;
                    }
                    moved = true;
                    if task.done() {
                        tasks.pop();
                    }
                }
            }
            queues.retain(|(_, tasks)| !tasks.is_empty());
            if !moved {
                self.shared.wait_bell(self.rank, bell);
            }
        }
    }
}
