//! Input traces as one call stream per global rank: which rank a process plays, several ranks per process, several
//! attempts of the job, one clock for all.
//!
//! Not here: communicators and positions (`comms`, `index`), what a rank was doing at the end (`state`).

use std::collections::BTreeMap;
use std::sync::Arc;

use rankdiff_trace::{Call, CommRef, ProcessKey, ProcessTrace};
use rustc_hash::FxHashMap;

use crate::clocks::{self, HostClock};
use crate::finding::ClockJoin;

/// The calls of one global rank, in the order they were entered.
#[derive(Debug)]
pub(crate) struct RankStream<'a> {
    pub(crate) rank: u32,
    pub(crate) trace: &'a ProcessTrace,
    pub(crate) calls: Vec<&'a Call>,
    /// What turns a time of this stream into the job's time; one for all streams of a machine.
    pub(crate) clock: Arc<HostClock>,
    /// Calls of the rank may have been left out: its process was recorded in parts that do not join, another process
    /// claims the rank as well, or there are calls whose rank is not known.
    pub(crate) in_parts: bool,
}

impl RankStream<'_> {
    /// Whether calls may be missing from the record.
    pub(crate) fn has_gaps(&self) -> bool {
        self.in_parts || self.trace.gaps.iter().any(|gap| gap.events != Some(0))
    }

    /// A time of this stream on the job's clock, ns.
    pub(crate) fn time(&self, ns: u64) -> i64 {
        self.clock.time(ns)
    }

    /// Whether times of this stream compare with other streams' times.
    pub(crate) fn has_clock(&self) -> bool {
        self.clock.is_joined()
    }
}

/// The ranks of one attempt of the job, ascending.
#[derive(Debug, Default)]
pub(crate) struct Attempt<'a> {
    pub(crate) number: u32,
    pub(crate) streams: Vec<RankStream<'a>>,
    /// Number of ranks, where some process knew it.
    pub(crate) world: Option<u32>,
    /// How the clocks of its machines relate, if there are several.
    pub(crate) clocks: Option<ClockJoin>,
    /// What could not be used, in words.
    pub(crate) problems: Vec<String>,
}

/// The attempts of a job, latest first. `boots`: boot id by host name, where it is known.
pub(crate) fn attempts<'a>(traces: &'a [ProcessTrace], boots: &BTreeMap<String, String>) -> Vec<Attempt<'a>> {
    let mut attempts: BTreeMap<u32, BTreeMap<u32, Vec<Candidate<'_>>>> = BTreeMap::new();
    let mut worlds: BTreeMap<u32, u32> = BTreeMap::new();
    let mut problems = Vec::new();
    let parts = in_parts(traces);
    let runs = Runs::of(traces);
    let mut unclaimed = false;
    for (index, trace) in traces.iter().enumerate() {
        let mut plays = Plays::of(trace);
        plays.ranks.iter_mut().for_each(|known| known.1 += runs.number(index));
        for (rank, attempt, world) in &plays.ranks {
            attempts.entry(*attempt).or_default().entry(*rank).or_default();
            if let Some(world) = world {
                let known = worlds.entry(*attempt).or_default();
                *known = (*known).max(*world);
            }
        }
        let (by_rank, orphans) = plays.share_out(trace);
        unclaimed |= orphans > 0;
        if orphans > 0 {
            problems.push(format!(
                "process {} on host '{}': its rank is not known; its {orphans} calls were left out (give the rank in the environment or record from the start)",
                trace.key.pid, trace.key.host
            ));
        }
        for (rank, attempt, calls) in by_rank {
            attempts.entry(attempt).or_default().entry(rank).or_default().push(Candidate { trace, calls });
        }
    }
    let mut found: Vec<Attempt<'_>> = attempts
        .into_iter()
        .map(|(number, ranks)| {
            let mut attempt = Attempt { number, world: worlds.get(&number).copied(), ..Attempt::default() };
            let mut contested = false;
            for (rank, mut candidates) in ranks {
                // Children of a rank (data loaders) inherit its environment: the process that communicates plays it.
                candidates
                    .sort_by(|a, b| b.calls.len().cmp(&a.calls.len()).then_with(|| a.trace.key.cmp(&b.trace.key)));
                let mut candidates = candidates.into_iter();
                let Some(chosen) = candidates.next() else { continue };
                let rivals: Vec<&Candidate<'_>> = candidates
                    .as_slice()
                    .iter()
                    .filter(|other| !other.calls.is_empty() && other.trace.key != chosen.trace.key)
                    .collect();
                if let Some(other) = rivals.first() {
                    // Neither is more likely to be the one whose calls the other ranks' calls belong to.
                    attempt.problems.push(format!(
                        "rank {rank}: processes {} and {} played it at the same time (a job started by this one?); the calls of neither were used",
                        chosen.trace.key.pid, other.trace.key.pid
                    ));
                    contested = true;
                    continue;
                }
                let mut calls = chosen.calls;
                calls.sort_by_key(|call| (call.enter, call.thread, call.thread_seq));
                let in_parts = parts.contains(&&chosen.trace.key);
                if in_parts {
                    attempt.problems.push(format!(
                        "rank {rank}: process {} has several recordings, of which the one with the most calls was used; what lies outside it is not known",
                        chosen.trace.key.pid
                    ));
                }
                let in_parts = in_parts || unclaimed;
                attempt.streams.push(RankStream {
                    rank,
                    trace: chosen.trace,
                    calls,
                    clock: Arc::default(),
                    in_parts,
                });
            }
            attempt.streams.iter_mut().for_each(|stream| stream.in_parts |= contested);
            attempt.clocks = clocks::join(&mut attempt.streams, boots);
            attempt
        })
        .collect();
    found.reverse();
    match found.first_mut() {
        Some(latest) => latest.problems.splice(0..0, problems).for_each(drop),
        None => found.push(Attempt { problems, ..Attempt::default() }),
    }
    found
}

/// Jobs that ran one after the other and were recorded into one trace: told apart by ranks that are played twice.
struct Runs {
    /// Number of the run, for each trace.
    numbers: Vec<u32>,
}

impl Runs {
    fn of(traces: &[ProcessTrace]) -> Runs {
        let walls = Walls::of(traces);
        // Processes whose lives overlap belong to one run.
        let mut lives: Vec<(i64, i64, usize)> =
            traces.iter().enumerate().filter_map(|(index, trace)| life(trace, &walls, index)).collect();
        lives.sort_unstable();
        let mut numbers = vec![0; traces.len()];
        let mut played: Vec<(u32, u32)> = Vec::new();
        let (mut number, mut until) = (0, i64::MIN);
        let mut clash = false;
        let mut of_run: Vec<(u32, u32)> = Vec::new();
        for (from, to, index) in lives {
            if from > until && until != i64::MIN {
                number += 1;
                played.append(&mut of_run);
            }
            until = until.max(to);
            let ranks = Plays::of(&traces[index]).ranks;
            clash |= ranks.iter().any(|known| played.contains(&(known.0, known.1)));
            of_run.extend(ranks.iter().map(|known| (known.0, known.1)));
            numbers[index] = number;
        }
        if !clash {
            numbers.fill(0);
        }
        Runs { numbers }
    }

    fn number(&self, index: usize) -> u32 {
        self.numbers.get(index).copied().unwrap_or(0)
    }
}

/// First call and last sign of life of a process that called something.
fn life(trace: &ProcessTrace, walls: &Walls, index: usize) -> Option<(i64, i64, usize)> {
    let offset = walls.offset(trace);
    let at = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX / 2).saturating_add(offset);
    let known = trace.elided.as_ref().filter(|known| known.calls > 0).map(|known| known.times);
    let first = trace.calls.iter().map(|call| call.enter).chain(known.map(|times| times.0)).min()?;
    let ends = trace.calls.iter().map(|call| call.exit.unwrap_or(call.enter));
    let calls = ends.chain(known.map(|times| times.1)).max()?;
    let last = trace.states.iter().map(|state| state.at).max().unwrap_or(0).max(calls);
    Some((at(first), at(last), index))
}

/// Processes of which there are several recordings with calls in them.
fn in_parts(traces: &[ProcessTrace]) -> Vec<&ProcessKey> {
    let mut keys: Vec<&ProcessKey> =
        traces.iter().filter(|trace| !trace.calls.is_empty()).map(|trace| &trace.key).collect();
    keys.sort_unstable();
    let mut twice: Vec<&ProcessKey> = keys
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a == b))
        .filter_map(|pair| pair.first().copied())
        .collect();
    twice.dedup();
    twice
}

struct Candidate<'a> {
    trace: &'a ProcessTrace,
    calls: Vec<&'a Call>,
}

/// Rank, attempt, calls.
type RankCalls<'a> = (u32, u32, Vec<&'a Call>);

/// Which ranks a process plays.
struct Plays {
    /// Rank, attempt, world.
    ranks: Vec<(u32, u32, Option<u32>)>,
    owners: FxHashMap<CommRef, u32>,
}

impl Plays {
    fn of(trace: &ProcessTrace) -> Plays {
        // A later definition of a rank replaces an earlier one of the same attempt.
        let mut by_rank: BTreeMap<(u32, u32), Option<u32>> = BTreeMap::new();
        for def in &trace.ranks {
            let world = by_rank.entry((def.attempt, def.rank)).or_default();
            *world = def.world.or(*world);
        }
        let mut ranks: Vec<(u32, u32, Option<u32>)> =
            by_rank.into_iter().map(|((attempt, rank), world)| (rank, attempt, world)).collect();
        let attempt = ranks.iter().map(|known| known.1).max().unwrap_or(0);
        let mut owners = FxHashMap::default();
        for def in &trace.comms {
            let Some(owner) = def.owner else { continue };
            owners.insert(def.id, owner);
            if !ranks.iter().any(|known| known.0 == owner && known.1 == attempt) {
                ranks.push((owner, attempt, None));
            }
        }
        if ranks.is_empty() {
            // Nothing said which rank it is, but its place in a communicator whose members are known does.
            let inferred = trace.comms.iter().find_map(|def| {
                let mine = def.my_rank? as usize;
                def.members.get(mine).copied().or_else(|| (def.name == "world").then_some(def.my_rank?))
            });
            ranks.extend(inferred.map(|rank| (rank, attempt, None)));
        }
        Plays { ranks, owners }
    }

    /// The calls of each rank; and how many calls no rank could be found for.
    fn share_out<'a>(&self, trace: &'a ProcessTrace) -> (Vec<RankCalls<'a>>, usize) {
        let latest = self.ranks.iter().map(|known| known.1).max().unwrap_or(0);
        let own: Vec<&(u32, u32, Option<u32>)> = self.ranks.iter().filter(|known| known.1 == latest).collect();
        let mut by_rank: BTreeMap<u32, Vec<&Call>> = own.iter().map(|known| (known.0, Vec::new())).collect();
        let sole = if own.len() == 1 { own.first().map(|known| known.0) } else { None };
        let mut orphans = 0;
        for call in &trace.calls {
            let owner = call
                .rank
                .or_else(|| self.owners.get(&call.comm).copied())
                .or_else(|| self.owners.get(&call.made).copied())
                .or(sole);
            match owner {
                Some(rank) => by_rank.entry(rank).or_default().push(call),
                None => orphans += 1,
            }
        }
        (by_rank.into_iter().map(|(rank, calls)| (rank, latest, calls)).collect(), orphans)
    }
}

/// How clocks of hosts relate by their wall clocks: good enough to tell jobs apart that ran one after the other.
struct Walls {
    /// Wall clock minus monotonic clock, by host; empty if there is only one host.
    by_host: BTreeMap<String, i64>,
    /// The smallest of them, so that times stay small numbers.
    base: i64,
}

impl Walls {
    fn of(traces: &[ProcessTrace]) -> Walls {
        let mut by_host: BTreeMap<String, i64> = BTreeMap::new();
        let several = traces.windows(2).any(|pair| matches!(pair, [a, b] if a.key.host != b.key.host));
        for trace in traces.iter().filter(|_| several) {
            if let Some(clock) = trace.clocks.first() {
                let offset = i128::from(clock.realtime) - i128::from(clock.monotonic);
                by_host.entry(trace.key.host.clone()).or_insert(i64::try_from(offset).unwrap_or(0));
            }
        }
        let base = by_host.values().copied().min().unwrap_or(0);
        Walls { by_host, base }
    }

    fn offset(&self, trace: &ProcessTrace) -> i64 {
        self.by_host.get(&trace.key.host).map_or(0, |offset| offset.saturating_sub(self.base))
    }
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Call, ClockSnapshot, CommDef, CommRef, ProcessKey, ProcessTrace, RankDef};

    use super::Attempt;

    fn attempts(traces: &[ProcessTrace]) -> Vec<Attempt<'_>> {
        super::attempts(traces, &std::collections::BTreeMap::new())
    }

    fn process(host: &str, pid: u32, ranks: &[(u32, u32)]) -> ProcessTrace {
        ProcessTrace {
            key: ProcessKey { host: host.into(), pid, start_time: 0 },
            ranks: ranks.iter().map(|&(rank, attempt)| RankDef { rank, attempt, ..RankDef::default() }).collect(),
            ..ProcessTrace::default()
        }
    }

    #[test]
    fn several_ranks_in_one_process_are_told_apart_by_the_communicators_owner() {
        let mut trace = process("a", 1, &[]);
        for (id, owner) in [(1, 4), (2, 5)] {
            trace.comms.push(CommDef { id: CommRef(id), owner: Some(owner), ..CommDef::default() });
            trace.calls.push(Call { comm: CommRef(id), ..Call::default() });
        }
        let found = attempts(std::slice::from_ref(&trace));
        let ranks: Vec<(u32, usize)> = found[0].streams.iter().map(|s| (s.rank, s.calls.len())).collect();
        assert_eq!(ranks, [(4, 1), (5, 1)]);
    }

    #[test]
    fn the_latest_attempt_comes_first_and_helpers_do_not_shadow_a_rank() {
        let mut old = process("a", 1, &[(0, 0)]);
        old.calls.push(Call::default());
        let mut new = process("a", 2, &[(0, 1)]);
        new.calls.push(Call::default());
        let helper = process("a", 3, &[(0, 1)]);
        let traces = [helper, old, new];
        let found = attempts(&traces);
        assert_eq!(found.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(found[0].streams[0].trace.key.pid, 2);
    }

    #[test]
    fn several_recordings_of_one_process_leave_doubt() {
        let mut first = process("a", 1, &[(0, 0)]);
        first.calls.push(Call::default());
        let traces = [first.clone(), first, process("a", 2, &[(1, 0)])];
        let found = attempts(&traces);
        assert!(found[0].streams[0].in_parts && !found[0].streams[1].in_parts);
        assert!(found[0].problems.iter().any(|text| text.contains("several recordings")), "{:?}", found[0].problems);
    }

    #[test]
    fn jobs_one_after_the_other_are_attempts() {
        let at = |pid, rank, enter| {
            let mut trace = process("a", pid, &[(rank, 0)]);
            trace.calls.push(Call { enter, exit: Some(enter + 50), ..Call::default() });
            trace
        };
        let traces = [at(1, 0, 100), at(2, 1, 120), at(3, 0, 500), at(4, 1, 510)];
        let found = attempts(&traces);
        let pids: Vec<Vec<u32>> =
            found.iter().map(|attempt| attempt.streams.iter().map(|stream| stream.trace.key.pid).collect()).collect();
        assert_eq!(pids, [[3, 4], [1, 2]], "the latest first");
        // Ranks that do not overlap but are played once are one job.
        assert_eq!(attempts(&[at(1, 0, 100), at(2, 1, 500)]).len(), 1);
    }

    #[test]
    fn calls_that_were_left_out_leave_doubt() {
        let calls = |mut trace: ProcessTrace| {
            trace.calls.push(Call::default());
            trace
        };
        let claimed_twice = [calls(process("a", 1, &[(0, 0)])), calls(process("a", 2, &[(0, 0)]))];
        let found = attempts(&claimed_twice);
        assert!(found[0].streams.is_empty() && found[0].problems[0].contains("at the same time"), "{found:?}");
        let unclaimed = [calls(process("a", 1, &[(0, 0)])), calls(process("a", 2, &[]))];
        assert!(attempts(&unclaimed)[0].streams[0].in_parts);
        let sound = [calls(process("a", 1, &[(0, 0)])), calls(process("a", 2, &[(1, 0)]))];
        assert!(attempts(&sound)[0].streams.iter().all(|stream| !stream.in_parts));
    }

    #[test]
    fn hosts_are_joined_over_the_wall_clock() {
        let mut a = process("a", 1, &[(0, 0)]);
        a.clocks.push(ClockSnapshot { monotonic: 1_000, realtime: 51_000, boottime: 0 });
        let mut b = process("b", 1, &[(1, 0)]);
        b.clocks.push(ClockSnapshot { monotonic: 900, realtime: 51_000, boottime: 0 });
        let traces = [a, b];
        let found = attempts(&traces);
        assert_eq!(found[0].streams[0].time(1_000), found[0].streams[1].time(900));
    }

    #[test]
    fn calls_without_a_rank_are_a_problem_in_words() {
        let mut trace = process("a", 7, &[]);
        trace.calls.push(Call::default());
        let traces = [trace];
        let found = attempts(&traces);
        assert!(found[0].problems[0].contains("rank is not known"), "{:?}", found[0].problems);
    }
}
