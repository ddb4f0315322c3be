//! Some members had fewer steps to do and left the loop, while others go on.

use std::cmp::Reverse;

use rankdiff_trace::{Op, RankSet};

use super::report;
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::common;
use crate::diverge::{Kind, is_epilogue};
use crate::finding::{Class, Severity, Side};
use crate::state::How;
use crate::steps::{self, Rhythm};
use crate::waits::{Instance, Place};
use crate::words::{Who as _, absent_side, call_phrase, counted};

const META: Meta = Meta {
    code: "D012",
    name: "uneven-inputs",
    severity: Severity::Error,
    class: Class::UnevenInputs,
    summary: "members have done their steps and left the loop while others go on",
    doc: "\
## What
Some members ended normally, or went on to what follows the loop, after whole steps; others begin another step and wait
for them.

## Why
The members' data sets have unequal numbers of batches. The member with one batch more waits for gradients that never come.

## Example
    for batch in loader:           # 9 batches on rank 1, 10 on rank 0
        step(batch)

## How to fix
Drop or pad the last batches (`drop_last=True`, a distributed sampler), agree on the number of steps first, or use a join
context where the framework has one.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    report::each(
        alignment,
        &META,
        found,
        |divergence| matches!(divergence.kind, Kind::LoopLeft { .. }),
        |divergence, finding| {
            let Kind::LoopLeft { group } = divergence.kind else { return };
            let left = divergence.groups.get(group).map(|group| alignment.ranks_of(divergence.comm, group));
            if let Some(left) = left {
                let verb = if left.len() == 1 { "has" } else { "have" };
                finding.headline = format!("{}: {} {verb} left the loop", finding.headline, left.who());
            }
        },
    );
    let mut told = RankSet::new();
    let mut instances: Vec<&Instance<'_>> = alignment.waits.instances.iter().collect();
    // Of those that began at one time, the one that holds the most: which communicator is listed first says nothing.
    instances.sort_by_key(|instance| (instance.since, Reverse(instance.waiters.len())));
    for instance in instances {
        let gone: RankSet = instance.lacking.iter().filter(|&rank| left(alignment, instance, rank)).collect();
        let gone = gone.difference(&told);
        let place =
            matches!(instance.place, Place::Collective(_) | Place::Creation(_) | Place::Message(_) | Place::FromAny);
        if gone.is_empty() || !place {
            continue;
        }
        told.extend(gone.iter());
        found.extend(of_gone(alignment, instance, &gone));
    }
}

/// Whether a rank ended normally where others wait for it.
fn left(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32) -> bool {
    let Some(state) = alignment.state_of(rank) else { return false };
    if state.aborted.is_some() || alignment.deaths.collateral.contains(rank) {
        return false;
    }
    if report::left_out(alignment, instance, rank).is_some() {
        return false;
    }
    match (&state.ended, state.finalized) {
        (Some((_, How::Exit(0))), None) => true,
        (None | Some((_, How::Exit(0))), Some(_)) => is_whole(alignment, instance, rank) != Some(false),
        _ => false,
    }
}

/// Whether the rank left after whole steps; `None` if there are no steps.
fn is_whole(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32) -> Option<bool> {
    let comm = instance.comm?;
    let track = alignment.tracks(comm).iter().find(|track| track.rank == rank)?;
    Some(Rhythm::before(track, track.end())?.is_whole(track.end()))
}

fn of_gone(alignment: &Alignment<'_>, instance: &Instance<'_>, gone: &RankSet) -> Option<Raw> {
    let comm = instance.comm.and_then(|comm| alignment.comm(comm))?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    let pos = match instance.place {
        Place::Collective(pos) => Some(pos),
        _ => None,
    };
    finding.first_visible = pos;
    finding.first_divergence = pos;
    finding.sides = report::waiting_sides(alignment, instance);
    finding.sides.extend(ended_sides(alignment, gone));
    finding.sides.sort_by_key(|side| Reverse(side.ranks.len()));
    let waiters = instance.waiting();
    // The odd ones out are the minority; of two equal halves, those that are not there.
    finding.suspects = if waiters.len() < gone.len() { waiters.clone() } else { gone.clone() };
    report::held_by(alignment, gone, &mut finding);
    finding.evidence = report::endings(alignment, gone);
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
    finding.confidence = report::confidence(alignment, instance.comm?, comm);
    let waiter = instance.waiters.first()?;
    let call = report::waiter_text(alignment, instance, waiter);
    let ended = if gone.len() == 1 { "has ended" } else { "have ended" };
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    finding.headline = match pos {
        Some(pos) => format!(
            "{} {ended} normally before call {pos}; {} {wait} there in {}",
            gone.who(),
            waiters.who(),
            call_phrase(&call, crate::words::may_be_barrier(comm, waiter.call.op))
        ),
        None => format!(
            "{} {ended} normally while {} {wait} in {}",
            gone.who(),
            waiters.who(),
            report::place_phrase(alignment, instance, &call)
        ),
    };
    let track = alignment.tracks(instance.comm?).iter().find(|track| gone.contains(track.rank));
    if let (Some(track), Some(pos)) = (track, pos) {
        finding.step = steps::position(track, pos);
        if pos > 0 {
            let rhythm = Rhythm::before(track, pos).filter(|rhythm| rhythm.period > 1 && rhythm.is_whole(pos));
            let steps =
                rhythm.map(|rhythm| format!(" ({} of {})", counted(rhythm.count(pos), "whole step"), rhythm.period));
            let steps = steps.unwrap_or_default();
            let text = if pos == 1 {
                "the call before it agrees".to_owned()
            } else {
                format!("the {pos} calls before it agree")
            };
            finding
                .detail
                .push(format!("{text}{steps}: {} left after its last whole step, or had fewer of them", gone.who()));
        }
    }
    if let Some(epilogue) = instance.waiters.iter().find(|waiter| waiter.call.op == Op::Barrier) {
        let text = report::waiter_text(alignment, instance, epilogue);
        if is_epilogue(&text.site) {
            finding.detail.push("the call that is waited in stands behind the loop".to_owned());
        }
    }
    Some(Raw { finding, rule: Rule::Gone, at: instance.since, roots: gone.clone(), open: true, comm: instance.comm })
}

/// Ranks by how they ended.
pub(super) fn ended_sides(alignment: &Alignment<'_>, ranks: &RankSet) -> Vec<Side> {
    let mut sides: Vec<Side> = Vec::new();
    for rank in ranks.iter() {
        let text = alignment.state_of(rank).map(|state| state.ending()).unwrap_or_default();
        match sides.iter_mut().find(|side| side.state == text) {
            Some(side) => {
                side.ranks.insert(rank);
            }
            None => sides.push(absent_side(RankSet::from_iter([rank]), text)),
        }
    }
    sides
}
