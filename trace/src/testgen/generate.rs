//! Made-up training jobs of any size from a seed, healthy or with one planted fault, and the right answer apart from
//! them.
//!
//! Each rank's calls are made one by one, without holding them or those of other ranks.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::call::LevelName;
use super::emit::{self, EmitError};
use super::hang::{self, Played, Stop};
use super::layout::{FAULT_SITE, PAUSE, SITES, Slot, mix, program};
pub use super::layout::{GroupKind, JobSpec};
use super::records::WALL;
use crate::call::{Call, CallFlags, Completion, Frame, FrameKind, SiteDef, SiteRef};
use crate::comm::{CommDef, CommIdentity, CommRef, Provenance, RankDef, RankSource};
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::evidence::{ClockSnapshot, EndedBy, Life, ProcessState};
use crate::job::write_job_info;
use crate::op::Op;
use crate::rankset::RankSet;
use crate::stream::{ProcessKey, ProcessTrace, Record};
use crate::writer::{StreamWriter, WriterOptions};

/// Time of the first step, ns.
const START: u64 = 1_000_000_000;
/// From entry to return of a call that does not block, ns.
const RETURN: u64 = 10_000;
/// How long after everything stood still the recorder looked, ns.
const PATIENCE: u64 = 60_000_000_000;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The rank makes another call instead.
    OtherOp,
    /// It passes one element more. The job goes on with wrong numbers.
    OtherCount,
    /// It passes another type. The job goes on with wrong numbers.
    OtherDtype,
    /// It asks for the maximum instead. The job goes on with wrong numbers.
    OtherReduction,
    /// It leaves the call out.
    Missing,
    /// It makes a call more, before that one.
    Extra,
    /// It is killed before the call.
    Killed,
    /// It leaves the loop before the step of the call, with code 0.
    LeavesEarly,
    /// It comes to the call late by so many ns; everything completes.
    Late(u64),
}

impl FaultKind {
    /// One of each.
    pub const ALL: [FaultKind; 9] = [
        FaultKind::OtherOp,
        FaultKind::OtherCount,
        FaultKind::OtherDtype,
        FaultKind::OtherReduction,
        FaultKind::Missing,
        FaultKind::Extra,
        FaultKind::Killed,
        FaultKind::LeavesEarly,
        FaultKind::Late(95_000_000_000),
    ];

    /// Whether the job goes on as if nothing was.
    pub fn is_silent(self) -> bool {
        matches!(self, FaultKind::OtherCount | FaultKind::OtherDtype | FaultKind::OtherReduction | FaultKind::Late(_))
    }
}

/// One planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// On which rank.
    pub rank: u32,
    /// On which of its groups; not the pipeline.
    pub group: GroupKind,
    /// At which position of that group.
    pub position: u64,
}

/// What a right verdict on the job contains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Truth {
    /// Class, as scenario files name it.
    pub class: &'static str,
    /// What differs, for a parameter mismatch.
    pub what: Option<&'static str>,
    /// Name of the fault's group.
    pub group: String,
    /// First position on that group that shows it.
    pub first_visible: Option<u64>,
    /// Where it began: first and last position that explain the streams equally well (a run of equal calls).
    pub first_divergence: Option<(u64, u64)>,
    /// The faulty rank, if a majority is against it.
    pub suspects: RankSet,
    /// A rank that was killed.
    pub failed: RankSet,
}

/// A job that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The shape is of no use.
    #[error("a made-up job needs 2 to {most} ranks, and at least one step, micro-batch, layer and bucket")]
    Shape {
        /// Most ranks.
        most: u32,
    },
    /// There is no such call.
    #[error("rank {rank} has no call at position {position} of its {group:?} group that this fault could change")]
    NoCall {
        /// The fault's rank.
        rank: u32,
        /// The fault's group.
        group: GroupKind,
        /// The fault's position.
        position: u64,
    },
}

/// Most ranks of a made-up job.
const MAX_RANKS: u32 = 1 << 20;

/// A fault and the place of its call in its rank's program.
#[derive(Debug, Clone, Copy)]
struct Planted {
    fault: Fault,
    step: u64,
    slot: usize,
}

/// A made-up job.
#[derive(Debug, Clone)]
pub struct Job {
    spec: JobSpec,
    /// By stage.
    programs: Vec<Vec<Slot>>,
    planted: Option<Planted>,
    /// Where ranks stop in the window that begins with the fault's step; empty if the job runs to its end.
    stops: Vec<Stop>,
    truth: Truth,
}

impl Job {
    /// Lays out a job.
    pub fn new(spec: JobSpec, fault: Option<Fault>) -> Result<Job, SpecError> {
        let world = u64::from(spec.tensor) * u64::from(spec.pipeline) * u64::from(spec.data);
        let least = spec.steps.min(u64::from(spec.micro_batches.min(spec.layers).min(spec.buckets)));
        let sane = spec.steps <= 1 << 32 && spec.jitter <= 1_000_000_000;
        let small = spec.micro_batches <= 1024 && spec.layers <= 1024 && spec.buckets <= 1024;
        if !(2..=u64::from(MAX_RANKS)).contains(&world) || least == 0 || !sane || !small {
            return Err(SpecError::Shape { most: MAX_RANKS });
        }
        let programs = (0..spec.pipeline).map(|stage| program(&spec, stage)).collect();
        let truth = Truth { class: "clean", ..Truth::default() };
        let mut job = Job { spec, programs, planted: None, stops: Vec::new(), truth };
        if let Some(fault) = fault {
            job.plant(fault)?;
        }
        Ok(job)
    }

    /// The job's shape.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// What a right verdict contains. Nothing of it is in the streams.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Positions that a rank's group has, if nothing goes wrong.
    pub fn positions(&self, group: GroupKind, rank: u32) -> u64 {
        (0..self.spec.steps).map(|step| self.line(rank, step, group).count() as u64).sum()
    }

    fn stage(&self, rank: u32) -> &[Slot] {
        self.programs.get(self.spec.place(rank).2 as usize).map_or(&[], Vec::as_slice)
    }

    /// Slots of a healthy step.
    fn healthy(&self, rank: u32, step: u64) -> impl Iterator<Item = (usize, &Slot)> {
        let validates = self.spec.validates(step);
        self.stage(rank).iter().enumerate().filter(move |(_, slot)| validates || !slot.validation)
    }

    /// Slots of a healthy step on one group.
    fn line(&self, rank: u32, step: u64, group: GroupKind) -> impl Iterator<Item = (usize, &Slot)> {
        self.healthy(rank, step).filter(move |(_, slot)| slot.kind == group)
    }

    fn plant(&mut self, fault: Fault) -> Result<(), SpecError> {
        let Fault { rank, group, position, kind } = fault;
        let none = SpecError::NoCall { rank, group, position };
        if rank >= self.spec.world() || group == GroupKind::Pipeline || self.spec.size(group) < 2 {
            return Err(none);
        }
        let mut before = 0;
        let mut place = None;
        for step in 0..self.spec.steps {
            let count = self.line(rank, step, group).count() as u64;
            if position < before + count {
                place = self.line(rank, step, group).nth((position - before) as usize).map(|(slot, _)| (step, slot));
                break;
            }
            before += count;
        }
        let Some((step, slot)) = place else { return Err(none) };
        let original = self.stage(rank).get(slot).cloned();
        let changes = original.is_some_and(|slot| altered(&slot, kind).is_none_or(|changed| changed != slot));
        if !changes {
            return Err(none);
        }
        self.planted = Some(Planted { fault, step, slot });
        let mut truth = Truth { class: class(kind), group: self.spec.name(group, rank), ..Truth::default() };
        truth.what = match kind {
            FaultKind::OtherCount => Some("count"),
            FaultKind::OtherDtype => Some("dtype"),
            FaultKind::OtherReduction => Some("redop"),
            _ => None,
        };
        if kind.is_silent() {
            if truth.what.is_some() {
                truth.first_visible = Some(position);
                truth.first_divergence = Some((position, position));
            }
        } else {
            let window: Vec<Vec<Slot>> = (0..self.spec.world()).map(|rank| self.window(rank, step)).collect();
            let Played { stops, stuck } = hang::play(&self.spec, &window);
            self.stops = stops;
            let mine = (group, self.spec.lowest(group, rank));
            truth.first_visible = stuck.iter().find(|stuck| (stuck.0, stuck.1) == mine).map(|stuck| before + stuck.2);
            truth.first_divergence = match kind {
                FaultKind::Missing => Some(self.run_around(rank, step, slot, position)),
                FaultKind::OtherOp | FaultKind::Extra => Some((position, position)),
                _ => None,
            };
        }
        if truth.class != "clean"
            && (self.spec.size(group) > 2 || matches!(kind, FaultKind::Killed | FaultKind::LeavesEarly))
        {
            truth.suspects.insert(rank);
        }
        if kind == FaultKind::Killed {
            truth.failed.insert(rank);
        }
        self.truth = truth;
        Ok(())
    }

    /// The positions around a missing call whose calls are equal to it, call site included: which of them is missing
    /// cannot be told.
    fn run_around(&self, rank: u32, step: u64, slot: usize, position: u64) -> (u64, u64) {
        let Some(group) = self.planted.map(|planted| planted.fault.group) else { return (position, position) };
        let line: Vec<(usize, &Slot)> = self.line(rank, step, group).collect();
        let Some(at) = line.iter().position(|(index, _)| *index == slot) else { return (position, position) };
        let same = |other: &&(usize, &Slot)| {
            let (a, b) = (line[at].1, other.1);
            (a.op, a.count, a.dtype, a.redop, a.root, a.site) == (b.op, b.count, b.dtype, b.redop, b.root, b.site)
        };
        let before = line[..at].iter().rev().take_while(same).count() as u64;
        let after = line[at + 1..].iter().take_while(same).count() as u64;
        (position - before, position + after)
    }

    /// What the rank would do in a step, the fault included; the index is that of the stage's slot.
    fn slots(&self, rank: u32, step: u64) -> Vec<(usize, Slot)> {
        let here = self.planted.filter(|planted| planted.fault.rank == rank);
        let gone = |planted: Planted, at: usize| match planted.fault.kind {
            FaultKind::Killed => (step, at) >= (planted.step, planted.slot),
            FaultKind::LeavesEarly => step >= planted.step,
            _ => false,
        };
        let mut slots = Vec::new();
        for (index, slot) in self.healthy(rank, step) {
            let Some(planted) = here else {
                slots.push((index, slot.clone()));
                continue;
            };
            if gone(planted, index) {
                break;
            }
            if (step, index) != (planted.step, planted.slot) {
                slots.push((index, slot.clone()));
                continue;
            }
            match planted.fault.kind {
                FaultKind::Missing => {}
                FaultKind::Extra => {
                    slots.extend(altered(slot, FaultKind::Extra).map(|extra| (index, extra)));
                    slots.push((index, slot.clone()));
                }
                kind => slots.push((index, altered(slot, kind).unwrap_or_else(|| slot.clone()))),
            }
        }
        slots
    }

    /// What the rank would do in the fault's step and the one after.
    fn window(&self, rank: u32, step: u64) -> Vec<Slot> {
        let steps = step..(step + 2).min(self.spec.steps);
        steps.flat_map(|step| self.slots(rank, step)).map(|(_, slot)| slot).collect()
    }

    /// The rank's calls, in order.
    pub fn calls(&self, rank: u32) -> Calls<'_> {
        Calls {
            job: self,
            rank,
            step: 0,
            slots: Vec::new().into_iter(),
            window: 0,
            seq: FxHashMap::default(),
            thread_seq: 0,
        }
    }

    /// Position of a kind among a rank's communicators.
    pub(super) fn comm(&self, kind: GroupKind) -> CommRef {
        CommRef(1 + kind as u32)
    }

    fn level(&self) -> LevelName {
        if self.spec.blocking { LevelName::Mpi } else { LevelName::C10d }
    }

    /// The key of a rank's process.
    pub fn key(&self, rank: u32) -> ProcessKey {
        ProcessKey { host: format!("n{}", rank / 8), pid: 1000 + rank, start_time: 1 }
    }

    /// When the job was looked at, ns.
    fn end(&self) -> u64 {
        let late = match self.planted.map(|planted| planted.fault.kind) {
            Some(FaultKind::Late(time)) => time,
            _ => 0,
        };
        let steps = match self.planted {
            Some(planted) if !self.stops.is_empty() => planted.step + 2,
            _ => self.spec.steps,
        };
        let end = START.saturating_add(steps.saturating_mul(self.spec.step_time())).saturating_add(late);
        if self.stops.is_empty() { end } else { end.saturating_add(PATIENCE) }
    }

    /// Gives the rank's stream to `sink`.
    pub fn records<E>(&self, rank: u32, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let local_rank = Some(rank % 8);
        let (world, source) = (Some(self.spec.world()), RankSource::Declared);
        sink(Record::Rank(RankDef { rank, world, local_rank, attempt: 0, source }))?;
        sink(Record::Clock(clocks(START)))?;
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
        for kind in GroupKind::ALL {
            if self.spec.size(kind) > 1 {
                sink(Record::Comm(self.definition(kind, rank)))?;
            }
        }
        self.calls(rank).try_for_each(|call| sink(Record::Call(call)))?;
        let end = self.end();
        sink(Record::State(self.state(rank, end)))?;
        sink(Record::Clock(clocks(end)))
    }

    fn definition(&self, kind: GroupKind, rank: u32) -> CommDef {
        let (name, level) = (self.spec.name(kind, rank), self.level());
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
            semantics: level.semantics(self.spec.blocking),
            size: Some(self.spec.size(kind)),
            my_rank: Some(self.spec.local(kind, rank)),
            members: self.spec.members(kind, rank),
            ..CommDef::default()
        }
    }

    fn state(&self, rank: u32, end: u64) -> ProcessState {
        let fault = self.planted.filter(|planted| planted.fault.rank == rank);
        let pending = self.stops.get(rank as usize).is_some_and(|stop| stop.pending);
        if pending {
            return ProcessState { at: end, life: Life::Waiting };
        }
        // Killed or gone right after its last call, before the others began to wait for it.
        let last = || self.calls(rank).last().map_or(START, |call| call.enter.max(call.exit.unwrap_or(0)));
        match fault {
            Some(Planted { fault: Fault { kind: FaultKind::Killed, .. }, .. }) => {
                ProcessState { at: last() + RETURN, life: Life::Signaled { signal: 9, by: EndedBy::OomKiller } }
            }
            _ if !self.stops.is_empty() => ProcessState { at: last() + RETURN, life: Life::Exited(0) },
            _ => ProcessState { at: end, life: Life::Exited(0) },
        }
    }

    /// The rank's stream in memory.
    pub fn trace(&self, rank: u32) -> ProcessTrace {
        let mut trace = ProcessTrace { key: self.key(rank), closed: true, ..ProcessTrace::default() };
        let Ok(()) = self.records::<std::convert::Infallible>(rank, &mut |record| {
            emit::add(&mut trace, record);
            Ok(())
        });
        trace
    }

    /// Writes the job's trace into `dir`, which is made if it is not there.
    pub fn write(&self, dir: &Path) -> Result<(), EmitError> {
        emit::make_dir(dir)?;
        let options = WriterOptions { job_id: format!("made-up-{}", self.spec.seed), ..WriterOptions::default() };
        for rank in 0..self.spec.world() {
            let key = self.key(rank);
            if rank % 8 == 0 {
                write_job_info(dir, &emit::job_info(&key.host, &options.job_id, self.spec.world()))?;
            }
            let mut writer = StreamWriter::create(dir, &key, clocks(START), &options)?;
            self.records(rank, &mut |record| writer.write(record))?;
            writer.close()?;
        }
        Ok(())
    }
}

fn clocks(time: u64) -> ClockSnapshot {
    ClockSnapshot { monotonic: time, boottime: time, realtime: WALL.saturating_add(time) }
}

fn class(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::OtherOp | FaultKind::Missing | FaultKind::Extra => "code_divergence",
        FaultKind::OtherCount | FaultKind::OtherDtype | FaultKind::OtherReduction => "parameter_mismatch",
        FaultKind::Killed => "rank_failed",
        FaultKind::LeavesEarly => "uneven_inputs",
        FaultKind::Late(_) => "clean",
    }
}

/// The call that the faulty rank makes instead of (or, for an extra one, before) the right one; `None` where the fault
/// changes no call.
fn altered(slot: &Slot, kind: FaultKind) -> Option<Slot> {
    let mut slot = slot.clone();
    match kind {
        FaultKind::OtherOp | FaultKind::Extra => {
            slot.op = Op::AllGather;
            (slot.count, slot.dtype, slot.redop) = (17, Basic::I64, RedOp::None);
            (slot.root, slot.vector, slot.site) = (None, false, FAULT_SITE);
        }
        FaultKind::OtherCount if !slot.vector && slot.op != Op::Barrier => slot.count += 1,
        FaultKind::OtherDtype if slot.op != Op::Barrier => {
            slot.dtype = if slot.dtype == Basic::F32 { Basic::Bf16 } else { Basic::F32 };
        }
        FaultKind::OtherReduction if slot.redop != RedOp::None => slot.redop = RedOp::Predefined(Reduction::Max),
        FaultKind::OtherCount | FaultKind::OtherDtype | FaultKind::OtherReduction => {}
        FaultKind::Missing | FaultKind::Killed | FaultKind::LeavesEarly | FaultKind::Late(_) => return None,
    }
    Some(slot)
}

/// The calls of one rank, made one by one.
#[derive(Debug)]
pub struct Calls<'a> {
    job: &'a Job,
    rank: u32,
    step: u64,
    slots: std::vec::IntoIter<(usize, Slot)>,
    /// Calls made since the beginning of the fault's step.
    window: usize,
    seq: FxHashMap<(GroupKind, Option<u32>, bool), u64>,
    thread_seq: u64,
}

impl Iterator for Calls<'_> {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        loop {
            if let Some((index, slot)) = self.slots.next() {
                return self.make(index, &slot);
            }
            if self.step >= self.job.spec.steps {
                return None;
            }
            self.slots = self.job.slots(self.rank, self.step).into_iter();
            self.step += 1;
        }
    }
}

impl Calls<'_> {
    /// The call of a slot; `None` where the rank stopped before it.
    fn make(&mut self, index: usize, slot: &Slot) -> Option<Call> {
        let (job, spec) = (self.job, &self.job.spec);
        let step = self.step - 1;
        let planted = job.planted;
        let mut pending = false;
        if let (Some(planted), Some(stop)) = (planted, job.stops.get(self.rank as usize))
            && step >= planted.step
        {
            self.window += 1;
            if self.window > stop.entered {
                return None;
            }
            pending = stop.pending && self.window == stop.entered;
        }
        let begin = START + step * spec.step_time();
        let jitter = mix(&[spec.seed, u64::from(self.rank), step, index as u64]) % (spec.jitter + 1);
        let (mut enter, mut done) = (begin + slot.at + jitter, begin + slot.done);
        let mut flags = CallFlags::default();
        if let Some(Planted { fault, step: at_step, slot: at_slot }) = planted {
            let at = job.stage(fault.rank).get(at_slot).map_or(0, |slot| at_step * spec.step_time() + slot.at);
            let mine =
                fault.group == slot.kind && spec.lowest(fault.group, fault.rank) == spec.lowest(slot.kind, self.rank);
            let there = mine && step * spec.step_time() + slot.at == at;
            match fault.kind {
                // Everything planned for later is later by that time; at the call itself only the late rank is.
                FaultKind::Late(time) if step * spec.step_time() + slot.done > at => {
                    let waits = step * spec.step_time() + slot.at <= at && !(there && self.rank == fault.rank);
                    enter += if waits { 0 } else { time };
                    done += time;
                }
                FaultKind::OtherCount | FaultKind::OtherDtype | FaultKind::OtherReduction if there => {
                    flags = flags.with(CallFlags::DONE);
                }
                // After the call before it has completed, and before the one it precedes.
                FaultKind::Extra if slot.site == FAULT_SITE => enter = begin + slot.at - PAUSE / 2,
                _ => {}
            }
        }
        let direction = slot.op == Op::Send;
        let seq = self.seq.entry((slot.kind, slot.peer, direction)).or_default();
        let position = *seq;
        *seq += 1;
        let thread_seq = self.thread_seq;
        self.thread_seq += 1;
        let (sends, recvs) = if slot.vector { self.vectors(slot, step, index) } else { (Vec::new(), Vec::new()) };
        let returned = if spec.blocking { done } else { enter + RETURN };
        let exit = (!(pending && spec.blocking)).then_some(returned);
        Some(Call {
            op: slot.op,
            comm: job.comm(slot.kind),
            seq: Some(position),
            flags,
            count: Some(if slot.vector { sends.iter().sum() } else { slot.count }),
            dtype: DType::Basic(slot.dtype),
            redop: slot.redop,
            root: slot.root,
            peer: slot.peer,
            sends,
            recvs,
            thread: 1000 + self.rank,
            thread_seq,
            stream: 1 + slot.kind as u64,
            enter,
            exit,
            completion: if pending { Completion::Pending } else { Completion::At(done) },
            result: exit.map(|_| 0),
            site: SiteRef(slot.site + 1),
            ..Call::default()
        })
    }

    /// What this member sends to and expects from each other one.
    fn vectors(&self, slot: &Slot, step: u64, index: usize) -> (Vec<u64>, Vec<u64>) {
        let spec = &self.job.spec;
        let (me, group) = (spec.local(slot.kind, self.rank), spec.lowest(slot.kind, self.rank));
        let elements = |from: u32, to: u32| {
            mix(&[spec.seed, u64::from(group), step, index as u64, u64::from(from), u64::from(to)]) % 512
        };
        (0..spec.size(slot.kind)).map(|other| (elements(me, other), elements(other, me))).unzip()
    }
}
