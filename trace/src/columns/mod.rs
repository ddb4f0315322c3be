//! Payloads of calls and returns: one column per field, so that what repeats lies together and compresses away.
//!
//! A payload is a directory of columns (id, mode, length, bytes); a column of nothing but zeroes is left out, one equal
//! value is written once, anything else is a varint per value. Fields that are often absent have their presence in the
//! `SHAPE` column and values only where present. Numbers that a reader can foresee (the next sequence number, the next
//! ordinal of the thread) are written as the difference from what is foreseen. docs/format.md, 'Calls', is normative.
//!
//! Calls are large and their columns many: writer and reader both go through a block in chunks that stay in the first
//! level of cache, and through each chunk column by column, so that what a column needs stays in registers.
//!
//! Here is what both directions share. `write.rs` makes payloads, `read.rs` takes them apart. Not here: the frame of a
//! block and its compression (`block.rs`), records that are written as rows (`rows.rs`).

mod read;
mod write;

use std::hash::Hash;

use rustc_hash::FxHashMap;

pub(crate) use self::read::{decode_calls, decode_returns};
pub(crate) use self::write::{ColumnWriter, encode_calls, encode_returns};
use crate::comm::CommRef;

macro_rules! columns {
    ($($col:ident = $id:literal,)*) => {
        /// Columns of a payload; the value is the column's id.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        enum Col { $($col = $id,)* }

        impl Col {
            /// All of them, in the order of their ids, which count from 1.
            const ALL: &'static [Col] = &[$(Col::$col,)*];
        }
    };
}

columns! {
    Shape = 1,
    Op = 2,
    Comm = 3,
    Made = 4,
    Seq = 5,
    Flags = 6,
    Count = 7,
    DType = 8,
    RedOp = 9,
    Root = 10,
    Peer = 11,
    Tag = 12,
    Vectors = 13,
    Thread = 14,
    ThreadSeq = 15,
    Stream = 16,
    Group = 17,
    Enter = 18,
    Exit = 19,
    Completion = 20,
    Result = 21,
    Site = 22,
    Label = 23,
    Rank = 24,
}

/// Column ids are below this; higher ones are a newer writer's.
const COLUMNS: usize = 32;

/// One value for all records.
const MODE_ONE: u8 = 0;
/// A varint per value.
const MODE_VARINTS: u8 = 1;

// The bits of `SHAPE`.
const HAS_SEQ: u64 = 1;
const HAS_COUNT: u64 = 1 << 1;
const HAS_ROOT: u64 = 1 << 2;
const HAS_PEER: u64 = 1 << 3;
const HAS_TAG: u64 = 1 << 4;
const HAS_EXIT: u64 = 1 << 5;
const HAS_RESULT: u64 = 1 << 6;
const HAS_RANK: u64 = 1 << 7;
const HAS_SENDS: u64 = 1 << 8;
const HAS_RECVS: u64 = 1 << 9;
const COMPLETION: u64 = 3 << 10;
const COMPLETION_AT: u64 = 1 << 10;
const COMPLETION_PENDING: u64 = 2 << 10;
const DTYPE_SHIFT: u32 = 12;
const DTYPE: u64 = 3 << DTYPE_SHIFT;
const REDOP_SHIFT: u32 = 14;
const REDOP: u64 = 3 << REDOP_SHIFT;
const REDOP_DYNAMIC: u64 = 2 << REDOP_SHIFT;

/// Calls that are worked on together: they and the columns' ends fit the first level of cache.
const CHUNK: usize = 64;

/// What sequence number a call has if nothing is lost. Runs alike in writer and reader, anew in every block.
#[derive(Default)]
struct Foresight {
    collectives: Counters<u32, u64>,
    others: Counters<(u32, u16, u32, i64), u64>,
    threads: Counters<u32, ThreadForesight>,
    enter: u64,
    stream: u64,
}

/// Counters by key. Most blocks have few keys, and to look at those costs less than to hash.
#[derive(Default)]
struct Counters<K, V> {
    first: Vec<(K, V)>,
    more: FxHashMap<K, V>,
}

impl<K: Copy + Eq + Hash, V: Default> Counters<K, V> {
    /// How many keys are looked at.
    const FEW: usize = 6;

    #[inline]
    fn of(&mut self, key: K) -> &mut V {
        let place = self.first.iter().position(|(known, _)| *known == key).unwrap_or(self.first.len());
        if place == self.first.len() {
            if place >= Self::FEW {
                return self.more.entry(key).or_default();
            }
            self.first.push((key, V::default()));
        }
        &mut self.first[place].1
    }
}

#[derive(Default, Clone, Copy)]
struct ThreadForesight {
    seq: u64,
    group: u32,
}

impl Foresight {
    /// The foreseen number. Classes are told by the code's range, so that a reader that does not know an operation
    /// still counts as its writer did.
    #[inline]
    fn seq(&mut self, code: u16, comm: CommRef, peer: Option<u32>, tag: Option<i64>) -> &mut u64 {
        match code {
            0..=63 => self.collectives.of(comm.0),
            96..=127 => self.others.of((comm.0, 96, 0, 0)),
            _ => self.others.of((comm.0, code, peer.unwrap_or(u32::MAX), tag.unwrap_or(i64::MIN))),
        }
    }

    #[inline]
    fn thread(&mut self, thread: u32) -> &mut ThreadForesight {
        self.threads.of(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Col, ColumnWriter, decode_calls, encode_calls};
    use crate::call::Call;
    use crate::op::{Op, OpKind};

    #[test]
    fn ids_count_from_one() {
        for (place, &col) in Col::ALL.iter().enumerate() {
            assert_eq!(col as usize, place + 1);
            assert!((col as usize) < COLUMNS);
        }
    }

    /// The foreseen sequence number goes by ranges of codes; they must stay what the operations' kinds are.
    #[test]
    fn ranges_of_codes_are_the_kinds() {
        for &op in Op::ALL {
            assert_eq!(op.code() <= 63, op.kind() == OpKind::Collective, "{op}");
            assert_eq!((96..=127).contains(&op.code()), op.kind() == OpKind::CommCreate, "{op}");
        }
    }

    #[test]
    fn an_unknown_operation_is_left_out_and_the_rest_stays_right() {
        let calls: Vec<Call> = (0..6)
            .map(|index| Call {
                op: if index % 2 == 0 { Op::AllReduce } else { Op::Send },
                seq: Some(index / 2),
                thread_seq: index,
                enter: 100 * index,
                ..Call::default()
            })
            .collect();
        let mut payload = Vec::new();
        encode_calls(&calls, &mut ColumnWriter::default(), &mut payload);
        // The column of operations: id 2, varints, then a code each; make the sends an operation nobody knows (70).
        let column = [2, 1, 6, 2, 64, 2, 64, 2, 64];
        let at = payload.windows(column.len()).position(|window| window == column).expect("the column is there");
        for index in [4, 6, 8] {
            payload[at + index] = 70;
        }
        let mut read = vec![Call::default()];
        let skipped = decode_calls(&payload, calls.len(), &mut read).expect("readable");
        assert_eq!(skipped, 3);
        let known: Vec<Call> = calls.into_iter().filter(|call| call.op == Op::AllReduce).collect();
        assert_eq!(read[0], Call::default());
        assert_eq!(read[1..], known);
    }
}
