//! Circles: ranks that wait for one another, each in a call that needs the next; and receives that any rank could serve.
//!
//! A call that needs all whom it lacks is stuck as soon as one of them is. A receive from any source is stuck only when
//! nobody is left who could send: it takes part in a circle only then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use rankdiff_trace::RankSet;

use crate::align::Alignment;
use crate::state::How;
use crate::waits::{Instance, Place, Waiter, Waits};

/// Adds the receives from any source for which there is no message, with those whom they lack: ranks that are free to
/// send; else those that may become so; else, since nobody can, all that are there.
pub(crate) fn from_any<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    let open = &alignment.messages.from_any;
    if open.is_empty() {
        return;
    }
    // A rank that was ended while the receive waited may have been about to send; one that left will not.
    let begun = open.iter().map(|one| alignment.entered(one.end.stream, one.end.call)).min().unwrap_or(i64::MAX);
    let is_gone = |rank: u32| {
        alignment.state_of(rank).is_none_or(|state| {
            let left = state.finalized.is_some() || matches!(state.ended, Some((_, How::Exit(0))));
            left || state.ended.as_ref().is_some_and(|ended| ended.0 < begun)
        })
    };
    let waits_in_any = |rank: u32| open.iter().any(|one| one.end.rank == rank);
    let is_free = |rank: u32| !is_gone(rank) && !waits_in_any(rank) && !waits.waits_in.contains_key(&rank);
    // Who can still get to send something, step by step.
    let mut able: BTreeSet<u32> =
        alignment.states.iter().map(|state| state.rank).filter(|&rank| is_free(rank)).collect();
    loop {
        let comes = |rank: &u32| {
            let served =
                waits.of_rank(*rank).all(|instance| instance.lacking.iter().all(|other| able.contains(&other)));
            let mut receives = open.iter().filter(|one| one.end.rank == *rank);
            served && receives.all(|one| one.candidates.iter().any(|other| able.contains(&other)))
        };
        let ranks = alignment.states.iter().map(|state| state.rank);
        let more: Vec<u32> = ranks.filter(|rank| !able.contains(rank) && !is_gone(*rank)).filter(comes).collect();
        if more.is_empty() {
            break;
        }
        able.extend(more);
    }
    let mut found: Vec<Instance<'a>> = Vec::new();
    for one in open {
        let of = |wanted: &dyn Fn(u32) -> bool| one.candidates.iter().filter(|&rank| wanted(rank)).collect::<RankSet>();
        let (free, possible) = (of(&is_free), of(&|rank| able.contains(&rank)));
        let there = of(&|rank| !is_gone(rank));
        let sets = [free, possible, there];
        let lacking = sets.into_iter().find(|set| !set.is_empty()).unwrap_or_else(|| one.candidates.clone());
        let since = alignment.entered(one.end.stream, one.end.call);
        let waiter = Waiter {
            rank: one.end.rank,
            stream: one.end.stream,
            call: one.end.call,
            pos: None,
            since,
            blocks: one.end.call.exit.is_none(),
        };
        let place = Place::FromAny;
        found.push(Instance { place, comm: Some(one.comm), waiters: vec![waiter], lacking, unsure: Vec::new(), since });
    }
    waits.able = able;
    waits.instances.append(&mut found);
}

impl Waits<'_> {
    /// Sets of ranks that wait for one another in a circle, with the instances between them.
    pub(crate) fn cycles(&self, alignment: &Alignment<'_>) -> Vec<Cycle> {
        let mut graph: DiGraph<Node, ()> = DiGraph::new();
        let mut ranks: BTreeMap<u32, NodeIndex> = BTreeMap::new();
        for &rank in self.waits_in.keys() {
            if self.is_held(alignment, rank) {
                ranks.insert(rank, graph.add_node(Node::Rank(rank)));
            }
        }
        for (at, instance) in self.instances.iter().enumerate() {
            let may_come = || instance.lacking.iter().any(|rank| self.able.contains(&rank));
            if matches!(instance.place, Place::Diverged(_) | Place::Behind(_))
                || instance.place == Place::FromAny && may_come()
            {
                continue;
            }
            let node = graph.add_node(Node::Instance(at));
            for from in instance.waiters.iter().filter_map(|waiter| ranks.get(&waiter.rank)) {
                graph.add_edge(*from, node, ());
            }
            for to in instance.lacking.iter().filter_map(|rank| ranks.get(&rank).copied()) {
                graph.add_edge(node, to, ());
            }
        }
        let mut cycles: Vec<Cycle> = tarjan_scc(&graph)
            .into_iter()
            .filter(|component| component.len() > 1)
            .filter_map(|component| self.shortest_cycle(&graph, &component))
            .collect();
        cycles.sort_by_key(|cycle| cycle.since);
        cycles
    }

    /// A shortest cycle of a component, from the rank that waited first.
    fn shortest_cycle(&self, graph: &DiGraph<Node, ()>, component: &[NodeIndex]) -> Option<Cycle> {
        let inside: BTreeSet<NodeIndex> = component.iter().copied().collect();
        let members: BTreeSet<usize> = component
            .iter()
            .filter_map(|&node| match graph[node] {
                Node::Instance(at) => Some(at),
                Node::Rank(_) => None,
            })
            .collect();
        let since = |rank: u32| {
            self.waits_in
                .get(&rank)
                .into_iter()
                .flatten()
                .filter(|at| members.contains(at))
                .filter_map(|&at| self.instances.get(at)?.waiters.iter().find(|waiter| waiter.rank == rank))
                .map(|waiter| waiter.since)
                .min()
        };
        let mut starts: Vec<(i64, u32, NodeIndex)> = component
            .iter()
            .filter_map(|&node| match graph[node] {
                Node::Rank(rank) => Some((since(rank)?, rank, node)),
                Node::Instance(_) => None,
            })
            .collect();
        starts.sort_unstable();
        let &(first, _, start) = starts.first()?;
        let mut from: BTreeMap<NodeIndex, NodeIndex> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            let mut next: Vec<NodeIndex> = graph.neighbors(node).filter(|next| inside.contains(next)).collect();
            next.sort_unstable();
            for next in next {
                if next == start {
                    let mut path = vec![node];
                    let mut at = node;
                    while let Some(&before) = from.get(&at) {
                        path.push(before);
                        at = before;
                    }
                    path.reverse();
                    let mut cycle = Cycle { since: first, ..Cycle::default() };
                    for node in path {
                        match graph[node] {
                            Node::Rank(rank) => cycle.ranks.push(rank),
                            Node::Instance(at) => cycle.instances.push(at),
                        }
                    }
                    return Some(cycle);
                }
                if next != start && !from.contains_key(&next) {
                    from.insert(next, node);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[derive(Debug, Clone, Copy)]
enum Node {
    Rank(u32),
    Instance(usize),
}

/// Ranks that wait for one another in a circle: each waits, in the instance of the same index, for the next.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cycle {
    pub(crate) ranks: Vec<u32>,
    pub(crate) instances: Vec<usize>,
    pub(crate) since: i64,
}
