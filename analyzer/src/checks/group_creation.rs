//! Members of a communicator-to-be that did not call its creation, or meant another group.

use rankdiff_trace::RankSet;

use super::cycles::{self, Sort};
use super::{Check, Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::common;
use crate::creation::Creation;
use crate::finding::{Class, Severity, Side};
use crate::waits::Place;
use crate::words::{Who as _, absent_side, call_text};

const META: Meta = Meta {
    code: "H002",
    name: "group-creation",
    severity: Severity::Error,
    class: Class::GroupCreation,
    summary: "a communicator's creation was not called by all who must, or not for the same group",
    doc: "\
## What
Creating a communicator is a collective call. Some of those who must take part are in other calls, or take part with
another list of ranks.

## Why
The callers wait for the others for ever; or each part makes a group of its own under one name.

## Example
    if rank in ranks:
        group = dist.new_group(ranks)      # all ranks of the job must call this

## How to fix
Call the creation on all ranks of the parent, in one order, with the same lists; ranks that are not in the list throw
the handle away.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    for cycle in cycles::of_sort(alignment, Sort::Creation) {
        let creation = cycle.instances.iter().find_map(|&at| {
            let instance = alignment.waits.instances.get(at)?;
            match instance.place {
                Place::Creation(creation) => Some((instance, creation, alignment.waits.creations.get(creation)?)),
                _ => None,
            }
        });
        let Some((instance, creation_at, creation)) = creation else { continue };
        let mut raw = cycles::finding(alignment, cycle, &META, Rule::Creation);
        let finding = &mut raw.finding;
        finding.group = creation.comm.and_then(|comm| alignment.comm(comm)).map(|comm| comm.reference());
        finding.missing_callers = instance.lacking.clone();
        finding.sides = report::waiting_sides(alignment, instance);
        for rank in instance.lacking.iter() {
            let state = report::elsewhere(alignment, rank, instance.comm.filter(|_| false));
            match finding.sides.iter_mut().find(|side| side.call.is_none() && side.state == state) {
                Some(side) => {
                    side.ranks.insert(rank);
                }
                None => finding.sides.push(absent_side(RankSet::from_iter([rank]), state)),
            }
        }
        let callers = instance.waiting();
        // Those who left it out are named; with as many callers as others nobody can say who is right, except that all must.
        // Where each side is in another creation, only a majority tells which one comes first.
        let creates = |rank: u32| {
            let mut waits = alignment.waits.of_rank(rank);
            waits.any(|instance| matches!(instance.place, Place::Creation(_)))
        };
        let is_order = instance.lacking.iter().all(creates);
        if !is_order || callers.len() > instance.lacking.len() {
            finding.suspects = instance.lacking.clone();
        }
        if is_order {
            finding.detail.push(
                "the ranks are in creations of different communicators: they create them in different orders"
                    .to_owned(),
            );
        }
        if callers.len() < instance.lacking.len() {
            finding
                .detail
                .push(format!("only {} called it: perhaps the call stands in rank-dependent code", callers.who()));
        }
        let name = creation.comm.and_then(|comm| alignment.comm(comm)).map(|comm| comm.display()).unwrap_or_default();
        let verb = if instance.lacking.len() == 1 { "has" } else { "have" };
        let wait = if instance.waiters.len() == 1 { "waits" } else { "wait" };
        let op = creation.callers.first().map(|caller| caller.call.op.name()).unwrap_or_default();
        let place = if report::makes(alignment, creation_at) {
            format!("the creation of {name}")
        } else {
            format!("{} of {name}", op.to_uppercase())
        };
        finding.headline =
            format!("{} {wait} in {place}, which {} {verb} not called", callers.who(), instance.lacking.who());
        finding.common = common::shared(alignment, &finding.suspects, &callers.union(&instance.lacking));
        found.push(raw);
    }
    for creation in alignment.waits.creations.iter().filter(|creation| !creation.conflict.is_empty()) {
        found.extend(of_conflict(alignment, creation));
    }
}

fn of_conflict(alignment: &Alignment<'_>, creation: &Creation<'_>) -> Option<Raw> {
    let mut finding = blank(&META);
    let comm = creation.comm.and_then(|comm| alignment.comm(comm));
    finding.group = comm.map(|comm| comm.reference());
    for ranks in &creation.conflict {
        let caller = creation.callers.iter().find(|caller| {
            alignment.attempt.streams.get(caller.stream).is_some_and(|stream| ranks.contains(stream.rank))
        })?;
        let call = call_text(alignment, comm, caller.stream, caller.call);
        let made = caller.made.and_then(|made| alignment.comm(made));
        let state = made.map(|made| format!("for {} of ranks {}", made.display(), made.ranks())).unwrap_or_default();
        finding.sides.push(Side { ranks: ranks.clone(), call: Some(call), state });
    }
    let total: usize = creation.conflict.iter().map(RankSet::len).sum();
    if creation.conflict.first().is_some_and(|largest| largest.len() * 2 > total) {
        finding.suspects =
            creation.conflict.iter().skip(1).flat_map(|ranks| ranks.iter().collect::<Vec<_>>()).collect();
    }
    let at = creation.callers.iter().map(|caller| alignment.entered(caller.stream, caller.call)).min()?;
    let open = creation.callers.iter().any(|caller| caller.pending);
    let pending: RankSet = creation
        .callers
        .iter()
        .filter(|caller| caller.pending)
        .filter_map(|caller| alignment.attempt.streams.get(caller.stream).map(|stream| stream.rank))
        .collect();
    finding.waiting = pending;
    finding.missing_callers = creation.missing.clone();
    finding.headline = format!(
        "{} creations at one place do not fit: {}",
        creation.conflict.len(),
        finding.sides.iter().map(|side| format!("{} {}", side.ranks.who(), side.state)).collect::<Vec<_>>().join(", ")
    );
    let roots = creation.conflict.iter().flat_map(|ranks| ranks.iter().collect::<Vec<_>>()).collect();
    Some(Raw { finding, rule: Rule::Differ, at, roots, open, comm: creation.comm })
}
