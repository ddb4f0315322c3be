//! Sends and receives that a rank left out: it went on to what comes behind them, as its own earlier rounds or ranks in the
//! same role tell. Part of the check for messages without a partner.

use rankdiff_trace::{Op, RankSet};

use super::cycles::{self, Sort};
use super::{Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::awaited::{self, Odd};
use crate::finding::Confidence;
use crate::index::Progress;
use crate::merged::{self, Departure, Deviation};
use crate::messages::Single;
use crate::state::Activity;
use crate::waits::{Instance, Place};
use crate::words::{absent_side, counted};

/// Messages without a partner that are looked at.
const MOST: usize = 64;

/// Adds what was left out; returns the channels that are explained: communicator, rank that waits, its peer.
pub(super) fn find(alignment: &Alignment<'_>, meta: &Meta, found: &mut Vec<Raw>) -> Vec<(usize, u32, u32)> {
    let mut told: Vec<(usize, u32, u32)> = Vec::new();
    let mut add = |instance: &Instance<'_>, rank: u32, deviation: Deviation, rule: Rule| {
        let (Some(comm), Some(waiter)) = (instance.comm, instance.waiters.first()) else { return };
        let channel = (comm, waiter.rank, rank);
        if !told.contains(&channel) {
            told.push(channel);
            found.extend(finding(alignment, meta, instance, rank, deviation, rule));
        }
    };
    for cycle in cycles::of_sort(alignment, Sort::Deviation) {
        let Some((rank, deviation, instance)) = cycles::culprit(alignment, cycle) else { continue };
        if deviation.message.is_some()
            && let Some(instance) = alignment.waits.instances.get(instance)
        {
            add(instance, rank, deviation, Rule::Cycle);
        }
    }
    for instance in alignment.waits.instances.iter().take(MOST) {
        let Place::Message(at) = instance.place else { continue };
        let Some(single) = alignment.messages.singles.get(at) else { continue };
        if let Some(deviation) = left_out(alignment, single) {
            add(instance, single.peer, deviation, Rule::Message);
        }
    }
    told
}

/// Where the peer of a call that has waited for long left its part out.
fn left_out(alignment: &Alignment<'_>, single: &Single<'_>) -> Option<Deviation> {
    let (waiter, peer) = (alignment.state_of(single.end.rank)?, alignment.state_of(single.peer)?);
    let entered = alignment.entered(single.end.stream, single.end.call);
    let long = waiter.horizon.saturating_sub(entered) >= alignment.limit;
    if single.end.progress == Progress::Done || !long || peer.failed() {
        return None;
    }
    let wanted = if single.end.call.op == Op::Send { Op::Recv } else { Op::Send };
    let plain = merged::deviation(alignment, single.peer).filter(|deviation| {
        matches!(deviation.how, Departure::Lacks(_))
            && deviation.message == Some(wanted)
            && deviation.comm == single.comm
    });
    // Whoever waits may have made a call too many.
    let surplus =
        || merged::deviation(alignment, single.end.rank).is_some_and(|own| matches!(own.how, Departure::Extra(_)));
    let odd = Odd { lacks: true, comm: single.comm, message: Some(wanted) };
    // What a rank is seen to do, or waits in, says more of why it has not come than what others did.
    let free =
        peer.activity(alignment.limit).0 == Activity::Unknown && alignment.waits.of_rank(single.peer).next().is_none();
    plain.or_else(|| awaited::find(alignment, single.peer, odd, 1).filter(|_| free && !surplus()))
}

fn finding(
    alignment: &Alignment<'_>,
    meta: &Meta,
    instance: &Instance<'_>,
    rank: u32,
    deviation: Deviation,
    rule: Rule,
) -> Option<Raw> {
    let at = instance.comm?;
    let comm = alignment.comm(at)?;
    let mut finding = blank(meta);
    let odd = RankSet::from_iter([rank]);
    finding.group = Some(comm.reference());
    finding.sides = report::waiting_sides(alignment, instance);
    finding.sides.push(absent_side(odd.clone(), report::elsewhere(alignment, rank, None)));
    finding.suspects = odd.clone();
    report::held_by(alignment, &odd, &mut finding);
    finding.confidence = report::confidence(alignment, at, comm).min(Confidence::Medium);
    let waiter = instance.waiters.first()?;
    let call = report::waiter_text(alignment, instance, waiter);
    let what = deviation.message.map(Op::name)?;
    finding.headline = format!(
        "rank {rank} lacks {} from its {what} on, for which rank {} waits in {}",
        counted(deviation.calls(), "call"),
        waiter.rank,
        report::place_phrase(alignment, instance, &call)
    );
    finding.detail.push(report::who_says(&deviation).to_owned());
    finding.evidence.extend(report::stands_still(alignment));
    Some(Raw { finding, rule, at: instance.since, roots: odd, open: true, comm: Some(at) })
}
