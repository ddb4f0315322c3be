//! All members entered one call with one signature, and it does not complete.

use super::lates::millis;
use super::{Check, Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::common;
use crate::diverge;
use crate::finding::{Class, Severity};
use crate::steps;
use crate::waits::Stuck;
use crate::words::{Who as _, duration};

const META: Meta = Meta {
    code: "H004",
    name: "device-stall",
    severity: Severity::Error,
    class: Class::DeviceStall,
    summary: "all members entered one call with equal arguments, and it does not complete",
    doc: "\
## What
The host streams agree on all communicators: every member has issued the call, and it is not complete, on all members or on
some of them.

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
        let seen = stuck.pending.iter().filter_map(|rank| alignment.state_of(rank)).map(|state| state.horizon).max();
        let by = seen.unwrap_or(i64::MIN).saturating_sub(stuck.since);
        let ended = stuck
            .pending
            .iter()
            .filter_map(|rank| alignment.state_of(rank))
            .all(|state| state.ended.is_some() && !alignment.deaths.collateral.contains(state.rank));
        if by >= alignment.limit && !ended {
            found.extend(of_stuck(alignment, stuck, by));
        }
    }
}

fn of_stuck(alignment: &Alignment<'_>, stuck: &Stuck, by: i64) -> Option<Raw> {
    let comm = alignment.comm(stuck.comm)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(stuck.pos);
    finding.stalled = stuck.pending.clone();
    finding.waiting = stuck.pending.difference(&alignment.deaths.collateral);
    finding.collateral_exits = alignment.deaths.collateral.clone();
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
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
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
    finding
        .detail
        .push("host streams agree on all communicators: a device, its link or the network is stuck".to_owned());
    for rank in stuck.pending.iter() {
        let Some(state) = alignment.state_of(rank) else { continue };
        for fact in state.activity(alignment.limit).1 {
            match finding.evidence.iter_mut().find(|held| held.text == fact) {
                Some(held) => {
                    held.ranks.insert(rank);
                }
                None => finding.evidence.push(report::fact("thread", rankdiff_trace::RankSet::from_iter([rank]), fact)),
            }
        }
    }
    Some(Raw {
        finding,
        rule: Rule::Device,
        at: stuck.since,
        roots: stuck.pending.clone(),
        open: true,
        comm: Some(stuck.comm),
    })
}
