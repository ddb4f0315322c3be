//! Reads a whole stream: its segments in order, what only the live tail holds, returns joined to their calls, damage as
//! gaps. What segments repeat at their heads counts once.

use std::path::PathBuf;

use crate::block::BlockKind;
use crate::definitions::Definitions;
use crate::error::{Problem, ProblemKind, ReadError};
use crate::evidence::Gap;
use crate::flushes::{Flushes, Item};
use crate::holes::Holes;
use crate::join::Joiner;
use crate::payload::Decoded;
use crate::reader::{Block, BlockReader};
use crate::stream::{ProcessKey, ProcessTrace, Record};
use crate::tail::TailSnapshot;

/// The files of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFiles {
    /// Whose it is.
    pub key: ProcessKey,
    /// Tells two recordings of one process apart (realtime of the first one's start, ns).
    pub session: u64,
    /// Its segments in order.
    pub segments: Vec<PathBuf>,
    /// Its live tail: there while it is written, and after its writer was killed.
    pub tail: Option<PathBuf>,
}

/// What a stream's files gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadOutcome {
    /// Everything that could be read.
    pub trace: ProcessTrace,
    /// What could not.
    pub problems: Vec<Problem>,
    /// Returns whose call is not in the stream (it was made before the recorder came, or was lost).
    pub orphan_returns: u64,
}

impl StreamFiles {
    /// Reads everything. Damage never stops it: what stands before is kept, a [`Gap`] marks what is missing, and
    /// later segments are read on.
    pub fn read(&self) -> ReadOutcome {
        let mut assembly = Assembly::default();
        assembly.outcome.trace.key = self.key.clone();
        match TailSnapshot::read(self) {
            Some(Ok(tail)) => assembly.tail = Some(tail),
            Some(Err(problem)) => assembly.outcome.problems.push(problem),
            None => {}
        }
        let mut ordinal = 0;
        for (index, path) in self.segments.iter().enumerate() {
            let closed = std::mem::take(&mut assembly.outcome.trace.closed);
            match BlockReader::open(path) {
                Ok(mut reader) => {
                    let found = reader.header().ordinal;
                    if found != ordinal + 1 {
                        assembly.missing(path, ordinal, found);
                    }
                    if found <= ordinal {
                        // A copy: its calls were read, or are missing where they belong.
                        assembly.outcome.trace.closed = closed;
                        continue;
                    }
                    ordinal = found;
                    assembly.segment(&mut reader, index + 1 == self.segments.len());
                }
                Err(error) => {
                    ordinal += 1;
                    assembly.unreadable(path, &error);
                }
            }
        }
        assembly.read_tail(ordinal);
        assembly.finish()
    }
}

#[derive(Default)]
struct Assembly {
    outcome: ReadOutcome,
    joiner: Joiner,
    tail: Option<TailSnapshot>,
    /// Rows of the tail below this are in blocks.
    rows: u64,
    definitions: Definitions,
    holes: Holes,
}

impl Assembly {
    /// `last`: no segment comes behind it, so that what it lacks may be in the tail.
    fn segment(&mut self, reader: &mut BlockReader<std::fs::File>, last: bool) {
        let mut flushes = Flushes::default();
        let mut problem = loop {
            match flushes.next(reader) {
                Ok(Some(Item::Block(block))) => match self.block(reader, &block) {
                    Ok(false) => {}
                    Ok(true) => break None,
                    Err(problem) => break Some(problem),
                },
                Ok(Some(Item::Flush(rows, blocks))) => {
                    self.rows = self.rows.max(rows.upto());
                    if let Err(problem) = self.blocks(reader, &blocks) {
                        break Some(problem);
                    }
                }
                Ok(None) => break None,
                Err(problem) => break Some(problem),
            }
        };
        let torn = problem.as_ref().is_none_or(|problem| problem.kind == ProblemKind::TornTail);
        let rows = self.rows;
        let in_tail = last && torn && self.tail.as_mut().is_some_and(|tail| tail.holds(rows));
        match flushes.unfinished() {
            // All of the write is in the tail, what is here of it as well.
            _ if in_tail => problem = None,
            Some((rows, blocks)) => {
                self.rows = self.rows.max(rows.upto());
                problem = problem.or_else(|| Some(reader.torn_here("a write of several blocks")));
                if let Err(damage) = self.blocks(reader, &blocks) {
                    problem = Some(damage);
                }
            }
            None => {}
        }
        match problem {
            Some(problem) => self.stop(reader, problem),
            None => self.outcome.problems.extend(reader.newer_problem()),
        }
    }

    fn blocks(&mut self, reader: &mut BlockReader<std::fs::File>, blocks: &[Block]) -> Result<(), Problem> {
        blocks.iter().try_for_each(|block| self.block(reader, block).map(|_| ()))
    }

    /// Takes a block; gives whether it ends the segment.
    fn block(&mut self, reader: &mut BlockReader<std::fs::File>, block: &Block) -> Result<bool, Problem> {
        self.outcome.problems.extend(self.holes.before(reader.path(), block));
        if block.header().is_expired() {
            if block.header().kind == BlockKind::CALLS {
                self.holes.dropped(u64::from(block.header().count));
            }
            return Ok(false);
        }
        if block.header().kind == BlockKind::CALLS {
            self.outcome.trace.gaps.extend(self.holes.bounded(block.header().first_time));
            if block.header().is_readable() {
                let known = self.outcome.trace.calls.len();
                block.append_calls(reader, &mut self.outcome.trace.calls)?;
                self.took_calls(known, block.header().count);
                return Ok(false);
            }
        }
        let repeated = block.header().is_repeated();
        match block.decode(reader)? {
            Decoded::End(end) => {
                self.outcome.trace.closed = end.last;
                return Ok(true);
            }
            Decoded::Clocks(clocks) if repeated => restore(clocks, &mut self.outcome.trace.clocks),
            Decoded::Attributes(attributes) if repeated => restore(attributes, &mut self.outcome.trace.attributes),
            Decoded::Steps(steps) if repeated => restore(steps, &mut self.outcome.trace.steps),
            decoded => self.take(decoded, block.header().count),
        }
        Ok(false)
    }

    /// What no block holds.
    fn read_tail(&mut self, ordinal: u32) {
        let Some(tail) = self.tail.take() else { return };
        let part = tail.behind(self.rows, ordinal);
        self.outcome.problems.extend(part.problems);
        if part.hole {
            self.holes.open();
        }
        if !part.records.is_empty() {
            self.outcome.trace.closed = false;
        }
        for record in part.records {
            self.record(record);
        }
    }

    fn record(&mut self, record: Record) {
        let trace = &mut self.outcome.trace;
        match record {
            Record::Rank(def) => self.definitions.rank(def),
            Record::Comm(def) => self.definitions.comm(def),
            Record::Type(def) => self.definitions.derived(def),
            Record::Site(def) => self.definitions.site(def),
            Record::Label(id, text) => self.definitions.label(id, text),
            Record::Call(call) => {
                trace.gaps.extend(self.holes.all_bounded(call.enter));
                self.holes.took(1, call.enter);
                trace.calls.push(call);
            }
            Record::Return(entry) => {
                self.outcome.orphan_returns += u64::from(!self.joiner.join(&mut trace.calls, &entry));
            }
            Record::Clock(clock) => trace.clocks.push(clock),
            Record::Gap(gap) => trace.gaps.push(gap),
            Record::State(state) => trace.states.push(state),
            Record::Thread(state) => trace.threads.push(state),
            Record::Log(line) => trace.logs.push(line),
            Record::Attribute(attribute) => trace.attributes.push(attribute),
            Record::Step(step) => trace.steps.push(step),
        }
    }

    /// The rest of a segment cannot be read.
    fn stop(&mut self, reader: &BlockReader<std::fs::File>, problem: Problem) {
        self.outcome.problems.push(problem);
        self.outcome.problems.extend(reader.newer_problem());
        self.holes.open();
    }

    fn missing(&mut self, path: &std::path::Path, last: u32, found: u32) {
        self.outcome.problems.push(missing_segments(path, last, found));
        self.holes.open();
    }

    fn unreadable(&mut self, path: &std::path::Path, error: &ReadError) {
        self.outcome.problems.push(unreadable(path, error));
        self.holes.open();
    }

    /// Accounts for the calls of a block of so many, which stand behind those that were `known` before.
    fn took_calls(&mut self, known: usize, count: u32) {
        let trace = &mut self.outcome.trace;
        let calls = trace.calls.get(known..).unwrap_or_default();
        let skipped = u64::from(count).saturating_sub(calls.len() as u64);
        let after = self.holes.last();
        let latest = calls.iter().map(|call| call.enter).fold(after, u64::max);
        if skipped > 0 {
            let before = latest.saturating_add(1);
            trace.gaps.push(Gap { events: Some(skipped), after, before, ..Gap::default() });
        }
        self.holes.took(u64::from(count), latest);
    }

    fn take(&mut self, decoded: Decoded, count: u32) {
        let trace = &mut self.outcome.trace;
        match decoded {
            Decoded::Ranks(defs) => defs.into_iter().for_each(|def| self.definitions.rank(def)),
            Decoded::Comms(defs) => defs.into_iter().for_each(|def| self.definitions.comm(def)),
            Decoded::Types(defs) => defs.into_iter().for_each(|def| self.definitions.derived(def)),
            Decoded::Sites(defs) => defs.into_iter().for_each(|def| self.definitions.site(def)),
            Decoded::Labels(defs) => defs.into_iter().for_each(|(id, text)| self.definitions.label(id, text)),
            Decoded::Calls(mut calls) => {
                let known = trace.calls.len();
                trace.calls.append(&mut calls);
                self.took_calls(known, count);
            }
            Decoded::Returns(returns) => {
                for entry in &returns {
                    self.outcome.orphan_returns += u64::from(!self.joiner.join(&mut trace.calls, entry));
                }
            }
            Decoded::Clocks(mut clocks) => trace.clocks.append(&mut clocks),
            Decoded::Gaps(mut gaps) => trace.gaps.append(&mut gaps),
            Decoded::States(mut states) => trace.states.append(&mut states),
            Decoded::Threads(mut threads) => trace.threads.append(&mut threads),
            Decoded::Logs(mut logs) => trace.logs.append(&mut logs),
            Decoded::Attributes(mut attributes) => trace.attributes.append(&mut attributes),
            Decoded::Steps(mut steps) => trace.steps.append(&mut steps),
            Decoded::TailRows(_) | Decoded::Frontier(_) | Decoded::End(_) | Decoded::Expired | Decoded::Unknown => {}
        }
    }

    fn finish(mut self) -> ReadOutcome {
        let trace = &mut self.outcome.trace;
        trace.gaps.extend(self.holes.rest());
        trace.ranks = self.definitions.ranks.into_records();
        trace.comms = self.definitions.comms.into_records();
        trace.types = self.definitions.types.into_records();
        trace.sites = self.definitions.sites.into_records();
        trace.labels = self.definitions.labels.into_records();
        self.outcome
    }
}

/// Records that a segment repeats at its head: those that are new here come from segments that are not.
pub(crate) fn restore<T: PartialEq>(repeated: Vec<T>, known: &mut Vec<T>) {
    for record in repeated {
        // The latest are the likeliest.
        if !known.iter().rev().any(|old| *old == record) {
            known.push(record);
        }
    }
}

/// The segment before this block's ends between two blocks, and so looks whole.
pub(crate) fn cut_before(path: &std::path::Path, offset: u64, missing: u64) -> Problem {
    Problem {
        file: path.to_owned(),
        offset,
        kind: ProblemKind::Damaged,
        what: format!("the segment before it was cut: {missing} calls are missing here"),
        advice: "They are reported as a gap; copy the segment before it again from where it was recorded".to_owned(),
    }
}

/// Behind segment `last` of a stream comes `found`.
pub(crate) fn missing_segments(path: &std::path::Path, last: u32, found: u32) -> Problem {
    let what = if found > last {
        format!("segments {} to {} of its stream are missing", last + 1, found - 1)
    } else {
        format!("it is segment {found} of its stream, which was read before")
    };
    Problem {
        file: path.to_owned(),
        offset: 0,
        kind: ProblemKind::MissingSegment,
        what,
        advice: "Calls in them are reported as a gap; copy all *.rdt files of the job".to_owned(),
    }
}

/// A file that gives nothing, as a problem of its directory.
pub(crate) fn unreadable(path: &std::path::Path, error: &ReadError) -> Problem {
    Problem {
        file: path.to_owned(),
        offset: 0,
        kind: ProblemKind::Unreadable,
        what: error.to_string(),
        advice: "The rest of the trace is read without it".to_owned(),
    }
}

#[cfg(test)]
#[path = "stream_files_tests.rs"]
mod tests;
