//! A job's directory: who recorded it (`job.HOST.json`), and whose streams are in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Problem, ProblemKind, ReadError, WriteError};
use crate::limits;
use crate::reader::BlockReader;
use crate::regular::open_regular;
use crate::segment::{create_exclusive, file_name_of_host};
use crate::stream_files::{StreamFiles, unreadable};

/// The last word of a command line that was cut.
pub const CUT: &str = "…";

/// What one host's recorder says of the job (`job.HOST.json`). Unknown fields are ignored, missing ones are defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobInfo {
    /// Trace format of the streams beside it, 'major.minor'.
    pub format_version: String,
    /// Version of the recorder.
    pub recorder_version: String,
    /// Host name.
    pub host: String,
    /// Identifier of the job.
    pub job_id: String,
    /// Command line of the job; empty if it was attached to. One that was too long to be kept ends in [`CUT`].
    pub command: Vec<String>,
    /// Number of ranks, if known.
    pub world: Option<u32>,
    /// Start of the recording, ns since 1970.
    pub start_realtime: u64,
    /// The kernel's boot id, so that clocks of one boot are known to be one clock.
    pub boot_id: String,
    /// The recorder ended the job after nobody had made a call for so long, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after_ms: Option<u64>,
}

/// Writes `job.HOST.json` into `dir`, replacing an older one whole. Of a command line over
/// [`limits::MAX_COMMAND`] only the beginning is written.
pub fn write_job_info(dir: &Path, info: &JobInfo) -> Result<PathBuf, WriteError> {
    let host = file_name_of_host(&info.host);
    let path = dir.join(format!("job.{host}.json"));
    let draft = dir.join(format!(".job.{host}.json.{}", std::process::id()));
    let info = JobInfo { command: shortened(&info.command), ..info.clone() };
    let mut text = serde_json::to_vec_pretty(&info)
        .map_err(|error| WriteError::from_io("encode", &path, (0, 0), std::io::Error::other(error)))?;
    text.push(b'\n');
    let result =
        create_exclusive(&draft).and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&draft, &path));
    if let Err(source) = result {
        let _ = fs::remove_file(&draft);
        return Err(WriteError::from_io("write", &path, (0, 0), source));
    }
    Ok(path)
}

/// The beginning of a command line, marked by [`CUT`] if that is not all of it.
fn shortened(command: &[String]) -> Vec<String> {
    let mut left = limits::MAX_COMMAND;
    let mut kept = Vec::new();
    for word in command {
        // Words without text take room too.
        let Some(rest) = left.checked_sub(word.len() + 1) else {
            let end = (0..left).rev().find(|&end| word.is_char_boundary(end)).unwrap_or(0);
            let begin = word.get(..end).unwrap_or_default();
            if !begin.is_empty() {
                kept.push(begin.to_owned());
            }
            kept.push(CUT.to_owned());
            break;
        };
        left = rest;
        kept.push(word.clone());
    }
    kept
}

/// Reads a `job.HOST.json`.
pub fn read_job_info(path: &Path) -> Result<JobInfo, Problem> {
    let problem = |what: String| Problem {
        file: path.to_owned(),
        offset: 0,
        kind: ProblemKind::Unreadable,
        what,
        advice: "The streams beside it are read without it".to_owned(),
    };
    let mut text = Vec::new();
    let file = open_regular(path).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let read = file.take(limits::MAX_JOB_INFO + 1).read_to_end(&mut text);
    read.map_err(|error| problem(format!("cannot be read: {error}")))?;
    if text.len() as u64 > limits::MAX_JOB_INFO {
        return Err(problem(format!("is over the limit of {} bytes", limits::MAX_JOB_INFO)));
    }
    serde_json::from_slice(&text).map_err(|error| problem(format!("is not a job's description: {error}")))
}

/// A trace: a job's directory, or a single segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDir {
    infos: Vec<JobInfo>,
    streams: Vec<StreamFiles>,
    problems: Vec<Problem>,
}

impl JobDir {
    /// Opens a directory, or a single `.rdt` file. Reads the header of every segment and no more.
    pub fn open(path: &Path) -> Result<JobDir, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let mut job = JobDir { infos: Vec::new(), streams: Vec::new(), problems: Vec::new() };
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            let reader = BlockReader::open(path)?;
            let header = reader.header();
            let segments = vec![path.to_owned()];
            job.streams.push(StreamFiles { key: header.key.clone(), session: header.session, segments });
            return Ok(job);
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            names.push(entry.map_err(failed)?.path());
        }
        // The file system's order is chance; reports are not.
        names.sort_unstable();
        let mut segments: BTreeMap<_, Vec<(u32, PathBuf)>> = BTreeMap::new();
        let mut first_error = None;
        let mut any = false;
        for name in names {
            let file_name = name.file_name().and_then(|file_name| file_name.to_str()).unwrap_or_default();
            if name.extension().is_some_and(|extension| extension == "rdt") {
                any = true;
                match BlockReader::open(&name) {
                    Ok(reader) => {
                        let header = reader.header();
                        segments.entry((header.key.clone(), header.session)).or_default().push((header.ordinal, name));
                    }
                    Err(error) => {
                        job.problems.push(unreadable(&name, &error));
                        first_error.get_or_insert(error);
                    }
                }
            } else if file_name.starts_with("job.") && file_name.ends_with(".json") {
                match read_job_info(&name) {
                    Ok(info) => job.infos.push(info),
                    Err(problem) => job.problems.push(problem),
                }
            }
        }
        if !any {
            return Err(ReadError::NoTrace { path: path.to_owned() });
        }
        if let (true, Some(error)) = (segments.is_empty(), first_error) {
            return Err(error);
        }
        for ((key, session), mut files) in segments {
            files.sort_unstable();
            job.streams.push(StreamFiles { key, session, segments: files.into_iter().map(|file| file.1).collect() });
        }
        Ok(job)
    }

    /// What the hosts' recorders said of the job.
    pub fn infos(&self) -> &[JobInfo] {
        &self.infos
    }

    /// The streams, ordered by key.
    pub fn streams(&self) -> &[StreamFiles] {
        &self.streams
    }

    /// Files that could not be read.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}
