//! Waits that are long: who is waited for at the end of each chain, since when, and what that rank was doing.

use std::sync::Arc;

use rankdiff_trace::RankSet;

use crate::align::Alignment;
use crate::index::Progress;
use crate::state::{Activity, RankState};
use crate::waits::{Instance, Place, Waiter, Waits};

/// Ranks that are waited for and wait for nobody.
#[derive(Debug)]
pub(crate) struct Late {
    /// The wait that shows them best: the earliest one that waits for them directly.
    pub(crate) instance: usize,
    pub(crate) roots: RankSet,
    pub(crate) activity: Activity,
    /// What is known of the roots.
    pub(crate) facts: Vec<(RankSet, String)>,
    /// How long they are known to be missing, ns.
    pub(crate) by: i64,
    /// All of them have been ended since.
    pub(crate) ended: bool,
    /// They did come, when others had given up waiting.
    pub(crate) came: bool,
}

/// Long waits for ranks that are alive, or were until something else ended them, in the order of severity of what those ranks do, then of time.
pub(crate) fn find(alignment: &Alignment<'_>, waits: &Waits<'_>) -> Vec<Late> {
    let mut found: Vec<Late> = Vec::new();
    let mut order: Vec<usize> = (0..waits.instances.len()).collect();
    order.sort_by_key(|&at| waits.instances.get(at).map_or(i64::MAX, |instance| instance.since));
    // Once a rank has failed, the others stop for that reason.
    let failed = alignment.deaths.first(alignment).unwrap_or(i64::MAX);
    for at in order {
        let Some(instance) = waits.instances.get(at) else { continue };
        if matches!(instance.place, Place::Diverged(_) | Place::Behind(_)) {
            continue;
        }
        // One of those that could send is enough: as long as one may be at work, nobody is late.
        let may_work = |rank: u32| {
            let state = alignment.state_of(rank);
            state
                .is_some_and(|state| matches!(state.activity(alignment.limit).0, Activity::Working | Activity::Unknown))
        };
        if instance.place == Place::FromAny && instance.lacking.iter().any(may_work) {
            continue;
        }
        for rank in instance.lacking.iter() {
            let stayed = |state: &&RankState<'_>| alignment.deaths.stayed(state);
            let Some(state) = alignment.state_of(rank).filter(stayed) else { continue };
            // What it is stuck in is told instead.
            if waits.is_held(alignment, rank)
                || waits.is_stuck(rank)
                || found.iter().any(|late| late.roots.contains(rank))
            {
                continue;
            }
            let came = came_at(alignment, instance, rank);
            let until = if let Some(came) = came {
                came
            } else if state.is_gone() {
                state.horizon.min(failed)
            } else {
                state.horizon
            };
            let by = missed_by(alignment, instance, rank, until);
            if by < alignment.limit {
                continue;
            }
            let (mut activity, facts) = state.activity(alignment.limit);
            if came.is_some() {
                activity = Activity::Working;
            }
            let same = |late: &&mut Late| (late.instance, late.activity, late.came) == (at, activity, came.is_some());
            let late = match found.iter_mut().find(same) {
                Some(late) => late,
                None => {
                    let new = Late {
                        instance: at,
                        roots: RankSet::new(),
                        activity,
                        facts: Vec::new(),
                        by,
                        ended: true,
                        came: came.is_some(),
                    };
                    found.push(new);
                    let Some(late) = found.last_mut() else { continue };
                    late
                }
            };
            late.roots.insert(rank);
            late.by = late.by.max(by);
            late.ended &= state.is_gone();
            for fact in facts {
                match late.facts.iter_mut().find(|(_, text)| *text == fact) {
                    Some((ranks, _)) => {
                        ranks.insert(rank);
                    }
                    None => late.facts.push((RankSet::from_iter([rank]), fact)),
                }
            }
        }
    }
    found.sort_by_key(|late| late.activity);
    found
}

/// When a rank entered the call after all, if somebody who waited there had ended by then.
fn came_at(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32) -> Option<i64> {
    let Place::Collective(pos) = instance.place else { return None };
    let track = alignment.tracks(instance.comm?).iter().find(|track| track.rank == rank)?;
    let came = alignment.entered(track.stream, track.at(pos)?.call);
    let mut ends = instance.waiters.iter().filter_map(|waiter| alignment.states.get(waiter.stream)?.ended.as_ref());
    ends.any(|ended| ended.0 < came).then_some(came)
}

/// How long those that wait are known to have waited for a rank that had not come by a moment, ns. On one clock that is the
/// time between the two; elsewhere it is the waiter alone that knows how long, by its own clock: others are compared within
/// bounds, and a wall clock may be off by more than any limit.
fn missed_by(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32, until: i64) -> i64 {
    let clock = |rank: u32| Some(&alignment.attempt.streams.get(alignment.stream_of(rank)?)?.clock);
    let of_waiter = |waiter: &Waiter<'_>| {
        let between = until.saturating_sub(waiter.since);
        let one_clock = clock(waiter.rank).zip(clock(rank)).is_some_and(|(one, other)| Arc::ptr_eq(one, other));
        let own = alignment.state_of(waiter.rank).map(|state| state.horizon.saturating_sub(waiter.since));
        if one_clock { between } else { own.map_or(between, |own| own.min(between)) }
    };
    instance.waiters.iter().map(of_waiter).max().unwrap_or_else(|| until.saturating_sub(instance.since))
}

/// How long the waiters of an instance are known to wait, whoever they wait for.
pub(crate) fn waited(alignment: &Alignment<'_>, instance: &Instance<'_>) -> i64 {
    instance
        .waiters
        .iter()
        .filter(|waiter| {
            // Whoever waits in a creation has not returned from it.
            matches!(instance.place, Place::Creation(_)) || is_known_pending(alignment, waiter.stream, waiter.call)
        })
        .filter_map(|waiter| Some(alignment.state_of(waiter.rank)?.horizon.saturating_sub(waiter.since)))
        .max()
        .unwrap_or(0)
}

fn is_known_pending(alignment: &Alignment<'_>, stream: usize, call: &rankdiff_trace::Call) -> bool {
    let calls = alignment.attempt.streams.get(stream).map_or(&[][..], |stream| stream.calls.as_slice());
    let at = calls.iter().rposition(|other| std::ptr::eq(*other, call));
    let progress = at.and_then(|at| alignment.index.progress.get(stream)?.get(at));
    progress == Some(&Progress::Pending)
}
