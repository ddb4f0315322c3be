//! Columns to calls and returns.

use rustc_hash::FxHashMap;

use super::{
    CHUNK, COLUMNS, COMPLETION, COMPLETION_AT, COMPLETION_PENDING, Col, DTYPE, DTYPE_SHIFT, Foresight, HAS_COUNT,
    HAS_EXIT, HAS_PEER, HAS_RANK, HAS_RECVS, HAS_RESULT, HAS_ROOT, HAS_SENDS, HAS_SEQ, HAS_TAG, MODE_ONE, MODE_VARINTS,
    REDOP, REDOP_DYNAMIC, REDOP_SHIFT,
};
use crate::call::{Call, CallFlags, Completion, Return, SiteRef};
use crate::comm::CommRef;
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::limits;
use crate::op::Op;
use crate::wire::{Cursor, Malformed, undelta, unzigzag};

/// A number of this size and more stands for a basic type or reduction of a newer writer, as a raw handle.
const UNKNOWN_CODE: u64 = 1 << 32;

const SHORT: &str = "a column is shorter than its block's count";

/// Where a column's values come from.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    One(u64),
    Varints(Cursor<'a>),
}

impl Source<'_> {
    /// A length and as many values. Never more than the column has bytes.
    fn vector(&mut self) -> Result<Vec<u64>, Malformed> {
        let Source::Varints(cursor) = self else { return Err(Malformed("a vector column is missing")) };
        let length = cursor.length(limits::MAX_VECTOR, "a vector is longer than its column")?;
        let mut vector = Vec::with_capacity(length);
        for _ in 0..length {
            vector.push(cursor.varint("a vector's element")?);
        }
        Ok(vector)
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
    fn column(&mut self, col: Col) -> &mut Source<'a> {
        &mut self.columns[col as usize]
    }

    /// Hands out the values of a column, one for each item.
    #[inline]
    fn values<T>(
        &mut self,
        col: Col,
        items: impl Iterator<Item = T>,
        mut put: impl FnMut(T, u64) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        // A copy, so that it stays in registers.
        let mut source = *self.column(col);
        match &mut source {
            Source::One(value) => {
                for item in items {
                    put(item, *value)?;
                }
            }
            Source::Varints(cursor) => {
                for item in items {
                    put(item, cursor.varint(SHORT)?)?;
                }
            }
        }
        *self.column(col) = source;
        Ok(())
    }

    /// The same for a field that is zero in the calls as they are: a column of zeroes has nothing to add.
    #[inline]
    fn fields(
        &mut self,
        col: Col,
        calls: &mut [Call],
        put: impl FnMut(&mut Call, u64) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        match self.column(col) {
            Source::One(0) => Ok(()),
            _ => self.values(col, calls.iter_mut(), put),
        }
    }

    /// Nothing may be left: a column longer than the count is as wrong as a shorter one.
    fn finish(&self) -> Result<(), Malformed> {
        let left = self.columns.iter().any(|column| matches!(column, Source::Varints(cursor) if !cursor.is_empty()));
        if left { Err(Malformed("a column is longer than its block's count")) } else { Ok(()) }
    }
}

fn narrow(value: u64) -> Result<u32, Malformed> {
    u32::try_from(value).map_err(|_| Malformed("a column holds a number over 32 bits"))
}

/// What the calls of a chunk say of themselves before their fields are read.
struct Shapes {
    shapes: [u64; CHUNK],
    codes: [u16; CHUNK],
    /// Bits that some call has.
    any: u64,
}

impl Shapes {
    fn read(columns: &mut ColumnReader<'_>, calls: usize) -> Result<Shapes, Malformed> {
        let mut read = Shapes { shapes: [0; CHUNK], codes: [0; CHUNK], any: 0 };
        columns.values(Col::Shape, read.shapes.iter_mut().take(calls), |shape, value| {
            *shape = value;
            read.any |= value;
            Ok(())
        })?;
        columns.values(Col::Op, read.codes.iter_mut().take(calls), |code, value| {
            *code = u16::try_from(value).map_err(|_| Malformed("an operation's code is over 16 bits"))?;
            Ok(())
        })?;
        Ok(read)
    }

    /// The calls with any of these bits, and their shapes.
    #[inline]
    fn with<'c>(&'c self, bits: u64, calls: &'c mut [Call]) -> impl Iterator<Item = (&'c mut Call, u64)> {
        // Where none has them, none is looked at.
        let looked_at = if self.any & bits == 0 { 0 } else { calls.len() };
        calls.iter_mut().take(looked_at).zip(self.shapes).filter(move |(_, shape)| shape & bits != 0)
    }
}

/// Appends the calls of a payload. Gives how many were left out because this build does not know their operation.
/// After an error, nothing was appended.
pub(crate) fn decode_calls(payload: &[u8], count: usize, into: &mut Vec<Call>) -> Result<u64, Malformed> {
    let begin = into.len();
    let result = append_calls(payload, count, into);
    if result.is_err() {
        into.truncate(begin);
    }
    result
}

fn append_calls(payload: &[u8], count: usize, into: &mut Vec<Call>) -> Result<u64, Malformed> {
    let begin = into.len();
    let mut columns = ColumnReader::new(payload)?;
    let mut ahead = Foresight::default();
    // `count` is bounded by the block header; a block of equal calls takes few bytes, so the payload bounds nothing.
    into.reserve(count);
    let mut unknown: Vec<usize> = Vec::new();
    let mut done = 0;
    while done < count {
        let length = CHUNK.min(count - done);
        into.resize_with(begin + done + length, Call::default);
        let chunk = into.get_mut(begin + done..).unwrap_or_default();
        let shapes = Shapes::read(&mut columns, length)?;
        decode_chunk(&mut columns, &shapes, &mut ahead, chunk)?;
        for (place, (call, &code)) in (done..).zip(chunk.iter_mut().zip(&shapes.codes)) {
            match Op::from_code(code) {
                Some(op) => call.op = op,
                None => unknown.push(place),
            }
        }
        done += length;
    }
    columns.finish()?;
    if !unknown.is_empty() {
        let known = into.split_off(begin).into_iter().enumerate();
        into.extend(known.filter(|(place, _)| unknown.binary_search(place).is_err()).map(|(_, call)| call));
    }
    Ok(unknown.len() as u64)
}

fn decode_chunk(
    columns: &mut ColumnReader<'_>,
    shapes: &Shapes,
    ahead: &mut Foresight,
    calls: &mut [Call],
) -> Result<(), Malformed> {
    columns.fields(Col::Comm, calls, |call, value| narrow(value).map(|comm| call.comm = CommRef(comm)))?;
    columns.fields(Col::Made, calls, |call, value| narrow(value).map(|comm| call.made = CommRef(comm)))?;
    columns.fields(Col::Flags, calls, |call, value| narrow(value).map(|flags| call.flags = CallFlags(flags)))?;
    columns.values(Col::Count, shapes.with(HAS_COUNT, calls), |(call, _), value| {
        call.count = Some(value);
        Ok(())
    })?;
    columns.values(Col::DType, shapes.with(DTYPE, calls), |(call, shape), value| {
        call.dtype = dtype((shape & DTYPE) >> DTYPE_SHIFT, value)?;
        Ok(())
    })?;
    for (call, shape) in shapes.with(REDOP, calls) {
        if shape & REDOP == REDOP_DYNAMIC {
            call.redop = RedOp::Dynamic;
        }
    }
    let given = shapes.with(REDOP, calls).filter(|(_, shape)| shape & REDOP != REDOP_DYNAMIC);
    columns.values(Col::RedOp, given, |(call, shape), value| {
        call.redop = redop((shape & REDOP) >> REDOP_SHIFT, value);
        Ok(())
    })?;
    columns.values(Col::Root, shapes.with(HAS_ROOT, calls), |(call, _), value| {
        call.root = Some(narrow(value)?);
        Ok(())
    })?;
    columns.values(Col::Peer, shapes.with(HAS_PEER, calls), |(call, _), value| {
        call.peer = Some(narrow(value)?);
        Ok(())
    })?;
    columns.values(Col::Tag, shapes.with(HAS_TAG, calls), |(call, _), value| {
        call.tag = Some(unzigzag(value));
        Ok(())
    })?;
    for (call, shape) in shapes.with(HAS_SENDS | HAS_RECVS, calls) {
        if shape & HAS_SENDS != 0 {
            call.sends = columns.column(Col::Vectors).vector()?;
        }
        if shape & HAS_RECVS != 0 {
            call.recvs = columns.column(Col::Vectors).vector()?;
        }
    }
    columns.fields(Col::Thread, calls, |call, value| narrow(value).map(|thread| call.thread = thread))?;
    columns.values(Col::ThreadSeq, calls.iter_mut(), |call, value| {
        let thread = ahead.thread(call.thread);
        call.thread_seq = undelta(value, thread.seq);
        thread.seq = call.thread_seq.wrapping_add(1);
        Ok(())
    })?;
    columns.fields(Col::Group, calls, |call, value| {
        if value != 0 {
            let thread = ahead.thread(call.thread);
            let group = undelta(value - 1, u64::from(thread.group));
            thread.group = u32::try_from(group).map_err(|_| Malformed("a group's number is over 32 bits"))?;
            call.group = thread.group;
        }
        Ok(())
    })?;
    let numbered = calls.iter_mut().zip(shapes.shapes.iter().zip(&shapes.codes));
    columns.values(
        Col::Seq,
        numbered.filter(|(_, (shape, _))| **shape & HAS_SEQ != 0),
        |(call, (_, &code)), value| {
            let next = ahead.seq(code, call.comm, call.peer, call.tag);
            let seq = undelta(value, *next);
            *next = seq.wrapping_add(1);
            call.seq = Some(seq);
            Ok(())
        },
    )?;
    columns.fields(Col::Stream, calls, |call, value| {
        ahead.stream = undelta(value, ahead.stream);
        call.stream = ahead.stream;
        Ok(())
    })?;
    columns.fields(Col::Enter, calls, |call, value| {
        ahead.enter = undelta(value, ahead.enter);
        call.enter = ahead.enter;
        Ok(())
    })?;
    columns.values(Col::Exit, shapes.with(HAS_EXIT, calls), |(call, _), value| {
        call.exit = Some(undelta(value, call.enter));
        Ok(())
    })?;
    for (call, shape) in shapes.with(COMPLETION, calls) {
        if shape & COMPLETION == COMPLETION_PENDING {
            call.completion = Completion::Pending;
        }
    }
    let complete = shapes.with(COMPLETION, calls).filter(|(_, shape)| shape & COMPLETION == COMPLETION_AT);
    columns.values(Col::Completion, complete, |(call, _), value| {
        call.completion = Completion::At(undelta(value, call.exit.unwrap_or(call.enter)));
        Ok(())
    })?;
    columns.values(Col::Result, shapes.with(HAS_RESULT, calls), |(call, _), value| {
        call.result = Some(unzigzag(value));
        Ok(())
    })?;
    columns.fields(Col::Site, calls, |call, value| narrow(value).map(|site| call.site = SiteRef(site)))?;
    columns.fields(Col::Label, calls, |call, value| narrow(value).map(|label| call.label = label))?;
    columns.values(Col::Rank, shapes.with(HAS_RANK, calls), |(call, _), value| {
        call.rank = Some(narrow(value)?);
        Ok(())
    })
}

fn dtype(kind: u64, value: u64) -> Result<DType, Malformed> {
    Ok(match kind {
        1 => {
            let basic = u8::try_from(value).ok().and_then(Basic::from_code);
            basic.map_or(DType::Raw(value | UNKNOWN_CODE), DType::Basic)
        }
        2 => DType::Derived(narrow(value)?),
        _ => DType::Raw(value),
    })
}

fn redop(kind: u64, value: u64) -> RedOp {
    if kind != 1 {
        return RedOp::Raw(value);
    }
    let reduction = u8::try_from(value).ok().and_then(Reduction::from_code);
    reduction.map_or(RedOp::Raw(value | UNKNOWN_CODE), RedOp::Predefined)
}

/// The returns of a payload.
pub(crate) fn decode_returns(payload: &[u8], count: usize) -> Result<Vec<Return>, Malformed> {
    let mut columns = ColumnReader::new(payload)?;
    let mut returns = vec![Return::default(); count];
    columns
        .values(Col::Made, returns.iter_mut(), |entry, value| narrow(value).map(|comm| entry.made = CommRef(comm)))?;
    columns
        .values(Col::Thread, returns.iter_mut(), |entry, value| narrow(value).map(|thread| entry.thread = thread))?;
    let mut threads: FxHashMap<u32, u64> = FxHashMap::default();
    columns.values(Col::ThreadSeq, returns.iter_mut(), |entry, value| {
        let next = threads.entry(entry.thread).or_default();
        entry.thread_seq = undelta(value, *next);
        *next = entry.thread_seq.wrapping_add(1);
        Ok(())
    })?;
    let mut last = 0;
    columns.values(Col::Exit, returns.iter_mut(), |entry, value| {
        entry.exit = undelta(value, last);
        last = entry.exit;
        Ok(())
    })?;
    columns.values(Col::Result, returns.iter_mut(), |entry, value| {
        entry.result = unzigzag(value);
        Ok(())
    })?;
    columns.values(Col::Shape, returns.iter_mut(), |entry, shape| {
        entry.completion = match shape & COMPLETION {
            // The time follows.
            COMPLETION_AT => Completion::At(0),
            COMPLETION_PENDING => Completion::Pending,
            _ => Completion::Unknown,
        };
        Ok(())
    })?;
    let complete = returns.iter_mut().filter_map(|entry| match &mut entry.completion {
        Completion::At(time) => Some((time, entry.exit)),
        Completion::Unknown | Completion::Pending => None,
    });
    columns.values(Col::Completion, complete, |(time, exit), value| {
        *time = undelta(value, exit);
        Ok(())
    })?;
    columns.finish()?;
    Ok(returns)
}
