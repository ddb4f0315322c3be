//! Sends and receives: left out, crossed, of another size or type.

use std::collections::BTreeMap;

use fastrand::Rng;
use rankdiff_trace::RankSet;

use super::evidence;
use super::executed::Executed;
use super::explain::{Story, goes_on};
use super::place::{Ending, Place, Step, document};
use super::truth::{Placed, Truth};
use super::{Case, Fault};
use crate::program::{Event, Program};

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    if fault == Fault::CrossedSends && !program.blocking {
        return None;
    }
    let chosen = Place::choose(rng, program, |event| match event {
        Event::Message { count, .. } => *count > 0 || fault != Fault::MessageType,
        _ => false,
    });
    // The place of some member; those of the two ends count.
    let place = chosen.or_else(|| {
        let at = program.body.iter().position(|event| matches!(event, Event::Message { count, .. } if *count > 0))?;
        let Event::Message { from, .. } = &program.body[at] else { return None };
        Place::of(program, at, *from, rng.u64(0..program.rounds))
    })?;
    let &Event::Message { from, to, count, dtype, .. } = place.event() else { return None };
    let sender = Place::of(program, place.event, from, place.round)?;
    let receiver = Place::of(program, place.event, to, place.round)?;
    let mut changed = BTreeMap::new();
    let mut truth = Truth {
        class: "p2p_mismatch",
        what: None,
        places: vec![Placed { group: place.name().to_owned(), first: Vec::new() }],
        suspects: RankSet::new(),
        or_none: true,
        cycle: None,
        says: "",
    };
    let mut truths = Vec::new();
    let mut guilty = Vec::new();
    match fault {
        Fault::DroppedSend | Fault::DroppedReceive => {
            let dropped = if fault == Fault::DroppedSend { &sender } else { &receiver };
            let mut steps = dropped.steps.clone();
            steps.remove(dropped.at);
            // Nothing tells a rank that left its last call out from one that is late.
            if !goes_on(program, &steps[dropped.at..]) {
                return None;
            }
            changed.insert(dropped.rank, steps.clone());
            truth.suspects = RankSet::from_iter([dropped.rank]);
            guilty.push(dropped.rank);
            truths.push(Truth {
                class: "p2p_deadlock",
                cycle: Some(dropped.rank),
                places: Vec::new(),
                ..truth.clone()
            });
            let executed = Executed::of(&document(program, id, &changed, &Ending::default()));
            // The last of a run of equal messages is one of those that may still come.
            if Story::of(program, dropped.rank, &dropped.steps, &steps, &executed).is_behind() {
                return None;
            }
            let held = program.blocking && executed.is_pending(dropped.rank);
            if !evidence::exists(dropped, &executed, false, held) {
                evidence::undecided(&mut truths, dropped.rank);
            }
        }
        Fault::CrossedSends => {
            // Both send first, then both receive.
            let turned = |text: &str, to: u32| {
                let text = text.replacen("- send", "- recv", 1);
                let words = text
                    .split(' ')
                    .map(|word| if word.starts_with("peer=") { format!("peer={to}") } else { word.to_owned() });
                words.collect::<Vec<_>>().join(" ")
            };
            let own = &sender.steps[sender.at];
            let with_text = |text: String| Step { text, ..own.clone() };
            let mut steps = sender.steps.clone();
            steps.insert(sender.at + 1, with_text(turned(&own.text, to)));
            changed.insert(from, steps);
            let mut steps = receiver.steps.clone();
            let recv = turned(&own.text, from);
            steps.splice(receiver.at..=receiver.at, [with_text(recv.replacen("- recv", "- send", 1)), with_text(recv)]);
            changed.insert(to, steps);
            truth.class = "p2p_deadlock";
            truth.cycle = Some(from);
        }
        Fault::MessageSize | Fault::MessageType => {
            let mut steps = sender.steps.clone();
            let own = &mut steps[sender.at].text;
            let (old, new) = if fault == Fault::MessageSize {
                (format!("send {count} {dtype} "), format!("send {} {dtype} ", count + rng.u64(1..9)))
            } else {
                (format!("send {count} {dtype} "), format!("send {count} {} ", of_same_size(dtype)))
            };
            *own = own.replacen(&old, &new, 1);
            changed.insert(from, steps);
        }
        _ => return None,
    }
    truths.push(truth);
    Some(Case { document: document(program, id, &changed, &Ending::default()), truths, guilty })
}

/// Another element type with elements of the same size.
fn of_same_size(dtype: &str) -> &'static str {
    match dtype {
        "f32" => "i32",
        "f64" => "i64",
        "i64" => "f64",
        "bf16" => "f16",
        "f16" => "bf16",
        _ => "i8",
    }
}
