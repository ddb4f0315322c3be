//! Entry of a probed function.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use rankdiff_common::event::{Enter, EnterLong, EnterShort, flag, kind};
use rankdiff_common::map::{OpenCall, ThreadState, lost};
use rankdiff_common::probe::flag as probe_flag;
use rankdiff_common::probe::{MAX_ARGS, MAX_REGIONS, ProbeDesc, SHORT_REGION, handle, region};

use crate::call_site::call_site;
use crate::counters::{self, Position};
use crate::gather::gather;
use crate::maps::{PROBES, WATCHED};
use crate::output::{count_lost, header, reserve, submit};
use crate::python;
use crate::regions::{Shape, read_long, read_short, shape};
use crate::registers;
use crate::thread;
use crate::values::Values;

/// Does nothing: what a probe costs by itself.
#[uprobe]
pub(crate) fn rankdiff_empty(_context: ProbeContext) -> u32 {
    0
}

/// Records the entry of a call.
#[uprobe]
pub(crate) fn rankdiff_enter(context: ProbeContext) -> u32 {
    let _ = enter(&context);
    0
}

/// A call, but for its arguments.
struct Call {
    pid_tgid: u64,
    probe: u16,
    seq: u64,
    flags: u8,
    group: u32,
    return_address: u64,
    stack: u64,
    position: Position,
}

#[inline(always)]
fn enter(context: &ProbeContext) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let thread = match thread::existing(pid_tgid) {
        // Only threads of watched processes have a state, so the usual call needs one look-up.
        Some(thread) => thread,
        None => first_call(pid_tgid)?,
    };
    let stack = python::stack_key(thread, pid_tgid);
    record(context, thread, pid_tgid, stack)
}

/// Records the call. Not inlined: what it keeps on the stack and what the Python stack takes there are never needed at
/// one time.
#[inline(never)]
fn record(context: &ProbeContext, thread: &mut ThreadState, pid_tgid: u64, python: u64) -> Option<()> {
    let tgid = (pid_tgid >> 32) as u32;
    // SAFETY: the context of this program.
    let probe = unsafe { bpf_get_attach_cookie(context.as_ptr()) } as u32;
    let desc = PROBES.get(probe)?;
    let seq = thread.calls;
    thread.calls = seq.wrapping_add(1);

    // SAFETY: the context of this program.
    let regs = unsafe { &*context.regs };
    let stack = registers::stack_pointer(regs).wrapping_add(u64::from(desc.entry_stack_shift));
    let mut values = Values::new(desc, registers::arguments(regs), stack);
    let site = call_site(values.return_word(), stack);
    let own = u32::from(desc.flags & probe_flag::ENTRY_AFTER_EXIT != 0);
    let mut around = thread::around(thread, stack, site.return_probes > own);
    if desc.own_from != desc.own_to {
        let distance = site.address.wrapping_sub(registers::instruction(regs)) as i64;
        around.nested |= distance >= i64::from(desc.own_from) && distance < i64::from(desc.own_to);
    }
    let group = thread::batch(thread, desc.flags);
    let position = counters::position(desc, &mut values, tgid, around.nested);

    if desc.flags & probe_flag::RETURNS != 0 {
        let out = if desc.out_handle == handle::NONE { 0 } else { values.get(desc.out).unwrap_or(0) };
        if !thread::push(thread, &around, desc, OpenCall { stack, seq, out, probe, parent: 0 }) {
            count_lost(lost::EXIT);
        }
    }
    let mut flags = position.flags;
    if around.nested {
        flags |= flag::NESTED;
    }
    if group != 0 {
        flags |= flag::GROUPED;
    }
    let call = Call {
        pid_tgid,
        probe: probe as u16,
        seq,
        flags,
        group,
        return_address: site.address,
        stack: python,
        position,
    };
    match shape(desc) {
        Shape::None => {
            let mut entry = reserve::<Enter>(lost::ENTER)?;
            fill(entry.as_mut_ptr(), kind::ENTER, &call, desc, &mut values, 0);
            submit(entry);
        }
        Shape::Short(index) => {
            let mut entry = reserve::<EnterShort>(lost::ENTER)?;
            let record = entry.as_mut_ptr();
            // SAFETY: the record is writable.
            let into: *mut [u8; SHORT_REGION] = unsafe { &raw mut (*record).region };
            let which = if index == 0 { desc.regions[0] } else { desc.regions[1] };
            let cut = if read_short(into, which, &mut values) { 0 } else { cut_flag(index) };
            // SAFETY: the record is writable.
            fill(unsafe { &raw mut (*record).enter }, kind::ENTER_SHORT, &call, desc, &mut values, cut);
            submit(entry);
        }
        Shape::Long => {
            let mut entry = reserve::<EnterLong>(lost::ENTER)?;
            let record = entry.as_mut_ptr();
            let mut cut = 0;
            for index in 0..MAX_REGIONS {
                let which = desc.regions[index];
                if which.mode == region::GATHERED && index == 0 {
                    // SAFETY: the record is writable.
                    let bytes = gather(unsafe { &raw mut (*record).regions }, probe, &mut values);
                    // SAFETY: as above.
                    unsafe { (*record).region_bytes[0] = bytes };
                    continue;
                }
                // SAFETY: the record is writable.
                let bytes = read_long(unsafe { &raw mut (*record).regions[index] }, which, &mut values);
                // SAFETY: as above.
                unsafe { (*record).region_bytes[index] = bytes };
                let wanted = if which.mode == region::LONG { 512 } else { SHORT_REGION as u32 };
                if which.mode != region::NONE && bytes < wanted {
                    cut |= cut_flag(index);
                }
            }
            // SAFETY: the record is writable.
            fill(unsafe { &raw mut (*record).enter }, kind::ENTER_LONG, &call, desc, &mut values, cut);
            submit(entry);
        }
    }
    Some(())
}

/// The state of a thread that had none; `None`: its process is not watched, or there is no room.
#[inline(always)]
fn first_call(pid_tgid: u64) -> Option<&'static mut ThreadState> {
    let tgid = (pid_tgid >> 32) as u32;
    WATCHED.get_ptr(&tgid)?;
    let thread = thread::new(pid_tgid);
    if thread.is_none() {
        count_lost(lost::THREAD);
    }
    thread
}

/// The flag that says that a region was cut.
#[inline(always)]
fn cut_flag(index: usize) -> u8 {
    if index == 0 { flag::REGION0_CUT } else { flag::REGION1_CUT }
}

/// Writes the part that all entry records have.
#[inline(always)]
fn fill(record: *mut Enter, kind: u8, call: &Call, desc: &ProbeDesc, values: &mut Values, cut: u8) {
    // SAFETY: the record is writable.
    unsafe {
        for index in 0..MAX_ARGS {
            let source = desc.args[index];
            (*record).args[index] = values.get(source).unwrap_or(0);
        }
        let unreadable = if values.unreadable { flag::STACK_UNREADABLE } else { 0 };
        (*record).header = header(kind, call.flags | cut | unreadable, call.probe, call.pid_tgid, call.seq);
        (*record).comm = call.position.comm;
        (*record).comm_seq = call.position.seq;
        (*record).generation = call.position.generation;
        (*record).group = call.group;
        (*record).return_address = call.return_address;
        (*record).stack = call.stack;
    }
}
