//! Ranks wait, and nothing that was recorded says why.

use rankdiff_trace::RankSet;

use super::lates::{each, millis, missing_phrase};
use super::report::{self, fact};
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::finding::{Class, Confidence, Severity};
use crate::index::Progress;
use crate::lateness::waited;
use crate::queues;
use crate::state::Activity;
use crate::waits::{Instance, Place};
use crate::words::{Who as _, duration};

const META: Meta = Meta {
    code: "H005",
    name: "unexplained-wait",
    severity: Severity::Warning,
    class: Class::Unknown,
    summary: "ranks wait for long and nothing that was recorded says why",
    doc: "\
## What
Members wait in a call for ranks that have not come, and the record has no evidence of what those do: no threads, no system
calls, no trace at all, or lost events. Or all ranks have issued the same calls to a library that returns at once, and since
then sleep for longer than the limit: whether those calls are complete was not seen. Or they wait in a call on a communicator
whose members are not known.

## Why
Late, stuck and diverged look the same from the outside. Naming one of them would be a guess.

## Example
    ranks 2,4,6-7 have not entered COMM_INIT; cannot tell why: no evidence of what they were doing

## How to fix
Record with thread and system-call evidence, or look at the named ranks with a stack dump while they hang.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    each(alignment, &META, found, &[Activity::Unknown], |late, raw| {
        let verb = if late.roots.len() == 1 { "has" } else { "have" };
        raw.finding.late = late.roots.clone();
        raw.finding.late_ms = Some(millis(late.by));
        raw.finding.confidence = Confidence::Low;
        // One of two is no minority; a few that wait for most of the others may as well have come too early.
        let members = raw.comm.and_then(|comm| alignment.comm(comm)).map_or(0, |comm| comm.members.len());
        if late.roots.len() * 2 >= members {
            raw.finding.suspects = RankSet::new();
            raw.finding.common.clear();
        }
        raw.finding.headline = format!("{} {verb} not come; cannot tell why", late.roots.who());
        raw.finding.detail.push(missing_phrase(alignment, late));
        let it = if late.roots.len() == 1 { "it was" } else { "they were" };
        raw.finding
            .detail
            .push(format!("cause unknown: there is no evidence of what {it} doing (no threads, no system calls)"));
    });
    found.extend(standing_still(alignment));
    found.extend(of_unjoined(alignment));
    for instance in &alignment.waits.instances {
        let place = matches!(instance.place, Place::Collective(_) | Place::Creation(_) | Place::Message(_));
        if !place || !instance.lacking.is_empty() || instance.unsure.is_empty() {
            continue;
        }
        let by = waited(alignment, instance);
        if by >= alignment.limit {
            found.extend(of_unsure(alignment, instance, by));
        }
    }
}

/// Nothing is known to wait, yet every rank sleeps and none makes a call: calls that are queued on devices may be complete
/// or not, and nobody has seen it.
fn standing_still(alignment: &Alignment<'_>) -> Option<Raw> {
    let quiet = alignment.quiet.as_ref().filter(|quiet| quiet.asleep && quiet.live.len() > 1)?;
    let waits = &alignment.waits;
    let told = !waits.instances.is_empty()
        || !waits.stuck.is_empty()
        || !waits.transfers.is_empty()
        || alignment.divergences.iter().any(|one| one.open)
        || alignment.states.iter().any(|state| state.failed())
        || alignment.messages.misfits.iter().any(|misfit| misfit.recv.progress != Progress::Done);
    if told {
        return None;
    }
    // The communicator of the latest call whose completion nobody knows.
    let last_of = |at: usize| {
        let comm = alignment.comm(at).filter(|comm| queues::is_queued(comm) && comm.members.len() > 1)?;
        let tracks = alignment.tracks(at);
        let open = tracks.iter().filter_map(|track| Some((track, track.entries.last()?)));
        let open = open.filter(|(_, entry)| entry.progress == Progress::Unknown);
        let entered = open.map(|(track, entry)| alignment.entered(track.stream, entry.call)).max()?;
        let even = tracks.iter().all(|track| track.end() == tracks.first().map_or(0, |first| first.end()));
        even.then_some((entered, at, comm))
    };
    let (since, at, comm) = (0..alignment.comms.list.len()).filter_map(last_of).max_by_key(|found| found.0)?;
    let last = alignment.tracks(at).first()?.end().checked_sub(1)?;
    let mut finding = blank(&META);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(last);
    finding.confidence = Confidence::Low;
    let groups = vec![(0..alignment.tracks(at).len()).collect::<Vec<usize>>()];
    finding.sides = report::sides(alignment, at, comm, &groups, last);
    for side in &mut finding.sides {
        side.state = "completion not known".to_owned();
    }
    finding.headline = format!(
        "{} are alive and asleep and have made no call for {}; the last is call {last}",
        quiet.live.who(),
        duration(millis(quiet.by))
    );
    let unseen = alignment.unseen(comm);
    finding.detail.push(if unseen.is_empty() {
        "host streams agree on all communicators".to_owned()
    } else {
        format!(
            "the host streams that were recorded agree; {} may be what is waited for: there is no trace",
            unseen.who()
        )
    });
    finding.detail.push(
        "whether the queued calls are complete is not known: a device, its link or the network may be stuck, or every rank waits for something else"
            .to_owned(),
    );
    report::activities(alignment, &quiet.live, &mut finding);
    let roots = quiet.live.clone();
    Some(Raw { finding, rule: Rule::Device, at: since, roots, open: true, comm: Some(at) })
}

/// Ranks that wait in calls on communicators of which only their own view is known: those in the same call together.
fn of_unjoined(alignment: &Alignment<'_>) -> Vec<Raw> {
    let mut groups: Vec<(String, Vec<&Instance<'_>>)> = Vec::new();
    for instance in &alignment.waits.instances {
        if instance.place != Place::Unjoined || waited(alignment, instance) < alignment.limit {
            continue;
        }
        let Some(waiter) = instance.waiters.first() else { continue };
        let call = report::waiter_text(alignment, instance, waiter);
        let phrase = report::place_phrase(alignment, instance, &call);
        match groups.iter_mut().find(|(held, _)| *held == phrase) {
            Some((_, instances)) => instances.push(instance),
            None => groups.push((phrase, vec![instance])),
        }
    }
    groups.iter().map(|(phrase, instances)| waits_in(alignment, phrase, instances)).collect()
}

fn waits_in(alignment: &Alignment<'_>, phrase: &str, instances: &[&Instance<'_>]) -> Raw {
    let mut finding = blank(&META);
    let waiters: RankSet =
        instances.iter().flat_map(|instance| instance.waiting().iter().collect::<Vec<_>>()).collect();
    let by = instances.iter().map(|instance| waited(alignment, instance)).max().unwrap_or(0);
    let since = instances.iter().map(|instance| instance.since).min().unwrap_or(i64::MAX);
    for side in instances.iter().flat_map(|instance| report::waiting_sides(alignment, instance)) {
        match finding.sides.iter_mut().find(|held| held.call == side.call) {
            Some(held) => held.ranks.extend(side.ranks.iter()),
            None => finding.sides.push(side),
        }
    }
    let (direct, transitive) = alignment.waits.victims(&waiters);
    finding.waiting = waiters.union(&direct).difference(&alignment.deaths.collateral);
    finding.direct_victims = direct;
    finding.transitive_victims = transitive;
    finding.collateral_exits = alignment.deaths.collateral.clone();
    finding.confidence = Confidence::Low;
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    finding.headline =
        format!("{} {wait} in {phrase} since {}: cannot tell for whom", waiters.who(), duration(millis(by)));
    if !finding.direct_victims.is_empty() {
        let verb = if finding.direct_victims.len() == 1 { "waits" } else { "wait" };
        let it = if waiters.len() == 1 { "it" } else { "them" };
        finding.detail.push(format!("{} {verb} for {it}", finding.direct_victims.who()));
    }
    finding.detail.push(
        "which ranks share the communicator was not seen: calls on it were not compared, and a member that has not come is not known"
            .to_owned(),
    );
    Raw { finding, rule: Rule::Wait, at: since, roots: waiters, open: true, comm: None }
}

fn of_unsure(alignment: &Alignment<'_>, instance: &Instance<'_>, by: i64) -> Option<Raw> {
    let mut finding = blank(&META);
    let comm = instance.comm.and_then(|comm| alignment.comm(comm));
    finding.group = comm.map(|comm| comm.reference());
    finding.first_visible = match instance.place {
        Place::Collective(pos) => Some(pos),
        _ => None,
    };
    finding.sides = report::waiting_sides(alignment, instance);
    let waiters = instance.waiting();
    finding.waiting = waiters.difference(&alignment.deaths.collateral);
    finding.collateral_exits = alignment.deaths.collateral.clone();
    finding.confidence = Confidence::Low;
    let doubtful: RankSet = instance.unsure.iter().map(|(rank, _)| *rank).collect();
    for (rank, reason) in &instance.unsure {
        match finding.evidence.iter_mut().find(|fact| fact.text == *reason) {
            Some(fact) => {
                fact.ranks.insert(*rank);
            }
            None => finding.evidence.push(fact("gap", RankSet::from_iter([*rank]), reason.clone())),
        }
    }
    let call = report::waiter_text(alignment, instance, instance.waiters.first()?);
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    finding.headline = format!(
        "{} {wait} for {} in {}; cannot tell for whom",
        waiters.who(),
        duration(millis(by)),
        report::place_phrase(alignment, instance, &call)
    );
    finding.detail.push(format!(
        "cannot tell whether {} entered it, because the record of these ranks is not complete",
        doubtful.who()
    ));
    Some(Raw { finding, rule: Rule::Wait, at: instance.since, roots: doubtful, open: true, comm: instance.comm })
}
