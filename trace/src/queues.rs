//! Records that wait for their block, and their turning into blocks.

use crate::block::{BlockFacts, BlockKind, BlockSealer};
use crate::call::{Call, Return, SiteDef};
use crate::columns::{ColumnWriter, encode_calls, encode_returns};
use crate::comm::{CommDef, RankDef};
use crate::datatype::TypeDef;
use crate::definitions::Definitions;
use crate::digest::Digests;
use crate::evidence::{Attribute, ClockSnapshot, Gap, LogLine, ProcessState, StepMark, ThreadState};
use crate::limits;
use crate::payload::{Row, SegmentEnd, TailRows};
use crate::repeated::Repeated;
use crate::rows::RowWriter;
use crate::sizes;

/// One queue per kind.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) ranks: Vec<RankDef>,
    pub(crate) comms: Vec<CommDef>,
    pub(crate) types: Vec<TypeDef>,
    pub(crate) sites: Vec<SiteDef>,
    pub(crate) labels: Vec<(u32, String)>,
    pub(crate) calls: Vec<Call>,
    pub(crate) returns: Vec<Return>,
    pub(crate) clocks: Vec<ClockSnapshot>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) states: Vec<ProcessState>,
    pub(crate) threads: Vec<ThreadState>,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) steps: Vec<StepMark>,
    /// Records over all queues.
    pub(crate) count: usize,
    /// The most bytes that they take, over all queues: a bound for each of them.
    pub(crate) size: usize,
}

impl Queues {
    /// Empties all of them, keeping the memory of the one that is always in use.
    pub(crate) fn clear(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.clear();
        *self = Queues { calls, ..Queues::default() };
    }

    /// Whether definitions wait.
    pub(crate) fn has_definitions(&self) -> bool {
        !(self.ranks.is_empty()
            && self.comms.is_empty()
            && self.types.is_empty()
            && self.sites.is_empty()
            && self.labels.is_empty())
    }
}

/// Turns records into blocks.
#[derive(Debug)]
pub(crate) struct Encoder {
    sealer: BlockSealer,
    columns: ColumnWriter,
    rows: RowWriter,
    payload: Vec<u8>,
    /// Blocks made since the caller last took the number.
    pub(crate) blocks: u64,
    /// Calls of the recording before the next block.
    pub(crate) calls_before: u64,
    /// The next blocks hold what stands in earlier ones.
    pub(crate) repeated: bool,
}

impl Encoder {
    pub(crate) fn new(zstd_level: i32) -> std::io::Result<Encoder> {
        Ok(Encoder {
            sealer: BlockSealer::new(zstd_level)?,
            columns: ColumnWriter::default(),
            rows: RowWriter::default(),
            payload: Vec::new(),
            blocks: 0,
            calls_before: 0,
            repeated: false,
        })
    }

    /// Strings and lists that were cut since the last question.
    pub(crate) fn take_clipped(&mut self) -> u64 {
        std::mem::take(&mut self.rows.clipped)
    }

    /// Appends a block for every queue that holds something. Definitions come first, returns behind the calls.
    pub(crate) fn queues(&mut self, queues: &Queues, digests: &Digests, out: &mut Vec<u8>) {
        self.rows(BlockKind::RANKS, &queues.ranks, |_| None, out);
        self.rows(BlockKind::TYPES, &queues.types, |_| None, out);
        self.rows(BlockKind::COMMS, &queues.comms, |_| None, out);
        self.rows(BlockKind::SITES, &queues.sites, |_| None, out);
        self.rows(BlockKind::LABELS, &queues.labels, |_| None, out);
        self.calls(&queues.calls, digests, out);
        self.returns(&queues.returns, out);
        self.rows(BlockKind::CLOCKS, &queues.clocks, |clock| Some(clock.monotonic), out);
        self.rows(BlockKind::GAPS, &queues.gaps, |_| None, out);
        self.rows(BlockKind::STATES, &queues.states, |state| Some(state.at), out);
        self.rows(BlockKind::THREADS, &queues.threads, |state| Some(state.at), out);
        self.rows(BlockKind::LOGS, &queues.logs, |line| (line.at > 0).then_some(line.at), out);
        self.rows(BlockKind::ATTRIBUTES, &queues.attributes, |_| None, out);
        self.rows(BlockKind::STEPS, &queues.steps, |step| Some(step.at), out);
    }

    /// Appends every definition, in blocks below the limits.
    pub(crate) fn definitions(&mut self, known: &Definitions, out: &mut Vec<u8>) {
        self.chunked(BlockKind::RANKS, known.ranks.records().iter(), |_| sizes::PLAIN, out);
        self.chunked(BlockKind::TYPES, known.types.records().iter(), sizes::derived, out);
        self.chunked(BlockKind::COMMS, known.comms.records().iter(), sizes::comm, out);
        self.chunked(BlockKind::SITES, known.sites.records().iter(), sizes::site, out);
        self.chunked(BlockKind::LABELS, known.labels.records().iter(), |label| sizes::label(&label.1), out);
    }

    /// Appends every definition as what stands in earlier blocks, or was lost with them.
    pub(crate) fn redefine(&mut self, known: &Definitions, out: &mut Vec<u8>) {
        self.repeated = true;
        self.definitions(known, out);
        self.repeated = false;
    }

    /// Appends what a later segment begins with.
    pub(crate) fn head(&mut self, known: &Definitions, repeated: &Repeated, out: &mut Vec<u8>) {
        self.redefine(known, out);
        self.repeated = true;
        self.rows(BlockKind::CLOCKS, &repeated.clock, |clock| Some(clock.monotonic), out);
        self.chunked(BlockKind::ATTRIBUTES, repeated.attributes.records().iter(), sizes::attribute, out);
        self.rows(BlockKind::STEPS, &repeated.step, |step| Some(step.at), out);
        self.repeated = false;
    }

    /// Appends the note that the next blocks hold these rows of the tail.
    pub(crate) fn tail_rows(&mut self, rows: &TailRows, out: &mut Vec<u8>) {
        self.rows(BlockKind::TAIL_ROWS, [rows], |_| None, out);
    }

    /// Appends a single gap.
    pub(crate) fn gap(&mut self, gap: &Gap, out: &mut Vec<u8>) {
        self.rows(BlockKind::GAPS, [gap], |_| None, out);
    }

    /// Appends the end of a segment. Its digest table says where every communicator stands.
    pub(crate) fn end(&mut self, end: &SegmentEnd, standing: &Digests, out: &mut Vec<u8>) {
        end.put(&mut self.rows);
        self.rows.end();
        self.payload.clear();
        self.rows.finish(&mut self.payload);
        self.seal(BlockKind::SEGMENT_END, 1, (u64::MAX, 0), standing, out);
    }

    fn calls(&mut self, calls: &[Call], digests: &Digests, out: &mut Vec<u8>) {
        if calls.is_empty() {
            return;
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for call in calls {
            first = first.min(call.enter);
            last = last.max(call.exit.unwrap_or(0).max(call.enter));
        }
        self.payload.clear();
        encode_calls(calls, &mut self.columns, &mut self.payload);
        self.seal(BlockKind::CALLS, calls.len() as u32, (first, last), digests, out);
        self.calls_before += calls.len() as u64;
    }

    /// Appends a frontier: calls that stand in earlier blocks.
    pub(crate) fn frontier(&mut self, calls: &[Call], digests: &Digests, out: &mut Vec<u8>) {
        for calls in calls.chunks(limits::MAX_RECORDS) {
            self.payload.clear();
            encode_calls(calls, &mut self.columns, &mut self.payload);
            self.seal(BlockKind::FRONTIER, calls.len() as u32, (u64::MAX, 0), digests, out);
        }
    }

    fn returns(&mut self, returns: &[Return], out: &mut Vec<u8>) {
        if returns.is_empty() {
            return;
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for entry in returns {
            (first, last) = (first.min(entry.exit), last.max(entry.exit));
        }
        self.payload.clear();
        encode_returns(returns, &mut self.columns, &mut self.payload);
        self.seal(BlockKind::RETURNS, returns.len() as u32, (first, last), &Digests::default(), out);
    }

    fn rows<'a, T: Row + 'a>(
        &mut self,
        kind: BlockKind,
        records: impl IntoIterator<Item = &'a T>,
        time: impl Fn(&T) -> Option<u64>,
        out: &mut Vec<u8>,
    ) {
        let mut count = 0;
        let (mut first, mut last) = (u64::MAX, 0);
        for record in records {
            record.put(&mut self.rows);
            self.rows.end();
            count += 1;
            if let Some(time) = time(record) {
                (first, last) = (first.min(time), last.max(time));
            }
        }
        if count > 0 {
            self.payload.clear();
            self.rows.finish(&mut self.payload);
            self.seal(kind, count, (first, last), &Digests::default(), out);
        }
    }

    fn chunked<'a, T: Row + 'a>(
        &mut self,
        kind: BlockKind,
        records: impl Iterator<Item = &'a T>,
        size: impl Fn(&T) -> usize,
        out: &mut Vec<u8>,
    ) {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for record in records {
            let size = size(record);
            if chunk.len() >= limits::MAX_RECORDS || (bytes + size > limits::SEAL_AT && !chunk.is_empty()) {
                self.rows(kind, chunk.drain(..), |_| None, out);
                bytes = 0;
            }
            chunk.push(record);
            bytes += size;
        }
        self.rows(kind, chunk, |_| None, out);
    }

    fn seal(&mut self, kind: BlockKind, count: u32, times: (u64, u64), digests: &Digests, out: &mut Vec<u8>) {
        let (first_time, last_time) = times;
        let facts =
            BlockFacts { kind, count, first_time, last_time, calls_before: self.calls_before, repeated: self.repeated };
        self.sealer.seal(facts, digests, &self.payload, out);
        self.blocks += 1;
    }
}
