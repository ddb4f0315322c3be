//! A job's directory: who recorded it (`job_info.rs`), and whose streams are in it.
//!
//! A directory may hold anything: files of other kinds are passed over by their names, what only looks like a trace is
//! a problem by name, and how much is looked at is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Problem, ProblemKind, ReadError};
pub use crate::job_info::{CUT, JobFile, JobInfo, read_job_info, write_job_info};
use crate::limits;
use crate::reader::BlockReader;
use crate::stream_files::{StreamFiles, unreadable};
use crate::tail::Tail;

/// What a file of a trace is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `job.HOST.json`: what a recorder says of the job.
    Info,
    /// `*.rdt`: a segment.
    Segment,
    /// `*.tail`: a live tail.
    Tail,
}

impl FileKind {
    /// By name; `None`: the file is no part of a trace. Names that begin with a dot are drafts.
    pub fn of(name: &str) -> Option<FileKind> {
        if name.starts_with('.') {
            return None;
        }
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("rdt") => Some(FileKind::Segment),
            Some("tail") => Some(FileKind::Tail),
            Some("json") if name.starts_with("job.") => Some(FileKind::Info),
            _ => None,
        }
    }
}

/// A trace: a job's directory, or a single segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobDir {
    infos: Vec<JobInfo>,
    streams: Vec<StreamFiles>,
    job_ids: BTreeSet<String>,
    problems: Vec<Problem>,
    /// Problems that are only counted.
    more_problems: u64,
}

impl JobDir {
    /// Opens a directory, or a single `.rdt` file. Reads the header of every segment and no more.
    pub fn open(path: &Path) -> Result<JobDir, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let mut job = JobDir::default();
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            // What somebody names is theirs to choose, a link to it included.
            let is_link = fs::symlink_metadata(path).map_err(failed)?.is_symlink();
            let file = if is_link { fs::canonicalize(path).map_err(failed)? } else { path.to_owned() };
            let reader = BlockReader::open(&file)?;
            let header = reader.header();
            job.job_ids.insert(header.job_id.clone());
            let (key, session) = (header.key.clone(), header.session);
            job.streams.push(StreamFiles { key, session, segments: vec![file], tail: None });
            return Ok(job);
        }
        let files = list(path)?;
        let mut segments: BTreeMap<_, Vec<(u32, PathBuf)>> = BTreeMap::new();
        let mut tails = BTreeMap::new();
        let mut first_error = None;
        let mut info_bytes = 0;
        for (kind, name) in &files {
            let file = path.join(name);
            match kind {
                FileKind::Segment => match BlockReader::open(&file) {
                    Ok(reader) => {
                        let header = reader.header();
                        if job.job_ids.len() < limits::MAX_NAMED && !job.job_ids.contains(&header.job_id) {
                            job.job_ids.insert(header.job_id.clone());
                        }
                        segments.entry((header.key.clone(), header.session)).or_default().push((header.ordinal, file));
                    }
                    Err(error) => {
                        job.problem(unreadable(&file, &error));
                        first_error.get_or_insert(error);
                    }
                },
                FileKind::Info => job.info(&file, &mut info_bytes),
                FileKind::Tail => match Tail::open(&file) {
                    Ok(tail) => {
                        tails.insert((tail.header().key.clone(), tail.header().session), file);
                    }
                    // A stream that was closed takes its tail away.
                    Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => job.problem(unreadable(&file, &error)),
                },
            }
        }
        if !files.iter().any(|(kind, _)| *kind == FileKind::Segment) {
            return Err(ReadError::NoTrace { path: path.to_owned() });
        }
        if let (true, Some(error)) = (segments.is_empty(), first_error) {
            return Err(error);
        }
        for ((key, session), mut files) in segments {
            files.sort_unstable();
            let (own, segments) = ((key, session), files.into_iter().map(|file| file.1).collect());
            let tail = tails.remove(&own);
            let (key, session) = own;
            job.streams.push(StreamFiles { key, session, segments, tail });
        }
        job.count_problems(path);
        Ok(job)
    }

    fn info(&mut self, file: &Path, bytes: &mut u64) {
        *bytes += fs::symlink_metadata(file).map_or(0, |found| found.len().min(limits::MAX_JOB_INFO));
        if *bytes > limits::MAX_JOB_INFOS {
            return self.more_problems += 1;
        }
        match read_job_info(file) {
            Ok(info) => self.infos.push(info),
            Err(problem) => self.problem(problem),
        }
    }

    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < limits::MAX_NAMED {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }

    fn count_problems(&mut self, path: &Path) {
        if self.more_problems > 0 {
            self.problems.push(Problem {
                file: path.to_owned(),
                offset: 0,
                kind: ProblemKind::Unreadable,
                what: format!("{} more files of it cannot be read", self.more_problems),
                advice: "The rest of the trace is read without them".to_owned(),
            });
        }
    }

    /// What the hosts' recorders said of the job.
    pub fn infos(&self) -> &[JobInfo] {
        &self.infos
    }

    /// The streams, ordered by key.
    pub fn streams(&self) -> &[StreamFiles] {
        &self.streams
    }

    /// Identifiers of the job in the segments: several, if traces of several jobs were put into one directory.
    pub fn job_ids(&self) -> &BTreeSet<String> {
        &self.job_ids
    }

    /// Files that could not be read.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// Names of the files of a trace in a directory, in order; the file system's own order is chance, and reports are not.
/// Names that are no text are nobody's.
pub(crate) fn list(path: &Path) -> Result<Vec<(FileKind, String)>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some((kind, name)) = OsStr::to_str(&name).and_then(|name| Some((FileKind::of(name)?, name))) else {
            continue;
        };
        if files.len() >= limits::MAX_FILES {
            return Err(ReadError::TooManyFiles { path: path.to_owned(), limit: limits::MAX_FILES });
        }
        files.push((kind, name.to_owned()));
    }
    files.sort_unstable_by(|one, other| one.1.cmp(&other.1));
    Ok(files)
}
