//! Calls in which nobody is missing and that are not complete all the same, and which of them hold the others up.
//!
//! A rank's calls run in the order in which it made them, as far as anybody can tell from outside. So of several calls that
//! are stuck, the fault lies where a call is the first one that is not complete on each of its ranks: the others stand
//! behind it. Not here: calls that somebody has not entered (`waits`).

use rankdiff_trace::{Call, CallFlags, CommRef, Completion, Level, RankSet};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::align::Alignment;
use crate::index::{Base, Progress, Track};
use crate::messages::End;
use crate::stream::RankStream;
use crate::unjoined::joined;
use crate::waits::{Instance, Place, Waiter, Waits, waiter};

/// A collective that all members entered with one signature and that is not complete.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub(crate) comm: usize,
    pub(crate) pos: u64,
    pub(crate) pending: RankSet,
    pub(crate) done: RankSet,
    /// Since when nothing but the device or the network can be missing.
    pub(crate) since: i64,
}

/// A message of which both ends are there and that does not arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) comm: usize,
    pub(crate) send: End<'a>,
    pub(crate) recv: End<'a>,
    pub(crate) since: i64,
}

impl Transfer<'_> {
    /// Ranks on which it is not complete.
    pub(crate) fn pending(&self) -> RankSet {
        [&self.send, &self.recv].into_iter().filter(|end| end.progress != Progress::Done).map(|end| end.rank).collect()
    }
}

/// The first call of a communicator that is pending although all members entered it.
pub(crate) fn collective<'a>(alignment: &Alignment<'a>, comm: usize, waits: &mut Waits<'a>) {
    let Some(group) = joined(alignment, comm) else { return };
    let tracks = alignment.tracks(comm);
    if tracks.len() < group.count() || tracks.iter().any(|track| track.base == Base::Unknown) {
        return;
    }
    let first_pending = |track: &Track<'_>| {
        track.entries.iter().find(|entry| entry.progress == Progress::Pending).map(|entry| entry.pos)
    };
    let Some(pos) = tracks.iter().filter_map(first_pending).min() else { return };
    let entries: Vec<_> = tracks.iter().filter_map(|track| Some((track, track.at(pos)?))).collect();
    if entries.len() < tracks.len() {
        return;
    }
    if let Some(instance) = given_up(alignment, comm, pos) {
        waits.instances.push(instance);
        return;
    }
    let ranks = |progress: fn(Progress) -> bool| {
        entries.iter().filter(|(_, entry)| progress(entry.progress)).map(|(track, _)| track.rank).collect::<RankSet>()
    };
    let done = ranks(|progress| progress == Progress::Done);
    let pending = ranks(|progress| progress != Progress::Done);
    let moment = |track: &Track<'_>, call: &Call| {
        let stream = alignment.attempt.streams.get(track.stream);
        let end = match call.completion {
            Completion::At(at) => at,
            _ => call.enter,
        };
        stream.map_or(0, |stream| stream.time(end.max(call.enter)))
    };
    let since = entries.iter().map(|(track, entry)| moment(track, entry.call)).max().unwrap_or(0);
    waits.stuck.push(Stuck { comm, pos, pending, done, since });
}

/// Members that came to a call only after others had ended in it: those have waited for them.
fn given_up<'a>(alignment: &Alignment<'a>, comm: usize, pos: u64) -> Option<Instance<'a>> {
    let tracks = alignment.tracks(comm);
    // Who ended by itself did not give up.
    let end = |track: &Track<'_>| {
        let state = alignment.states.get(track.stream).filter(|state| state.failed())?;
        state.ended.as_ref().map(|ended| ended.0)
    };
    let clock = |track: &Track<'_>| alignment.attempt.streams.get(track.stream).map(|stream| &stream.clock);
    let (first, ended) = tracks.iter().filter_map(|track| Some((track, end(track)?))).min_by_key(|one| one.1)?;
    let came_after = |track: &&Track<'a>| {
        let Some((one, other)) = clock(first).zip(clock(track)).filter(|(one, other)| one.is_proven_with(other)) else {
            return false;
        };
        let doubt = one.doubt_at_end(other);
        track.at(pos).is_some_and(|entry| alignment.entered(track.stream, entry.call) > ended.saturating_add(doubt))
    };
    let lacking: RankSet = tracks.iter().filter(came_after).map(|track| track.rank).collect();
    let waiters: Vec<Waiter<'a>> = tracks
        .iter()
        .filter(|track| !lacking.contains(track.rank))
        .filter_map(|track| waiter(alignment, comm, track, pos))
        .collect();
    let since = waiters.iter().map(|waiter| waiter.since).min()?;
    (!lacking.is_empty()).then(|| Instance {
        place: Place::Collective(pos),
        comm: Some(comm),
        waiters,
        lacking,
        unsure: Vec::new(),
        since,
    })
}

/// Messages whose two ends have been there for long and that are not complete where they are received.
pub(crate) fn transfers<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    for &(comm, send, recv) in &alignment.messages.open {
        let entered = |end: &End<'_>| alignment.entered(end.stream, end.call);
        let since = entered(&send).max(entered(&recv));
        let ended = |end: &End<'_>| alignment.state_of(end.rank).is_some_and(|state| state.ended.is_some());
        // One that ended inside its part of it is missing like one that has not come.
        if let Some((gone, left)) = match (ended(&send), ended(&recv)) {
            (true, false) if send.progress != Progress::Done => Some((send, recv)),
            (false, true) if send.progress == Progress::Pending => Some((recv, send)),
            _ => None,
        } {
            waits.instances.push(message(alignment, comm, &left, gone.rank));
        } else {
            waits.transfers.push(Transfer { comm, send, recv, since });
        }
    }
}

/// Keeps the stuck calls that are the first ones on each of their ranks, and makes the others wait for those ranks. What
/// such a rank issued behind them waits for nobody else yet.
pub(crate) fn heads<'a>(alignment: &Alignment<'a>, waits: &mut Waits<'a>) {
    if waits.stuck.is_empty() && waits.transfers.is_empty() {
        return;
    }
    let order = Order::of(alignment);
    first_transfers(alignment, &order, waits);
    waits.link();
    first_collectives(alignment, &order, waits);
    let collectives = waits.stuck.iter().flat_map(|stuck| ends_of(alignment, stuck));
    let messages = waits.transfers.iter().flat_map(|one| [one.send, one.recv]);
    let mut heads: FxHashMap<u32, Vec<End<'a>>> = FxHashMap::default();
    for end in collectives.chain(messages.filter(|end| end.progress != Progress::Done)) {
        heads.entry(end.rank).or_default().push(end);
    }
    for instance in &mut waits.instances {
        if matches!(instance.place, Place::Diverged(_)) {
            continue;
        }
        instance.waiters.retain(|waiter| {
            let own = heads.get(&waiter.rank).map_or(&[][..], Vec::as_slice);
            !own.iter().any(|head| order.stands_before(head.stream, head.call, waiter.call))
        });
    }
    waits.instances.retain(|instance| !instance.waiters.is_empty());
}

/// The calls of the ranks on which a collective is not complete.
fn ends_of<'a>(alignment: &Alignment<'a>, stuck: &Stuck) -> Vec<End<'a>> {
    let tracks = alignment.tracks(stuck.comm).iter().filter(|track| stuck.pending.contains(track.rank));
    let end = |track: &Track<'a>| {
        let entry = track.at(stuck.pos)?;
        Some(End { stream: track.stream, rank: track.rank, call: entry.call, progress: entry.progress })
    };
    tracks.filter_map(end).collect()
}

fn first_transfers<'a>(alignment: &Alignment<'a>, order: &Order<'a>, waits: &mut Waits<'a>) {
    let mut transfers = std::mem::take(&mut waits.transfers);
    transfers.sort_by_key(|transfer| (transfer.since, transfer.comm, transfer.send.rank, transfer.recv.rank));
    let is_behind = |end: &End<'a>| order.is_behind(end.stream, end.call) || waits_before(alignment, waits, end);
    // For each end that is not complete: whether something stands in front of it.
    let mut behind: Vec<[bool; 2]> = transfers
        .iter()
        .map(|transfer| [&transfer.send, &transfer.recv].map(|end| end.progress != Progress::Done && is_behind(end)))
        .collect();
    // The calls of a batch are complete together: what holds one of them holds them all.
    loop {
        let mut held: FxHashSet<(usize, u32, u32)> = FxHashSet::default();
        for (transfer, behind) in transfers.iter().zip(&behind) {
            if behind.contains(&true) {
                held.extend([&transfer.send, &transfer.recv].into_iter().filter_map(batch_of));
            }
        }
        let mut changed = false;
        for (transfer, behind) in transfers.iter().zip(&mut behind) {
            let mine =
                [&transfer.send, &transfer.recv].map(|end| batch_of(end).is_some_and(|batch| held.contains(&batch)));
            if !behind.contains(&true) && mine.contains(&true) {
                *behind = mine;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    for (transfer, behind) in transfers.into_iter().zip(behind) {
        let (waits_here, held) = match behind {
            [false, false] => {
                waits.transfers.push(transfer);
                continue;
            }
            [true, true] => continue,
            [true, false] => (transfer.recv, transfer.send),
            [false, true] => (transfer.send, transfer.recv),
        };
        if waits_here.progress != Progress::Done {
            waits.instances.push(message(alignment, transfer.comm, &waits_here, held.rank));
        }
    }
}

/// A batch: stream, thread and number.
fn batch_of(end: &End<'_>) -> Option<(usize, u32, u32)> {
    let grouped = end.call.flags.contains(CallFlags::GROUPED) && end.call.group != 0;
    grouped.then_some((end.stream, end.call.thread, end.call.group))
}

/// One end of a message that waits for the other.
fn message<'a>(alignment: &Alignment<'a>, comm: usize, end: &End<'a>, other: u32) -> Instance<'a> {
    let since = alignment.entered(end.stream, end.call);
    Instance {
        place: Place::Transfer,
        comm: Some(comm),
        waiters: vec![Waiter { rank: end.rank, stream: end.stream, call: end.call, pos: None, since, blocks: false }],
        lacking: RankSet::from_iter([other]),
        unsure: Vec::new(),
        since,
    }
}

fn first_collectives<'a>(alignment: &Alignment<'a>, order: &Order<'a>, waits: &mut Waits<'a>) {
    let stuck = std::mem::take(&mut waits.stuck);
    let held_up = |stuck: &Stuck| -> (RankSet, RankSet) {
        let (mut by_wait, mut by_call) = (RankSet::new(), RankSet::new());
        for end in ends_of(alignment, stuck) {
            if waits_before(alignment, waits, &end) {
                by_wait.insert(end.rank);
            } else if order.is_behind(end.stream, end.call) {
                by_call.insert(end.rank);
            }
        }
        (by_wait, by_call)
    };
    let found: Vec<(RankSet, RankSet)> = stuck.iter().map(held_up).collect();
    // In a circle none is the first one: each is told.
    let any_first = !waits.transfers.is_empty() || found.iter().any(|held| held.0.is_empty() && held.1.is_empty());
    for (stuck, (by_wait, by_call)) in stuck.into_iter().zip(found) {
        let held = if any_first { by_wait.union(&by_call) } else { by_wait };
        if held.is_empty() {
            waits.stuck.push(stuck);
            continue;
        }
        let waiters: Vec<Waiter<'a>> = alignment
            .tracks(stuck.comm)
            .iter()
            .filter_map(|track| waiter(alignment, stuck.comm, track, stuck.pos))
            .collect();
        let since = waiters.iter().map(|waiter| waiter.since).min().unwrap_or(stuck.since);
        waits.instances.push(Instance {
            place: Place::Behind(stuck.pos),
            comm: Some(stuck.comm),
            waiters: waiters.into_iter().filter(|waiter| !held.contains(waiter.rank)).collect(),
            lacking: held,
            unsure: Vec::new(),
            since,
        });
    }
}

/// Whether the rank waits for somebody in a call that it made before this one on another communicator.
fn waits_before(alignment: &Alignment<'_>, waits: &Waits<'_>, end: &End<'_>) -> bool {
    let comm = alignment.comms.of(end.stream, end.call.comm);
    let entered = alignment.entered(end.stream, end.call);
    waits.of_rank(end.rank).any(|instance| {
        (instance.comm != comm || matches!(instance.place, Place::Message(_) | Place::Transfer))
            && instance
                .waiters
                .iter()
                .any(|waiter| waiter.rank == end.rank && waiter.since <= entered && !runs_apart(waiter.call, end.call))
    })
}

/// Whether two calls are on device streams of their own.
fn runs_apart(one: &Call, other: &Call) -> bool {
    one.stream != 0 && other.stream != 0 && one.stream != other.stream && one.comm != other.comm
}

/// The calls of every stream that are known not to be complete, in the order in which they were made.
struct Order<'a> {
    pending: Vec<Vec<&'a Call>>,
    /// By stream: the level of each communicator. A framework's call and the library's below it are one, not two in a row.
    levels: Vec<FxHashMap<CommRef, Level>>,
}

impl<'a> Order<'a> {
    fn of(alignment: &Alignment<'a>) -> Order<'a> {
        let of_stream = |(stream, progress): (&RankStream<'a>, &Vec<Progress>)| {
            let both = stream.calls.iter().zip(progress);
            both.filter(|(_, progress)| **progress == Progress::Pending).map(|(&call, _)| call).collect()
        };
        let streams = &alignment.attempt.streams;
        let levels_of = |stream: &RankStream<'a>| stream.trace.comms.iter().map(|def| (def.id, def.level)).collect();
        Order {
            pending: streams.iter().zip(&alignment.index.progress).map(of_stream).collect(),
            levels: streams.iter().map(levels_of).collect(),
        }
    }

    /// Whether the rank made another call before this one that is not complete.
    fn is_behind(&self, stream: usize, call: &Call) -> bool {
        let pending = self.pending.get(stream).map_or(&[][..], Vec::as_slice);
        let before = pending.iter().take_while(|other| !std::ptr::eq(**other, call));
        before.into_iter().any(|other| self.stands_before(stream, other, call))
    }

    /// Whether one of two calls of a rank that are not complete runs before the other. Calls of one batch run at once.
    fn stands_before(&self, stream: usize, one: &Call, other: &Call) -> bool {
        let level = |call: &Call| self.levels.get(stream).and_then(|levels| levels.get(&call.comm));
        let batch = |call: &Call| {
            (call.flags.contains(CallFlags::GROUPED) && call.group != 0).then_some((call.thread, call.group))
        };
        // A thread of its own that is inside a call holds nobody else up.
        let apart = one.exit.is_none() && one.thread != other.thread;
        let at_once = batch(one).is_some() && batch(one) == batch(other);
        !std::ptr::eq(one, other) && one.enter < other.enter && level(one) == level(other) && !apart && !at_once
    }
}
