//! Reads a tail by pread, while it is written or after its writer was killed.
//!
//! Nothing that is read is trusted: a row counts only with its checksum and its own number in it. So a row that was
//! overwritten meanwhile, or never written, is told apart from a record, and memory grows with the records that are
//! really there, never with a number in the file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::{
    KIND_ELSEWHERE, MAX_PARTS, PAGE, ROW, ROW_BODY, ROW_HEAD, ROW_JOINED, RowHead, Seal, decode_page, decode_state,
    rows_of,
};
use super::owner::WriterIdentity;
use super::rows::{Parsed, RowChain, decode};
use crate::block::BlockKind;
use crate::error::{Problem, ProblemKind, ReadError};
use crate::limits;
use crate::regular::open_of_trace;
use crate::stream::{ProcessKey, Record};
use crate::wire::Malformed;

/// Rows that are read in one call.
const CHUNK: u64 = 512;
/// How often a page that changes while it is read is read again.
const TRIES: u32 = 16;

/// What a tail says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TailHeader {
    /// Minor version of the writer.
    pub minor: u16,
    /// Whose stream it belongs to.
    pub key: ProcessKey,
    /// Job id.
    pub job_id: String,
    /// The recording, as in the segments' headers.
    pub session: u64,
    /// Rows of its ring.
    pub rows: u32,
    /// Bytes of a row.
    pub row_size: u32,
    /// Who writes it.
    pub writer: WriterIdentity,
}

/// How far a tail is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TailState {
    /// Rows below this are whole.
    pub committed: u64,
    /// Rows below this are in blocks, or could not be written; they may be overwritten.
    pub sealed: u64,
    /// 0 while it is written (or if its writer was killed), 1 after the stream was closed, 2 if its writer ended without
    /// closing it.
    pub state: u64,
    /// How often the segments have changed.
    pub seals: u64,
    /// Where the segments stood at the last change.
    pub seal: Option<Seal>,
}

/// A record of a tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TailRecord {
    /// Its first row, and the first that is not its own.
    pub(crate) row: u64,
    pub(crate) next: u64,
    pub(crate) kind: BlockKind,
    /// A return that its call's block shows, and no block of returns.
    pub(crate) joined: bool,
    /// `None`: it is in a block only, or of a newer kind.
    pub(crate) record: Option<Box<Record>>,
    pub(crate) chain: Option<RowChain>,
    /// It is in a block only.
    pub(crate) elsewhere: bool,
}

/// Why no record can be read at a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The rows were overwritten: blocks hold the record.
    Overwritten,
    /// The rows are not as they were written.
    Damaged(Problem),
}

/// A tail that is open for reading.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: File,
    header: TailHeader,
    /// Values that were read as a default, since a newer writer wrote them.
    newer: u64,
    /// Rows that were read, and the number of the first.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl Tail {
    /// Opens a tail and reads its header. A file that is no regular one is refused.
    pub fn open(path: &Path) -> Result<Tail, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let file = open_of_trace(path).map_err(failed)?;
        let mut page = [0; PAGE];
        let read = read_at(&file, &mut page, 0).map_err(failed)?;
        let header = decode_page(path, page.get(..read).unwrap_or(&[]))?;
        let length = file.metadata().map_err(failed)?.len();
        if read < PAGE || length < PAGE as u64 {
            return Err(ReadError::Header { path: path.to_owned(), what: "its header is cut off".to_owned() });
        }
        Ok(Tail { path: path.to_owned(), file, header, newer: 0, chunk: Vec::new(), chunk_at: 0 })
    }

    /// The header.
    pub fn header(&self) -> &TailHeader {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Values so far that were left out or read as a default because a newer writer wrote them.
    pub fn newer_values(&self) -> u64 {
        self.newer
    }

    /// How far the tail is now: one read.
    pub fn state(&self) -> Result<TailState, Problem> {
        let mut page = [0; PAGE];
        let mut wrong = "";
        for _ in 0..TRIES {
            match read_at(&self.file, &mut page, 0) {
                Ok(PAGE) => {}
                Ok(_) => return Err(self.damaged(0, "its header page is cut off")),
                Err(error) => return Err(self.failed(0, &error)),
            }
            // The page may have changed while it was read.
            match decode_state(&page, self.header.rows) {
                Ok(state) => return Ok(state),
                Err(what) => wrong = what,
            }
        }
        Err(self.damaged(0, wrong))
    }

    /// The chain of every communicator that the waiting calls moved, behind the last of them: what can be compared with
    /// other members without any block. Rows that cannot be read end it.
    pub fn chains(&mut self) -> Result<Vec<RowChain>, Problem> {
        let state = self.state()?;
        let mut chains: Vec<RowChain> = Vec::new();
        let mut row = state.sealed;
        while row < state.committed {
            let Ok(found) = self.record(row, state.committed) else { break };
            row = found.next;
            if let Some(chain) = found.chain {
                match chains.iter_mut().find(|old| old.comm == chain.comm) {
                    Some(old) => *old = chain,
                    None => chains.push(chain),
                }
            }
        }
        Ok(chains)
    }

    /// Reads the record that begins at a row below `committed`.
    pub(crate) fn record(&mut self, row: u64, committed: u64) -> Result<TailRecord, Miss> {
        let first = self.row(row, committed)?;
        let damaged = |tail: &Tail, what: &str| Miss::Damaged(tail.damaged(tail.place_of(row), what));
        let (head, body) = first;
        let length = head.length as usize;
        let rows = rows_of(length);
        if head.part != 0 || length > limits::MAX_RECORD || rows > MAX_PARTS as u64 {
            return Err(damaged(self, "a row that begins no record"));
        }
        if rows > committed - row {
            return Err(damaged(self, "a record that goes on behind what was committed"));
        }
        let mut bytes = Vec::with_capacity(length.min(ROW_BODY));
        bytes.extend_from_slice(&body);
        for part in 1..rows {
            let (next, body) = self.row(row + part, committed)?;
            let same = (next.kind, next.flags, next.length) == (head.kind, head.flags, head.length);
            if !same || u64::from(next.part) != part {
                return Err(damaged(self, "rows that do not go on with their record"));
            }
            bytes.extend_from_slice(&body);
        }
        bytes.truncate(length);
        let mut found = TailRecord {
            row,
            next: row + rows,
            kind: BlockKind(u16::from(head.kind)),
            joined: head.flags & ROW_JOINED != 0,
            record: None,
            chain: None,
            elsewhere: u16::from(head.kind) == KIND_ELSEWHERE.0,
        };
        if !found.elsewhere {
            match decode(head.kind, &bytes) {
                Ok((Parsed::Record(record, chain), newer)) => {
                    self.newer += newer;
                    (found.record, found.chain) = (Some(record), chain);
                }
                Ok((Parsed::Newer, newer)) => self.newer += newer,
                Err(Malformed(what)) => return Err(damaged(self, what)),
            }
        }
        Ok(found)
    }

    /// A row as it was written.
    fn row(&mut self, ordinal: u64, committed: u64) -> Result<(RowHead, [u8; ROW_BODY]), Miss> {
        let ring = u64::from(self.header.rows);
        if committed - ordinal > ring {
            return Err(Miss::Overwritten);
        }
        let held = (self.chunk.len() / ROW) as u64;
        let inside = ordinal.checked_sub(self.chunk_at).filter(|&index| index < held);
        let index = match inside {
            Some(index) => index,
            None => {
                let wanted = CHUNK.min(committed - ordinal).min(ring - ordinal % ring);
                self.fill(ordinal, wanted).map_err(Miss::Damaged)?;
                0
            }
        };
        let from = index as usize * ROW;
        let row = self.chunk.get(from..).and_then(|rest| rest.first_chunk::<ROW>());
        let found = row.and_then(|row| Some((RowHead::decode(row)?, *row.last_chunk::<ROW_BODY>()?)));
        match found {
            Some((head, body)) if head.ordinal == ordinal => Ok((head, body)),
            Some((head, _)) if head.ordinal > ordinal => Err(self.overwritten()),
            _ => Err(self.is_it_damage(ordinal)),
        }
    }

    /// A row that cannot be read may just be being overwritten; then it is sealed by now.
    fn is_it_damage(&mut self, ordinal: u64) -> Miss {
        match self.state() {
            Ok(state) if state.sealed > ordinal => self.overwritten(),
            Ok(_) => {
                self.chunk.clear();
                Miss::Damaged(self.damaged(self.place_of(ordinal), "the checksum of a row is wrong"))
            }
            Err(problem) => Miss::Damaged(problem),
        }
    }

    fn overwritten(&mut self) -> Miss {
        self.chunk.clear();
        Miss::Overwritten
    }

    fn fill(&mut self, ordinal: u64, rows: u64) -> Result<(), Problem> {
        let at = self.place_of(ordinal);
        self.chunk.resize(rows as usize * ROW, 0);
        self.chunk_at = ordinal;
        match read_at(&self.file, &mut self.chunk, at) {
            Ok(read) => {
                self.chunk.truncate(read - read % ROW);
                Ok(())
            }
            Err(error) => {
                self.chunk.clear();
                Err(self.failed(at, &error))
            }
        }
    }

    /// Forgets rows that were read: they may have been overwritten since.
    pub(crate) fn forget(&mut self) {
        self.chunk.clear();
    }

    fn place_of(&self, ordinal: u64) -> u64 {
        PAGE as u64 + ordinal % u64::from(self.header.rows) * ROW as u64
    }

    fn failed(&self, offset: u64, error: &io::Error) -> Problem {
        Problem {
            file: self.path.clone(),
            offset,
            kind: ProblemKind::Unreadable,
            what: format!("reading failed: {error}"),
            advice: "What is in the segments was read; try again, or copy the file from its disk".to_owned(),
        }
    }

    fn damaged(&self, offset: u64, what: &str) -> Problem {
        Problem {
            file: self.path.clone(),
            offset,
            kind: ProblemKind::Damaged,
            what: format!("the live tail is damaged: {what}"),
            advice: "What is in the segments and before it was read, the rest of the tail was not".to_owned(),
        }
    }
}

const _: () = assert!(ROW_HEAD + ROW_BODY == ROW);

/// Reads at an offset until the buffer is full or the file ends.
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(unix)]
fn pread(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

#[cfg(windows)]
fn pread(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, offset)
}
