//! Scenarios as traces: in memory, or a directory through the real writer.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use super::groups::Groups;
use super::records::{self, RankStream};
use super::scenario::Scenario;
use super::schedule::{Schedule, TimeError};
use crate::error::WriteError;
use crate::header::{FORMAT_MAJOR, FORMAT_MINOR};
use crate::job::{JobInfo, write_job_info};
use crate::stream::{ProcessTrace, Record};
use crate::writer::{StreamWriter, WriterOptions};

/// Most calls that are held in memory as traces.
pub const MAX_IN_MEMORY: u64 = 2_000_000;
/// Most members that all definitions name together: in memory, and in files.
const MAX_NAMED: (u64, u64) = (1 << 28, 1 << 31);

/// A scenario cannot be made a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// Its times contradict each other.
    #[error("{file}: document {document}: {source}")]
    Time {
        /// The scenario's file.
        file: String,
        /// Its id.
        document: String,
        /// What contradicts.
        source: TimeError,
    },
    /// It is too large.
    #[error("{file}: document {document}: {what}")]
    TooLarge {
        /// The scenario's file.
        file: String,
        /// Its id.
        document: String,
        /// What is too much, and what to do.
        what: String,
    },
    /// The directory holds a trace, and a second one beside it would be taken for the same job.
    #[error("{path} already holds a trace; give a new or empty directory")]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file or directory could not be made.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The error of a sink that cannot fail.
type Never = std::convert::Infallible;

/// The traces of all ranks that have a file, in rank order, as they would be read back from [`write()`].
pub fn to_traces(scenario: &Scenario) -> Result<Vec<ProcessTrace>, EmitError> {
    let calls = scenario.call_count();
    if calls > MAX_IN_MEMORY {
        return Err(too_large(
            scenario,
            format!("{calls} calls, {MAX_IN_MEMORY} fit in memory; write it to a directory"),
        ));
    }
    let (schedule, groups) = prepare(scenario, MAX_NAMED.0)?;
    Ok(ranks(scenario).map(|rank| trace_of(&mut RankStream::new(scenario, &schedule, &groups, rank))).collect())
}

fn trace_of(stream: &mut RankStream<'_>) -> ProcessTrace {
    let mut trace = ProcessTrace { key: stream.key(), closed: true, ..ProcessTrace::default() };
    let torn = stream.torn();
    let done: Result<(), Never> = stream.records(torn, &mut |record| {
        add(&mut trace, record);
        Ok(())
    });
    let Ok(()) = done;
    if let Some(time) = torn {
        trace.gaps.push(stream.torn_gap(time));
        trace.closed = false;
    }
    trace
}

/// Writes the scenario's trace into `dir`, which is made if it is not there.
pub fn write(scenario: &Scenario, dir: &Path) -> Result<(), EmitError> {
    let (schedule, groups) = prepare(scenario, MAX_NAMED.1)?;
    make_dir(dir)?;
    let job_id = format!("scenario-{}", scenario.id());
    let mut hosts: Vec<&str> = ranks(scenario).map(|rank| records::host(scenario, rank)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in hosts {
        write_job_info(dir, &job_info(host, &job_id, scenario.world))?;
    }
    let options = WriterOptions { job_id, ..WriterOptions::default() };
    for rank in ranks(scenario) {
        write_stream(&mut RankStream::new(scenario, &schedule, &groups, rank), dir, &options)?;
    }
    Ok(())
}

fn write_stream(stream: &mut RankStream<'_>, dir: &Path, options: &WriterOptions) -> Result<(), EmitError> {
    let mut writer = StreamWriter::create(dir, &stream.key(), stream.clocks(stream.begin()), options)?;
    let torn = stream.torn();
    stream.records(torn, &mut |record| writer.write(record))?;
    let Some(time) = torn else {
        writer.close()?;
        return Ok(());
    };
    writer.flush()?;
    let path = writer.path().to_owned();
    let whole = length(&path)?;
    stream.after(time, &mut |record| writer.write(record))?;
    writer.flush()?;
    let longer = length(&path)?;
    drop(writer);
    let cut = whole + longer.saturating_sub(whole) / 2;
    let file = OpenOptions::new().write(true).open(&path);
    file.and_then(|file| file.set_len(cut)).map_err(|source| EmitError::Io { doing: "cut", path, source })
}

/// What a host's recorder would say of a made-up job.
pub(super) fn job_info(host: &str, job_id: &str, world: u32) -> JobInfo {
    JobInfo {
        format_version: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
        recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host.to_owned(),
        job_id: job_id.to_owned(),
        world: Some(world),
        start_realtime: records::WALL,
        ..JobInfo::default()
    }
}

/// Makes a directory, and those above it, and sees that it holds no trace.
pub(super) fn make_dir(dir: &Path) -> Result<(), EmitError> {
    let failed = |doing, source| EmitError::Io { doing, path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(|source| failed("make", source))?;
    for entry in std::fs::read_dir(dir).map_err(|source| failed("list", source))? {
        let name = entry.map_err(|source| failed("list", source))?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "rdt") {
            return Err(EmitError::Occupied { path: dir.to_owned() });
        }
    }
    Ok(())
}

fn length(path: &Path) -> Result<u64, EmitError> {
    let found = std::fs::metadata(path);
    found.map(|found| found.len()).map_err(|source| EmitError::Io { doing: "look at", path: path.to_owned(), source })
}

/// Ranks that have a file.
fn ranks(scenario: &Scenario) -> impl Iterator<Item = u32> + '_ {
    (0..scenario.world).filter(|&rank| !scenario.missing_files.contains(rank))
}

fn prepare(scenario: &Scenario, most_named: u64) -> Result<(Schedule<'_>, Groups), EmitError> {
    let named = Groups::named_members(scenario);
    if named > most_named {
        return Err(too_large(
            scenario,
            format!("its groups' members are named {named} times, {most_named} are possible"),
        ));
    }
    let schedule = Schedule::of(scenario).map_err(|source| EmitError::Time {
        file: scenario.file.clone(),
        document: scenario.id().to_owned(),
        source,
    })?;
    Ok((schedule, Groups::of(scenario)))
}

fn too_large(scenario: &Scenario, what: String) -> EmitError {
    EmitError::TooLarge { file: scenario.file.clone(), document: scenario.id().to_owned(), what }
}

/// Adds a record to a trace as a reader does: a later definition of the same index replaces the earlier one.
pub(super) fn add(trace: &mut ProcessTrace, record: Record) {
    match record {
        Record::Rank(rank) => trace.ranks.push(rank),
        Record::Comm(comm) => trace.comms.push(comm),
        Record::Type(derived) => trace.types.push(derived),
        Record::Site(site) => trace.sites.push(site),
        Record::Label(index, text) => trace.labels.push((index, text)),
        Record::Call(call) => trace.calls.push(call),
        Record::Clock(clock) => trace.clocks.push(clock),
        Record::Gap(gap) => trace.gaps.push(gap),
        Record::State(state) => trace.states.push(state),
        Record::Thread(thread) => trace.threads.push(thread),
        Record::Log(line) => trace.logs.push(line),
        Record::Attribute(attribute) => trace.attributes.push(attribute),
        Record::Step(step) => trace.steps.push(step),
        // Made-up streams write calls whole, after they returned or at their end.
        Record::Return(_) => {}
    }
}
