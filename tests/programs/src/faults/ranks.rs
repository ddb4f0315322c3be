//! Ranks that end, are late or stopped, and calls that a device does not complete.

use std::collections::BTreeMap;

use fastrand::Rng;
use rankdiff_trace::RankSet;

use super::executed::Executed;
use super::place::{Ending, Place, Step, document, is_of_size, stream};
use super::truth::{Placed, Truth};
use super::{Case, Fault};
use crate::program::{Event, Program};

/// From the last call to when the recorder looked, ms: longer than what counts as late.
const PATIENCE: u64 = 61_000;

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let place = Place::choose(rng, program, |event| is_of_size(program, event, 3) && event.has_position())?;
    if matches!(fault, Fault::DeviceStall | Fault::MemberStall) {
        return stalled(&place, fault, id);
    }
    let rank = place.rank;
    let mut steps = place.steps.clone();
    steps.truncate(place.at);
    let changed = place.changed(steps);
    let mut ending = Ending::default();
    let seconds = PATIENCE / 1000;
    let (class, end, thread) = match fault {
        Fault::Killed => {
            let by = ["oom_killer", "user", "unknown"][rng.usize(0..3)];
            ("rank_failed", format!("{{signal: {}, by: {by}}}", [9, 11, 6][rng.usize(0..3)]), "")
        }
        Fault::Left => ("uneven_inputs", "{exited: 0}".to_owned(), ""),
        Fault::Failed => ("rank_failed", format!("{{exited: {}}}", rng.u8(1..120)), ""),
        Fault::Slow => (
            "straggler",
            "alive_running".to_owned(),
            "{name: main, state: running, cpu_ms: 60000, python: \"train.py:5:main>tokenize\"}",
        ),
        Fault::Stopped => ("host_stall", "alive_stopped".to_owned(), "{name: main, state: stopped}"),
        Fault::DriverStall => (
            "driver_stall",
            "alive_blocked".to_owned(),
            "{name: main, state: blocked, syscall: ioctl, device: /dev/gpu0, request: 0xc0104b05, each_ms: 10240, times: 5}",
        ),
        Fault::HostStall => (
            "host_stall",
            "alive_waiting".to_owned(),
            "{name: main, state: sleeping, syscall: futex, cpu_ms: 5, python: \"train.py:9:loop>queue.get\"}",
        ),
        _ => return None,
    };
    ending.ends.insert(rank, end);
    if !thread.is_empty() {
        ending.lines.push(format!("evidence: {{\"{rank}\": {{threads: [{thread}]}}}}"));
    }
    // Where a rank is at work the recorder would look at once.
    let last = Executed::of(&document(program, id, &changed, &ending)).last_entry();
    ending.lines.push(format!("snapshot_t: {}", last / 1_000_000 + seconds * 1000));
    let document = document(program, id, &changed, &ending);
    let mut truth = Truth::of(class, "", Vec::new(), rank);
    truth.places = first_waits(program, &Executed::of(&document), rank);
    Some(Case { document, truths: vec![truth], guilty: vec![rank] })
}

/// The calls in which others waited for a rank first.
fn first_waits(program: &Program, executed: &Executed, rank: u32) -> Vec<Placed> {
    let mut found: Vec<(u64, Placed)> = Vec::new();
    let own = &executed.0[rank as usize];
    for group in program.groups.iter().filter(|group| group.ranks.contains(&rank)) {
        let made =
            own.iter().filter(|made| made.group == group.name && made.op.is_collective() && !made.captured).count();
        for &member in group.ranks.iter().filter(|&&member| member != rank) {
            let calls = &executed.0[member as usize];
            let mut collectives =
                calls.iter().filter(|made| made.group == group.name && made.op.is_collective() && !made.captured);
            let place = |first: Vec<u64>| Placed { group: group.name.clone(), first };
            if let Some(waits) = collectives.nth(made) {
                found.push((waits.enter, place(vec![made as u64])));
            }
            let message = calls.iter().find(|made| {
                made.group == group.name && made.peer == Some(rank) && made.pending && !made.op.is_collective()
            });
            found.extend(message.map(|made| (made.enter, place(Vec::new()))));
        }
    }
    let Some(first) = found.iter().map(|one| one.0).min() else { return Vec::new() };
    found.into_iter().filter(|one| one.0 == first).map(|one| one.1).collect()
}

/// A call that every member entered and that does not complete, on all of them or on one.
fn stalled(place: &Place<'_>, fault: Fault, id: &str) -> Option<Case> {
    let program = place.program;
    if matches!(place.event(), Event::Collective { call, .. } if program.blocking && call.op.starts_with('i')) {
        // What follows a call that does not hold its rank goes on as if nothing were.
        return None;
    }
    let alone = fault == Fault::MemberStall;
    let mut streams: BTreeMap<u32, Vec<Step>> = (0..program.world).map(|rank| (rank, stream(program, rank))).collect();
    let stalled: Vec<u32> = if alone { vec![place.rank] } else { place.members().to_vec() };
    for &rank in &stalled {
        let own = Place::of(program, place.event, rank, place.round)?;
        let flag = if alone { " incomplete" } else { " pending" };
        streams.get_mut(&rank)?[own.at].text.push_str(flag);
    }
    if !program.blocking {
        // Nothing is complete behind it on its communicator; others have device streams of their own.
        for &rank in place.members() {
            let own = Place::of(program, place.event, rank, place.round)?;
            let later = streams.get_mut(&rank)?.iter_mut().skip(own.at + 1);
            later.filter(|step| step.group == Some(place.group)).for_each(hold);
        }
    }
    let mut truth = Truth::of("device_stall", place.name(), vec![place.position(place.at)], place.rank);
    if !alone {
        truth.suspects = RankSet::new();
    }
    let guilty = if alone { stalled } else { Vec::new() };
    let document = document(program, id, &streams, &Ending::default());
    Some(Case { document, truths: vec![truth], guilty })
}

/// Marks a step's calls as not complete.
fn hold(step: &mut Step) {
    if step.text.contains(" captured") || !step.text.contains(" @") {
        return;
    }
    if step.text.starts_with("- {") {
        let parts: Vec<String> = step
            .text
            .split('"')
            .enumerate()
            .map(|(at, part)| if at % 2 == 1 { format!("{part} pending") } else { part.to_owned() })
            .collect();
        step.text = parts.join("\"");
    } else {
        step.text.push_str(" pending");
    }
}
