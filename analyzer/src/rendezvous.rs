//! What would happen if no send were buffered: the job's blocking sends, receives and barriers replayed with sends that
//! return only when their receive was posted.
//!
//! Only whole records of one kind of job can be replayed: blocking libraries whose sends may buffer, no wildcards, no gaps.

use std::collections::{BTreeMap, VecDeque};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use rankdiff_trace::{CallFlags, Op, OpKind, RankSet, Semantics};

use crate::align::{Alignment, synchronises};
use crate::index::takes_position;
use crate::stream::RankStream;

/// What a rank does next.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// Channel, ordinal on it, whether the thread waits.
    Send(usize, u64, bool),
    Recv(usize, u64, bool),
    /// Communicator and position.
    Sync(usize, u64),
}

/// Who waits for ever if nothing is buffered.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Sends in a circle of ranks that wait for one another.
    pub(crate) sends: Vec<HeldSend>,
    /// Ranks in such a circle that wait in something else.
    pub(crate) others: RankSet,
}

impl Held {
    /// The ranks that send.
    pub(crate) fn senders(&self) -> RankSet {
        self.sends.iter().map(|send| send.rank).collect()
    }
}

/// A rank whose send waits for ever if nothing is buffered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldSend {
    pub(crate) rank: u32,
    pub(crate) comm: usize,
    pub(crate) stream: usize,
    /// Index of the call in its stream.
    pub(crate) call: usize,
}

/// Who hangs if no send is buffered; nobody if the job does not rely on buffers, or cannot be judged.
pub(crate) fn held(alignment: &Alignment<'_>) -> Held {
    if alignment.divergences.iter().any(|one| one.open) || !alignment.waits.instances.is_empty() || !is_whole(alignment)
    {
        return Held::default();
    }
    let Some(mut replay) = Replay::of(alignment) else { return Held::default() };
    replay.run();
    replay.held()
}

/// Whether every call of a run that is over was recorded.
fn is_whole(alignment: &Alignment<'_>) -> bool {
    let streams = &alignment.attempt.streams;
    if !alignment.states.iter().all(|state| state.is_gone() && !state.failed()) {
        return false;
    }
    let whole = !streams.iter().any(|stream| stream.has_gaps() || stream.trace.has_elided());
    let world = alignment.attempt.world.map_or(streams.len(), |world| world as usize);
    whole && streams.len() == world
}

/// Whether calls of a rank come from several threads.
fn has_threads(stream: &RankStream<'_>) -> bool {
    stream.calls.windows(2).any(|pair| matches!(pair, [a, b] if a.thread != b.thread))
}

/// Communicator, source, destination, tag.
type Channel = (usize, u32, u32, Option<i64>);

struct Replay {
    ranks: Vec<u32>,
    /// Per stream: actions, with the index of the call.
    programs: Vec<Vec<(Action, usize)>>,
    next: Vec<usize>,
    channels: Vec<Channel>,
    /// Per channel: sends and receives posted.
    posted: Vec<(u64, u64)>,
    /// Per channel: receives that there are in all.
    receives: Vec<u64>,
    /// Members of each communicator, and how many have come to each position.
    members: Vec<Vec<u32>>,
    arrived: BTreeMap<(usize, u64), u64>,
}

impl Replay {
    fn of(alignment: &Alignment<'_>) -> Option<Replay> {
        let mut ids: BTreeMap<Channel, usize> = BTreeMap::new();
        let mut counts: Vec<(u64, u64)> = Vec::new();
        let mut replay = Replay {
            ranks: alignment.attempt.streams.iter().map(|stream| stream.rank).collect(),
            programs: Vec::new(),
            next: vec![0; alignment.attempt.streams.len()],
            channels: Vec::new(),
            posted: Vec::new(),
            receives: Vec::new(),
            members: alignment.comms.list.iter().map(|comm| comm.members.clone()).collect(),
            arrived: BTreeMap::new(),
        };
        let mut any_send = false;
        // What threads of one rank do has no order.
        if alignment.attempt.streams.iter().any(has_threads) {
            return None;
        }
        for (at, stream) in alignment.attempt.streams.iter().enumerate() {
            let mut program = Vec::new();
            let mut positions: BTreeMap<usize, u64> = BTreeMap::new();
            for (index, &call) in stream.calls.iter().enumerate() {
                let Some(comm_at) = alignment.comms.of(at, call.comm) else { continue };
                let Some(comm) = alignment.comm(comm_at) else { continue };
                // Without its members nobody knows what a call would have waited for.
                if !takes_position(call) || comm.is_unjoined(alignment.attempt.world) {
                    continue;
                }
                let waits =
                    comm.semantics.contains(Semantics::BLOCKING) && !call.flags.contains(CallFlags::NONBLOCKING);
                // A combined send and receive, and a batch, post both before they wait.
                let follows = stream.calls.get(index + 1).filter(|next| next.thread == call.thread);
                let overlaps = follows
                    .is_some_and(|next| call.exit.is_none_or(|exit| next.enter < exit || next.enter == call.enter));
                let waits = waits && !call.flags.contains(CallFlags::GROUPED) && !overlaps;
                match call.op.kind() {
                    OpKind::PointToPoint => {
                        if call.flags.contains(CallFlags::ANY_SOURCE) || call.flags.contains(CallFlags::ANY_TAG) {
                            return None;
                        }
                        let Some(peer) = call.peer else { continue };
                        // A call that is left out would change what the others wait for.
                        let peer = comm.global(peer)?;
                        let sends = call.op == Op::Send;
                        any_send |= sends && waits && comm.semantics.contains(Semantics::SENDS_MAY_BUFFER);
                        let (source, destination) = if sends { (stream.rank, peer) } else { (peer, stream.rank) };
                        let channel = (comm_at, source, destination, call.tag);
                        let id = *ids.entry(channel).or_insert_with(|| {
                            replay.channels.push(channel);
                            replay.posted.push((0, 0));
                            counts.push((0, 0));
                            replay.channels.len() - 1
                        });
                        let Some(count) = counts.get_mut(id) else { continue };
                        let count = if sends { &mut count.0 } else { &mut count.1 };
                        *count += 1;
                        let action =
                            if sends { Action::Send(id, *count, waits) } else { Action::Recv(id, *count, waits) };
                        program.push((action, index));
                    }
                    OpKind::Collective => {
                        let next = positions.entry(comm_at).or_default();
                        let pos = call.seq.unwrap_or(*next);
                        *next = pos.saturating_add(1);
                        if waits && synchronises(call.op) && comm.members.len() > 1 {
                            program.push((Action::Sync(comm_at, pos), index));
                        }
                    }
                    _ => {}
                }
            }
            replay.programs.push(program);
        }
        replay.receives = counts.iter().map(|count| count.1).collect();
        any_send.then_some(replay)
    }

    /// Lets every rank go as far as it can; a rank that stops is looked at again when what it waits for happened.
    fn run(&mut self) {
        let mut entered = vec![false; self.next.len()];
        let mut queue: VecDeque<usize> = (0..self.next.len()).collect();
        while let Some(at) = queue.pop_front() {
            while let Some((action, _)) = self.program_at(at) {
                if let Some(entered) = entered.get_mut(at)
                    && !*entered
                {
                    *entered = true;
                    self.post(action, &mut queue);
                }
                if !self.returns(action) {
                    break;
                }
                if let (Some(next), Some(entered)) = (self.next.get_mut(at), entered.get_mut(at)) {
                    *next += 1;
                    *entered = false;
                }
            }
        }
    }

    fn program_at(&self, at: usize) -> Option<(Action, usize)> {
        self.programs.get(at)?.get(*self.next.get(at)?).copied()
    }

    /// Makes a call known and wakes those who may wait for it.
    fn post(&mut self, action: Action, queue: &mut VecDeque<usize>) {
        match action {
            Action::Send(channel, count, _) | Action::Recv(channel, count, _) => {
                let sends = matches!(action, Action::Send(..));
                if let Some(posted) = self.posted.get_mut(channel) {
                    let posted = if sends { &mut posted.0 } else { &mut posted.1 };
                    *posted = (*posted).max(count);
                }
                let other = self
                    .channels
                    .get(channel)
                    .map(|&(_, source, destination, _)| if sends { destination } else { source });
                queue.extend(other.and_then(|rank| self.ranks.binary_search(&rank).ok()));
            }
            Action::Sync(comm, pos) => {
                let arrived = self.arrived.entry((comm, pos)).or_default();
                *arrived += 1;
                let members = self.members.get(comm).map_or(&[][..], Vec::as_slice);
                if *arrived >= members.len() as u64 {
                    queue.extend(members.iter().filter_map(|rank| self.ranks.binary_search(rank).ok()));
                }
            }
        }
    }

    fn returns(&self, action: Action) -> bool {
        let posted = |channel: usize| self.posted.get(channel).copied().unwrap_or_default();
        match action {
            Action::Send(channel, count, waits) => !waits || posted(channel).1 >= count,
            Action::Recv(channel, count, waits) => !waits || posted(channel).0 >= count,
            Action::Sync(comm, pos) => {
                let members = self.members.get(comm).map_or(0, |members| members.len() as u64);
                self.arrived.get(&(comm, pos)).copied().unwrap_or(0) >= members
            }
        }
    }

    /// The sends that hang in circles. Whoever is in no circle only waits for one.
    fn held(&self) -> Held {
        let mut graph: DiGraph<(), ()> = DiGraph::new();
        let ranks: Vec<NodeIndex> = self.next.iter().map(|_| graph.add_node(())).collect();
        let node_of = |rank: u32| self.ranks.binary_search(&rank).ok().and_then(|at| ranks.get(at).copied());
        let mut syncs: BTreeMap<(usize, u64), NodeIndex> = BTreeMap::new();
        for (at, &own) in ranks.iter().enumerate() {
            let channel = |channel: usize| self.channels.get(channel).copied();
            let to = match self.program_at(at) {
                Some((Action::Send(id, ..), _)) => channel(id).and_then(|channel| node_of(channel.2)),
                Some((Action::Recv(id, ..), _)) => channel(id).and_then(|channel| node_of(channel.1)),
                Some((Action::Sync(comm, pos), _)) => {
                    Some(*syncs.entry((comm, pos)).or_insert_with(|| graph.add_node(())))
                }
                None => None,
            };
            if let Some(to) = to {
                graph.add_edge(own, to, ());
            }
        }
        for (&(comm, pos), &node) in &syncs {
            let arrived =
                |at: usize| matches!(self.program_at(at), Some((Action::Sync(c, p), _)) if (c, p) == (comm, pos));
            for &rank in self.members.get(comm).map_or(&[][..], Vec::as_slice) {
                // Whoever is gone past it has been there.
                let absent =
                    self.ranks.binary_search(&rank).ok().filter(|&at| self.program_at(at).is_some() && !arrived(at));
                if let Some(&to) = absent.and_then(|at| ranks.get(at)) {
                    graph.add_edge(node, to, ());
                }
            }
        }
        let mut found = Held::default();
        for component in tarjan_scc(&graph) {
            let circle = component.len() > 1 || component.iter().any(|&node| graph.find_edge(node, node).is_some());
            let inside = component.iter().map(|node| node.index()).filter(|_| circle);
            for at in inside.filter(|&at| at < self.next.len()) {
                let Some(rank) = self.ranks.get(at).copied() else { continue };
                match self.program_at(at) {
                    // What is never received at all is no matter of order.
                    Some((Action::Send(channel, count, _), call))
                        if self.receives.get(channel).is_some_and(|&receives| receives >= count) =>
                    {
                        let comm = self.channels.get(channel).map_or(0, |channel| channel.0);
                        found.sends.push(HeldSend { rank, comm, stream: at, call });
                    }
                    _ => {
                        found.others.insert(rank);
                    }
                }
            }
        }
        if found.sends.is_empty() {
            return Held::default();
        }
        found.sends.sort_by_key(|send| send.rank);
        found
    }
}
