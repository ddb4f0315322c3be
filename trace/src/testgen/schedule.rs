//! When every call is entered and ends, if each rank issues its stream in order.
//!
//! The members' calls of one instance are found by their position in the group (point-to-point: by their order per
//! edge and tag); an instance completes 1 ms after its last member entered, if all did and their signatures agree.
//! A call that blocks holds its thread until it ends. Ranks whose stream is not given are taken to have done their part.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{CallSpec, LevelName, Outcome};
use super::people::EndState;
use super::scenario::Scenario;
use super::steps::Program;
use crate::call::Completion;
use crate::op::{Op, OpKind};

/// From the last member's entry to completion.
pub const LATENCY: u64 = 1_000_000;
/// From entry to return of a call that does not block.
pub const RETURN: u64 = 10_000;
/// How long after the last event of a job that waits the recorder looked.
const PATIENCE: u64 = 60_000_000_000;
/// The time of what never was.
const NEVER: u64 = u64::MAX;

/// The times of a scenario cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "rank {rank}: '{call}' has t={t_ms}, before the call before it on its thread ({before_ms} ms); \
     give it a later t= or another thread="
)]
pub struct TimeError {
    /// The rank, the lowest of those with this stream.
    pub rank: u32,
    /// The call: operation, group and site.
    pub call: String,
    /// Its time.
    pub t_ms: u64,
    /// The earlier call's time.
    pub before_ms: u64,
}

/// What became of a call, at true times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// Entry.
    pub enter: u64,
    /// Return.
    pub exit: Option<u64>,
    /// Completion.
    pub completion: Completion,
    /// Result, if it returned.
    pub result: Option<i64>,
}

/// The calls of all members that belong together.
#[derive(Debug, Clone, Copy)]
struct Instance {
    last_enter: u64,
    expected: u32,
    entered: u32,
    first: u32,
    agrees: bool,
}

impl Instance {
    fn full(&self) -> bool {
        self.entered >= self.expected
    }
}

/// A flattened stream with its threads.
struct Prepared {
    program: Program,
    /// Per unit: earliest entry, pause after the unit before it on its thread, and whether its time is given.
    times: Vec<(u64, u64, bool)>,
    /// Units of each thread.
    lanes: Vec<Vec<u32>>,
}

/// The times of a job.
pub struct Schedule<'a> {
    scenario: &'a Scenario,
    prepared: Vec<Prepared>,
    /// Rank to (stream, index of its first call in the tables below).
    ranks: BTreeMap<u32, (usize, usize)>,
    enter: Vec<u64>,
    instance: Vec<u32>,
    instances: Vec<Instance>,
    /// Calls that returned with an error or in spite of a mismatch before all members had entered.
    forced: FxHashSet<usize>,
    snapshot: u64,
    ended: BTreeMap<u32, u64>,
}

impl std::fmt::Debug for Schedule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, instances) = (self.enter.len(), self.instances.len());
        f.debug_struct("Schedule").field("calls", &calls).field("instances", &instances).finish_non_exhaustive()
    }
}

/// A thread of a rank while it runs.
struct Lane {
    base: usize,
    stream: usize,
    lane: usize,
    next: usize,
    entered: bool,
    /// When the unit before ended.
    free: u64,
    first: bool,
}

impl<'a> Schedule<'a> {
    /// Computes the times of all calls.
    pub fn of(scenario: &'a Scenario) -> Result<Schedule<'a>, TimeError> {
        let mut prepared = Vec::with_capacity(scenario.streams.len());
        let mut ranks = BTreeMap::new();
        let mut total = 0;
        for (index, stream) in scenario.streams.iter().enumerate() {
            let one = prepare(scenario, Program::of(&stream.steps), stream.ranks.first().unwrap_or(0))?;
            for rank in stream.ranks.iter() {
                ranks.insert(rank, (index, total));
                total += one.program.calls.len();
            }
            prepared.push(one);
        }
        let mut schedule = Schedule {
            scenario,
            prepared,
            ranks,
            enter: vec![NEVER; total],
            instance: vec![u32::MAX; total],
            instances: Vec::new(),
            forced: FxHashSet::default(),
            snapshot: 0,
            ended: BTreeMap::new(),
        };
        schedule.match_instances();
        schedule.run();
        schedule.close();
        Ok(schedule)
    }

    /// When the recorder looked.
    pub fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// When the rank ended; `None`: alive.
    pub fn ended(&self, rank: u32) -> Option<u64> {
        self.ended.get(&rank).copied()
    }

    /// Until when something could be seen of the rank.
    pub fn horizon(&self, rank: u32) -> u64 {
        self.ended(rank).map_or(self.snapshot, |end| end.min(self.snapshot))
    }

    /// The rank's flattened stream; `None` if the rank has none.
    pub fn program(&self, rank: u32) -> Option<&Program> {
        self.ranks.get(&rank).map(|&(stream, _)| &self.prepared[stream].program)
    }

    /// What became of the rank's call at this index of its program; `None` if it was not made.
    pub fn fate(&self, rank: u32, index: usize) -> Option<Fate> {
        let &(stream, base) = self.ranks.get(&rank)?;
        let spec = self.spec(stream, index)?;
        let at = base + index;
        let enter = *self.enter.get(at)?;
        if enter == NEVER || enter > self.snapshot {
            return None;
        }
        let end = self.end_of(at, spec);
        let horizon = self.horizon(rank);
        let exit = if self.blocks(spec) { end } else { Some(enter.saturating_add(RETURN)) };
        let exit = exit.filter(|&exit| exit <= horizon);
        let completion = match end {
            _ if spec.captured || spec.error.is_some() => Completion::Unknown,
            Some(end) if end <= horizon => Completion::At(end),
            Some(_) if self.ended(rank).is_some() => Completion::Unknown,
            _ => Completion::Pending,
        };
        Some(Fate { enter, exit, completion, result: exit.map(|_| spec.error_code().unwrap_or(0)) })
    }

    fn spec(&self, stream: usize, index: usize) -> Option<&'a CallSpec> {
        let call = *self.prepared.get(stream)?.program.calls.get(index)?;
        self.scenario.calls.get(call as usize)
    }

    /// Whether the call holds its thread until it ends. Nothing is executed while a graph is recorded.
    fn blocks(&self, spec: &CallSpec) -> bool {
        self.scenario.blocking && !spec.nonblocking && !spec.captured
    }

    /// When an entered call ends, as far as it is decided.
    fn end_of(&self, at: usize, spec: &CallSpec) -> Option<u64> {
        let enter = self.enter[at];
        if spec.captured {
            return Some(enter.saturating_add(RETURN));
        }
        let instance = self.instances.get(self.instance[at] as usize);
        let natural = |instance: &Instance| match spec.dur {
            Some(dur) => enter.saturating_add(dur),
            None => instance.last_enter.saturating_add(LATENCY),
        };
        let regardless = spec.error.is_some() || spec.outcome == Outcome::Done;
        match spec.outcome {
            Outcome::Pending | Outcome::Incomplete | Outcome::NeverEntered => None,
            _ if self.forced.contains(&at) => Some(enter.saturating_add(spec.dur.unwrap_or(LATENCY))),
            _ => instance.filter(|instance| instance.full() && (instance.agrees || regardless)).map(natural),
        }
    }

    fn level(&self, call: u32) -> (usize, LevelName) {
        let group = self.scenario.call_groups[call as usize];
        let level = self.scenario.calls[call as usize].level;
        (group, level.unwrap_or(self.scenario.groups[group].level))
    }

    /// Gives every call that can be entered its instance.
    fn match_instances(&mut self) {
        #[derive(PartialEq, Eq, Hash, Clone, Copy)]
        enum Line {
            Members(usize, LevelName, bool),
            Edge(usize, LevelName, u32, u32, Option<i64>),
        }
        let scenario = self.scenario;
        let present: Vec<u32> = scenario
            .groups
            .iter()
            .map(|group| group.ranks.iter().filter(|&rank| self.ranks.contains_key(rank)).count() as u32)
            .collect();
        let mut lines: FxHashMap<Line, Vec<u32>> = FxHashMap::default();
        for (&rank, &(stream, base)) in &self.ranks {
            let mut counters: FxHashMap<(Line, bool), usize> = FxHashMap::default();
            for (index, &call) in self.prepared[stream].program.calls.iter().enumerate() {
                let spec = &scenario.calls[call as usize];
                if spec.captured || spec.outcome == Outcome::NeverEntered {
                    continue;
                }
                let (group, level) = self.level(call);
                let (line, sends, expected) = match (spec.op.kind(), spec.peer) {
                    (OpKind::PointToPoint, Some(peer)) => {
                        let sends = spec.op == Op::Send;
                        let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                        let expected = if self.ranks.contains_key(&peer) { 2 } else { 1 };
                        (Line::Edge(group, level, from, to, spec.tag), sends, expected)
                    }
                    (kind, _) => (Line::Members(group, level, kind == OpKind::Collective), false, present[group]),
                };
                let counter = counters.entry((line, sends)).or_default();
                let instances = lines.entry(line).or_default();
                if *counter == instances.len() {
                    instances.push(self.instances.len() as u32);
                    let instance = Instance { last_enter: 0, expected, entered: 0, first: call, agrees: true };
                    self.instances.push(instance);
                }
                self.instance[base + index] = instances[*counter];
                *counter += 1;
            }
        }
    }

    /// Lets every thread run until it waits for others, and on when they came.
    fn run(&mut self) {
        let mut lanes = Vec::new();
        for &(stream, base) in self.ranks.values() {
            for lane in 0..self.prepared[stream].lanes.len() {
                lanes.push(Lane { base, stream, lane, next: 0, entered: false, free: 0, first: true });
            }
        }
        let mut waiting: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut ready: Vec<usize> = (0..lanes.len()).rev().collect();
        loop {
            while let Some(index) = ready.pop() {
                self.advance(index, &mut lanes[index], &mut waiting, &mut ready);
            }
            // Nobody can move: calls that return in spite of everything do so now, those of all threads at once.
            for (index, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.entered) {
                let unit = self.prepared[lane.stream].lanes[lane.lane][lane.next] as usize;
                let unit = self.prepared[lane.stream].program.units[unit];
                let open: Vec<usize> = (unit.first..unit.first + unit.len)
                    .map(|call| call as usize)
                    .filter(|&call| {
                        let spec = self.spec(lane.stream, call);
                        spec.is_some_and(|spec| self.blocks(spec) && self.end_of(lane.base + call, spec).is_none())
                    })
                    .collect();
                let returns = |&call: &usize| {
                    let spec = self.spec(lane.stream, call);
                    spec.is_some_and(|spec| {
                        matches!(spec.outcome, Outcome::Done | Outcome::Natural)
                            && (spec.error.is_some() || spec.outcome == Outcome::Done)
                    })
                };
                if open.iter().all(returns) {
                    self.forced.extend(open.iter().map(|call| lane.base + call));
                    ready.push(index);
                }
            }
            if ready.is_empty() {
                break;
            }
        }
        // What does not hold its thread may still return although not all members came.
        for &(stream, base) in self.ranks.values() {
            for index in 0..self.prepared[stream].program.calls.len() {
                let Some(spec) = self.spec(stream, index) else { continue };
                let regardless = matches!(spec.outcome, Outcome::Done | Outcome::Natural)
                    && (spec.error.is_some() || spec.outcome == Outcome::Done);
                if regardless && self.enter[base + index] != NEVER && self.end_of(base + index, spec).is_none() {
                    self.forced.insert(base + index);
                }
            }
        }
    }

    fn advance(
        &mut self,
        index: usize,
        lane: &mut Lane,
        waiting: &mut FxHashMap<u32, Vec<usize>>,
        ready: &mut Vec<usize>,
    ) {
        while let Some(&unit_index) = self.prepared[lane.stream].lanes[lane.lane].get(lane.next) {
            let prepared = &self.prepared[lane.stream];
            let unit = prepared.program.units[unit_index as usize];
            let (earliest, pause, given) = prepared.times[unit_index as usize];
            let calls = unit.first as usize..(unit.first + unit.len) as usize;
            if !lane.entered {
                let never = |call: usize| {
                    self.spec(lane.stream, call).is_some_and(|spec| spec.outcome == Outcome::NeverEntered)
                };
                if calls.clone().any(never) {
                    return;
                }
                let after = if given || lane.first { lane.free } else { lane.free.saturating_add(pause) };
                let enter = earliest.max(after);
                for call in calls.clone() {
                    self.enter(lane.base + call, lane.stream, call, enter, waiting, ready);
                }
                lane.entered = true;
                lane.free = enter;
                lane.first = false;
            }
            let mut free = lane.free;
            for call in calls {
                let Some(spec) = self.spec(lane.stream, call) else { continue };
                if !self.blocks(spec) {
                    continue;
                }
                match self.end_of(lane.base + call, spec) {
                    Some(end) => free = free.max(end),
                    None => {
                        let instance = self.instance[lane.base + call];
                        if self.instances.get(instance as usize).is_some_and(|instance| !instance.full()) {
                            waiting.entry(instance).or_default().push(index);
                        }
                        return;
                    }
                }
            }
            lane.free = free;
            lane.next += 1;
            lane.entered = false;
        }
    }

    fn enter(
        &mut self,
        at: usize,
        stream: usize,
        index: usize,
        time: u64,
        waiting: &mut FxHashMap<u32, Vec<usize>>,
        ready: &mut Vec<usize>,
    ) {
        self.enter[at] = time;
        let call = self.prepared[stream].program.calls[index];
        let key = self.instance[at];
        let Some(instance) = self.instances.get(key as usize).copied() else { return };
        let agrees = instance.agrees && (instance.first == call || self.agree(instance.first, call));
        let entered = instance.entered + 1;
        let last_enter = instance.last_enter.max(time);
        let instance = Instance { last_enter, entered, agrees, ..instance };
        self.instances[key as usize] = instance;
        if instance.full() {
            ready.extend(waiting.remove(&key).unwrap_or_default());
        }
    }

    /// Whether two calls of one instance match.
    fn agree(&self, one: u32, other: u32) -> bool {
        let level = self.level(one).1;
        let (a, b) = (&self.scenario.calls[one as usize], &self.scenario.calls[other as usize]);
        match a.op.kind() {
            OpKind::PointToPoint => {
                let (send, recv) = if a.op == Op::Send { (a, b) } else { (b, a) };
                match (send.seen_at(level).bytes(), recv.seen_at(level).bytes()) {
                    (Some(sent), Some(room)) => room >= sent,
                    _ => true,
                }
            }
            OpKind::Collective => {
                let vectors = !a.splits.is_empty();
                let same =
                    a.nonblocking == b.nonblocking && (vectors || a.root == b.root) && vectors != b.splits.is_empty();
                same && a.seen_at(level).agrees(&b.seen_at(level), vectors)
            }
            _ => a.op == b.op,
        }
    }

    /// Finds when ranks ended and when the recorder looked.
    fn close(&mut self) {
        let scenario = self.scenario;
        let mut last_event = 0;
        for (&rank, &(stream, base)) in &self.ranks {
            let mut last_own = 0;
            for index in 0..self.prepared[stream].program.calls.len() {
                let enter = self.enter[base + index];
                let Some(spec) = self.spec(stream, index).filter(|_| enter != NEVER) else { continue };
                let end = self.end_of(base + index, spec);
                last_event = last_event.max(enter).max(end.unwrap_or(0));
                let returned = if self.blocks(spec) { end.unwrap_or(enter) } else { enter.saturating_add(RETURN) };
                last_own = last_own.max(returned);
            }
            if let Some(EndState::Exited { t, .. } | EndState::Signaled { t, .. }) = scenario.ends.get(&rank) {
                // No process ends before its last call.
                let end = t.filter(|&t| t > last_own).unwrap_or(last_own.saturating_add(LATENCY));
                self.ended.insert(rank, end);
                last_event = last_event.max(end);
            }
        }
        let logs = scenario.evidence.values().filter_map(|evidence| evidence.log_t);
        last_event = logs.fold(last_event, u64::max);
        let any = |wanted: &[EndState]| scenario.ends.values().any(|end| wanted.contains(end));
        let waits = any(&[EndState::Waiting, EndState::Blocked]) && !any(&[EndState::Running]);
        let default = last_event.saturating_add(if waits { PATIENCE } else { LATENCY });
        self.snapshot = scenario.snapshot.unwrap_or(default);
    }
}

/// Earliest times and threads of a program's units.
fn prepare(scenario: &Scenario, program: Program, rank: u32) -> Result<Prepared, TimeError> {
    let mut lanes: Vec<Vec<u32>> = Vec::new();
    let mut names: FxHashMap<&str, usize> = FxHashMap::default();
    let mut times = Vec::with_capacity(program.units.len());
    // Per thread: entry of its last unit, and the sum of all sleeps up to it.
    let mut before: Vec<(u64, u64)> = Vec::new();
    let (mut now, mut slept) = (0_u64, 0_u64);
    for (index, unit) in program.units.iter().enumerate() {
        let calls = &program.calls[unit.first as usize..(unit.first + unit.len) as usize];
        let specs = || calls.iter().filter_map(|&call| scenario.calls.get(call as usize));
        let given = specs().filter_map(|spec| spec.t).max();
        slept = slept.saturating_add(unit.sleep);
        now = given.unwrap_or(now.saturating_add(scenario.step).saturating_add(unit.sleep));
        let thread = specs().next().map_or("", |spec| if spec.thread == "main" { "" } else { &spec.thread });
        let lane = *names.entry(thread).or_insert(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
            before.push((0, slept));
        }
        let (entry, slept_before) = before[lane];
        if let Some(spec) = specs().next().filter(|_| now < entry) {
            let call = format!("{} @{} {}", spec.op, spec.group, spec.site);
            return Err(TimeError { rank, call, t_ms: now / 1_000_000, before_ms: entry / 1_000_000 });
        }
        lanes[lane].push(index as u32);
        before[lane] = (now, slept);
        times.push((now, scenario.step.saturating_add(slept - slept_before), given.is_some()));
    }
    Ok(Prepared { program, times, lanes })
}
