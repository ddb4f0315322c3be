//! Finds and reads traces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankdiff_trace::{JobDir, ProcessTrace, SharedMembers, StreamFiles, StreamOutline, each_stream, read_outlines};

use crate::failure::{Failure, USAGE};
use crate::output::Output;
use crate::room;
use crate::unpacked::Inputs;

/// Beginning of the directory names that `record` makes up.
pub(crate) const DEFAULT_PREFIX: &str = "rankdiff-trace-";

/// Jobs of at most so many calls are read whole: that takes a second or two, and everything is looked at. Those of
/// which calls were dropped are not: digests say more of them.
const SMALL: u64 = 2_000_000;

/// Of more streams than this, only one keeps the list of a communicator's members.
const MANY: usize = 1024;

/// How much of the calls is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Decode {
    /// All of a small job, of a large one what its digests leave in question.
    Auto,
    /// All.
    All,
    /// What the digests leave in question.
    Digests,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// One per process, or one outline per process.
    pub(crate) traces: Vec<ProcessTrace>,
    /// One per process, where calls were not decoded.
    pub(crate) outlines: Vec<StreamOutline>,
    /// Ranks that the job has, if its recorder knew.
    pub(crate) world: Option<u32>,
    /// After so long without a call the recorder ended the job, if it did.
    pub(crate) ended_after: Option<Duration>,
    /// Boot id by host name, so that containers of one machine are known to share a clock.
    pub(crate) boots: BTreeMap<String, String>,
    /// What could not be read, in words.
    pub(crate) problems: Vec<String>,
    /// Keeps what was unpacked for reading, as long as blocks may still be decoded.
    pub(crate) inputs: Inputs,
}

/// What is named, packs unpacked, or the newest trace in the current directory.
pub(crate) fn inputs(paths: &[PathBuf], output: &Output) -> Result<Inputs, Failure> {
    if !paths.is_empty() {
        return Inputs::open(paths);
    }
    let newest = newest(Path::new("."))?;
    output.say(format_args!("the newest trace here: {}", newest.display()));
    Inputs::open(&[newest])
}

/// Reads these traces, or the newest one in the current directory.
pub(crate) fn load(paths: &[PathBuf], decode: Decode, output: &Output) -> Result<Loaded, Failure> {
    let inputs = inputs(paths, output)?;
    let mut loaded = Loaded::default();
    let mut streams: Vec<StreamFiles> = Vec::new();
    for path in inputs.paths() {
        let job = JobDir::open(path).map_err(|error| Failure::new(USAGE, error))?;
        loaded.world = loaded.world.max(job.infos().iter().filter_map(|info| info.world).max());
        let ended = job.infos().iter().filter_map(|info| info.stall_after_ms).min().map(Duration::from_millis);
        loaded.ended_after = [loaded.ended_after, ended].into_iter().flatten().min();
        loaded.boots.extend(job.infos().iter().map(|info| (info.host.clone(), info.boot_id.clone())));
        loaded.problems.extend(job.problems().iter().map(ToString::to_string));
        streams.extend_from_slice(job.streams());
    }
    let outlines = read_outlines(&streams);
    let decodable = outlines.iter().fold(0_u64, |sum, outline| sum.saturating_add(outline.decodable_calls()));
    if decode != Decode::All {
        let calls: u64 = outlines.iter().map(|outline| outline.calls).sum();
        // Of calls that were dropped only digests are left to compare.
        let has_dropped = outlines.iter().any(StreamOutline::has_dropped_calls);
        if decode == Decode::Digests || calls > SMALL || has_dropped {
            let problems = outlines.iter().flat_map(|outline| &outline.problems);
            loaded.problems.extend(problems.map(ToString::to_string));
            loaded.outlines = outlines;
            loaded.problems.iter_mut().for_each(|problem| *problem = inputs.shown(problem));
            loaded.inputs = inputs;
            return Ok(loaded);
        }
    }
    drop(outlines);
    room::check(decodable)?;
    let shared = SharedMembers::default();
    let outcomes = each_stream(&streams, |stream| {
        let mut outcome = stream.read();
        // Ten thousand ranks that list ten thousand members each would take more memory than their calls.
        if streams.len() > MANY {
            shared.share_out(&mut outcome.trace);
        }
        outcome
    });
    for outcome in outcomes {
        loaded.problems.extend(outcome.problems.iter().map(ToString::to_string));
        loaded.traces.push(outcome.trace);
    }
    loaded.problems.iter_mut().for_each(|problem| *problem = inputs.shown(problem));
    loaded.inputs = inputs;
    Ok(loaded)
}

/// The newest trace in a directory.
pub(crate) fn newest(dir: &Path) -> Result<PathBuf, Failure> {
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
