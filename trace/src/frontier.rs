//! Where a stream stands: the last calls of each communicator, kept while a stream is written and put in front of a
//! segment's end, so that who waits in what is known without decoding a block of calls.
//!
//! Kept over the whole recording, not only the segment, and collected when a block is sealed, never per call: the
//! block's calls are walked from its end. docs/format.md, 'Frontier', is normative.
//!
//! Not here: the block's encoding (`queues.rs`), the running hashes themselves (`digest.rs`).

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::call::{Call, CallFlags, Return};
use crate::comm::CommRef;
use crate::digest::{ChainPoint, DigestState, Digests};
use crate::join::join;
use crate::op::OpKind;

/// Collectives, and creations, that are kept of each communicator.
pub const FRONTIER_CALLS: usize = 4;
/// Calls that are kept of each channel of point-to-point calls (operation, peer, tag).
pub const FRONTIER_MESSAGES: usize = 2;
/// Most kinds of calls (communicators and what is told apart on them) that are kept; those used last win.
const MOST_KEYS: usize = 4096;
/// Most calls without a return, and most threads, that are kept.
const MOST_OPEN: usize = 64;
/// Elements of a vector that is kept.
const MOST_ELEMENTS: usize = 64;

/// What is told apart: communicator, class or operation, peer, tag.
type Key = (CommRef, u16, u32, i64);

fn key_of(call: &Call) -> Key {
    let code = call.op.code();
    match call.op.kind() {
        OpKind::Collective => (call.comm, 0, 0, 0),
        OpKind::CommCreate => (call.comm, 96, 0, 0),
        OpKind::PointToPoint => (call.comm, code, call.peer.unwrap_or(u32::MAX), call.tag.unwrap_or(i64::MIN)),
        _ => (call.comm, code, 0, 0),
    }
}

fn most_of(call: &Call) -> usize {
    match call.op.kind() {
        OpKind::Collective | OpKind::CommCreate => FRONTIER_CALLS,
        OpKind::PointToPoint => FRONTIER_MESSAGES,
        _ => 1,
    }
}

#[derive(Debug, Default)]
struct Last {
    /// Latest last.
    calls: VecDeque<Call>,
    /// Block in which it was last used.
    used: u64,
}

/// The frontier of a stream as it is written.
#[derive(Debug, Default)]
pub(crate) struct Frontier {
    last: FxHashMap<Key, Last>,
    /// The last call of each thread.
    threads: FxHashMap<u32, Call>,
    /// Calls that were written without a return, oldest first.
    open: VecDeque<Call>,
    points: FxHashMap<CommRef, Vec<ChainPoint>>,
    block: u64,
}

impl Frontier {
    /// Moves on by a block that was written: its calls, its returns, its digest table, and the state behind it.
    pub(crate) fn advance(&mut self, calls: &[Call], returns: &[Return], block: &Digests, state: &DigestState) {
        self.block += 1;
        for entry in returns {
            self.join(entry);
        }
        let mut fresh: FxHashMap<Key, Vec<Call>> = FxHashMap::default();
        let mut threads: FxHashSet<u32> = FxHashSet::default();
        let mut newest_thread = None;
        let mut open = VecDeque::new();
        for call in calls.iter().rev() {
            let kept = fresh.entry(key_of(call)).or_default();
            if kept.len() < most_of(call) {
                kept.push(light(call));
            }
            if newest_thread != Some(call.thread) {
                newest_thread = Some(call.thread);
                if threads.insert(call.thread) {
                    self.threads.insert(call.thread, light(call));
                }
            }
            if call.exit.is_none() && open.len() < MOST_OPEN {
                open.push_front(light(call));
            }
        }
        for (key, kept) in fresh {
            let held = self.last.entry(key).or_default();
            held.used = self.block;
            let most = kept.first().map_or(0, most_of);
            held.calls.extend(kept.into_iter().rev());
            let over = held.calls.len().saturating_sub(most);
            held.calls.drain(..over);
        }
        self.open.append(&mut open);
        let over = self.open.len().saturating_sub(MOST_OPEN);
        self.open.drain(..over);
        for end in &block.ends {
            self.points.insert(end.comm, state.tail(end.comm));
        }
        self.bound();
    }

    /// Puts a return into the call that it belongs to, if that is kept.
    fn join(&mut self, entry: &Return) {
        let is_it = |call: &Call| (call.thread, call.thread_seq) == (entry.thread, entry.thread_seq);
        let Some(at) = self.open.iter().rposition(is_it) else { return };
        let Some(call) = self.open.remove(at) else { return };
        let held = self.last.get_mut(&key_of(&call)).into_iter().flat_map(|last| &mut last.calls);
        for call in held.chain(self.threads.get_mut(&entry.thread)).filter(|call| is_it(call)) {
            join(call, entry);
        }
    }

    /// Lets go of what was used longest ago.
    fn bound(&mut self) {
        if self.last.len() > MOST_KEYS {
            let mut used: Vec<u64> = self.last.values().map(|last| last.used).collect();
            let middle = used.len() - MOST_KEYS / 2;
            let (_, oldest, _) = used.select_nth_unstable(middle);
            let oldest = *oldest;
            self.last.retain(|_, last| last.used > oldest);
            let comms: FxHashSet<CommRef> = self.last.keys().map(|key| key.0).collect();
            self.points.retain(|comm, _| comms.contains(comm));
        }
        if self.threads.len() > MOST_OPEN {
            let mut enters: Vec<u64> = self.threads.values().map(|call| call.enter).collect();
            let middle = enters.len() - MOST_OPEN / 2;
            let (_, oldest, _) = enters.select_nth_unstable(middle);
            let oldest = *oldest;
            self.threads.retain(|_, call| call.enter > oldest);
        }
    }

    /// Its calls in order of entry, each once, and the chain points behind the last collectives of each communicator.
    pub(crate) fn block(&self) -> (Vec<Call>, Digests) {
        let kept = self.last.values().flat_map(|last| &last.calls);
        let mut calls: Vec<Call> = kept.chain(self.threads.values()).chain(&self.open).cloned().collect();
        calls.sort_by_key(|call| (call.enter, call.thread, call.thread_seq));
        // Not every source numbers the calls of a thread.
        calls.dedup_by_key(|call| (call.thread, call.thread_seq, call.enter, call.comm));
        let mut ends: Vec<ChainPoint> = self.points.values().flatten().copied().collect();
        ends.sort_by_key(|point| (point.comm, point.upto));
        (calls, Digests { ends, ..Digests::default() })
    }
}

/// The call without long vectors.
fn light(call: &Call) -> Call {
    if call.sends.len().max(call.recvs.len()) <= MOST_ELEMENTS {
        return call.clone();
    }
    // Field by field where it matters: long vectors are not copied to be thrown away.
    let Call { op, comm, made, seq, flags, count, dtype, redop, root, peer, tag, .. } = *call;
    let Call { thread, thread_seq, stream, group, enter, exit, completion, result, site, label, rank, .. } = *call;
    Call {
        op,
        comm,
        made,
        seq,
        flags: flags.with(CallFlags::VECTORS_CUT),
        count,
        dtype,
        redop,
        root,
        peer,
        tag,
        sends: Vec::new(),
        recvs: Vec::new(),
        thread,
        thread_seq,
        stream,
        group,
        enter,
        exit,
        completion,
        result,
        site,
        label,
        rank,
    }
}

#[cfg(test)]
mod tests {
    use super::{FRONTIER_CALLS, Frontier};
    use crate::call::{Call, Return};
    use crate::comm::CommRef;
    use crate::digest::DigestState;
    use crate::op::Op;

    fn call(comm: u32, at: u64) -> Call {
        Call { comm: CommRef(comm), seq: Some(at), thread_seq: at, enter: at, exit: Some(at + 1), ..Call::default() }
    }

    fn advance(frontier: &mut Frontier, state: &mut DigestState, calls: &[Call], returns: &[Return]) {
        calls.iter().for_each(|call| state.absorb(call));
        let digests = state.seal_block();
        frontier.advance(calls, returns, &digests, state);
    }

    #[test]
    fn the_last_calls_and_their_hashes_are_kept_over_blocks() {
        let (mut frontier, mut state) = (Frontier::default(), DigestState::new());
        let first: Vec<Call> = (0..10).map(|at| call(1 + u32::from(at == 2), at)).collect();
        // One call of another communicator; its number is the base of its chain.
        advance(&mut frontier, &mut state, &first, &[]);
        let second: Vec<Call> = (10..13).map(|at| call(1, at)).collect();
        advance(&mut frontier, &mut state, &second, &[]);
        let (calls, digests) = frontier.block();
        let seqs: Vec<u64> = calls.iter().map(|call| call.thread_seq).collect();
        assert_eq!(seqs, [2, 9, 10, 11, 12]);
        let points: Vec<(u32, u64)> = digests.ends.iter().map(|point| (point.comm.0, point.upto)).collect();
        assert_eq!(points, [(1, 10), (1, 11), (1, 12), (1, 13), (2, 3)]);
        // Each hash is what a chain that ends there has.
        let mut replay = DigestState::new();
        first.iter().chain(&second).take(11).for_each(|call| replay.absorb(call));
        let there = replay.seal_block().ends[0];
        assert_eq!((there.upto, there.running), (11, digests.ends[1].running));
        assert_eq!(FRONTIER_CALLS, 4);
    }

    #[test]
    fn a_call_that_returns_later_is_no_longer_open() {
        let (mut frontier, mut state) = (Frontier::default(), DigestState::new());
        let inside = Call { exit: None, ..call(1, 0) };
        let waits = Call { op: Op::Recv, thread: 9, exit: None, peer: Some(3), ..call(2, 1) };
        advance(&mut frontier, &mut state, &[inside, waits], &[]);
        let more: Vec<Call> = (2..12).map(|at| call(1, at)).collect();
        let back = Return { thread: 0, thread_seq: 0, exit: 5, ..Return::default() };
        advance(&mut frontier, &mut state, &more, &[back]);
        let (calls, _) = frontier.block();
        let open: Vec<u64> = calls.iter().filter(|call| call.exit.is_none()).map(|call| call.thread_seq).collect();
        assert_eq!(open, [1]);
        assert_eq!(calls.len(), 5);
    }

    #[test]
    fn no_number_of_communicators_or_threads_takes_memory_without_end() {
        let (mut frontier, mut state) = (Frontier::default(), DigestState::new());
        for block in 0..30_u64 {
            let calls: Vec<Call> = (0..1000)
                .map(|at| {
                    let number = block * 1000 + at;
                    Call { thread: number as u32, exit: None, ..call(number as u32 + 1, number) }
                })
                .collect();
            advance(&mut frontier, &mut state, &calls, &[]);
        }
        let (calls, digests) = frontier.block();
        assert!(calls.len() <= super::MOST_KEYS + 2 * super::MOST_OPEN, "{}", calls.len());
        assert!(digests.ends.len() <= super::MOST_KEYS);
        assert!(calls.iter().any(|call| call.thread == 29_999), "what was used last is kept");
    }
}
