//! Who waits for whom, as chains: waits that hang together, ordered by how far they are from those who wait for nobody.
//!
//! Waits of one kind at one distance are one link, however many communicators and ranks they are on.

use std::collections::BTreeMap;

use rankdiff_trace::RankSet;

use super::{Chain, Link, Query, Shape, ago, generalise, kind_of, shape_of};
use crate::align::Alignment;
use crate::waits::{Instance, Place};
use crate::words::{call_text, entry_text};

pub(super) fn all(alignment: &Alignment<'_>, query: &Query, now: i64) -> Vec<Chain> {
    let mut chains: Vec<Chain> = components(alignment)
        .into_iter()
        .map(|instances| chain(alignment, &instances, now))
        .chain(stuck(alignment, now))
        .filter(|chain| wanted(alignment, query, chain))
        .collect();
    chains.sort_by_key(|chain| (std::cmp::Reverse(waiting(chain)), chain.roots.first(), chain.unsure.first()));
    chains
}

fn waiting(chain: &Chain) -> usize {
    chain.links.iter().map(|link| link.ranks.len()).sum::<usize>() + chain.cycle.len()
}

fn wanted(alignment: &Alignment<'_>, query: &Query, chain: &Chain) -> bool {
    let everybody = || {
        let sets = [&chain.roots, &chain.unsure].into_iter().chain(chain.links.iter().map(|link| &link.ranks));
        sets.flat_map(RankSet::iter).chain(chain.cycle.iter().copied())
    };
    let of_comm = |name: &str| {
        let named = |link: &Link| link.on.contains(name);
        // A link of several communicators names their kind only.
        let members = |rank: u32| {
            let mut comms = alignment.tracks_of(rank).filter_map(|(comm, _)| alignment.comm(comm));
            comms.any(|comm| query.wants_comm(comm))
        };
        chain.links.iter().any(named) || chain.links.iter().any(|link| link.ranks.iter().any(members))
    };
    everybody().any(|rank| query.wants_rank(rank)) && query.comm.as_deref().is_none_or(of_comm)
}

/// Waits by what they have to do with one another: each list hangs together by ranks that wait or are waited for.
fn components(alignment: &Alignment<'_>) -> Vec<Vec<usize>> {
    let instances = &alignment.waits.instances;
    let mut parents: Vec<usize> = (0..instances.len()).collect();
    let root = |parents: &mut Vec<usize>, mut at: usize| {
        while let Some(&up) = parents.get(at).filter(|&&up| up != at) {
            // Half of the way is forgotten at each step, so that the next search is short.
            let above = parents.get(up).copied().unwrap_or(up);
            if let Some(slot) = parents.get_mut(at) {
                *slot = above;
            }
            at = above;
        }
        at
    };
    let mut first_of: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, instance) in instances.iter().enumerate().filter(|(_, instance)| !instance.waiters.is_empty()) {
        for rank in instance.waiters.iter().map(|waiter| waiter.rank).chain(instance.lacking.iter()) {
            let other = *first_of.entry(rank).or_insert(at);
            let (one, other) = (root(&mut parents, at), root(&mut parents, other));
            if let Some(slot) = parents.get_mut(one.max(other)) {
                *slot = one.min(other);
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in (0..instances.len()).filter(|&at| instances.get(at).is_some_and(|one| !one.waiters.is_empty())) {
        found.entry(root(&mut parents, at)).or_default().push(at);
    }
    found.into_values().collect()
}

fn chain(alignment: &Alignment<'_>, members: &[usize], now: i64) -> Chain {
    let instances: Vec<&Instance<'_>> = members.iter().filter_map(|&at| alignment.waits.instances.get(at)).collect();
    // Who waits for somebody else in which of them; who is in the call that others miss it in made another one.
    let mut waits_in: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut chain = Chain::default();
    for (at, instance) in instances.iter().enumerate() {
        let only_unsure = instance.lacking.is_empty();
        let even = is_even(instance);
        for waiter in &instance.waiters {
            if even || instance.lacking.contains(waiter.rank) {
                chain.differ.insert(waiter.rank);
            }
            if even || !instance.lacking.contains(waiter.rank) {
                waits_in.entry(waiter.rank).or_default().push(at);
            }
        }
        chain.unsure.extend(instance.unsure.iter().filter(|_| only_unsure).map(|(rank, _)| *rank));
    }
    let missed = instances.iter().filter(|instance| !is_even(instance)).flat_map(|instance| instance.lacking.iter());
    chain.roots = missed.filter(|rank| !waits_in.contains_key(rank)).collect();
    if !chain.roots.is_empty() {
        chain.differ = chain.differ.intersection(&chain.roots);
    } else if chain.differ.is_empty() {
        let of_chain = |rank: &u32| waits_in.contains_key(rank);
        let cycles = alignment.waits.cycles(alignment);
        chain.cycle =
            cycles.into_iter().map(|cycle| cycle.ranks).find(|ranks| ranks.iter().all(of_chain)).unwrap_or_default();
    }
    links(alignment, &instances, &mut chain, now);
    let waits_for_somebody = [&chain.roots, &chain.differ, &chain.unsure].iter().any(|set| !set.is_empty());
    if !waits_for_somebody && chain.cycle.is_empty() {
        // All have come, and it goes on nowhere: the same as a call that the device does not finish.
        chain.links.iter_mut().for_each(|link| link.distance = 0);
    }
    chain
}

/// Whether members made different calls and none of them is a majority: then each side waits for the other.
fn is_even(instance: &Instance<'_>) -> bool {
    let others = instance.waiters.iter().filter(|waiter| !instance.lacking.contains(waiter.rank)).count();
    matches!(instance.place, Place::Diverged(_)) && others <= instance.lacking.len()
}

/// Walks away from the roots, one distance after the other.
fn links(alignment: &Alignment<'_>, instances: &[&Instance<'_>], chain: &mut Chain, now: i64) {
    // Those who wait for each other, in a circle or across a divergence.
    let mut in_cycle: RankSet = chain.cycle.iter().copied().collect();
    if chain.roots.is_empty() {
        in_cycle.extend(chain.differ.iter());
    }
    let mut near = chain.roots.union(&in_cycle);
    let mut reached = near.clone();
    let mut told = vec![false; instances.len()];
    let mut cycle_told = in_cycle.is_empty();
    for distance in 1..=instances.len() {
        let here: Vec<usize> = (0..instances.len())
            .filter(|&at| told.get(at) == Some(&false))
            .filter(|&at| {
                let Some(instance) = instances.get(at) else { return false };
                let by_doubt = distance == 1 && instance.lacking.is_empty();
                by_doubt || instance.lacking.iter().any(|rank| near.contains(rank))
            })
            .collect();
        if here.is_empty() {
            break;
        }
        let mut kinds: BTreeMap<(String, Shape), (Link, RankSet)> = BTreeMap::new();
        let mut next = RankSet::new();
        for at in here {
            if let (Some(slot), Some(instance)) = (told.get_mut(at), instances.get(at)) {
                *slot = true;
                // Those of a cycle wait too, for each other.
                let is_new = |rank: u32| !reached.contains(rank) || !cycle_told && in_cycle.contains(rank);
                let ranks: RankSet = instance
                    .waiters
                    .iter()
                    .map(|waiter| waiter.rank)
                    .filter(|&rank| is_new(rank) && (is_even(instance) || !instance.lacking.contains(rank)))
                    .collect();
                if ranks.is_empty() {
                    continue;
                }
                next.extend(ranks.iter());
                for (kind, link, comms) in told_by_call(alignment, instance, &ranks, &near, distance, now) {
                    match kinds.get_mut(&kind) {
                        Some((held, on)) => {
                            held.ranks.extend(link.ranks.iter());
                            held.behind.extend(link.behind.iter());
                            generalise(&mut held.call, &link.call);
                            held.waited_ms = held.waited_ms.max(link.waited_ms);
                            on.extend(comms);
                        }
                        None => {
                            kinds.insert(kind, (link, comms.into_iter().collect()));
                        }
                    }
                }
            }
        }
        cycle_told = true;
        let mut links: Vec<Link> = kinds
            .into_values()
            .map(|(mut link, comms)| {
                link.comms = comms.len().max(1);
                if let (1, Some(comm)) = (comms.len(), comms.first().and_then(|at| alignment.comm(at as usize))) {
                    link.on = comm.display();
                }
                link
            })
            .collect();
        links.sort_by_key(|link| (std::cmp::Reverse(link.ranks.len()), link.ranks.first()));
        chain.links.append(&mut links);
        reached.extend(next.iter());
        near = next;
    }
}

/// The waiters of an instance that are chosen, by what they called: the kind, the link, the communicator.
fn told_by_call(
    alignment: &Alignment<'_>,
    instance: &Instance<'_>,
    ranks: &RankSet,
    near: &RankSet,
    distance: usize,
    now: i64,
) -> Vec<((String, Shape), Link, Option<u32>)> {
    let comm = instance.comm.and_then(|at| alignment.comm(at));
    let on = match (comm, instance.place) {
        (Some(comm), _) => kind_of(comm),
        (None, Place::Creation(_)) => "a new communicator".to_owned(),
        (None, _) => "a communicator whose members are not known".to_owned(),
    };
    let mut found: BTreeMap<(String, Shape), Link> = BTreeMap::new();
    for waiter in instance.waiters.iter().filter(|waiter| ranks.contains(waiter.rank)) {
        let mut told = call_text(alignment, comm, waiter.stream, waiter.call);
        told.seq = waiter.pos.or(waiter.call.seq);
        told.pending = true;
        let waited_ms = ago(now, waiter.since);
        let link = found.entry((on.clone(), shape_of(&told))).or_insert_with(|| Link {
            distance,
            ranks: RankSet::new(),
            behind: instance.lacking.intersection(near),
            call: told.clone(),
            on: on.clone(),
            comms: 1,
            waited_ms,
        });
        link.ranks.insert(waiter.rank);
        generalise(&mut link.call, &told);
        link.waited_ms = link.waited_ms.max(waited_ms);
    }
    let comm = instance.comm.and_then(|at| u32::try_from(at).ok());
    found.into_iter().map(|(kind, link)| (kind, link, comm)).collect()
}

/// Calls that all have entered and that are not complete: nobody is waited for.
fn stuck(alignment: &Alignment<'_>, now: i64) -> Vec<Chain> {
    let link = |stuck: &crate::waits::Stuck| {
        let comm = alignment.comm(stuck.comm)?;
        let rank = stuck.pending.first()?;
        let track = alignment.tracks(stuck.comm).iter().find(|track| track.rank == rank)?;
        let mut call = entry_text(alignment, comm, track, track.at(stuck.pos)?);
        call.pending = true;
        Some(Link {
            distance: 0,
            ranks: stuck.pending.clone(),
            behind: RankSet::new(),
            call,
            on: comm.display(),
            comms: 1,
            waited_ms: ago(now, stuck.since),
        })
    };
    let mut kinds: BTreeMap<(String, Shape), Link> = BTreeMap::new();
    for stuck in &alignment.waits.stuck {
        let Some(mut link) = link(stuck) else { continue };
        let kind = alignment.comm(stuck.comm).map(kind_of).unwrap_or_default();
        match kinds.get_mut(&(kind.clone(), shape_of(&link.call))) {
            Some(held) => {
                held.ranks.extend(link.ranks.iter());
                held.comms += 1;
                generalise(&mut held.call, &link.call);
                held.on.clone_from(&kind);
                held.waited_ms = held.waited_ms.max(link.waited_ms);
            }
            None => {
                let key = (kind, shape_of(&link.call));
                link.comms = 1;
                kinds.insert(key, link);
            }
        }
    }
    kinds.into_values().map(|link| Chain { links: vec![link], ..Chain::default() }).collect()
}
