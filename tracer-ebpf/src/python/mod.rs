//! The Python stack of the calling thread: its key with every call, its frames once.
//!
//! A key that is not known yet makes the stack and its code objects travel before the call's own record. Only what found
//! room in the ring is noted as known, so what was lost travels with the next call that has the same key. Functions are
//! not inlined here: the stack of a program is 512 bytes, and the verifier counts only what is open at one time.

mod code;
mod frame;
mod stack;
mod state;
mod text;

use rankdiff_common::map::ThreadState;
use rankdiff_common::python::{PythonConfig, SCRATCH};

use crate::maps::{PYTHON, STACKS};
use crate::memory::masked;

/// Key of the calling thread's Python stack; 0: its process has no interpreter that is known.
#[inline(always)]
pub(crate) fn stack_key(thread: &mut ThreadState, pid_tgid: u64) -> u64 {
    let tgid = (pid_tgid >> 32) as u32;
    let Some(config) = PYTHON.get_ptr(&tgid) else { return 0 };
    // SAFETY: a map value; user space replaces it only while the process has no other.
    let config = unsafe { &*config };
    state::find(thread, config);
    let key = stack::key(thread, config, owner(config, tgid));
    if STACKS.get_ptr(&key).is_none() {
        stack::send(thread, config, key);
    }
    key
}

/// Whose stacks and code objects these are, in their keys.
#[inline(always)]
fn owner(config: &PythonConfig, tgid: u32) -> u64 {
    u64::from(config.generation) << 32 | u64::from(tgid)
}

/// A word of what was read last.
#[inline(always)]
fn word(thread: &ThreadState, index: u32) -> u64 {
    let index = masked::<{ SCRATCH as u64 - 1 }>(index as usize);
    // SAFETY: masked; a bounds check's panic would not pass the verifier.
    unsafe { *thread.scratch.get_unchecked(index) }
}

/// Puts a value into a hash.
#[inline(always)]
fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
