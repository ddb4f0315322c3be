//! Ranks that failed, and those whose end is only a consequence.
//!
//! The rank that prints the time-out is normally a victim: a watchdog, a launcher's SIGTERM, or an error out of a call
//! that waited for somebody else end ranks that did nothing wrong.

use rankdiff_trace::{EndedBy, RankSet};

use crate::align::Alignment;
use crate::state::{How, RankState};

/// Time-outs are longer than this, ns.
pub(crate) const MOMENT: i64 = 1_000_000_000;

/// How ranks ended.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// Ranks that failed by themselves, earliest first.
    pub(crate) roots: Vec<u32>,
    /// Ranks that ended because of something else.
    pub(crate) collateral: RankSet,
    /// Ranks that the launcher ended, where these are all that died and none was seen to fail or leave first.
    pub(crate) by_launcher: RankSet,
    /// The job's own time-out has passed.
    pub(crate) watchdog: bool,
    /// How long the first rank waited that gave up by itself where nobody had failed before, ns: too long, by the job's own
    /// measure.
    pub(crate) patience: Option<i64>,
    /// Who ended first decided whose fault it is, and the clocks may be so far apart (ns) that another order is possible.
    pub(crate) order_in_doubt: Option<i64>,
}

impl Deaths {
    /// Whether the rank stood in its place for as long as it was looked at: it is alive, or something outside ended it
    /// because of what was wrong elsewhere. What it waited for, or was waited for, is as true of it as of a live one.
    pub(crate) fn stayed(&self, state: &RankState<'_>) -> bool {
        !state.is_gone() || state.finalized.is_none() && self.collateral.contains(state.rank)
    }

    /// When the first rank failed by itself.
    pub(crate) fn first(&self, alignment: &Alignment<'_>) -> Option<i64> {
        let ends = self.roots.iter().filter_map(|rank| alignment.state_of(*rank));
        ends.map(|state| when(alignment, state)).min()
    }
}

pub(crate) fn find(alignment: &Alignment<'_>) -> Deaths {
    let mut deaths = Deaths::default();
    let mut failed: Vec<&RankState<'_>> = alignment.states.iter().filter(|state| state.failed()).collect();
    failed.sort_by_key(|state| (when(alignment, state), state.rank));
    let aborted = failed.iter().any(|state| state.aborted.is_some());
    let stopped = stopped_by_user(alignment);
    // From here on ranks end because others gave up waiting.
    let mut given_up: Option<i64> = None;
    // What each end was taken to be whose order decides it, with its rank.
    let mut by_order: Vec<u32> = Vec::new();
    for &state in &failed {
        let timed_out = says_timeout(state);
        let by_watchdog = timed_out || matches!(state.ended, Some((_, How::Signal(_, EndedBy::Watchdog))));
        deaths.watchdog |= by_watchdog;
        let waiting = is_waiting(alignment, state.rank);
        let at = when(alignment, state);
        let late = given_up.is_some_and(|given_up| at > given_up);
        let is_collateral = |earlier: bool| match &state.ended {
            _ if state.aborted.is_some() => false,
            _ if aborted || late => true,
            Some((_, How::Signal(1 | 2 | 9 | 15, EndedBy::User))) if stopped => true,
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
            Some((at, How::Exit(_))) => {
                // An error right behind the entry is the call's own, unless somebody had died before.
                let waited = waiting && (earlier || !has_just_entered(alignment, state.rank, *at));
                waited || timed_out || earlier && errored(alignment, state.rank)
            }
            None => false,
        };
        if is_collateral(true) != is_collateral(false) {
            by_order.push(state.rank);
        }
        if is_collateral(!deaths.roots.is_empty()) {
            deaths.collateral.insert(state.rank);
            if by_watchdog && waiting {
                given_up = given_up.or(Some(at));
            }
            if deaths.roots.is_empty() && ended_itself(state) {
                deaths.patience = deaths.patience.or(waited(alignment, state.rank, at));
            }
        } else {
            deaths.roots.push(state.rank);
        }
    }
    deaths.order_in_doubt = order_in_doubt(alignment, &deaths, &failed, &by_order);
    if deaths.roots.is_empty() && !deaths.collateral.is_empty() {
        deaths.roots = left_first(alignment, &deaths.collateral);
        deaths.by_launcher = launcher_alone(alignment, &deaths);
    }
    deaths
}

/// How far the clocks may be apart where that leaves open whether the first root ended before the others. `by_order`: ranks
/// whose end would be taken for something else if the order was another one.
fn order_in_doubt(
    alignment: &Alignment<'_>,
    deaths: &Deaths,
    failed: &[&RankState<'_>],
    by_order: &[u32],
) -> Option<i64> {
    let first = *deaths.roots.first()?;
    let stream = |rank: u32| alignment.attempt.streams.get(alignment.stream_of(rank)?);
    let (own, ended) = (stream(first)?, when(alignment, alignment.state_of(first)?));
    let others = failed.iter().filter(|other| other.rank != first);
    let concerned = others.filter(|other| by_order.contains(&first) || by_order.contains(&other.rank));
    let doubts = concerned.filter_map(|other| {
        let doubt = own.clock.doubt_at_end(&stream(other.rank)?.clock);
        (when(alignment, other).saturating_sub(ended) < doubt).then_some(doubt)
    });
    doubts.max()
}

/// Where every death is somebody else's doing: ranks that left without a shutdown before the first of them.
fn left_first(alignment: &Alignment<'_>, collateral: &RankSet) -> Vec<u32> {
    let end = |state: &RankState<'_>| state.ended.as_ref().map(|ended| ended.0);
    let first = collateral.iter().filter_map(|rank| end(alignment.state_of(rank)?)).min();
    let mut left: Vec<&RankState<'_>> = alignment
        .states
        .iter()
        .filter(|state| state.left_without_shutdown() && end(state).zip(first).is_some_and(|(own, first)| own <= first))
        .collect();
    left.sort_by_key(|state| (end(state), state.rank));
    left.iter().map(|state| state.rank).collect()
}

/// The dead, if the launcher ended all of them by a signal that is not a user's way to stop a job, before their work was
/// over, and nothing tells for whom.
fn launcher_alone(alignment: &Alignment<'_>, deaths: &Deaths) -> RankSet {
    let by_launcher = |rank: u32| {
        alignment.state_of(rank).is_some_and(|state| match &state.ended {
            Some((_, How::Signal(6 | 9 | 15, EndedBy::Launcher))) => true,
            Some((_, How::Signal(6 | 9 | 15, EndedBy::Process(_, name)))) => is_launcher(name),
            _ => false,
        })
    };
    let in_work = |rank: u32| alignment.state_of(rank).is_some_and(|state| state.finalized.is_none());
    let unexplained = deaths.roots.is_empty() && deaths.collateral.iter().all(by_launcher);
    if unexplained && deaths.collateral.iter().any(in_work) { deaths.collateral.clone() } else { RankSet::new() }
}

/// Whether a user stopped the whole job: nobody stops a part of one.
fn stopped_by_user(alignment: &Alignment<'_>) -> bool {
    let by_user = |state: &RankState<'_>| matches!(state.ended, Some((_, How::Signal(_, EndedBy::User))));
    let end = |state: &RankState<'_>| state.ended.as_ref().map(|ended| ended.0);
    let first = alignment.states.iter().filter(|state| by_user(state)).filter_map(end).min();
    first.is_some_and(|first| {
        let mut others = alignment.states.iter().filter(|state| end(state).is_none_or(|own| own >= first));
        others.all(|state| by_user(state) || matches!(state.ended, Some((_, How::Signal(_, EndedBy::Launcher)))))
    })
}

fn when(alignment: &Alignment<'_>, state: &RankState<'_>) -> i64 {
    let aborted = state.aborted.and_then(|call| Some(alignment.entered(alignment.stream_of(state.rank)?, call)));
    aborted.or(state.ended.as_ref().map(|ended| ended.0)).unwrap_or(i64::MAX)
}

/// Whether the rank was inside a call that waited for somebody.
fn is_waiting(alignment: &Alignment<'_>, rank: u32) -> bool {
    alignment.waits.of_rank(rank).next().is_some() || alignment.waits.is_stuck(rank) && timed_out_somewhere(alignment)
}

/// Whether the rank had entered its last call only a moment before: no time-out is that short.
fn has_just_entered(alignment: &Alignment<'_>, rank: u32, ended: i64) -> bool {
    waited(alignment, rank, ended).is_some_and(|waited| waited < MOMENT)
}

/// How long the rank had waited when it ended, ns.
fn waited(alignment: &Alignment<'_>, rank: u32, ended: i64) -> Option<i64> {
    let waits = alignment.waits.of_rank(rank);
    let since = waits.flat_map(|instance| &instance.waiters).filter(|waiter| waiter.rank == rank);
    since.map(|waiter| waiter.since).min().map(|since| ended.saturating_sub(since))
}

/// Whether nobody else ended the rank: it left with an error, or aborted.
fn ended_itself(state: &RankState<'_>) -> bool {
    match &state.ended {
        Some((_, How::Exit(_))) => true,
        Some((_, How::Signal(signal, by))) => *signal == 6 && !matches!(by, EndedBy::Launcher | EndedBy::User),
        None => false,
    }
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
    state.log.iter().any(|(_, line)| is_timeout(line))
}

/// Whether a line of a log tells of a call that was given up, and not of how long it may take, nor of a time-out of
/// something else.
fn is_timeout(line: &str) -> bool {
    let line = line.to_lowercase();
    if line.contains("dataloader") {
        return false;
    }
    let about = ["watchdog", "operation", "collective", "waiting", "error", "exceeded", "expired", "reached"];
    line.contains("timed out") || line.contains("timeout") && about.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::is_timeout;

    #[test]
    fn only_what_was_given_up_is_a_timeout() {
        for line in [
            "[rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11) ran for 600000 milliseconds",
            "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
            "watchdog timeout",
        ] {
            assert!(is_timeout(line), "{line}");
        }
        for line in [
            "NCCL_TIMEOUT=1800",
            "init_process_group(backend='nccl', timeout=1800 s)",
            "RuntimeError: DataLoader timed out after 30 seconds",
            "ProcessGroup watchdog thread started",
        ] {
            assert!(!is_timeout(line), "{line}");
        }
    }
}
