//! What would happen if no send were buffered: the job's blocking sends, receives and barriers replayed with sends that
//! return only when their receive was posted.
//!
//! Only whole records of one kind of job can be replayed: blocking libraries whose sends may buffer, no wildcards, no gaps.

use std::collections::{BTreeMap, VecDeque};

use rankdiff_trace::{CallFlags, Op, OpKind, RankSet, Semantics};

use crate::align::{Alignment, synchronises};
use crate::index::takes_position;

/// What a rank does next.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// Channel, ordinal on it, whether the thread waits.
    Send(usize, u64, bool),
    Recv(usize, u64, bool),
    /// Communicator and position.
    Sync(usize, u64),
}

/// A rank whose send waits for ever if nothing is buffered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) rank: u32,
    pub(crate) comm: usize,
    pub(crate) stream: usize,
    /// Index of the call in its stream.
    pub(crate) call: usize,
}

/// The ranks that hang in a send if no send is buffered; empty if the job does not rely on buffers, or cannot be judged.
pub(crate) fn held(alignment: &Alignment<'_>) -> Vec<Held> {
    if alignment.divergences.iter().any(|one| one.open) || !alignment.waits.instances.is_empty() || !is_whole(alignment)
    {
        return Vec::new();
    }
    let Some(mut replay) = Replay::of(alignment) else { return Vec::new() };
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
            members: alignment.comms.list.iter().map(|comm| comm.members.clone()).collect(),
            arrived: BTreeMap::new(),
        };
        let mut any_send = false;
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
                        let Some(peer) = call.peer.map(|peer| comm.global(peer)) else { continue };
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

    /// Ranks that hang in a send to one that hangs in a send, and so on in a circle.
    fn held(&self) -> Vec<Held> {
        let mut held: Vec<(Held, u32)> = (0..self.next.len())
            .filter_map(|at| {
                let (Action::Send(channel, ..), call) = self.program_at(at)? else { return None };
                let &(comm, _, peer, _) = self.channels.get(channel)?;
                Some((Held { rank: *self.ranks.get(at)?, comm, stream: at, call }, peer))
            })
            .collect();
        loop {
            let ranks: RankSet = held.iter().map(|(held, _)| held.rank).collect();
            let before = held.len();
            held.retain(|(_, peer)| ranks.contains(*peer));
            if held.len() == before {
                return held.into_iter().map(|(held, _)| held).collect();
            }
        }
    }
}

/// The ranks of a result.
pub(crate) fn ranks(held: &[Held]) -> RankSet {
    held.iter().map(|held| held.rank).collect()
}
