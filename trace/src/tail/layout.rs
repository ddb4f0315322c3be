//! The bytes of a tail: header page, counters, rows. docs/format.md, 'Live tail', is normative.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::owner::WriterIdentity;
use super::reader::{TailHeader, TailState};
use crate::block::BlockKind;
use crate::error::ReadError;
use crate::header::{FORMAT_MAJOR, FORMAT_MINOR, clip};
use crate::stream::ProcessKey;
use crate::wire::{Cursor, Malformed};

/// First bytes of every tail.
pub(crate) const MAGIC: [u8; 8] = *b"\x89RDL\r\n\x1a\n";
/// Bytes before the first row.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a row.
pub(crate) const ROW: usize = 128;
/// Bytes of a row before its part of a record.
pub(crate) const ROW_HEAD: usize = 24;
/// Bytes of a record that a row holds.
pub(crate) const ROW_BODY: usize = ROW - ROW_HEAD;
/// Fewest and most rows of a ring.
pub(crate) const RING: (u32, u32) = (16, 1 << 24);
/// Most rows that one record takes: the number of a part has 16 bits.
pub(crate) const MAX_PARTS: usize = 1 << 16;

/// Where the header's own part ends; the counters follow.
const HEADER_LIMIT: usize = 2048;
/// Longest host name and job id.
const MAX_NAME: usize = 900;
/// Rows that are whole.
pub(crate) const COMMITTED_AT: usize = 2048;
/// Rows that no longer belong to the tail.
pub(crate) const SEALED_AT: usize = 2056;
/// What the writer is about.
pub(crate) const STATE_AT: usize = 2064;
/// How many seal records were written.
pub(crate) const SEALS_AT: usize = 2072;
/// The two places of seal records.
pub(crate) const SLOT_AT: [usize; 2] = [2112, 2144];
/// Bytes of a seal record.
pub(crate) const SLOT: usize = 32;

/// The recording is over; the stream has its end block. 0: the writer is at work, or was killed.
pub(crate) const STATE_CLOSED: u64 = 1;
/// The writer ended without an end block.
pub(crate) const STATE_LEFT: u64 = 2;

/// The return was put into its call, which waits for its block: no block of returns will hold it.
pub(crate) const ROW_JOINED: u8 = 1;
/// Kind of a row whose record is too large for the ring: only a block holds it.
pub(crate) const KIND_ELSEWHERE: BlockKind = BlockKind(0);

/// Where the segments stood when rows were sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seal {
    /// Rows below this are in blocks (or could not be written).
    pub rows: u64,
    /// The segment's ordinal.
    pub ordinal: u32,
    /// Its length then, bytes.
    pub length: u64,
}

impl Seal {
    pub(crate) fn encode(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        out[..8].copy_from_slice(&self.rows.to_le_bytes());
        out[8..16].copy_from_slice(&self.length.to_le_bytes());
        out[16..20].copy_from_slice(&self.ordinal.to_le_bytes());
        let check = xxh3_64(&out[..24]);
        out[24..].copy_from_slice(&check.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Seal> {
        let (covered, check) = bytes.split_last_chunk::<8>()?;
        let mut cursor = Cursor::new(covered);
        let (rows, length) = (cursor.u64("").ok()?, cursor.u64("").ok()?);
        let ordinal = cursor.u32("").ok()?;
        (xxh3_64(covered) == u64::from_le_bytes(*check)).then_some(Seal { rows, ordinal, length })
    }
}

/// The header page of a new tail, its counters zero.
pub(crate) fn encode_page(header: &TailHeader) -> [u8; PAGE] {
    let mut out = Vec::with_capacity(PAGE);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_MAJOR.to_le_bytes());
    out.extend_from_slice(&FORMAT_MINOR.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(ROW as u32).to_le_bytes());
    out.extend_from_slice(&header.key.pid.to_le_bytes());
    out.extend_from_slice(&header.key.start_time.to_le_bytes());
    out.extend_from_slice(&header.session.to_le_bytes());
    out.extend_from_slice(&header.rows.to_le_bytes());
    out.extend_from_slice(&header.writer.pid.to_le_bytes());
    out.extend_from_slice(&header.writer.start_time.to_le_bytes());
    out.extend_from_slice(&header.writer.pid_namespace.to_le_bytes());
    out.extend_from_slice(&header.writer.boot_id);
    for name in [&header.key.host, &header.job_id] {
        let name = clip(name, MAX_NAME);
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    let length = (out.len() + 4) as u32;
    out[12..16].copy_from_slice(&length.to_le_bytes());
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    let mut page = [0; PAGE];
    page[..out.len()].copy_from_slice(&out);
    page
}

/// Reads the part of a header page that never changes. `page` may be shorter where the file is.
pub(crate) fn decode_page(path: &Path, page: &[u8]) -> Result<TailHeader, ReadError> {
    if page.iter().all(|&byte| byte == 0) {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    let damaged = |what: &str| ReadError::Header { path: path.to_owned(), what: what.to_owned() };
    if !page.starts_with(&MAGIC) {
        return Err(damaged("it does not begin as a live tail"));
    }
    let cut = |_: Malformed| damaged("its header is cut off");
    let mut cursor = Cursor::new(page.get(MAGIC.len()..).unwrap_or(&[]));
    let (major, minor) = (cursor.u16("").map_err(cut)?, cursor.u16("").map_err(cut)?);
    if major != FORMAT_MAJOR {
        return Err(ReadError::Version {
            path: path.to_owned(),
            found_major: major,
            found_minor: minor,
            known_major: FORMAT_MAJOR,
        });
    }
    let length = cursor.u32("").map_err(cut)? as usize;
    let covered = length.checked_sub(4).filter(|_| length <= HEADER_LIMIT).and_then(|end| page.get(..end));
    let crc = covered.and_then(|covered| page.get(covered.len()..)?.first_chunk::<4>());
    let (Some(covered), Some(crc)) = (covered, crc) else {
        return Err(damaged(&format!("its header claims {length} bytes")));
    };
    if crc32fast::hash(covered) != u32::from_le_bytes(*crc) {
        return Err(damaged("its header's checksum is wrong"));
    }
    let header = decode_fields(covered).map_err(|Malformed(what)| damaged(&format!("its header has no {what}")))?;
    if header.row_size != ROW as u32 {
        return Err(damaged(&format!("its rows have {} bytes instead of {ROW}", header.row_size)));
    }
    if header.rows < RING.0 || header.rows > RING.1 {
        return Err(damaged(&format!("its ring of {} rows is over the limits", header.rows)));
    }
    Ok(header)
}

fn decode_fields(covered: &[u8]) -> Result<TailHeader, Malformed> {
    let mut cursor = Cursor::new(covered);
    cursor.take(MAGIC.len() + 2, "magic")?;
    let minor = cursor.u16("version")?;
    cursor.u32("length")?;
    let row_size = cursor.u32("row size")?;
    let pid = cursor.u32("process id")?;
    let start_time = cursor.u64("start time")?;
    let session = cursor.u64("session")?;
    let rows = cursor.u32("number of rows")?;
    let writer = WriterIdentity {
        pid: cursor.u32("writer")?,
        start_time: cursor.u64("writer")?,
        pid_namespace: cursor.u64("writer")?,
        boot_id: cursor.array::<16>("writer")?,
    };
    let mut name = |what| {
        let length = cursor.u32(what)? as usize;
        Ok(String::from_utf8_lossy(cursor.take(length, what)?).into_owned())
    };
    let host = name("host name")?;
    let job_id = name("job id")?;
    Ok(TailHeader { minor, key: ProcessKey { host, pid, start_time }, job_id, session, rows, row_size, writer })
}

/// Reads the counters of a header page.
pub(crate) fn decode_state(page: &[u8; PAGE], rows: u32) -> Result<TailState, &'static str> {
    let at = |offset: usize| -> u64 {
        let bytes = page.get(offset..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    // The page is read while it changes: each counter only grows, and a row is sealed only after it was committed, so
    // the one that is read first is read as the smaller one or made to fit.
    let sealed = at(SEALED_AT);
    let committed = at(COMMITTED_AT).max(sealed);
    if committed > u64::MAX / ROW as u64 {
        return Err("more rows than can be counted");
    }
    if committed - sealed > u64::from(rows) {
        return Err("more rows wait than its ring holds");
    }
    let slots = SLOT_AT.iter().filter_map(|&slot| Seal::decode(page.get(slot..slot + SLOT)?));
    let seal = slots.max_by_key(|seal| (seal.rows, seal.ordinal, seal.length));
    Ok(TailState { committed, sealed, state: at(STATE_AT), seals: at(SEALS_AT), seal })
}

/// The fixed part of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHead {
    pub(crate) ordinal: u64,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Which row of its record it is, from 0.
    pub(crate) part: u16,
    /// Bytes of the whole record.
    pub(crate) length: u32,
}

impl RowHead {
    /// A row with this part of a record.
    pub(crate) fn encode(&self, body: &[u8]) -> [u8; ROW] {
        let mut out = [0; ROW];
        let body = body.get(..ROW_BODY).unwrap_or(body);
        out[ROW_HEAD..ROW_HEAD + body.len()].copy_from_slice(body);
        self.seal(&mut out);
        out
    }

    /// Puts the head in front of a row's body.
    #[inline]
    pub(crate) fn seal(&self, out: &mut [u8; ROW]) {
        out[8..16].copy_from_slice(&self.ordinal.to_le_bytes());
        out[16] = self.kind;
        out[17] = self.flags;
        out[18..20].copy_from_slice(&self.part.to_le_bytes());
        out[20..24].copy_from_slice(&self.length.to_le_bytes());
        let check = xxh3_64(&out[8..]);
        out[..8].copy_from_slice(&check.to_le_bytes());
    }

    /// The row's head, if the row is as it was written.
    pub(crate) fn decode(row: &[u8; ROW]) -> Option<RowHead> {
        let (check, covered) = row.split_first_chunk::<8>()?;
        if xxh3_64(covered) != u64::from_le_bytes(*check) {
            return None;
        }
        let mut cursor = Cursor::new(covered);
        Some(RowHead {
            ordinal: cursor.u64("").ok()?,
            kind: cursor.u8("").ok()?,
            flags: cursor.u8("").ok()?,
            part: cursor.u16("").ok()?,
            length: cursor.u32("").ok()?,
        })
    }
}

/// Rows that a record of so many bytes takes.
pub(crate) fn rows_of(length: usize) -> u64 {
    length.div_ceil(ROW_BODY).max(1) as u64
}
