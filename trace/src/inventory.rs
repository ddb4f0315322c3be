//! What a trace holds, counted: for whoever wants to know before reading it, or why it says so little.
//!
//! Headers and digests tell most of it; calls are decoded only for what they alone know, one block at a time, and only
//! where there are not too many.

mod comms;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustc_hash::FxHashSet;

use crate::block::BlockKind;
use crate::call::{Call, SiteRef};
use crate::comm::CommIdentity;
use crate::error::Problem;
use crate::evidence::{ClockSnapshot, GapCause, Life};
use crate::job::JobDir;
use crate::job_info::JobInfo;
use crate::op::Op;
use crate::outline::{SharedMembers, StreamOutline};
use crate::payload::Decoded;
use crate::rankset::RankSet;
use crate::reader::BlockReader;
use crate::stream::ProcessKey;
use crate::stream_files::StreamFiles;
use crate::tail::Tail;

/// Gaps of one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GapCount {
    /// How many gaps.
    pub gaps: u64,
    /// Calls that are missing in those that say how many.
    pub calls: u64,
    /// Gaps that do not say how many.
    pub uncounted: u64,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessCount {
    /// Which.
    pub key: ProcessKey,
    /// The latest rank it plays.
    pub rank: Option<u32>,
    /// Segments.
    pub segments: u64,
    /// The run of the job that it belongs to, from 1: a directory may hold several, one after the other.
    pub run: u32,
    /// Bytes of its files.
    pub bytes: u64,
    /// Of these, bytes of its live tail: room that was made beforehand, however much of it is used.
    pub tail_bytes: u64,
    /// Calls in blocks, those without payload included.
    pub calls: u64,
    /// Of these, calls whose payload was dropped.
    pub expired: u64,
    /// Rows that only its live tail holds; a call takes one or two. `None`: no live tail.
    pub tail_rows: Option<u64>,
    /// Communicators.
    pub comms: u64,
    /// Gaps by cause.
    pub gaps: BTreeMap<GapCause, GapCount>,
    /// How it stood when last seen.
    pub life: Option<Life>,
    /// Whether its writer closed it.
    pub closed: bool,
}

/// One communicator, over all processes of a run that have a definition of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommCount {
    /// Name.
    pub name: String,
    /// Identity, if known.
    pub identity: CommIdentity,
    /// Library.
    pub library: String,
    /// Members it has, if known.
    pub size: Option<u32>,
    /// The run, as [`ProcessCount::run`].
    pub run: u32,
    /// Ranks with collectives on it (processes, where the rank is not known).
    pub members: u64,
    /// Least and most collectives that one of them entered, by its digests.
    pub collectives: (u64, u64),
}

/// What only decoding tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallCount {
    /// Calls decoded.
    pub calls: u64,
    /// Calls by operation.
    pub ops: BTreeMap<Op, u64>,
    /// Calls whose return was seen.
    pub returned: u64,
    /// Calls whose call site is known.
    pub with_site: u64,
    /// Threads that made calls.
    pub threads: u64,
}

/// Clocks of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockCount {
    /// Snapshots.
    pub snapshots: u64,
    /// Processes.
    pub processes: u64,
}

/// What a trace holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// What the recorders said of the job.
    pub infos: Vec<JobInfo>,
    /// Job ids in the segments.
    pub job_ids: BTreeSet<String>,
    /// Trace formats of the segments, major and minor.
    pub formats: BTreeSet<(u16, u16)>,
    /// Ranks.
    pub ranks: RankSet,
    /// Ranks of the job, if known.
    pub world: Option<u32>,
    /// Processes, in order.
    pub processes: Vec<ProcessCount>,
    /// Communicators, the largest first.
    pub comms: Vec<CommCount>,
    /// Calls, if there were not too many to be decoded.
    pub decoded: Option<CallCount>,
    /// Hosts and their clocks.
    pub hosts: BTreeMap<String, ClockCount>,
    /// First entry and last entry or return of a call, ns since 1970; `None` without calls or clocks.
    pub span: Option<(u64, u64)>,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

impl Inventory {
    /// Counts what a job's files hold. Calls are decoded if there are at most so many.
    pub fn take(job: &JobDir, decode_up_to: u64) -> Inventory {
        let mut inventory = Inventory {
            infos: job.infos().to_vec(),
            job_ids: job.job_ids().clone(),
            problems: job.problems().to_vec(),
            world: job.infos().iter().filter_map(|info| info.world).max(),
            ..Inventory::default()
        };
        let shared = SharedMembers::default();
        let mut seen = Vec::with_capacity(job.streams().len());
        for stream in job.streams() {
            let outline = StreamOutline::read(stream, &shared);
            seen.push(inventory.process(stream, &outline));
            inventory.problems.extend(outline.problems);
        }
        let runs = comms::runs(&seen);
        inventory.processes.iter_mut().zip(&runs).for_each(|(process, &run)| process.run = run);
        inventory.comms = comms::count(seen, &runs);
        if inventory.calls() <= decode_up_to {
            let mut counted = CallCount::default();
            job.streams().iter().for_each(|stream| count_calls(stream, &mut counted));
            inventory.decoded = Some(counted);
        }
        inventory
    }

    /// Calls in blocks, those without payload included.
    pub fn calls(&self) -> u64 {
        self.processes.iter().map(|process| process.calls).sum()
    }

    /// Calls whose payload was dropped.
    pub fn expired(&self) -> u64 {
        self.processes.iter().map(|process| process.expired).sum()
    }

    /// Bytes of all files of streams.
    pub fn bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.bytes).sum()
    }

    /// Of these, bytes of live tails.
    pub fn tail_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.tail_bytes).sum()
    }

    /// Runs of the job that the trace holds, one after the other.
    pub fn runs(&self) -> u32 {
        self.processes.iter().map(|process| process.run).max().unwrap_or(0)
    }

    /// Gaps of all processes by cause.
    pub fn gaps(&self) -> BTreeMap<GapCause, GapCount> {
        let mut sum: BTreeMap<GapCause, GapCount> = BTreeMap::new();
        for (cause, count) in self.processes.iter().flat_map(|process| &process.gaps) {
            let held = sum.entry(*cause).or_default();
            held.gaps += count.gaps;
            held.calls = held.calls.saturating_add(count.calls);
            held.uncounted += count.uncounted;
        }
        sum
    }

    /// Adds a stream; gives what it says of communicators.
    fn process(&mut self, stream: &StreamFiles, outline: &StreamOutline) -> comms::Seen {
        let trace = &outline.trace;
        self.ranks = trace.ranks.iter().map(|def| def.rank).chain(self.ranks.iter()).collect();
        self.world = self.world.max(trace.ranks.iter().filter_map(|def| def.world).max());
        let mut gaps: BTreeMap<GapCause, GapCount> = BTreeMap::new();
        for gap in trace.gaps.iter().filter(|gap| gap.events != Some(0)) {
            let count = gaps.entry(gap.cause).or_default();
            count.gaps += 1;
            count.calls = count.calls.saturating_add(gap.events.unwrap_or(0));
            count.uncounted += u64::from(gap.events.is_none());
        }
        let held = |expired: bool| -> u64 {
            let blocks = outline.blocks.iter().filter(|block| block.holds_calls());
            let blocks = blocks.filter(|block| !expired || block.header().is_expired());
            blocks.map(|block| u64::from(block.header().count)).sum()
        };
        let sealed: u64 = stream.segments.iter().map(|path| length(path)).sum();
        let tail_bytes = stream.tail.as_deref().map_or(0, length);
        let tail = stream.tail.as_deref().and_then(|path| Tail::open(path).ok()?.state().ok());
        self.processes.push(ProcessCount {
            key: stream.key.clone(),
            rank: trace.ranks.last().map(|def| def.rank),
            segments: stream.segments.len() as u64,
            run: 1,
            bytes: sealed.saturating_add(tail_bytes),
            tail_bytes,
            calls: held(false),
            expired: held(true),
            tail_rows: tail.map(|state| state.committed - state.sealed),
            comms: trace.comms.len() as u64,
            gaps,
            life: trace.states.last().map(|state| state.life.clone()),
            closed: trace.closed,
        });
        let first = stream.segments.first().and_then(|path| BlockReader::open(path).ok());
        let first = first.as_ref().map(BlockReader::header);
        self.formats.extend(first.map(|header| (crate::header::FORMAT_MAJOR, header.minor)));
        let clock = trace.clocks.last().copied().or(first.map(|header| header.clock));
        let host = self.hosts.entry(stream.key.host.clone()).or_default();
        host.snapshots += trace.clocks.len() as u64;
        host.processes += 1;
        if let (Some(clock), true) = (clock, outline.times.0 <= outline.times.1) {
            let of = |time: u64| realtime(clock, time);
            let (from, to) = self.span.unwrap_or((u64::MAX, 0));
            self.span = Some((from.min(of(outline.times.0)), to.max(of(outline.times.1))));
        }
        comms::Seen::of(outline, |time| clock.map_or(time, |clock| realtime(clock, time)))
    }
}

/// A time of a stream as time since 1970.
fn realtime(clock: ClockSnapshot, time: u64) -> u64 {
    clock.realtime.wrapping_sub(clock.monotonic).wrapping_add(time)
}

fn length(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |found| found.len())
}

/// Decodes a stream's calls block by block.
fn count_calls(stream: &StreamFiles, counted: &mut CallCount) {
    let mut threads: FxHashSet<u32> = FxHashSet::default();
    for path in &stream.segments {
        let Ok(mut reader) = BlockReader::open(path) else { continue };
        // What cannot be read is a problem of the outline.
        while let Ok(Some(block)) = reader.next_block() {
            if !matches!(block.header().kind, BlockKind::CALLS | BlockKind::RETURNS) {
                continue;
            }
            match block.decode(&mut reader) {
                Ok(Decoded::Calls(calls)) => calls.iter().for_each(|call| count_call(call, counted, &mut threads)),
                Ok(Decoded::Returns(returns)) => counted.returned += returns.len() as u64,
                _ => {}
            }
        }
    }
    counted.threads += threads.len() as u64;
    // Returns of calls whose block was dropped.
    counted.returned = counted.returned.min(counted.calls);
}

fn count_call(call: &Call, counted: &mut CallCount, threads: &mut FxHashSet<u32>) {
    counted.calls += 1;
    *counted.ops.entry(call.op).or_default() += 1;
    counted.returned += u64::from(call.exit.is_some());
    counted.with_site += u64::from(call.site != SiteRef::default());
    threads.insert(call.thread);
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
