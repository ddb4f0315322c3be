//! Traces through files: written by the real writer, read back from the directory, in both modes of decoding.

use std::fs;
use std::path::{Path, PathBuf};

use rankdiff_analyzer::{Options, Report, analyze, analyze_outlines};
use rankdiff_trace::{JobDir, ProcessTrace, Record, StreamWriter, WriterOptions, read_outlines};

/// A directory that is removed when it is no longer needed.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one; `name` is unique in this process.
    ///
    /// # Panics
    /// If the temporary directory takes no more.
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("rankdiff-programs-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes traces into a directory.
///
/// # Panics
/// If the writer refuses: what is written was made here.
pub fn write(traces: &[ProcessTrace], dir: &Path) {
    for trace in traces {
        let start = trace.clocks.first().copied().unwrap_or_default();
        let options = WriterOptions { job_id: "programs".to_owned(), ..WriterOptions::default() };
        let mut writer = StreamWriter::create(dir, &trace.key, start, &options)
            .unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        for record in records(trace) {
            writer.write(record).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        // A recorder that still writes has flushed and not closed.
        let done = if trace.closed { writer.close().map(drop) } else { writer.flush() };
        done.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    }
}

/// A trace as its records, in an order in which they may stand.
fn records(trace: &ProcessTrace) -> Vec<Record> {
    let (first, rest) = trace.clocks.split_at(trace.clocks.len().min(1));
    let mut records: Vec<Record> = Vec::new();
    records.extend(trace.ranks.iter().cloned().map(Record::Rank));
    records.extend(trace.attributes.iter().cloned().map(Record::Attribute));
    records.extend(first.iter().copied().map(Record::Clock));
    records.extend(trace.comms.iter().cloned().map(Record::Comm));
    records.extend(trace.types.iter().cloned().map(Record::Type));
    records.extend(trace.sites.iter().cloned().map(Record::Site));
    records.extend(trace.labels.iter().cloned().map(|(index, text)| Record::Label(index, text)));
    records.extend(trace.steps.iter().copied().map(Record::Step));
    records.extend(trace.calls.iter().cloned().map(Record::Call));
    records.extend(trace.gaps.iter().cloned().map(Record::Gap));
    records.extend(trace.threads.iter().cloned().map(Record::Thread));
    records.extend(trace.logs.iter().cloned().map(Record::Log));
    records.extend(trace.states.iter().cloned().map(Record::State));
    records.extend(rest.iter().copied().map(Record::Clock));
    records
}

/// The report on a directory, everything decoded.
///
/// # Panics
/// If the directory holds no trace.
pub fn decoded(dir: &Path) -> Report {
    analyze(open(dir).streams().iter().map(|stream| stream.read().trace).collect(), &Options::default())
}

/// The report on a directory by its digests; `calls`: the most that are decoded.
///
/// # Panics
/// If the directory holds no trace.
pub fn by_digests(dir: &Path, calls: Option<u64>) -> Report {
    let options = Options { decode_calls: calls, ..Options::default() };
    analyze_outlines(read_outlines(open(dir).streams()), &options)
}

fn open(dir: &Path) -> JobDir {
    JobDir::open(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}
