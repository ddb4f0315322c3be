//! What the threads of a process are doing: one look at /proc, without stopping anything.

use std::fs;

use rankdiff_trace::{Life, ThreadState};
use rustc_hash::FxHashMap;

use crate::procfs;

/// Most threads of one process that are described; the first by id (the main thread is always among them).
const MAX_THREADS: usize = 64;

/// What the main threads of quiet processes have been doing, so that a snapshot can say for how long.
#[derive(Debug, Default)]
pub struct Observer {
    seen: FxHashMap<u32, Seen>,
}

/// What a main thread was seen to do without a break.
#[derive(Debug)]
struct Seen {
    doing: (String, String, String, Option<u64>),
    since: u64,
    cpu_ms: u64,
}

impl Observer {
    /// Looks at a process's main thread, at a time in ns of the monotonic clock.
    pub fn observe(&mut self, pid: u32, now: u64) {
        match thread(pid, pid, now) {
            Some(main) => self.note(pid, &main),
            None => {
                self.seen.remove(&pid);
            }
        }
    }

    fn note(&mut self, pid: u32, main: &ThreadState) {
        let doing = (main.state.clone(), main.syscall.clone(), main.device.clone(), main.request);
        let cpu_ms = main.cpu_ms.unwrap_or(0);
        match self.seen.get_mut(&pid) {
            Some(seen) if seen.doing == doing => {}
            _ => {
                self.seen.insert(pid, Seen { doing, since: main.at, cpu_ms });
            }
        }
    }

    /// Adds to a look since when the main thread has been doing what it does, and the CPU time it used meanwhile.
    pub fn complete(&mut self, pid: u32, look: &mut Look) {
        for thread in &mut look.threads {
            let total = thread.cpu_ms.take();
            if thread.tid == pid {
                thread.cpu_ms = total;
                self.note(pid, thread);
                if let Some(seen) = self.seen.get(&pid) {
                    thread.since_ms = Some(seen.since / 1_000_000);
                    thread.cpu_ms = total.map(|total| total.saturating_sub(seen.cpu_ms));
                }
            }
        }
    }
}

/// State of a process and its threads.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// How the process stands, as far as /proc tells; whether it is inside a recorded call is the caller's to add.
    pub life: Life,
    /// Its threads, the main thread first.
    pub threads: Vec<ThreadState>,
}

/// Looks at a process; `None` if it is gone or may not be looked at.
pub fn look(pid: u32, now: u64) -> Option<Look> {
    let mut threads: Vec<ThreadState> =
        procfs::threads(pid).into_iter().take(MAX_THREADS).filter_map(|tid| thread(pid, tid, now)).collect();
    threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
    let main = threads.first()?;
    let life = match main.state.as_str() {
        "stopped" => Life::Stopped,
        _ if threads.iter().any(|thread| thread.state == "disk_sleep") => Life::Blocked,
        "running" => Life::Running,
        "zombie" => return None,
        _ if !main.syscall.is_empty() => Life::Blocked,
        _ => Life::Alive,
    };
    Some(Look { life, threads })
}

fn thread(pid: u32, tid: u32, now: u64) -> Option<ThreadState> {
    let base = format!("/proc/{pid}/task/{tid}");
    let fields = procfs::stat_fields(format!("{base}/stat"))?;
    let text = |name: &str| {
        procfs::read(format!("{base}/{name}")).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).ok()
    };
    let state = match fields.first().map(String::as_str) {
        Some("R") => "running",
        Some("S" | "I") => "sleeping",
        Some("D") => "disk_sleep",
        Some("T" | "t") => "stopped",
        Some("Z" | "X") => "zombie",
        _ => "",
    };
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // utime and stime, fields 14 and 15, are in clock ticks of 10 ms (USER_HZ is 100 on every supported architecture).
    let cpu_ms = (ticks(11) + ticks(12)) * 10;
    let mut look = ThreadState {
        at: now,
        tid,
        name: if tid == pid { "main".to_owned() } else { text("comm").unwrap_or_default() },
        state: state.to_owned(),
        cpu_ms: Some(cpu_ms),
        wchan: text("wchan").filter(|wchan| wchan != "0").unwrap_or_default(),
        ..ThreadState::default()
    };
    if let Some(call) = text("syscall").as_deref().and_then(parse_syscall) {
        look.syscall = syscall_name(call.number);
        if takes_descriptor(call.number) {
            look.device = fs::read_link(format!("/proc/{pid}/fd/{}", call.args[0] as u32))
                .map(|path| path.display().to_string())
                .unwrap_or_default();
        }
        if call.number == libc::SYS_ioctl {
            look.request = Some(call.args[1]);
        }
    }
    if tid == pid {
        look.children = text("children")
            .map(|children| children.split_whitespace().count() as u64)
            .filter(|&children| children > 0);
    }
    Some(look)
}

struct Syscall {
    number: i64,
    args: [u64; 6],
}

/// Parses /proc/PID/task/TID/syscall: `16 0x4 0x5423 … sp pc`, `running`, or `-1 sp pc` (blocked outside a call).
fn parse_syscall(text: &str) -> Option<Syscall> {
    let mut fields = text.split_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    if number < 0 {
        return None;
    }
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Syscall { number, args })
}

/// Whether the call's first argument is a descriptor worth naming.
fn takes_descriptor(number: i64) -> bool {
    [
        libc::SYS_ioctl,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_connect,
        libc::SYS_accept4,
    ]
    .contains(&number)
}

/// Names of the calls that a hung process is usually seen in; others show their number.
fn syscall_name(number: i64) -> String {
    const NAMES: &[(i64, &str)] = &[
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_poll, "poll"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_select, "select"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_epoll_wait, "epoll_wait"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_pwrite64, "pwrite64"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_writev, "writev"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_fdatasync, "fdatasync"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_accept, "accept"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_waitid, "waitid"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_pause, "pause"),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
        (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
        (libc::SYS_sched_yield, "sched_yield"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_munmap, "munmap"),
    ];
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("syscall {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Look, Observer, look, parse_syscall, syscall_name};
    use rankdiff_trace::ThreadState;

    #[test]
    fn parses_the_kernels_forms() {
        let call = parse_syscall("16 0x4 0x5423 0x7f91 0x1 0x0 0x7ffe 0x7ffe89478b40 0x7f91f12fdd6b").expect("a call");
        assert_eq!((call.number, call.args[0], call.args[1]), (16, 4, 0x5423));
        assert!(parse_syscall("running").is_none());
        assert!(parse_syscall("-1 0x7ffe 0x7f91").is_none());
        assert!(parse_syscall("").is_none());
        assert_eq!(syscall_name(16), "ioctl");
        assert_eq!(syscall_name(9999), "syscall 9999");
    }

    #[test]
    fn says_since_when() {
        let main = |at, syscall: &str, cpu_ms| ThreadState {
            at,
            tid: 9,
            syscall: syscall.to_owned(),
            cpu_ms: Some(cpu_ms),
            ..ThreadState::default()
        };
        let mut observer = Observer::default();
        observer.note(9, &main(1_000_000_000, "ioctl", 40));
        observer.note(9, &main(2_000_000_000, "ioctl", 50));
        let mut look = Look { threads: vec![main(4_000_000_000, "ioctl", 70)], ..Look::default() };
        observer.complete(9, &mut look);
        assert_eq!((look.threads[0].since_ms, look.threads[0].cpu_ms), (Some(1000), Some(30)));
        let mut look = Look { threads: vec![main(5_000_000_000, "futex", 90)], ..Look::default() };
        observer.complete(9, &mut look);
        assert_eq!((look.threads[0].since_ms, look.threads[0].cpu_ms), (Some(5000), Some(0)), "it does something else");
    }

    #[test]
    fn sees_a_thread_that_reads_a_pipe() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).expect("the test waits");
            let _ = rustix::io::read(&reader, &mut [0_u8; 1]);
        });
        let tid = receive.recv().expect("the thread runs");
        let mut seen = String::new();
        for _ in 0..200 {
            let look = look(std::process::id(), 7).expect("this process is there");
            assert_eq!(look.threads[0].name, "main");
            if let Some(thread) = look.threads.iter().find(|thread| thread.tid == tid) {
                seen = format!("{} {} {}", thread.state, thread.syscall, thread.device);
                if seen.starts_with("sleeping read pipe:") {
                    return;
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("never seen in read: '{seen}'");
    }
}
