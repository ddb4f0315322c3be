//! Keys and values of the eBPF maps.

use crate::python::SCRATCH;

/// Names of the maps, as both sides know them.
pub mod name {
    /// Ring buffer of the calls' records.
    pub const EVENTS: &str = "EVENTS";
    /// Ring buffer of the records about processes: few, so that no flood of calls costs one of them.
    pub const PROCESSES: &str = "PROCESSES";
    /// Array of [`ProbeDesc`](crate::probe::ProbeDesc) by attach cookie.
    pub const PROBES: &str = "PROBES";
    /// Array of [`Chains`](crate::probe::Chains) by attach cookie, for the probes that gather.
    pub const CHAINS: &str = "CHAINS";
    /// Hash: tgid -> [`watch`](super::watch) flags. Children get an entry with [`FOLLOW`](super::watch::FOLLOW), the end
    /// of a process removes its entry. To stop watching a process that lives, remove its threads from `THREADS` as well:
    /// a thread that has a state there is recorded without another look.
    pub const WATCHED: &str = "WATCHED";
    /// Hash: [`CommKey`](super::CommKey) -> [`CommCounters`](super::CommCounters). User space removes the entries of a
    /// process that ended or runs another program.
    pub const COMMS: &str = "COMMS";
    /// Hash: [`PeerKey`](super::PeerKey) -> u64 counter. User space removes the entries of past generations and of a
    /// process that ended or runs another program.
    pub const PEERS: &str = "PEERS";
    /// Hash: pid_tgid (tgid in the upper half) -> [`ThreadState`](super::ThreadState). The end of a thread removes it.
    pub const THREADS: &str = "THREADS";
    /// Per-CPU array of u64 by [`counter index`](super::lost).
    pub const LOST: &str = "LOST";
    /// Array with one [`Config`](super::Config).
    pub const CONFIG: &str = "CONFIG";
}

/// Processes watched at one time.
pub const MAX_WATCHED: u32 = 64 * 1024;
/// Communicators of all watched processes at one time.
pub const MAX_COMMS: u32 = 64 * 1024;
/// (communicator, peer, direction, tag) of all watched processes at one time.
pub const MAX_PEERS: u32 = 256 * 1024;
/// Threads that made a call, of all watched processes, at one time.
pub const MAX_THREADS: u32 = 64 * 1024;
/// Calls of one thread that may be open inside each other and still be told apart.
pub const MAX_OPEN: usize = 4;
/// Out handles of one thread that wait for the end of a batch.
pub const MAX_PENDING: usize = 8;
/// Ring buffer size in bytes unless the user says otherwise (a power of two, a multiple of the page size).
pub const DEFAULT_RING_BYTES: u32 = 16 << 20;

/// Size of the ring buffer of the records about processes.
pub const PROCESS_RING_BYTES: u32 = 1 << 20;

/// Values of `WATCHED`.
pub mod watch {
    /// Record the process and follow its children.
    pub const FOLLOW: u32 = 1;
}

/// Indices of `LOST`: records that did not fit the ring buffer or a map.
pub mod lost {
    /// Entry events.
    pub const ENTER: u32 = 0;
    /// Return events, of calls too deeply nested to keep open and of out handles too many for a batch as well.
    pub const EXIT: u32 = 1;
    /// Process, signal and library events.
    pub const PROCESS: u32 = 2;
    /// Calls whose thread found no room in `THREADS`: nothing of them is recorded.
    pub const THREAD: u32 = 3;
    /// Calls whose communicator or peer found no room in its map (they have no sequence number).
    pub const COUNTER: u32 = 4;
    /// Python stacks and code objects; each is sent again with the next call that has it.
    pub const STACK: u32 = 5;
    /// Number of indices.
    pub const COUNT: u32 = 6;
}

/// Key of a communicator: a process-local handle.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CommKey {
    /// The handle's value.
    pub handle: u64,
    /// Process.
    pub tgid: u32,
    /// Zero.
    pub reserved: u32,
}

/// Counters of a communicator.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommCounters {
    /// Collectives entered so far.
    pub collectives: u64,
    /// Creation calls on it so far.
    pub creations: u64,
    /// How often this handle value was reused: grows at every creation that returns it and at every release. 0: no
    /// creation of it was seen (a predefined communicator, or the tracer came late).
    pub generation: u32,
    /// Zero.
    pub reserved: u32,
}

/// Key of a point-to-point counter.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PeerKey {
    /// The communicator's handle.
    pub handle: u64,
    /// Process.
    pub tgid: u32,
    /// Generation of the handle.
    pub generation: u32,
    /// Peer.
    pub peer: u32,
    /// Tag.
    pub tag: u32,
    /// [`counter::SEND`](crate::probe::counter::SEND) or [`counter::RECV`](crate::probe::counter::RECV).
    pub direction: u32,
    /// Zero.
    pub reserved: u32,
}

/// Flags of an [`OpenCall`].
pub mod open {
    /// Calls below it are nested parts of it or of a call around it.
    pub const PARENT: u32 = 1;
    /// It is itself a nested part of another call.
    pub const NESTED: u32 = 1 << 1;
}

/// A call that has not returned.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenCall {
    /// Stack pointer at the function's first instruction (it points to the return address); 0: free.
    pub stack: u64,
    /// The call's ordinal on its thread.
    pub seq: u64,
    /// Address that receives the new communicator's handle, 0 if none.
    pub out: u64,
    /// Index of its probe description.
    pub probe: u32,
    /// [`open`] flags.
    pub parent: u32,
}

/// An out handle that is read again at the end of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingOut {
    /// The creation's ordinal on its thread.
    pub seq: u64,
    /// Address of the handle.
    pub out: u64,
    /// Index of its probe description.
    pub probe: u32,
    /// Zero.
    pub reserved: u32,
}

/// State of a thread that made at least one recorded call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadState {
    /// Calls entered so far, lost ones included.
    pub calls: u64,
    /// Depth of open batches.
    pub group_depth: u32,
    /// Number of the last batch, from 1.
    pub group: u32,
    /// Calls that have not returned, outermost first.
    pub open: [OpenCall; MAX_OPEN],
    /// Entries of `open` in use.
    pub open_count: u32,
    /// Entries of `pending` in use.
    pub pending_count: u32,
    /// Out handles that wait for the end of the batch.
    pub pending: [PendingOut; MAX_PENDING],
    /// Address of the thread's Python state, as it was found last; 0: not found yet.
    pub python: u64,
    /// Its innermost Python frame at this call, 0 if it has none.
    pub python_top: u64,
    /// Whose frames these are: [`status`](crate::python::status).
    pub python_status: u64,
    /// Its innermost frame whose code is no function's, 0 if it has none.
    pub python_passing: u64,
    /// Hash of what is in the code object of that frame.
    pub python_content: u64,
    /// Code objects of the stack that is being sent for which there was no room.
    pub python_unsent: u64,
    /// What is being read of an interpreter.
    pub scratch: [u64; SCRATCH],
}

/// Settings that the loader fills in before any program is attached.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// [`ABI_VERSION`](crate::ABI_VERSION).
    pub abi: u32,
    /// Offset of `exit_code` in `task_struct`, from the kernel's BTF; 0: not known.
    pub task_exit_code: u32,
    /// Offset of `tgid` in `task_struct`. Needed: without it forks are not followed and signals not seen.
    pub task_tgid: u32,
    /// Offset of `pid` in `task_struct`; 0: not known (a signal then names only the process).
    pub task_pid: u32,
    /// Offset of `signal` in `task_struct`; 0: not known.
    pub task_signal: u32,
    /// Offset of `live` in `signal_struct`; 0: not known. With `task_signal` it tells the last thread of a process on
    /// kernels whose `sched_process_exit` does not say.
    pub signal_live: u32,
    /// Offset of `utask` in `task_struct`; 0: not known. This and the next four find the return address of a call
    /// whose return probe was set before its entry probe fired; without them such a call has none.
    pub task_utask: u32,
    /// Offset of `return_instances` in `uprobe_task`.
    pub utask_return_instances: u32,
    /// Offset of `orig_ret_vaddr` in `return_instance`.
    pub return_address: u32,
    /// Offset of `stack` in `return_instance`.
    pub return_stack: u32,
    /// Offset of `next` in `return_instance`.
    pub return_next: u32,
    /// Offset of `thread.fsbase` in `task_struct`: what names the thread to its C library; 0: not known (then no Python
    /// stacks are recorded).
    pub task_fsbase: u32,
}

const _: () = {
    assert!(size_of::<CommKey>() == 16);
    assert!(size_of::<CommCounters>() == 24);
    assert!(size_of::<PeerKey>() == 32);
    assert!(size_of::<OpenCall>() == 32);
    assert!(size_of::<PendingOut>() == 24);
    assert!(size_of::<ThreadState>() == 16 + 4 * 32 + 8 + 8 * 24 + 6 * 8 + 8 * SCRATCH);
    assert!(size_of::<Config>() == 48);
};

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), integers only, no padding (sizes asserted above).
    unsafe impl aya::Pod for super::CommKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::CommCounters {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::PeerKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::ThreadState {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::Config {}
}
