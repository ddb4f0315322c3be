//! What a stream says beside its calls: clocks, gaps, the state of processes and threads, attributes, marks, labels.

use std::fmt;

/// The clocks of one moment, so that times of one stream can be compared with another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClockSnapshot {
    /// CLOCK_MONOTONIC, ns: the clock of every other time in the stream.
    pub monotonic: u64,
    /// CLOCK_BOOTTIME, ns.
    pub boottime: u64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime: u64,
}

/// Why calls are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum GapCause {
    /// The ring buffer was full.
    RingFull = 1,
    /// The recorder began after the process did.
    LateAttach = 2,
    /// The recorder ended or was killed before the process.
    RecorderGone = 3,
    /// The file ends in the middle of a block or holds an unreadable one.
    Torn = 4,
    /// The disk was full or the size limit reached.
    DiskFull = 5,
    /// A library was mapped before its probes were attached.
    Unprobed = 6,
    /// Not known.
    #[default]
    Unknown = 7,
    /// Dropped by retention, older than what was to be kept.
    Expired = 8,
}

impl GapCause {
    /// The cause with this code in the file format.
    pub fn from_code(code: u8) -> Option<GapCause> {
        match code {
            1 => Some(GapCause::RingFull),
            2 => Some(GapCause::LateAttach),
            3 => Some(GapCause::RecorderGone),
            4 => Some(GapCause::Torn),
            5 => Some(GapCause::DiskFull),
            6 => Some(GapCause::Unprobed),
            7 => Some(GapCause::Unknown),
            8 => Some(GapCause::Expired),
            _ => None,
        }
    }

    /// Name for programs.
    pub fn name(self) -> &'static str {
        match self {
            GapCause::RingFull => "ring_full",
            GapCause::LateAttach => "late_attach",
            GapCause::RecorderGone => "recorder_gone",
            GapCause::Torn => "torn",
            GapCause::DiskFull => "disk_full",
            GapCause::Unprobed => "unprobed",
            GapCause::Unknown => "unknown",
            GapCause::Expired => "expired",
        }
    }

    /// Words for reports.
    pub fn describe(self) -> &'static str {
        match self {
            GapCause::RingFull => "lost in a full ring buffer",
            GapCause::LateAttach => "before the recorder was attached",
            GapCause::RecorderGone => "after the recorder ended",
            GapCause::Torn => "in a torn file",
            GapCause::DiskFull => "not written: no room (disk full, or --max-disk reached)",
            GapCause::Unprobed => "before the library's probes were attached",
            GapCause::Unknown => "missing for an unknown reason",
            GapCause::Expired => "dropped by --keep; their digests are there",
        }
    }
}

/// Calls that were made, or may have been, and are not in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gap {
    /// Why.
    pub cause: GapCause,
    /// Thread that made them; 0 if not known.
    pub thread: u32,
    /// `thread_seq` of the first missing call; meaningful where `thread` is known.
    pub first_thread_seq: u64,
    /// How many; `None` if not known (perhaps none).
    pub events: Option<u64>,
    /// The gap lies after this time, ns; 0 = from the process's start.
    pub after: u64,
    /// The gap lies before this time, ns; `u64::MAX` = to the end.
    pub before: u64,
}

/// Who ended a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum EndedBy {
    /// Not known.
    #[default]
    Unknown,
    /// The kernel, out of memory.
    OomKiller,
    /// A watchdog in the job itself (a time-out that aborts).
    Watchdog,
    /// The launcher, after another rank failed.
    Launcher,
    /// A person or another program.
    User,
    /// The process itself.
    Itself,
    /// This process (pid, command name); the analyzer judges what it was.
    Process(u32, String),
}

/// Words that go on after 'killed by signal 9'; none if it is not known.
impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndedBy::Unknown => Ok(()),
            EndedBy::OomKiller => f.write_str(" by the kernel's OOM killer (out of memory)"),
            EndedBy::Watchdog => f.write_str(" by its own watchdog"),
            EndedBy::Launcher => f.write_str(" by the launcher"),
            EndedBy::User => f.write_str(" by a user or another program"),
            EndedBy::Itself => f.write_str(" by itself"),
            EndedBy::Process(pid, name) => write!(f, " by process {pid} ({name})"),
        }
    }
}

/// How a process stood when last seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Life {
    /// Ended by itself with this code.
    Exited(i32),
    /// Ended by a signal.
    Signaled {
        /// Signal number.
        signal: i32,
        /// Who sent it.
        by: EndedBy,
    },
    /// Alive, inside a recorded call.
    Waiting,
    /// Alive, on a CPU.
    Running,
    /// Alive, in the kernel.
    Blocked,
    /// Alive, stopped by a signal or a debugger.
    Stopped,
    /// Alive, nothing more known.
    #[default]
    Alive,
}

/// Words that go on after a name: 'exited with code 0', 'waiting in a call'.
impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Life::Exited(code) => write!(f, "exited with code {code}"),
            Life::Signaled { signal, by } => {
                write!(f, "killed by signal {signal}{}{by}", signal_name(*signal))
            }
            Life::Waiting => f.write_str("waiting in a call"),
            Life::Running => f.write_str("running"),
            Life::Blocked => f.write_str("blocked in the kernel"),
            Life::Stopped => f.write_str("stopped"),
            Life::Alive => f.write_str("alive"),
        }
    }
}

/// The usual name of a signal, in brackets (numbers of x86 and ARM, signal(7)).
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        _ => "",
    }
}

/// State of a process at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProcessState {
    /// When, ns of the stream's clock.
    pub at: u64,
    /// How it stood.
    pub life: Life,
}

/// One thread when the recorder looked (one /proc look, or a scenario's). Empty and zero mean 'not known'.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ThreadState {
    /// When, ns of the stream's clock.
    pub at: u64,
    /// Kernel thread id.
    pub tid: u32,
    /// Thread name; 'main' for the first thread.
    pub name: String,
    /// Scheduler state in words: running, sleeping, blocked, disk_sleep, stopped, zombie.
    pub state: String,
    /// Name of the system call it is in.
    pub syscall: String,
    /// Path behind the call's descriptor.
    pub device: String,
    /// Request code of an ioctl.
    pub request: Option<u64>,
    /// Result of the last such call ('ETIMEDOUT').
    pub result: String,
    /// Duration of one such call, ms.
    pub each_ms: Option<u64>,
    /// How often it was made.
    pub times: Option<u64>,
    /// In this state since, ms of the stream's clock.
    pub since_ms: Option<u64>,
    /// CPU time used since then, ms.
    pub cpu_ms: Option<u64>,
    /// Kernel function it waits in.
    pub wchan: String,
    /// Python frames, outermost first, joined by `>`.
    pub python: String,
    /// Native frames, outermost first, joined by `>`.
    pub native: String,
    /// File or network activity, in words.
    pub io: String,
    /// Running child processes.
    pub children: Option<u64>,
}

/// A line that a process printed or that speaks of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LogLine {
    /// When, ns of the stream's clock; 0 if not known.
    pub at: u64,
    /// The text.
    pub text: String,
}

/// An attribute of a rank (host, numa, local_rank, device, stage, anything).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Attribute {
    /// Global rank; `None`: the process's own rank.
    pub rank: Option<u32>,
    /// Name.
    pub key: String,
    /// Value.
    pub value: String,
}

/// The start of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StepMark {
    /// When, ns of the stream's clock.
    pub at: u64,
    /// Thread.
    pub thread: u32,
    /// `thread_seq` of the first call of the step.
    pub first_thread_seq: u64,
    /// Number of the step.
    pub step: u64,
}
