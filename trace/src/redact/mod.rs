//! A trace without what says where and by whom its job was run.
//!
//! Gone are host names, the job's id, boot ids, command lines (the program's own name stays), folders of source files and
//! libraries, values of attributes, log lines, and paths in every other text; a number stands for each of them, so that
//! what was equal still is. Calls, communicators, functions, lines, process ids, times, device files and digests stay: a
//! verdict comes out the same.
//!
//! Block by block: calls and their digests are copied as they are, only blocks with texts are written anew.

mod segment;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::header::SegmentHeader;
use crate::job::{FileKind, JobDir, list};
use crate::job_info::{CUT, JobInfo, read_job_info};
use crate::reader::BlockReader;
use crate::segment::segment_name;
use crate::stream::ProcessKey;
use crate::stream_files::StreamFiles;

pub use segment::RedactError;
use text::Numbers;

/// Stands for the job's id.
const JOB: &str = "job";

/// Replaces the same things by the same over all files of a trace.
#[derive(Debug)]
pub struct Redactor {
    /// Names of the hosts, and what stands for them.
    hosts: BTreeMap<String, String>,
    /// Names of the files.
    names: BTreeMap<PathBuf, String>,
    /// Streams with a live tail, by their last segment.
    tails: BTreeMap<PathBuf, StreamFiles>,
    boots: Numbers,
    launches: Numbers,
    folders: Numbers,
    values: Numbers,
    problems: Vec<String>,
}

impl Redactor {
    /// For the files of this trace; `dir` is where they are.
    pub fn new(dir: &Path, job: &JobDir) -> Redactor {
        let hosts: BTreeSet<&str> = job
            .streams()
            .iter()
            .map(|stream| stream.key.host.as_str())
            .chain(job.infos().iter().map(|info| info.host.as_str()))
            .collect();
        // In their order, so that what is sorted by host stays in it.
        let width = hosts.len().saturating_sub(1).to_string().len();
        let hosts = hosts
            .into_iter()
            .enumerate()
            .map(|(number, host)| (host.to_owned(), format!("node{number:0width$}")))
            .collect();
        let mut redactor = Redactor {
            hosts,
            names: BTreeMap::new(),
            tails: BTreeMap::new(),
            boots: Numbers::default(),
            launches: Numbers::default(),
            folders: Numbers::default(),
            values: Numbers::default(),
            problems: Vec::new(),
        };
        redactor.name_segments(job);
        redactor.name_infos(dir);
        redactor
    }

    fn name_segments(&mut self, job: &JobDir) {
        let mut numbers: BTreeMap<ProcessKey, u32> = BTreeMap::new();
        for stream in job.streams() {
            let key = self.key(&stream.key);
            for segment in &stream.segments {
                // Two recordings of one process share its name.
                let number = numbers.entry(key.clone()).or_insert(0);
                *number += 1;
                self.names.insert(segment.clone(), segment_name(&key, *number));
            }
            if let (Some(last), true) = (stream.segments.last(), stream.tail.is_some()) {
                self.tails.insert(last.clone(), stream.clone());
            }
        }
    }

    fn name_infos(&mut self, dir: &Path) {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let files = list(dir).unwrap_or_default();
        for (_, name) in files.into_iter().filter(|(kind, _)| *kind == FileKind::Info) {
            let path = dir.join(name);
            let Ok(info) = read_job_info(&path) else { continue };
            let host = self.host(&info.host);
            let number = numbers.entry(host.clone()).or_insert(0);
            *number += 1;
            let name = if *number == 1 { format!("job.{host}.json") } else { format!("job.{host}.{number}.json") };
            self.names.insert(path, name);
        }
    }

    fn host(&self, host: &str) -> String {
        self.hosts.get(host).cloned().unwrap_or_else(|| "node".to_owned())
    }

    fn key(&self, key: &ProcessKey) -> ProcessKey {
        ProcessKey { host: self.host(&key.host), ..key.clone() }
    }

    /// What a file is called now; `None` if it is left out.
    pub fn file_name(&self, path: &Path) -> Option<String> {
        self.names.get(path).cloned()
    }

    /// A `job.HOST.json`; `None` if it cannot be read.
    pub fn info(&mut self, path: &Path) -> Option<Vec<u8>> {
        let info = read_job_info(path).map_err(|problem| self.problems.push(problem.to_string())).ok()?;
        let program = info.command.first().map(|program| text::base(program).to_owned());
        let more = (info.command.len() > 1).then(|| CUT.to_owned());
        let numbered = |numbers: &mut Numbers, what: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("{what}{}", numbers.of(text)) }
        };
        let redacted = JobInfo {
            host: self.host(&info.host),
            job_id: JOB.to_owned(),
            launch: numbered(&mut self.launches, "launch", &info.launch),
            command: program.into_iter().chain(more).collect(),
            boot_id: numbered(&mut self.boots, "boot", &info.boot_id),
            redacted: true,
            ..info
        };
        redacted.encode().map_err(|error| self.problems.push(format!("{}: {error}", path.display()))).ok()
    }

    /// A segment, and behind the last one of its stream what only the live tail holds. `None` if it cannot be read.
    pub fn segment(&mut self, path: &Path) -> Result<Option<Vec<u8>>, RedactError> {
        let reader = match BlockReader::open(path) {
            Ok(reader) => reader,
            Err(error) => {
                self.problems.push(format!("{error}; it is left out"));
                return Ok(None);
            }
        };
        let header =
            SegmentHeader { job_id: JOB.to_owned(), key: self.key(&reader.header().key), ..reader.header().clone() };
        let tail = self.tails.get(path).cloned();
        segment::redact(self, reader, &header, tail.as_ref()).map(Some)
    }

    /// What could not be read, in words.
    pub fn into_problems(self) -> Vec<String> {
        self.problems
    }
}
