//! Members issue collectives of several communicators in one group call, but not in one order.

use rankdiff_trace::{CallFlags, OpKind, RankSet, Semantics};
use rustc_hash::FxHashMap;

use super::{Check, Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::comms::Comm;
use crate::finding::{Class, Confidence, Severity};
use crate::index::takes_position;
use crate::stuck::Stuck;
use crate::words::{Who as _, absent_side, counted};

const META: Meta = Meta {
    code: "W002",
    name: "group-order",
    severity: Severity::Warning,
    class: Class::OrderInversion,
    summary: "members issue collectives of several communicators in one group call in different orders",
    doc: "\
## What
Inside one group call a rank issues collectives of two communicators, and another member of both issues the same two the
other way round.

## Why
A group frees only sends and receives to different peers from their order. Collectives of several communicators are started
in the order in which they were issued: with other resources, sizes or versions each may wait for the other. If the job
hangs at these calls, this is an error, and of medium confidence: a device may be at fault all the same.

## Example
    ncclGroupStart();
    ncclAllReduce(…, first, stream_a);     /* the other ranks: second, then first */
    ncclAllReduce(…, second, stream_b);
    ncclGroupEnd();

## How to fix
Issue the calls of a group in one order of communicators on all ranks.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

/// Batches of several communicators that are looked at on each rank.
const MOST_BATCHES: usize = 4096;
/// Calls of one batch that are compared with one another.
const MOST_CALLS: usize = 16;

/// Two calls of one batch: communicator and position of each, the smaller communicator first.
type Two = ((usize, u64), (usize, u64));

/// Ranks that issued the first of them first, and those that issued it last.
#[derive(Default)]
struct Orders {
    as_numbered: RankSet,
    reversed: RankSet,
}

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    let mut orders: FxHashMap<Two, Orders> = FxHashMap::default();
    for at in 0..alignment.attempt.streams.len() {
        of_stream(alignment, at, &mut orders);
    }
    let mut inverted: Vec<(Two, Orders)> = orders
        .into_iter()
        .filter(|(_, orders)| !orders.as_numbered.is_empty() && !orders.reversed.is_empty())
        .collect();
    inverted.sort_by_key(|(two, _)| *two);
    let stuck = |two: &Two| {
        let is_stuck = |call: (usize, u64)| {
            let mut stuck = alignment.waits.stuck.iter();
            stuck.find(|stuck| (stuck.comm, stuck.pos) == call)
        };
        is_stuck(two.0).or_else(|| is_stuck(two.1))
    };
    // One finding for each two communicators, about the calls that hang, if some do.
    let mut told: Vec<(usize, usize)> = Vec::new();
    let hung = inverted.iter().filter(|(two, _)| stuck(two).is_some());
    for (two, orders) in hung.chain(&inverted) {
        if told.contains(&(two.0.0, two.1.0)) {
            continue;
        }
        told.push((two.0.0, two.1.0));
        let since = stuck(two).filter(|stuck| is_long(alignment, stuck)).map(|stuck| stuck.since);
        let again = inverted.iter().filter(|(other, _)| (other.0.0, other.1.0) == (two.0.0, two.1.0)).count() - 1;
        found.extend(of_two(alignment, two, orders, since, again));
    }
}

/// Whether the call has been stuck for longer than the limit, by the clocks of those that are in it.
fn is_long(alignment: &Alignment<'_>, stuck: &Stuck) -> bool {
    let seen = stuck.pending.iter().filter_map(|rank| alignment.state_of(rank)).map(|state| state.horizon).max();
    seen.is_some_and(|seen| seen.saturating_sub(stuck.since) >= alignment.limit)
}

/// Notes the order of each two calls of a rank's batches.
fn of_stream(alignment: &Alignment<'_>, at: usize, orders: &mut FxHashMap<Two, Orders>) {
    let Some(stream) = alignment.attempt.streams.get(at) else { return };
    let mut positions: FxHashMap<usize, u64> = FxHashMap::default();
    let mut batch: Vec<(usize, u64)> = Vec::new();
    let mut of: Option<(u32, u32)> = None;
    let mut batches = 0;
    let mut close = |batch: &mut Vec<(usize, u64)>| {
        let several = batch.iter().any(|call| batch.first().is_some_and(|first| first.0 != call.0));
        if several && batches < MOST_BATCHES {
            batches += 1;
            for (index, &one) in batch.iter().enumerate() {
                for &other in batch.iter().skip(index + 1).filter(|other| other.0 != one.0) {
                    let as_numbered = one.0 < other.0;
                    let two = if as_numbered { (one, other) } else { (other, one) };
                    let held = orders.entry(two).or_default();
                    let ranks = if as_numbered { &mut held.as_numbered } else { &mut held.reversed };
                    ranks.insert(stream.rank);
                }
            }
        }
        batch.clear();
    };
    for &call in &stream.calls {
        if call.op.kind() != OpKind::Collective || !takes_position(call) {
            continue;
        }
        let Some(comm_at) = alignment.comms.of(at, call.comm) else { continue };
        let Some(comm) = alignment.comm(comm_at) else { continue };
        let counted = positions.entry(comm_at).or_default();
        let pos = call.seq.unwrap_or(*counted);
        *counted = pos.saturating_add(1);
        let grouped = call.flags.contains(CallFlags::GROUPED) && call.group != 0;
        let own = grouped.then_some((call.thread, call.group));
        if own != of {
            close(&mut batch);
            of = own;
        }
        let ordered = comm.semantics.contains(Semantics::GROUP_ORDER_ACROSS_COMMS) && comm.members.len() > 1;
        let known = call.seq.is_some() || !stream.has_gaps() && !stream.trace.has_elided();
        if own.is_some() && ordered && known && !comm.is_unjoined(alignment.attempt.world) && batch.len() < MOST_CALLS {
            batch.push((comm_at, pos));
        }
    }
    close(&mut batch);
}

fn of_two(alignment: &Alignment<'_>, two: &Two, orders: &Orders, since: Option<i64>, again: usize) -> Option<Raw> {
    let (first, second) = (alignment.comm(two.0.0)?, alignment.comm(two.1.0)?);
    let mut finding = blank(&META);
    finding.group = Some(first.reference());
    finding.first_visible = Some(two.0.1);
    finding.confidence = Confidence::Medium;
    let (most, least) = (&orders.as_numbered, &orders.reversed);
    let ((one, other), (ahead, behind)) =
        if most.len() >= least.len() { ((first, second), (most, least)) } else { ((second, first), (least, most)) };
    let side = |ranks: &RankSet, one: &Comm<'_>, other: &Comm<'_>| {
        absent_side(ranks.clone(), format!("{} before {} in one group call", one.display(), other.display()))
    };
    finding.sides = vec![side(ahead, one, other), side(behind, other, one)];
    let verb = if ahead.len() == 1 { "issues" } else { "issue" };
    finding.headline = format!(
        "in one group call {} {verb} {} before {}, and {} the other way round",
        ahead.who(),
        one.display(),
        other.display(),
        behind.who()
    );
    if again > 0 {
        finding.detail.push(format!("the same in {}", counted(again as u64, "other group call")));
    }
    let both = ahead.union(behind);
    if let Some(at) = since {
        finding.severity = Severity::Error;
        let (direct, transitive) = alignment.waits.victims(&both);
        finding.waiting = both.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
        finding.collateral_exits = alignment.deaths.collateral.clone();
        finding.detail.push("these calls are not complete: each order may wait for the other".to_owned());
        finding.confidence = report::confidence(alignment, two.0.0, first).min(Confidence::Medium);
        return Some(Raw { finding, rule: Rule::Cycle, at, roots: both, open: true, comm: Some(two.0.0) });
    }
    finding.detail.push("it passed; with other sizes or resources this may be a deadlock".to_owned());
    Some(Raw { finding, rule: Rule::Note, at: 0, roots: RankSet::new(), open: false, comm: Some(two.0.0) })
}
