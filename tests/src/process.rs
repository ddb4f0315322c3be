//! Programs under test: started with a mark in their environment, watched with a time limit, and gone with all that
//! they started when the test ends, however it ends.
//!
//! The mark is inherited by everything that a program starts, sessions and process groups of its own included; so a job
//! whose recorder was killed is found and ended as well.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Variable that carries the mark.
const MARK: &str = "RANKDIFF_TEST_MARK";
/// Pause between two looks at a program.
const PAUSE: Duration = Duration::from_millis(10);

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    mark: String,
    output: [Option<JoinHandle<String>>; 2],
    started: Instant,
}

/// A program that ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its exit code, or 128 + n for a signal.
    pub code: i32,
    /// What it wrote.
    pub stdout: String,
    /// Its messages.
    pub stderr: String,
    /// How long it ran.
    pub wall: Duration,
}

fn collect(stream: Option<impl Read + Send + 'static>) -> Option<JoinHandle<String>> {
    let mut stream = stream?;
    Some(thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is all that there is.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

/// Starts a program, its output collected.
///
/// # Panics
/// If it cannot be started.
pub fn start(command: &mut Command) -> Running {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let output = [collect(child.stdout.take()), collect(child.stderr.take())];
    Running { child, mark, output, started: Instant::now() }
}

/// Runs a program to its end.
///
/// # Panics
/// If it cannot be started, or has not ended after `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Ended {
    let text = format!("{command:?}");
    let mut running = start(command);
    running.wait(limit).unwrap_or_else(|| panic!("{text} has not ended after {limit:?}"))
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits until it and those who hold its output have ended; `None` if they have not after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<Ended> {
        let status = self.wait_for_first(limit)?;
        let wall = self.started.elapsed();
        let until = Instant::now() + limit;
        while self.output.iter().flatten().any(|reader| !reader.is_finished()) {
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(PAUSE);
        }
        let [stdout, stderr] = self
            .output
            .each_mut()
            .map(|reader| reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default());
        Some(Ended { code: code(status), stdout, stderr, wall })
    }

    /// Waits until it has ended, whatever it started goes on or not.
    pub fn wait_for_first(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if Instant::now() >= until => return None,
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Processes of it that are alive, itself included.
    pub fn alive(&self) -> Vec<u32> {
        marked(&self.mark)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Those that start others while they are being ended are found in the next round.
        for _ in 0..20 {
            let alive = self.alive();
            if alive.is_empty() {
                break;
            }
            for pid in alive {
                send(pid, Signal::KILL);
            }
            thread::sleep(PAUSE);
        }
        // It is ended or gone; a zombie must not stay.
        let _ = self.child.wait();
    }
}

/// Sends a signal to one process.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may be gone.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Ids of all processes.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Living processes that were started with this mark.
fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let has = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| bytes.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()))
    };
    pids().into_iter().filter(has).collect()
}

/// Processes whose parent is this one, by age.
pub fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let mut found: Vec<u32> = pids().into_iter().filter(|&pid| parent_of(pid) == Some(parent)).collect();
    found.sort_unstable();
    found
}

/// The first process below `root` that runs a program of this name.
pub fn find_program(root: u32, name: &str) -> Option<u32> {
    let own = fs::read_link(format!("/proc/{root}/exe")).ok();
    if own.as_deref().and_then(|path| path.file_name()) == Some(OsStr::new(name)) {
        return Some(root);
    }
    children(root).into_iter().find_map(|child| find_program(child, name))
}

/// Waits for something, looking again and again.
///
/// # Panics
/// If it has not happened after `limit`.
pub fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {limit:?}");
        thread::sleep(PAUSE);
    }
}
