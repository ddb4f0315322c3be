//! The return of a call, put into the call.

use rustc_hash::FxHashMap;

use crate::call::{Call, Completion, Return};
use crate::comm::CommRef;

/// Puts a return into its call.
pub(crate) fn join(call: &mut Call, entry: &Return) {
    call.exit = Some(entry.exit);
    call.result = Some(entry.result);
    if entry.made != CommRef::NONE {
        call.made = entry.made;
    }
    if entry.completion != Completion::Unknown {
        call.completion = entry.completion;
    }
}

/// A return is looked for among this many calls before all are indexed.
const NEAR: usize = 8;

/// Where calls are, by thread and ordinal. Built when the first return asks that is far from its call: most streams have
/// few returns, and most calls return before many others are made.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    places: FxHashMap<(u32, u64), usize>,
    indexed: usize,
}

impl Joiner {
    /// Joins a return to the latest call of its thread and ordinal; false if there is none.
    pub(crate) fn join(&mut self, calls: &mut [Call], entry: &Return) -> bool {
        match self.find(calls, entry).and_then(|place| calls.get_mut(place)) {
            Some(call) => {
                join(call, entry);
                true
            }
            None => false,
        }
    }

    fn find(&mut self, calls: &[Call], entry: &Return) -> Option<usize> {
        let is_it = |call: &&Call| (call.thread, call.thread_seq) == (entry.thread, entry.thread_seq);
        let near = (0..calls.len()).zip(calls).rev().take(NEAR).find(|(_, call)| is_it(call));
        if let Some((place, _)) = near {
            return Some(place);
        }
        for (place, call) in calls.iter().enumerate().skip(self.indexed) {
            self.places.insert((call.thread, call.thread_seq), place);
        }
        self.indexed = calls.len();
        self.places.get(&(entry.thread, entry.thread_seq)).copied()
    }

    /// Begins anew with other calls.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.indexed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Joiner, NEAR};
    use crate::call::{Call, Return};

    #[test]
    fn a_return_finds_the_latest_call_of_its_thread_and_ordinal_near_and_far() {
        let call = |thread, thread_seq| Call { thread, thread_seq, ..Call::default() };
        // Ordinal 1 of thread 2 twice: the number of the thread was used again.
        let mut calls = vec![call(2, 0), call(2, 1), call(3, 1), call(2, 1)];
        let mut joiner = Joiner::default();
        let back = |thread, thread_seq, exit| Return { thread, thread_seq, exit, ..Return::default() };
        for round in 0..3 {
            assert!(joiner.join(&mut calls, &back(2, 1, 10 + round)));
            assert!(joiner.join(&mut calls, &back(3, 1, 20 + round)));
            assert!(!joiner.join(&mut calls, &back(3, 0, 0)));
            let exits: Vec<Option<u64>> = calls.iter().take(4).map(|call| call.exit).collect();
            assert_eq!(exits, [None, None, Some(20 + round), Some(10 + round)]);
            calls.extend((0..NEAR as u64).map(|seq| call(9, seq + 100 * round)));
        }
        joiner.clear();
        assert!(!joiner.join(&mut calls[..2], &back(3, 1, 0)), "it is not among these");
    }
}
