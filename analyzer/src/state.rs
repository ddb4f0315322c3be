//! How each rank stood when last seen: ended and how, until when its record speaks, what its threads did.

use rankdiff_trace::{Call, EndedBy, GapCause, Life, Op, ThreadState};

use crate::stream::{Attempt, RankStream};
use crate::words::{duration, seconds};

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    Exit(i32),
    Signal(i32, EndedBy),
}

/// One rank at the end of its record.
#[derive(Debug)]
pub(crate) struct RankState<'a> {
    pub(crate) rank: u32,
    pub(crate) life: Option<&'a Life>,
    /// When and how it ended.
    pub(crate) ended: Option<(i64, How)>,
    /// Until when the record is known to be complete: what is not in it by then had not happened. Earlier than the last
    /// sign of it by what its clock may be wrong against other ranks' clocks.
    pub(crate) horizon: i64,
    /// Latest look at its threads.
    pub(crate) threads: Vec<&'a ThreadState>,
    /// Lines of its log.
    pub(crate) log: Vec<(Option<i64>, &'a str)>,
    /// It shut the library down.
    pub(crate) finalized: Option<&'a Call>,
    /// It called the library's initialisation.
    pub(crate) initialized: bool,
    /// It ended the job.
    pub(crate) aborted: Option<&'a Call>,
    /// Its file ends torn.
    pub(crate) torn: bool,
}

/// What a rank that is waited for was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// In a device driver, or in uninterruptible sleep.
    Driver,
    /// Using the CPU, doing I/O, waiting for children that work.
    Working,
    /// Asleep, on a lock or a queue.
    Asleep,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Nothing tells.
    Unknown,
}

impl<'a> RankState<'a> {
    pub(crate) fn of(stream: &RankStream<'a>) -> RankState<'a> {
        let trace = stream.trace;
        let last = trace.states.iter().max_by_key(|state| state.at);
        let ended = trace.states.iter().filter(|state| matches!(state.life, Life::Exited(_) | Life::Signaled { .. }));
        let ended = ended.max_by_key(|state| state.at).map(|state| {
            let how = match &state.life {
                Life::Signaled { signal, by } => How::Signal(*signal, by.clone()),
                Life::Exited(code) => How::Exit(*code),
                _ => How::Exit(0),
            };
            (stream.time(state.at), how)
        });
        let torn_at = trace
            .gaps
            .iter()
            .filter(|gap| {
                matches!(gap.cause, GapCause::Torn | GapCause::RecorderGone | GapCause::DiskFull)
                    && gap.before == u64::MAX
            })
            .map(|gap| stream.time(gap.after))
            .min();
        let mut last_sign = None;
        let mut reach = |ns: u64| last_sign = last_sign.max(Some(ns));
        trace.states.iter().for_each(|state| reach(state.at));
        trace.threads.iter().for_each(|thread| reach(thread.at));
        trace.clocks.iter().for_each(|clock| reach(clock.monotonic));
        for call in &stream.calls {
            reach(call.exit.unwrap_or(call.enter));
        }
        if let Some(known) = trace.elided.as_ref().filter(|known| known.calls > 0) {
            reach(known.times.1);
        }
        let certain = |ns: u64| stream.time(ns).saturating_sub(stream.clock.doubt(ns));
        let mut horizon = last_sign.map_or(i64::MIN, certain);
        if let Some(torn) = torn_at {
            horizon = horizon.min(torn);
        }
        RankState {
            rank: stream.rank,
            life: last.map(|state| &state.life),
            ended,
            horizon,
            threads: latest_threads(&trace.threads),
            log: trace
                .logs
                .iter()
                .map(|line| ((line.at > 0).then(|| stream.time(line.at)), line.text.as_str()))
                .collect(),
            initialized: stream.calls.iter().any(|call| call.op == Op::Init),
            finalized: stream.calls.iter().rev().find(|call| call.op == Op::Finalize).copied(),
            aborted: stream.calls.iter().find(|call| call.op == Op::Abort).copied(),
            torn: torn_at.is_some() && trace.gaps.iter().any(|gap| gap.cause == GapCause::Torn),
        }
    }

    /// Whether no further call can come.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended.is_some() || self.finalized.is_some()
    }

    /// Whether it failed rather than ended.
    pub(crate) fn failed(&self) -> bool {
        !matches!(self.ended, None | Some((_, How::Exit(0)))) || self.aborted.is_some()
    }

    /// Whether it ended by itself with code 0 although it never shut the library down that it had started: a launcher
    /// ends the others for it.
    pub(crate) fn left_without_shutdown(&self) -> bool {
        matches!(self.ended, Some((_, How::Exit(0)))) && self.initialized && self.finalized.is_none()
    }

    /// How it ended, in words.
    pub(crate) fn ending(&self) -> String {
        match &self.ended {
            // Whatever the launcher did to it afterwards.
            _ if self.aborted.is_some() => "ended the job by calling abort".to_owned(),
            _ if self.left_without_shutdown() => {
                "exited with code 0 without shutting the library down (no finalize)".to_owned()
            }
            Some((_, How::Exit(code))) => Life::Exited(*code).to_string(),
            Some((_, How::Signal(signal, by))) => Life::Signaled { signal: *signal, by: by.clone() }.to_string(),
            None if self.finalized.is_some() => "has shut the library down (finalize)".to_owned(),
            None => "alive".to_owned(),
        }
    }

    /// What the rank was doing, and the facts that say so.
    pub(crate) fn activity(&self, limit: i64) -> (Activity, Vec<String>) {
        let mut facts: Vec<String> = Vec::new();
        let mut found = Activity::Unknown;
        // The main thread speaks for the rank; another one only if it is in a driver.
        let mut threads = self.threads.clone();
        threads.sort_by_key(|thread| (thread.name != "main", thread.tid));
        for (order, thread) in threads.iter().enumerate() {
            let of_thread = thread_activity(thread, limit);
            if order == 0 && thread.name == "main" || of_thread == Activity::Driver || threads.len() == 1 {
                if of_thread < found {
                    found = of_thread;
                }
                if facts.len() < 4 {
                    facts.push(describe_thread(thread));
                }
            }
        }
        if found == Activity::Unknown && facts.is_empty() {
            for thread in &threads {
                let of_thread = thread_activity(thread, limit);
                if of_thread == Activity::Working && found == Activity::Unknown {
                    found = of_thread;
                    facts.push(describe_thread(thread));
                }
            }
        }
        match self.life {
            Some(Life::Stopped) => (Activity::Stopped, facts),
            Some(Life::Running) if found >= Activity::Asleep => {
                if facts.is_empty() {
                    facts.push("running on a CPU when last seen".to_owned());
                }
                (Activity::Working, facts)
            }
            _ => (found, facts),
        }
    }
}

impl RankState<'_> {
    /// The thread that speaks for the rank.
    pub(crate) fn main_thread(&self) -> Option<&ThreadState> {
        let named = self.threads.iter().find(|thread| thread.name == "main");
        named.or(self.threads.first().filter(|_| self.threads.len() == 1)).copied()
    }

    /// Whether nothing of the rank moves or waits for something outside the job: its main thread sleeps on a lock or a
    /// queue, or has been inside one call on a file all the time, and no other thread works.
    pub(crate) fn rests(&self, limit: i64) -> bool {
        let Some(main) = self.main_thread() else { return false };
        let since = main.since_ms.map(|since| main.at.saturating_sub(since.saturating_mul(1_000_000)));
        let long = since.is_some_and(|since| i64::try_from(since).unwrap_or(i64::MAX) >= limit);
        let in_one_call = in_file(main) && main.state == "disk_sleep" && main.io.is_empty() && main.children.is_none();
        let asleep = thread_activity(main, limit) == Activity::Asleep && !waits_outside(main);
        let alone = self.threads.iter().filter(|thread| !std::ptr::eq(**thread, main));
        let idle =
            |thread: &&ThreadState| matches!(thread_activity(thread, limit), Activity::Asleep | Activity::Unknown);
        long && (asleep || in_one_call)
            && alone.copied().all(|thread| idle(&thread))
            && self.life != Some(&Life::Running)
    }
}

/// Whether a thread waits for what may come from outside the job: requests, other machines.
fn waits_outside(thread: &ThreadState) -> bool {
    let calls = [
        "accept",
        "accept4",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "poll",
        "ppoll",
        "select",
        "pselect6",
        "recvfrom",
        "recvmsg",
        "recvmmsg",
    ];
    calls.contains(&thread.syscall.as_str()) && !thread.device.starts_with("pipe:")
        || thread.device.starts_with("socket:")
}

fn latest_threads(threads: &[ThreadState]) -> Vec<&ThreadState> {
    let mut latest: Vec<&ThreadState> = Vec::new();
    for thread in threads {
        match latest.iter_mut().find(|held| held.tid == thread.tid && held.name == thread.name) {
            Some(held) if held.at <= thread.at => *held = thread,
            Some(_) => {}
            None => latest.push(thread),
        }
    }
    latest
}

fn thread_activity(thread: &ThreadState, limit: i64) -> Activity {
    let ioctl = thread.syscall == "ioctl";
    let repeats = thread.times.unwrap_or(1);
    let in_calls = thread.each_ms.unwrap_or(0).saturating_mul(repeats);
    let so_long = in_calls.saturating_mul(1_000_000) as i64 >= limit
        || thread
            .since_ms
            .is_some_and(|since| thread.at.saturating_sub(since.saturating_mul(1_000_000)) as i64 >= limit);
    let failing = !thread.result.is_empty() && thread.result != "0";
    if ioctl && (so_long || repeats > 1 || failing || thread.state == "disk_sleep" || thread.state == "blocked") {
        return Activity::Driver;
    }
    let busy_cpu = thread.cpu_ms.is_some_and(|cpu| {
        let elapsed = thread.since_ms.map(|since| (thread.at / 1_000_000).saturating_sub(since));
        elapsed.is_some_and(|elapsed| elapsed > 0 && cpu.saturating_mul(10) >= elapsed)
    });
    let working = thread.state == "running" || busy_cpu || !thread.io.is_empty() || thread.children.unwrap_or(0) > 0;
    if working || in_file(thread) {
        return Activity::Working;
    }
    match thread.state.as_str() {
        "disk_sleep" => Activity::Driver,
        "stopped" => Activity::Stopped,
        "sleeping" | "blocked" => Activity::Asleep,
        _ if !thread.wchan.is_empty() || !thread.syscall.is_empty() => Activity::Asleep,
        _ => Activity::Unknown,
    }
}

/// Whether a thread reads or writes a file. Pipes, sockets and the like (`pipe:[7]`, `socket:[7]`, `anon_inode:…`) are
/// waited on: their other end has to do something.
fn in_file(thread: &ThreadState) -> bool {
    let device = thread.device.as_str();
    match thread.syscall.as_str() {
        // These work on nothing but files.
        "pread64" | "pwrite64" | "fsync" | "fdatasync" | "openat" if device.is_empty() => true,
        // Only a disk makes a call that cannot be interrupted.
        "read" | "write" | "readv" | "writev" | "sendfile" if device.is_empty() => thread.state == "disk_sleep",
        "read" | "write" | "readv" | "writev" | "sendfile" | "pread64" | "pwrite64" | "fsync" | "fdatasync"
        | "openat" => device.starts_with('/') && !device.starts_with("/dev/"),
        _ => false,
    }
}

/// A thread in one line.
pub(crate) fn describe_thread(thread: &ThreadState) -> String {
    let name =
        if thread.name.is_empty() { format!("thread {}", thread.tid) } else { format!("{} thread", thread.name) };
    let mut text = name;
    if !thread.state.is_empty() {
        text.push(' ');
        text.push_str(&thread.state.replace("disk_sleep", "in uninterruptible sleep"));
    }
    if !thread.syscall.is_empty() {
        text.push_str(&format!(" in {}", thread.syscall));
        if let Some(request) = thread.request {
            text.push_str(&format!(" {request:#x}"));
        }
        if !thread.device.is_empty() {
            text.push_str(&format!(" on {}", thread.device));
        }
    }
    let mut more: Vec<String> = Vec::new();
    match (thread.times, thread.each_ms) {
        (Some(times), Some(each)) => more.push(format!("{times} times, {} each", seconds(each))),
        (Some(times), None) => more.push(format!("{times} times")),
        (None, Some(each)) => more.push(format!("{} each", seconds(each))),
        (None, None) => {}
    }
    if !thread.result.is_empty() {
        more.push(format!("result {}", thread.result));
    }
    if let Some(since) = thread.since_ms {
        let ago = (thread.at / 1_000_000).saturating_sub(since);
        more.push(format!("for {}", duration(ago)));
    }
    if let Some(cpu) = thread.cpu_ms {
        more.push(format!("{} of CPU time", seconds(cpu)));
    }
    if !thread.io.is_empty() {
        more.push(thread.io.clone());
    }
    if let Some(children) = thread.children.filter(|&children| children > 0) {
        more.push(format!("{children} child processes"));
    }
    if !thread.wchan.is_empty() {
        more.push(format!("in kernel function {}", thread.wchan));
    }
    if !thread.python.is_empty() {
        more.push(format!("in {}", thread.python));
    }
    if !thread.native.is_empty() {
        more.push(format!("at {}", thread.native));
    }
    if !more.is_empty() {
        text.push_str(": ");
        text.push_str(&more.join(", "));
    }
    text
}

/// The states of an attempt's ranks, parallel to its streams.
pub(crate) fn all<'a>(attempt: &Attempt<'a>) -> Vec<RankState<'a>> {
    attempt.streams.iter().map(RankState::of).collect()
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::ThreadState;

    use super::{Activity, describe_thread, thread_activity};

    fn thread() -> ThreadState {
        ThreadState { at: 420_000_000_000, name: "main".into(), since_ms: Some(136_852), ..ThreadState::default() }
    }

    #[test]
    fn a_repeated_ioctl_is_the_driver() {
        let thread = ThreadState {
            state: "blocked".into(),
            syscall: "ioctl".into(),
            device: "/dev/gpu0".into(),
            request: Some(0xc010_4b05),
            result: "ETIMEDOUT".into(),
            each_ms: Some(10_240),
            times: Some(27),
            ..thread()
        };
        assert_eq!(thread_activity(&thread, 30_000_000_000), Activity::Driver);
        assert_eq!(
            describe_thread(&thread),
            "main thread blocked in ioctl 0xc0104b05 on /dev/gpu0: 27 times, 10.24 s each, result ETIMEDOUT, for 4 min 43 s"
        );
    }

    #[test]
    fn cpu_time_and_files_are_work_and_a_futex_is_sleep() {
        let work = ThreadState { cpu_ms: Some(200_000), ..thread() };
        assert_eq!(thread_activity(&work, 1), Activity::Working);
        let files = ThreadState { state: "disk_sleep".into(), syscall: "read".into(), ..thread() };
        assert_eq!(thread_activity(&files, 1), Activity::Working);
        let of = |device: &str| {
            let state = if device.is_empty() { "disk_sleep" } else { "sleeping" };
            let thread = ThreadState { state: state.into(), syscall: "read".into(), device: device.into(), ..thread() };
            thread_activity(&thread, 1)
        };
        assert_eq!((of("/data/part-0"), of("")), (Activity::Working, Activity::Working));
        for other in ["pipe:[123]", "socket:[9]", "anon_inode:[eventpoll]", "/dev/pts/0"] {
            assert_eq!(of(other), Activity::Asleep, "{other}");
        }
        let lock = ThreadState { state: "sleeping".into(), syscall: "futex".into(), ..thread() };
        assert_eq!(thread_activity(&lock, 1), Activity::Asleep);
        assert_eq!(thread_activity(&thread(), 1), Activity::Unknown);
    }
}
