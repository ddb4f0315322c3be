//! One rank's stream: its calls with positions and recorded times, definitions before their first use, and what else
//! the recorder noted, cut down to what it can have seen.
//!
//! A late-attached recorder does not know how many calls came before, so positions after it are unknown; events lost
//! from a full ring leave positions right, since those are counted in the kernel.

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::call::{CallSpec, LevelName, Outcome, TypeSpec};
use super::groups::{Groups, RankGroups};
use super::people::EndState;
use super::scenario::Scenario;
use super::schedule::{Fate, Schedule};
use crate::call::{Call, CallFlags, Completion, Frame, FrameKind, SiteDef, SiteRef};
use crate::comm::{CommDef, CommRef, RankDef, RankSource};
use crate::datatype::TypeDef;
use crate::evidence::{Attribute, ClockSnapshot, Gap, GapCause, Life, LogLine, ProcessState, StepMark, ThreadState};
use crate::op::{Op, OpKind};
use crate::stream::{ProcessKey, Record};

/// The wall clock at a scenario's time 0, ns since 1970.
pub(super) const WALL: u64 = 1_760_000_000_000_000_000;
/// Host of ranks that name none.
const HOST: &str = "n0";
/// Pid of rank 0.
const FIRST_PID: u32 = 1000;
/// Kernel ids of threads that have names: from here on.
const FIRST_NAMED_THREAD: u32 = 1 << 22;

/// A rank's stream before it is made.
pub(super) struct RankStream<'a> {
    scenario: &'a Scenario,
    schedule: &'a Schedule<'a>,
    groups: &'a Groups,
    rank: u32,
    /// What is added to true times, ns.
    shift: i64,
    pid: u32,
    threads: FxHashMap<String, u32>,
    named: u32,
    sites: FxHashMap<&'a str, SiteRef>,
    labels: FxHashMap<&'a str, u32>,
    types: FxHashMap<&'a TypeSpec, u32>,
}

/// Index of a call in its rank's program, where it is in the trace.
struct Made {
    index: usize,
    unit: usize,
    fate: Fate,
    thread: u32,
    thread_seq: u64,
}

/// Attribute of a rank.
fn attribute<'a>(scenario: &'a Scenario, rank: u32, key: &str) -> Option<&'a str> {
    scenario.rank_info.get(&rank)?.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// Host of a rank.
pub(super) fn host(scenario: &Scenario, rank: u32) -> &str {
    attribute(scenario, rank, "host").unwrap_or(HOST)
}

/// The time that a rank's clock showed; clocks that are behind move all others ahead, since none can show less than 0.
pub(super) fn shift(scenario: &Scenario, rank: u32) -> i64 {
    let behind = scenario.clock_offset.values().copied().min().unwrap_or(0).min(0);
    scenario.clock_offset.get(&rank).copied().unwrap_or(0).saturating_sub(behind)
}

impl<'a> RankStream<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        schedule: &'a Schedule<'a>,
        groups: &'a Groups,
        rank: u32,
    ) -> RankStream<'a> {
        RankStream {
            scenario,
            schedule,
            groups,
            rank,
            shift: shift(scenario, rank),
            pid: FIRST_PID + rank,
            threads: FxHashMap::default(),
            named: 0,
            sites: FxHashMap::default(),
            labels: FxHashMap::default(),
            types: FxHashMap::default(),
        }
    }

    pub(super) fn key(&self) -> ProcessKey {
        ProcessKey { host: host(self.scenario, self.rank).to_owned(), pid: self.pid, start_time: 1 }
    }

    /// A true time as this rank's clock showed it.
    fn clock(&self, time: u64) -> u64 {
        time.saturating_add_signed(self.shift)
    }

    /// The clocks at a true time.
    pub(super) fn clocks(&self, time: u64) -> ClockSnapshot {
        let monotonic = self.clock(time);
        ClockSnapshot { monotonic, boottime: monotonic, realtime: WALL.saturating_add(monotonic) }
    }

    /// When the recorder began.
    pub(super) fn begin(&self) -> u64 {
        self.scenario.attached_at.get(&self.rank).copied().unwrap_or(0)
    }

    /// Where the file is torn, a true time.
    pub(super) fn torn(&self) -> Option<u64> {
        self.scenario.truncated.get(&self.rank).copied()
    }

    /// The gap at the end of a torn file.
    pub(super) fn torn_gap(&self, time: u64) -> Gap {
        Gap { cause: GapCause::Torn, after: self.clock(time), before: u64::MAX, ..Gap::default() }
    }

    /// Gives every record that stands before `until` (a true time; all if `None`) to `sink`, in the order of the
    /// stream. The states at the end are given whatever `until` is: that a rank ended is known from elsewhere too.
    pub(super) fn records<E>(
        &mut self,
        until: Option<u64>,
        sink: &mut dyn FnMut(Record) -> Result<(), E>,
    ) -> Result<(), E> {
        self.beginning(sink)?;
        self.calls(until, sink)?;
        self.ending(sink)
    }

    /// Gives records of what happened after a torn file's end, a few; the last bytes of such a file are of them.
    pub(super) fn after<E>(&self, time: u64, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        for step in 1..=16 {
            sink(Record::Clock(self.clocks(time.saturating_add(step * 1_000_000))))?;
        }
        Ok(())
    }

    fn beginning<E>(&mut self, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let local_rank = attribute(self.scenario, self.rank, "local_rank").and_then(|value| value.parse().ok());
        sink(Record::Rank(RankDef {
            rank: self.rank,
            world: Some(self.scenario.world),
            local_rank,
            attempt: 0,
            source: RankSource::Declared,
        }))?;
        for (key, value) in self.scenario.rank_info.get(&self.rank).map_or(&[][..], Vec::as_slice) {
            sink(Record::Attribute(Attribute { rank: None, key: key.clone(), value: value.clone() }))?;
        }
        sink(Record::Clock(self.clocks(self.begin())))?;
        if let Some(&attached) = self.scenario.attached_at.get(&self.rank) {
            let before = self.clock(attached);
            sink(Record::Gap(Gap { cause: GapCause::LateAttach, before, ..Gap::default() }))?;
        }
        Ok(())
    }

    /// The rank's calls in the order of their entries.
    fn made(&mut self) -> Vec<Made> {
        let schedule = self.schedule;
        let Some(program) = schedule.program(self.rank) else { return Vec::new() };
        let mut made = Vec::with_capacity(program.calls.len());
        for (unit, range) in program.units.iter().enumerate() {
            for index in range.first as usize..(range.first + range.len) as usize {
                let Some(fate) = schedule.fate(self.rank, index) else { continue };
                let name = self.scenario.calls[program.calls[index] as usize].thread.as_str();
                made.push(Made { index, unit, fate, thread: self.thread(name), thread_seq: 0 });
            }
        }
        if !made.is_sorted_by_key(|made| made.fate.enter) {
            made.sort_by_key(|made| made.fate.enter);
        }
        let begin = self.begin();
        let mut counters: FxHashMap<u32, u64> = FxHashMap::default();
        for one in &mut made {
            let counter = counters.entry(one.thread).or_default();
            one.thread_seq = *counter;
            if one.fate.enter >= begin {
                *counter += 1;
            }
        }
        made
    }

    fn calls<E>(&mut self, until: Option<u64>, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let (schedule, scenario) = (self.schedule, self.scenario);
        let begin = self.begin();
        let until = until.unwrap_or(u64::MAX);
        let made = self.made();
        let mut comms = RankGroups::new(scenario, self.groups, self.rank);
        let mut definitions = Vec::new();
        comms.declared(&mut definitions);
        flush(&mut definitions, sink)?;
        let Some(program) = schedule.program(self.rank) else { return Ok(()) };
        let mut positions = Positions::default();
        let mut batches: FxHashMap<u32, (usize, u32)> = FxHashMap::default();
        // Threads run ahead of one another, so units do not come in their order.
        let mut marks: FxHashMap<u32, u64> = program.marks.iter().copied().collect();
        let mut lost = scenario.lost.get(&self.rank).map_or(&[][..], Vec::as_slice).iter().peekable();
        let mut dropping = 0_u64;
        let mut gap = GapBuilder::default();
        let mut last_enter = 0;
        for (ordinal, one) in made.iter().enumerate() {
            while let Some(next) = lost.next_if(|next| next.after_call <= ordinal as u64) {
                dropping = dropping.saturating_add(next.events);
            }
            let call = program.calls[one.index] as usize;
            let (Some(spec), Some(&group)) = (scenario.calls.get(call), scenario.call_groups.get(call)) else {
                continue;
            };
            let level = spec.level.unwrap_or(scenario.groups[group].level);
            let before = one.fate.enter < begin;
            let kept = !before && one.fate.enter <= until && dropping == 0;
            if kept && let Some(gaps) = gap.take(self.clock(last_enter), self.clock(one.fate.enter), 0) {
                gaps.into_iter().try_for_each(|gap| sink(Record::Gap(gap)))?;
            }
            // What loses a call loses its mark.
            if let Some(step) = marks.remove(&(one.unit as u32)).filter(|_| kept) {
                let at = self.clock(one.fate.enter);
                let first_thread_seq = one.thread_seq;
                sink(Record::Step(StepMark { at, thread: one.thread, first_thread_seq, step }))?;
            }
            let (comm, made) =
                self.communicators(&mut comms, &mut positions, &mut definitions, spec, (group, level), kept);
            let position = positions.take(comm, spec);
            let batch = if program.units[one.unit].grouped {
                let batch = batches.entry(one.thread).or_insert((usize::MAX, 0));
                if batch.0 != one.unit {
                    *batch = (one.unit, batch.1 + 1);
                }
                batch.1
            } else {
                0
            };
            if kept {
                flush(&mut definitions, sink)?;
                let seq = position.filter(|_| begin == 0);
                let call = self.call(spec, (group, level), one, until, sink)?;
                let flags = if batch > 0 { call.flags.with(CallFlags::GROUPED) } else { call.flags };
                let call = Call { comm, made, seq, group: batch, flags, ..call };
                let failed = spec.error.as_deref().zip(call.exit).filter(|(code, _)| code.parse::<i64>().is_err());
                sink(Record::Call(call))?;
                if let Some((code, at)) = failed {
                    sink(Record::Log(LogLine { at, text: format!("{} returned {code}", spec.op) }))?;
                }
                last_enter = one.fate.enter;
            } else if !before && one.fate.enter <= until {
                gap.add(one.thread, one.thread_seq);
                dropping = dropping.saturating_sub(1);
            }
        }
        let rest = lost.fold(dropping, |sum, next| sum.saturating_add(next.events));
        if let Some(gaps) = gap.take(self.clock(last_enter), u64::MAX, rest) {
            gaps.into_iter().try_for_each(|gap| sink(Record::Gap(gap)))?;
        }
        Ok(())
    }

    /// The communicator a call is on and the one it makes, defined as far as they are new.
    fn communicators(
        &self,
        comms: &mut RankGroups<'_>,
        positions: &mut Positions,
        definitions: &mut Vec<CommDef>,
        spec: &CallSpec,
        (group, level): (usize, LevelName),
        kept: bool,
    ) -> (CommRef, CommRef) {
        if spec.op.kind() != OpKind::CommCreate {
            return (comms.used((group, level), definitions), CommRef::NONE);
        }
        let creation = comms.creation(group, level, spec);
        let on = creation.on.filter(|&on| self.groups.local(on, self.rank).is_some());
        let comm = on.map_or(CommRef::NONE, |on| comms.used((on, level), definitions));
        let ordinal = positions.next_creation(comm);
        let made =
            creation.made.map_or(CommRef::NONE, |made| comms.created((made, level), ordinal, spec, kept, definitions));
        (comm, made)
    }

    /// The call itself, without communicators and position; its definitions go to `sink`.
    fn call<E>(
        &mut self,
        spec: &'a CallSpec,
        (group, level): (usize, LevelName),
        one: &Made,
        until: u64,
        sink: &mut dyn FnMut(Record) -> Result<(), E>,
    ) -> Result<Call, E> {
        let seen = spec.seen_at(level);
        let derived = match &spec.dtype {
            TypeSpec::Derived { name, size, runs } => match self.types.get(&spec.dtype) {
                Some(&id) => id,
                None => {
                    let id = self.types.len() as u32 + 1;
                    self.types.insert(&spec.dtype, id);
                    sink(Record::Type(TypeDef { id, name: name.clone(), size: Some(*size), runs: runs.clone() }))?;
                    id
                }
            },
            _ => 0,
        };
        let site = match self.sites.get(spec.site.as_str()) {
            Some(&site) => site,
            None => {
                let id = SiteRef(self.sites.len() as u32 + 1);
                self.sites.insert(&spec.site, id);
                sink(Record::Site(SiteDef { id, frames: spec.site.split('>').map(frame).collect() }))?;
                id
            }
        };
        let label = match self.labels.get(spec.arg.as_str()) {
            _ if spec.arg.is_empty() => 0,
            Some(&label) => label,
            None => {
                let label = self.labels.len() as u32 + 1;
                self.labels.insert(&spec.arg, label);
                sink(Record::Label(label, spec.arg.clone()))?;
                label
            }
        };
        let exit = one.fate.exit.filter(|&exit| exit <= until);
        let completion = match one.fate.completion {
            Completion::At(at) if at <= until => Completion::At(self.clock(at)),
            Completion::Pending if until == u64::MAX => Completion::Pending,
            _ => Completion::Unknown,
        };
        let tag = if spec.op.kind() == OpKind::CommCreate { spec.color.flatten() } else { spec.tag };
        Ok(Call {
            op: seen.op,
            flags: flags(spec),
            count: seen.count,
            dtype: seen.dtype.dtype(derived),
            redop: seen.redop,
            root: spec.root.and_then(|root| self.groups.local(group, root)),
            peer: spec.peer.and_then(|peer| self.groups.local(group, peer)),
            tag,
            sends: spec.splits.clone(),
            recvs: spec.recv_splits.clone(),
            thread: one.thread,
            thread_seq: one.thread_seq,
            stream: device_stream(&spec.stream),
            enter: self.clock(one.fate.enter),
            exit: exit.map(|exit| self.clock(exit)),
            completion,
            result: exit.and(one.fate.result),
            site,
            label,
            ..Call::default()
        })
    }

    fn ending<E>(&mut self, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let scenario = self.scenario;
        let horizon = self.schedule.horizon(self.rank);
        let at = self.clock(horizon);
        if let Some(evidence) = scenario.evidence.get(&self.rank) {
            for thread in &evidence.threads {
                let tid = self.thread(&thread.name);
                let since_ms = thread.since_ms.map(|since| since.saturating_add_signed(self.shift / 1_000_000));
                sink(Record::Thread(ThreadState { at, tid, since_ms, ..thread.clone() }))?;
            }
            let written = evidence.log_t.map_or(0, |time| self.clock(time));
            for text in &evidence.log {
                sink(Record::Log(LogLine { at: written, text: text.clone() }))?;
            }
        }
        let life = match scenario.ends.get(&self.rank) {
            None => Life::Alive,
            Some(EndState::Waiting) => Life::Waiting,
            Some(EndState::Running) => Life::Running,
            Some(EndState::Blocked) => Life::Blocked,
            Some(EndState::Stopped) => Life::Stopped,
            Some(_) if self.schedule.ended(self.rank).is_some_and(|end| end > horizon) => Life::Alive,
            Some(EndState::Exited { code, .. }) => Life::Exited(*code),
            Some(EndState::Signaled { signal, by, .. }) => Life::Signaled { signal: *signal, by: by.clone() },
        };
        sink(Record::State(ProcessState { at, life }))?;
        sink(Record::Clock(self.clocks(horizon)))
    }

    /// Kernel id of the thread of this name: the process's own for the main thread, a number as written, else one that
    /// is free.
    fn thread(&mut self, name: &str) -> u32 {
        if name.is_empty() || name == "main" {
            return self.pid;
        }
        if let Some(number) = name.parse().ok().filter(|&number| (1..FIRST_NAMED_THREAD).contains(&number)) {
            return number;
        }
        if let Some(&thread) = self.threads.get(name) {
            return thread;
        }
        let thread = FIRST_NAMED_THREAD + self.named;
        self.named += 1;
        self.threads.insert(name.to_owned(), thread);
        thread
    }
}

fn flush<E>(definitions: &mut Vec<CommDef>, sink: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
    definitions.drain(..).try_for_each(|definition| sink(Record::Comm(definition)))
}

fn flags(spec: &CallSpec) -> CallFlags {
    let mut flags = CallFlags::default();
    for (set, flag) in [
        (spec.nonblocking, CallFlags::NONBLOCKING),
        (spec.captured, CallFlags::CAPTURED),
        (spec.outcome == Outcome::Incomplete, CallFlags::INCOMPLETE),
        (spec.outcome == Outcome::Done, CallFlags::DONE),
    ] {
        if set {
            flags = flags.with(flag);
        }
    }
    flags
}

/// `function`, `file:line` or `file:line:function`.
fn frame(text: &str) -> Frame {
    let is_line = |part: &str| part.parse::<u32>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
    let mut place = None;
    for (at, _) in text.match_indices(':') {
        let rest = &text[at + 1..];
        let (line, function) = rest.split_once(':').unwrap_or((rest, ""));
        if let (Some(line), true) = (is_line(line), at > 0) {
            place = Some((&text[..at], line, function));
            break;
        }
    }
    let (file, line, function) = place.unwrap_or(("", 0, text));
    Frame { kind: FrameKind::Text, function: function.to_owned(), file: file.to_owned(), line, ..Frame::default() }
}

/// A device stream's handle: its number, or one made from its name.
fn device_stream(text: &str) -> u64 {
    if text.is_empty() {
        return 0;
    }
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| xxh3_64(text.as_bytes()) | 1 << 63)
}

/// Counts positions as a recorder's kernel side does.
#[derive(Default)]
struct Positions {
    collectives: FxHashMap<CommRef, u64>,
    creations: FxHashMap<CommRef, u64>,
    messages: FxHashMap<(CommRef, u32, bool, Option<i64>), u64>,
}

impl Positions {
    fn take(&mut self, comm: CommRef, spec: &CallSpec) -> Option<u64> {
        let counter = match (spec.op.kind(), spec.peer) {
            _ if spec.captured => return None,
            (OpKind::Collective, _) => self.collectives.entry(comm).or_default(),
            (OpKind::PointToPoint, Some(peer)) => {
                self.messages.entry((comm, peer, spec.op == Op::Send, spec.tag)).or_default()
            }
            (OpKind::CommCreate, _) if comm != CommRef::NONE => self.creations.entry(comm).or_default(),
            _ => return None,
        };
        *counter += 1;
        Some(*counter - 1)
    }

    /// Ordinal of the next creation on a communicator; `None` without one.
    fn next_creation(&self, comm: CommRef) -> Option<u64> {
        (comm != CommRef::NONE).then(|| self.creations.get(&comm).copied().unwrap_or(0))
    }
}

/// Collects lost calls until one is seen again: one gap per thread.
#[derive(Default)]
struct GapBuilder {
    /// Thread, its first lost call, and how many.
    threads: Vec<(u32, u64, u64)>,
}

impl GapBuilder {
    fn add(&mut self, thread: u32, thread_seq: u64) {
        match self.threads.iter_mut().find(|gap| gap.0 == thread) {
            Some(gap) => gap.2 += 1,
            None => self.threads.push((thread, thread_seq, 1)),
        }
    }

    /// The gaps so far; `more` events were lost beside them, of which nobody knows whose they were.
    fn take(&mut self, after: u64, before: u64, more: u64) -> Option<Vec<Gap>> {
        if self.threads.is_empty() && more == 0 {
            return None;
        }
        let cause = GapCause::RingFull;
        let mut gaps: Vec<Gap> = self
            .threads
            .drain(..)
            .map(|(thread, first_thread_seq, events)| Gap {
                cause,
                thread,
                first_thread_seq,
                events: Some(events),
                after,
                before,
            })
            .collect();
        match gaps.last_mut() {
            Some(gap) => gap.events = gap.events.map(|events| events.saturating_add(more)),
            None => gaps.push(Gap { cause, events: Some(more), after, before, ..Gap::default() }),
        }
        Some(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::{device_stream, frame};

    #[test]
    fn frames_say_file_line_and_function_where_the_text_does() {
        let parts = |text: &str| {
            let frame = frame(text);
            (frame.file, frame.line, frame.function)
        };
        let expect = |file: &str, line: u32, function: &str| (file.to_owned(), line, function.to_owned());
        assert_eq!(parts("train.py:88:train_step"), expect("train.py", 88, "train_step"));
        assert_eq!(parts("train.py:88"), expect("train.py", 88, ""));
        assert_eq!(parts("a.cc:7:ns::f"), expect("a.cc", 7, "ns::f"));
        assert_eq!(parts("ns::f"), expect("", 0, "ns::f"));
        assert_eq!(parts("libtorch.so+0x51c3a0"), expect("", 0, "libtorch.so+0x51c3a0"));
        assert_eq!(parts(":12"), expect("", 0, ":12"));
        assert_eq!(parts("a:99999999999"), expect("", 0, "a:99999999999"));
    }

    #[test]
    fn device_streams_are_numbers_or_names() {
        assert_eq!((device_stream(""), device_stream("7"), device_stream("0x10")), (0, 7, 16));
        assert_ne!(device_stream("compute"), device_stream("comm"));
    }
}
