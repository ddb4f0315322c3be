//! What one recorder says of the job: `job.HOST.json`.
//!
//! Several recorders may write into one directory at once, on nodes that share it or in containers that share a host
//! name. Each has a file of its own, whose name it took exclusively and which it alone replaces.
//!
//! Not here: whether a recorder may join a trace that is there (`admission.rs`), and the streams beside it (`job.rs`).

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::directory::TraceDir;
use crate::error::{Problem, ProblemKind, WriteError};
use crate::limits;
use crate::regular::open_of_trace;
use crate::segment::file_name_of_host;

/// The last word of a command line that was cut.
pub const CUT: &str = "…";
/// Recorders of one host that write into one directory.
const MOST_OF_A_HOST: u32 = 100_000;

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
    /// What the launcher calls this run of the job, the same on all its nodes; empty if it gave no name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub launch: String,
    /// Command line of the job; empty if it was attached to. One that was too long to be kept ends in [`CUT`].
    pub command: Vec<String>,
    /// Number of ranks, if known.
    pub world: Option<u32>,
    /// Start of the recording, ns since 1970.
    pub start_realtime: u64,
    /// End of the recording, ns since 1970; missing while it goes on, or if the recorder was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_realtime: Option<u64>,
    /// The kernel's boot id, so that clocks of one boot are known to be one clock.
    pub boot_id: String,
    /// The recorder ended the job after nobody had made a call for so long, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after_ms: Option<u64>,
    /// Names, paths and texts were replaced before the trace was given away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

impl JobInfo {
    /// The file's bytes. Of a command line over [`limits::MAX_COMMAND`] only the beginning is written.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let info = JobInfo { command: shortened(&self.command), ..self.clone() };
        let mut text = serde_json::to_vec_pretty(&info).map_err(io::Error::other)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads the file's bytes.
    pub fn decode(bytes: &[u8]) -> Result<JobInfo, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The file of one recorder.
#[derive(Debug)]
pub struct JobFile {
    dir: Arc<TraceDir>,
    name: String,
    /// Bytes that it takes.
    length: u64,
}

impl JobFile {
    /// Takes the first free name of the host: `job.HOST.json`, else `job.HOST.2.json` and so on.
    pub fn create(dir: &Arc<TraceDir>, info: &JobInfo) -> Result<JobFile, WriteError> {
        let host = file_name_of_host(&info.host);
        let mut number = 1;
        loop {
            let name = if number == 1 { format!("job.{host}.json") } else { format!("job.{host}.{number}.json") };
            match dir.create_file(&name) {
                Ok(_) => {
                    // The name is taken; until the text is there, the file is empty.
                    let mut file = JobFile { dir: Arc::clone(dir), name, length: 0 };
                    file.replace(info)?;
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_OF_A_HOST => number += 1,
                Err(source) => return Err(WriteError::from_io("create", &dir.path_of(&name), (0, 0), source)),
            }
        }
    }

    /// Puts another text in its place, whole.
    pub fn replace(&mut self, info: &JobInfo) -> Result<(), WriteError> {
        let failed = |source| WriteError::from_io("write", &self.dir.path_of(&self.name), (0, 0), source);
        let text = info.encode().map_err(failed)?;
        put(&self.dir, &self.name, &text).map_err(failed)?;
        // It is small, and says what all the rest is: it is counted, never refused.
        self.dir.release(self.length);
        self.length = text.len() as u64;
        let _ = self.dir.claim(self.length);
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }
}

/// Writes a file whole: beside its name, then renamed over what is there. The name must be this recorder's own.
fn put(dir: &TraceDir, name: &str, text: &[u8]) -> io::Result<()> {
    let draft = format!(".{name}.{}", std::process::id());
    // Left by a recorder with this process id that was killed.
    let _ = dir.remove(&draft);
    let result =
        dir.create_file(&draft).and_then(|mut file| file.write_all(text)).and_then(|()| dir.rename(&draft, name));
    if result.is_err() {
        let _ = dir.remove(&draft);
    }
    result
}

/// Writes `job.HOST.json` into `dir`, replacing an older one whole. For directories with one writer.
pub fn write_job_info(dir: &Path, info: &JobInfo) -> Result<PathBuf, WriteError> {
    let name = format!("job.{}.json", file_name_of_host(&info.host));
    let path = dir.join(&name);
    let result = TraceDir::open(dir).and_then(|dir| put(&dir, &name, &info.encode()?));
    result.map_err(|source| WriteError::from_io("write", &path, (0, 0), source))?;
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
    let file = open_of_trace(path).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let read = file.take(limits::MAX_JOB_INFO + 1).read_to_end(&mut text);
    read.map_err(|error| problem(format!("cannot be read: {error}")))?;
    if text.len() as u64 > limits::MAX_JOB_INFO {
        return Err(problem(format!("is over the limit of {} bytes", limits::MAX_JOB_INFO)));
    }
    if text.is_empty() {
        return Err(problem("is empty: its recorder begins just now, or was killed as it began".to_owned()));
    }
    JobInfo::decode(&text).map_err(|error| problem(format!("is not a job's description: {error}")))
}
