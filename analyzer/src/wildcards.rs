//! Receives from any source or with any tag: which messages they can have taken.
//!
//! Nobody sees which message such a receive took, so channels that it could have drawn from are not paired in order.
//! Instead it is asked whether any assignment of the sends to the receives exists in which every complete receive has a
//! message and the call in question has a partner. Only where there is none is a partner said to be missing. Order on a
//! channel is left out of it: that only makes more assignments possible, so what is claimed stays true.
//!
//! Not here: sizes and types, which would need to be known for each pair.

use std::collections::VecDeque;

use rankdiff_trace::{Call, CallFlags, Op, RankSet, Semantics};
use rustc_hash::FxHashMap;

use crate::align::Alignment;
use crate::comms::Comm;
use crate::index::Progress;
use crate::messages::{End, Single};

/// What a receive takes: `None` stands for any source, or any tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Pattern {
    source: Option<u32>,
    tag: Option<Option<i64>>,
}

impl Pattern {
    fn takes(&self, source: u32, tag: Option<i64>) -> bool {
        self.source.is_none_or(|own| own == source) && self.tag.is_none_or(|own| own == tag)
    }
}

/// A receive from any source for which there is no message.
#[derive(Debug, Clone)]
pub(crate) struct Open<'a> {
    pub(crate) comm: usize,
    pub(crate) end: End<'a>,
    /// Who could send it.
    pub(crate) candidates: RankSet,
}

/// The sends of one source and tag, in their order.
type Kind<'a> = ((u32, Option<i64>), Vec<End<'a>>);

/// The messages to one rank on one communicator that receives with wildcards.
#[derive(Debug, Default)]
pub(crate) struct Inbox<'a> {
    /// Receives, with a wildcard or without, in the order in which they were made.
    recvs: Vec<(Pattern, End<'a>)>,
    /// By source and tag.
    sends: Vec<Kind<'a>>,
}

/// Whether a call is a receive with a wildcard.
pub(crate) fn is_wild(call: &Call) -> bool {
    let any = call.flags.contains(CallFlags::ANY_SOURCE) || call.flags.contains(CallFlags::ANY_TAG);
    call.op == Op::Recv && (any || call.peer.is_none())
}

/// Kinds of sends and receives of one inbox that are compared at most, each.
const MOST_KINDS: usize = 1024;

impl<'a> Inbox<'a> {
    /// Adds a receive; `peer` is its source in global ranks, if it has one.
    pub(crate) fn receive(&mut self, end: End<'a>, peer: Option<u32>) {
        let source = peer.filter(|_| !end.call.flags.contains(CallFlags::ANY_SOURCE));
        let tag = (!end.call.flags.contains(CallFlags::ANY_TAG)).then_some(end.call.tag);
        self.recvs.push((Pattern { source, tag }, end));
    }

    /// Whether a receive with a wildcard could take a message of this source and tag.
    pub(crate) fn draws(&self, source: u32, tag: Option<i64>) -> bool {
        self.recvs.iter().any(|(pattern, end)| is_wild(end.call) && pattern.takes(source, tag))
    }

    /// Adds the sends of a channel.
    pub(crate) fn sent(&mut self, source: u32, tag: Option<i64>, ends: Vec<End<'a>>) {
        self.sends.push(((source, tag), ends));
    }

    /// Calls that have no partner in any assignment: those for a rank, and those for whoever sends. Every rank that could
    /// have sent is in `whole`.
    pub(crate) fn unmatched(
        &self,
        alignment: &Alignment<'a>,
        comm: usize,
        destination: u32,
        whole: &RankSet,
    ) -> (Vec<Single<'a>>, Vec<Open<'a>>) {
        let (mut singles, mut open) = (Vec::new(), Vec::new());
        // Where its place is not known, it is not known either what the others sent to it.
        let is_known = |group: &&Comm<'_>| whole.contains(destination) && group.is_placed(destination);
        let Some(group) = alignment.comm(comm).filter(is_known) else { return (singles, open) };
        let is_complete = |end: &End<'_>| end.progress == Progress::Done;
        let mut complete: FxHashMap<Pattern, u64> = FxHashMap::default();
        let others: RankSet = group.members.iter().copied().filter(|&rank| rank != destination).collect();
        let everybody = group.members_known && others.is_subset(whole);
        for (pattern, _) in self.recvs.iter().filter(|(_, end)| is_complete(end)) {
            // What takes from any source may have taken what nobody recorded.
            if pattern.source.is_some() || everybody {
                *complete.entry(*pattern).or_default() += 1;
            }
        }
        if complete.len() > MOST_KINDS || self.sends.len() > MOST_KINDS {
            return (singles, open);
        }
        let mut kinds: Vec<(Pattern, u64)> = complete.into_iter().collect();
        kinds.sort_unstable();
        let Some(assignment) = self.assignment(&kinds) else { return (singles, open) };
        let mut told: Vec<Pattern> = Vec::new();
        for (pattern, end) in self.recvs.iter().filter(|(_, end)| end.progress == Progress::Pending) {
            let known = match pattern.source {
                Some(source) => whole.contains(source) && group.is_placed(source),
                // One whose source has no name here is not from anybody.
                None => everybody && (end.call.peer.is_none() || end.call.flags.contains(CallFlags::ANY_SOURCE)),
            };
            if told.contains(pattern) || !known || assignment.clone().assign(pattern) {
                continue;
            }
            told.push(*pattern);
            match pattern.source {
                Some(peer) => singles.push(Single { comm, end: *end, peer }),
                None => open.push(Open { comm, end: *end, candidates: others.clone() }),
            }
        }
        let buffers = group.semantics.contains(Semantics::SENDS_MAY_BUFFER);
        for ((source, tag), ends) in self.sends.iter().filter(|((source, _), _)| whole.contains(*source)) {
            let receives = self.recvs.iter().filter(|(pattern, _)| pattern.takes(*source, *tag)).count();
            // Those before it on its channel go first.
            let waits = |end: &&End<'a>| match end.progress {
                Progress::Done => false,
                Progress::Pending => true,
                Progress::Unknown => !buffers,
            };
            let lonely = ends.iter().skip(receives).find(waits);
            singles.extend(lonely.map(|end| Single { comm, end: *end, peer: destination }));
        }
        (singles, open)
    }

    /// An assignment in which every complete receive has a message; `None` where one had a message that nobody recorded.
    fn assignment(&self, complete: &[(Pattern, u64)]) -> Option<Flow> {
        let mut flow = Flow::new(&self.sends);
        for (pattern, count) in complete {
            for _ in 0..*count {
                flow.assign(pattern).then_some(())?;
            }
        }
        Some(flow)
    }
}

/// Sends of each kind, and the patterns of the receives that they are assigned to.
#[derive(Clone)]
struct Flow {
    kinds: Vec<(u32, Option<i64>)>,
    left: Vec<u64>,
    assigned: Vec<FxHashMap<Pattern, u64>>,
}

/// How a kind was reached: the kind that takes a send from it, and the pattern for which.
type Step = Option<(Option<usize>, Pattern)>;

impl Flow {
    fn new(sends: &[Kind<'_>]) -> Flow {
        Flow {
            kinds: sends.iter().map(|(kind, _)| *kind).collect(),
            left: sends.iter().map(|(_, ends)| ends.len() as u64).collect(),
            assigned: sends.iter().map(|_| FxHashMap::default()).collect(),
        }
    }

    /// Assigns a send to one more receive; others may have to take another one for that.
    fn assign(&mut self, pattern: &Pattern) -> bool {
        // Kinds that were reached, each with the one that it takes a send from and for which pattern.
        let mut from: Vec<Step> = vec![None; self.kinds.len()];
        let mut queue: VecDeque<usize> = VecDeque::new();
        let reach = |by: Option<usize>, pattern: &Pattern, from: &mut Vec<Step>| {
            let takes = |&at: &usize| self.kinds.get(at).is_some_and(|kind| pattern.takes(kind.0, kind.1));
            let new: Vec<usize> =
                (0..self.kinds.len()).filter(|&at| from.get(at) == Some(&None)).filter(takes).collect();
            for &at in &new {
                if let Some(slot) = from.get_mut(at) {
                    *slot = Some((by, *pattern));
                }
            }
            new
        };
        queue.extend(reach(None, pattern, &mut from));
        while let Some(at) = queue.pop_front() {
            if self.left.get(at).is_some_and(|&left| left > 0) {
                self.shift(at, &from);
                return true;
            }
            let mut held: Vec<Pattern> =
                self.assigned.get(at).map(|held| held.keys().copied().collect()).unwrap_or_default();
            held.sort_unstable();
            for pattern in held {
                queue.extend(reach(Some(at), &pattern, &mut from));
            }
        }
        false
    }

    /// Takes a send of the kind at the end of a path, and moves each assignment on the path by one.
    fn shift(&mut self, end: usize, from: &[Step]) {
        if let Some(left) = self.left.get_mut(end) {
            *left -= 1;
        }
        let mut at = end;
        // A path meets each kind once.
        for _ in 0..from.len() {
            let Some(Some((before, pattern))) = from.get(at) else { return };
            if let Some(assigned) = self.assigned.get_mut(at) {
                *assigned.entry(*pattern).or_default() += 1;
            }
            let Some(before) = *before else { return };
            if let Some(assigned) = self.assigned.get_mut(before)
                && let Some(count) = assigned.get_mut(pattern)
            {
                *count -= 1;
                if *count == 0 {
                    assigned.remove(pattern);
                }
            }
            at = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Pattern};

    fn pattern(source: Option<u32>, tag: Option<i64>) -> Pattern {
        Pattern { source, tag: tag.map(Some) }
    }

    #[test]
    fn a_wildcard_takes_what_nobody_else_can_have() {
        // One message from 1 and one from 2.
        let sends = [((1, Some(7)), 1), ((2, Some(7)), 1)];
        let flow = || Flow {
            kinds: sends.iter().map(|one| one.0).collect(),
            left: sends.iter().map(|one| one.1).collect(),
            assigned: vec![Default::default(); 2],
        };
        let mut first = flow();
        assert!(first.assign(&pattern(None, None)), "it takes the message from 1 at first");
        assert!(first.assign(&pattern(Some(1), None)), "and gives it up for the one from 2");
        assert!(!first.assign(&pattern(Some(2), None)), "of which there is one only");
        let mut second = flow();
        assert!(second.assign(&pattern(Some(1), None)));
        assert!(!second.assign(&pattern(Some(1), Some(7))));
        assert!(!second.assign(&pattern(Some(2), Some(8))), "another tag");
        assert!(second.assign(&pattern(None, Some(7))));
        assert!(!second.assign(&pattern(None, None)));
    }
}
