//! Calls and returns to columns.

use std::mem::replace;

use rustc_hash::FxHashMap;

use super::{
    CHUNK, COMPLETION_AT, COMPLETION_PENDING, Col, DTYPE_SHIFT, Foresight, HAS_COUNT, HAS_EXIT, HAS_PEER, HAS_RANK,
    HAS_RECVS, HAS_RESULT, HAS_ROOT, HAS_SENDS, HAS_SEQ, HAS_TAG, MODE_ONE, MODE_VARINTS, REDOP_SHIFT,
};
use crate::call::{Call, Completion, Return};
use crate::datatype::{DType, RedOp};
use crate::wire::{delta, put_varint, zigzag};

/// A column while values are added to it.
#[derive(Debug, Default)]
struct Column {
    /// The first value. It stands for all of them until one differs.
    first: u64,
    /// How many equal it, before any differs.
    equal: usize,
    /// Values differ: they are in `bytes`, each as a varint.
    differ: bool,
    bytes: Vec<u8>,
}

impl Column {
    #[inline]
    fn extend(&mut self, values: impl Iterator<Item = u64>) {
        for value in values {
            if self.differ {
                put_varint(&mut self.bytes, value);
            } else if self.equal > 0 && value == self.first {
                self.equal += 1;
            } else {
                self.begin(value);
            }
        }
    }

    /// The first value, or the first that differs from it.
    #[cold]
    fn begin(&mut self, value: u64) {
        if self.equal == 0 {
            self.first = value;
            self.equal = 1;
        } else {
            self.differ = true;
            for _ in 0..self.equal {
                put_varint(&mut self.bytes, self.first);
            }
            put_varint(&mut self.bytes, value);
        }
    }

    /// A length and as many values, which are never written as one value.
    fn extend_vector(&mut self, vector: &[u64]) {
        self.differ = true;
        put_varint(&mut self.bytes, vector.len() as u64);
        for &element in vector {
            put_varint(&mut self.bytes, element);
        }
    }

    /// Appends the column to a payload if it says anything, and empties it.
    fn finish(&mut self, col: Col, out: &mut Vec<u8>) {
        let one = !self.differ;
        if one && self.first != 0 {
            put_varint(&mut self.bytes, self.first);
        }
        if !self.bytes.is_empty() {
            out.push(col as u8);
            out.push(if one { MODE_ONE } else { MODE_VARINTS });
            put_varint(out, self.bytes.len() as u64);
            out.extend_from_slice(&self.bytes);
        }
        self.bytes.clear();
        (self.first, self.equal, self.differ) = (0, 0, false);
    }
}

/// Collects columns.
#[derive(Debug, Default)]
pub(crate) struct ColumnWriter {
    columns: [Column; Col::ALL.len()],
}

impl ColumnWriter {
    #[inline]
    fn column(&mut self, col: Col) -> &mut Column {
        // Ids count from 1 without a hole.
        &mut self.columns[col as usize - 1]
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        for (column, &col) in self.columns.iter_mut().zip(Col::ALL) {
            column.finish(col, out);
        }
    }
}

fn shape_of(call: &Call) -> u64 {
    let has = |present: bool, bit: u64| if present { bit } else { 0 };
    let completion = match call.completion {
        Completion::Unknown => 0,
        Completion::At(_) => COMPLETION_AT,
        Completion::Pending => COMPLETION_PENDING,
    };
    let dtype = match call.dtype {
        DType::None => 0,
        DType::Basic(_) => 1,
        DType::Derived(_) => 2,
        DType::Raw(_) => 3,
    };
    let redop = match call.redop {
        RedOp::None => 0,
        RedOp::Predefined(_) => 1,
        RedOp::Dynamic => 2,
        RedOp::Raw(_) => 3,
    };
    has(call.seq.is_some(), HAS_SEQ)
        | has(call.count.is_some(), HAS_COUNT)
        | has(call.root.is_some(), HAS_ROOT)
        | has(call.peer.is_some(), HAS_PEER)
        | has(call.tag.is_some(), HAS_TAG)
        | has(call.exit.is_some(), HAS_EXIT)
        | has(call.result.is_some(), HAS_RESULT)
        | has(call.rank.is_some(), HAS_RANK)
        | has(!call.sends.is_empty(), HAS_SENDS)
        | has(!call.recvs.is_empty(), HAS_RECVS)
        | completion
        | dtype << DTYPE_SHIFT
        | redop << REDOP_SHIFT
}

/// Appends the payload of a block of calls.
pub(crate) fn encode_calls(calls: &[Call], columns: &mut ColumnWriter, out: &mut Vec<u8>) {
    let mut ahead = Foresight::default();
    for chunk in calls.chunks(CHUNK) {
        encode_chunk(chunk, &mut ahead, columns);
    }
    columns.finish(out);
}

fn encode_chunk(calls: &[Call], ahead: &mut Foresight, w: &mut ColumnWriter) {
    let all = || calls.iter();
    w.column(Col::Shape).extend(all().map(shape_of));
    w.column(Col::Op).extend(all().map(|call| u64::from(call.op.code())));
    w.column(Col::Comm).extend(all().map(|call| u64::from(call.comm.0)));
    w.column(Col::Made).extend(all().map(|call| u64::from(call.made.0)));
    w.column(Col::Seq).extend(all().filter_map(|call| {
        let seq = call.seq?;
        let next = ahead.seq(call.op.code(), call.comm, call.peer, call.tag);
        let coded = delta(seq, *next);
        *next = seq.wrapping_add(1);
        Some(coded)
    }));
    w.column(Col::Flags).extend(all().map(|call| u64::from(call.flags.0)));
    w.column(Col::Count).extend(all().filter_map(|call| call.count));
    w.column(Col::DType).extend(all().filter_map(|call| match call.dtype {
        DType::None => None,
        DType::Basic(basic) => Some(u64::from(basic.code())),
        DType::Derived(id) => Some(u64::from(id)),
        DType::Raw(raw) => Some(raw),
    }));
    w.column(Col::RedOp).extend(all().filter_map(|call| match call.redop {
        RedOp::None | RedOp::Dynamic => None,
        RedOp::Predefined(reduction) => Some(u64::from(reduction.code())),
        RedOp::Raw(raw) => Some(raw),
    }));
    w.column(Col::Root).extend(all().filter_map(|call| call.root.map(u64::from)));
    w.column(Col::Peer).extend(all().filter_map(|call| call.peer.map(u64::from)));
    w.column(Col::Tag).extend(all().filter_map(|call| call.tag.map(zigzag)));
    for vector in all().flat_map(|call| [&call.sends, &call.recvs]).filter(|vector| !vector.is_empty()) {
        w.column(Col::Vectors).extend_vector(vector);
    }
    w.column(Col::Thread).extend(all().map(|call| u64::from(call.thread)));
    w.column(Col::ThreadSeq).extend(all().map(|call| {
        let thread = ahead.thread(call.thread);
        let coded = delta(call.thread_seq, thread.seq);
        thread.seq = call.thread_seq.wrapping_add(1);
        coded
    }));
    w.column(Col::Stream).extend(all().map(|call| delta(call.stream, replace(&mut ahead.stream, call.stream))));
    w.column(Col::Group).extend(all().map(|call| match call.group {
        0 => 0,
        group => 1 + delta(u64::from(group), u64::from(replace(&mut ahead.thread(call.thread).group, group))),
    }));
    w.column(Col::Enter).extend(all().map(|call| delta(call.enter, replace(&mut ahead.enter, call.enter))));
    w.column(Col::Exit).extend(all().filter_map(|call| call.exit.map(|exit| delta(exit, call.enter))));
    w.column(Col::Completion).extend(all().filter_map(|call| match call.completion {
        Completion::At(time) => Some(delta(time, call.exit.unwrap_or(call.enter))),
        Completion::Unknown | Completion::Pending => None,
    }));
    w.column(Col::Result).extend(all().filter_map(|call| call.result.map(zigzag)));
    w.column(Col::Site).extend(all().map(|call| u64::from(call.site.0)));
    w.column(Col::Label).extend(all().map(|call| u64::from(call.label)));
    w.column(Col::Rank).extend(all().filter_map(|call| call.rank.map(u64::from)));
}

/// Appends the payload of a block of returns.
pub(crate) fn encode_returns(returns: &[Return], columns: &mut ColumnWriter, out: &mut Vec<u8>) {
    let all = || returns.iter();
    columns.column(Col::Shape).extend(all().map(|entry| match entry.completion {
        Completion::Unknown => 0,
        Completion::At(_) => COMPLETION_AT,
        Completion::Pending => COMPLETION_PENDING,
    }));
    columns.column(Col::Made).extend(all().map(|entry| u64::from(entry.made.0)));
    columns.column(Col::Thread).extend(all().map(|entry| u64::from(entry.thread)));
    let mut threads: FxHashMap<u32, u64> = FxHashMap::default();
    columns.column(Col::ThreadSeq).extend(all().map(|entry| {
        let next = threads.entry(entry.thread).or_default();
        delta(entry.thread_seq, replace(next, entry.thread_seq.wrapping_add(1)))
    }));
    let mut last = 0;
    columns.column(Col::Exit).extend(all().map(|entry| delta(entry.exit, replace(&mut last, entry.exit))));
    columns.column(Col::Completion).extend(all().filter_map(|entry| match entry.completion {
        Completion::At(time) => Some(delta(time, entry.exit)),
        Completion::Unknown | Completion::Pending => None,
    }));
    columns.column(Col::Result).extend(all().map(|entry| zigzag(entry.result)));
    columns.finish(out);
}
