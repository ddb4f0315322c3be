//! Life of watched processes: libraries loaded, forks, other programs run, ends of threads.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_ns};
use aya_ebpf::macros::{raw_tracepoint, uprobe};
use aya_ebpf::programs::{ProbeContext, RawTracePointContext};
use rankdiff_common::event::{Fork, TaskEnd, kind};
use rankdiff_common::map::{lost, watch};
use rankdiff_common::python::PythonConfig;

use crate::maps::{PYTHON, THREADS, WATCHED, config};
use crate::memory::read_kernel;
use crate::output::{NOT_COUNTED, count_lost, emit_process, header};
use crate::thread;

/// Status of a task whose wait status cannot be read.
const STATUS_UNKNOWN: u32 = u32::MAX;
/// [`TaskEnd::last`] where the kernel does not say.
const LAST_UNKNOWN: u32 = 2;

/// The dynamic linker has changed its list of objects.
#[uprobe]
pub(crate) fn rankdiff_link_map(_context: ProbeContext) -> u32 {
    let pid_tgid = bpf_get_current_pid_tgid();
    if watched(pid_tgid).is_some() {
        emit_process(header(kind::LINK_MAP, 0, 0, pid_tgid, NOT_COUNTED));
    }
    0
}

/// A task was made, a thread or a process: `(parent, child)`.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn rankdiff_fork(context: RawTracePointContext) -> u32 {
    let _ = fork(context.arg(1));
    0
}

#[inline(always)]
fn fork(child: u64) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    let watch = watched(pid_tgid)?;
    let offset = config()?.task_tgid;
    if watch & watch::FOLLOW == 0 || offset == 0 {
        return None;
    }
    let child: u32 = read_kernel(child.wrapping_add(u64::from(offset)))?;
    if child == (pid_tgid >> 32) as u32 {
        return None; // a thread
    }
    if WATCHED.insert(&child, &watch, 0).is_err() {
        count_lost(lost::PROCESS);
    }
    let parent = (pid_tgid >> 32) as u32;
    if let Some(python) = PYTHON.get_ptr(&parent) {
        // SAFETY: a map value. The child's memory is a copy, so its interpreter lies in the same place; what is known of
        // an earlier process of that number is not this one's. Without room the child's calls have no Python lines.
        let copy = unsafe { PythonConfig { generation: bpf_ktime_get_ns() as u32, ..*python } };
        let _ = PYTHON.insert(&child, &copy, 0);
    }
    emit_process(Fork { header: header(kind::FORK, 0, 0, pid_tgid, NOT_COUNTED), child, reserved: 0 });
    Some(())
}

/// A process runs another program: `(task, tid before, …)`.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn rankdiff_exec(context: RawTracePointContext) -> u32 {
    let _ = exec(context.arg(1));
    0
}

#[inline(always)]
fn exec(tid_before: u32) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    watched(pid_tgid)?;
    // A thread that is not the first takes the first one's number.
    let before = pid_tgid & !0xffff_ffff | u64::from(tid_before);
    let calls = thread::existing(before).map_or(0, |thread| thread.calls);
    let _ = THREADS.remove(&before);
    let _ = PYTHON.remove(&((pid_tgid >> 32) as u32));
    emit_process(header(kind::EXEC, 0, 0, pid_tgid, calls));
    Some(())
}

/// A thread ends: `(task, whether it was the last of its process)`.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn rankdiff_task_end(context: RawTracePointContext) -> u32 {
    // A bool, of which the kernel promises only the lowest byte.
    let last: u8 = context.arg(1);
    let _ = task_end(Some(u32::from(last != 0)));
    0
}

/// A thread ends: `(task)`.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn rankdiff_task_end_old(_context: RawTracePointContext) -> u32 {
    let _ = task_end(None);
    0
}

#[inline(always)]
fn task_end(last: Option<u32>) -> Option<()> {
    let pid_tgid = bpf_get_current_pid_tgid();
    watched(pid_tgid)?;
    let calls = thread::existing(pid_tgid).map_or(0, |thread| thread.calls);
    let _ = THREADS.remove(&pid_tgid);
    let last = match last {
        Some(last) => last,
        None => last_by_count().unwrap_or(LAST_UNKNOWN),
    };
    if last == 1 {
        // Before the record: once it is out, the number may belong to another process that is to be watched.
        let tgid = (pid_tgid >> 32) as u32;
        let _ = WATCHED.remove(&tgid);
        let _ = PYTHON.remove(&tgid);
    }
    emit_process(TaskEnd {
        header: header(kind::TASK_END, 0, 0, pid_tgid, NOT_COUNTED),
        calls,
        status: status().unwrap_or(STATUS_UNKNOWN),
        last,
    });
    Some(())
}

/// Wait status of the current task.
#[inline(always)]
fn status() -> Option<u32> {
    let offset = config()?.task_exit_code;
    if offset == 0 {
        return None;
    }
    // SAFETY: no preconditions.
    read_kernel(unsafe { bpf_get_current_task() }.wrapping_add(u64::from(offset)))
}

/// Whether no thread of the process is left, from the kernel's own count, which it has already lowered.
#[inline(always)]
fn last_by_count() -> Option<u32> {
    let config = config()?;
    if config.task_signal == 0 || config.signal_live == 0 {
        return None;
    }
    // SAFETY: no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let signal: u64 = read_kernel(task.wrapping_add(u64::from(config.task_signal)))?;
    let live: u32 = read_kernel(signal.wrapping_add(u64::from(config.signal_live)))?;
    Some(u32::from(live == 0))
}

/// Flags of a watched process.
#[inline(always)]
fn watched(pid_tgid: u64) -> Option<u32> {
    let tgid = (pid_tgid >> 32) as u32;
    // SAFETY: a u32, read in one instruction.
    WATCHED.get_ptr(&tgid).map(|flags| unsafe { *flags })
}
