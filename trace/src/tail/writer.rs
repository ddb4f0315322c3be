//! Writes records into the ring of rows.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::TailOptions;
use super::layout::{
    COMMITTED_AT, KIND_ELSEWHERE, MAX_PARTS, PAGE, RING, ROW_BODY, ROW_JOINED, RowHead, SEALED_AT, SEALS_AT, SLOT_AT,
    STATE_AT, Seal, encode_page, rows_of,
};
use super::map::Map;
use super::owner::WriterIdentity;
use super::reader::TailHeader;
use super::rows::{encode_fields, encode_other, put_call};
use crate::block::BlockKind;
use crate::call::Call;
use crate::digest::ChainPoint;
use crate::directory::TraceDir;
use crate::header::SegmentHeader;
use crate::rows::RowWriter;
use crate::stream::Record;

/// Of what is left under a limit for the disk, a tail takes no more than this part: segments are for ever.
const ROOM_PART: u64 = 16;

/// A record's rows before they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It takes at most so many rows.
    Rows(u64),
    /// It does not fit the ring; a row says that a block holds it.
    Elsewhere,
}

impl Place {
    /// Rows to keep free for it.
    pub(crate) fn rows(self) -> u64 {
        match self {
            Place::Rows(rows) => rows,
            Place::Elsewhere => 1,
        }
    }
}

/// The tail of a stream that is being written.
#[derive(Debug)]
pub(crate) struct TailWriter {
    map: Map,
    dir: Arc<TraceDir>,
    name: String,
    path: PathBuf,
    committed: u64,
    sealed: u64,
    seals: u64,
    /// Bytes and kind of the record that was last placed.
    bytes: Vec<u8>,
    kind: BlockKind,
    rows: RowWriter,
}

impl TailWriter {
    /// Creates the file under a name that was free.
    pub(crate) fn create(
        dir: &Arc<TraceDir>,
        name: String,
        segment: &SegmentHeader,
        options: TailOptions,
    ) -> io::Result<TailWriter> {
        let rows = options.rows.clamp(RING.0, RING.1);
        let length = tail_bytes(rows);
        let path = dir.path_of(&name);
        if length > dir.limit().saturating_sub(dir.used()) / ROOM_PART {
            let what = "--max-disk leaves no room for it";
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        dir.claim(length)?;
        let made = dir.create_file(&name).inspect_err(|_| dir.release(length))?;
        let map = Map::create(made, rows).inspect_err(|_| {
            let _ = dir.remove(&name);
            dir.release(length);
        })?;
        let header = TailHeader {
            minor: segment.minor,
            key: segment.key.clone(),
            job_id: segment.job_id.clone(),
            session: segment.session,
            rows,
            row_size: super::layout::ROW as u32,
            writer: WriterIdentity::own(),
        };
        let dir = Arc::clone(dir);
        let mut tail = TailWriter {
            map,
            dir,
            name,
            path,
            committed: 0,
            sealed: 0,
            seals: 0,
            bytes: Vec::new(),
            kind: BlockKind::CALLS,
            rows: RowWriter::default(),
        };
        // The magic comes last: a file that is not ready is not read as a tail.
        let page = encode_page(&header);
        tail.map.put_head(8, page.get(8..).unwrap_or(&[]));
        if let Some(magic) = page.first_chunk::<8>() {
            tail.map.publish(0, u64::from_le_bytes(*magic));
        }
        Ok(tail)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Rows that wait for a block: the first, and how many.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        (self.sealed, self.committed - self.sealed)
    }

    /// Whether rows can be written without overwriting what waits. One row is always kept for [`TailWriter::put_last`].
    pub(crate) fn has_room(&self, place: Place) -> bool {
        self.committed + place.rows() - self.sealed < self.map.rows()
    }

    /// The place of a record of at most so many bytes.
    #[inline]
    pub(crate) fn place_of(&self, bytes: usize) -> Place {
        let rows = rows_of(bytes);
        if rows < self.map.rows() && rows <= MAX_PARTS as u64 { Place::Rows(rows) } else { Place::Elsewhere }
    }

    /// The place of a record that is no call. Its bytes are kept for [`TailWriter::put`].
    pub(crate) fn place(&mut self, record: &Record) -> Place {
        self.kind = encode_other(record, &mut self.rows, &mut self.bytes);
        self.place_of(self.bytes.len())
    }

    /// Writes the record that was last placed.
    pub(crate) fn put(&mut self, joined: bool) {
        self.commit(self.kind, if joined { ROW_JOINED } else { 0 });
    }

    /// Writes a call and the chain behind it.
    #[inline]
    pub(crate) fn put_call(&mut self, call: &Call, chain: Option<&ChainPoint>) {
        let mut fields = encode_fields(call, chain);
        let length = fields.body().len() as u32;
        if call.sends.is_empty()
            && call.recvs.is_empty()
            && let Some(row) = fields.as_row()
        {
            let kind = BlockKind::CALLS.0 as u8;
            let head = RowHead { ordinal: self.committed, kind, flags: 0, part: 0, length };
            head.seal(row);
            self.map.put_row(head.ordinal, row);
            self.committed += 1;
            self.map.publish(COMMITTED_AT, self.committed);
        } else {
            put_call(call, &fields, &mut self.bytes);
            self.commit(BlockKind::CALLS, 0);
        }
    }

    /// Says that the next record is in a block only.
    pub(crate) fn put_elsewhere(&mut self) {
        self.bytes.clear();
        self.commit(KIND_ELSEWHERE, 0);
    }

    /// Rows that a record other than a call takes.
    pub(crate) fn rows_of(record: &Record) -> u64 {
        let mut bytes = Vec::new();
        encode_other(record, &mut RowWriter::default(), &mut bytes);
        rows_of(bytes.len())
    }

    /// Writes a record of one row, for which room is always kept, behind everything that waits.
    pub(crate) fn put_last(&mut self, record: &Record) {
        // The record that was placed is not written yet: this happens while room is made for it.
        let placed = std::mem::take(&mut self.bytes);
        let kind = encode_other(record, &mut self.rows, &mut self.bytes);
        self.commit(kind, 0);
        self.bytes = placed;
    }

    /// Writes the rows, then moves the counter behind the last of them.
    fn commit(&mut self, kind: BlockKind, flags: u8) {
        let length = self.bytes.len() as u32;
        let mut head = RowHead { ordinal: self.committed, kind: kind.0 as u8, flags, part: 0, length };
        let mut rest = self.bytes.as_slice();
        loop {
            let (body, more) = rest.split_at(rest.len().min(ROW_BODY));
            self.map.put_row(head.ordinal, &head.encode(body));
            head.ordinal += 1;
            head.part = head.part.wrapping_add(1);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        self.committed = head.ordinal;
        self.map.publish(COMMITTED_AT, self.committed);
    }

    /// Everything that waited is in blocks, or is given up; the segments stand at this place.
    pub(crate) fn seal(&mut self, ordinal: u32, length: u64) {
        self.sealed = self.committed;
        let seal = Seal { rows: self.sealed, ordinal, length };
        // The older of the two places is overwritten: whoever reads meanwhile still has the other one.
        let slot = SLOT_AT[(self.seals % 2) as usize];
        self.map.put_head(slot, &seal.encode());
        self.seals += 1;
        self.map.publish(SEALS_AT, self.seals);
        self.map.publish(SEALED_AT, self.sealed);
    }

    /// The writer ends, in this state.
    pub(crate) fn end(&mut self, state: u64) {
        self.map.publish(STATE_AT, state);
    }

    /// Removes the file, if its name still leads to it.
    pub(crate) fn remove(self) {
        if self.dir.open_file(&self.name).is_ok_and(|file| self.map.is_of(&file)) && self.dir.remove(&self.name).is_ok()
        {
            self.dir.release(tail_bytes(self.map.rows() as u32));
        }
    }
}

/// Bytes of a tail's file.
fn tail_bytes(rows: u32) -> u64 {
    PAGE as u64 + u64::from(rows) * super::layout::ROW as u64
}
