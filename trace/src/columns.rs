//! Payloads of calls and returns: one column per field, so that what repeats lies together and compresses away.
//!
//! A payload is a directory of columns (id, mode, length, bytes); a column of nothing but zeroes is left out, one equal
//! value is written once, anything else is a varint per value. Fields that are often absent have their presence in the
//! `SHAPE` column and values only where present. Numbers that a reader can foresee (the next sequence number, the next
//! ordinal of the thread) are written as the difference from what is foreseen. docs/format.md, 'Calls', is normative.

use rustc_hash::FxHashMap;

use crate::call::{Call, CallFlags, Completion, Return, SiteRef};
use crate::comm::CommRef;
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::limits;
use crate::op::Op;
use crate::wire::{Cursor, Malformed, delta, put_varint, undelta, unzigzag, zigzag};

/// Columns of a payload; the value is the column's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Col {
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
const COMPLETION_SHIFT: u32 = 10;
const DTYPE_SHIFT: u32 = 12;
const REDOP_SHIFT: u32 = 14;

/// A number of this size and more stands for a basic type or reduction of a newer writer, as a raw handle.
const UNKNOWN_CODE: u64 = 1 << 32;

/// Collects columns.
#[derive(Debug, Default)]
pub(crate) struct ColumnWriter {
    values: Vec<u64>,
    body: Vec<u8>,
}

impl ColumnWriter {
    /// Writes a column of the values that `fill` pushes. `sized`: it holds lengths and is never written as one value.
    fn column(&mut self, col: Col, sized: bool, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u64>)) {
        self.values.clear();
        fill(&mut self.values);
        let Some(&first) = self.values.first() else { return };
        let one = !sized && self.values.iter().all(|&value| value == first);
        if one && first == 0 {
            return;
        }
        self.body.clear();
        if one {
            put_varint(&mut self.body, first);
        } else {
            for &value in &self.values {
                put_varint(&mut self.body, value);
            }
        }
        out.push(col as u8);
        out.push(if one { MODE_ONE } else { MODE_VARINTS });
        put_varint(out, self.body.len() as u64);
        out.extend_from_slice(&self.body);
    }
}

/// Where a column's values come from.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    One(u64),
    Varints(Cursor<'a>),
}

impl Source<'_> {
    #[inline]
    fn next(&mut self) -> Result<u64, Malformed> {
        match self {
            Source::One(value) => Ok(*value),
            Source::Varints(cursor) => cursor.varint("a column is shorter than its block's count"),
        }
    }

    #[inline]
    fn next32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.next()?).map_err(|_| Malformed("a column holds a number over 32 bits"))
    }
}

/// The columns of a payload by id.
struct ColumnReader<'a> {
    columns: [Source<'a>; COLUMNS],
}

impl<'a> ColumnReader<'a> {
    fn new(payload: &'a [u8]) -> Result<ColumnReader<'a>, Malformed> {
        let mut reader = ColumnReader { columns: [Source::One(0); COLUMNS] };
        let mut cursor = Cursor::new(payload);
        while !cursor.is_empty() {
            let id = cursor.u8("a column's id")?;
            let mode = cursor.u8("a column's mode")?;
            let length = cursor.length(limits::MAX_RAW, "a column's length is over its payload")?;
            let mut body = Cursor::new(cursor.take(length, "a column")?);
            let Some(column) = reader.columns.get_mut(usize::from(id)) else { continue };
            *column = match mode {
                MODE_ONE => Source::One(body.varint("a column's value")?),
                MODE_VARINTS => Source::Varints(body),
                _ => return Err(Malformed("a column's mode is not known")),
            };
        }
        Ok(reader)
    }

    #[inline]
    fn next(&mut self, col: Col) -> Result<u64, Malformed> {
        self.columns[col as usize].next()
    }

    #[inline]
    fn next32(&mut self, col: Col) -> Result<u32, Malformed> {
        self.columns[col as usize].next32()
    }

    /// A length and as many values. Never more than the column has bytes.
    fn vector(&mut self) -> Result<Vec<u64>, Malformed> {
        let Source::Varints(cursor) = &mut self.columns[Col::Vectors as usize] else {
            return Err(Malformed("a vector column is missing"));
        };
        let length = cursor.length(limits::MAX_VECTOR, "a vector is longer than its column")?;
        let mut vector = Vec::with_capacity(length);
        for _ in 0..length {
            vector.push(cursor.varint("a vector's element")?);
        }
        Ok(vector)
    }

    /// Nothing may be left: a column longer than the count is as wrong as a shorter one.
    fn finish(&self) -> Result<(), Malformed> {
        let left = self.columns.iter().any(|column| matches!(column, Source::Varints(cursor) if !cursor.is_empty()));
        if left { Err(Malformed("a column is longer than its block's count")) } else { Ok(()) }
    }
}

/// What sequence number a call has if nothing is lost. Runs alike in writer and reader, anew in every block.
#[derive(Default)]
struct Foresight {
    collectives: FxHashMap<u32, u64>,
    others: FxHashMap<(u32, u16, u32, i64), u64>,
    threads: FxHashMap<u32, ThreadForesight>,
    enter: u64,
    stream: u64,
}

#[derive(Default, Clone, Copy)]
struct ThreadForesight {
    seq: u64,
    group: u32,
}

impl Foresight {
    /// The foreseen number. Classes are told by the code's range, so that a reader that does not know an operation
    /// still counts as its writer did.
    fn seq(&mut self, code: u16, comm: CommRef, peer: Option<u32>, tag: Option<i64>) -> &mut u64 {
        match code {
            0..=63 => self.collectives.entry(comm.0).or_default(),
            96..=127 => self.others.entry((comm.0, 96, 0, 0)).or_default(),
            _ => self.others.entry((comm.0, code, peer.unwrap_or(u32::MAX), tag.unwrap_or(i64::MIN))).or_default(),
        }
    }
}

fn shape_of(call: &Call) -> u64 {
    let has = |present: bool, bit: u64| if present { bit } else { 0 };
    let completion = match call.completion {
        Completion::Unknown => 0,
        Completion::At(_) => 1,
        Completion::Pending => 2,
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
        | completion << COMPLETION_SHIFT
        | dtype << DTYPE_SHIFT
        | redop << REDOP_SHIFT
}

/// Appends the payload of a block of calls.
pub(crate) fn encode_calls(calls: &[Call], writer: &mut ColumnWriter, out: &mut Vec<u8>) {
    let w = writer;
    w.column(Col::Shape, false, out, |v| v.extend(calls.iter().map(shape_of)));
    w.column(Col::Op, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.op.code()))));
    w.column(Col::Comm, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.comm.0))));
    w.column(Col::Made, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.made.0))));
    let mut ahead = Foresight::default();
    w.column(Col::Seq, false, out, |v| {
        v.extend(calls.iter().filter_map(|call| {
            let seq = call.seq?;
            let next = ahead.seq(call.op.code(), call.comm, call.peer, call.tag);
            let coded = delta(seq, *next);
            *next = seq.wrapping_add(1);
            Some(coded)
        }));
    });
    w.column(Col::Flags, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.flags.0))));
    w.column(Col::Count, false, out, |v| v.extend(calls.iter().filter_map(|call| call.count)));
    w.column(Col::DType, false, out, |v| {
        v.extend(calls.iter().filter_map(|call| match call.dtype {
            DType::None => None,
            DType::Basic(basic) => Some(u64::from(basic.code())),
            DType::Derived(id) => Some(u64::from(id)),
            DType::Raw(raw) => Some(raw),
        }));
    });
    w.column(Col::RedOp, false, out, |v| {
        v.extend(calls.iter().filter_map(|call| match call.redop {
            RedOp::None | RedOp::Dynamic => None,
            RedOp::Predefined(reduction) => Some(u64::from(reduction.code())),
            RedOp::Raw(raw) => Some(raw),
        }));
    });
    w.column(Col::Root, false, out, |v| v.extend(calls.iter().filter_map(|call| call.root.map(u64::from))));
    w.column(Col::Peer, false, out, |v| v.extend(calls.iter().filter_map(|call| call.peer.map(u64::from))));
    w.column(Col::Tag, false, out, |v| v.extend(calls.iter().filter_map(|call| call.tag.map(zigzag))));
    w.column(Col::Vectors, true, out, |v| {
        for vector in calls.iter().flat_map(|call| [&call.sends, &call.recvs]).filter(|vector| !vector.is_empty()) {
            v.push(vector.len() as u64);
            v.extend_from_slice(vector);
        }
    });
    w.column(Col::Thread, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.thread))));
    w.column(Col::ThreadSeq, false, out, |v| {
        v.extend(calls.iter().map(|call| {
            let thread = ahead.threads.entry(call.thread).or_default();
            let coded = delta(call.thread_seq, thread.seq);
            thread.seq = call.thread_seq.wrapping_add(1);
            coded
        }));
    });
    w.column(Col::Stream, false, out, |v| {
        v.extend(calls.iter().map(|call| delta(call.stream, std::mem::replace(&mut ahead.stream, call.stream))));
    });
    w.column(Col::Group, false, out, |v| {
        v.extend(calls.iter().map(|call| match call.group {
            0 => 0,
            group => {
                let thread = ahead.threads.entry(call.thread).or_default();
                1 + delta(u64::from(group), u64::from(std::mem::replace(&mut thread.group, group)))
            }
        }));
    });
    w.column(Col::Enter, false, out, |v| {
        v.extend(calls.iter().map(|call| delta(call.enter, std::mem::replace(&mut ahead.enter, call.enter))));
    });
    w.column(Col::Exit, false, out, |v| {
        v.extend(calls.iter().filter_map(|call| call.exit.map(|exit| delta(exit, call.enter))));
    });
    w.column(Col::Completion, false, out, |v| {
        v.extend(calls.iter().filter_map(|call| match call.completion {
            Completion::At(time) => Some(delta(time, call.exit.unwrap_or(call.enter))),
            _ => None,
        }));
    });
    w.column(Col::Result, false, out, |v| v.extend(calls.iter().filter_map(|call| call.result.map(zigzag))));
    w.column(Col::Site, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.site.0))));
    w.column(Col::Label, false, out, |v| v.extend(calls.iter().map(|call| u64::from(call.label))));
    w.column(Col::Rank, false, out, |v| v.extend(calls.iter().filter_map(|call| call.rank.map(u64::from))));
}

/// The calls of a payload, and how many were left out because this build does not know their operation.
pub(crate) fn decode_calls(payload: &[u8], count: usize) -> Result<(Vec<Call>, u64), Malformed> {
    let mut columns = ColumnReader::new(payload)?;
    let mut ahead = Foresight::default();
    let mut skipped = 0;
    // `count` is bounded by the block header; a block of equal calls takes few bytes, so the payload bounds nothing.
    let mut calls = Vec::with_capacity(count);
    for _ in 0..count {
        let shape = columns.next(Col::Shape)?;
        let has = |bit: u64| shape & bit != 0;
        let mut call = Call::default();
        let code = columns.next(Col::Op)?;
        let code = u16::try_from(code).map_err(|_| Malformed("an operation's code is over 16 bits"))?;
        let op = Op::from_code(code);
        call.op = op.unwrap_or_default();
        call.comm = CommRef(columns.next32(Col::Comm)?);
        call.made = CommRef(columns.next32(Col::Made)?);
        let seq = if has(HAS_SEQ) { Some(columns.next(Col::Seq)?) } else { None };
        call.flags = CallFlags(columns.next32(Col::Flags)?);
        call.count = if has(HAS_COUNT) { Some(columns.next(Col::Count)?) } else { None };
        call.dtype = match (shape >> DTYPE_SHIFT) & 3 {
            0 => DType::None,
            1 => {
                let code = columns.next(Col::DType)?;
                let basic = u8::try_from(code).ok().and_then(Basic::from_code);
                basic.map_or(DType::Raw(code | UNKNOWN_CODE), DType::Basic)
            }
            2 => DType::Derived(columns.next32(Col::DType)?),
            _ => DType::Raw(columns.next(Col::DType)?),
        };
        call.redop = match (shape >> REDOP_SHIFT) & 3 {
            0 => RedOp::None,
            1 => {
                let code = columns.next(Col::RedOp)?;
                let reduction = u8::try_from(code).ok().and_then(Reduction::from_code);
                reduction.map_or(RedOp::Raw(code | UNKNOWN_CODE), RedOp::Predefined)
            }
            2 => RedOp::Dynamic,
            _ => RedOp::Raw(columns.next(Col::RedOp)?),
        };
        call.root = if has(HAS_ROOT) { Some(columns.next32(Col::Root)?) } else { None };
        call.peer = if has(HAS_PEER) { Some(columns.next32(Col::Peer)?) } else { None };
        call.tag = if has(HAS_TAG) { Some(unzigzag(columns.next(Col::Tag)?)) } else { None };
        if has(HAS_SENDS) {
            call.sends = columns.vector()?;
        }
        if has(HAS_RECVS) {
            call.recvs = columns.vector()?;
        }
        call.thread = columns.next32(Col::Thread)?;
        let thread = ahead.threads.entry(call.thread).or_default();
        call.thread_seq = undelta(columns.next(Col::ThreadSeq)?, thread.seq);
        thread.seq = call.thread_seq.wrapping_add(1);
        call.group = match columns.next(Col::Group)? {
            0 => 0,
            coded => {
                let group = undelta(coded - 1, u64::from(thread.group));
                thread.group = u32::try_from(group).map_err(|_| Malformed("a group's number is over 32 bits"))?;
                thread.group
            }
        };
        if let Some(coded) = seq {
            let next = ahead.seq(code, call.comm, call.peer, call.tag);
            let seq = undelta(coded, *next);
            *next = seq.wrapping_add(1);
            call.seq = Some(seq);
        }
        call.stream = undelta(columns.next(Col::Stream)?, ahead.stream);
        ahead.stream = call.stream;
        call.enter = undelta(columns.next(Col::Enter)?, ahead.enter);
        ahead.enter = call.enter;
        call.exit = if has(HAS_EXIT) { Some(undelta(columns.next(Col::Exit)?, call.enter)) } else { None };
        call.completion = match (shape >> COMPLETION_SHIFT) & 3 {
            1 => Completion::At(undelta(columns.next(Col::Completion)?, call.exit.unwrap_or(call.enter))),
            2 => Completion::Pending,
            _ => Completion::Unknown,
        };
        call.result = if has(HAS_RESULT) { Some(unzigzag(columns.next(Col::Result)?)) } else { None };
        call.site = SiteRef(columns.next32(Col::Site)?);
        call.label = columns.next32(Col::Label)?;
        call.rank = if has(HAS_RANK) { Some(columns.next32(Col::Rank)?) } else { None };
        if op.is_some() { calls.push(call) } else { skipped += 1 }
    }
    columns.finish()?;
    Ok((calls, skipped))
}

/// Appends the payload of a block of returns.
pub(crate) fn encode_returns(returns: &[Return], writer: &mut ColumnWriter, out: &mut Vec<u8>) {
    let w = writer;
    w.column(Col::Shape, false, out, |v| {
        v.extend(returns.iter().map(|entry| match entry.completion {
            Completion::Unknown => 0,
            Completion::At(_) => 1 << COMPLETION_SHIFT,
            Completion::Pending => 2 << COMPLETION_SHIFT,
        }));
    });
    w.column(Col::Made, false, out, |v| v.extend(returns.iter().map(|entry| u64::from(entry.made.0))));
    w.column(Col::Thread, false, out, |v| v.extend(returns.iter().map(|entry| u64::from(entry.thread))));
    let mut threads: FxHashMap<u32, u64> = FxHashMap::default();
    w.column(Col::ThreadSeq, false, out, |v| {
        v.extend(returns.iter().map(|entry| {
            let next = threads.entry(entry.thread).or_default();
            delta(entry.thread_seq, std::mem::replace(next, entry.thread_seq.wrapping_add(1)))
        }));
    });
    let mut last = 0;
    w.column(Col::Exit, false, out, |v| {
        v.extend(returns.iter().map(|entry| delta(entry.exit, std::mem::replace(&mut last, entry.exit))));
    });
    w.column(Col::Completion, false, out, |v| {
        v.extend(returns.iter().filter_map(|entry| match entry.completion {
            Completion::At(time) => Some(delta(time, entry.exit)),
            _ => None,
        }));
    });
    w.column(Col::Result, false, out, |v| v.extend(returns.iter().map(|entry| zigzag(entry.result))));
}

/// The returns of a payload.
pub(crate) fn decode_returns(payload: &[u8], count: usize) -> Result<Vec<Return>, Malformed> {
    let mut columns = ColumnReader::new(payload)?;
    let mut threads: FxHashMap<u32, u64> = FxHashMap::default();
    let mut last = 0;
    let mut returns = Vec::with_capacity(count);
    for _ in 0..count {
        let shape = columns.next(Col::Shape)?;
        let made = CommRef(columns.next32(Col::Made)?);
        let thread = columns.next32(Col::Thread)?;
        let next = threads.entry(thread).or_default();
        let thread_seq = undelta(columns.next(Col::ThreadSeq)?, *next);
        *next = thread_seq.wrapping_add(1);
        let exit = undelta(columns.next(Col::Exit)?, last);
        last = exit;
        let completion = match (shape >> COMPLETION_SHIFT) & 3 {
            1 => Completion::At(undelta(columns.next(Col::Completion)?, exit)),
            2 => Completion::Pending,
            _ => Completion::Unknown,
        };
        let result = unzigzag(columns.next(Col::Result)?);
        returns.push(Return { thread, thread_seq, exit, result, made, completion });
    }
    columns.finish()?;
    Ok(returns)
}

#[cfg(test)]
mod tests {
    use super::{ColumnWriter, decode_calls, encode_calls};
    use crate::call::Call;
    use crate::op::{Op, OpKind};

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
        let (read, skipped) = decode_calls(&payload, calls.len()).expect("readable");
        assert_eq!(skipped, 3);
        let known: Vec<Call> = calls.into_iter().filter(|call| call.op == Op::AllReduce).collect();
        assert_eq!(read, known);
    }
}
