//! Sends and receives that do not fit each other.

use rankdiff_trace::{Op, RankSet};

use super::cycles::{self, Sort};
use super::report::{self, fact};
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::{Alignment, synchronises};
use crate::finding::{Class, Finding, Severity, Side};
use crate::index::{Base, Progress};
use crate::messages::{End, Misfit, Single};
use crate::queues;
use crate::waits::{Cycle, Place};
use crate::words::{absent_side, call_phrase, call_text};

const META: Meta = Meta {
    code: "P002",
    name: "unpaired-p2p",
    severity: Severity::Error,
    class: Class::P2pMismatch,
    summary: "a send and a receive do not fit each other, or one has no partner",
    doc: "\
## What
Sends and receives are paired by communicator, source, destination and tag, in order. A pair has another type, or too
little room for what comes; or a call waits for a partner that was made with another tag, or never.

## Why
A message that is too long is cut or an error; on libraries that do not check it overwrites memory. A tag that nobody uses
waits for ever.

## Example
    if rank == 0: send(x, 1, tag=step)
    if rank == 1: recv(y, 0, tag=step + 1)

## How to fix
Take sizes and tags from one place on both sides.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    let mut told: Vec<(usize, u32, u32)> = Vec::new();
    for misfit in &alignment.messages.misfits {
        let channel = (misfit.comm, misfit.send.rank, misfit.recv.rank);
        if told.contains(&channel) || told.len() >= 16 {
            continue;
        }
        told.push(channel);
        found.extend(of_misfit(alignment, misfit));
    }
    for cycle in cycles::of_sort(alignment, Sort::Message) {
        if let Some(stray) = wrong_address(alignment, cycle) {
            let mut raw = cycles::finding(alignment, cycle, &META, Rule::Message);
            raw.finding.headline = stray.text(alignment);
            if !is_side(&raw.finding, stray.send.end.rank, Op::Send) {
                let side = side(alignment, stray.send.comm, &stray.send.end);
                let send = side.call.map(|call| (call_phrase(&call, false), call.site)).unwrap_or_default();
                let site = if send.1.is_empty() { String::new() } else { format!(" in {}", send.1) };
                let peer = stray.send.peer;
                let rank = stray.send.end.rank;
                let text = format!("the {} from rank {rank} to rank {peer}{site} has no receive", send.0);
                raw.finding.evidence.push(fact("message", RankSet::from_iter([rank]), text));
            }
            raw.finding.cycle.clear();
            found.push(raw);
        }
    }
    let left_out = super::dropped_messages::find(alignment, &META, found);
    for single in &alignment.messages.singles {
        if left_out.contains(&(single.comm, single.end.rank, single.peer)) {
            continue;
        }
        if never_comes(alignment, single) {
            found.extend(of_single(alignment, single));
        } else if let Some(pos) = passed(alignment, single) {
            found.extend(of_passed(alignment, single, pos));
        }
    }
}

/// Whether a call of this kind is among the sides of a finding.
fn is_side(finding: &Finding, rank: u32, op: Op) -> bool {
    finding
        .sides
        .iter()
        .any(|side| side.ranks.contains(rank) && side.call.as_ref().is_some_and(|call| call.op.ends_with(op.name())))
}

/// Whether the circle is only there because a rank waits for a message whose sender has gone on without it.
pub(super) fn passed_by(alignment: &Alignment<'_>, cycle: &Cycle) -> bool {
    let places = cycle.instances.iter().filter_map(|&at| alignment.waits.instances.get(at)).map(|found| found.place);
    places
        .filter_map(|place| match place {
            Place::Message(at) => alignment.messages.singles.get(at),
            _ => None,
        })
        .any(|single| passed(alignment, single).is_some())
}

/// The collective that stands behind a receive in its rank's program and that the peer has issued without having sent:
/// calls of one communicator run in order, so the message cannot come any more. Only for long waits.
fn passed(alignment: &Alignment<'_>, single: &Single<'_>) -> Option<u64> {
    let comm = alignment.comm(single.comm).filter(|comm| queues::is_queued(comm))?;
    let (waiter, peer) = (alignment.state_of(single.end.rank)?, alignment.state_of(single.peer)?);
    let waits = single.end.call.op == Op::Recv && single.end.progress != Progress::Done;
    let captured = alignment.index.captured.contains(&single.peer) || comm.inter;
    if !waits || captured || waiter.is_gone() || peer.failed() {
        return None;
    }
    let entered = alignment.entered(single.end.stream, single.end.call);
    if waiter.horizon.saturating_sub(entered) < alignment.limit {
        return None;
    }
    let track = |rank: u32| alignment.tracks(single.comm).iter().find(|track| track.rank == rank);
    let (mine, theirs) = (track(single.end.rank)?, track(single.peer)?);
    let behind = mine.entries.iter().find(|entry| entry.call.enter > single.end.call.enter);
    let pos = behind.map_or(mine.end(), |entry| entry.pos);
    // A later call that completed did so without this one.
    let refuted = mine.entries.iter().any(|entry| entry.pos >= pos && entry.progress == Progress::Done);
    let known = mine.base == Base::Known && theirs.base == Base::Known;
    let went_on = theirs.entries.iter().find(|entry| entry.pos >= pos && synchronises(entry.call.op))?;
    (known && !refuted).then_some(went_on.pos)
}

/// A call of the circle that waits for a partner, and one of that partner's calls for its rank that has none either: they
/// want to exchange something, but not under one address.
pub(super) fn wrong_address<'s, 'a>(alignment: &'s Alignment<'a>, cycle: &Cycle) -> Option<Stray<'s, 'a>> {
    let singles = &alignment.messages.singles;
    let places = cycle.instances.iter().filter_map(|&at| alignment.waits.instances.get(at)).map(|found| found.place);
    let waiting = places.filter_map(|place| match place {
        Place::Message(at) => singles.get(at),
        _ => None,
    });
    let found = waiting.filter_map(|single| {
        let other = singles.iter().find(|other| {
            let ends = other.end.rank == single.peer && other.peer == single.end.rank;
            // On another communicator a message of another size or type is another message.
            let alike =
                (other.end.call.count, &other.end.call.dtype) == (single.end.call.count, &single.end.call.dtype);
            ends && other.end.call.op != single.end.call.op && (other.comm == single.comm || alike)
        })?;
        Some(if single.end.call.op == Op::Send { (single, other) } else { (other, single) })
    });
    found.map(|(send, recv)| Stray { send, recv }).next()
}

/// A send and a receive of the same two ranks that do not meet.
pub(super) struct Stray<'s, 'a> {
    send: &'s Single<'a>,
    recv: &'s Single<'a>,
}

impl Stray<'_, '_> {
    /// What is different.
    fn text(&self, alignment: &Alignment<'_>) -> String {
        let (send, recv) = (self.send, self.recv);
        let name = |single: &Single<'_>| alignment.comm(single.comm).map(|comm| comm.display()).unwrap_or_default();
        let what = if send.comm != recv.comm {
            format!("on {} and on {}", name(send), name(recv))
        } else {
            let tag =
                |single: &Single<'_>| single.end.call.tag.map_or_else(|| "none".to_owned(), |tag| tag.to_string());
            format!("with tag {} and with tag {}", tag(send), tag(recv))
        };
        format!("the send of rank {} and the receive of rank {} do not meet: {what}", send.end.rank, recv.end.rank)
    }
}

/// A pending call whose peer has ended.
fn never_comes(alignment: &Alignment<'_>, single: &Single<'_>) -> bool {
    let gone = alignment.state_of(single.peer).is_some_and(|state| state.ended.is_some() && !state.failed());
    // The rank's whole traffic with the peer is on other tags or in the other direction: no end of inputs.
    let other_tag = alignment.messages.singles.iter().any(|other| {
        other.comm == single.comm
            && other.end.rank == single.peer
            && other.peer == single.end.rank
            && other.end.call.op != single.end.call.op
    });
    single.end.progress == Progress::Pending && gone && other_tag
}

fn side(alignment: &Alignment<'_>, comm: usize, end: &End<'_>) -> Side {
    let mut call = call_text(alignment, alignment.comm(comm), end.stream, end.call);
    call.pending = end.progress == Progress::Pending;
    Side { ranks: RankSet::from_iter([end.rank]), call: Some(call), state: String::new() }
}

fn of_misfit(alignment: &Alignment<'_>, misfit: &Misfit<'_>) -> Option<Raw> {
    let comm = alignment.comm(misfit.comm)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.sides = vec![side(alignment, misfit.comm, &misfit.send), side(alignment, misfit.comm, &misfit.recv)];
    let phrase = |side: &Side| side.call.as_ref().map(|call| call_phrase(call, false)).unwrap_or_default();
    let (send, recv) = (finding.sides.first().map(phrase)?, finding.sides.get(1).map(phrase)?);
    let what = if misfit.what == "dtype" { "types" } else { "sizes" };
    finding.headline = format!(
        "message {} from rank {} to rank {}: {what} differ, {send} meets {recv}",
        misfit.send.call.seq.unwrap_or(0),
        misfit.send.rank,
        misfit.recv.rank
    );
    let open = misfit.send.progress != Progress::Done || misfit.recv.progress != Progress::Done;
    let both = RankSet::from_iter([misfit.send.rank, misfit.recv.rank]);
    if open {
        let (direct, transitive) = alignment.waits.victims(&both);
        finding.waiting = both.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
        finding.transitive_victims = direct.union(&transitive);
        finding.collateral_exits = alignment.deaths.collateral.clone();
    } else {
        finding.detail.push("both calls returned: what was received is not to be trusted".to_owned());
    }
    finding.confidence = report::confidence(alignment, misfit.comm, comm);
    Some(Raw {
        at: alignment.entered(misfit.send.stream, misfit.send.call),
        finding,
        rule: Rule::Differ,
        roots: both,
        open,
        comm: Some(misfit.comm),
    })
}

/// A receive whose peer has gone on.
fn of_passed(alignment: &Alignment<'_>, single: &Single<'_>, pos: u64) -> Option<Raw> {
    let comm = alignment.comm(single.comm)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    let mut waiting = side(alignment, single.comm, &single.end);
    if let Some(call) = &mut waiting.call {
        call.pending = true;
    }
    let phrase = waiting.call.as_ref().map(|call| call_phrase(call, false))?;
    let went_on = absent_side(RankSet::from_iter([single.peer]), format!("sent nothing and went on to call {pos}"));
    finding.sides = vec![waiting, went_on];
    let both = RankSet::from_iter([single.end.rank, single.peer]);
    let (direct, transitive) = alignment.waits.victims(&RankSet::from_iter([single.end.rank]));
    finding.waiting = RankSet::from_iter([single.end.rank]).union(&direct).union(&transitive);
    finding.waiting = finding.waiting.difference(&alignment.deaths.collateral);
    finding.transitive_victims = direct.union(&transitive).difference(&both);
    finding.collateral_exits = alignment.deaths.collateral.clone();
    finding.headline = format!(
        "rank {} waits in {phrase} for rank {}, which went on to call {pos} without sending it",
        single.end.rank, single.peer
    );
    finding.detail.push(format!(
        "calls of one communicator run in order: nothing that rank {} sends now can come before call {pos}",
        single.peer
    ));
    finding.evidence.extend(report::stands_still(alignment));
    finding.confidence = report::confidence(alignment, single.comm, comm);
    Some(Raw {
        at: alignment.entered(single.end.stream, single.end.call),
        finding,
        rule: Rule::Message,
        roots: both,
        open: true,
        comm: Some(single.comm),
    })
}

fn of_single(alignment: &Alignment<'_>, single: &Single<'_>) -> Option<Raw> {
    let comm = alignment.comm(single.comm)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.sides = vec![side(alignment, single.comm, &single.end)];
    finding.suspects = RankSet::new();
    let waiting = RankSet::from_iter([single.end.rank]);
    let (direct, transitive) = alignment.waits.victims(&waiting);
    finding.waiting = waiting.union(&direct).union(&transitive);
    finding.evidence = report::endings(alignment, &RankSet::from_iter([single.peer]));
    finding.evidence.push(fact(
        "message",
        RankSet::from_iter([single.peer]),
        "its own calls to that rank have no partner either",
    ));
    let call = finding.sides.first()?.call.as_ref().map(|call| call_phrase(call, false))?;
    finding.headline =
        format!("rank {} waits in {call} for rank {}, which made no call that fits", single.end.rank, single.peer);
    finding.confidence = report::confidence(alignment, single.comm, comm);
    Some(Raw {
        at: alignment.entered(single.end.stream, single.end.call),
        finding,
        rule: Rule::Gone,
        roots: RankSet::from_iter([single.peer]),
        open: true,
        comm: Some(single.comm),
    })
}
