//! Traces into formats of other tools.
//!
//! An exporter is one file (or folder) here and one line in [`EXPORTERS`]. Data flow: streams -> `survey` (definitions and
//! clocks of the whole job, without calls) -> each stream read whole, one after the other -> `view` (its numbers as words)
//! -> the exporter. Memory is bounded by the survey and one process.
//!
//! Not here: where files go and whether they may be overwritten (the command line's), and judgement: an export says what
//! was recorded, not what it means.

mod jsonl;
mod parquet;
mod perfetto;
mod survey;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rankdiff_trace::{JobInfo, ProcessTrace, StreamFiles};

use survey::Survey;

/// What is exported.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// What the hosts' recorders said of it.
    pub infos: Vec<JobInfo>,
    /// Its streams.
    pub streams: Vec<StreamFiles>,
}

/// Where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One stream of bytes.
    File,
    /// Several files in one directory.
    Directory,
}

/// An opened destination.
pub enum Target<'a> {
    /// One stream of bytes.
    File(Box<dyn Write + Send + 'a>),
    /// A directory that exists and is empty.
    Directory(&'a Path),
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File(_) => f.write_str("File"),
            Target::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
        }
    }
}

/// A format that can be exported to.
pub trait Exporter: fmt::Debug + Sync {
    /// Name as `--to` takes it.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn summary(&self) -> &'static str;

    /// What it can be written to, the default first.
    fn shapes(&self) -> &'static [Shape];

    /// What is put behind a trace's name to name the export.
    fn suffix(&self) -> &'static str;

    /// Begins an export.
    ///
    /// # Errors
    /// If the beginning cannot be written.
    fn start<'a>(&self, job: &'a Surveyed, target: Target<'a>) -> Result<Box<dyn Export + 'a>, ExportError>;
}

/// An export under way.
pub trait Export {
    /// Takes the next process. `at`: its number among the streams.
    ///
    /// # Errors
    /// If it cannot be written.
    fn process(&mut self, at: usize, trace: &ProcessTrace) -> Result<(), ExportError>;

    /// Writes what is left.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
}

/// Every exporter.
pub const EXPORTERS: &[&dyn Exporter] = &[&parquet::Parquet, &jsonl::Jsonl, &perfetto::Perfetto];

/// The exporter of this name.
pub fn exporter_named(name: &str) -> Option<&'static dyn Exporter> {
    EXPORTERS.iter().copied().find(|exporter| exporter.name() == name)
}

/// An export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file system, or whoever reads the output, failed.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
    /// A file of a directory could not be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A value could not be encoded.
    #[error("cannot encode the export: {0}")]
    Encode(String),
    /// The format needs another kind of destination.
    #[error("{format} is written to {wanted}")]
    Shape {
        /// The format.
        format: &'static str,
        /// What it needs.
        wanted: &'static str,
    },
}

/// A job with what must be known of the whole before its streams are exported.
#[derive(Debug)]
pub struct Surveyed {
    job: Job,
    survey: Survey,
}

/// How far an export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Processes that are done.
    pub processes: usize,
    /// Calls that are done.
    pub calls: u64,
}

impl Surveyed {
    /// Reads everything but the calls.
    pub fn of(job: Job) -> Surveyed {
        let survey = Survey::of(&job);
        Surveyed { job, survey }
    }

    /// Processes that will be exported.
    pub fn len(&self) -> usize {
        self.job.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.job.streams.is_empty()
    }

    /// Global ranks that a process plays.
    pub fn ranks(&self, at: usize) -> &[u32] {
        self.survey.processes.get(at).map_or(&[], |process| &process.ranks)
    }

    /// Calls of one process that can be read: what is in memory at once while it is exported.
    pub fn calls_of(&self, at: usize) -> u64 {
        self.survey.processes.get(at).map_or(0, |process| process.calls)
    }

    /// Calls of the job, as far as they are in blocks.
    pub fn calls(&self) -> u64 {
        self.survey.processes.iter().map(|process| process.calls).sum()
    }

    /// Exports the job. `wanted`: which processes; `tell` is called after each.
    ///
    /// Gives what could not be read, in words.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn export(
        &self,
        exporter: &dyn Exporter,
        target: Target<'_>,
        wanted: &dyn Fn(usize) -> bool,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(Progress, Vec<String>), ExportError> {
        let mut export = exporter.start(self, target)?;
        let mut problems = Vec::new();
        let mut progress = Progress::default();
        for (at, stream) in self.job.streams.iter().enumerate().filter(|(at, _)| wanted(*at)) {
            let outcome = stream.read();
            problems.extend(outcome.problems.iter().map(ToString::to_string));
            export.process(at, &outcome.trace)?;
            progress.processes += 1;
            progress.calls += outcome.trace.calls.len() as u64;
            tell(progress);
        }
        export.finish()?;
        Ok((progress, problems))
    }
}

/// Creates a file of an export's directory, readable by its owner alone, as traces are.
fn create(dir: &Path, name: &str) -> Result<std::fs::File, ExportError> {
    let path = dir.join(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&path).map_err(|source| ExportError::File { path, source })
}
