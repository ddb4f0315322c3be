//! A Perfetto trace (ui.perfetto.dev): a process for each rank, a track for each of its communicators, a slice for each
//! call, flows between the members of an instance.
//!
//! Flows need no knowledge of the other processes: the number of a flow is a hash of the communicator's identity, the kind
//! of operation and the sequence number, and viewers connect slices of one flow in the order of their times. Strings are
//! numbered once for each process.
//!
//! Not here: threads (a slice names its thread), and anything below the call.

mod lanes;
mod proto;

use std::io::{BufWriter, Write};

use rankdiff_trace::{Call, CallFlags, OpKind, ProcessTrace};
use rustc_hash::{FxHashMap, FxHashSet};

use self::lanes::Drawn;
use self::proto::{Message, TRACE_PACKET, annotation, clock, event, interned, packet, track};
use super::survey::Survey;
use super::view::{View, elements, flags, identity, phrase};
use super::{Export, ExportError, Exporter, Shape, Surveyed, Target};
use crate::step_marks::StepMarks;

/// The descriptor.
#[derive(Debug)]
pub(super) struct Perfetto;

impl Exporter for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn summary(&self) -> &'static str {
        "a trace for ui.perfetto.dev: a process per rank, a track per communicator"
    }

    fn shapes(&self) -> &'static [Shape] {
        &[Shape::File]
    }

    fn suffix(&self) -> &'static str {
        ".pftrace"
    }

    fn start<'a>(&self, job: &'a Surveyed, target: Target<'a>) -> Result<Box<dyn Export + 'a>, ExportError> {
        let Target::File(out) = target else {
            return Err(ExportError::Shape { format: "perfetto", wanted: "one file" });
        };
        let mut out = Out { file: BufWriter::with_capacity(1 << 20, out), whole: Message::default() };
        let survey = &job.survey;
        if survey.wall() > 0 {
            // What the viewer's clock shows: the job's time 0 was at this time of day.
            let mut clocks = Message::default();
            for (id, time) in [(clock::BOOTTIME, 0), (clock::REALTIME, survey.wall())] {
                let mut one = Message::default();
                one.uint(clock::ID, id).uint(clock::TIMESTAMP, time.unsigned_abs());
                clocks.message(clock::CLOCKS, &one);
            }
            let mut packet = Message::default();
            packet.message(packet::CLOCK_SNAPSHOT, &clocks).uint(packet::SEQUENCE_ID, OWN_SEQUENCE);
            out.packet(&packet)?;
        }
        Ok(Box::new(Tracks { survey, pids: pids(survey), out }))
    }
}

struct Out<'a> {
    file: BufWriter<Box<dyn Write + Send + 'a>>,
    whole: Message,
}

impl Out<'_> {
    fn packet(&mut self, packet: &Message) -> Result<(), ExportError> {
        self.whole.clear();
        self.whole.message(TRACE_PACKET, packet);
        Ok(self.file.write_all(self.whole.bytes())?)
    }
}

struct Tracks<'a> {
    survey: &'a Survey,
    /// Process ids that several processes of the job have.
    pids: FxHashSet<u32>,
    out: Out<'a>,
}

/// Number of the sequence of packets that belong to no process.
const OWN_SEQUENCE: u64 = 0x7fff_ffff;
/// Above every process id of the kernel.
const MADE_UP: u64 = 10_000_000;

/// Process ids that a viewer would take for one process: those of several hosts, and of a process that plays several ranks.
fn pids(survey: &Survey) -> FxHashSet<u32> {
    let (mut seen, mut twice) = (FxHashSet::default(), FxHashSet::default());
    for process in &survey.processes {
        if !seen.insert(process.key.pid) || process.ranks.len() > 1 {
            twice.insert(process.key.pid);
        }
    }
    twice
}

impl Export for Tracks<'_> {
    fn process(&mut self, at: usize, trace: &ProcessTrace) -> Result<(), ExportError> {
        let Some(process) = self.survey.processes.get(at) else { return Ok(()) };
        let view = View::of(trace, process, self.survey);
        let mut one = One {
            out: &mut self.out,
            sequence: at as u64 + 1,
            begun: false,
            next_track: (at as u64 + 1) << 32,
            made_up: self.pids.contains(&process.key.pid).then_some(MADE_UP + ((at as u64) << 12)),
            ranks: FxHashMap::default(),
            tracks: FxHashMap::default(),
            strings: FxHashMap::default(),
            last_strings: [0; 4],
            fresh: Message::default(),
            view,
        };
        one.calls()?;
        one.marks()
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        Ok(self.out.file.flush()?)
    }
}

/// Which track below a rank's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Comm(u32, usize),
    Steps,
    Events,
}

/// Most strings of a process that are numbered; those after it are written out.
const MOST_STRINGS: u64 = 1 << 20;

/// One process.
struct One<'a, 'b, 'c> {
    out: &'a mut Out<'b>,
    sequence: u64,
    begun: bool,
    next_track: u64,
    /// Process id of its first rank, where its own would be taken for another's.
    made_up: Option<u64>,
    /// Track of each rank's process.
    ranks: FxHashMap<Option<u32>, u64>,
    tracks: FxHashMap<(Option<u32>, Lane), u64>,
    /// Numbers of strings, by the table they are in.
    strings: FxHashMap<(u32, String), u64>,
    last_strings: [u64; 4],
    /// Strings that the next packet brings.
    fresh: Message,
    view: View<'c>,
}

impl One<'_, '_, '_> {
    fn calls(&mut self) -> Result<(), ExportError> {
        let trace = self.view.trace;
        let order = self.view.by_entry();
        let drawn = lanes::assign(trace, &order, |call| (self.view.rank(call).unwrap_or(u32::MAX), call.comm.0));
        let mut steps = StepMarks::of(trace);
        for at in order {
            let (Some(call), Some(&drawn)) = (trace.calls.get(at), drawn.get(at)) else { continue };
            let step = steps.of_call(call);
            self.call(call, drawn, step)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Call, drawn: Drawn, step: Option<u64>) -> Result<(), ExportError> {
        let rank = self.view.rank(call);
        let (lane, kind) = match drawn {
            Drawn::Whole(lane) | Drawn::Open(lane) => (lane, event::SLICE_BEGIN),
            Drawn::Instant => (0, event::INSTANT),
        };
        let title = self.view.comm(call.comm).map_or_else(|| "no communicator".to_owned(), |known| known.0.to_owned());
        let track = self.track(rank, Lane::Comm(call.comm.0, lane), &title)?;
        let mut body = Message::default();
        body.uint(event::TYPE, kind).uint(event::TRACK_UUID, track);
        let category = category(call);
        let number = self.number(interned::CATEGORIES, category);
        if let Some(number) = number {
            body.uint(event::CATEGORY_IIDS, number);
        }
        let name = phrase(&self.view, call);
        self.name(&mut body, &name);
        if let Some(flow) = flow(&self.view, call) {
            body.fixed64(event::FLOW_IDS, flow);
        }
        self.annotate(&mut body, call, step);
        self.event(call.enter, &body)?;
        if let (Drawn::Whole(_), Some(exit)) = (drawn, call.exit) {
            let mut end = Message::default();
            end.uint(event::TYPE, event::SLICE_END).uint(event::TRACK_UUID, track);
            self.event(exit.max(call.enter), &end)?;
        }
        Ok(())
    }

    fn annotate(&mut self, body: &mut Message, call: &Call, step: Option<u64>) {
        let bytes = self.view.bytes(call);
        let numbers = [
            ("seq", call.seq),
            ("count", call.count),
            ("bytes", bytes),
            ("root", call.root.map(u64::from)),
            ("peer", call.peer.map(u64::from)),
            ("thread", Some(u64::from(call.thread))),
            ("thread_seq", Some(call.thread_seq)),
            ("group", (call.group != 0).then_some(u64::from(call.group))),
            ("send_elements", elements(&call.sends)),
            ("recv_elements", elements(&call.recvs)),
            ("step", step),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                self.annotation(body, name, |message| message.uint(annotation::UINT, value));
            }
        }
        for (name, value) in [("tag", call.tag), ("result", call.result)] {
            if let Some(value) = value {
                self.annotation(body, name, |message| message.int(annotation::INT, value));
            }
        }
        if call.stream != 0 {
            self.annotation(body, "stream", |message| message.uint(annotation::POINTER, call.stream));
        }
        let comm = self.view.comm(call.comm).and_then(|known| identity(known.1.identity));
        let texts = [
            ("comm", comm),
            ("dtype", self.view.dtype(call.dtype)),
            ("flags", flags(call)),
            ("site", self.view.site(call.site).map(|site| site.text.clone())),
            ("label", self.view.label(call.label).map(str::to_owned)),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                self.text(body, name, &text);
            }
        }
    }

    /// Gaps, step marks, states and log lines.
    fn marks(&mut self) -> Result<(), ExportError> {
        let trace = self.view.trace;
        let rank = self.view.own_rank();
        for mark in &trace.steps {
            let track = self.track(rank, Lane::Steps, "steps")?;
            self.instant(track, mark.at, &format!("step {}", mark.step), &[])?;
        }
        let first = trace.calls.iter().map(|call| call.enter).min();
        for gap in &trace.gaps {
            let many = gap.events.map_or_else(|| "calls".to_owned(), |events| format!("{events} calls"));
            let name = format!("gap: {many} {}", gap.cause.describe());
            let track = self.track(rank, Lane::Events, "events")?;
            // A gap from the start has no time of its own.
            let at = if gap.after > 0 { gap.after } else { first.unwrap_or(0).min(gap.before) };
            let bounds = [("after_ns", gap.after), ("before_ns", gap.before)];
            self.instant(track, at, &name, &bounds)?;
        }
        for state in &trace.states {
            let track = self.track(rank, Lane::Events, "events")?;
            self.instant(track, state.at, &state.life.to_string(), &[])?;
        }
        for line in trace.logs.iter().filter(|line| line.at > 0) {
            let track = self.track(rank, Lane::Events, "events")?;
            self.instant(track, line.at, &format!("log: {}", line.text), &[])?;
        }
        Ok(())
    }

    fn instant(&mut self, track: u64, at: u64, name: &str, numbers: &[(&str, u64)]) -> Result<(), ExportError> {
        let mut body = Message::default();
        body.uint(event::TYPE, event::INSTANT).uint(event::TRACK_UUID, track);
        self.name(&mut body, name);
        for &(name, value) in numbers {
            self.annotation(&mut body, name, |message| message.uint(annotation::UINT, value));
        }
        self.event(at, &body)
    }

    fn name(&mut self, body: &mut Message, name: &str) {
        match self.number(interned::NAMES, name) {
            Some(number) => body.uint(event::NAME_IID, number),
            None => body.text(event::NAME, name.as_bytes()),
        };
    }

    fn annotation(&mut self, body: &mut Message, name: &str, value: impl FnOnce(&mut Message) -> &mut Message) {
        // There are few names.
        if let Some(number) = self.number(interned::ANNOTATION_NAMES, name) {
            let mut message = Message::default();
            message.uint(annotation::NAME_IID, number);
            value(&mut message);
            body.message(event::DEBUG_ANNOTATIONS, &message);
        }
    }

    fn text(&mut self, body: &mut Message, name: &str, text: &str) {
        let number = self.number(interned::ANNOTATION_TEXTS, text);
        self.annotation(body, name, |message| match number {
            Some(number) => message.uint(annotation::TEXT_IID, number),
            None => message.text(annotation::TEXT, text.as_bytes()),
        });
    }

    /// The number of a string of a table; `None` if there are too many.
    fn number(&mut self, table: u32, text: &str) -> Option<u64> {
        let key = (table, text.to_owned());
        if let Some(&number) = self.strings.get(&key) {
            return Some(number);
        }
        let slot = match table {
            interned::CATEGORIES => 0,
            interned::NAMES => 1,
            interned::ANNOTATION_NAMES => 2,
            _ => 3,
        };
        let last = self.last_strings.get_mut(slot)?;
        if *last >= MOST_STRINGS {
            return None;
        }
        *last += 1;
        let number = *last;
        let mut entry = Message::default();
        entry.uint(interned::IID, number).text(interned::TEXT, text.as_bytes());
        self.fresh.message(table, &entry);
        self.strings.insert(key, number);
        Some(number)
    }

    /// Writes an event, with the strings that it is the first to use.
    fn event(&mut self, at: u64, body: &Message) -> Result<(), ExportError> {
        let time = u64::try_from(self.view.job_time(at)).unwrap_or(0);
        let mut whole = Message::default();
        whole.uint(packet::TIMESTAMP, time).uint(packet::SEQUENCE_ID, self.sequence);
        let cleared = if self.begun { 0 } else { packet::STATE_CLEARED };
        self.begun = true;
        whole.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE | cleared);
        if !self.fresh.bytes().is_empty() {
            whole.message(packet::INTERNED_DATA, &self.fresh);
            self.fresh.clear();
        }
        whole.message(packet::TRACK_EVENT, body);
        self.out.packet(&whole)
    }

    /// The track below a rank's process, described when it is first used.
    fn track(&mut self, rank: Option<u32>, lane: Lane, title: &str) -> Result<u64, ExportError> {
        if let Some(&track) = self.tracks.get(&(rank, lane)) {
            return Ok(track);
        }
        let parent = self.process_track(rank)?;
        let uuid = self.uuid();
        let mut descriptor = Message::default();
        descriptor.uint(track::UUID, uuid).uint(track::PARENT_UUID, parent).text(track::NAME, title.as_bytes());
        self.describe(&descriptor)?;
        self.tracks.insert((rank, lane), uuid);
        Ok(uuid)
    }

    fn process_track(&mut self, rank: Option<u32>) -> Result<u64, ExportError> {
        if let Some(&track) = self.ranks.get(&rank) {
            return Ok(track);
        }
        let uuid = self.uuid();
        let key = &self.view.process.key;
        let name = rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
        let mut process = Message::default();
        let pid = self.made_up.map_or(u64::from(key.pid), |made_up| made_up + self.ranks.len() as u64);
        process.uint(track::PROCESS_PID, pid & 0x7fff_ffff);
        process.uint(track::PROCESS_SORT_INDEX, rank.map_or(u64::from(u32::MAX >> 1), u64::from) & 0x7fff_ffff);
        process.text(track::PROCESS_NAME, name.as_bytes());
        process.text(track::PROCESS_LABELS, format!("{} pid {}", key.host, key.pid).as_bytes());
        let mut descriptor = Message::default();
        descriptor.uint(track::UUID, uuid).message(track::PROCESS, &process);
        self.describe(&descriptor)?;
        self.ranks.insert(rank, uuid);
        Ok(uuid)
    }

    fn describe(&mut self, descriptor: &Message) -> Result<(), ExportError> {
        let mut whole = Message::default();
        whole.uint(packet::SEQUENCE_ID, self.sequence).message(packet::TRACK_DESCRIPTOR, descriptor);
        self.out.packet(&whole)
    }

    fn uuid(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track
    }
}

fn category(call: &Call) -> &'static str {
    match call.op.kind() {
        OpKind::Collective => "collective",
        OpKind::PointToPoint => "point-to-point",
        OpKind::CommCreate | OpKind::CommFree => "communicator",
        OpKind::Lifecycle => "lifecycle",
        OpKind::Group => "group",
        OpKind::Wait => "wait",
    }
}

/// The flow of a call's instance: equal on all its members and nowhere else. Calls that take no position have none.
fn flow(view: &View<'_>, call: &Call) -> Option<u64> {
    let creation = match call.op.kind() {
        OpKind::Collective => 0_u64,
        OpKind::CommCreate => 1,
        _ => return None,
    };
    if call.flags.contains(CallFlags::NESTED) || call.flags.contains(CallFlags::CAPTURED) {
        return None;
    }
    let identity = view.comm(call.comm).map(|known| known.1.identity).filter(|identity| identity.is_known())?;
    let (high, low) = ((identity.0 >> 64) as u64, identity.0 as u64);
    let mut hash = 0_u64;
    for word in [high, low, creation, call.seq?] {
        hash = mix(hash ^ word);
    }
    Some(hash.max(1))
}

/// A permutation of 64 bits that spreads every bit over all (the finalizer of SplitMix64).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
