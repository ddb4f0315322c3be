//! A rank failed, and others wait for it.

use rankdiff_trace::RankSet;

use super::launcher_end;
use super::report;
use super::uneven_inputs::ended_sides;
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::clocks;
use crate::common;
use crate::finding::{Class, Confidence, Finding, Severity};
use crate::state::{How, RankState};
use crate::steps;
use crate::waits::{Instance, Place};
use crate::words::Who as _;

const META: Meta = Meta {
    code: "F001",
    name: "rank-failed",
    severity: Severity::Error,
    class: Class::RankFailed,
    summary: "a rank was killed, raised, aborted or exited with an error",
    doc: "\
## What
A rank ended with an error before the others entered a call that needs it, or inside that call.

## Why
The other members wait for it until their own time-out. The rank that prints the time-out is normally a victim: this check
names the one that failed first, and lists ends that are only a consequence apart. Where the launcher
ended every rank that died, and none was seen to fail or leave before, only that is said, as a warning: the cause is not
known.

## Example
    rank 2: killed by signal 9 (SIGKILL) by the kernel's OOM killer
    ranks 0-1,3: wait in ALL_REDUCE, aborted by their watchdog 30 minutes later

## How to fix
Look at the failed rank's own output and at what killed it: memory for an OOM kill, a core file for a crash.
",
};

pub(super) const CHECK: Check = Check { meta: &META, run };

fn run(alignment: &Alignment<'_>, found: &mut Vec<Raw>) {
    let mut roots: RankSet = alignment.deaths.roots.iter().copied().collect();
    let raised = raised(alignment);
    roots.extend(raised.iter());
    if roots.is_empty() {
        found.extend(launcher_end::raw(alignment, &META));
        return;
    }
    // One finding for ranks that one call waits for; ranks that nobody waits for stand together.
    let mut left = roots.clone();
    let mut instances: Vec<&Instance<'_>> = alignment.waits.instances.iter().collect();
    instances.sort_by_key(|instance| instance.since);
    for instance in instances {
        let lacking = instance.lacking.intersection(&left);
        if lacking.is_empty() || matches!(instance.place, Place::Diverged(_) | Place::Behind(_)) {
            continue;
        }
        // Ranks that failed at other places for the same job are named with the first.
        let named = left.clone();
        left = RankSet::new();
        found.extend(waited_for(alignment, instance, &lacking, &named, &raised));
        break;
    }
    if !left.is_empty() {
        found.push(alone(alignment, &left));
    }
}

/// Ranks that are alive but raised: they will not come.
fn raised(alignment: &Alignment<'_>) -> RankSet {
    let mut raised = RankSet::new();
    for rank in alignment.late.iter().flat_map(|late| late.roots.iter()) {
        let Some(state) = alignment.state_of(rank) else { continue };
        let says_so = state.log.iter().any(|(_, line)| {
            let line = line.to_lowercase();
            (line.contains("traceback") || line.contains("exception") || line.contains("raised"))
                && !line.contains("watchdog")
                && !line.contains("timeout")
        });
        if says_so {
            raised.insert(rank);
        }
    }
    raised
}

fn waited_for(
    alignment: &Alignment<'_>,
    instance: &Instance<'_>,
    lacking: &RankSet,
    failed: &RankSet,
    raised: &RankSet,
) -> Option<Raw> {
    let comm = instance.comm.and_then(|comm| alignment.comm(comm))?;
    let mut finding = blank(&META);
    let pos = match instance.place {
        Place::Collective(pos) => Some(pos),
        _ => None,
    };
    finding.group = Some(comm.reference());
    finding.first_visible = pos;
    finding.first_divergence = pos;
    finding.failed = failed.clone();
    finding.suspects = failed.clone();
    finding.sides = report::waiting_sides(alignment, instance);
    finding.sides.extend(ended_sides(alignment, lacking));
    let (direct, transitive) = alignment.waits.victims(failed);
    finding.waiting = direct.union(&transitive).difference(&alignment.deaths.collateral);
    finding.direct_victims = direct;
    finding.transitive_victims = transitive;
    finding.collateral_exits = alignment.deaths.collateral.difference(failed);
    finding.evidence = report::endings(alignment, &failed.union(&finding.collateral_exits));
    for rank in raised.intersection(failed).iter() {
        let line = alignment.state_of(rank).and_then(|state| state.log.first()).map(|line| line.1);
        finding
            .evidence
            .extend(line.map(|line| report::fact("log", RankSet::from_iter([rank]), format!("its log says '{line}'"))));
    }
    finding.common = common::shared(alignment, failed, &comm.ranks());
    finding.confidence = report::confidence(alignment, instance.comm?, comm);
    if !raised.intersection(failed).is_empty() {
        finding.confidence = finding.confidence.min(Confidence::Medium);
    }
    order_in_doubt(alignment, &mut finding);
    let call = report::waiter_text(alignment, instance, instance.waiters.first()?);
    let first = alignment.deaths.roots.first().copied().or(failed.first())?;
    let how = match alignment.state_of(first) {
        _ if raised.contains(first) => "raised an error and is still alive".to_owned(),
        Some(state) => how_it_ended(state),
        None => "failed".to_owned(),
    };
    let waiters = instance.waiting();
    let before = pos.map(|pos| format!(" before call {pos}")).unwrap_or_default();
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    finding.headline = format!(
        "rank {first} {how}{before}; {} {wait} in {}",
        waiters.who(),
        report::place_phrase(alignment, instance, &call)
    );
    if let Some(pos) = pos {
        let mut before = alignment.tracks(instance.comm?).iter().filter(|track| !track.entries.is_empty());
        let track = before.clone().find(|track| track.known_from(pos) < pos).or_else(|| before.next());
        finding.step = track.and_then(|track| steps::position(track, pos));
    }
    Some(Raw {
        at: death(alignment, failed).min(instance.since),
        finding,
        rule: Rule::Gone,
        roots: failed.clone(),
        open: true,
        comm: instance.comm,
    })
}

/// Says so where the clocks of several nodes leave open who ended first.
fn order_in_doubt(alignment: &Alignment<'_>, finding: &mut Finding) {
    let Some(doubt) = alignment.deaths.order_in_doubt else { return };
    finding.confidence = finding.confidence.min(Confidence::Medium);
    finding.detail.push(match u64::try_from(doubt).ok().filter(|_| doubt < MOST_DOUBT) {
        Some(doubt) => format!(
            "which rank ended first is not certain: the clocks of their nodes may be {} apart",
            clocks::short(doubt)
        ),
        None => "which rank ended first is not certain: nothing relates the clocks of their nodes".to_owned(),
    });
}

/// Clocks that may be further apart than a day are not joined at all, ns.
const MOST_DOUBT: i64 = 86_400_000_000_000;

fn how_it_ended(state: &RankState<'_>) -> String {
    let killed = state.aborted.is_none() && matches!(state.ended, Some((_, How::Signal(..))));
    if killed { format!("was {}", state.ending()) } else { state.ending() }
}

pub(super) fn death(alignment: &Alignment<'_>, failed: &RankSet) -> i64 {
    failed
        .iter()
        .filter_map(|rank| alignment.state_of(rank)?.ended.as_ref())
        .map(|ended| ended.0)
        .min()
        .unwrap_or(i64::MAX)
}

/// Failed ranks that had entered every call that is waited in, or that nobody waits for.
fn alone(alignment: &Alignment<'_>, failed: &RankSet) -> Raw {
    let mut finding = blank(&META);
    let stuck = alignment.waits.stuck.iter().find(|stuck| !stuck.pending.intersection(failed).is_empty());
    finding.failed = failed.clone();
    finding.suspects = failed.clone();
    finding.collateral_exits = alignment.deaths.collateral.difference(failed);
    finding.evidence = report::endings(alignment, &failed.union(&finding.collateral_exits));
    let first = alignment.deaths.roots.first().copied().or(failed.first()).unwrap_or_default();
    let how = alignment.state_of(first).map(how_it_ended).unwrap_or_default();
    finding.headline = match stuck.and_then(|stuck| Some((stuck, alignment.comm(stuck.comm)?))) {
        Some((stuck, comm)) => {
            finding.group = Some(comm.reference());
            finding.first_visible = Some(stuck.pos);
            finding.first_divergence = Some(stuck.pos);
            finding.common = common::shared(alignment, failed, &comm.ranks());
            finding.confidence = report::confidence(alignment, stuck.comm, comm);
            let mut groups: Vec<Vec<usize>> = vec![Vec::new(), Vec::new()];
            for (at, track) in alignment.tracks(stuck.comm).iter().enumerate() {
                if let Some(group) = groups.get_mut(usize::from(failed.contains(track.rank))) {
                    group.push(at);
                }
            }
            groups.retain(|group| !group.is_empty());
            finding.sides = report::sides(alignment, stuck.comm, comm, &groups, stuck.pos);
            for side in &mut finding.sides {
                if side.ranks.is_subset(failed) {
                    side.state = side
                        .ranks
                        .first()
                        .and_then(|rank| alignment.state_of(rank))
                        .map(|state| state.ending())
                        .unwrap_or_default();
                }
            }
            let others = stuck.pending.difference(failed);
            finding.waiting = others.difference(&alignment.deaths.collateral);
            finding.direct_victims = others;
            format!("rank {first} {how} inside call {} on {}", stuck.pos, comm.display())
        }
        None => format!("rank {first} {how}; no other rank was seen to wait for it"),
    };
    order_in_doubt(alignment, &mut finding);
    let comm = finding.group.as_ref().and_then(|_| stuck.map(|stuck| stuck.comm));
    Raw { at: death(alignment, failed), rule: Rule::Gone, roots: failed.clone(), open: comm.is_some(), comm, finding }
}
