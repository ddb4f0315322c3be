//! Which of the interpreter's thread states is the calling thread's.
//!
//! Never that of the GIL's holder, which during a call is another thread or none. It is the state whose `thread_id` is
//! what names the thread to the C library, the thread pointer. Found by going through all states, then kept; a state that
//! was kept is believed only if it still names this thread and is still in the list of its interpreter, the newest.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use rankdiff_common::map::ThreadState;
use rankdiff_common::python::{MAX_INTERPRETERS, MAX_STATES, NONE, PythonConfig, STATE_WORDS, status};

use super::word;
use crate::maps::config as kernel;
use crate::memory::{read_kernel, read_user_into, read_user_or_zero};

/// Instead of a thread state: there are more than are looked at.
const TOO_MANY: u64 = 1;

/// Finds the innermost frame that is to be recorded: `python_top`, and what it is: `python_status`.
#[inline(never)]
pub(super) fn find(thread: &mut ThreadState, config: &PythonConfig) {
    thread.python_top = 0;
    thread.python_status = u64::from(status::UNREADABLE);
    let Some(own) = thread_pointer() else { return };
    if thread.python != 0 && is_current(thread, config, own) {
        thread.python_status = u64::from(status::OWN);
        thread.python_top = innermost(word(thread, config.thread_frame), config);
        return;
    }
    thread.python = 0;
    scan(thread, config, own);
}

/// What the C library calls `pthread_self`.
#[inline(always)]
fn thread_pointer() -> Option<u64> {
    let offset = kernel()?.task_fsbase;
    if offset == 0 {
        return None;
    }
    // SAFETY: no preconditions.
    read_kernel(unsafe { bpf_get_current_task() }.wrapping_add(u64::from(offset)))
}

/// Whether the state that was found before is still this thread's. Leaves its words in the scratch memory.
///
/// A state that was freed may keep its contents, but for its place in the list.
#[inline(always)]
fn is_current(thread: &mut ThreadState, config: &PythonConfig, own: u64) -> bool {
    let state = thread.python;
    // SAFETY: the scratch memory is longer.
    let into = unsafe { &mut *(&raw mut thread.scratch).cast::<[u64; STATE_WORDS]>() };
    if !read_user_into(into, state) || word(thread, config.thread_id) != own {
        return false;
    }
    let interpreter = word(thread, config.thread_interpreter);
    // Another interpreter may have a state for this thread as well, and be the one that runs.
    if read_user_or_zero(config.runtime.wrapping_add(u64::from(config.interpreters_head))) != interpreter {
        return false;
    }
    let before = match word(thread, config.thread_prev) {
        0 => interpreter.wrapping_add(u64::from(config.threads_head)),
        prev => prev.wrapping_add(8 * u64::from(config.thread_next)),
    };
    read_user_or_zero(before) == state
}

/// Goes through the states of all interpreters, the newest first: that of an inner interpreter comes before that of the
/// one which runs it. The oldest is the main one, where the main thread is.
#[inline(never)]
fn scan(thread: &mut ThreadState, config: &PythonConfig, own: u64) {
    let head = config.runtime.wrapping_add(u64::from(config.interpreters_head));
    let mut interpreter = read_user_or_zero(head);
    let mut oldest = 0;
    thread.python_status = u64::from(status::CONTEXT);
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        oldest = interpreter;
        let state = state_of(config, interpreter, own);
        if state == TOO_MANY {
            // Of a thread beyond the limit nobody knows whether it has a state of its own.
            thread.python_status = u64::from(status::MANY_THREADS);
        } else if state != 0 {
            thread.python = state;
            thread.python_top = top(config, state);
            if thread.python_top != 0 {
                break;
            }
        }
        interpreter = read_user_or_zero(interpreter.wrapping_add(u64::from(config.interpreter_next)));
    }
    if thread.python != 0 {
        thread.python_status = u64::from(status::OWN);
    } else if thread.python_status == u64::from(status::CONTEXT) && config.main_thread != NONE {
        let main = read_user_or_zero(config.runtime.wrapping_add(u64::from(config.main_thread)));
        let state = state_of(config, oldest, main);
        if state != 0 && state != TOO_MANY {
            thread.python_top = top(config, state);
        }
    }
}

/// The state of a thread in an interpreter; 0: it has none, [`TOO_MANY`]: nobody knows.
#[inline(never)]
fn state_of(config: &PythonConfig, interpreter: u64, id: u64) -> u64 {
    let mut state = read_user_or_zero(interpreter.wrapping_add(u64::from(config.threads_head)));
    for _ in 0..MAX_STATES {
        if state == 0 || read_user_or_zero(state.wrapping_add(8 * u64::from(config.thread_id))) == id {
            return state;
        }
        state = read_user_or_zero(state.wrapping_add(8 * u64::from(config.thread_next)));
    }
    TOO_MANY
}

/// The innermost frame of a thread state.
#[inline(always)]
fn top(config: &PythonConfig, state: u64) -> u64 {
    innermost(read_user_or_zero(state.wrapping_add(8 * u64::from(config.thread_frame))), config)
}

/// The innermost frame, from what a thread state points to.
#[inline(always)]
fn innermost(pointer: u64, config: &PythonConfig) -> u64 {
    match config.cframe_current {
        NONE => pointer,
        offset => read_user_or_zero(pointer.wrapping_add(u64::from(offset))),
    }
}
