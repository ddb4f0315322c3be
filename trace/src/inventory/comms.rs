//! Communicators of a trace, counted over the processes of a run: a directory that was joined holds several runs, and
//! their communicators may have the same identities.
//!
//! Runs are told apart as the analyzer does it: by ranks that are played again after everybody of the earlier run had
//! ended. Not here: what agrees with what.

use std::collections::{BTreeMap, BTreeSet};

use super::CommCount;
use crate::comm::{CommDef, CommIdentity};
use crate::outline::StreamOutline;

/// What one stream has to do with it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// First call and last sign of life, ns since 1970; `None` without calls.
    life: Option<(u64, u64)>,
    /// Ranks that it plays, each with its attempt.
    ranks: Vec<(u32, u32)>,
    /// Communicators with collectives of it.
    comms: Vec<Standing>,
}

/// A communicator as one stream knows it.
#[derive(Debug)]
struct Standing {
    count: CommCount,
    /// Its number in the stream, for those without an identity.
    id: u32,
    rank: Option<u32>,
}

impl Seen {
    /// Of an outline; `realtime` turns its times into times since 1970.
    pub(super) fn of(outline: &StreamOutline, realtime: impl Fn(u64) -> u64) -> Seen {
        let trace = &outline.trace;
        let latest = trace.ranks.last();
        let mut ranks: BTreeSet<(u32, u32)> = trace.ranks.iter().map(|def| (def.rank, def.attempt)).collect();
        let attempt = latest.map_or(0, |def| def.attempt);
        ranks.extend(trace.comms.iter().filter_map(|def| Some((def.owner?, attempt))));
        let (from, to) = outline.times;
        let states = trace.states.iter().map(|state| state.at).max().unwrap_or(0);
        let comm = |def: &CommDef| {
            let last = outline.chains.get(&def.id)?.iter().map(|point| point.upto).max()?;
            (last > 0).then(|| Standing {
                count: CommCount {
                    name: def.name.clone(),
                    identity: def.identity,
                    library: def.library.clone(),
                    size: def.size,
                    collectives: (last, last),
                    ..CommCount::default()
                },
                id: def.id.0,
                rank: def.owner.or(latest.map(|def| def.rank)),
            })
        };
        Seen {
            life: (from <= to).then(|| (realtime(from), realtime(to.max(states)))),
            ranks: ranks.into_iter().collect(),
            comms: trace.comms.iter().filter_map(comm).collect(),
        }
    }
}

/// The run that each stream belongs to, from 1.
pub(super) fn runs(streams: &[Seen]) -> Vec<u32> {
    let mut lives: Vec<(u64, u64, usize)> =
        streams.iter().enumerate().filter_map(|(at, seen)| seen.life.map(|(from, to)| (from, to, at))).collect();
    lives.sort_unstable();
    let mut numbers = vec![0_u32; streams.len()];
    let mut played: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut of_run: Vec<(u32, u32)> = Vec::new();
    let (mut number, mut until, mut clash) = (0, None, false);
    for (from, to, at) in lives {
        if until.is_some_and(|until| from > until) {
            number += 1;
            played.extend(of_run.drain(..));
        }
        until = until.max(Some(to));
        let ranks = streams.get(at).map_or(&[][..], |seen| &seen.ranks);
        clash |= ranks.iter().any(|rank| played.contains(rank));
        of_run.extend(ranks);
        if let Some(held) = numbers.get_mut(at) {
            *held = number;
        }
    }
    if !clash {
        // Processes that did not overlap, and yet one job.
        numbers.fill(0);
    }
    for (held, seen) in numbers.iter_mut().zip(streams) {
        *held = held.saturating_add(seen.ranks.iter().map(|rank| rank.1).max().unwrap_or(0));
    }
    let known: BTreeSet<u32> =
        numbers.iter().zip(streams).filter(|(_, seen)| seen.life.is_some()).map(|(number, _)| *number).collect();
    numbers.iter().map(|number| known.range(..=number).count().max(1) as u32).collect()
}

/// Run, identity, and of those without one stream and number.
type Key = (u32, CommIdentity, Option<(usize, u32)>);

/// The communicators of all streams, the largest first.
pub(super) fn count(streams: Vec<Seen>, runs: &[u32]) -> Vec<CommCount> {
    let mut comms: BTreeMap<Key, (CommCount, BTreeSet<u32>)> = BTreeMap::new();
    for (at, (seen, &run)) in streams.into_iter().zip(runs).enumerate() {
        for Standing { count: own, id, rank } in seen.comms {
            // Without an identity nobody knows whether two processes mean the same.
            let apart = (!own.identity.is_known()).then_some((at, id));
            let collectives = own.collectives;
            let (name, size) = (own.name.clone(), own.size);
            let (count, ranks) =
                comms.entry((run, own.identity, apart)).or_insert_with(|| (CommCount { run, ..own }, BTreeSet::new()));
            if count.name.is_empty() {
                count.name = name;
            }
            count.size = count.size.or(size);
            // A rank that played it in two recordings is one member.
            count.members += u64::from(rank.is_none_or(|rank| ranks.insert(rank)));
            count.collectives = (count.collectives.0.min(collectives.0), count.collectives.1.max(collectives.1));
        }
    }
    let mut comms: Vec<CommCount> = comms.into_values().map(|(count, _)| count).collect();
    comms.sort_by(|one, other| {
        let size = (other.size, other.collectives.1).cmp(&(one.size, one.collectives.1));
        size.then_with(|| (&one.name, one.identity, one.run).cmp(&(&other.name, other.identity, other.run)))
    });
    comms
}
