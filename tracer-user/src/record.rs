//! Starts a job and records it until it ends.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rankdiff_trace::Dropped;
use rankdiff_trace::header::{FORMAT_MAJOR, FORMAT_MINOR};
use rankdiff_trace::job::{JobFile, JobInfo};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::attach::LoadOptions;
use crate::caller::Caller;
use crate::clock;
use crate::place::{self, Keeper, PlaceError, Storage};
use crate::points::PlanOptions;
use crate::predict;
use crate::process::StreamOptions;
use crate::procfs;
use crate::session::{Attached, Session, SessionError, SessionOptions, Totals};

/// Shortest and longest pause between two looks at the ring.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(16));
/// What was seen is in blocks after this time and [`SEAL_LOOK`] at most; in the live tail it is at once.
const SEAL: Duration = Duration::from_millis(850);
/// How often it is looked for what is to be sealed.
const SEAL_LOOK: Duration = Duration::from_millis(100);
/// A job that was ended after less than this without a call may just have been computing.
const SHORTEST_STALL: Duration = Duration::from_secs(1);
/// Nice value of the thread that empties the rings.
const READER_PRIORITY: i32 = -10;
/// After so long without a call the ranks are looked at, and again each time it passes.
const QUIET: Duration = Duration::from_millis(250);
/// How long processes have between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long the end of other processes is waited for once the job's first process has ended.
const STRAGGLERS: Duration = Duration::from_millis(300);

/// What to record and how.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Command and arguments.
    pub command: Vec<OsString>,
    /// Variables set for the command beside the caller's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The job's directory; created if it is missing.
    pub dir: PathBuf,
    /// How much of the recording is kept there.
    pub storage: Storage,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// Look at the ranks, and say so, when no call was seen for this long.
    pub stall_after: Duration,
    /// End the job at such a stall (the demo does).
    pub end_on_stall: bool,
    /// Size of the ring and the like.
    pub load: LoadOptions,
    /// What is probed.
    pub plan: PlanOptions,
    /// More files to probe before the start.
    pub files: Vec<PathBuf>,
}

/// How a recording ended.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The command's status; `None` if the recorder ended it.
    pub status: Option<ExitStatus>,
    /// Why the recorder ended it.
    pub ended: Option<Ended>,
    /// What was attached before the start.
    pub attached: Attached,
    /// What was seen.
    pub totals: Totals,
    /// What was dropped, as it was older than what was to be kept.
    pub dropped: Dropped,
    /// Whether there was no room for all calls under the limit for the disk.
    pub full: bool,
    /// Whether something that was created still belongs to root, since it could not be given to the caller.
    pub not_given: bool,
}

/// Why a recorder ended the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// `timeout` has passed.
    Timeout,
    /// No call for `stall_after`.
    Stall,
}

/// A job could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] rankdiff_trace::WriteError),
    /// Recording is not possible here.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The command cannot be started.
    #[error("cannot run {command}: {source}")]
    Start {
        /// The command.
        command: String,
        /// Cause.
        source: io::Error,
    },
    /// A system call failed that never should.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// Progress, for whoever shows it.
pub trait Watcher {
    /// Probes are in place; the job starts now.
    fn attached(&mut self, attached: &Attached);
    /// A library that appeared later was probed, or could not be.
    fn news(&mut self, attached: &Attached);
    /// No call was seen for this long.
    fn stalled(&mut self, since: Duration);
    /// All files together take as much as they may: calls are not recorded from here on.
    fn full(&mut self, _limit: u64) {}
    /// Streams have no live tail, for this reason: if the recorder is killed, what it saw last is lost.
    fn without_tail(&mut self, _problem: &str) {}
}

/// Records a job from its start to its end.
pub fn record(options: &RecordOptions, watcher: &mut dyn Watcher) -> Result<Recorded, RecordError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| RecordError::System { doing: "cannot start the event loop", source })?;
    runtime.block_on(run(options, watcher))
}

async fn run(options: &RecordOptions, watcher: &mut dyn Watcher) -> Result<Recorded, RecordError> {
    let caller = Caller::from_environment();
    let dir = place::open(&options.dir, caller.as_ref(), options.storage)?;
    let host = procfs::host_name();
    let launch = place::launch(|name| std::env::var(name).ok());
    let job = place::job_id(&options.dir, options.storage.named, &launch);
    let mut info = JobInfo {
        format_version: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
        recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host.clone(),
        job_id: job.clone(),
        launch,
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        start_realtime: clock::snapshot().realtime,
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
        ..JobInfo::default()
    };
    place::check(&options.dir, &info, options.storage)?;
    let writer = place::writer(&job, options.storage);
    let streams = StreamOptions { dir: Arc::clone(&dir), host, writer, job, no_tail: Arc::default() };
    let no_tail = Arc::clone(&streams.no_tail);
    let load = options.load.clone();
    let mut session = Session::start(SessionOptions { streams, load, plan: options.plan.clone() })?;
    let environment: Vec<(OsString, OsString)> =
        std::env::vars_os().chain(options.environment.iter().cloned()).collect();
    let prediction = predict::predict(&options.command, &environment);
    let mut files = prediction.files;
    files.extend(options.files.iter().cloned());
    let mut attached = session.attach_files(&files);
    attached.problems.splice(0..0, prediction.notes);
    watcher.attached(&attached);
    let mut file = JobFile::create(&dir, &info)?;
    let keeper = Keeper::start(&dir, options.storage)?;
    let child = start(&mut session, options, caller.as_ref())?;
    // Ranks often spin on every processor; a reader that waits its turn among them loses events. The job, started before
    // this, keeps its own priority. Without the right to do so the recorder goes on as it is.
    let _ = rustix::process::setpriority_process(None, READER_PRIORITY);
    let mut quiet = None;
    let (status, ended) = follow(&mut session, child, options, watcher, &mut quiet, &no_tail).await?;
    let totals = session.finish();
    let dropped = keeper.map(Keeper::finish).unwrap_or_default();
    info.end_realtime = Some(clock::snapshot().realtime);
    if let Some(quiet) = quiet.filter(|&quiet| quiet >= SHORTEST_STALL) {
        // Whoever reads the trace must know that the job was not given more time than this.
        info.stall_after_ms = u64::try_from((quiet * 4 / 5).as_millis()).ok();
    }
    // A disk that is full is the recorder's affair: the job's own end is what counts.
    if let Err(error) = file.replace(&info) {
        tracing::error!("{error}; the trace does not say when the recording ended");
    }
    let (full, not_given) = (dir.is_full(), !dir.is_given());
    Ok(Recorded { status, ended, attached, totals, dropped, full, not_given })
}

/// Starts the command. The recorder watches itself meanwhile, so that the kernel adds the child at its birth.
fn start(session: &mut Session, options: &RecordOptions, caller: Option<&Caller>) -> Result<Child, RecordError> {
    let (program, arguments) = options.command.split_first().ok_or_else(|| RecordError::Start {
        command: String::new(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "no command given"),
    })?;
    let mut command = Command::new(program);
    command.args(arguments).envs(options.environment.iter().cloned());
    if let Some(caller) = caller {
        caller.become_in(&mut command);
    }
    let this = std::process::id();
    session.watch(this).map_err(SessionError::from)?;
    let child = command.spawn();
    session.unwatch(this).map_err(SessionError::from)?;
    child.map_err(|source| RecordError::Start { command: program.to_string_lossy().into_owned(), source })
}

/// Signals that are passed on to the job.
struct Signals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal, and whether the terminal has sent it to the job as well.
    async fn next(&mut self) -> (i32, bool) {
        tokio::select! {
            _ = self.interrupt.recv() => (libc::SIGINT, in_foreground()),
            _ = self.quit.recv() => (libc::SIGQUIT, in_foreground()),
            _ = self.terminate.recv() => (libc::SIGTERM, false),
            _ = self.hangup.recv() => (libc::SIGHUP, in_foreground()),
        }
    }
}

/// Whether a key pressed on the terminal signals this process's group, the job included.
fn in_foreground() -> bool {
    std::fs::File::open("/dev/tty")
        .ok()
        .and_then(|terminal| rustix::termios::tcgetpgrp(&terminal).ok())
        .is_some_and(|group| group == rustix::process::getpgrp())
}

async fn follow(
    session: &mut Session,
    mut child: Child,
    options: &RecordOptions,
    watcher: &mut dyn Watcher,
    quiet: &mut Option<Duration>,
    no_tail: &OnceLock<String>,
) -> Result<(Option<ExitStatus>, Option<Ended>), RecordError> {
    let system = |source| RecordError::System { doing: "cannot wait for the job", source };
    let mut signals = Signals::new().map_err(system)?;
    let started = Instant::now();
    let mut pause = PAUSE.0;
    let mut sealed = Instant::now();
    let mut stall_told = None;
    let mut told_full = false;
    let mut told_tail = false;
    let mut observed = Instant::now();
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status.map_err(system)?,
            (number, delivered) = signals.next() => {
                // The job may end by it: this is the last chance to see what it was doing.
                session.snapshot();
                *quiet = Some(session.last_call().unwrap_or(started).elapsed());
                if !delivered && let Some(pid) = child.id() {
                    send(pid, number);
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
        pause = if session.drain() == 0 { (pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        session.tick();
        if let Some(problem) = no_tail.get()
            && !std::mem::replace(&mut told_tail, true)
        {
            watcher.without_tail(problem);
        }
        let news = session.take_news();
        if !news.files.is_empty() || !news.problems.is_empty() {
            watcher.news(&news);
        }
        if sealed.elapsed() >= SEAL_LOOK {
            session.seal(SEAL);
            sealed = Instant::now();
            if session.is_full() && !std::mem::replace(&mut told_full, true) {
                watcher.full(options.storage.max_disk.unwrap_or_default());
            }
        }
        let quiet_since = session.last_call().unwrap_or(started);
        if quiet_since.elapsed() >= QUIET && observed.elapsed() >= QUIET {
            session.observe();
            observed = Instant::now();
        }
        if quiet_since.elapsed() >= options.stall_after && stall_told != Some(quiet_since) {
            stall_told = Some(quiet_since);
            session.snapshot();
            if options.end_on_stall {
                *quiet = Some(quiet_since.elapsed());
                return end(session, child, Ended::Stall).await;
            }
            watcher.stalled(quiet_since.elapsed());
        }
        if options.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            session.snapshot();
            *quiet = Some(session.last_call().unwrap_or(started).elapsed());
            return end(session, child, Ended::Timeout).await;
        }
    };
    settle(session, STRAGGLERS).await;
    if !session.alive(std::process::id()).is_empty() {
        session.snapshot();
    }
    Ok((Some(status), None))
}

/// Waits until every watched process has ended, at most so long.
async fn settle(session: &mut Session, longest: Duration) {
    let until = Instant::now() + longest;
    loop {
        session.drain();
        session.tick();
        if session.alive(std::process::id()).is_empty() || Instant::now() >= until {
            return;
        }
        tokio::time::sleep(PAUSE.0).await;
    }
}

/// Ends the job. What happens from here on is the recorder's doing and is not recorded.
async fn end(
    session: &mut Session,
    mut child: Child,
    why: Ended,
) -> Result<(Option<ExitStatus>, Option<Ended>), RecordError> {
    let victims = session.alive(std::process::id());
    session.stop();
    for &pid in &victims {
        send(pid, libc::SIGTERM);
    }
    let gone = tokio::time::timeout(GRACE, child.wait()).await.is_ok();
    let late: Vec<u32> = victims.into_iter().filter(|pid| procfs::start_time(*pid).is_some()).collect();
    for pid in late {
        send(pid, libc::SIGKILL);
    }
    if !gone {
        child.kill().await.map_err(|source| RecordError::System { doing: "cannot end the job", source })?;
    }
    Ok((None, Some(why)))
}

fn send(pid: u32, number: i32) {
    // SAFETY: kill(2) takes no pointers.
    unsafe {
        libc::kill(pid as i32, number);
    }
}

/// The exit code that stands for a status: the command's own, or 128 + n for a signal.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
