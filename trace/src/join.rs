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

/// Where calls are, by thread and ordinal. Built when the first return asks, since most streams have none.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    places: FxHashMap<(u32, u64), usize>,
    indexed: usize,
}

impl Joiner {
    /// Joins a return to the latest call of its thread and ordinal; false if there is none.
    pub(crate) fn join(&mut self, calls: &mut [Call], entry: &Return) -> bool {
        for (place, call) in calls.iter().enumerate().skip(self.indexed) {
            self.places.insert((call.thread, call.thread_seq), place);
        }
        self.indexed = calls.len();
        let place = self.places.get(&(entry.thread, entry.thread_seq));
        match place.and_then(|&place| calls.get_mut(place)) {
            Some(call) => {
                join(call, entry);
                true
            }
            None => false,
        }
    }
}
