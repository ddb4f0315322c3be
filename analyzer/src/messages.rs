//! Point-to-point: sends and receives paired per communicator, source, destination and tag, in order.
//!
//! Inside a batch sends and receives to different peers have no order, and pairing per channel needs none. Receives from
//! any source or with any tag cannot be paired here; what a wildcard could have taken is not judged.

use std::collections::BTreeMap;

use rankdiff_trace::{Basic, Call, CallFlags, Elements, Op, OpKind, Semantics, TypeTable, Unit};
use rustc_hash::FxHashSet;

use crate::align::Alignment;
use crate::index::{Progress, takes_position};

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
    /// Messages that were paired.
    pub(crate) paired: u64,
}

/// Communicator, source, destination (global ranks), tag.
type Channel = (usize, u32, u32, Option<i64>);

pub(crate) fn pair<'a>(alignment: &Alignment<'a>) -> Messages<'a> {
    let mut sends: BTreeMap<Channel, Vec<End<'a>>> = BTreeMap::new();
    let mut recvs: BTreeMap<Channel, Vec<End<'a>>> = BTreeMap::new();
    let mut wild: FxHashSet<(usize, u32)> = FxHashSet::default();
    for (at, stream) in alignment.attempt.streams.iter().enumerate() {
        let progress = alignment.index.progress.get(at).map_or(&[][..], Vec::as_slice);
        for (&call, &progress) in stream.calls.iter().zip(progress) {
            if call.op.kind() != OpKind::PointToPoint || !takes_position(call) {
                continue;
            }
            let Some(comm_at) = alignment.comms.of(at, call.comm) else { continue };
            let any = CallFlags::ANY_SOURCE;
            if call.flags.contains(any) || call.flags.contains(CallFlags::ANY_TAG) || call.peer.is_none() {
                if call.op == Op::Recv {
                    wild.insert((comm_at, stream.rank));
                }
                continue;
            }
            let Some(comm) = alignment.comm(comm_at) else { continue };
            // Without the members nobody knows who the peer is.
            if comm.is_unjoined(alignment.attempt.world) {
                continue;
            }
            let peer = comm.global(call.peer.unwrap_or_default());
            let end = End { stream: at, rank: stream.rank, call, progress };
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
        let (comm, source, destination, _) = channel;
        let is_wild = wild.contains(&(comm, destination));
        if is_wild || !is_whole(alignment, source) || !is_whole(alignment, destination) {
            continue;
        }
        let out = sends.remove(&channel).unwrap_or_default();
        let incoming = recvs.remove(&channel).unwrap_or_default();
        for (send, recv) in out.iter().zip(&incoming) {
            found.paired += 1;
            if let Some(what) = misfit(alignment, comm, send, recv)
                && found.misfits.len() < 1024
            {
                found.misfits.push(Misfit { comm, send: *send, recv: *recv, what });
            }
        }
        let paired = out.len().min(incoming.len());
        let single = out.get(paired).map(|&end| (end, destination)).or(incoming.get(paired).map(|&end| (end, source)));
        if let Some((end, peer)) = single {
            found.singles.push(Single { comm, end, peer });
        }
    }
    found
}

/// Whether every call of the rank was recorded, so that the n-th send is the n-th.
fn is_whole(alignment: &Alignment<'_>, rank: u32) -> bool {
    let Some(stream) = alignment.stream_of(rank).and_then(|at| alignment.attempt.streams.get(at)) else { return false };
    !stream.has_gaps()
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
