//! Records into the ring buffer, and what is counted when one does not fit.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::maps::ring_buf::RingBufEntry;
use rankdiff_common::event::Header;
use rankdiff_common::map::lost;

use crate::maps::{EVENTS, LOST, PROCESSES};
use crate::memory::fetch_add;

/// `BPF_RB_NO_WAKEUP`: the reader polls. A wake-up a record costs more than the record.
const NO_WAKEUP: u64 = 1;
/// `thread_seq` of records that are no calls.
pub(crate) const NOT_COUNTED: u64 = u64::MAX;

/// Room for a record; counts it as lost under `index` if there is none.
#[inline(always)]
pub(crate) fn reserve<T: 'static>(index: u32) -> Option<RingBufEntry<T>> {
    let entry = EVENTS.reserve::<T>(0);
    if entry.is_none() {
        count_lost(index);
    }
    entry
}

/// Hands a record over.
#[inline(always)]
pub(crate) fn submit<T>(entry: RingBufEntry<T>) {
    entry.submit(NO_WAKEUP);
}

/// Reserves, writes and hands over a whole record.
#[inline(always)]
pub(crate) fn emit<T: 'static>(index: u32, record: T) {
    if let Some(mut entry) = reserve::<T>(index) {
        MaybeUninit::write(&mut entry, record);
        submit(entry);
    }
}

/// Hands over a whole record about a process. A call's record that comes before it in time is in its own ring by then.
#[inline(always)]
pub(crate) fn emit_process<T: 'static>(record: T) {
    match PROCESSES.reserve::<T>(0) {
        Some(mut entry) => {
            MaybeUninit::write(&mut entry, record);
            submit(entry);
        }
        None => count_lost(lost::PROCESS),
    }
}

/// Counts one loss.
#[inline(always)]
pub(crate) fn count_lost(index: u32) {
    if let Some(counter) = LOST.get_ptr_mut(index) {
        // SAFETY: points into a map value. Atomic although per processor: a program can be preempted by another.
        unsafe { fetch_add(counter, 1) };
    }
}

/// A header for the current moment.
#[inline(always)]
pub(crate) fn header(kind: u8, flags: u8, probe: u16, pid_tgid: u64, thread_seq: u64) -> Header {
    Header {
        kind,
        flags,
        probe,
        // SAFETY: no preconditions.
        cpu: unsafe { bpf_get_smp_processor_id() },
        tgid: (pid_tgid >> 32) as u32,
        tid: pid_tgid as u32,
        // SAFETY: no preconditions.
        time: unsafe { bpf_ktime_get_ns() },
        thread_seq,
    }
}
