//! Ranks that failed, and those whose end is only a consequence.
//!
//! The rank that prints the time-out is normally a victim: a watchdog, a launcher's SIGTERM, or an error out of a call
//! that waited for somebody else end ranks that did nothing wrong.

use rankdiff_trace::{EndedBy, RankSet};

use crate::align::Alignment;
use crate::state::{How, RankState};

/// How ranks ended.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// Ranks that failed by themselves, earliest first.
    pub(crate) roots: Vec<u32>,
    /// Ranks that ended because of something else.
    pub(crate) collateral: RankSet,
    /// The job's own time-out has passed.
    pub(crate) watchdog: bool,
}

pub(crate) fn find(alignment: &Alignment<'_>) -> Deaths {
    let mut deaths = Deaths::default();
    let mut failed: Vec<&RankState<'_>> = alignment.states.iter().filter(|state| state.failed()).collect();
    failed.sort_by_key(|state| (when(alignment, state), state.rank));
    let aborted = failed.iter().any(|state| state.aborted.is_some());
    for state in failed {
        let timed_out = says_timeout(state);
        deaths.watchdog |= timed_out || matches!(state.ended, Some((_, How::Signal(_, EndedBy::Watchdog))));
        let waiting = is_waiting(alignment, state.rank);
        let earlier = !deaths.roots.is_empty();
        let collateral = match &state.ended {
            _ if state.aborted.is_some() => false,
            _ if aborted => true,
            Some((_, How::Signal(signal, by))) => match by {
                EndedBy::Watchdog | EndedBy::Launcher => true,
                EndedBy::OomKiller | EndedBy::User => false,
                EndedBy::Process(_, name) if is_launcher(name) => true,
                _ => match signal {
                    1 | 2 | 15 => true,
                    6 => waiting || timed_out || earlier && errored(alignment, state.rank),
                    9 => earlier && waiting,
                    _ => false,
                },
            },
            Some((_, How::Exit(_))) => waiting || timed_out || earlier && errored(alignment, state.rank),
            None => false,
        };
        if collateral {
            deaths.collateral.insert(state.rank);
        } else {
            deaths.roots.push(state.rank);
        }
    }
    deaths
}

fn when(alignment: &Alignment<'_>, state: &RankState<'_>) -> i64 {
    let aborted = state.aborted.and_then(|call| Some(alignment.entered(alignment.stream_of(state.rank)?, call)));
    aborted.or(state.ended.as_ref().map(|ended| ended.0)).unwrap_or(i64::MAX)
}

/// Whether the rank was inside a call that waited for somebody.
fn is_waiting(alignment: &Alignment<'_>, rank: u32) -> bool {
    alignment.waits.of_rank(rank).next().is_some()
        || alignment.waits.stuck.iter().any(|stuck| stuck.pending.contains(rank) && timed_out_somewhere(alignment))
}

fn timed_out_somewhere(alignment: &Alignment<'_>) -> bool {
    alignment.states.iter().any(says_timeout)
}

/// Whether a call of the rank returned an error.
fn errored(alignment: &Alignment<'_>, rank: u32) -> bool {
    let stream = alignment.stream_of(rank).and_then(|at| alignment.attempt.streams.get(at));
    stream.is_some_and(|stream| {
        stream.calls.iter().rev().take(16).any(|call| call.result.is_some_and(|result| result != 0))
    })
}

fn is_launcher(name: &str) -> bool {
    ["mpirun", "mpiexec", "hydra", "orted", "prted", "srun", "slurmstepd", "torchrun", "elastic"]
        .iter()
        .any(|launcher| name.contains(launcher))
}

fn says_timeout(state: &RankState<'_>) -> bool {
    state.log.iter().any(|(_, line)| {
        let line = line.to_lowercase();
        line.contains("watchdog") || line.contains("timed out") || line.contains("timeout")
    })
}
