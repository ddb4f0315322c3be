//! What was shown from the tail and may come again in a block.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::block::BlockKind;
use crate::call::{Call, Return};
use crate::join::join;
use crate::stream::Record;
use crate::tail::reader::TailRecord;

/// Records of rows that are in no block yet, as far as is known.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Row and kind of each that a block will hold.
    records: VecDeque<(u64, BlockKind)>,
    /// Calls by thread and ordinal: the row, and what was said of their return since.
    calls: FxHashMap<(u32, u64), (u64, Call)>,
}

impl Shown {
    /// A record was taken from the tail.
    pub(crate) fn note(&mut self, found: &TailRecord) {
        if !found.joined {
            self.records.push_back((found.row, found.kind));
        }
        match found.record.as_deref() {
            Some(Record::Call(call)) => {
                // Of the call itself only what a return changes is asked for.
                let brief = Call {
                    made: call.made,
                    exit: call.exit,
                    completion: call.completion,
                    result: call.result,
                    ..Call::default()
                };
                self.calls.insert((call.thread, call.thread_seq), (found.row, brief));
            }
            Some(Record::Return(entry)) if found.joined => {
                if let Some((_, call)) = self.calls.get_mut(&(entry.thread, entry.thread_seq)) {
                    join(call, entry);
                }
            }
            _ => {}
        }
    }

    /// Rows below this are in blocks that are not looked at any more.
    pub(crate) fn drop_below(&mut self, row: u64) {
        while self.records.front().is_some_and(|(shown, _)| *shown < row) {
            self.records.pop_front();
        }
        self.calls.retain(|_, (shown, _)| *shown >= row);
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.calls.clear();
    }

    /// How many records of each kind were shown from this row on.
    pub(crate) fn counts_from(&self, row: u64) -> FxHashMap<BlockKind, usize> {
        let mut counts = FxHashMap::default();
        for (shown, kind) in &self.records {
            if *shown >= row {
                *counts.entry(*kind).or_default() += 1;
            }
        }
        counts
    }

    /// The return that a call's block shows and that was not shown from the tail.
    pub(crate) fn return_of(&self, record: &Record) -> Option<Return> {
        let Record::Call(call) = record else { return None };
        let (_, shown) = self.calls.get(&(call.thread, call.thread_seq))?;
        let same = (shown.exit, shown.result, shown.made, shown.completion)
            == (call.exit, call.result, call.made, call.completion);
        let exit = call.exit.filter(|_| !same)?;
        Some(Return {
            thread: call.thread,
            thread_seq: call.thread_seq,
            exit,
            result: call.result.unwrap_or(0),
            made: call.made,
            completion: call.completion,
        })
    }
}
