//! The frame of a block: fixed header, digest table, stored payload. What payloads hold is in `payload.rs`.
//!
//! Two checksums, so that digests are read without payloads: one over header and table, one over the stored payload,
//! itself inside the header.

use std::cell::RefCell;
use std::io;

use crate::digest::Digests;
use crate::limits;
use crate::wire::{Cursor, Malformed};

/// First bytes of every block.
pub const BLOCK_MAGIC: [u8; 4] = *b"RDb\n";
/// Bytes of the fixed header.
pub const BLOCK_HEADER: usize = 56;
/// Offset of the header's checksum, which covers what is before it and the digest table.
const HEAD_CRC_AT: usize = 52;

/// What a block holds. The numbers are part of the format; numbers that are not here are skipped by length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKind(pub u16);

impl BlockKind {
    /// Ranks.
    pub const RANKS: BlockKind = BlockKind(1);
    /// Communicators.
    pub const COMMS: BlockKind = BlockKind(2);
    /// Derived types.
    pub const TYPES: BlockKind = BlockKind(3);
    /// Call sites.
    pub const SITES: BlockKind = BlockKind(4);
    /// Argument labels.
    pub const LABELS: BlockKind = BlockKind(5);
    /// Calls.
    pub const CALLS: BlockKind = BlockKind(16);
    /// Returns of calls in earlier blocks.
    pub const RETURNS: BlockKind = BlockKind(17);
    /// Clock snapshots.
    pub const CLOCKS: BlockKind = BlockKind(18);
    /// Gaps.
    pub const GAPS: BlockKind = BlockKind(19);
    /// Process states.
    pub const STATES: BlockKind = BlockKind(20);
    /// Thread states.
    pub const THREADS: BlockKind = BlockKind(21);
    /// Log lines.
    pub const LOGS: BlockKind = BlockKind(22);
    /// Attributes.
    pub const ATTRIBUTES: BlockKind = BlockKind(23);
    /// Step marks.
    pub const STEPS: BlockKind = BlockKind(24);
    /// The last calls of each communicator, once more.
    pub const FRONTIER: BlockKind = BlockKind(25);
    /// End of a segment: nothing follows.
    pub const SEGMENT_END: BlockKind = BlockKind(32);
    /// Which rows of the live tail the next blocks hold.
    pub const TAIL_ROWS: BlockKind = BlockKind(48);

    /// Whether this build knows the kind.
    pub fn is_known(self) -> bool {
        matches!(self.0, 1..=5 | 16..=25 | 32 | 48)
    }

    /// Words for messages.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::RANKS => "rank definitions",
            BlockKind::COMMS => "communicator definitions",
            BlockKind::TYPES => "type definitions",
            BlockKind::SITES => "call sites",
            BlockKind::LABELS => "labels",
            BlockKind::CALLS => "calls",
            BlockKind::RETURNS => "returns",
            BlockKind::CLOCKS => "clock snapshots",
            BlockKind::GAPS => "gaps",
            BlockKind::STATES => "process states",
            BlockKind::THREADS => "thread states",
            BlockKind::LOGS => "log lines",
            BlockKind::ATTRIBUTES => "attributes",
            BlockKind::STEPS => "step marks",
            BlockKind::FRONTIER => "the frontier",
            BlockKind::SEGMENT_END => "the segment's end",
            BlockKind::TAIL_ROWS => "rows of the live tail",
            _ => "an unknown kind",
        }
    }
}

/// The payload is compressed with zstd.
pub(crate) const COMPRESSED: u16 = 1;
/// The payload was dropped by retention: header and digest table are all that is left.
pub(crate) const EXPIRED: u16 = 2;
/// Every record of the block stands in an earlier block of the recording, or could not be written there.
pub(crate) const REPEATED: u16 = 1 << 8;
/// Flags that a reader must know to read the payload: the low eight bits. The high eight may be ignored.
const ESSENTIAL: u16 = 0x00ff;

/// The fixed header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHeader {
    /// What it holds.
    pub kind: BlockKind,
    /// Bit 0: the payload is compressed. Bit 1: it was dropped. Bit 8: its records are repeated.
    pub flags: u16,
    /// Bytes of the payload as stored.
    pub stored: u32,
    /// Bytes of the payload after decompression.
    pub raw: u32,
    /// Records.
    pub count: u32,
    /// Bytes of the digest table.
    pub table: u32,
    /// Earliest time in it, ns; `u64::MAX` if its records have no times.
    pub first_time: u64,
    /// Latest time in it, ns; 0 if its records have no times.
    pub last_time: u64,
    /// Calls of the recording that were written before this block.
    pub calls_before: u64,
    /// CRC-32 of the stored payload.
    pub(crate) body_crc: u32,
}

impl BlockHeader {
    /// Header and table, checksums filled in.
    pub(crate) fn encode(&self, table: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&BLOCK_MAGIC);
        out.extend_from_slice(&self.kind.0.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        for value in [self.stored, self.raw, self.count, self.table] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.first_time, self.last_time, self.calls_before] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        let crc = head_crc(out.get(start..).unwrap_or(&[]), table);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(table);
    }

    /// Reads the fixed header and bounds its lengths. The checksum is [`BlockHeader::check`]'s, once the table is read.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER]) -> Result<BlockHeader, String> {
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Err("no block begins here".to_owned());
        }
        let header = BlockHeader::fields(bytes).map_err(|Malformed(what)| what.to_owned())?;
        for (what, value, limit) in [
            ("payload", header.stored, limits::MAX_STORED),
            ("decompressed payload", header.raw, limits::MAX_RAW),
            ("digest table", header.table, limits::MAX_TABLE),
            ("number of records", header.count, limits::MAX_RECORDS),
        ] {
            if value as usize > limit {
                return Err(format!("its {what} of {value} is over the limit of {limit}"));
            }
        }
        Ok(header)
    }

    fn fields(bytes: &[u8]) -> Result<BlockHeader, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let what = "a short block header";
        cursor.take(BLOCK_MAGIC.len(), what)?;
        Ok(BlockHeader {
            kind: BlockKind(cursor.u16(what)?),
            flags: cursor.u16(what)?,
            stored: cursor.u32(what)?,
            raw: cursor.u32(what)?,
            count: cursor.u32(what)?,
            table: cursor.u32(what)?,
            first_time: cursor.u64(what)?,
            last_time: cursor.u64(what)?,
            calls_before: cursor.u64(what)?,
            body_crc: cursor.u32(what)?,
        })
    }

    /// Whether header and table are as written.
    pub(crate) fn check(bytes: &[u8; BLOCK_HEADER], table: &[u8]) -> bool {
        let (covered, crc) = bytes.split_at(HEAD_CRC_AT);
        head_crc(covered, table).to_le_bytes() == crc
    }

    /// Whether its records stand in an earlier block, and are here once more so that the segment reads alone.
    pub fn is_repeated(&self) -> bool {
        self.flags & REPEATED != 0
    }

    /// Whether its payload was dropped by retention. How many records it held, their times and digests are still told.
    pub fn is_expired(&self) -> bool {
        self.flags & EXPIRED != 0
    }

    /// The same block without its payload.
    pub(crate) fn expired(&self) -> BlockHeader {
        let flags = (self.flags | EXPIRED) & !COMPRESSED;
        BlockHeader { flags, stored: 0, raw: 0, body_crc: crc32fast::hash(&[]), ..*self }
    }

    /// Whether the payload can be read by this build.
    pub(crate) fn is_readable(&self) -> bool {
        self.kind.is_known() && self.flags & ESSENTIAL & !(COMPRESSED | EXPIRED) == 0
    }
}

fn head_crc(covered: &[u8], table: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(covered);
    hasher.update(table);
    hasher.finalize()
}

/// Makes blocks out of payloads.
pub(crate) struct BlockSealer {
    compressor: zstd::bulk::Compressor<'static>,
    stored: Vec<u8>,
    table: Vec<u8>,
}

impl std::fmt::Debug for BlockSealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockSealer").finish_non_exhaustive()
    }
}

/// What a block's header says beside its lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockFacts {
    pub(crate) kind: BlockKind,
    pub(crate) count: u32,
    pub(crate) first_time: u64,
    pub(crate) last_time: u64,
    pub(crate) calls_before: u64,
    /// Its records stand in earlier blocks.
    pub(crate) repeated: bool,
}

impl BlockSealer {
    pub(crate) fn new(level: i32) -> io::Result<BlockSealer> {
        Ok(BlockSealer { compressor: zstd::bulk::Compressor::new(level)?, stored: Vec::new(), table: Vec::new() })
    }

    /// Appends a whole block. A payload that does not shrink is stored as it is.
    pub(crate) fn seal(&mut self, facts: BlockFacts, digests: &Digests, payload: &[u8], out: &mut Vec<u8>) {
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        let smaller = match self.compressor.compress_to_buffer(payload, &mut self.stored) {
            Ok(length) => length < payload.len(),
            Err(_) => false,
        };
        let (flags, stored) = if smaller { (COMPRESSED, self.stored.as_slice()) } else { (0, payload) };
        self.table.clear();
        digests.encode(&mut self.table);
        let header = BlockHeader {
            kind: facts.kind,
            flags: if facts.repeated { flags | REPEATED } else { flags },
            stored: stored.len() as u32,
            raw: payload.len() as u32,
            count: facts.count,
            table: self.table.len() as u32,
            first_time: facts.first_time,
            last_time: facts.last_time,
            calls_before: facts.calls_before,
            body_crc: crc32fast::hash(stored),
        };
        header.encode(&self.table, out);
        out.extend_from_slice(stored);
    }
}

thread_local! {
    /// Making one costs as much as a small block, and a job of many ranks has many small blocks.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompress(stored: &[u8], raw: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|held| {
        let decompressor = match held {
            Some(decompressor) => decompressor,
            None => held.insert(zstd::bulk::Decompressor::new()?),
        };
        decompressor.decompress(stored, raw)
    })
}

/// Decompresses a payload into exactly the length that the header promised.
pub(crate) fn unpack(header: &BlockHeader, stored: Vec<u8>) -> Result<Vec<u8>, Malformed> {
    if crc32fast::hash(&stored) != header.body_crc {
        return Err(Malformed("its payload's checksum is wrong"));
    }
    let raw = header.raw as usize;
    let payload = if header.flags & COMPRESSED == 0 {
        stored
    } else {
        decompress(&stored, raw).map_err(|_| Malformed("its payload does not decompress"))?
    };
    if payload.len() == raw { Ok(payload) } else { Err(Malformed("its payload is shorter than its header says")) }
}
