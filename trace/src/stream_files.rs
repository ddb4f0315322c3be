//! Reads a whole stream: its segments in order, returns joined to their calls, damage as gaps.

use std::path::PathBuf;

use crate::definitions::Definitions;
use crate::error::{Problem, ProblemKind, ReadError};
use crate::evidence::{Gap, GapCause};
use crate::join::Joiner;
use crate::payload::Decoded;
use crate::reader::BlockReader;
use crate::stream::{ProcessKey, ProcessTrace};

/// The files of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFiles {
    /// Whose it is.
    pub key: ProcessKey,
    /// Tells two recordings of one process apart (realtime of the first one's start, ns).
    pub session: u64,
    /// Its segments in order.
    pub segments: Vec<PathBuf>,
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
        let mut ordinal = 0;
        for path in &self.segments {
            assembly.outcome.trace.closed = false;
            match BlockReader::open(path) {
                Ok(mut reader) => {
                    let found = reader.header().ordinal;
                    if found != ordinal + 1 {
                        assembly.missing(path, ordinal, found);
                    }
                    ordinal = found;
                    assembly.segment(&mut reader);
                }
                Err(error) => {
                    ordinal += 1;
                    assembly.unreadable(path, &error);
                }
            }
        }
        assembly.finish()
    }
}

#[derive(Default)]
struct Assembly {
    outcome: ReadOutcome,
    joiner: Joiner,
    definitions: Definitions,
    /// Calls of the recording that were read, or are known to be missing.
    accounted: u64,
    /// Latest entry of a call so far.
    last_enter: u64,
    /// Gaps whose end is not known until the next call is read.
    open: Vec<Gap>,
}

impl Assembly {
    fn segment(&mut self, reader: &mut BlockReader<std::fs::File>) {
        loop {
            let block = match reader.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(problem) => return self.stop(reader, problem),
            };
            if block.header().kind == crate::block::BlockKind::CALLS {
                self.close_gaps(block.header().calls_before, block.header().first_time);
            }
            match block.decode(reader) {
                Ok(Decoded::End(end)) => {
                    self.outcome.trace.closed = end.last;
                    break;
                }
                Ok(decoded) => self.take(decoded, block.header().count),
                Err(problem) => return self.stop(reader, problem),
            }
        }
        self.outcome.problems.extend(reader.newer_problem());
    }

    /// The rest of a segment cannot be read.
    fn stop(&mut self, reader: &BlockReader<std::fs::File>, problem: Problem) {
        self.outcome.problems.push(problem);
        self.outcome.problems.extend(reader.newer_problem());
        self.gap();
    }

    fn gap(&mut self) {
        self.open.push(Gap { cause: GapCause::Torn, after: self.last_enter, before: u64::MAX, ..Gap::default() });
    }

    /// A later block of calls says how many were written before it, and so how many are missing.
    fn close_gaps(&mut self, calls_before: u64, first_time: u64) {
        let missing = calls_before.saturating_sub(self.accounted);
        self.accounted = self.accounted.max(calls_before);
        let only = self.open.len() == 1;
        for gap in self.open.drain(..) {
            let events = only.then_some(missing);
            if missing > 0 {
                self.outcome.trace.gaps.push(Gap { before: first_time, events, ..gap });
            }
        }
    }

    fn missing(&mut self, path: &std::path::Path, last: u32, found: u32) {
        let what = if found > last {
            format!("segments {} to {} of its stream are missing", last + 1, found - 1)
        } else {
            format!("it is segment {found} of its stream, which was read before")
        };
        self.outcome.problems.push(Problem {
            file: path.to_owned(),
            offset: 0,
            kind: ProblemKind::MissingSegment,
            what,
            advice: "Calls in them are reported as a gap; copy all *.rdt files of the job".to_owned(),
        });
        self.gap();
    }

    fn unreadable(&mut self, path: &std::path::Path, error: &ReadError) {
        self.outcome.problems.push(unreadable(path, error));
        self.gap();
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
                let skipped = u64::from(count).saturating_sub(calls.len() as u64);
                let latest = calls.iter().map(|call| call.enter).fold(self.last_enter, u64::max);
                if skipped > 0 {
                    trace.gaps.push(Gap {
                        events: Some(skipped),
                        after: self.last_enter,
                        before: latest.saturating_add(1),
                        ..Gap::default()
                    });
                }
                self.last_enter = latest;
                self.accounted += u64::from(count);
                trace.calls.append(&mut calls);
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
            Decoded::End(_) | Decoded::Unknown => {}
        }
    }

    fn finish(mut self) -> ReadOutcome {
        let trace = &mut self.outcome.trace;
        trace.gaps.append(&mut self.open);
        trace.ranks = self.definitions.ranks.into_records();
        trace.comms = self.definitions.comms.into_records();
        trace.types = self.definitions.types.into_records();
        trace.sites = self.definitions.sites.into_records();
        trace.labels = self.definitions.labels.into_records();
        self.outcome
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
