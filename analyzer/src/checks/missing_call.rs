//! A minority lacks calls that the majority made and is out of step since.

use rankdiff_trace::RankSet;

use super::cycles::{self, Sort};
use super::report;
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::common;
use crate::diverge::Kind;
use crate::finding::{Class, Confidence, Severity};
use crate::merged::{Departure, Deviation};
use crate::steps;
use crate::waits::{Instance, Place};
use crate::words::{Who as _, absent_side, call_phrase, counted, may_be_barrier};

const META: Meta = Meta {
    code: "D002",
    name: "missing-call",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "members lack calls that the others made, and are out of step since",
    doc: "\
## What
Some members agree with the others once a few calls are put in: they left calls out. Where call sites or step marks tell,
the report says at which call that was, which is often long before anything looked wrong.

## Why
Calls of equal size hide a shift: every later call of these members meets an earlier one of the others, and sums up
numbers that do not belong together, until a call of another kind shows it, or never.

## Example
    loss.backward()
    if loss.isnan():        # true on one rank only
        continue            # skips the all_reduce of the gradient norm
    all_reduce(grad_norm)

## How to fix
Decide together whether to skip: reduce the flag first. Everything computed since the first divergence is void.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    report::each(
        alignment,
        &META,
        found,
        |divergence| matches!(divergence.kind, Kind::Lacks(_)),
        |divergence, finding| {
            let Kind::Lacks(calls) = divergence.kind else { return };
            let text = lacking(&report::minority(alignment, divergence), calls);
            report::shifted(divergence, finding, &text);
        },
    );
    for cycle in cycles::of_sort(alignment, Sort::Deviation) {
        let Some((rank, deviation, instance)) = cycles::culprit(alignment, cycle) else { continue };
        if !deviation.lacks() || deviation.message.is_some() {
            continue;
        }
        let Some(instance) = alignment.waits.instances.get(instance) else { continue };
        found.extend(of_absence(alignment, instance, rank, Some(deviation), Rule::Cycle));
    }
    let mut told = RankSet::new();
    // A rank that went on with its program behind a call that others have been waiting in for long.
    for late in &alignment.late {
        let Some(instance) = alignment.waits.instances.get(late.instance) else { continue };
        let collective = matches!(instance.place, Place::Collective(_));
        for rank in late.roots.iter().take(MOST_ROOTS).filter(|_| collective) {
            if let Some(deviation) = report::went_on(alignment, instance, rank) {
                told.insert(rank);
                found.extend(of_absence(alignment, instance, rank, Some(deviation), Rule::Cycle));
            }
        }
    }
    // A rank that waits alone for many, in a call that it made in place of the one in which others wait for it.
    for late in &alignment.late {
        let alone = alignment.waits.instances.get(late.instance).map(|instance| instance.waiters.as_slice());
        let Some([waiter]) = alone else { continue };
        for instance in alignment.waits.for_rank(waiter.rank) {
            if told.contains(waiter.rank) {
                break;
            }
            if let Some(deviation) = report::went_on(alignment, instance, waiter.rank) {
                told.insert(waiter.rank);
                found.extend(of_absence(alignment, instance, waiter.rank, Some(deviation), Rule::Cycle));
            }
        }
    }
    for instance in &alignment.waits.instances {
        for rank in instance.lacking.iter() {
            if told.contains(rank) || !matches!(instance.place, Place::Collective(_)) {
                continue;
            }
            if let Some(deviation) = report::left_out(alignment, instance, rank) {
                told.insert(rank);
                found.extend(of_absence(alignment, instance, rank, deviation, Rule::Gone));
            }
        }
    }
}

fn lacking(who: &RankSet, calls: u64) -> String {
    let verb = if who.len() == 1 { "lacks" } else { "lack" };
    format!("{} {verb} {}", who.who(), counted(calls, "call"))
}

/// Ranks of one wait that are looked at: more than these did not all leave the program by themselves.
const MOST_ROOTS: usize = 64;

/// Whether a rank that made its last call agrees with the others up to there and lacks the next one, not an earlier one:
/// had it left one out before, the calls since would all be alike.
fn ends_there(alignment: &Alignment<'_>, comm: usize, rank: u32, pos: u64) -> bool {
    let compared = alignment.compared.get(comm);
    let agreed = compared.is_some_and(|compared| compared.mismatches.is_empty() && compared.meanings.is_empty());
    let ends = alignment.tracks(comm).iter().any(|track| track.rank == rank && track.end() == pos);
    let Some(before) = pos.checked_sub(1) else { return agreed && ends };
    let alike = alignment.tracks(comm).iter().any(|track| {
        let (next, last) = (alignment.call_at(comm, track, pos), alignment.call_at(comm, track, before));
        next.zip(last).is_none_or(|(next, last)| next.1.meaning() == last.1.meaning()) && track.rank != rank
    });
    agreed && ends && !alike
}

/// A rank that is somewhere else, where others wait for it.
fn of_absence(
    alignment: &Alignment<'_>,
    instance: &Instance<'_>,
    rank: u32,
    deviation: Option<Deviation>,
    rule: Rule,
) -> Option<Raw> {
    let at = instance.comm?;
    let comm = alignment.comm(at)?;
    let Place::Collective(pos) = instance.place else { return None };
    let odd = RankSet::from_iter([rank]);
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(pos);
    finding.first_divergence = match deviation {
        Some(deviation) => deviation.exact.then_some(deviation.pos.min(pos)),
        None => ends_there(alignment, at, rank, pos).then_some(pos),
    };
    finding.sides = report::waiting_sides(alignment, instance);
    let state = alignment.state_of(rank)?;
    let stands = if state.is_gone() { state.ending() } else { report::elsewhere(alignment, rank, Some(at)) };
    finding.sides.push(absent_side(odd.clone(), stands.clone()));
    // One of two members is no minority.
    if instance.waiters.len() > 1 {
        finding.suspects = odd.clone();
    }
    report::held_by(alignment, &odd, &mut finding);
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
    finding.confidence = report::confidence(alignment, at, comm).min(Confidence::Medium);
    let waiter = instance.waiters.first()?;
    let call = report::waiter_text(alignment, instance, waiter);
    let phrase = call_phrase(&call, may_be_barrier(comm, waiter.call.op));
    finding.headline = match deviation {
        Some(deviation) if deviation.how == Departure::Instead => {
            format!("rank {rank} made another call in place of call {} ({phrase}): it {stands}", deviation.pos.min(pos))
        }
        Some(deviation) => {
            let place = if deviation.exact { "at" } else { "at or before" };
            format!("{} {place} call {}: {stands}", lacking(&odd, deviation.calls()), deviation.pos.min(pos))
        }
        None => format!("rank {rank} lacks call {pos} ({phrase}): it {stands}"),
    };
    let waiters = instance.waiting();
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    finding.detail.push(format!(
        "{} {wait} for it in {}",
        waiters.who(),
        report::place_phrase(alignment, instance, &call)
    ));
    if let Some(deviation) = deviation {
        finding.detail.push(report::who_says(&deviation).to_owned());
    }
    let track = alignment.tracks(at).iter().find(|track| track.at(pos).is_some());
    finding.step = track.and_then(|track| steps::position(track, finding.first_divergence.unwrap_or(pos)));
    finding.evidence.extend(report::same_call_elsewhere(alignment, instance));
    let roots = odd.clone();
    let mut raw = Raw { finding, rule, at: instance.since, roots, open: true, comm: Some(at) };
    report::not_to_be_trusted(&mut raw, &comm.display());
    Some(raw)
}
