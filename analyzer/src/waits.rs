//! Who waits for whom: ranks, the calls they wait in, and the members those calls wait for.
//!
//! The graph has a node per waiting rank and one per call that cannot complete, never an edge per pair of ranks, so
//! that ten thousand ranks in one barrier are one node and ten thousand edges.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankdiff_trace::{Call, CallFlags, Life, OpKind, RankSet, Semantics};
use rustc_hash::FxHashSet;

use crate::align::{Alignment, synchronises};
use crate::circles;
pub(crate) use crate::circles::Cycle;
use crate::creation::{Caller, Creation};
use crate::diverge::Kind;
use crate::index::{Base, Progress, Track};
use crate::queues::{self, At, Stopped};
use crate::state::{How, RankState};
use crate::stuck;
pub(crate) use crate::stuck::{Stuck, Transfer};
use crate::unjoined::{self, joined};

/// Where something is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A collective that some members have not entered.
    Collective(u64),
    /// A collective in which members made different calls.
    Diverged(u64),
    /// A collective that all have entered, behind one that is not complete.
    Behind(u64),
    /// Creation of a communicator: index into [`Waits::creations`].
    Creation(usize),
    /// A send or receive: index into the messages without a partner.
    Message(usize),
    /// A send or receive whose partner is queued behind something else.
    Transfer,
    /// A receive from whoever sends: one of those that it lacks is enough.
    FromAny,
    /// A call on a communicator whose members are not known.
    Unjoined,
}

/// A rank inside a call that cannot complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter<'a> {
    pub(crate) rank: u32,
    pub(crate) stream: usize,
    pub(crate) call: &'a Call,
    /// Position on the communicator, where it has one.
    pub(crate) pos: Option<u64>,
    pub(crate) since: i64,
    /// Its thread is inside the call, so that it cannot do anything else.
    pub(crate) blocks: bool,
}

/// A call that cannot complete, who waits in it, and for whom.
#[derive(Debug)]
pub(crate) struct Instance<'a> {
    pub(crate) place: Place,
    pub(crate) comm: Option<usize>,
    pub(crate) waiters: Vec<Waiter<'a>>,
    /// Members that have not entered it by the end of their records.
    pub(crate) lacking: RankSet,
    /// Members of which that cannot be said, and why.
    pub(crate) unsure: Vec<(u32, String)>,
    /// Entry of the first waiter.
    pub(crate) since: i64,
}

impl Instance<'_> {
    pub(crate) fn waiting(&self) -> RankSet {
        self.waiters.iter().map(|waiter| waiter.rank).collect()
    }
}

/// All waits of the job.
#[derive(Debug, Default)]
pub(crate) struct Waits<'a> {
    pub(crate) instances: Vec<Instance<'a>>,
    pub(crate) stuck: Vec<Stuck>,
    /// Messages of which both ends are there and that do not arrive.
    pub(crate) transfers: Vec<Transfer<'a>>,
    pub(crate) creations: Vec<Creation<'a>>,
    /// Some of the instances stand only if no send was buffered.
    pub(crate) by_sends: bool,
    /// Where ranks receive from any source: ranks that can still get to send something.
    pub(crate) able: BTreeSet<u32>,
    /// Instances that wait for a rank.
    pub(crate) wanted: BTreeMap<u32, Vec<usize>>,
    /// Instances that a rank waits in.
    pub(crate) waits_in: BTreeMap<u32, Vec<usize>>,
    /// Ranks whose thread is held by such a call.
    blocked: FxHashSet<u32>,
}

pub(crate) fn build<'a>(alignment: &Alignment<'a>, creations: Vec<Creation<'a>>) -> Waits<'a> {
    let mut waits = Waits { creations, ..Waits::default() };
    waits.instances.append(&mut unjoined::waits(alignment));
    for comm in 0..alignment.comms.list.len() {
        let open = alignment.divergences.iter().find(|one| one.comm == comm && one.open);
        match open {
            Some(open) if !matches!(open.kind, Kind::Meaning { .. }) => diverged(alignment, comm, open, &mut waits),
            _ => {
                lacking(alignment, comm, &mut waits);
                stuck::collective(alignment, comm, &mut waits);
            }
        }
    }
    creation_waits(alignment, &mut waits);
    messages(alignment, &mut waits);
    queued(alignment, &mut waits);
    stuck::transfers(alignment, &mut waits);
    waits.link();
    stuck::heads(alignment, &mut waits);
    waits.link();
    circles::from_any(alignment, &mut waits);
    waits.link();
    waits
}

pub(crate) fn waiter<'a>(alignment: &Alignment<'a>, comm: usize, track: &Track<'a>, from: u64) -> Option<Waiter<'a>> {
    let start = track.entries.partition_point(|entry| entry.pos < from);
    let entry = track.entries.get(start..)?.iter().find(|entry| entry.progress != Progress::Done)?;
    // Its own call there may not have been decoded; an equal one tells what it is, and its member's clock since when.
    if entry.pos > from
        && let Some((other, equal)) = alignment.call_at(comm, track, from)
        && equal.progress != Progress::Done
    {
        return Some(Waiter {
            rank: track.rank,
            stream: other.stream,
            call: equal.call,
            pos: Some(from),
            since: alignment.entered(other.stream, equal.call),
            blocks: false,
        });
    }
    let blocks = alignment.comm(comm).is_some_and(|comm| comm.semantics.contains(Semantics::BLOCKING));
    Some(Waiter {
        rank: track.rank,
        stream: track.stream,
        call: entry.call,
        pos: Some(entry.pos),
        since: alignment.entered(track.stream, entry.call),
        blocks: blocks && entry.progress == Progress::Pending && entry.call.exit.is_none(),
    })
}

/// The position that the members with the fewest calls lack.
fn lacking<'a>(alignment: &Alignment<'a>, comm: usize, waits: &mut Waits<'a>) {
    let Some(group) = joined(alignment, comm) else { return };
    let tracks: Vec<&Track<'a>> = alignment.tracks(comm).iter().filter(|track| track.base != Base::Unknown).collect();
    let is_certain = |track: &Track<'_>| track.blind_after.is_none() && !(track.is_empty() && track.blind_before);
    let shortest = tracks.iter().filter(|track| is_certain(track)).map(|track| track.end()).min();
    let waiting_at = |pos: u64| -> Vec<Waiter<'a>> {
        let inside = tracks.iter().filter(|track| track.end() > pos && !went_on_unseen(alignment, track));
        inside.filter_map(|track| waiter(alignment, comm, track, pos)).collect()
    };
    let Some(mut pos) = shortest else { return };
    let mut waiters = waiting_at(pos);
    let all_entered = waiters.is_empty();
    if all_entered {
        // All that are known for certain have entered what is pending: perhaps one of the others has not.
        let pending = tracks.iter().filter_map(|track| {
            track.entries.iter().find(|entry| entry.progress == Progress::Pending).map(|entry| entry.pos)
        });
        let Some(first) = pending.min() else { return };
        let doubtful = alignment.tracks(comm).iter().any(|track| track.base == Base::Unknown || track.end() <= first);
        if !doubtful && alignment.unseen_count(group) == 0 {
            return;
        }
        pos = first;
        waiters = waiting_at(pos);
    }
    let Some(since) = waiters.iter().map(|waiter| waiter.since).min() else { return };
    // A complete call of all members shows that all entered it, whatever the record of one of them says.
    let refuted = tracks.iter().filter_map(|track| track.at(pos)).any(|entry| {
        entry.progress == Progress::Done
            && synchronises(entry.call.op)
            && !entry.call.flags.contains(rankdiff_trace::CallFlags::DONE)
            && entry.call.result.unwrap_or(0) == 0
    });
    if refuted && all_entered {
        return;
    }
    let by_guess = placed_by_guess(alignment, &tracks, &waiters);
    let mut instance = Instance {
        place: Place::Collective(pos),
        comm: Some(comm),
        waiters,
        lacking: RankSet::new(),
        unsure: Vec::new(),
        since,
    };
    for track in alignment.tracks(comm) {
        let unknown_base = track.base == Base::Unknown;
        if track.end() > pos && !unknown_base {
            continue;
        }
        let state = alignment.states.get(track.stream);
        let reason = if unknown_base {
            Some("its place among the other ranks' calls is not known".to_owned())
        } else if let Some(lost) = &track.blind_after {
            Some(lost.clone())
        } else if track.is_empty() && track.blind_before {
            Some("its calls before the recorder was attached are not known".to_owned())
        } else if refuted {
            Some("its record ends before the others'".to_owned())
        } else if by_guess(track) {
            Some("its place among the other ranks' calls was inferred, and those ahead of it ended normally".to_owned())
        } else if state.is_some_and(|state| state.ended.is_none() && state.horizon < since) {
            Some("its record ends before the others entered the call".to_owned())
        } else {
            None
        };
        match reason {
            Some(reason) => instance.unsure.push((track.rank, reason)),
            None => {
                instance.lacking.insert(track.rank);
            }
        }
    }
    for rank in alignment.unseen(group).iter() {
        instance.unsure.push((rank, "it has no trace".to_owned()));
    }
    waits.instances.push(instance);
}

/// Whether a rank ended normally behind the end of its record: what was open there did not hold it.
fn went_on_unseen(alignment: &Alignment<'_>, track: &Track<'_>) -> bool {
    track.blind_after.is_some() && ended_normally(alignment, track.stream)
}

/// Whether only a place that was inferred says that a member lacks a call, while nobody was held by that: all who made
/// the call ended normally, or may have. Where calls repeat, the place may be off by some rounds.
fn placed_by_guess(
    alignment: &Alignment<'_>,
    tracks: &[&Track<'_>],
    waiters: &[Waiter<'_>],
) -> impl Fn(&Track<'_>) -> bool + use<> {
    let guessed = |track: &Track<'_>| track.base == Base::Inferred;
    // Asked for each member of what may be thousands: what concerns the waiters is looked at once.
    let blind = |stream: usize| tracks.iter().any(|track| track.stream == stream && track.blind_after.is_some());
    let unharmed = waiters.iter().all(|waiter| ended_normally(alignment, waiter.stream) || blind(waiter.stream));
    let streams: FxHashSet<usize> = waiters.iter().map(|waiter| waiter.stream).collect();
    let theirs = unharmed && tracks.iter().any(|track| guessed(track) && streams.contains(&track.stream));
    move |short| unharmed && (theirs || guessed(short))
}

/// Whether a rank ended by itself with code 0.
fn ended_normally(alignment: &Alignment<'_>, stream: usize) -> bool {
    let state = alignment.states.get(stream);
    state.is_some_and(|state| state.aborted.is_none() && matches!(state.ended, Some((_, How::Exit(0)))))
}

/// Members that wait in a call in which others made another one.
fn diverged<'a>(
    alignment: &Alignment<'a>,
    comm: usize,
    divergence: &crate::diverge::Divergence,
    waits: &mut Waits<'a>,
) {
    let tracks = alignment.tracks(comm);
    let waiters: Vec<Waiter<'a>> =
        tracks.iter().filter_map(|track| waiter(alignment, comm, track, divergence.visible)).collect();
    let Some(since) = waiters.iter().map(|waiter| waiter.since).min() else { return };
    let minority: RankSet = divergence
        .groups
        .iter()
        .skip(1)
        .flat_map(|group| alignment.ranks_of(comm, group).iter().collect::<Vec<_>>())
        .collect();
    let short = tracks.iter().filter(|track| track.end() <= divergence.visible).map(|track| track.rank);
    let lacking = minority.iter().chain(short).collect();
    waits.instances.push(Instance {
        place: Place::Diverged(divergence.visible),
        comm: Some(comm),
        waiters,
        lacking,
        unsure: Vec::new(),
        since,
    });
}

fn creation_waits<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    for (at, creation) in waits.creations.iter().enumerate() {
        let waiters: Vec<Waiter<'a>> = creation
            .callers
            .iter()
            .filter(|caller| caller.pending)
            .filter_map(|&Caller { stream, call, .. }| {
                let rank = alignment.attempt.streams.get(stream)?.rank;
                let since = alignment.entered(stream, call);
                // Creating a communicator blocks in every library unless it says otherwise.
                let blocks = call.exit.is_none();
                Some(Waiter { rank, stream, call, pos: None, since, blocks })
            })
            .collect();
        let Some(since) = waiters.iter().map(|waiter| waiter.since).min() else { continue };
        let (lacking, unsure): (Vec<u32>, Vec<u32>) = creation.missing.iter().partition(|rank| {
            alignment.state_of(*rank).is_some_and(|state| state.ended.is_some() || state.horizon >= since)
        });
        waits.instances.push(Instance {
            place: Place::Creation(at),
            comm: creation.comm,
            waiters,
            lacking: lacking.into_iter().collect(),
            unsure: unsure
                .into_iter()
                .map(|rank| (rank, "its record ends before".to_owned()))
                .chain(creation.unsure.iter().map(|rank| (rank, doubt(alignment, rank))))
                .collect(),
            since,
        });
    }
}

/// Why it is not known whether a rank made a call.
fn doubt(alignment: &Alignment<'_>, rank: u32) -> String {
    let reason = if alignment.stream_of(rank).is_none() { "it has no trace" } else { "its record has gaps" };
    reason.to_owned()
}

fn messages<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    for (at, single) in alignment.messages.singles.iter().enumerate() {
        let comm = alignment.comm(single.comm);
        let semantics = comm.map(|comm| comm.semantics).unwrap_or_default();
        let sends = single.end.call.op == rankdiff_trace::Op::Send;
        let waiting = match single.end.progress {
            Progress::Done => false,
            Progress::Pending => true,
            // A receive cannot be complete without its send; a send can where it may be buffered.
            Progress::Unknown => !sends || !semantics.contains(Semantics::SENDS_MAY_BUFFER),
        };
        if !waiting || goes_on(alignment, single.end.stream, single.end.call, semantics) {
            continue;
        }
        let since = alignment.entered(single.end.stream, single.end.call);
        let blocks = semantics.contains(Semantics::BLOCKING)
            && single.end.progress == Progress::Pending
            && single.end.call.exit.is_none();
        let known =
            alignment.state_of(single.peer).is_some_and(|state| state.ended.is_some() || state.horizon >= since);
        let unsure = if known { Vec::new() } else { vec![(single.peer, "its record ends before".to_owned())] };
        waits.instances.push(Instance {
            place: Place::Message(at),
            comm: Some(single.comm),
            waiters: vec![Waiter {
                rank: single.end.rank,
                stream: single.end.stream,
                call: single.end.call,
                pos: None,
                since,
                blocks,
            }],
            lacking: if known { RankSet::from_iter([single.peer]) } else { RankSet::new() },
            unsure,
            since,
        });
    }
}

/// Whether a rank that posted a call without waiting for it has gone on with something else, or is gone: where calls
/// block, such a call may be there for a message that comes at any time, or never.
fn goes_on(alignment: &Alignment<'_>, stream: usize, call: &Call, semantics: Semantics) -> bool {
    if !semantics.contains(Semantics::BLOCKING) || !call.flags.contains(CallFlags::NONBLOCKING) {
        return false;
    }
    let Some(own) = alignment.attempt.streams.get(stream) else { return true };
    let left = alignment.states.get(stream).is_some_and(|state| matches!(state.ended, Some((_, How::Exit(0)))));
    let later = own.calls.iter().rev().take_while(|other| !std::ptr::eq(**other, call));
    let posts = |other: &Call| other.flags.contains(CallFlags::NONBLOCKING) || other.op.kind() == OpKind::Wait;
    let mut later = later.filter(|other| other.thread == call.thread).peekable();
    // Its last call waits for requests: perhaps for this one.
    let waits = later.peek().is_some_and(|last| last.op.kind() == OpKind::Wait && last.exit.is_none());
    left || !waits && later.any(|other| !posts(other))
}

/// What is left over on the queues of a job that stands still.
fn queued<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    let Some(quiet) = &alignment.quiet else { return };
    let leftover = queues::execute(alignment, quiet);
    waits.by_sends = leftover.by_sends;
    let mut meetings: BTreeMap<(usize, At), Vec<&Stopped<'a>>> = BTreeMap::new();
    for one in &leftover.stopped {
        meetings.entry((one.comm, one.at)).or_default().push(one);
    }
    for ((comm, at), stopped) in meetings {
        let waiters: Vec<Waiter<'a>> = stopped
            .iter()
            .map(|one| Waiter {
                rank: one.rank,
                stream: one.stream,
                call: one.call,
                pos: match at {
                    At::Collective(pos) => Some(pos),
                    At::Message(..) => None,
                },
                since: alignment.entered(one.stream, one.call),
                blocks: false,
            })
            .collect();
        let Some(since) = waiters.iter().map(|waiter| waiter.since).min() else { continue };
        let lacking: RankSet = stopped.iter().flat_map(|one| one.missing.iter().copied()).collect();
        // Calls that have no partner at all, or that members have not issued, may be known as waits already.
        let singles = &alignment.messages.singles;
        let single = |call: &Call| singles.iter().position(|single| std::ptr::eq(single.end.call, call));
        let place = match at {
            At::Collective(pos) => Place::Collective(pos),
            At::Message(..) => stopped.first().and_then(|one| single(one.call)).map_or(Place::Transfer, Place::Message),
        };
        let known = waits
            .instances
            .iter_mut()
            .find(|held| held.comm == Some(comm) && held.place == place && place != Place::Transfer);
        match known {
            Some(held) => {
                held.lacking.extend(lacking.iter());
                // Who has issued the call but not come to it waits somewhere else.
                held.waiters.retain(|waiter| !lacking.contains(waiter.rank));
                for waiter in waiters {
                    if !held.waiters.iter().any(|other| other.rank == waiter.rank) {
                        held.waiters.push(waiter);
                    }
                }
            }
            None => {
                let unsure = Vec::new();
                waits.instances.push(Instance { place, comm: Some(comm), waiters, lacking, unsure, since });
            }
        }
    }
}

impl<'a> Waits<'a> {
    pub(crate) fn link(&mut self) {
        self.wanted.clear();
        self.waits_in.clear();
        self.blocked.clear();
        for (at, instance) in self.instances.iter().enumerate() {
            for rank in instance.lacking.iter() {
                self.wanted.entry(rank).or_default().push(at);
            }
            for waiter in &instance.waiters {
                self.waits_in.entry(waiter.rank).or_default().push(at);
                if waiter.blocks {
                    self.blocked.insert(waiter.rank);
                }
            }
        }
    }

    /// Instances that a rank waits in.
    pub(crate) fn of_rank(&self, rank: u32) -> impl Iterator<Item = &Instance<'a>> {
        self.waits_in.get(&rank).into_iter().flatten().filter_map(|&at| self.instances.get(at))
    }

    /// Instances that wait for a rank.
    pub(crate) fn for_rank(&self, rank: u32) -> impl Iterator<Item = &Instance<'a>> {
        self.wanted.get(&rank).into_iter().flatten().filter_map(|&at| self.instances.get(at))
    }

    /// Whether a rank waits for somebody and does nothing else.
    pub(crate) fn is_held(&self, alignment: &Alignment<'_>, rank: u32) -> bool {
        let stayed = |state: &&RankState<'_>| alignment.deaths.stayed(state);
        let Some(state) = alignment.state_of(rank).filter(stayed) else { return false };
        let working = matches!(state.life, Some(Life::Running));
        if working { self.blocked.contains(&rank) } else { self.waits_in.contains_key(&rank) }
    }

    /// Whether a rank is inside a call that is stuck though nobody is missing in it.
    pub(crate) fn is_stuck(&self, rank: u32) -> bool {
        self.stuck.iter().any(|stuck| stuck.pending.contains(rank))
            || self.transfers.iter().any(|transfer| transfer.pending().contains(rank))
    }

    /// Ranks that wait for one of these, and those that wait for them in turn.
    pub(crate) fn victims(&self, of: &RankSet) -> (RankSet, RankSet) {
        let mut direct = RankSet::new();
        for instance in of.iter().flat_map(|rank| self.for_rank(rank)) {
            direct.extend(instance.waiters.iter().map(|waiter| waiter.rank).filter(|rank| !of.contains(*rank)));
        }
        let mut seen = of.union(&direct);
        let mut queue: VecDeque<u32> = direct.iter().collect();
        let mut visited: BTreeSet<usize> = BTreeSet::new();
        let mut transitive = RankSet::new();
        while let Some(rank) = queue.pop_front() {
            for &at in self.wanted.get(&rank).into_iter().flatten() {
                if !visited.insert(at) {
                    continue;
                }
                for waiter in self.instances.get(at).into_iter().flat_map(|instance| &instance.waiters) {
                    if seen.insert(waiter.rank) {
                        transitive.insert(waiter.rank);
                        queue.push_back(waiter.rank);
                    }
                }
            }
        }
        (direct, transitive)
    }
}
