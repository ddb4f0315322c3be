//! A stream without its calls: definitions, evidence, digests, and where each block of calls stands, so that a reader
//! decodes only the blocks that it wants.
//!
//! What is decoded: everything but calls and returns, and of the frontiers the last one. Payloads of calls are not
//! touched, so damage inside one shows only when it is decoded; damage of headers and digests is found here.
//!
//! Not here: what agrees with what (the analyzer's), a stream read whole (`stream_files.rs`).

use std::path::PathBuf;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::block::{BlockHeader, BlockKind};
use crate::call::Call;
use crate::comm::{CommDef, CommIdentity, CommRef};
use crate::definitions::Definitions;
use crate::digest::{ChainPoint, P2pPoint};
use crate::each_stream::each_stream;
use crate::error::{Problem, ProblemKind};
use crate::holes::Holes;
use crate::join::Joiner;
use crate::payload::Decoded;
use crate::reader::{Block, BlockReader};
use crate::stream::{ProcessTrace, Record};
use crate::stream_files::{StreamFiles, missing_segments, restore, unreadable};
use crate::tail::TailSnapshot;

/// A block of calls, or of returns, that was not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineBlock {
    block: Block,
    /// Index of its segment among the stream's files.
    segment: usize,
    /// One past the last position of each communicator at its end, for those that it moved, ascending.
    ends: Vec<(CommRef, u64)>,
}

impl OutlineBlock {
    /// Its fixed header.
    pub fn header(&self) -> &BlockHeader {
        self.block.header()
    }

    /// Whether it holds calls; otherwise returns of calls in earlier blocks.
    pub fn holds_calls(&self) -> bool {
        self.header().kind == BlockKind::CALLS
    }

    /// One past the communicator's last position in it; `None` if none of its collectives is in the block.
    pub fn end_of(&self, comm: CommRef) -> Option<u64> {
        let at = self.ends.binary_search_by_key(&comm, |end| end.0).ok()?;
        self.ends.get(at).map(|end| end.1)
    }
}

/// What a stream's files say without their calls.
#[derive(Debug, Clone, Default)]
pub struct StreamOutline {
    /// Everything but the calls; in `calls` the frontier, if the files end in one.
    pub trace: ProcessTrace,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Blocks of calls and returns in order.
    pub blocks: Vec<OutlineBlock>,
    /// The chain points of each communicator in the order of the file, those of the frontier last.
    pub chains: FxHashMap<CommRef, Vec<ChainPoint>>,
    /// The latest point-to-point sums.
    pub messages: FxHashMap<CommRef, P2pPoint>,
    /// Calls in the blocks.
    pub calls: u64,
    /// Earliest entry of a call and latest entry or return, ns; `(u64::MAX, 0)` without calls.
    pub times: (u64, u64),
    /// Calls that were written before the frontier: those behind it are known only by decoding. `None`: no frontier.
    pub frontier_at: Option<u64>,
    /// Calls and returns that are in no block yet, from the live tail.
    pub tail: Vec<Record>,
    files: Vec<PathBuf>,
}

/// The members of communicators, listed once: ten thousand ranks list ten thousand members each.
#[derive(Debug, Default)]
pub struct SharedMembers {
    seen: Mutex<FxHashMap<CommIdentity, u128>>,
}

impl SharedMembers {
    /// Takes the lists out of a trace that another trace has given already.
    ///
    /// A process whose rank nobody told keeps its lists: it is found by its place among the members.
    pub fn share_out(&self, trace: &mut ProcessTrace) {
        if !trace.ranks.is_empty() {
            trace.comms.iter_mut().for_each(|def| self.share(def));
        }
    }

    /// Takes the list out of a definition if another stream has given the same one for the same communicator.
    fn share(&self, def: &mut CommDef) {
        if !def.identity.is_known() || def.members.is_empty() {
            return;
        }
        let bytes: Vec<u8> = def.members.iter().flat_map(|member| member.to_le_bytes()).collect();
        let hash = xxh3_128(&bytes);
        // A thread that panicked while it held the lock left a whole map.
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match seen.get(&def.identity) {
            Some(held) if *held == hash => def.members = Vec::new(),
            Some(_) => {}
            None => {
                seen.insert(def.identity, hash);
            }
        }
    }
}

/// Reads the outlines of streams, several at a time.
pub fn read_outlines(streams: &[StreamFiles]) -> Vec<StreamOutline> {
    let shared = SharedMembers::default();
    each_stream(streams, |files| StreamOutline::read(files, &shared))
}

impl StreamOutline {
    /// Reads headers, digests and everything but calls. Damage is handled as when the stream is read whole.
    ///
    /// `shared`: of the streams that are read with it, one keeps the list of a communicator's members.
    pub fn read(files: &StreamFiles, shared: &SharedMembers) -> StreamOutline {
        let mut reading = Reading::default();
        reading.outline.trace.key = files.key.clone();
        reading.outline.times = (u64::MAX, 0);
        reading.outline.files.clone_from(&files.segments);
        // Before the segments: what is sealed in between is in both.
        let tail = TailSnapshot::read(files);
        let mut ordinal = 0;
        for (segment, path) in files.segments.iter().enumerate() {
            let closed = std::mem::take(&mut reading.outline.trace.closed);
            match BlockReader::open(path) {
                Ok(mut reader) => {
                    let found = reader.header().ordinal;
                    if found != ordinal + 1 {
                        let problem = missing_segments(path, ordinal, found);
                        reading.outline.problems.push(problem);
                        reading.holes.open();
                    }
                    if found <= ordinal {
                        // A copy: its calls were read, or are missing where they belong.
                        reading.outline.trace.closed = closed;
                        continue;
                    }
                    ordinal = found;
                    reading.segment(segment, &mut reader);
                }
                Err(error) => {
                    ordinal += 1;
                    reading.outline.problems.push(unreadable(path, &error));
                    reading.holes.open();
                }
            }
        }
        reading.tail(tail, ordinal);
        reading.finish(shared)
    }

    /// The calls of these blocks (indices into `blocks`, ascending), returns joined as far as they follow closely; and
    /// what could not be decoded.
    pub fn decode(&self, wanted: &[usize]) -> (Vec<Call>, Vec<Problem>) {
        let (mut calls, mut problems) = (Vec::new(), Vec::new());
        let mut joiner = Joiner::default();
        let mut open: Option<(usize, BlockReader<std::fs::File>)> = None;
        let mut returns_left = 0;
        let first = wanted.first().copied().unwrap_or(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate().skip(first) {
            if block.holds_calls() {
                if wanted.binary_search(&index).is_err() || block.header().is_expired() {
                    continue;
                }
                returns_left = RETURNS_AHEAD;
            } else if returns_left == 0 {
                continue;
            } else {
                returns_left -= 1;
            }
            if open.as_ref().is_none_or(|(segment, _)| *segment != block.segment) {
                let Some(path) = self.files.get(block.segment) else { continue };
                match BlockReader::open(path) {
                    Ok(reader) => open = Some((block.segment, reader)),
                    Err(error) => {
                        problems.push(unreadable(path, &error));
                        continue;
                    }
                }
            }
            let Some((_, reader)) = &mut open else { continue };
            match block.block.decode(reader) {
                Ok(Decoded::Calls(mut more)) => calls.append(&mut more),
                Ok(Decoded::Returns(returns)) => {
                    for entry in &returns {
                        joiner.join(&mut calls, entry);
                    }
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        (calls, problems)
    }
}

/// Blocks of returns behind a decoded block of calls in which the returns of its last calls are looked for.
const RETURNS_AHEAD: usize = 2;

#[derive(Default)]
struct Reading {
    outline: StreamOutline,
    definitions: Definitions,
    frontier: Vec<Call>,
    frontier_points: Vec<ChainPoint>,
    /// Rows of the live tail below this are in blocks.
    rows: u64,
    holes: Holes,
}

impl Reading {
    fn segment(&mut self, segment: usize, reader: &mut BlockReader<std::fs::File>) {
        loop {
            let block = match reader.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(problem) => {
                    self.outline.problems.push(problem);
                    self.holes.open();
                    break;
                }
            };
            self.outline.problems.extend(self.holes.before(reader.path(), &block));
            match block.header().kind {
                BlockKind::CALLS => {
                    self.calls(&block);
                    self.list(segment, block);
                    continue;
                }
                BlockKind::RETURNS => {
                    self.list(segment, block);
                    continue;
                }
                _ => {}
            }
            match block.decode(reader) {
                Ok(Decoded::End(end)) => {
                    self.outline.trace.closed = end.last;
                    break;
                }
                Ok(Decoded::Frontier(calls)) => {
                    // One frontier may take several blocks.
                    let at = block.header().calls_before;
                    if self.outline.frontier_at != Some(at) {
                        self.frontier.clear();
                        self.outline.frontier_at = Some(at);
                    }
                    self.frontier.extend(calls);
                    self.frontier_points.clone_from(&block.digests().ends);
                }
                Ok(Decoded::TailRows(rows)) => self.rows = self.rows.max(rows.upto()),
                Ok(decoded) => self.take(decoded, block.header().is_repeated()),
                Err(problem) => {
                    self.outline.problems.push(problem);
                    self.holes.open();
                    break;
                }
            }
        }
        self.outline.problems.extend(reader.newer_problem());
    }

    fn calls(&mut self, block: &Block) {
        let header = *block.header();
        let count = u64::from(header.count);
        if header.is_expired() {
            self.holes.dropped(count);
            self.holes.reached(header.last_time);
        } else {
            self.outline.trace.gaps.extend(self.holes.bounded(header.first_time));
            self.holes.took(count, header.last_time);
        }
        self.outline.calls += count;
        let times = &mut self.outline.times;
        *times = (times.0.min(header.first_time), times.1.max(header.last_time));
        for point in block.digests().checkpoints.iter().chain(&block.digests().ends) {
            self.outline.chains.entry(point.comm).or_default().push(*point);
        }
        for point in &block.digests().p2p {
            self.outline.messages.insert(point.comm, *point);
        }
    }

    fn list(&mut self, segment: usize, block: Block) {
        let mut ends: Vec<(CommRef, u64)> = block.digests().ends.iter().map(|point| (point.comm, point.upto)).collect();
        ends.sort_unstable();
        self.outline.blocks.push(OutlineBlock { block: block.without_digests(), segment, ends });
    }

    /// `repeated`: earlier segments hold it as well, if they are there.
    fn take(&mut self, decoded: Decoded, repeated: bool) {
        let trace = &mut self.outline.trace;
        match decoded {
            Decoded::Ranks(defs) => defs.into_iter().for_each(|def| self.definitions.rank(def)),
            Decoded::Comms(defs) => defs.into_iter().for_each(|def| self.definitions.comm(def)),
            Decoded::Types(defs) => defs.into_iter().for_each(|def| self.definitions.derived(def)),
            Decoded::Sites(defs) => defs.into_iter().for_each(|def| self.definitions.site(def)),
            Decoded::Labels(defs) => defs.into_iter().for_each(|(id, text)| self.definitions.label(id, text)),
            Decoded::Clocks(clocks) if repeated => restore(clocks, &mut trace.clocks),
            Decoded::Attributes(attributes) if repeated => restore(attributes, &mut trace.attributes),
            Decoded::Steps(steps) if repeated => restore(steps, &mut trace.steps),
            Decoded::Clocks(mut clocks) => trace.clocks.append(&mut clocks),
            Decoded::Gaps(mut gaps) => trace.gaps.append(&mut gaps),
            Decoded::States(mut states) => trace.states.append(&mut states),
            Decoded::Threads(mut threads) => trace.threads.append(&mut threads),
            Decoded::Logs(mut logs) => trace.logs.append(&mut logs),
            Decoded::Attributes(mut attributes) => trace.attributes.append(&mut attributes),
            Decoded::Steps(mut steps) => trace.steps.append(&mut steps),
            _ => {}
        }
    }

    /// What no block holds.
    fn tail(&mut self, tail: Option<Result<TailSnapshot, Problem>>, ordinal: u32) {
        let part = match tail {
            Some(Ok(tail)) => tail.behind(self.rows, ordinal),
            Some(Err(problem)) => return self.outline.problems.push(problem),
            None => return,
        };
        self.outline.problems.extend(part.problems);
        if part.hole {
            self.holes.open();
        }
        if !part.records.is_empty() {
            self.outline.trace.closed = false;
        }
        let trace = &mut self.outline.trace;
        for record in part.records {
            match record {
                Record::Rank(def) => self.definitions.rank(def),
                Record::Comm(def) => self.definitions.comm(def),
                Record::Type(def) => self.definitions.derived(def),
                Record::Site(def) => self.definitions.site(def),
                Record::Label(id, text) => self.definitions.label(id, text),
                Record::Clock(clock) => trace.clocks.push(clock),
                Record::Gap(gap) => trace.gaps.push(gap),
                Record::State(state) => trace.states.push(state),
                Record::Thread(state) => trace.threads.push(state),
                Record::Log(line) => trace.logs.push(line),
                Record::Attribute(attribute) => trace.attributes.push(attribute),
                Record::Step(step) => trace.steps.push(step),
                call_or_return => self.outline.tail.push(call_or_return),
            }
        }
    }

    fn finish(mut self, shared: &SharedMembers) -> StreamOutline {
        let trace = &mut self.outline.trace;
        trace.gaps.extend(self.holes.rest());
        trace.ranks = self.definitions.ranks.into_records();
        trace.comms = self.definitions.comms.into_records();
        trace.types = self.definitions.types.into_records();
        trace.sites = self.definitions.sites.into_records();
        trace.labels = self.definitions.labels.into_records();
        shared.share_out(trace);
        trace.calls = self.frontier;
        for point in self.frontier_points {
            let points = self.outline.chains.entry(point.comm).or_default();
            // Behind a frontier calls may follow, and a checkpoint or an end may be one of its points.
            let at = points.partition_point(|held| (held.base, held.upto) < (point.base, point.upto));
            if points.get(at).is_none_or(|held| (held.base, held.upto) != (point.base, point.upto)) {
                points.insert(at, point);
            }
        }
        self.outline
    }
}

/// A stream of which parts were left out by whoever reads only what it wants.
impl StreamOutline {
    /// Whether calls stand behind the last frontier, or there is none.
    pub fn is_open_ended(&self) -> bool {
        let last = self.blocks.iter().rev().find(|block| block.holds_calls());
        let end = last.map_or(0, |block| block.header().calls_before.saturating_add(u64::from(block.header().count)));
        self.calls > 0 && self.frontier_at.is_none_or(|at| at < end)
    }

    /// Whether calls were dropped by retention: of those, only digests are left.
    pub fn has_dropped_calls(&self) -> bool {
        self.blocks.iter().any(|block| block.holds_calls() && block.header().is_expired())
    }

    /// Calls that decoding all of it would give, those in the live tail included.
    pub fn decodable_calls(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.holds_calls() && !block.header().is_expired());
        blocks.map(|block| u64::from(block.header().count)).fold(self.tail.len() as u64, u64::saturating_add)
    }

    /// Whether a file could not be read to its end.
    pub fn is_damaged(&self) -> bool {
        self.problems.iter().any(|problem| problem.kind != ProblemKind::Newer)
    }
}
