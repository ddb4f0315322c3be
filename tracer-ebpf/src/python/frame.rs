//! One frame of the interpreter, and what tells its code object from others that had the same address.
//!
//! A frame's fields lie close together and are read at once: reading costs more than all else. A code object that was
//! freed leaves its address to the next one, and `exec` in a loop does that on every turn; so each frame's code object is
//! looked at with every call, as shortly as its version allows.

use rankdiff_common::map::ThreadState;
use rankdiff_common::python::{FRAME_WORDS, NONE, PythonConfig, STAMP_WORDS};

use super::word;
use crate::memory::{read_user_into, read_user_or_zero};

/// Owners of frames that are no Python code.
const INTERPRETERS_OWN: u64 = 3;
/// Newer versions mark pointers in their lowest bits.
const POINTER: u64 = !7;

/// A frame.
pub(super) struct Frame {
    /// Code object; 0: a frame of the interpreter's own.
    pub(super) code: u64,
    pub(super) instruction: u64,
    pub(super) stamp: u64,
    /// The frame around it.
    pub(super) previous: u64,
}

/// Reads a frame; `None`: it cannot be read.
#[inline(always)]
pub(super) fn read(thread: &mut ThreadState, config: &PythonConfig, address: u64) -> Option<Frame> {
    // SAFETY: the scratch memory is longer.
    let into = unsafe { &mut *(&raw mut thread.scratch).cast::<[u64; FRAME_WORDS]>() };
    if !read_user_into(into, address.wrapping_add(u64::from(config.frame_base))) {
        return None;
    }
    let previous = word(thread, config.frame_previous);
    let mut instruction = word(thread, config.frame_instruction);
    if config.instruction_bytes == 4 {
        instruction &= 0xffff_ffff;
    }
    if config.frame_owner != NONE {
        let owner = word(thread, config.frame_owner >> 3) >> ((config.frame_owner & 7) << 3) & 0xff;
        if owner >= INTERPRETERS_OWN {
            return Some(Frame { code: 0, instruction: 0, stamp: 0, previous });
        }
    }
    let code = word(thread, config.frame_code) & POINTER;
    let stamp = if config.code_version == NONE {
        stamp(thread, config, code)
    } else {
        read_user_or_zero(code.wrapping_add(u64::from(config.code_version))) & 0xffff_ffff
    };
    Some(Frame { code, instruction, stamp, previous })
}

/// What tells a code object from its predecessors, where it has no number of its own: where its parts lie. Of code that is
/// no function's, which is what comes and goes, the innermost is noted, for what is in it to be looked at as well.
#[inline(always)]
fn stamp(thread: &mut ThreadState, config: &PythonConfig, code: u64) -> u64 {
    // SAFETY: the scratch memory is longer.
    let into = unsafe { &mut *(&raw mut thread.scratch).cast::<[u64; STAMP_WORDS]>() };
    read_user_into(into, code.wrapping_add(u64::from(config.code_stamp)));
    if thread.scratch[0] >> (config.function_flag & 63) & 1 == 0 && thread.python_passing == 0 {
        thread.python_passing = code;
    }
    // Multiplied one by one, which does not make each wait for the one before it.
    let mut sum: u64 = 0;
    for index in 1..STAMP_WORDS {
        let odd = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * index as u64 + 1);
        sum = sum.wrapping_add(thread.scratch[index].wrapping_mul(odd));
    }
    sum
}
