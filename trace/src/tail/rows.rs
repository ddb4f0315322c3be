//! Records as the bytes that rows carry, and back. docs/format.md, 'Live tail', is normative.
//!
//! Calls and returns have fields of fixed width, since they are written at the rate of the job; everything else has the
//! payload of a block that holds one record.

use super::layout::{ROW, ROW_HEAD};
use crate::block::BlockKind;
use crate::call::{Call, CallFlags, Completion, Return, SiteRef};
use crate::comm::CommRef;
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::digest::ChainPoint;
use crate::limits;
use crate::op::Op;
use crate::payload::{Decoded, Row, decode as decode_payload};
use crate::rows::RowWriter;
use crate::stream::Record;
use crate::wire::{Cursor, Malformed, put_varint};

/// The chain of a communicator behind a call (docs/format.md, 'Digests').
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RowChain {
    /// The communicator, as the stream numbers it.
    pub comm: CommRef,
    /// First sequence number in the running hash.
    pub base: u64,
    /// First sequence number that is not in it.
    pub upto: u64,
    /// Running hash over the calls `base..upto`.
    pub running: u64,
}

// Bits of a call's shape. The low sixteen are those of the column `shape`.
const HAS_SEQ: u32 = 1;
const HAS_COUNT: u32 = 1 << 1;
const HAS_ROOT: u32 = 1 << 2;
const HAS_PEER: u32 = 1 << 3;
const HAS_TAG: u32 = 1 << 4;
const HAS_EXIT: u32 = 1 << 5;
const HAS_RESULT: u32 = 1 << 6;
const HAS_RANK: u32 = 1 << 7;
const HAS_SENDS: u32 = 1 << 8;
const HAS_RECVS: u32 = 1 << 9;
const COMPLETION_SHIFT: u32 = 10;
const DTYPE_SHIFT: u32 = 12;
const REDOP_SHIFT: u32 = 14;
const HAS_MADE: u32 = 1 << 16;
const HAS_STREAM: u32 = 1 << 17;
const HAS_GROUP: u32 = 1 << 18;
const HAS_SITE: u32 = 1 << 19;
const HAS_LABEL: u32 = 1 << 20;
const SUCCESS: u32 = 1 << 21;
const HAS_CHAIN: u32 = 1 << 22;

/// Most bytes of a call without its vectors (and below `sizes::PLAIN`, which is a bound for all of it).
const CALL_FIXED: usize = 208;
/// A number of this size and more stands for a basic type or reduction of a newer writer, as a raw handle.
const UNKNOWN_CODE: u64 = 1 << 32;

/// A call without its vectors, with room for a row's head in front.
pub(crate) struct Fields {
    bytes: [u8; ROW_HEAD + CALL_FIXED],
    at: usize,
}

impl Fields {
    #[inline]
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        self.put_if(true, value);
    }

    /// Absent values are written and passed over: which ones are differs from call to call, and a branch would be a guess.
    #[inline]
    fn put_if<const N: usize>(&mut self, present: bool, value: [u8; N]) {
        if let Some(to) = self.bytes.get_mut(self.at..self.at + N) {
            to.copy_from_slice(&value);
            self.at += N * usize::from(present);
        }
    }

    /// The fields.
    pub(crate) fn body(&self) -> &[u8] {
        self.bytes.get(ROW_HEAD..self.at).unwrap_or(&[])
    }

    /// The only row, if one is enough.
    #[inline]
    pub(crate) fn as_row(&mut self) -> Option<&mut [u8; ROW]> {
        if self.at <= ROW { self.bytes.first_chunk_mut::<ROW>() } else { None }
    }
}

/// The bytes of a call, but for its vectors.
#[inline]
pub(crate) fn encode_fields(call: &Call, chain: Option<&ChainPoint>) -> Fields {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let (completion, completed) = match call.completion {
        Completion::Unknown => (0, None),
        Completion::At(time) => (1, Some(time)),
        Completion::Pending => (2, None),
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
    let failed = call.result.filter(|&result| result != 0);
    let shape = bit(call.seq.is_some(), HAS_SEQ)
        | bit(call.count.is_some(), HAS_COUNT)
        | bit(call.root.is_some(), HAS_ROOT)
        | bit(call.peer.is_some(), HAS_PEER)
        | bit(call.tag.is_some(), HAS_TAG)
        | bit(call.exit.is_some(), HAS_EXIT)
        | bit(call.result.is_some(), HAS_RESULT)
        | bit(call.rank.is_some(), HAS_RANK)
        | bit(!call.sends.is_empty(), HAS_SENDS)
        | bit(!call.recvs.is_empty(), HAS_RECVS)
        | (completion << COMPLETION_SHIFT)
        | (dtype << DTYPE_SHIFT)
        | (redop << REDOP_SHIFT)
        | bit(call.made != CommRef::NONE, HAS_MADE)
        | bit(call.stream != 0, HAS_STREAM)
        | bit(call.group != 0, HAS_GROUP)
        | bit(call.site != SiteRef::default(), HAS_SITE)
        | bit(call.label != 0, HAS_LABEL)
        | bit(call.result == Some(0), SUCCESS)
        | bit(chain.is_some(), HAS_CHAIN);
    let mut fields = Fields { bytes: [0; ROW_HEAD + CALL_FIXED], at: ROW_HEAD };
    fields.put(shape.to_le_bytes());
    fields.put(call.flags.0.to_le_bytes());
    fields.put(call.op.code().to_le_bytes());
    fields.put(call.comm.0.to_le_bytes());
    fields.put(call.thread.to_le_bytes());
    fields.put(call.thread_seq.to_le_bytes());
    fields.put(call.enter.to_le_bytes());
    fields.put_if(call.seq.is_some(), call.seq.unwrap_or(0).to_le_bytes());
    fields.put_if(call.count.is_some(), call.count.unwrap_or(0).to_le_bytes());
    match call.dtype {
        DType::None => {}
        DType::Basic(basic) => fields.put([basic.code()]),
        DType::Derived(id) => fields.put(id.to_le_bytes()),
        DType::Raw(handle) => fields.put(handle.to_le_bytes()),
    }
    match call.redop {
        RedOp::None | RedOp::Dynamic => {}
        RedOp::Predefined(reduction) => fields.put([reduction.code()]),
        RedOp::Raw(handle) => fields.put(handle.to_le_bytes()),
    }
    fields.put_if(call.root.is_some(), call.root.unwrap_or(0).to_le_bytes());
    fields.put_if(call.peer.is_some(), call.peer.unwrap_or(0).to_le_bytes());
    fields.put_if(call.tag.is_some(), call.tag.unwrap_or(0).to_le_bytes());
    fields.put_if(call.exit.is_some(), call.exit.unwrap_or(0).to_le_bytes());
    fields.put_if(completed.is_some(), completed.unwrap_or(0).to_le_bytes());
    fields.put_if(failed.is_some(), failed.unwrap_or(0).to_le_bytes());
    fields.put_if(call.rank.is_some(), call.rank.unwrap_or(0).to_le_bytes());
    fields.put_if(call.made != CommRef::NONE, call.made.0.to_le_bytes());
    fields.put_if(call.stream != 0, call.stream.to_le_bytes());
    fields.put_if(call.group != 0, call.group.to_le_bytes());
    fields.put_if(call.site != SiteRef::default(), call.site.0.to_le_bytes());
    fields.put_if(call.label != 0, call.label.to_le_bytes());
    if let Some(chain) = chain {
        fields.put(chain.base.to_le_bytes());
        fields.put(chain.running.to_le_bytes());
    }
    fields
}

/// Replaces `out` by the bytes of a call whose fields these are.
pub(crate) fn put_call(call: &Call, fields: &Fields, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(fields.body());
    for vector in [&call.sends, &call.recvs] {
        if !vector.is_empty() {
            put_varint(out, vector.len() as u64);
            for &value in vector {
                put_varint(out, value);
            }
        }
    }
}

/// Replaces `out` by the bytes of a return.
pub(crate) fn encode_return(entry: &Return, out: &mut Vec<u8>) {
    let (completion, time) = match entry.completion {
        Completion::Unknown => (0, 0),
        Completion::At(time) => (1, time),
        Completion::Pending => (2, 0),
    };
    out.clear();
    out.extend_from_slice(&entry.thread.to_le_bytes());
    out.extend_from_slice(&entry.made.0.to_le_bytes());
    out.extend_from_slice(&entry.thread_seq.to_le_bytes());
    out.extend_from_slice(&entry.exit.to_le_bytes());
    out.extend_from_slice(&entry.result.to_le_bytes());
    out.extend_from_slice(&u64::to_le_bytes(completion));
    out.extend_from_slice(&time.to_le_bytes());
}

/// Replaces `out` by the bytes of a record that is no call and gives its kind.
pub(crate) fn encode_other(record: &Record, rows: &mut RowWriter, out: &mut Vec<u8>) -> BlockKind {
    fn put<T: Row>(record: &T, rows: &mut RowWriter, kind: BlockKind) -> BlockKind {
        record.put(rows);
        kind
    }
    let kind = match record {
        Record::Rank(def) => put(def, rows, BlockKind::RANKS),
        Record::Comm(def) => put(def, rows, BlockKind::COMMS),
        Record::Type(def) => put(def, rows, BlockKind::TYPES),
        Record::Site(def) => put(def, rows, BlockKind::SITES),
        Record::Label(id, text) => put(&(*id, text.clone()), rows, BlockKind::LABELS),
        Record::Clock(clock) => put(clock, rows, BlockKind::CLOCKS),
        Record::Gap(gap) => put(gap, rows, BlockKind::GAPS),
        Record::State(state) => put(state, rows, BlockKind::STATES),
        Record::Thread(state) => put(state, rows, BlockKind::THREADS),
        Record::Log(line) => put(line, rows, BlockKind::LOGS),
        Record::Attribute(attribute) => put(attribute, rows, BlockKind::ATTRIBUTES),
        Record::Step(step) => put(step, rows, BlockKind::STEPS),
        Record::Return(entry) => {
            encode_return(entry, out);
            return BlockKind::RETURNS;
        }
        Record::Call(call) => {
            put_call(call, &encode_fields(call, None), out);
            return BlockKind::CALLS;
        }
    };
    rows.end();
    out.clear();
    rows.finish(out);
    kind
}

/// A record that was read from rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A record, and for a call the chain behind it.
    Record(Box<Record>, Option<RowChain>),
    /// A kind or operation that this build does not know.
    Newer,
}

/// Decodes the bytes of a record. Also gives how many values were read as a default because a newer writer wrote them.
pub(crate) fn decode(kind: u8, bytes: &[u8]) -> Result<(Parsed, u64), Malformed> {
    let kind = BlockKind(u16::from(kind));
    let plain = |record| Parsed::Record(Box::new(record), None);
    match kind {
        BlockKind::CALLS => decode_call(bytes),
        BlockKind::RETURNS => decode_return(bytes).map(|entry| (plain(Record::Return(entry)), 0)),
        _ => {
            let (decoded, newer) = decode_payload(kind, 1, bytes)?;
            Ok(match into_records(decoded).pop() {
                Some(record) => (plain(record), newer),
                None => (Parsed::Newer, newer + 1),
            })
        }
    }
}

/// The records of a block.
pub(crate) fn into_records(decoded: Decoded) -> Vec<Record> {
    fn all<T>(records: Vec<T>, wrap: fn(T) -> Record) -> Vec<Record> {
        records.into_iter().map(wrap).collect()
    }
    match decoded {
        Decoded::Ranks(defs) => all(defs, Record::Rank),
        Decoded::Comms(defs) => all(defs, Record::Comm),
        Decoded::Types(defs) => all(defs, Record::Type),
        Decoded::Sites(defs) => all(defs, Record::Site),
        Decoded::Labels(defs) => all(defs, |(id, text)| Record::Label(id, text)),
        Decoded::Calls(calls) => all(calls, Record::Call),
        Decoded::Returns(returns) => all(returns, Record::Return),
        Decoded::Clocks(clocks) => all(clocks, Record::Clock),
        Decoded::Gaps(gaps) => all(gaps, Record::Gap),
        Decoded::States(states) => all(states, Record::State),
        Decoded::Threads(states) => all(states, Record::Thread),
        Decoded::Logs(lines) => all(lines, Record::Log),
        Decoded::Attributes(attributes) => all(attributes, Record::Attribute),
        Decoded::Steps(steps) => all(steps, Record::Step),
        _ => Vec::new(),
    }
}

fn decode_call(bytes: &[u8]) -> Result<(Parsed, u64), Malformed> {
    const CUT: &str = "a call that ends too early";
    let mut cursor = Cursor::new(bytes);
    let mut newer = 0;
    let shape = cursor.u32(CUT)?;
    let has = |bit: u32| shape & bit != 0;
    let flags = CallFlags(cursor.u32(CUT)?);
    let op = Op::from_code(cursor.u16(CUT)?);
    let mut call = Call {
        flags,
        comm: CommRef(cursor.u32(CUT)?),
        thread: cursor.u32(CUT)?,
        thread_seq: cursor.u64(CUT)?,
        enter: cursor.u64(CUT)?,
        ..Call::default()
    };
    if has(HAS_SEQ) {
        call.seq = Some(cursor.u64(CUT)?);
    }
    if has(HAS_COUNT) {
        call.count = Some(cursor.u64(CUT)?);
    }
    call.dtype = match shape >> DTYPE_SHIFT & 3 {
        0 => DType::None,
        1 => {
            let code = cursor.u8(CUT)?;
            newer += u64::from(Basic::from_code(code).is_none());
            Basic::from_code(code).map_or(DType::Raw(UNKNOWN_CODE | u64::from(code)), DType::Basic)
        }
        2 => DType::Derived(cursor.u32(CUT)?),
        _ => DType::Raw(cursor.u64(CUT)?),
    };
    call.redop = match shape >> REDOP_SHIFT & 3 {
        0 => RedOp::None,
        1 => {
            let code = cursor.u8(CUT)?;
            newer += u64::from(Reduction::from_code(code).is_none());
            Reduction::from_code(code).map_or(RedOp::Raw(UNKNOWN_CODE | u64::from(code)), RedOp::Predefined)
        }
        2 => RedOp::Dynamic,
        _ => RedOp::Raw(cursor.u64(CUT)?),
    };
    if has(HAS_ROOT) {
        call.root = Some(cursor.u32(CUT)?);
    }
    if has(HAS_PEER) {
        call.peer = Some(cursor.u32(CUT)?);
    }
    if has(HAS_TAG) {
        call.tag = Some(cursor.u64(CUT)? as i64);
    }
    if has(HAS_EXIT) {
        call.exit = Some(cursor.u64(CUT)?);
    }
    call.completion = match shape >> COMPLETION_SHIFT & 3 {
        1 => Completion::At(cursor.u64(CUT)?),
        2 => Completion::Pending,
        _ => Completion::Unknown,
    };
    if has(SUCCESS) {
        call.result = Some(0);
    } else if has(HAS_RESULT) {
        call.result = Some(cursor.u64(CUT)? as i64);
    }
    if has(HAS_RANK) {
        call.rank = Some(cursor.u32(CUT)?);
    }
    if has(HAS_MADE) {
        call.made = CommRef(cursor.u32(CUT)?);
    }
    if has(HAS_STREAM) {
        call.stream = cursor.u64(CUT)?;
    }
    if has(HAS_GROUP) {
        call.group = cursor.u32(CUT)?;
    }
    if has(HAS_SITE) {
        call.site = SiteRef(cursor.u32(CUT)?);
    }
    if has(HAS_LABEL) {
        call.label = cursor.u32(CUT)?;
    }
    let mut chain = None;
    if has(HAS_CHAIN) {
        let (base, running) = (cursor.u64(CUT)?, cursor.u64(CUT)?);
        // Behind a call with a number its chain always ends with it; a call without one restarts it.
        let upto = call.seq.map_or(base, |seq| seq.wrapping_add(1));
        chain = Some(RowChain { comm: call.comm, base, upto, running });
    }
    for (bit, vector) in [(HAS_SENDS, &mut call.sends), (HAS_RECVS, &mut call.recvs)] {
        if has(bit) {
            let length = cursor.length(limits::MAX_VECTOR, "a vector longer than its call")?;
            vector.reserve_exact(length);
            for _ in 0..length {
                vector.push(cursor.varint("a vector that ends too early")?);
            }
        }
    }
    let Some(op) = op else { return Ok((Parsed::Newer, newer + 1)) };
    call.op = op;
    // What a newer writer put behind is skipped.
    Ok((Parsed::Record(Box::new(Record::Call(call)), chain), newer))
}

fn decode_return(bytes: &[u8]) -> Result<Return, Malformed> {
    const CUT: &str = "a return that ends too early";
    let mut cursor = Cursor::new(bytes);
    let (thread, made) = (cursor.u32(CUT)?, CommRef(cursor.u32(CUT)?));
    let (thread_seq, exit) = (cursor.u64(CUT)?, cursor.u64(CUT)?);
    let result = cursor.u64(CUT)? as i64;
    let completion = match (cursor.u64(CUT)?, cursor.u64(CUT)?) {
        (1, time) => Completion::At(time),
        (2, _) => Completion::Pending,
        _ => Completion::Unknown,
    };
    Ok(Return { thread, thread_seq, exit, result, made, completion })
}
