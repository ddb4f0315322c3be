//! Calls that are left out, made once too often, or made from another place.

use fastrand::Rng;

use super::executed::Executed;
use super::explain::Story;
use super::place::{Ending, Place, Step, document, is_of_size};
use super::truth::Truth;
use super::{Case, Fault};
use crate::program::{Collective, Event, Program, collective};

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let hidden = matches!(fault, Fault::HiddenMissing | Fault::HiddenExtra | Fault::OtherSite);
    let program = if hidden { &with_runs(rng, program)? } else { program };
    let place = Place::choose(rng, program, |event| {
        is_of_size(program, event, 3) && event.has_position() && (!hidden || is_of_run(program, event))
    })?;
    if fault == Fault::OtherSite {
        return other_site(rng, &place, id);
    }
    let mut steps = place.steps.clone();
    match fault {
        Fault::Missing | Fault::HiddenMissing => {
            steps.remove(place.at);
        }
        Fault::Extra => steps.insert(place.at, unknown(rng, &place)),
        _ => steps.insert(place.at, steps[place.at].clone()),
    }
    case(&place, steps, id)
}

/// The case with this stream on the place's rank, its truth by what explains what was executed.
pub(super) fn case(place: &Place<'_>, steps: Vec<Step>, id: &str) -> Option<Case> {
    let program = place.program;
    let document = document(program, id, &place.changed(steps.clone()), &Ending::default());
    let executed = Executed::of(&document);
    let truths = Story::of(program, place.rank, &place.steps, &steps, &executed).answers(place, &executed);
    // Nothing tells a rank that left its last call out from one that is late.
    (!truths.is_empty()).then_some(Case { document, truths, guilty: vec![place.rank] })
}

/// A call that stands nowhere else in the program.
fn unknown(rng: &mut Rng, place: &Place<'_>) -> Step {
    let site = "train.py:900:extra>log_metrics".to_owned();
    let call = match rng.u8(0..3) {
        0 => Collective { op: "scan", count: Some(3), dtype: "i32", redop: Some("sum"), root: None, site },
        1 => Collective { op: "barrier", count: None, dtype: "-", redop: None, root: None, site },
        _ => Collective { op: "all_reduce", count: Some(1), dtype: "f64", redop: Some("max"), root: None, site },
    };
    Step::collective(collective(place.name(), &call), place.group)
}

/// The program with a run of calls of one signature, from sites of their own, at some place of its body.
fn with_runs(rng: &mut Rng, program: &Program) -> Option<Program> {
    let suited: Vec<usize> = (0..program.body.len())
        .filter(|&at| {
            let event = &program.body[at];
            is_of_size(program, event, 3)
                && matches!(event, Event::Collective { call, .. } if !call.site.ends_with("broadcast_object_list"))
        })
        .collect();
    let Event::Collective { call: model, .. } = &program.body[*rng.choice(&suited)?] else { return None };
    // Parallel groups of one kind do the same thing.
    let alike = |event: &Event| matches!(event, Event::Collective { call, .. } if call.site == model.site);
    let last = program.body.iter().rposition(alike)?;
    let mut copies = Vec::new();
    for copy in 0..rng.u32(1..6) {
        for event in program.body.iter().filter(|event| alike(event)) {
            let Event::Collective { group, call } = event else { continue };
            let call = Collective { site: format!("{}>{RUN}{copy}", call.site), ..call.clone() };
            copies.push(Event::Collective { group: *group, call });
        }
    }
    let mut program = program.clone();
    program.body.splice(last + 1..last + 1, copies);
    Some(program)
}

/// How the sites of a run's calls end.
const RUN: &str = "part";

/// Whether an event is one of a run of equal signatures.
fn is_of_run(program: &Program, event: &Event) -> bool {
    let Event::Collective { call, .. } = event else { return false };
    let first = call.site.split(&format!(">{RUN}")).next().unwrap_or_default();
    let follows = format!("{first}>{RUN}0");
    program.body.iter().any(|event| matches!(event, Event::Collective { call, .. } if call.site == follows))
}

/// The same call from a place of the program where another one of the run is made.
fn other_site(rng: &mut Rng, place: &Place<'_>, id: &str) -> Option<Case> {
    let program = place.program;
    let Event::Collective { call, .. } = place.event() else { return None };
    // Both sites are ones where all have met before or meet later: else they may be lines of one's own.
    if program.rounds < 2 {
        return None;
    }
    let sites: Vec<&Collective> = program
        .body
        .iter()
        .filter(|event| event.group() == Some(place.group) && is_of_run(program, event))
        .filter_map(|event| if let Event::Collective { call, .. } = event { Some(call) } else { None })
        .filter(|other| other.site != call.site && (other.op, other.count) == (call.op, call.count))
        .collect();
    let other = *rng.choice(&sites)?;
    let mut steps = place.steps.clone();
    steps[place.at].text = collective(place.name(), other);
    let truth = Truth::of("logical_mismatch", place.name(), vec![place.position(place.at)], place.rank);
    let document = document(program, id, &place.changed(steps), &Ending::default());
    Some(Case { document, truths: vec![truth], guilty: vec![place.rank] })
}
