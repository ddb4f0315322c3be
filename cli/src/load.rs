//! Finds and reads traces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankdiff_trace::{JobDir, ProcessTrace};

use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Beginning of the directory names that `record` makes up.
pub(crate) const DEFAULT_PREFIX: &str = "rankdiff-trace-";

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// One per process.
    pub(crate) traces: Vec<ProcessTrace>,
    /// Ranks that the job has, if its recorder knew.
    pub(crate) world: Option<u32>,
    /// After so long without a call the recorder ended the job, if it did.
    pub(crate) ended_after: Option<Duration>,
    /// What could not be read, in words.
    pub(crate) problems: Vec<String>,
    /// Where it came from.
    pub(crate) paths: Vec<PathBuf>,
}

/// Reads these traces, or the newest one in the current directory.
pub(crate) fn load(paths: &[PathBuf], output: &Output) -> Result<Loaded, Failure> {
    let paths = if paths.is_empty() {
        let newest = newest(Path::new("."))?;
        output.say(format_args!("the newest trace here: {}", newest.display()));
        vec![newest]
    } else {
        paths.to_vec()
    };
    let mut loaded = Loaded::default();
    for path in &paths {
        let job = JobDir::open(path).map_err(|error| Failure::new(USAGE, error))?;
        loaded.world = loaded.world.max(job.infos().iter().filter_map(|info| info.world).max());
        let ended = job.infos().iter().filter_map(|info| info.stall_after_ms).min().map(Duration::from_millis);
        loaded.ended_after = [loaded.ended_after, ended].into_iter().flatten().min();
        loaded.problems.extend(job.problems().iter().map(ToString::to_string));
        for stream in job.streams() {
            let outcome = stream.read();
            loaded.problems.extend(outcome.problems.iter().map(ToString::to_string));
            loaded.traces.push(outcome.trace);
        }
    }
    loaded.paths = paths;
    Ok(loaded)
}

fn newest(dir: &Path) -> Result<PathBuf, Failure> {
    let found = std::fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(DEFAULT_PREFIX))
        .filter(|entry| entry.path().is_dir())
        .max_by_key(|entry| (entry.metadata().and_then(|data| data.modified()).ok(), entry.file_name()));
    found.map(|entry| entry.path()).ok_or_else(|| {
        Failure::message(
            USAGE,
            format_args!("no trace given and no {DEFAULT_PREFIX}* here; record one with `rankdiff record -- CMD`"),
        )
    })
}
