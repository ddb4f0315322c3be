//! One rank's stream, made call by call without holding any.

use super::spec::{Grid, LateAttach, Lost, STEP_CALLS};
use super::template::Turn;
use crate::call::{Call, Completion, Frame, FrameKind, SiteDef, SiteRef};
use crate::comm::{CommDef, CommIdentity, Provenance, RankDef, RankSource};
use crate::datatype::DType;
use crate::evidence::{ClockSnapshot, Gap, GapCause, Life, ProcessState};
use crate::op::Op;
use crate::stream::Record;
use crate::testgen::call::LevelName;
use crate::testgen::layout::{GroupKind, SITES, mix};
use crate::testgen::records::WALL;

/// Time of the first call, ns.
const START: u64 = 1_000_000_000;
/// From the last member's latest planned entry to a blocking call's completion, ns.
const LATENCY: u64 = 60_000;
/// From a call's completion to the next one's first possible entry, ns.
const PAUSE: u64 = 50_000;
/// From entry to return of a call that does not block, ns; and the noise of all returns.
const RETURN: u64 = 3_000;
const RETURN_NOISE: u64 = 2_000;
/// How long after everything stood still the recorder looked, ns.
const PATIENCE: u64 = 60_000_000_000;
/// Handle of the first device stream.
const STREAM: u64 = 0x7f12_3400_0000;

impl Grid {
    /// The rank's calls that were recorded, in order.
    pub fn calls(&self, rank: u32) -> Calls<'_> {
        Calls {
            grid: self,
            rank,
            at: 0,
            end: self.stop(rank).map_or(self.program_len(rank), |stop| stop.entered),
            seq: [0; 4],
            thread_seq: [0; 2],
            late: self.spec().late.iter().copied().find(|late| late.rank == rank),
            attached: false,
            lost: self.spec().lost.iter().copied().filter(|lost| lost.rank == rank).collect::<Vec<_>>().into_iter(),
            losing: None,
            gaps: Vec::new(),
            last_enter: 0,
        }
    }

    /// Gives the rank's stream to `sink`: definitions, gaps, calls, how it ended.
    pub fn records<E>(&self, rank: u32, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        self.beginning(rank, sink)?;
        let mut calls = self.calls(rank);
        while let Some(call) = calls.next() {
            for gap in calls.take_gaps() {
                sink(Record::Gap(gap))?;
            }
            sink(Record::Call(call))?;
        }
        for gap in calls.take_gaps() {
            sink(Record::Gap(gap))?;
        }
        self.ending(rank, sink)
    }

    pub(super) fn beginning<E>(&self, rank: u32, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let (world, source) = (Some(self.world()), RankSource::Declared);
        let local_rank = Some(rank % self.spec().per_node);
        sink(Record::Rank(RankDef { rank, world, local_rank, attempt: 0, source }))?;
        sink(Record::Clock(self.clock(rank)))?;
        for (index, frames) in SITES.iter().enumerate() {
            let frame = |&(function, file, line): &(&str, &str, u32)| Frame {
                kind: FrameKind::Python,
                function: function.to_owned(),
                file: file.to_owned(),
                line,
                ..Frame::default()
            };
            let id = SiteRef(index as u32 + 1);
            sink(Record::Site(SiteDef { id, frames: frames.iter().map(frame).collect() }))?;
        }
        GroupKind::ALL.into_iter().try_for_each(|kind| sink(Record::Comm(self.definition(kind, rank))))
    }

    pub(super) fn ending<E>(&self, rank: u32, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let end = self.end();
        let stopped = self.stop(rank).filter(|stop| stop.pending);
        let life = if stopped.is_some() { Life::Waiting } else { Life::Exited(0) };
        sink(Record::State(ProcessState { at: end, life }))?;
        sink(Record::Clock(clocks(end)))
    }

    /// The clocks when the rank's recording began.
    pub(super) fn clock(&self, rank: u32) -> ClockSnapshot {
        let late = self.spec().late.iter().find(|late| late.rank == rank);
        clocks(late.map_or(START, |late| self.planned(late.first) - PAUSE / 2))
    }

    /// From one call to the next, ns: every member has left a call before any enters the next.
    fn pitch(&self) -> u64 {
        self.spec().jitter + LATENCY + PAUSE
    }

    /// First possible entry of the call at a place of the program, ns.
    fn planned(&self, at: u64) -> u64 {
        START + PAUSE + at * self.pitch()
    }

    /// When the job was looked at, ns.
    fn end(&self) -> u64 {
        match self.spec().plant.filter(|_| self.hangs()) {
            Some(plant) => self.planned(plant.call + 3 * STEP_CALLS) + PATIENCE,
            None => self.planned(self.spec().calls + 1),
        }
    }

    fn definition(&self, kind: GroupKind, rank: u32) -> CommDef {
        let level = if self.spec().blocking { LevelName::Mpi } else { LevelName::C10d };
        let name = self.shape().name(kind, rank);
        let desc = match kind {
            GroupKind::World => "",
            GroupKind::Tensor => "tensor_parallel",
            GroupKind::Data => "data_parallel",
            GroupKind::Pipeline => "pipeline",
        };
        CommDef {
            id: self.comm(kind),
            identity: CommIdentity::root(level.name(), name.as_bytes()),
            provenance: Provenance::Declared,
            name,
            desc: desc.to_owned(),
            library: level.name().to_owned(),
            level: level.level(),
            semantics: level.semantics(self.spec().blocking),
            size: Some(self.shape().size(kind)),
            my_rank: Some(self.shape().local(kind, rank)),
            members: self.shape().members(kind, rank),
            ..CommDef::default()
        }
    }
}

pub(super) fn clocks(time: u64) -> ClockSnapshot {
    ClockSnapshot { monotonic: time, boottime: time, realtime: WALL.saturating_add(time) }
}

/// The calls of one rank, made one by one. What the recorder missed is in [`Calls::take_gaps`] once the call behind it
/// was made.
#[derive(Debug)]
pub struct Calls<'a> {
    grid: &'a Grid,
    rank: u32,
    /// Next place in the program.
    at: u64,
    end: u64,
    /// By [`GroupKind`].
    seq: [u64; 4],
    thread_seq: [u64; 2],
    late: Option<LateAttach>,
    attached: bool,
    lost: std::vec::IntoIter<Lost>,
    losing: Option<Lost>,
    gaps: Vec<Gap>,
    last_enter: u64,
}

impl Iterator for Calls<'_> {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        while self.at < self.end {
            let (planned, turn) = self.grid.program(self.rank, self.at);
            let at = self.at;
            self.at += 1;
            let seq = self.seq[turn.kind as usize];
            self.seq[turn.kind as usize] += 1;
            if self.late.is_some_and(|late| at < late.first) {
                continue;
            }
            self.attach();
            let thread_seq = self.thread_seq[turn.thread];
            self.thread_seq[turn.thread] += 1;
            if self.loses(at) {
                self.lose(turn.thread, thread_seq);
                continue;
            }
            return Some(self.make(at, planned, &turn, seq, thread_seq));
        }
        self.attach();
        for gap in &mut self.gaps {
            gap.before = u64::MAX;
        }
        None
    }
}

impl Calls<'_> {
    /// What is missing before the call that was made last, or before the end; each is given once.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Notes the calls before a late recorder, once.
    fn attach(&mut self) {
        if self.late.is_some() && !std::mem::replace(&mut self.attached, true) {
            self.gaps.push(Gap { cause: GapCause::LateAttach, ..Gap::default() });
        }
    }

    fn loses(&mut self, at: u64) -> bool {
        if self.losing.is_none_or(|lost| at >= lost.first.saturating_add(lost.calls)) {
            self.losing = None;
            if let Some(next) = self.lost.as_slice().first()
                && at >= next.first
            {
                self.losing = self.lost.next();
            }
        }
        self.losing.is_some_and(|lost| at < lost.first.saturating_add(lost.calls))
    }

    /// Counts a lost call in its thread's gap.
    fn lose(&mut self, thread: usize, thread_seq: u64) {
        let tid = tid(self.rank, thread);
        if let Some(gap) = self.gaps.iter_mut().find(|gap| gap.thread == tid) {
            gap.events = gap.events.map(|events| events + 1);
            return;
        }
        self.gaps.push(Gap {
            cause: GapCause::RingFull,
            thread: tid,
            first_thread_seq: thread_seq,
            events: Some(1),
            after: self.last_enter,
            before: 0,
        });
    }

    fn make(&mut self, at: u64, planned: u64, turn: &Turn, seq: u64, thread_seq: u64) -> Call {
        let (grid, spec) = (self.grid, self.grid.spec());
        let noise = mix(&[spec.seed ^ (u64::from(self.rank) << 40), at]);
        let mut enter = grid.planned(planned) + (noise >> 32) % (spec.jitter + 1);
        if turn.between {
            enter = grid.planned(planned) - PAUSE / 2;
        }
        let stopped = at + 1 == self.end && grid.stop(self.rank).is_some_and(|stop| stop.pending);
        let done = if spec.blocking { grid.planned(planned) + spec.jitter + LATENCY } else { enter + RETURN };
        let exit = (!stopped).then_some(done + (noise & 0xffff) % RETURN_NOISE);
        for gap in &mut self.gaps {
            gap.before = enter;
        }
        self.last_enter = enter;
        let (sends, recvs) = if turn.vector { self.vectors(turn, planned) } else { (Vec::new(), Vec::new()) };
        let count = if turn.vector { sends.iter().sum() } else { turn.count };
        Call {
            op: turn.op,
            comm: grid.comm(turn.kind),
            seq: self.late.is_none_or(|late| late.positions).then_some(seq),
            count: (turn.op != Op::Barrier).then_some(count),
            dtype: turn.dtype.map_or(DType::None, DType::Basic),
            redop: turn.redop,
            root: turn.root,
            sends,
            recvs,
            thread: tid(self.rank, turn.thread),
            thread_seq,
            stream: if spec.blocking { 0 } else { STREAM + ((turn.kind as u64) << 12) },
            enter,
            exit,
            completion: if stopped { Completion::Pending } else { Completion::Unknown },
            result: exit.map(|_| 0),
            site: SiteRef(turn.site + 1),
            ..Call::default()
        }
    }

    /// What this member sends to and expects from each other one.
    fn vectors(&self, turn: &Turn, planned: u64) -> (Vec<u64>, Vec<u64>) {
        let (shape, seed) = (self.grid.shape(), self.grid.spec().seed);
        let (me, group) = (shape.local(turn.kind, self.rank), shape.lowest(turn.kind, self.rank));
        let elements = |from: u32, to: u32| {
            mix(&[seed, planned, (u64::from(group) << 40) ^ (u64::from(from) << 20) ^ u64::from(to)]) % 512
        };
        let members = 0..shape.size(turn.kind);
        let (mut sends, recvs): (Vec<u64>, Vec<u64>) =
            members.map(|other| (elements(me, other), elements(other, me))).unzip();
        if let Some(first) = sends.first_mut() {
            *first += turn.extra_split;
        }
        (sends, recvs)
    }
}

/// Kernel id of a rank's thread.
fn tid(rank: u32, thread: usize) -> u32 {
    1000 + rank + ((thread as u32) << 21)
}
