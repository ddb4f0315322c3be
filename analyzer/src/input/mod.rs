//! Other formats into traces: what each format's importer is, how it is found, and what it gives.
//!
//! An importer is one file here and one line in [`IMPORTERS`]: a descriptor that recognises its files by their first bytes
//! and opens them as a stream of [`Item`]s. [`store()`] writes items as a trace directory through the recorder's own
//! writer, so that everything else reads one format. Items come one at a time: memory does not grow with the file.
//!
//! Input is untrusted. An importer bounds every length before memory is taken for it, and its errors name file, line (or
//! offset) and what to do.

mod jsonl;
mod store;

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use rankdiff_trace::{ClockSnapshot, JobInfo, ProcessKey, Record, WriteError};

pub use store::{Stored, store};

/// A format that can be imported.
pub trait Importer: fmt::Debug + Sync {
    /// Name for messages and the help text.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn summary(&self) -> &'static str;

    /// Whether a file that begins with these bytes is in this format. `head` may be cut off anywhere.
    fn sniff(&self, head: &[u8]) -> bool;

    /// Opens a file. `path` is for messages.
    ///
    /// # Errors
    /// If its beginning cannot be read, or is of a version that this build does not know.
    fn open<'a>(&self, path: &Path, source: Box<dyn BufRead + 'a>) -> Result<Box<dyn Input + 'a>, ImportError>;
}

/// Every importer, the one that recognises the most particular beginning first.
pub const IMPORTERS: &[&dyn Importer] = &[&jsonl::Jsonl];

/// The importer for a file that begins with these bytes.
pub fn importer_of(head: &[u8]) -> Option<&'static dyn Importer> {
    IMPORTERS.iter().copied().find(|importer| importer.sniff(head))
}

/// What an importer gives, in order: descriptions of the job, and for each process its start, its records and its end.
#[derive(Debug)]
pub enum Item {
    /// What a host's recorder said of the job.
    Job(Box<JobInfo>),
    /// The records of this process follow.
    Process(Box<Start>),
    /// A record of the process.
    Record(Box<Record>),
    /// The process's records are over; whether its recorder had closed the recording.
    End {
        /// It had.
        closed: bool,
    },
}

/// Whose records follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// The process.
    pub key: ProcessKey,
    /// Tells two recordings of one process apart.
    pub session: u64,
    /// Identifier of the job.
    pub job_id: String,
    /// Clocks at the start of the recording.
    pub clock: ClockSnapshot,
}

/// An opened file.
pub trait Input {
    /// The next item; `None` at the end.
    ///
    /// # Errors
    /// If what follows cannot be read; nothing more comes then.
    fn next_item(&mut self) -> Result<Option<Item>, ImportError>;

    /// What was left out or inferred so far, in words, each with its file.
    fn remarks(&self) -> Vec<String>;
}

/// A file cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is in no format that is known here.
    #[error(
        "{path} is in no format that can be imported ({known}); a trace directory, a *.rdt file and a pack (*.rdpack) are read as they are, by `analyze`, `show` and `export`"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What can be imported.
        known: String,
    },
    /// It is of another version.
    #[error(
        "{path} is in {format} {found}; this build reads {known}. Import it with the version of rankdiff that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// Version in the file.
        found: String,
        /// Version that is read.
        known: String,
    },
    /// A line is not what it has to be.
    #[error("{path} line {line}: {what}. Correct the line or leave it out; nothing was imported")]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// Reading failed.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What can be imported, for messages.
pub fn known() -> String {
    IMPORTERS.iter().map(|importer| importer.summary()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{IMPORTERS, importer_of, known};

    #[test]
    fn importers_have_unique_names_and_know_their_files() {
        let names: BTreeSet<&str> = IMPORTERS.iter().map(|importer| importer.name()).collect();
        assert_eq!(names.len(), IMPORTERS.len());
        let found = |head: &[u8]| importer_of(head).map(|importer| importer.name());
        assert_eq!(
            found(b"{\"kind\":\"header\",\"format\":\"rankdiff-jsonl\",\"version\":\"1.0\"}\n{}"),
            Some("jsonl")
        );
        for foreign in [&b""[..], b"{", b"{}", b"\x89RDT\r\n\x1a\n", b"{\"kind\":\"header\",\"format\":\"x\"}\n"] {
            assert_eq!(found(foreign), None, "{foreign:?}");
        }
        assert!(known().contains("JSON Lines"));
    }
}
