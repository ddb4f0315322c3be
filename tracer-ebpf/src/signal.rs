//! Signals that may end a watched process, and who sent them.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use rankdiff_common::event::{Signal, kind};

use crate::maps::{WATCHED, config};
use crate::memory::read_kernel;
use crate::output::{NOT_COUNTED, emit_process, header};

/// Signals that are dropped, or only stop or continue the process, unless they are handled: SIGCHLD, SIGCONT, SIGSTOP,
/// SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH; and the two that the C library keeps for its own use (32, 33).
const HARMLESS: u64 = 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23 | 1 << 28 | 1 << 32 | 1 << 33;
/// Signals are numbered up to this.
const MAX_SIGNAL: u32 = 64;
/// Result of the tracepoint: the signal will be delivered.
const DELIVERED: u32 = 0;

/// `SEND_SIG_NOINFO`: no siginfo, sent by the current process.
const NO_INFO: u64 = 0;
/// `SEND_SIG_PRIV`: no siginfo, sent by the kernel.
const PRIVILEGED: u64 = 1;
/// Offset of `si_code` in `kernel_siginfo`.
const CODE_OFFSET: u64 = 8;

/// `si_code`: by kill.
const SI_USER: i32 = 0;
/// `si_code`: by sigqueue.
const SI_QUEUE: i32 = -1;
/// `si_code`: by tkill or tgkill.
const SI_TKILL: i32 = -6;
/// `si_code`: by the kernel.
const SI_KERNEL: i32 = 0x80;

/// A signal is sent: `(number, siginfo, receiver, to the whole process, result)`.
#[raw_tracepoint(tracepoint = "signal_generate")]
pub(crate) fn rankdiff_signal(context: RawTracePointContext) -> u32 {
    let _ = signal(context.arg(0), context.arg(1), context.arg(2), context.arg(4));
    0
}

#[inline(always)]
fn signal(signal: u32, info: u64, receiver: u64, result: u32) -> Option<()> {
    if signal == 0 || signal > MAX_SIGNAL || result != DELIVERED {
        return None;
    }
    // There is no bit for signal 64, which is not among them.
    if signal < 64 && HARMLESS >> signal & 1 != 0 {
        return None;
    }
    let config = config()?;
    if config.task_tgid == 0 {
        return None;
    }
    let tgid: u32 = read_kernel(receiver.wrapping_add(u64::from(config.task_tgid)))?;
    WATCHED.get_ptr(&tgid)?;
    let tid = match config.task_pid {
        0 => tgid,
        offset => read_kernel(receiver.wrapping_add(u64::from(offset)))?,
    };
    let code = match info {
        NO_INFO => SI_USER,
        PRIVILEGED => SI_KERNEL,
        info => read_kernel(info.wrapping_add(CODE_OFFSET))?,
    };
    // The other codes come from interrupts (timers, faults, I/O): the current process has nothing to do with them.
    let (sender, command) = if matches!(code, SI_USER | SI_QUEUE | SI_TKILL) {
        ((bpf_get_current_pid_tgid() >> 32) as u32, bpf_get_current_comm().unwrap_or([0; 16]))
    } else {
        (0, [0; 16])
    };
    let receiver = u64::from(tgid) << 32 | u64::from(tid);
    emit_process(Signal {
        header: header(kind::SIGNAL, 0, 0, receiver, NOT_COUNTED),
        signal,
        code,
        sender,
        reserved: 0,
        command,
    });
    Some(())
}
