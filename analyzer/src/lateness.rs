//! Waits that are long: who is waited for at the end of each chain, since when, and what that rank was doing.

use rankdiff_trace::RankSet;

use crate::align::Alignment;
use crate::index::Progress;
use crate::state::Activity;
use crate::waits::{Instance, Place, Waits};

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
}

/// Long waits for ranks that are alive, in the order of severity of what those ranks do, then of time.
pub(crate) fn find(alignment: &Alignment<'_>, waits: &Waits<'_>) -> Vec<Late> {
    let mut found: Vec<Late> = Vec::new();
    let mut order: Vec<usize> = (0..waits.instances.len()).collect();
    order.sort_by_key(|&at| waits.instances.get(at).map_or(i64::MAX, |instance| instance.since));
    for at in order {
        let Some(instance) = waits.instances.get(at) else { continue };
        if matches!(instance.place, Place::Diverged(_) | Place::Behind(_)) {
            continue;
        }
        for rank in instance.lacking.iter() {
            let Some(state) = alignment.state_of(rank).filter(|state| !state.is_gone()) else { continue };
            if waits.is_held(alignment, rank) || found.iter().any(|late| late.roots.contains(rank)) {
                continue;
            }
            let by = state.horizon.saturating_sub(instance.since);
            if by < alignment.limit {
                continue;
            }
            let (activity, facts) = state.activity(alignment.limit);
            let late = match found.iter_mut().find(|late| late.instance == at && late.activity == activity) {
                Some(late) => late,
                None => {
                    let new = Late { instance: at, roots: RankSet::new(), activity, facts: Vec::new(), by };
                    found.push(new);
                    let Some(late) = found.last_mut() else { continue };
                    late
                }
            };
            late.roots.insert(rank);
            late.by = late.by.max(by);
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
