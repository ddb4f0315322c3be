//! Imported items as a trace directory, through the recorder's own writer.

use std::collections::HashSet;
use std::path::Path;

use rankdiff_trace::{
    ClockSnapshot, FORMAT_MAJOR, FORMAT_MINOR, JobInfo, ProcessKey, StreamWriter, WriteError, WriterOptions,
    write_job_info,
};

use super::{ImportError, Input, Item, Start};

/// What was stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// Processes.
    pub processes: u64,
    /// Calls.
    pub calls: u64,
    /// Records of every kind, calls included.
    pub records: u64,
    /// What was left out, in words.
    pub remarks: Vec<String>,
    /// Recordings that were stored.
    recordings: HashSet<(ProcessKey, u64)>,
}

/// Writes all that `input` gives into the directory `dir`, which exists. `stored` goes on from one input of a job to the
/// next.
///
/// # Errors
/// What the input says, or the file system. What was written until then stays.
pub fn store(input: &mut dyn Input, dir: &Path, stored: &mut Stored) -> Result<(), ImportError> {
    let mut open: Option<StreamWriter> = None;
    while let Some(item) = input.next_item()? {
        match item {
            Item::Job(info) => {
                let current = format!("{FORMAT_MAJOR}.{FORMAT_MINOR}");
                write_job_info(dir, &JobInfo { format_version: current, ..*info })?;
            }
            Item::Process(start) => {
                if let Some(writer) = open.take() {
                    writer.close()?;
                }
                if !stored.recordings.insert((start.key.clone(), start.session)) {
                    stored.remarks.push(twice(&start));
                    skip(input)?;
                    continue;
                }
                stored.processes += 1;
                open = Some(begin(&start, dir)?);
            }
            Item::Record(record) => {
                let Some(writer) = &mut open else { continue };
                match writer.write(*record) {
                    // The writer goes on without it and counts it.
                    Err(error @ WriteError::TooLarge { .. }) => stored.remarks.push(error.to_string()),
                    other => other?,
                }
            }
            Item::End { closed } => {
                let Some(mut writer) = open.take() else { continue };
                writer.flush()?;
                let mut summary = writer.summary();
                if closed {
                    summary = writer.close()?;
                }
                stored.calls += summary.calls;
                stored.records += summary.records;
            }
        }
    }
    stored.remarks.extend(input.remarks());
    Ok(())
}

fn begin(start: &Start, dir: &Path) -> Result<StreamWriter, WriteError> {
    // A recording is named by the wall clock of its start.
    let clock = ClockSnapshot { realtime: start.session, ..start.clock };
    let options = WriterOptions { job_id: start.job_id.clone(), ..WriterOptions::default() };
    StreamWriter::create(dir, &start.key, clock, &options)
}

fn twice(start: &Start) -> String {
    let ProcessKey { host, pid, .. } = &start.key;
    format!("process {pid} on host '{host}' is there twice; the first was kept")
}

/// Passes over the records of a process.
fn skip(input: &mut dyn Input) -> Result<(), ImportError> {
    while let Some(item) = input.next_item()? {
        if matches!(item, Item::End { .. }) {
            break;
        }
    }
    Ok(())
}
