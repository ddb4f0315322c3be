//! Names of the eBPF programs and where each is attached.
//!
//! The tracepoint programs are raw tracepoints: they need no tracefs and no field offsets of the tracepoint's format.

/// uprobe at the entry of every probed function; cookie: index in `PROBES`.
pub const ENTER: &str = "rankdiff_enter";
/// uretprobe of the functions whose description has [`RETURNS`](crate::probe::flag::RETURNS); the same cookie.
pub const EXIT: &str = "rankdiff_exit";
/// uprobe on `_dl_debug_state` of a dynamic linker.
pub const LINK_MAP: &str = "rankdiff_link_map";
/// Raw tracepoint `sched_process_fork`.
pub const FORK: &str = "rankdiff_fork";
/// Raw tracepoint `sched_process_exec`.
pub const EXEC: &str = "rankdiff_exec";
/// Raw tracepoint `sched_process_exit` of a kernel that tells the last thread (Linux 6.16; attaching fails with EINVAL
/// on others: attach [`TASK_END_OLD`] instead).
pub const TASK_END: &str = "rankdiff_task_end";
/// Raw tracepoint `sched_process_exit` of other kernels.
pub const TASK_END_OLD: &str = "rankdiff_task_end_old";
/// Raw tracepoint `signal_generate`.
pub const SIGNAL: &str = "rankdiff_signal";
/// uprobe that does nothing, for measuring what a probe costs by itself.
pub const EMPTY: &str = "rankdiff_empty";
