//! What can go wrong when traces are written and read, in words a person can act on.
//!
//! Damage inside a trace is data ([`Problem`]): it never stops the reading of what is sound. Errors are for input that
//! gives nothing at all ([`ReadError`]) and for records that could not be kept ([`WriteError`]).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A record, or a block of them, could not be written. The writer stays usable after every one of these.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No room: disk, quota or the file-size limit.
    #[error(
        "cannot write {path}: {source}; {lost_records} records ({lost_calls} calls) are not recorded. \
         Free space or record to another directory"
    )]
    DiskFull {
        /// The segment.
        path: PathBuf,
        /// Calls that are lost by this failure.
        lost_calls: u64,
        /// Records of every kind that are lost by this failure, calls included.
        lost_records: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("cannot {doing} {path}: {source}; {lost_records} records ({lost_calls} calls) are not recorded")]
    Io {
        /// What was tried: 'create', 'write'.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Calls that are lost by this failure.
        lost_calls: u64,
        /// Records of every kind that are lost by this failure, calls included.
        lost_records: u64,
        /// The system's error.
        source: io::Error,
    },
    /// One record is larger than the format allows; it is left out and counted as lost.
    #[error("a {what} of {size} is over the format's limit of {limit}; it is not recorded")]
    TooLarge {
        /// Which record or field.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl WriteError {
    /// Sorts a system error into 'no room' and the rest.
    pub(crate) fn from_io(doing: &'static str, path: &Path, lost: (u64, u64), source: io::Error) -> WriteError {
        let (lost_calls, lost_records) = lost;
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                WriteError::DiskFull { path, lost_calls, lost_records, source }
            }
            _ => WriteError::Io { doing, path, lost_calls, lost_records, source },
        }
    }

    /// Whether there was no room for it.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, WriteError::DiskFull { .. })
    }
}

/// The input gives nothing at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is something else.
    #[error("not a rankdiff trace: {path} begins with {begins}. Give a trace directory or one of its *.rdt files")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its first bytes, printable.
        begins: String,
    },
    /// The file has no bytes.
    #[error("{path} is empty: its recorder ended before it wrote anything. Record again, or leave the file out")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The directory has no trace file.
    #[error("{path} holds no trace: no *.rdt file in it; record one with `rankdiff record -o {path} -- COMMAND`")]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds more files of a trace than any job leaves.
    #[error("{path} holds more than {limit} files of a trace. Give a directory that one job was recorded into")]
    TooManyFiles {
        /// The directory.
        path: PathBuf,
        /// Most files that are looked at.
        limit: usize,
    },
    /// The file was written in a format that this build does not know.
    #[error(
        "{path} is in trace format {found_major}.{found_minor}; this build reads {known_major}.x. \
         Read it with the version of rankdiff that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Major number in the file.
        found_major: u16,
        /// Minor number in the file.
        found_minor: u16,
        /// Major number that this build reads.
        known_major: u16,
    },
    /// The file begins as a trace, but its header is cut off or damaged.
    #[error("{path} is damaged: {what}. Nothing in it can be read; leave the file out")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file system failed.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Something in a trace that could not be read, or not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Byte offset of the block (or header) in it.
    pub offset: u64,
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// What is wrong.
    pub what: String,
    /// What it means for the reader, or what to do.
    pub advice: String,
}

/// Kinds of problems, for those that count or filter them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The file ends in the middle of a block: its writer was killed, the disk was full, or it still writes.
    TornTail,
    /// A block's bytes are not those that were written.
    Damaged,
    /// A segment of the stream is not there.
    MissingSegment,
    /// A newer writer used kinds or values that this build does not know; they were left out.
    Newer,
    /// A file of the directory could not be read at all.
    Unreadable,
}

impl ReadError {
    /// Whether the file is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}. {}", self.file.display(), self.offset, self.what, self.advice)
    }
}
