//! Another operation, argument or form at one call.

use std::collections::BTreeMap;

use fastrand::Rng;
use rankdiff_trace::RankSet;

use super::place::{Ending, Place, Step, document, is_of_size};
use super::truth::Truth;
use super::{Case, Fault};
use crate::program::{Collective, Event, Program, collective};

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let place = Place::choose(rng, program, |event| is_of_size(program, event, 3) && applies(fault, event))?;
    if fault == Fault::OtherForm
        && (!program.blocking || program.groups[place.group].level.is_some_and(|level| level != "mpi"))
    {
        // Only one family of libraries tells the two forms apart.
        return None;
    }
    let (name, rank) = (place.name(), place.rank);
    let mut truth = Truth::of("parameter_mismatch", name, vec![place.position(place.at)], rank);
    let texts: Vec<(u32, String)> = match (fault, place.event()) {
        (Fault::OtherOp, event) => {
            truth.class = "code_divergence";
            vec![(rank, collective(name, &other_op(rng, event, program.groups[place.group].level)))]
        }
        (Fault::OtherForm, Event::Collective { call, .. }) => {
            truth.class = "code_divergence";
            let other = call.op.strip_prefix('i').map_or_else(|| format!("- i{} ", call.op), |op| format!("- {op} "));
            vec![(rank, collective(name, call).replacen(&format!("- {} ", call.op), &other, 1))]
        }
        (Fault::OtherSplits | Fault::OtherSplit, Event::Splits { .. }) => {
            truth.what = Some("splits");
            let text = other_splits(rng, &place, if fault == Fault::OtherSplits { 2 } else { 1 })?;
            if fault == Fault::OtherSplit {
                // One pair that disagrees has no majority.
                truth.suspects = RankSet::new();
            }
            vec![(rank, text)]
        }
        (Fault::OwnRoot, Event::Collective { call, .. }) => {
            truth.what = Some("root");
            truth.suspects = RankSet::new();
            truth.says = "every rank names itself";
            let own = |&member: &u32| (member, collective(name, &Collective { root: Some(member), ..call.clone() }));
            place.members().iter().map(own).collect()
        }
        (_, Event::Collective { call, .. }) => {
            truth.what = Some(what(fault)?);
            if fault == Fault::GroupRankAsRoot {
                truth.says = "group rank was used as a global rank";
            }
            vec![(rank, collective(name, &other_argument(rng, call, fault, place.members())?))]
        }
        _ => return None,
    };
    let mut changed = BTreeMap::new();
    for (member, text) in texts {
        let own = Place::of(program, place.event, member, place.round)?;
        let mut steps = own.steps;
        steps[own.at] = Step { text, ..steps[own.at].clone() };
        changed.insert(member, steps);
    }
    let guilty = changed.keys().copied().collect();
    Some(Case { document: document(program, id, &changed, &Ending::default()), truths: vec![truth], guilty })
}

fn applies(fault: Fault, event: &Event) -> bool {
    let Event::Collective { call, .. } = event else {
        return match event {
            Event::Splits { .. } => matches!(fault, Fault::OtherSplits | Fault::OtherSplit | Fault::OtherOp),
            Event::Uneven { .. } => fault == Fault::OtherOp,
            _ => false,
        };
    };
    let has_elements = call.count.is_some_and(|count| count > 0);
    match fault {
        Fault::OtherCount => call.count.is_some(),
        Fault::OtherDtype => has_elements,
        Fault::OtherReduction => call.redop.is_some() && has_elements,
        Fault::OtherRoot | Fault::GroupRankAsRoot | Fault::OwnRoot => call.root.is_some(),
        Fault::OtherSplits | Fault::OtherSplit => false,
        _ => true,
    }
}

fn what(fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::OtherCount => Some("count"),
        Fault::OtherDtype => Some("dtype"),
        Fault::OtherReduction => Some("redop"),
        Fault::OtherRoot | Fault::GroupRankAsRoot => Some("root"),
        _ => None,
    }
}

/// A call of another operation, at a site of its own.
fn other_op(rng: &mut Rng, event: &Event, level: Option<&str>) -> Collective {
    let mut ops = vec!["all_gather", "all_to_all", "barrier", "reduce_scatter"];
    let own = match event {
        Event::Collective { call, .. } => call.op,
        Event::Uneven { op, .. } => op,
        _ => "all_to_all",
    };
    ops.retain(|op| !own.ends_with(op) && !own.ends_with(&format!("{op}v")));
    if level.is_some() {
        // Below a framework a barrier is another call.
        ops.retain(|op| *op != "barrier");
    }
    let op = ops[rng.usize(0..ops.len())];
    let redop = (op == "reduce_scatter").then_some("sum");
    let (count, dtype) = if op == "barrier" { (None, "-") } else { (Some(rng.u64(1..9)), "f32") };
    Collective { op, count, dtype, redop, root: None, site: "train.py:901:other>evaluate".to_owned() }
}

fn other_argument(rng: &mut Rng, call: &Collective, fault: Fault, members: &[u32]) -> Option<Collective> {
    let mut call = call.clone();
    match fault {
        Fault::OtherCount => call.count = Some(call.count? + rng.u64(1..9)),
        Fault::OtherDtype => call.dtype = if call.dtype == "f32" { "f16" } else { "f32" },
        Fault::OtherReduction => call.redop = if call.redop == Some("sum") { Some("max") } else { Some("sum") },
        Fault::OtherRoot => {
            let others: Vec<u32> = members.iter().copied().filter(|&member| Some(member) != call.root).collect();
            call.root = Some(*rng.choice(&others)?);
        }
        Fault::GroupRankAsRoot => {
            let root = call.root?;
            let own = members.iter().position(|&member| member == root)? as u32;
            let as_global = Some(own).filter(|own| members.contains(own));
            let as_local = members.get(root as usize).copied();
            let wrong = [as_global, as_local].into_iter().flatten().find(|&wrong| wrong != root);
            call.root = Some(wrong?);
        }
        _ => return None,
    }
    Some(call)
}

/// The rank's own splits with one element more for so many members.
fn other_splits(rng: &mut Rng, place: &Place<'_>, pairs: usize) -> Option<String> {
    let Event::Splits { dtype, site, matrix, .. } = place.event() else { return None };
    let members = place.members();
    let me = members.iter().position(|&member| member == place.rank)?;
    let mut sends = matrix.get(me)?.clone();
    let receives: Vec<u64> = matrix.iter().map(|row| row[me]).collect();
    let first = rng.usize(1..members.len());
    for other in 0..pairs {
        // Never to itself: that is no pair.
        let target = (me + 1 + (first - 1 + other) % (members.len() - 1)) % members.len();
        sends[target] += 1;
    }
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let sum: u64 = sends.iter().sum();
    Some(format!(
        "- all_to_all {sum} {dtype} @{} {site} splits=[{}] recv_splits=[{}]",
        place.name(),
        list(&sends),
        list(&receives)
    ))
}
