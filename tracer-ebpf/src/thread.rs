//! State of a thread: its call count, its calls that have not returned, its batches.
//!
//! Only the thread itself changes its state, so nothing here is atomic. What is open is told by the stack pointer
//! alone: a call that has left the stack without a return (longjmp, an exception, a lost return) is dropped when the
//! next call enters at or above its place, so nothing leaks. Calls of one thread on several stacks (fibres that
//! switch inside a probed call) are outside this rule.

use rankdiff_common::map::{MAX_OPEN, MAX_PENDING, OpenCall, PendingOut, ThreadState, open};
use rankdiff_common::probe::{ProbeDesc, flag};
use rankdiff_common::python::SCRATCH;

use crate::maps::{NO_EXIST, THREADS};
use crate::memory::masked;

// Indices are masked.
const _: () = assert!(MAX_OPEN.is_power_of_two() && MAX_PENDING.is_power_of_two());

/// A thread that has made no call. In read-only memory: too big to build on the stack.
static NEW: ThreadState = ThreadState {
    calls: 0,
    group_depth: 0,
    group: 0,
    open: [OpenCall { stack: 0, seq: 0, out: 0, probe: 0, parent: 0 }; MAX_OPEN],
    open_count: 0,
    pending_count: 0,
    pending: [PendingOut { seq: 0, out: 0, probe: 0, reserved: 0 }; MAX_PENDING],
    python: 0,
    python_top: 0,
    python_status: 0,
    python_passing: 0,
    python_content: 0,
    python_unsent: 0,
    scratch: [0; SCRATCH],
};

/// A new state for a thread that has none.
#[inline(always)]
pub(crate) fn new(pid_tgid: u64) -> Option<&'static mut ThreadState> {
    let _ = THREADS.insert(&pid_tgid, &NEW, NO_EXIST);
    existing(pid_tgid)
}

/// The state of a thread that has one.
#[inline(always)]
pub(crate) fn existing(pid_tgid: u64) -> Option<&'static mut ThreadState> {
    // SAFETY: only the thread's own programs use its state, one at a time.
    THREADS.get_ptr_mut(&pid_tgid).map(|thread| unsafe { &mut *thread })
}

/// Calls around a new one.
pub(crate) struct Around {
    /// Number of calls that are still open.
    pub(crate) count: usize,
    /// The new call is a part of one of them.
    pub(crate) nested: bool,
}

/// Drops the calls that have left the stack and tells what is left around a call that enters at `stack`.
///
/// `tail_called`: the function was jumped to by the last instruction of another, whose return is its own.
#[inline(always)]
pub(crate) fn around(thread: &mut ThreadState, stack: u64, tail_called: bool) -> Around {
    let mut count = thread.open_count as usize;
    if count == 0 {
        return Around { count, nested: false };
    }
    let lowest = if tail_called { stack } else { stack.wrapping_add(1) };
    let mut parent = 0;
    for index in (0..MAX_OPEN).rev() {
        let call = &thread.open[index];
        if count == index + 1 {
            if call.stack < lowest {
                count = index;
            } else {
                parent = call.parent & open::PARENT;
            }
        }
    }
    thread.open_count = count as u32;
    Around { count, nested: parent != 0 }
}

/// Keeps a call until its return. False if there is no room.
#[inline(always)]
pub(crate) fn push(thread: &mut ThreadState, around: &Around, desc: &ProbeDesc, call: OpenCall) -> bool {
    if around.count >= MAX_OPEN {
        return false;
    }
    let is_parent = around.nested || desc.flags & flag::NOT_A_PARENT == 0;
    let mut call = call;
    call.parent = if is_parent { open::PARENT } else { 0 } | if around.nested { open::NESTED } else { 0 };
    // SAFETY: checked above.
    unsafe { *thread.open.get_unchecked_mut(masked::<{ MAX_OPEN as u64 - 1 }>(around.count)) = call };
    thread.open_count = around.count as u32 + 1;
    true
}

/// Takes the call that entered at `stack` off, with everything below it.
#[inline(always)]
pub(crate) fn pop(thread: &mut ThreadState, stack: u64, probe: u32) -> Option<OpenCall> {
    for index in (0..MAX_OPEN).rev() {
        if (index as u32) < thread.open_count {
            let call = thread.open[index];
            if call.stack == stack && call.probe == probe {
                thread.open_count = index as u32;
                return Some(call);
            }
        }
    }
    None
}

/// The batch that a call belongs to (0: none), opened or closed by it if it is such a call.
#[inline(always)]
pub(crate) fn batch(thread: &mut ThreadState, flags: u32) -> u32 {
    if flags & flag::GROUP_START != 0 {
        if thread.group_depth == 0 {
            thread.group = thread.group.wrapping_add(1).max(1);
            thread.pending_count = 0;
        }
        thread.group_depth = thread.group_depth.saturating_add(1);
    }
    let group = if thread.group_depth == 0 { 0 } else { thread.group };
    if flags & flag::GROUP_END != 0 {
        thread.group_depth = thread.group_depth.saturating_sub(1);
    }
    group
}

/// Keeps an out handle until the end of the batch. False if there is no room.
#[inline(always)]
pub(crate) fn postpone(thread: &mut ThreadState, pending: PendingOut) -> bool {
    let count = thread.pending_count as usize;
    if count >= MAX_PENDING {
        return false;
    }
    // SAFETY: checked above.
    unsafe { *thread.pending.get_unchecked_mut(masked::<{ MAX_PENDING as u64 - 1 }>(count)) = pending };
    thread.pending_count = count as u32 + 1;
    true
}
