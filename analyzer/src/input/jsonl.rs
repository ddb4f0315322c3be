//! JSON Lines that `rankdiff export --to jsonl` wrote, or somebody else in its words (docs/export.md).
//!
//! One line is held at a time. What a newer writer may have added is skipped and counted; calls that are skipped become a
//! gap, and so does whatever follows where the file is cut off, so that what is missing is never taken for a call that was
//! not made.

use std::collections::VecDeque;
use std::io::{BufRead, Read as _};
use std::path::{Path, PathBuf};

use rankdiff_trace::{Gap, GapCause, Record};

use super::{ImportError, Importer, Input, Item, Start};
use crate::jsonl::{FORMAT, Line, MAJOR, VERSION, parse};

/// Most bytes of a line: any record within the trace format's limits takes less.
const MAX_LINE: u64 = 64 << 20;
/// Most bytes of the first line.
const MAX_FIRST: usize = 4096;

/// The descriptor.
#[derive(Debug)]
pub(super) struct Jsonl;

impl Importer for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn summary(&self) -> &'static str {
        "JSON Lines, as `rankdiff export --to jsonl` writes them"
    }

    fn sniff(&self, head: &[u8]) -> bool {
        let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        first.len() <= MAX_FIRST && matches!(parse(first), Ok(Line::Header { .. }))
    }

    fn open<'a>(&self, path: &Path, source: Box<dyn BufRead + 'a>) -> Result<Box<dyn Input + 'a>, ImportError> {
        let mut reader = Reader {
            path: path.to_owned(),
            source,
            line: 0,
            bytes: Vec::new(),
            open: None,
            ready: VecDeque::new(),
            unknown: 0,
            unknown_calls: 0,
            missing_calls: 0,
            cut: false,
        };
        if !reader.advance()? {
            return Err(reader.wrong("the file is empty".to_owned()));
        }
        let version = match parse(&reader.bytes) {
            Ok(Line::Header { version }) => version,
            Ok(_) => return Err(reader.wrong(format!("the first line is no header of {FORMAT}"))),
            Err(what) => return Err(reader.wrong(what)),
        };
        let major = version.split('.').next().and_then(|major| major.parse().ok());
        if major != Some(MAJOR) {
            let (path, known) = (path.to_owned(), VERSION.to_owned());
            return Err(ImportError::Version { path, format: FORMAT, found: version, known });
        }
        Ok(Box::new(reader))
    }
}

/// The process whose lines are read.
#[derive(Debug, Default)]
struct Open {
    calls: u64,
    last_enter: u64,
    /// Calls right before this that could not be taken.
    left_out: u64,
}

struct Reader<'a> {
    path: PathBuf,
    source: Box<dyn BufRead + 'a>,
    /// Number of the line that was read last.
    line: u64,
    bytes: Vec<u8>,
    open: Option<Open>,
    /// Items that the last line gave and nobody has taken.
    ready: VecDeque<Item>,
    unknown: u64,
    unknown_calls: u64,
    missing_calls: u64,
    cut: bool,
}

impl Reader<'_> {
    /// Reads a line that is not blank, without its end; `false` at the end of the file.
    fn advance(&mut self) -> Result<bool, ImportError> {
        loop {
            self.bytes.clear();
            let read = self.source.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut self.bytes);
            let read = read.map_err(|source| ImportError::Read { path: self.path.clone(), source })?;
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            let ended = self.bytes.last() == Some(&b'\n');
            if ended {
                self.bytes.pop();
            }
            if self.bytes.len() as u64 > MAX_LINE {
                return Err(self.wrong(format!("it is longer than {MAX_LINE} bytes")));
            }
            self.cut = !ended;
            if !self.bytes.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn wrong(&self, what: String) -> ImportError {
        ImportError::Line { path: self.path.clone(), line: self.line, what }
    }

    /// Turns the line that was read into items.
    fn take(&mut self) -> Result<(), ImportError> {
        let line = match parse(&self.bytes) {
            Ok(line) => line,
            // A last line without an end was cut off by whoever ended the writer.
            Err(_) if self.cut => return Ok(()),
            Err(what) => return Err(self.wrong(what)),
        };
        self.cut = false;
        match line {
            // Files may be put one behind the other.
            Line::Header { .. } => {}
            Line::Job(info) => self.ready.push_back(Item::Job(info)),
            Line::Process(process) => {
                self.torn();
                self.open = Some(Open::default());
                let start = Start {
                    key: process.key(),
                    session: process.session,
                    job_id: process.job_id,
                    clock: process.clock.into(),
                };
                self.ready.push_back(Item::Process(Box::new(start)));
            }
            Line::End(end) => {
                let Some(open) = self.open.take() else {
                    return Err(self.wrong("an `end` without a `process` before it".to_owned()));
                };
                let missing = end.calls.saturating_sub(open.calls + open.left_out);
                self.missing_calls += missing;
                if open.left_out > 0 {
                    self.gap(GapCause::Unknown, Some(open.left_out), open.last_enter, u64::MAX);
                }
                if missing > 0 {
                    self.gap(GapCause::Unknown, Some(missing), 0, u64::MAX);
                }
                self.ready.push_back(Item::End { closed: end.closed });
            }
            Line::Record(record) => self.record(record)?,
            Line::UnknownCall => {
                self.unknown_calls += 1;
                if let Some(open) = &mut self.open {
                    open.left_out += 1;
                }
            }
            Line::Unknown => self.unknown += 1,
        }
        Ok(())
    }

    fn record(&mut self, record: Box<Record>) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return Err(self.wrong("a record without a `process` before it".to_owned()));
        };
        let mut gap = None;
        if let Record::Call(call) = &*record {
            let left_out = std::mem::take(&mut open.left_out);
            if left_out > 0 {
                gap = Some((left_out, open.last_enter, call.enter.max(open.last_enter).saturating_add(1)));
                // They count as lines that were there.
                open.calls += left_out;
            }
            open.calls += 1;
            open.last_enter = open.last_enter.max(call.enter);
        }
        if let Some((events, after, before)) = gap {
            self.gap(GapCause::Unknown, Some(events), after, before);
        }
        self.ready.push_back(Item::Record(record));
        Ok(())
    }

    fn gap(&mut self, cause: GapCause, events: Option<u64>, after: u64, before: u64) {
        let gap = Gap { cause, events, after, before, ..Gap::default() };
        self.ready.push_back(Item::Record(Box::new(Record::Gap(gap))));
    }

    /// The records of the open process end without its `end`.
    fn torn(&mut self) {
        if let Some(open) = self.open.take() {
            self.cut = true;
            self.gap(GapCause::Torn, None, open.last_enter, u64::MAX);
            self.ready.push_back(Item::End { closed: false });
        }
    }
}

impl Input for Reader<'_> {
    fn next_item(&mut self) -> Result<Option<Item>, ImportError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.advance()? {
                self.take()?;
            } else if self.open.is_some() {
                self.torn();
            } else {
                return Ok(None);
            }
        }
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.path.display();
        let mut remarks = Vec::new();
        if self.unknown > 0 {
            remarks.push(format!(
                "{path}: {} lines are of a kind, or hold a name, that this build does not know; they were left out",
                self.unknown
            ));
        }
        if self.unknown_calls > 0 {
            remarks.push(format!(
                "{path}: {} calls have an operation, type or flag that this build does not know; they are a gap",
                self.unknown_calls
            ));
        }
        if self.missing_calls > 0 {
            remarks.push(format!(
                "{path}: {} calls that its processes' ends count are not there; they are a gap",
                self.missing_calls
            ));
        }
        if self.cut {
            remarks.push(format!("{path}: the file is cut off; what followed is a gap"));
        }
        remarks
    }
}

#[cfg(test)]
#[path = "jsonl_tests.rs"]
mod tests;
