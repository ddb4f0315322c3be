//! Calls in another order, and calls on another communicator.

use fastrand::Rng;

use super::evidence;
use super::executed::Executed;
use super::explain::Story;
use super::place::{Ending, Place, Step, document, is_of_size, position};
use super::truth::{Placed, Truth};
use super::{Case, Fault, calls};
use crate::program::{Event, Program, collective};

/// How far apart calls are that are taken for each other.
const FAR: usize = 4;

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let place = Place::choose(rng, program, |event| is_of_size(program, event, 3) && event.has_position())?;
    if fault == Fault::OtherGroup {
        return other_group(rng, &place, id);
    }
    let later = later_call(rng, &place, fault)?;
    let mut steps = place.steps.clone();
    if fault == Fault::Moved {
        steps[place.at..=later].rotate_left(1);
    } else {
        steps.swap(place.at, later);
    }
    let document = document(program, id, &place.changed(steps.clone()), &Ending::default());
    let executed = Executed::of(&document);
    let healthy = Executed::of(&super::place::document(program, id, &Default::default(), &Ending::default()));
    if executed.same_on_each(&healthy) && !executed.hangs() {
        return Some(Case { document, truths: Vec::new(), guilty: vec![place.rank] });
    }
    let truths = Story::of(program, place.rank, &place.steps, &steps, &executed).answers(&place, &executed);
    (!truths.is_empty()).then_some(Case { document, truths, guilty: vec![place.rank] })
}

/// The call behind the place that it changes places with.
fn later_call(rng: &mut Rng, place: &Place<'_>, fault: Fault) -> Option<usize> {
    let steps = &place.steps;
    let own = steps.get(place.at)?;
    let shared = |step: &Step| step.group.is_some_and(|group| place.program.groups[group].ranks.len() > 1);
    let behind = (place.at + 1..steps.len()).filter(|&at| steps[at].positional && shared(&steps[at]));
    if fault == Fault::SwappedGroups {
        return behind.take(1).find(|&at| steps[at].group != own.group);
    }
    // The next calls of the group; those of other groups stay where they are.
    let same: Vec<usize> = behind.filter(|&at| steps[at].group == own.group).take(FAR).collect();
    let chosen = match fault {
        Fault::Swapped => *same.first()?,
        _ => *same.get(rng.usize(1..FAR))?,
    };
    // Calls of one signature from other sites are another fault.
    let differs = |a: &Step, b: &Step| signature(&a.text) != signature(&b.text);
    let between = same.iter().take_while(|&&at| at <= chosen).all(|&at| differs(&steps[at], own));
    between.then_some(chosen)
}

/// A call's text without its site.
fn signature(text: &str) -> Vec<&str> {
    text.split_whitespace().enumerate().filter(|(at, _)| *at != 5).map(|(_, word)| word).collect()
}

/// The same call on another communicator that the rank is in.
fn other_group(rng: &mut Rng, place: &Place<'_>, id: &str) -> Option<Case> {
    let (program, rank) = (place.program, place.rank);
    let Event::Collective { call, .. } = place.event() else { return None };
    let others: Vec<usize> = (0..program.groups.len())
        .filter(|&at| {
            let members = &program.groups[at].ranks;
            let roots = call.root.is_none_or(|root| members.contains(&root));
            at != place.group && members.len() > 1 && members.contains(&rank) && roots
        })
        .collect();
    let other = *rng.choice(&others)?;
    let name = &program.groups[other].name;
    let mut steps = place.steps.clone();
    steps[place.at].text = collective(name, call);
    steps[place.at].group = Some(other);
    let mut case = match calls::case(place, steps.clone(), id) {
        Some(case) => case,
        None => {
            let document = document(program, id, &place.changed(steps.clone()), &Ending::default());
            Case { document, truths: Vec::new(), guilty: vec![rank] }
        }
    };
    let mut truth = Truth::of("code_divergence", place.name(), vec![place.position(place.at)], rank);
    // One of two members is no minority.
    truth.or_none = program.groups[other].ranks.len() < 3;
    truth.places.push(Placed { group: name.clone(), first: vec![position(&place.steps, place.at, other)] });
    case.truths.push(truth);
    let executed = Executed::of(&case.document);
    if program.blocking && executed.is_pending(rank) && !evidence::is_followed(&executed, rank) {
        evidence::undecided(&mut case.truths, rank);
    }
    Some(case)
}
