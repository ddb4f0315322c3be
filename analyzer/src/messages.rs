//! Point-to-point: sends and receives paired per communicator, source, destination and tag, in order.
//!
//! Inside a batch sends and receives to different peers have no order, and pairing per channel needs none. Channels from
//! which a receive from any source or with any tag could have drawn are judged apart (`wildcards`).

use std::collections::BTreeMap;

use rankdiff_trace::{Basic, Call, CallFlags, Completion, Elements, Op, OpKind, RankSet, Semantics, TypeTable, Unit};

use crate::align::Alignment;
use crate::index::{Progress, takes_position};
use crate::wildcards::{self, Inbox, Open};

/// One end of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) stream: usize,
    pub(crate) rank: u32,
    pub(crate) call: &'a Call,
    pub(crate) progress: Progress,
}

/// A message whose two ends do not fit.
#[derive(Debug, Clone)]
pub(crate) struct Misfit<'a> {
    pub(crate) comm: usize,
    pub(crate) send: End<'a>,
    pub(crate) recv: End<'a>,
    /// What does not fit.
    pub(crate) what: &'static str,
}

/// A call without a partner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single<'a> {
    pub(crate) comm: usize,
    pub(crate) end: End<'a>,
    /// Global rank of the peer.
    pub(crate) peer: u32,
}

/// The job's messages.
#[derive(Debug, Default)]
pub(crate) struct Messages<'a> {
    pub(crate) misfits: Vec<Misfit<'a>>,
    /// First call without a partner of each channel.
    pub(crate) singles: Vec<Single<'a>>,
    /// Receives from any source for which there is no message.
    pub(crate) from_any: Vec<Open<'a>>,
    /// Messages that were paired, decoded or not.
    pub(crate) paired: u64,
    /// How long one end of a complete message has waited for the other at most, ns.
    pub(crate) longest: i64,
    /// Of each channel the first message that has both ends and is not complete where it is received: communicator, ends.
    pub(crate) open: Vec<(usize, End<'a>, End<'a>)>,
}

/// Communicator, source, destination (global ranks), tag.
type Channel = (usize, u32, u32, Option<i64>);

pub(crate) fn pair<'a>(alignment: &Alignment<'a>) -> Messages<'a> {
    let mut sends: BTreeMap<Channel, Vec<End<'a>>> = BTreeMap::new();
    let mut recvs: BTreeMap<Channel, Vec<End<'a>>> = BTreeMap::new();
    let mut inboxes: BTreeMap<(usize, u32), Inbox<'a>> = BTreeMap::new();
    for (at, stream) in alignment.attempt.streams.iter().enumerate() {
        let progress = alignment.index.progress.get(at).map_or(&[][..], Vec::as_slice);
        for (&call, &progress) in stream.calls.iter().zip(progress) {
            if call.op.kind() != OpKind::PointToPoint || !takes_position(call) {
                continue;
            }
            let Some(comm_at) = alignment.comms.of(at, call.comm) else { continue };
            let Some(comm) = alignment.comm(comm_at) else { continue };
            // Without the members nobody knows who the peer is.
            if comm.is_unjoined(alignment.attempt.world) {
                continue;
            }
            let peer = call.peer.and_then(|peer| comm.global(peer));
            let end = End { stream: at, rank: stream.rank, call, progress };
            if wildcards::is_wild(call) {
                inboxes.entry((comm_at, stream.rank)).or_default().receive(end, peer);
                continue;
            }
            let Some(peer) = peer else { continue };
            match call.op {
                Op::Send => sends.entry((comm_at, stream.rank, peer, call.tag)).or_default().push(end),
                _ => recvs.entry((comm_at, peer, stream.rank, call.tag)).or_default().push(end),
            }
        }
    }
    let mut found = Messages::default();
    let mut channels: Vec<Channel> = sends.keys().chain(recvs.keys()).copied().collect();
    channels.sort_unstable();
    channels.dedup();
    for channel in channels {
        let (comm, source, destination, tag) = channel;
        if let Some(inbox) = inboxes.get_mut(&(comm, destination)).filter(|inbox| inbox.draws(source, tag)) {
            inbox.sent(source, tag, sends.remove(&channel).unwrap_or_default());
            recvs.remove(&channel).unwrap_or_default().into_iter().for_each(|end| inbox.receive(end, Some(source)));
            continue;
        }
        if !is_whole(alignment, source) || !is_whole(alignment, destination) {
            continue;
        }
        // Where it is not known which member one of them is, the other's calls that mean it are not known either.
        if !alignment.comm(comm).is_some_and(|comm| comm.is_placed(source) && comm.is_placed(destination)) {
            continue;
        }
        let out = sends.remove(&channel).unwrap_or_default();
        let incoming = recvs.remove(&channel).unwrap_or_default();
        let numbered = is_elided(alignment, source) || is_elided(alignment, destination);
        let (pairs, single) = if numbered {
            let Some(numbered) = Numbered::of(&out, &incoming) else { continue };
            found.paired += numbered.paired;
            (numbered.pairs, numbered.single)
        } else {
            let paired = out.len().min(incoming.len());
            found.paired += paired as u64;
            (out.iter().zip(&incoming).collect(), out.get(paired).or(incoming.get(paired)))
        };
        let mut told = false;
        for (send, recv) in pairs {
            found.longest = found.longest.max(waited(alignment, send, recv));
            // A receive that nobody saw complete may be; a send may be complete before its message has arrived.
            if !told && recv.progress == Progress::Pending && send.progress != Progress::Unknown {
                told = true;
                if misfit(alignment, comm, send, recv).is_none() {
                    found.open.push((comm, *send, *recv));
                }
            }
            if let Some(what) = misfit(alignment, comm, send, recv)
                && found.misfits.len() < 1024
            {
                found.misfits.push(Misfit { comm, send: *send, recv: *recv, what });
            }
        }
        if let Some(&end) = single {
            let peer = if end.call.op == Op::Send { destination } else { source };
            found.singles.push(Single { comm, end, peer });
        }
    }
    if !inboxes.is_empty() {
        let counted = |rank: u32| is_whole(alignment, rank) && !is_elided(alignment, rank);
        let ranks = alignment.attempt.streams.iter().map(|stream| stream.rank);
        let whole: RankSet = ranks.filter(|&rank| counted(rank)).collect();
        for (&(comm, destination), inbox) in &inboxes {
            let (mut singles, mut open) = inbox.unmatched(alignment, comm, destination, &whole);
            found.singles.append(&mut singles);
            found.from_any.append(&mut open);
        }
    }
    found
}

/// How long the end that came first has waited for the other one, ns.
fn waited(alignment: &Alignment<'_>, send: &End<'_>, recv: &End<'_>) -> i64 {
    if send.progress != Progress::Done || recv.progress != Progress::Done {
        return 0;
    }
    let entered = |end: &End<'_>| alignment.entered(end.stream, end.call);
    let (first, last) = if entered(send) <= entered(recv) { (send, recv) } else { (recv, send) };
    let streams = &alignment.attempt.streams;
    let (Some(own), Some(other)) = (streams.get(first.stream), streams.get(last.stream)) else { return 0 };
    let doubt = own.clock.doubt_between(first.call.enter, &other.clock, last.call.enter);
    // Whatever ended before the other end came was buffered and has not waited for it.
    let ended = match first.call.completion {
        Completion::At(at) => own.time(at),
        _ => first.call.exit.map_or(i64::MAX, |exit| own.time(exit)),
    };
    entered(last).min(ended).saturating_sub(entered(first)).saturating_sub(doubt).max(0)
}

/// A channel of which not every call was decoded: its last ones, by their numbers.
struct Numbered<'e, 'a> {
    /// Messages that have both ends.
    paired: u64,
    /// Those of which both were decoded.
    pairs: Vec<(&'e End<'a>, &'e End<'a>)>,
    /// The first one without a partner, or the first after it that was decoded.
    single: Option<&'e End<'a>>,
}

impl<'e, 'a> Numbered<'e, 'a> {
    /// `None` where a call has no number.
    fn of(out: &'e [End<'a>], incoming: &'e [End<'a>]) -> Option<Numbered<'e, 'a>> {
        let numbers = |ends: &'e [End<'a>]| -> Option<BTreeMap<u64, &'e End<'a>>> {
            ends.iter().map(|end| Some((end.call.seq?, end))).collect()
        };
        let (sends, recvs) = (numbers(out)?, numbers(incoming)?);
        let count = |ends: &BTreeMap<u64, &End<'_>>| ends.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let paired = count(&sends).min(count(&recvs));
        let pairs = sends.iter().filter_map(|(number, send)| Some((*send, *recvs.get(number)?))).collect();
        let longer = if count(&sends) > paired { &sends } else { &recvs };
        let single = longer.range(paired..).next().map(|(_, end)| *end);
        Some(Numbered { paired, pairs, single })
    }
}

/// Whether calls of the rank were not decoded.
fn is_elided(alignment: &Alignment<'_>, rank: u32) -> bool {
    let stream = alignment.stream_of(rank).and_then(|at| alignment.attempt.streams.get(at));
    stream.is_some_and(|stream| stream.trace.has_elided())
}

/// Whether every call of the rank was recorded, so that the n-th send is the n-th.
fn is_whole(alignment: &Alignment<'_>, rank: u32) -> bool {
    let Some(stream) = alignment.stream_of(rank).and_then(|at| alignment.attempt.streams.get(at)) else { return false };
    // Of a record that was not closed, what was not decoded may hold the last calls.
    !stream.has_gaps() && (stream.trace.closed || !stream.trace.has_elided())
}

fn misfit(alignment: &Alignment<'_>, comm: usize, send: &End<'_>, recv: &End<'_>) -> Option<&'static str> {
    let (out, incoming) = (elements(alignment, send)?, elements(alignment, recv)?);
    let untyped = |unit: &Unit| matches!(unit, Unit::Basic(Basic::Byte | Basic::Packed) | Unit::Empty);
    let exact = out.unit.is_exact() && incoming.unit.is_exact();
    // A receive may be longer than what comes, so its type need only begin like the sender's.
    if exact
        && out.unit != incoming.unit
        && !untyped(&out.unit)
        && !untyped(&incoming.unit)
        && is_basic(&out, &incoming)
    {
        return Some("dtype");
    }
    // Packing adds what it likes to the size.
    let packed = |elements: &Elements| elements.unit == Unit::Basic(Basic::Packed);
    if packed(&out) != packed(&incoming) {
        return None;
    }
    let (sent, room) = (out.bytes()?, incoming.bytes()?);
    let exact = alignment.comm(comm).is_some_and(|comm| comm.semantics.contains(Semantics::P2P_SIZE_EXACT));
    if sent > room || exact && sent != room { Some("count") } else { None }
}

fn is_basic(one: &Elements, other: &Elements) -> bool {
    matches!((&one.unit, &other.unit), (Unit::Basic(_), Unit::Basic(_)))
}

fn elements(alignment: &Alignment<'_>, end: &End<'_>) -> Option<Elements> {
    let stream = alignment.attempt.streams.get(end.stream)?;
    if end.call.flags.contains(CallFlags::UNREADABLE) {
        return None;
    }
    // Types of single calls are looked up alone: messages with derived types are few.
    let types = TypeTable::new(match end.call.dtype {
        rankdiff_trace::DType::Derived(id) => {
            stream.trace.types.iter().find(|def| def.id == id).map_or(&[], std::slice::from_ref)
        }
        _ => &[],
    });
    Elements::of(end.call.dtype, end.call.count?, &types)
}
