//! The frames of a thread, as a key and as a record.
//!
//! Walked once for the key, with nothing kept, and a second time where the key is new. Both count one slot per step, the
//! interpreter's own frames included, so that the verifier sees one state per step. Of another thread's frames, which may
//! change meanwhile, the second walk must give the key again, or nothing is sent.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use rankdiff_common::event::kind;
use rankdiff_common::map::{ThreadState, lost};
use rankdiff_common::python::{MAX_FRAMES, PythonConfig, Stack, StackFrame, status};

use super::{code, frame, mix, owner, text};
use crate::maps::STACKS;
use crate::output::{NOT_COUNTED, header, reserve, submit};

/// The key of the frames from `python_top` on; never 0.
#[inline(never)]
pub(super) fn key(thread: &mut ThreadState, config: &PythonConfig, owner: u64) -> u64 {
    let mut hash = mix(owner, thread.python_status);
    let mut address = thread.python_top;
    thread.python_passing = 0;
    thread.python_content = 0;
    for _ in 0..MAX_FRAMES {
        if address == 0 {
            break;
        }
        let Some(frame) = frame::read(thread, config, address) else { break };
        hash = add(hash, &frame);
        address = frame.previous;
    }
    if thread.python_passing != 0 {
        thread.python_content = text::hash_content(thread, config, thread.python_passing);
    }
    finish(thread, hash, address)
}

/// Sends the frames from `python_top` on, and their code objects.
#[inline(never)]
pub(super) fn send(thread: &mut ThreadState, config: &PythonConfig, key: u64) {
    let pid_tgid = bpf_get_current_pid_tgid();
    let Some(mut entry) = reserve::<Stack>(lost::STACK) else { return };
    let record = entry.as_mut_ptr();
    let owner = owner(config, (pid_tgid >> 32) as u32);
    let mut hash = mix(owner, thread.python_status);
    let mut address = thread.python_top;
    // SAFETY (here and below): the record is writable.
    unsafe { (*record).count = 0 };
    thread.python_unsent = 0;
    for index in 0..MAX_FRAMES {
        if address == 0 {
            break;
        }
        let Some(frame) = frame::read(thread, config, address) else { break };
        hash = add(hash, &frame);
        address = frame.previous;
        let stamp = if frame.code == thread.python_passing { frame.stamp ^ thread.python_content } else { frame.stamp };
        let slot = StackFrame { code: frame.code, instruction: frame.instruction, stamp };
        // SAFETY: as above.
        unsafe {
            (*record).frames[index] = slot;
            (*record).count = index as u32 + 1;
        }
        if slot.code != 0 {
            code::send(thread, config, slot.code, slot.stamp);
        }
    }
    let cut = match address {
        0 => 0,
        // SAFETY: as above.
        _ if unsafe { (*record).count } == MAX_FRAMES as u32 => status::CUT,
        _ => status::UNREADABLE,
    };
    if finish(thread, hash, address) != key {
        entry.discard(0);
        return;
    }
    // SAFETY: as above; the helper writes 16 bytes.
    unsafe {
        (*record).header = header(kind::STACK, 0, 0, pid_tgid, NOT_COUNTED);
        (*record).key = key;
        (*record).status = thread.python_status as u32 | cut;
        bpf_get_current_comm((&raw mut (*record).thread).cast(), 16);
    }
    submit(entry);
    if thread.python_unsent == 0 {
        let _ = STACKS.insert(&key, &0, 0);
    }
}

#[inline(always)]
fn add(hash: u64, frame: &frame::Frame) -> u64 {
    mix(mix(mix(hash, frame.code), frame.instruction), frame.stamp)
}

/// Ends a hash; `left`: the frame at which the walk ended, if not with the outermost.
#[inline(always)]
fn finish(thread: &ThreadState, hash: u64, left: u64) -> u64 {
    let hash = mix(mix(hash, thread.python_content), u64::from(left != 0));
    if hash == 0 { 1 } else { hash }
}
