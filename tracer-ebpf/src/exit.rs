//! Return of a probed function.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::uretprobe;
use aya_ebpf::programs::RetProbeContext;
use rankdiff_common::event::{Exit, flag, kind};
use rankdiff_common::map::{MAX_PENDING, PendingOut, ThreadState, lost, open};
use rankdiff_common::probe::flag as probe_flag;
use rankdiff_common::probe::{ProbeDesc, handle};

use crate::counters::{generation, held, register};
use crate::maps::PROBES;
use crate::output::{count_lost, emit, header};
use crate::registers;
use crate::thread;

/// Records the return of a call.
#[uretprobe]
pub(crate) fn rankdiff_exit(context: RetProbeContext) -> u32 {
    let _ = exit(&context);
    0
}

/// The handle that a creation gave.
struct Out {
    handle: u64,
    generation: u32,
    flags: u8,
}

impl Out {
    const NONE: Out = Out { handle: 0, generation: 0, flags: 0 };
}

#[inline(always)]
fn exit(context: &RetProbeContext) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    // A thread has a state only if its process is watched.
    let thread = thread::existing(pid_tgid)?;
    // SAFETY: the context of this program.
    let probe = unsafe { bpf_get_attach_cookie(context.as_ptr()) } as u32;
    let desc = PROBES.get(probe)?;
    // SAFETY: the context of this program.
    let regs = unsafe { &*context.regs };
    let call = thread::pop(thread, registers::entry_stack_pointer_at_return(regs), probe)?;
    let nested = call.parent & open::NESTED != 0;
    let tgid = (pid_tgid >> 32) as u32;

    let mut out = Out::NONE;
    if desc.out_handle != handle::NONE {
        let waits = desc.flags & probe_flag::OUT_AT_GROUP_END != 0 && thread.group_depth != 0;
        if !waits {
            let makes_comm = desc.flags & probe_flag::MAKES_COMM != 0;
            out = read_out(call.out, desc.out_handle, makes_comm.then_some(tgid), nested);
        } else if !nested && !thread::postpone(thread, PendingOut { seq: call.seq, out: call.out, probe, reserved: 0 })
        {
            count_lost(lost::EXIT);
        }
    }
    let flags = out.flags | if nested { flag::NESTED } else { 0 };
    emit(
        lost::EXIT,
        Exit {
            header: header(kind::EXIT, flags, probe as u16, pid_tgid, call.seq),
            result: registers::result(regs),
            out: out.handle,
            generation: out.generation,
            reserved: 0,
        },
    );
    if desc.flags & probe_flag::GROUP_END != 0 && thread.group_depth == 0 {
        end_of_batch(thread, pid_tgid);
    }
    Some(())
}

/// Reads the handles that the batch has set.
#[inline(always)]
fn end_of_batch(thread: &mut ThreadState, pid_tgid: u64) {
    let count = thread.pending_count as usize;
    thread.pending_count = 0;
    for index in 0..MAX_PENDING {
        if index >= count {
            break;
        }
        let pending = thread.pending[index];
        let Some(desc) = PROBES.get(pending.probe) else { break };
        emit_out(desc, &pending, pid_tgid);
    }
}

/// Records a handle that was set at the end of a batch.
#[inline(always)]
fn emit_out(desc: &ProbeDesc, pending: &PendingOut, pid_tgid: u64) {
    let out = read_out(pending.out, desc.out_handle, Some((pid_tgid >> 32) as u32), false);
    emit(
        lost::EXIT,
        Exit {
            header: header(kind::OUT, out.flags, pending.probe as u16, pid_tgid, pending.seq),
            result: 0,
            out: out.handle,
            generation: out.generation,
            reserved: 0,
        },
    );
}

/// Reads what the call wrote. With `owner` it is a new communicator of that process and is registered, unless it belongs to
/// a part of another creation; otherwise (a type, a request, a number) it is only passed on.
#[inline(always)]
fn read_out(address: u64, mode: u8, owner: Option<u32>, nested: bool) -> Out {
    let Some(handle) = held(address, mode) else { return Out { flags: flag::OUT_UNREADABLE, ..Out::NONE } };
    let Some(tgid) = owner.filter(|_| handle != 0) else { return Out { handle, ..Out::NONE } };
    let generation = if nested { generation(handle, tgid) } else { register(handle, tgid).unwrap_or(0) };
    Out { handle, generation, flags: 0 }
}
