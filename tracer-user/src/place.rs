//! Where a recording goes: the directory, whose it is, which run of which job it holds, and how much of it is kept.
//!
//! Not here: what is written (`process.rs`), and the rule that refuses another run's trace (`rankdiff_trace::admission`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rankdiff_trace::writer::WriterOptions;
use rankdiff_trace::{Dropped, JobInfo, Keep, Refusal, Retention, TailOptions, TraceDir, admit};

use crate::caller::Caller;

/// How much of a recording is kept, and where it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Storage {
    /// Calls older than this are dropped, their digests stay.
    pub keep: Option<Keep>,
    /// All files together never take more bytes than this.
    pub max_disk: Option<u64>,
    /// Write into a directory that holds the trace of another run.
    pub join: bool,
    /// The directory was chosen by whoever records: its name is the job's, the same on every node.
    pub named: bool,
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// It cannot be made, or opened.
    #[error("cannot write a trace into {dir}: {source}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The thread that drops old calls cannot be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(std::io::Error),
}

/// Makes and opens the directory, as the caller's where there is one.
pub(crate) fn open(dir: &Path, caller: Option<&Caller>, storage: Storage) -> Result<Arc<TraceDir>, PlaceError> {
    let failed = |source| PlaceError::Directory { dir: dir.to_owned(), source };
    let mut opened = TraceDir::create(dir, caller.map(Caller::owner)).map_err(failed)?;
    if let Some(bytes) = storage.max_disk {
        opened = opened.with_limit(bytes);
    }
    if storage.keep.is_some() {
        opened = opened.with_retention();
    }
    Ok(Arc::new(opened))
}

/// Refuses a directory that holds the trace of another run.
pub(crate) fn check(dir: &Path, info: &JobInfo, storage: Storage) -> Result<(), PlaceError> {
    if storage.join { Ok(()) } else { Ok(admit(dir, info)?) }
}

/// The job's id: the name of the directory that was chosen for it, else its launcher's, else the directory's all the
/// same.
pub(crate) fn job_id(dir: &Path, named: bool, launch: &str) -> String {
    if !named && !launch.is_empty() {
        return launch.to_owned();
    }
    let path = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    path.file_name().map_or_else(|| "job".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What the launcher calls this run of the job: the same on all its nodes, another one for every run. Empty if it has no
/// name; an allocation's number alone is none, since several runs share it.
pub(crate) fn launch(variable: impl Fn(&str) -> Option<String>) -> String {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty() && value != "none");
    for name in ["TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID"] {
        if let Some(value) = given(name) {
            return value;
        }
    }
    match (given("SLURM_JOB_ID"), given("SLURM_STEP_ID")) {
        (Some(job), Some(step)) => {
            let restarts = given("SLURM_RESTART_COUNT").filter(|count| count != "0");
            restarts.map_or_else(|| format!("{job}.{step}"), |count| format!("{job}.{step}.{count}"))
        }
        _ => String::new(),
    }
}

/// Segments must be a small part of what is kept, since they are dropped whole.
pub(crate) fn writer(job_id: &str, storage: Storage) -> WriterOptions {
    let mut options =
        WriterOptions { job_id: job_id.to_owned(), tail: Some(TailOptions::default()), ..WriterOptions::default() };
    if let Some(keep) = storage.keep {
        let (bytes, ns) = keep.rotation();
        options.segment_bytes = options.segment_bytes.min(bytes);
        options.segment_ns = ns;
        if let Some(limit) = storage.max_disk {
            options.segment_bytes = options.segment_bytes.min(Keep::Bytes(limit).rotation().0);
        }
    }
    options
}

/// Drops old calls beside the recording, so that reading and writing segments never holds up the rings.
#[derive(Debug)]
pub(crate) struct Keeper {
    stop: Sender<()>,
    thread: JoinHandle<Dropped>,
}

impl Keeper {
    /// Starts it, if anything is to be dropped.
    pub(crate) fn start(dir: &Arc<TraceDir>, storage: Storage) -> Result<Option<Keeper>, PlaceError> {
        let Some(keep) = storage.keep else { return Ok(None) };
        let (stop, stopped) = channel();
        let dir = Arc::clone(dir);
        let thread = std::thread::Builder::new()
            .name("rankdiff-keep".to_owned())
            .spawn(move || keep_up(&dir, keep, &stopped))
            .map_err(PlaceError::Thread)?;
        Ok(Some(Keeper { stop, thread }))
    }

    /// Drops what is too old by now, and ends.
    pub(crate) fn finish(self) -> Dropped {
        // It ended before only if it panicked; then there is nothing to tell.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// How often the segments are looked at.
fn pace(keep: Keep) -> Duration {
    match keep {
        Keep::Window(window) => (window / 32).clamp(Duration::from_millis(50), Duration::from_secs(5)),
        Keep::Bytes(_) => Duration::from_millis(100),
    }
}

fn keep_up(dir: &TraceDir, keep: Keep, stopped: &Receiver<()>) -> Dropped {
    let mut retention = Retention::new(keep);
    let mut complained = false;
    loop {
        let last = stopped.recv_timeout(pace(keep)) != Err(RecvTimeoutError::Timeout);
        while let Err(error) = retention.enforce(dir) {
            if !std::mem::replace(&mut complained, true) {
                tracing::warn!("{error}");
            }
        }
        if last {
            return retention.dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use rankdiff_trace::Keep;

    use super::{Storage, job_id, launch, pace, writer};

    fn named(text: &str) -> String {
        launch(|name| {
            text.split(' ')
                .filter_map(|word| word.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        })
    }

    #[test]
    fn runs_have_the_names_that_their_launchers_give() {
        assert_eq!(named("TORCHELASTIC_RUN_ID=a SLURM_JOB_ID=7 SLURM_STEP_ID=0"), "a");
        assert_eq!(named("TORCHELASTIC_RUN_ID=none PMIX_NAMESPACE=prterun-n0-1@1"), "prterun-n0-1@1");
        assert_eq!(named("SLURM_JOB_ID=7 SLURM_STEP_ID=3"), "7.3");
        assert_eq!(named("SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=0"), "7.3");
        assert_eq!(named("SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=2"), "7.3.2");
        // An allocation runs many things one after the other.
        assert_eq!(named("SLURM_JOB_ID=7"), "");
        assert_eq!(named("HOME=x"), "");
    }

    #[test]
    fn a_chosen_directory_names_the_job() {
        let dir = Path::new("no/such/trace");
        assert_eq!(job_id(dir, true, "7.3"), "trace");
        assert_eq!(job_id(dir, false, "7.3"), "7.3");
        assert_eq!(job_id(dir, false, ""), "trace");
    }

    #[test]
    fn segments_follow_what_is_kept() {
        let whole = writer("j", Storage::default());
        assert_eq!(whole.segment_ns, None);
        let window = Storage { keep: Some(Keep::Window(Duration::from_secs(80))), ..Storage::default() };
        assert_eq!(writer("j", window).segment_ns, Some(10_000_000_000));
        let limited = Storage { max_disk: Some(64 << 20), ..window };
        assert_eq!(writer("j", limited).segment_bytes, 1 << 20);
        // Without leave to drop anything, small segments would only take room.
        let only_limit = Storage { keep: None, ..limited };
        assert_eq!(writer("j", only_limit), whole);
        assert_eq!(pace(Keep::Window(Duration::ZERO)), Duration::from_millis(50));
        assert_eq!(pace(Keep::Window(Duration::from_secs(7200))), Duration::from_secs(5));
    }
}
