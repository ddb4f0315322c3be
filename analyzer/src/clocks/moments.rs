//! Moments that calls share: after the last member has entered one and before the first has left it.
//!
//! Whoever leaves a synchronising collective has waited for all members; whoever leaves a broadcast has waited for its
//! root, and the root of a reduction for everybody. So one moment lies behind the entries of those that were waited for
//! and before the ends of those that waited, whatever their clocks say.
//!
//! Not here: what follows for the clocks (`bounds`). Left out is every call of which it is not certain that it waits: one
//! that failed, that moves nothing, whose end was not seen, or that stands at an uncertain position.

use std::hash::BuildHasher as _;

use rankdiff_trace::{Call, CallFlags, CommDef, Completion, DType, GapCause, Op, ProcessTrace, Provenance, Semantics};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::domains::Domain;
use crate::stream::RankStream;

/// The times of one clock at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) domain: usize,
    /// Latest entry that was waited for, ns of this clock; `None` if nobody waited for a member here.
    pub(super) enter: Option<i64>,
    /// Earliest end of a call that waited.
    pub(super) leave: Option<i64>,
}

/// Calls of several clocks that share a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) parts: Vec<Part>,
    /// A barrier: there is no implementation of one that lets anybody through early.
    pub(super) barrier: bool,
}

/// What the calls give.
#[derive(Debug, Default)]
pub(super) struct Moments {
    pub(super) list: Vec<Moment>,
    /// Communicators on which a call ended before a member that shares its clock had entered: they prove nothing.
    pub(super) distrusted: usize,
}

/// Times are believed up to here, so that sums of a few cannot overflow: 73 years of ns.
pub(super) const LATEST: i64 = i64::MAX / 4;

/// What one call contributes.
#[derive(Debug, Clone, Copy)]
struct Seen {
    seq: u64,
    domain: u32,
    barrier: bool,
    /// Hash of its [`Kind`].
    kind: u64,
    enter: Option<i64>,
    leave: Option<i64>,
}

/// Most calls that are looked at, so that memory stays far below that of the calls themselves: of longer jobs every n-th
/// position.
const MOST_CALLS: u64 = 1 << 22;

/// What must agree so that calls at one position are one collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    op: Op,
    count: Option<u64>,
    dtype: DType,
    root: Option<u32>,
    nonblocking: bool,
}

/// All moments that streams share. `of`: the domain of each stream.
pub(super) fn find(streams: &[RankStream<'_>], domains: &[Domain], of: &[usize]) -> Moments {
    // Communicators whose members share one clock tell nothing; most are of that kind.
    let mut across: FxHashMap<u128, Option<usize>> = FxHashMap::default();
    let usable: Vec<(usize, usize, &RankStream<'_>)> = streams
        .iter()
        .zip(of)
        .enumerate()
        .filter(|(_, (stream, _))| positions_are_known(stream))
        .map(|(at, (stream, &domain))| (at, domain, stream))
        .collect();
    for &(_, domain, stream) in &usable {
        for def in stream.trace.comms.iter().filter(|def| is_usable(def, stream)) {
            let known = across.entry(def.identity.0).or_insert(Some(domain));
            if *known != Some(domain) {
                *known = None;
            }
        }
    }
    let all: u64 = usable.iter().map(|(_, _, stream)| stream.calls.len() as u64).sum();
    let stride = all.div_ceil(MOST_CALLS).max(1);
    let mut by_comm: FxHashMap<u128, Vec<Seen>> = FxHashMap::default();
    for &(_, domain, stream) in &usable {
        let wanted: FxHashMap<u32, &CommDef> = stream
            .trace
            .comms
            .iter()
            .filter(|def| is_usable(def, stream) && across.get(&def.identity.0) == Some(&None))
            .map(|def| (def.id.0, def))
            .collect();
        if let Some(clock) = domains.get(domain).filter(|_| !wanted.is_empty()) {
            of_stream(stream, domain, clock, &wanted, stride, &mut by_comm);
        }
    }
    let mut moments = Moments::default();
    let mut comms: Vec<(u128, Vec<Seen>)> = by_comm.into_iter().collect();
    comms.sort_unstable_by_key(|(identity, _)| *identity);
    for (_, mut seen) in comms {
        // Stable: each stream's calls are in order already.
        seen.sort_by_key(|one| (one.seq, one.domain));
        match of_comm(&seen) {
            Some(mut found) => moments.list.append(&mut found),
            None => moments.distrusted += 1,
        }
    }
    moments
}

/// Whether the numbers of a stream's calls are those that the library itself counted by.
fn positions_are_known(stream: &RankStream<'_>) -> bool {
    let late = |trace: &ProcessTrace| {
        let causes = [GapCause::LateAttach, GapCause::Unprobed];
        trace.gaps.iter().any(|gap| causes.contains(&gap.cause) && gap.events != Some(0))
    };
    !stream.in_parts && !late(stream.trace)
}

fn is_usable(def: &CommDef, stream: &RankStream<'_>) -> bool {
    let several = def.size != Some(1) && def.members.len() != 1;
    let seen_from_start = !matches!(def.provenance, Provenance::Inferred | Provenance::Unknown);
    let own = def.owner.is_none_or(|owner| owner == stream.rank);
    def.identity.is_known() && !def.inter && several && seen_from_start && own
}

fn of_stream(
    stream: &RankStream<'_>,
    domain: usize,
    clock: &Domain,
    wanted: &FxHashMap<u32, &CommDef>,
    stride: u64,
    by_comm: &mut FxHashMap<u128, Vec<Seen>>,
) {
    // Behind a call that failed nothing says which call of the others belongs to which.
    let mut failed: FxHashSet<u32> = FxHashSet::default();
    for call in &stream.calls {
        let Some(def) = wanted.get(&call.comm.0) else { continue };
        if call.result.is_some_and(|result| result != 0) {
            failed.insert(call.comm.0);
        }
        let is_left_out = call.seq.is_none_or(|seq| !seq.is_multiple_of(stride));
        if is_left_out || failed.contains(&call.comm.0) {
            continue;
        }
        if let Some(seen) = seen(call, def, domain, clock) {
            by_comm.entry(def.identity.0).or_default().push(seen);
        }
    }
}

/// Calls with one of these are no instance that waits for all, or it is not known what they are.
const UNCERTAIN: [CallFlags; 7] = [
    CallFlags::NESTED,
    CallFlags::CAPTURED,
    CallFlags::UNREADABLE,
    CallFlags::INCOMPLETE,
    CallFlags::DONE,
    CallFlags::ROOT_IS_SELF,
    CallFlags::BYSTANDER,
];

fn seen(call: &Call, def: &CommDef, domain: usize, clock: &Domain) -> Option<Seen> {
    let seq = call.seq?;
    if UNCERTAIN.iter().any(|&flag| call.flags.contains(flag)) {
        return None;
    }
    // Who transfers nothing need not wait. Sizes of derived types are not looked up: they are rare in such calls.
    let moves = call.count.is_some_and(|count| count > 0) && matches!(call.dtype, DType::Basic(_));
    if call.op != Op::Barrier && !(moves && call.sends.is_empty() && call.recvs.is_empty()) {
        return None;
    }
    let is_root = || Some(call.root? == def.my_rank?);
    let (is_waited_for, waits) = match call.op {
        Op::Barrier | Op::AllReduce | Op::AllGather | Op::ReduceScatter | Op::AllToAll => (true, true),
        Op::Broadcast | Op::Scatter => (is_root()?, !is_root()?),
        Op::Reduce | Op::Gather => (!is_root()?, is_root()?),
        _ => return None,
    };
    let nonblocking =
        def.semantics.contains(Semantics::NONBLOCKING_DISTINCT) && call.flags.contains(CallFlags::NONBLOCKING);
    let kind = Kind { op: call.op, count: call.count, dtype: call.dtype, root: call.root, nonblocking };
    let enter = clock.awake(call.enter)?;
    let leave = end(call, def).and_then(|end| clock.awake(end));
    Some(Seen {
        seq,
        domain: u32::try_from(domain).ok()?,
        barrier: call.op == Op::Barrier,
        kind: FxBuildHasher.hash_one(kind),
        enter: is_waited_for.then_some(enter),
        leave: leave.filter(|&leave| waits && leave >= enter),
    })
}

/// When the call was complete here; its return says so only of a blocking one.
fn end(call: &Call, def: &CommDef) -> Option<u64> {
    match call.completion {
        Completion::At(at) => Some(at),
        Completion::Pending => None,
        Completion::Unknown => {
            let returns_early =
                call.flags.contains(CallFlags::NONBLOCKING) || call.flags.contains(CallFlags::PERSISTENT);
            call.exit.filter(|_| def.semantics.contains(Semantics::BLOCKING) && !returns_early)
        }
    }
}

/// The moments of one communicator; `None` if one of its calls cannot have waited.
fn of_comm(seen: &[Seen]) -> Option<Vec<Moment>> {
    let mut found = Vec::new();
    for calls in seen.chunk_by(|a, b| a.seq == b.seq) {
        let Some(first) = calls.first() else { continue };
        if calls.iter().any(|call| call.kind != first.kind) {
            // From the first difference on, which calls the library brought together is anybody's guess.
            break;
        }
        let mut parts: Vec<Part> = Vec::new();
        for own in calls.chunk_by(|a, b| a.domain == b.domain) {
            let enter = own.iter().filter_map(|call| call.enter).max();
            let leave = own.iter().filter_map(|call| call.leave).min();
            if enter.zip(leave).is_some_and(|(enter, leave)| leave < enter) {
                return None;
            }
            parts.extend(own.first().map(|call| Part { domain: call.domain as usize, enter, leave }));
        }
        let entered = parts.iter().any(|part| part.enter.is_some());
        let left = parts.iter().any(|part| part.leave.is_some());
        if parts.len() > 1 && entered && left {
            found.push(Moment { parts, barrier: first.barrier });
        }
    }
    Some(found)
}
