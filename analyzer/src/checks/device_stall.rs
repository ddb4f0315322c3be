//! All members entered one call with one signature, and it does not complete.

use rankdiff_trace::RankSet;

use super::lates::millis;
use super::{Check, Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::common;
use crate::comms::Comm;
use crate::diverge;
use crate::finding::{Class, Finding, Severity, Side};
use crate::index::Progress;
use crate::steps;
use crate::waits::{Place, Stuck, Transfer};
use crate::words::{Who as _, call_phrase, call_text, duration};

const META: Meta = Meta {
    code: "H004",
    name: "device-stall",
    severity: Severity::Error,
    class: Class::DeviceStall,
    summary: "all members entered one call with equal arguments, and it does not complete",
    doc: "\
## What
The host streams agree: every member has issued the call, or both ends of a message are there, and it is not complete, on all
members or on some of them. Of several calls the one is named that nothing stands in front of.

## Why
What is left is a device, its link or the network. Where it completed on some members, those with the lowest completed call
are the ones that are stuck, even if they have issued as many calls as the rest.

## Example
    all 16 ranks entered call 4711; it completed on 14 of them

## How to fix
Look at the named ranks' devices and links (kernel log, device health, switch counters) before looking at the program.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    let mut stuck: Vec<&Stuck> = alignment.waits.stuck.iter().collect();
    stuck.sort_by_key(|stuck| stuck.since);
    for stuck in stuck {
        if let Some(by) = stands_for(alignment, &stuck.pending, stuck.since) {
            found.extend(of_stuck(alignment, stuck, by));
        }
    }
    for transfer in &alignment.waits.transfers {
        if let Some(by) = stands_for(alignment, &transfer.pending(), transfer.since) {
            found.extend(of_transfer(alignment, transfer, by));
        }
    }
}

/// How long nothing has moved where these ranks stand, ns; `None` if not for long, or if they ended by themselves.
fn stands_for(alignment: &Alignment<'_>, pending: &RankSet, since: i64) -> Option<i64> {
    let states = || pending.iter().filter_map(|rank| alignment.state_of(rank));
    let by = states().map(|state| state.horizon).max()?.saturating_sub(since);
    let ended = states().all(|state| state.ended.is_some() && !alignment.deaths.collateral.contains(state.rank));
    (by >= alignment.limit && !ended).then_some(by)
}

/// What the ranks of a stuck call have in common: who waits for them, what their threads do.
fn of_ranks(alignment: &Alignment<'_>, pending: &RankSet, comm: &Comm<'_>, finding: &mut Finding) {
    let (direct, transitive) = alignment.waits.victims(pending);
    finding.stalled = pending.clone();
    finding.waiting = pending.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
    finding.direct_victims = direct;
    finding.transitive_victims = transitive;
    finding.collateral_exits = alignment.deaths.collateral.clone();
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
    let elsewhere = alignment.waits.instances.iter().any(|instance| !matches!(instance.place, Place::Behind(_)))
        || alignment.divergences.iter().any(|one| one.open);
    let streams = if elsewhere {
        format!("the members' host streams agree on {}", comm.display())
    } else {
        "host streams agree on all communicators".to_owned()
    };
    finding.detail.push(format!("{streams}: a device, its link or the network is stuck"));
    for rank in pending.iter() {
        let Some(state) = alignment.state_of(rank) else { continue };
        for fact in state.activity(alignment.limit).1 {
            match finding.evidence.iter_mut().find(|held| held.text == fact) {
                Some(held) => {
                    held.ranks.insert(rank);
                }
                None => finding.evidence.push(report::fact("thread", RankSet::from_iter([rank]), fact)),
            }
        }
    }
}

fn of_stuck(alignment: &Alignment<'_>, stuck: &Stuck, by: i64) -> Option<Raw> {
    let comm = alignment.comm(stuck.comm)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(stuck.pos);
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(), Vec::new()];
    for (at, track) in alignment.tracks(stuck.comm).iter().enumerate() {
        if let Some(group) = groups.get_mut(usize::from(stuck.pending.contains(track.rank))) {
            group.push(at);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    finding.sides = report::sides(alignment, stuck.comm, comm, &groups, stuck.pos);
    for side in &mut finding.sides {
        let word = if side.ranks.is_subset(&stuck.pending) { "not complete" } else { "complete" };
        side.state = word.to_owned();
    }
    finding.suspects = if stuck.done.is_empty() {
        stuck.done.clone()
    } else if diverge::suspects(alignment, stuck.comm, &groups).is_empty() {
        stuck.pending.clone()
    } else {
        diverge::suspects(alignment, stuck.comm, &groups).intersection(&stuck.pending)
    };
    finding.confidence = report::confidence(alignment, stuck.comm, comm);
    finding.step = alignment.tracks(stuck.comm).first().and_then(|track| steps::position(track, stuck.pos));
    let since = duration(millis(by));
    finding.headline = if stuck.done.is_empty() {
        format!(
            "all {} members entered call {} with equal arguments; complete on none after {since}",
            comm.members.len(),
            stuck.pos
        )
    } else {
        format!(
            "call {} is complete on {} and not on {} after {since}",
            stuck.pos,
            stuck.done.who(),
            stuck.pending.who()
        )
    };
    of_ranks(alignment, &stuck.pending, comm, &mut finding);
    let roots = stuck.pending.clone();
    Some(Raw { finding, rule: Rule::Device, at: stuck.since, roots, open: true, comm: Some(stuck.comm) })
}

fn of_transfer(alignment: &Alignment<'_>, transfer: &Transfer<'_>, by: i64) -> Option<Raw> {
    let comm = alignment.comm(transfer.comm)?;
    let pending = transfer.pending();
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    for end in [&transfer.send, &transfer.recv] {
        let word = if end.progress == Progress::Done { "complete" } else { "not complete" };
        let mut call = call_text(alignment, Some(comm), end.stream, end.call);
        call.pending = end.progress == Progress::Pending;
        let ranks = RankSet::from_iter([end.rank]);
        finding.sides.push(Side { ranks, call: Some(call), state: word.to_owned() });
    }
    finding.confidence = report::confidence(alignment, transfer.comm, comm);
    let send = finding.sides.first()?.call.as_ref().map(|call| call_phrase(call, false))?;
    let since = duration(millis(by));
    finding.headline = format!(
        "the {send} from rank {} to rank {} and its receive fit, and it has not arrived after {since}",
        transfer.send.rank, transfer.recv.rank
    );
    of_ranks(alignment, &pending, comm, &mut finding);
    Some(Raw { finding, rule: Rule::Device, at: transfer.since, roots: pending, open: true, comm: Some(transfer.comm) })
}
