//! A minority made calls that the majority did not and is out of step since.

use rankdiff_trace::RankSet;

use super::cycles::{self, Sort};
use super::report;
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::awaited::{self, Odd};
use crate::common;
use crate::diverge::Kind;
use crate::finding::{Class, Confidence, Severity};
use crate::merged::{self, Departure, Deviation};
use crate::steps;
use crate::waits::{Instance, Place};
use crate::words::{Who as _, absent_side, counted};

const META: Meta = Meta {
    code: "D003",
    name: "extra-call",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "members made calls that the others did not, and are out of step since",
    doc: "\
## What
Some members agree with the others once a few of their calls are taken out: they made calls of their own. Where call sites
or step marks tell, the report says at which call that was.

## Why
Every later call of these members meets a later one of the others. Calls of equal size hide it; their results are wrong.

## Example
    if rank == 0 and step % 100 == 0:
        log(all_reduce(loss))      # a collective in rank-dependent code

## How to fix
Take the collective out of the condition, and only the logging into it. Everything computed since is void.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    report::each(
        alignment,
        &META,
        found,
        |divergence| matches!(divergence.kind, Kind::Extra(_)),
        |divergence, finding| {
            let Kind::Extra(calls) = divergence.kind else { return };
            report::shifted(divergence, finding, &too_many(&report::minority(alignment, divergence), calls));
        },
    );
    for cycle in cycles::of_sort(alignment, Sort::Deviation) {
        let Some((rank, deviation, instance)) = cycles::culprit(alignment, cycle) else { continue };
        let Some(instance) = alignment.waits.instances.get(instance) else { continue };
        if !deviation.lacks() {
            found.extend(of_surplus(alignment, instance, rank, deviation));
        }
    }
    // A rank that waits alone in a call that nobody else was to make, while the others went on or are done.
    for late in &alignment.late {
        let Some(instance) = alignment.waits.instances.get(late.instance) else { continue };
        let ([waiter], Place::Collective(pos)) = (instance.waiters.as_slice(), instance.place) else { continue };
        let fits = |deviation: &Deviation| {
            let here = deviation.message.is_none() && Some(deviation.comm) == instance.comm && deviation.pos <= pos;
            // Several too many in one call's place are rather another end of the round before.
            deviation.how == Departure::Extra(1) && here
        };
        let odd = instance.comm.map(|comm| Odd { lacks: false, comm, message: None });
        let plain = merged::deviation(alignment, waiter.rank).filter(fits);
        let surplus = plain.or_else(|| awaited::find(alignment, waiter.rank, odd?, 1).filter(fits));
        if let Some(deviation) = surplus {
            found.extend(of_surplus(alignment, instance, waiter.rank, deviation));
        }
    }
}

fn too_many(who: &RankSet, calls: u64) -> String {
    format!("{} made {} more than the others", who.who(), counted(calls, "call"))
}

/// A rank that waits in a call which comes to one more than the others make.
fn of_surplus(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32, deviation: Deviation) -> Option<Raw> {
    let at = instance.comm?;
    let comm = alignment.comm(at)?;
    let Place::Collective(pos) = instance.place else { return None };
    let odd = RankSet::from_iter([rank]);
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(pos);
    finding.first_divergence = deviation.exact.then_some(deviation.pos);
    finding.sides = report::waiting_sides(alignment, instance);
    for other in instance.lacking.iter() {
        let state = report::elsewhere(alignment, other, Some(at));
        match finding.sides.iter_mut().find(|side| side.call.is_none() && side.state == state) {
            Some(side) => {
                side.ranks.insert(other);
            }
            None => finding.sides.push(absent_side(RankSet::from_iter([other]), state)),
        }
    }
    // One of two members is no minority.
    if comm.members.len() > 2 {
        finding.suspects = odd.clone();
    }
    let (direct, transitive) = alignment.waits.victims(&odd);
    finding.waiting = odd.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
    finding.direct_victims = direct;
    finding.transitive_victims = transitive;
    finding.collateral_exits = alignment.deaths.collateral.clone();
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
    finding.confidence = report::confidence(alignment, at, comm).min(Confidence::Medium);
    let call = report::waiter_text(alignment, instance, instance.waiters.first()?);
    let place = report::place_phrase(alignment, instance, &call);
    let at_or_before = if deviation.exact { "at" } else { "at or before" };
    let extra = too_many(&odd, deviation.calls());
    finding.headline = format!("{extra} {at_or_before} call {}; it waits in {place}", deviation.pos);
    finding.detail.push(report::who_says(&deviation).to_owned());
    let track = alignment.tracks(at).iter().find(|track| track.rank == rank);
    finding.step = track.and_then(|track| steps::position(track, deviation.pos));
    // Whoever has not come here is not to blame for it.
    let roots = odd.union(&instance.lacking);
    let mut raw = Raw { finding, rule: Rule::Cycle, at: instance.since, roots, open: true, comm: Some(at) };
    report::not_to_be_trusted(&mut raw, &comm.display());
    Some(raw)
}
