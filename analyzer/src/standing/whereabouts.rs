//! Where each rank is: inside of which call or behind which one, since when, and what its threads did.

use std::collections::BTreeMap;

use rankdiff_trace::{Call, RankSet};
use rustc_hash::FxHashMap;

use super::{Query, RankStanding, Shape, ago, generalise, kind_of, shape_of};
use crate::align::Alignment;
use crate::index::Progress;
use crate::waits::Waiter;
use crate::words::call_text;

/// What is equal in ranks that are told together.
type Situation = (bool, String, bool, Option<Shape>, String, Vec<String>);

pub(super) fn all(alignment: &Alignment<'_>, query: &Query, roots: &RankSet, now: i64) -> Vec<RankStanding> {
    let members = members(alignment, query);
    let waiting = waiting(alignment);
    let mut found: BTreeMap<Situation, RankStanding> = BTreeMap::new();
    for stream in 0..alignment.attempt.streams.len() {
        let Some(one) = of_stream(alignment, stream, waiting.get(&stream), roots, now) else { continue };
        let rank = one.ranks.first().unwrap_or_default();
        if !query.wants_rank(rank) || members.as_ref().is_some_and(|members| !members.contains(rank)) {
            continue;
        }
        // Numbers of calls and times differ from rank to rank: what stands before them does not.
        let fact = |fact: &String| {
            if query.wants_details() { fact.clone() } else { fact.split(": ").next().unwrap_or(fact).to_owned() }
        };
        let facts = one.facts.iter().map(fact).collect();
        let shape = one.call.as_ref().map(shape_of);
        let situation = (one.waited_for, one.life.clone(), one.inside, shape, one.on.clone(), facts);
        match found.get_mut(&situation) {
            Some(held) => {
                held.ranks.extend(one.ranks.iter());
                held.since_ms = held.since_ms.max(one.since_ms);
                if let (Some(held), Some(one)) = (&mut held.call, &one.call) {
                    generalise(held, one);
                }
            }
            None => {
                found.insert(situation, one);
            }
        }
    }
    let mut found: Vec<RankStanding> = found.into_values().collect();
    found.sort_by_key(|one| (!one.waited_for, one.inside, std::cmp::Reverse(one.ranks.len()), one.ranks.first()));
    found
}

/// By stream: the wait that it is in, one that holds its thread before others, the longest of those.
fn waiting<'w, 'a>(alignment: &'w Alignment<'a>) -> FxHashMap<usize, &'w Waiter<'a>> {
    let mut found: FxHashMap<usize, &Waiter<'a>> = FxHashMap::default();
    for waiter in alignment.waits.instances.iter().flat_map(|instance| &instance.waiters) {
        let Some(stream) = alignment.stream_of(waiter.rank) else { continue };
        let held = found.entry(stream).or_insert(waiter);
        if (!waiter.blocks, waiter.since) < (!held.blocks, held.since) {
            *held = waiter;
        }
    }
    found
}

/// Members of the communicators that are asked about; `None`: all ranks.
fn members(alignment: &Alignment<'_>, query: &Query) -> Option<RankSet> {
    query.comm.as_ref()?;
    let wanted = alignment.comms.list.iter().filter(|comm| query.wants_comm(comm));
    Some(wanted.flat_map(|comm| comm.members.iter().copied()).collect())
}

fn of_stream(
    alignment: &Alignment<'_>,
    at: usize,
    waiting: Option<&&Waiter<'_>>,
    roots: &RankSet,
    now: i64,
) -> Option<RankStanding> {
    let stream = alignment.attempt.streams.get(at)?;
    let state = alignment.states.get(at)?;
    let progress = alignment.index.progress.get(at).map_or(&[][..], Vec::as_slice);
    let own = || stream.calls.iter().copied().zip(progress.iter().copied());
    let pending = || own().filter(|(_, progress)| *progress == Progress::Pending).map(|(call, _)| call).next_back();
    let last = || stream.calls.iter().copied().max_by_key(|call| (call.enter, call.thread_seq));
    let ended = state.is_gone();
    let (inside, call, since): (bool, Option<(usize, &Call)>, Option<i64>) = if ended {
        let since = state.ended.as_ref().map(|(when, _)| *when);
        match pending() {
            Some(call) => (true, Some((at, call)), since),
            None => (false, last().map(|call| (at, call)), since),
        }
    } else if let Some(waiter) = waiting {
        (true, Some((waiter.stream, waiter.call)), Some(waiter.since))
    } else if let Some(call) = pending() {
        (true, Some((at, call)), Some(stream.time(call.enter)))
    } else {
        let call = last();
        (false, call.map(|call| (at, call)), call.map(|call| stream.time(call.exit.unwrap_or(call.enter))))
    };
    let comm = call.and_then(|(of, call)| alignment.comms.of(of, call.comm)).and_then(|comm| alignment.comm(comm));
    let life = match state.life {
        _ if ended => state.ending(),
        Some(life) => life.to_string(),
        None => String::new(),
    };
    Some(RankStanding {
        ranks: RankSet::from_iter([stream.rank]),
        life,
        inside,
        call: call.map(|(of, call)| {
            let mut text = call_text(alignment, comm, of, call);
            text.pending = inside;
            text
        }),
        on: comm.map(kind_of).unwrap_or_default(),
        since_ms: since.map(|since| ago(now, since)),
        facts: if ended { Vec::new() } else { state.activity(alignment.limit).1 },
        waited_for: roots.contains(stream.rank),
    })
}
