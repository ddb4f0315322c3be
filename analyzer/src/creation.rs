//! Creation of communicators: who called, who did not, and whether the callers meant the same groups.
//!
//! Calls belong together by the communicator they make, or by parent and ordinal on it. Behind a gap, or where the record
//! begins in the middle, the ordinal is not known: such a call belongs to those that made the same communicator.

use std::collections::BTreeMap;

use rankdiff_trace::frontier::FRONTIER_CALLS;
use rankdiff_trace::{Call, CommRef, Completion, Op, OpKind, RankSet};

use crate::align::Alignment;
use crate::index::{lost_between, starts_blind, takes_position};
use crate::stream::RankStream;

/// A call of a creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) stream: usize,
    pub(crate) call: &'a Call,
    /// The communicator that it made or is to make.
    pub(crate) made: Option<usize>,
    pub(crate) pending: bool,
}

/// One creation, as far as calls of it were seen.
#[derive(Debug, Clone)]
pub(crate) struct Creation<'a> {
    /// The communicator that reports name: the one made, else the parent.
    pub(crate) comm: Option<usize>,
    /// Calls of it.
    pub(crate) callers: Vec<Caller<'a>>,
    /// Members that should call and did not.
    pub(crate) missing: RankSet,
    /// Members of which it is not known whether they called.
    pub(crate) unsure: RankSet,
    /// Callers by what they called, where they do not mean the same; the largest group first.
    pub(crate) conflict: Vec<RankSet>,
}

/// What the calls of one creation have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    OnParent(usize, u64),
    Made(usize),
}

pub(crate) fn all<'a>(alignment: &Alignment<'a>) -> Vec<Creation<'a>> {
    let mut groups: BTreeMap<Key, Vec<Caller<'a>>> = BTreeMap::new();
    let mut unnumbered: Vec<(usize, Caller<'a>)> = Vec::new();
    for (at, stream) in alignment.attempt.streams.iter().enumerate() {
        let mut ordinals: BTreeMap<usize, u64> = BTreeMap::new();
        for &call in &stream.calls {
            // Without a number nobody knows how many stand before it among the calls that were not decoded.
            let unplaced = call.seq.is_none() && call.comm != CommRef::NONE && stream.trace.has_elided();
            if call.op.kind() != OpKind::CommCreate || !takes_position(call) || unplaced {
                continue;
            }
            let parent = alignment.comms.of(at, call.comm);
            let made = alignment.comms.of(at, call.made);
            let pending = match call.completion {
                Completion::At(_) => false,
                Completion::Pending => true,
                Completion::Unknown => call.exit.is_none(),
            };
            let caller = Caller { stream: at, call, made, pending };
            if parent.is_some() && (starts_blind(stream, call.enter) || lost_between(stream, 0, call.enter)) {
                unnumbered.extend(made.map(|made| (made, caller)));
                continue;
            }
            let key = match (parent, made) {
                (Some(parent), _) => {
                    let counted = ordinals.entry(parent).or_default();
                    let ordinal = call.seq.unwrap_or(*counted);
                    *counted = ordinal.saturating_add(1);
                    Key::OnParent(parent, ordinal)
                }
                (None, Some(made)) => Key::Made(made),
                (None, None) => continue,
            };
            groups.entry(key).or_default().push(caller);
        }
    }
    let numbered: BTreeMap<usize, Key> = groups
        .iter()
        .flat_map(|(&key, callers)| callers.iter().filter_map(move |caller| Some((caller.made?, key))))
        .collect();
    for (made, caller) in unnumbered {
        let key = numbered.get(&made).copied().unwrap_or(Key::Made(made));
        groups.entry(key).or_default().push(caller);
    }
    groups.into_iter().map(|(key, callers)| creation(alignment, key, callers)).collect()
}

/// How long a member has waited for the last one in a creation that all left, at most, ns.
pub(crate) fn longest_wait(alignment: &Alignment<'_>, creations: &[Creation<'_>]) -> i64 {
    let complete = creations.iter().filter(|one| one.missing.is_empty() && one.callers.iter().all(|one| !one.pending));
    let wait = |creation: &Creation<'_>| {
        let stream = |caller: &Caller<'_>| alignment.attempt.streams.get(caller.stream);
        let entered = |caller: &&Caller<'_>| alignment.entered(caller.stream, caller.call);
        let (first, last) =
            (creation.callers.iter().min_by_key(entered)?, creation.callers.iter().max_by_key(entered)?);
        let doubt = stream(first)?.clock.doubt_between(first.call.enter, &stream(last)?.clock, last.call.enter);
        Some(entered(&last).saturating_sub(entered(&first)).saturating_sub(doubt))
    };
    complete.filter_map(wait).max().unwrap_or(0).max(0)
}

fn creation<'a>(alignment: &Alignment<'a>, key: Key, callers: Vec<Caller<'a>>) -> Creation<'a> {
    let mut made: Vec<usize> = callers.iter().filter_map(|caller| caller.made).collect();
    made.sort_unstable();
    made.dedup();
    let (parent, sole) = match key {
        Key::OnParent(parent, _) => (Some(parent), if made.len() == 1 { made.first().copied() } else { None }),
        Key::Made(made) => (None, Some(made)),
    };
    // A subset of the parent's members may make a communicator among themselves; then only these are expected.
    let subset_only = callers.iter().all(|caller| matches!(caller.call.op, Op::CommInit | Op::CommCreate));
    let expected: RankSet = match (parent, sole) {
        (_, Some(made)) if parent.is_none() || subset_only => {
            alignment.comm(made).map(|comm| comm.ranks()).unwrap_or_default()
        }
        (Some(parent), _) => alignment.comm(parent).map(|comm| comm.ranks()).unwrap_or_default(),
        _ => RankSet::new(),
    };
    let rank = |stream: usize| alignment.attempt.streams.get(stream).map(|stream| stream.rank);
    let called: RankSet = callers.iter().filter_map(|caller| rank(caller.stream)).collect();
    let (missing, unsure) =
        expected.difference(&called).iter().partition::<Vec<u32>, _>(|rank| may_be_missed(alignment, *rank, sole, key));
    Creation {
        comm: sole.or(parent),
        conflict: conflict(alignment, &callers),
        callers,
        missing: missing.into_iter().collect(),
        unsure: unsure.into_iter().filter(|rank| !uses(alignment, *rank, sole)).collect(),
    }
}

/// Whether the absence of a call on this rank says anything.
fn may_be_missed(alignment: &Alignment<'_>, rank: u32, made: Option<usize>, key: Key) -> bool {
    let Some(at) = alignment.stream_of(rank) else { return false };
    let Some(stream) = alignment.attempt.streams.get(at) else { return false };
    !uses(alignment, rank, made) && !stream.has_gaps() && shows(alignment, at, stream, key)
}

/// Whether the rank's creation at this place would be among its calls if it had made it: of calls that were not all
/// decoded, the last creations on each communicator are there.
fn shows(alignment: &Alignment<'_>, at: usize, stream: &RankStream<'_>, key: Key) -> bool {
    if !stream.trace.has_elided() {
        return true;
    }
    let is_there = |call: &&&Call| {
        call.op.kind() == OpKind::CommCreate
            && match key {
                Key::OnParent(parent, _) => alignment.comms.of(at, call.comm) == Some(parent),
                Key::Made(_) => call.comm == CommRef::NONE,
            }
    };
    let shown = || stream.calls.iter().filter(is_there);
    let later = match key {
        Key::OnParent(_, ordinal) => shown().any(|call| call.seq.is_some_and(|seq| seq < ordinal)),
        Key::Made(_) => false,
    };
    stream.trace.closed && (later || shown().count() < FRONTIER_CALLS)
}

/// Whether the rank made calls on the communicator, and so must have it.
fn uses(alignment: &Alignment<'_>, rank: u32, made: Option<usize>) -> bool {
    made.is_some_and(|made| alignment.tracks(made).iter().any(|track| track.rank == rank && !track.is_empty()))
}

/// Callers of one ordinal that do not mean the same: other operations, or groups that share members but not their list.
fn conflict(alignment: &Alignment<'_>, callers: &[Caller<'_>]) -> Vec<RankSet> {
    let mut groups: Vec<(Op, Option<usize>, RankSet)> = Vec::new();
    for &Caller { stream, call, made, .. } in callers {
        let Some(rank) = alignment.attempt.streams.get(stream).map(|stream| stream.rank) else { continue };
        match groups.iter_mut().find(|group| group.0 == call.op && group.1 == made) {
            Some(group) => {
                group.2.insert(rank);
            }
            None => groups.push((call.op, made, RankSet::from_iter([rank]))),
        }
    }
    let members = |made: Option<usize>| made.and_then(|made| alignment.comm(made)).map(|comm| comm.ranks());
    let other_op = groups.windows(2).any(|pair| matches!(pair, [a, b] if a.0 != b.0));
    let overlap = groups.iter().any(|(_, made, callers)| {
        let Some(mine) = members(*made) else { return false };
        groups.iter().any(|(_, other, theirs)| {
            other != made && other.is_some() && !mine.intersection(theirs).is_empty() && !callers.is_empty()
        })
    });
    if !(other_op || overlap) {
        return Vec::new();
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.2.len()), group.2.first()));
    groups.into_iter().map(|group| group.2).collect()
}
