//! What a tail holds at one moment, for a stream that is read whole.
//!
//! The tail is read before the segments: so whatever is sealed in between is in both, and the blocks' notes of their
//! rows tell which of the tail's records are new. Read the other way round, records that are sealed in between would be
//! in neither.

use std::path::Path;

use super::reader::{Miss, Tail, TailRecord, TailState};
use crate::error::{Problem, ProblemKind};
use crate::stream::Record;
use crate::stream_files::{StreamFiles, unreadable};

/// How often a tail that is overwritten while it is read is read again.
const TRIES: u32 = 8;

/// The records of a tail that were in no block when it was read.
#[derive(Debug)]
pub struct TailSnapshot {
    tail: Tail,
    state: TailState,
    records: Vec<TailRecord>,
    problem: Option<Problem>,
}

/// What a tail adds to its stream's blocks.
#[derive(Debug, Default)]
pub struct TailPart {
    /// Records, in the order in which they were written.
    pub records: Vec<Record>,
    /// Rows before the first of them are in no block and were overwritten.
    pub hole: bool,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

impl TailSnapshot {
    /// Reads a stream's tail, if it has one that can be read; else gives the problem.
    pub fn read(files: &StreamFiles) -> Option<Result<TailSnapshot, Problem>> {
        let path = files.tail.as_deref()?;
        Some(match Tail::open(path) {
            Ok(tail) if tail.header().key == files.key && tail.header().session == files.session => {
                TailSnapshot::take(tail)
            }
            Ok(_) => Err(foreign(path)),
            // The stream was closed meanwhile: its blocks hold everything.
            Err(error) if error.is_not_found() => return None,
            Err(error) => Err(unreadable(path, &error)),
        })
    }

    fn take(tail: Tail) -> Result<TailSnapshot, Problem> {
        let state = tail.state()?;
        let mut snapshot = TailSnapshot { tail, state, records: Vec::new(), problem: None };
        for _ in 0..TRIES {
            if snapshot.fill() {
                return Ok(snapshot);
            }
            snapshot.state = snapshot.tail.state()?;
        }
        // The writer is faster than this reader; what is in blocks is read.
        snapshot.records.clear();
        snapshot.state.committed = snapshot.state.sealed;
        Ok(snapshot)
    }

    /// Reads what waits; false if it was overwritten meanwhile.
    fn fill(&mut self) -> bool {
        self.records.clear();
        self.tail.forget();
        let mut row = self.state.sealed;
        while row < self.state.committed {
            match self.tail.record(row, self.state.committed) {
                Ok(record) => {
                    row = record.next;
                    self.records.push(record);
                }
                Err(Miss::Overwritten) => return false,
                Err(Miss::Damaged(problem)) => {
                    self.problem = Some(problem);
                    break;
                }
            }
        }
        true
    }

    /// Whether the record that begins at this row can be read here.
    pub(crate) fn holds(&mut self, row: u64) -> bool {
        row >= self.state.sealed || self.tail.record(row, self.state.committed).is_ok()
    }

    /// What the tail adds to blocks that hold the rows below `upto`; `ordinal` is that of the last segment that was read.
    pub fn behind(mut self, upto: u64, ordinal: u32) -> TailPart {
        let mut part = TailPart::default();
        let mut first = Vec::new();
        if upto < self.state.sealed {
            // A writer could not write these, or the files were copied one after the other: the ring may still have them.
            let mut row = upto;
            while row < self.state.sealed {
                match self.tail.record(row, self.state.committed) {
                    Ok(record) => {
                        row = record.next;
                        first.push(record);
                    }
                    Err(_) => break,
                }
            }
            if row != self.state.sealed {
                part.hole = true;
                first.clear();
                if self.state.seal.is_some_and(|seal| seal.ordinal > ordinal) {
                    // What follows would stand behind a hole that is none.
                    part.problems.push(self.newer_segments(ordinal));
                    return part;
                }
            }
        }
        let known = first.into_iter().chain(std::mem::take(&mut self.records)).filter(|record| record.row >= upto);
        part.records = known.filter_map(|found| found.record.map(|record| *record)).collect();
        part.problems.extend(self.problem.take());
        if self.tail.newer_values() > 0 {
            part.problems.push(self.newer());
        }
        part
    }

    fn newer_segments(&self, ordinal: u32) -> Problem {
        Problem {
            file: self.tail.path().to_owned(),
            offset: 0,
            kind: ProblemKind::MissingSegment,
            what: format!("its stream has segments behind segment {ordinal}, which are not here"),
            advice: "What stands before was read; open the trace again, or copy all *.rdt files of the job".to_owned(),
        }
    }

    fn newer(&self) -> Problem {
        Problem {
            file: self.tail.path().to_owned(),
            offset: 0,
            kind: ProblemKind::Newer,
            what: format!("{} values are not known to this build", self.tail.newer_values()),
            advice: "They were left out; a newer rankdiff reads them".to_owned(),
        }
    }
}

fn foreign(path: &Path) -> Problem {
    Problem {
        file: path.to_owned(),
        offset: 0,
        kind: ProblemKind::Unreadable,
        what: "it is the live tail of another recording".to_owned(),
        advice: "The segments are read without it".to_owned(),
    }
}
