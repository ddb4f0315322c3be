//! Reads a segment block by block: headers and digests first, payloads only when asked.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::block::{BLOCK_HEADER, BlockHeader, BlockKind, unpack};
use crate::call::Call;
use crate::columns::decode_calls;
use crate::digest::Digests;
use crate::error::{Problem, ProblemKind, ReadError};
use crate::header::{FIXED, FORMAT_MAJOR, FORMAT_MINOR, SegmentHeader};
use crate::limits;
use crate::payload::{Decoded, decode};
use crate::regular::open_of_trace;
use crate::sizes;
use crate::wire::Malformed;

/// Reads the blocks of one segment.
#[derive(Debug)]
pub struct BlockReader<R> {
    path: PathBuf,
    source: BufReader<R>,
    header: SegmentHeader,
    /// Where the source stands.
    at: u64,
    /// Where the next block begins.
    next: u64,
    /// Length of the file when last asked.
    length: u64,
    /// Values and kinds that were left out or read as a default, since a newer writer wrote them.
    newer: u64,
    /// What the definitions and evidence that were decoded take, about.
    held: usize,
    /// Calls of the recording before the next block, once a block has said so.
    calls: Option<u64>,
}

/// A block whose payload was not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    header: BlockHeader,
    digests: Digests,
    offset: u64,
    body: u64,
}

impl Block {
    /// Its fixed header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Its digest table.
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Where it begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The same block with an empty digest table, for whoever keeps many and has taken the digests out.
    pub(crate) fn without_digests(self) -> Block {
        Block { digests: Digests::default(), ..self }
    }

    /// Bytes that it takes in the file.
    pub fn length(&self) -> u64 {
        self.body - self.offset + u64::from(self.header.stored)
    }

    /// Reads and decodes the payload.
    pub fn decode<R: Read + Seek>(&self, reader: &mut BlockReader<R>) -> Result<Decoded, Problem> {
        reader.decode(self)
    }

    /// Reads and decodes the payload of a block of calls (one whose flags this build knows) straight to where they are
    /// wanted: into one vector for all of them, or into one that is emptied for each block. After an error, nothing was
    /// appended.
    pub fn append_calls<R: Read + Seek>(
        &self,
        reader: &mut BlockReader<R>,
        into: &mut Vec<Call>,
    ) -> Result<(), Problem> {
        reader.append_calls(self, into)
    }
}

impl BlockReader<File> {
    /// Opens a segment, which must be no symbolic link, and reads its header.
    pub fn open(path: &Path) -> Result<BlockReader<File>, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let file = open_of_trace(path).map_err(failed)?;
        BlockReader::new(path, file)
    }
}

impl<R: Read + Seek> BlockReader<R> {
    /// Reads the header of a segment. `path` is for messages.
    pub fn new(path: &Path, mut source: R) -> Result<BlockReader<R>, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let length = source.seek(SeekFrom::End(0)).map_err(failed)?;
        source.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut source = BufReader::new(source);
        let mut begin = Vec::with_capacity(FIXED);
        source.by_ref().take(FIXED as u64).read_to_end(&mut begin).map_err(failed)?;
        let header_length = SegmentHeader::length(path, &begin)?;
        let rest = (header_length - FIXED) as u64;
        source.by_ref().take(rest).read_to_end(&mut begin).map_err(failed)?;
        if begin.len() < header_length {
            return Err(ReadError::Header { path: path.to_owned(), what: "its header is cut off".to_owned() });
        }
        let header = SegmentHeader::decode(path, &begin)?;
        let at = header_length as u64;
        let calls = (header.ordinal == 1).then_some(0);
        Ok(BlockReader { path: path.to_owned(), source, header, at, next: at, length, newer: 0, held: 0, calls })
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next block begins: all before it was whole.
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// Goes on at an offset at which a block is known to begin.
    pub(crate) fn go_on_at(&mut self, offset: u64) {
        self.next = offset;
        self.calls = None;
    }

    /// Kinds and values so far that were left out or read as a default because a newer writer wrote them.
    pub fn newer_values(&self) -> u64 {
        self.newer
    }

    /// The next block; `None` at the end of the file.
    ///
    /// After a problem the reader stays where it is: a torn tail may have grown to a whole block when asked again, a
    /// damaged block stays what it is.
    pub fn next_block(&mut self) -> Result<Option<Block>, Problem> {
        let offset = self.next;
        if !self.reaches(offset + 1)? {
            return Ok(None);
        }
        if !self.reaches(offset + BLOCK_HEADER as u64)? {
            return Err(self.torn("a block's header"));
        }
        self.seek(offset)?;
        let mut fixed = [0_u8; BLOCK_HEADER];
        self.read_exact(&mut fixed)?;
        let header = BlockHeader::decode(&fixed).map_err(|what| self.damaged(offset, &what))?;
        let body = offset + BLOCK_HEADER as u64 + u64::from(header.table);
        // Until the checksum holds, the lengths are only known to be below their limits; the file's own length bounds
        // what is allocated for them.
        if !self.reaches(body)? {
            return Err(self.torn(&format!("the digests of a block of {}", header.kind.name())));
        }
        let mut table = vec![0_u8; header.table as usize];
        self.read_exact(&mut table)?;
        if !BlockHeader::check(&fixed, &table) {
            return Err(self.damaged(offset, "the checksum of a block's header is wrong"));
        }
        let end = body + u64::from(header.stored);
        if !self.reaches(end)? {
            return Err(self.torn(&format!("a block of {}", header.kind.name())));
        }
        let digests = Digests::decode(&table).map_err(|Malformed(what)| self.damaged(offset, what))?;
        self.in_order(&header).map_err(|what| self.damaged(offset, &what))?;
        self.next = end;
        Ok(Some(Block { header, digests, offset, body }))
    }

    /// Whether the block goes on where the last one ended: whole blocks that are missing, repeated or in another order
    /// have checksums that are right.
    fn in_order(&mut self, header: &BlockHeader) -> Result<(), String> {
        let found = header.calls_before;
        match self.calls {
            Some(expected) if found > expected => {
                return Err(format!("{} calls are missing before a block", found - expected));
            }
            Some(expected) if found < expected => {
                return Err("a block stands behind calls that were written after it".to_owned());
            }
            _ => {}
        }
        let held = if header.kind == BlockKind::CALLS { u64::from(header.count) } else { 0 };
        self.calls = Some(found.checked_add(held).ok_or("more calls than can be counted")?);
        Ok(())
    }

    fn decode(&mut self, block: &Block) -> Result<Decoded, Problem> {
        if !block.header.is_readable() {
            self.newer += 1;
            return Ok(Decoded::Unknown);
        }
        if block.header.is_expired() {
            return Ok(Decoded::Expired);
        }
        let payload = self.payload(block)?;
        match decode(block.header.kind, block.header.count as usize, &payload) {
            Ok((decoded, newer)) => {
                self.newer += newer;
                // A few bytes of a file may stand for the longest string a thousand times over.
                self.held = self.held.saturating_add(sizes::held(&decoded));
                let most = limits::MAX_HELD.max(usize::try_from(self.length).unwrap_or(usize::MAX).saturating_mul(32));
                if self.held > most {
                    let what = format!(
                        "definitions and evidence of more than {} MiB, which no recorder writes to a segment of its size",
                        most >> 20
                    );
                    return Err(self.damaged(block.offset, &what));
                }
                Ok(decoded)
            }
            Err(malformed) => Err(self.malformed(block, malformed)),
        }
    }

    fn append_calls(&mut self, block: &Block, into: &mut Vec<Call>) -> Result<(), Problem> {
        let payload = self.payload(block)?;
        match decode_calls(&payload, block.header.count as usize, into) {
            Ok(newer) => {
                self.newer += newer;
                Ok(())
            }
            Err(malformed) => Err(self.malformed(block, malformed)),
        }
    }

    /// Reads the payload of a block and checks it.
    fn payload(&mut self, block: &Block) -> Result<Vec<u8>, Problem> {
        if !self.reaches(block.body + u64::from(block.header.stored))? {
            return Err(self.torn(&format!("a block of {}", block.header.kind.name())));
        }
        self.seek(block.body)?;
        let mut stored = vec![0_u8; block.header.stored as usize];
        self.read_exact(&mut stored)?;
        unpack(&block.header, stored).map_err(|malformed| self.malformed(block, malformed))
    }

    fn malformed(&self, block: &Block, Malformed(what): Malformed) -> Problem {
        let what = format!("a block of {} cannot be read: {what}", block.header.kind.name());
        self.damaged(block.offset, &what)
    }

    /// Whether the file has this many bytes. Asks again before it says no: the file may grow.
    fn reaches(&mut self, length: u64) -> Result<bool, Problem> {
        if length > self.length {
            let end = self.source.get_mut().seek(SeekFrom::End(0)).map_err(|error| self.failed(&error))?;
            self.length = end;
            // The buffer still holds bytes from before: drop them with the position.
            self.source.seek(SeekFrom::Start(self.at)).map_err(|error| self.failed(&error))?;
        }
        Ok(length <= self.length)
    }

    fn seek(&mut self, to: u64) -> Result<(), Problem> {
        let by = to.wrapping_sub(self.at) as i64;
        if by != 0 {
            self.source.seek_relative(by).map_err(|error| self.failed(&error))?;
            self.at = to;
        }
        Ok(())
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), Problem> {
        match self.source.read_exact(into) {
            Ok(()) => {
                self.at += into.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Wherever the source stands now, the next seek is from the start.
                self.at = self.source.stream_position().unwrap_or(self.at);
                Err(self.failed(&error))
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Problem {
        Problem {
            file: self.path.clone(),
            offset: self.next,
            kind: ProblemKind::Unreadable,
            what: format!("reading failed: {error}"),
            advice: "What stands before was read; try again, or copy the file from its disk".to_owned(),
        }
    }

    /// The problem of a file that ends where the next block should begin, inside of this.
    pub(crate) fn torn_here(&self, what: &str) -> Problem {
        self.torn(what)
    }

    fn torn(&self, what: &str) -> Problem {
        Problem {
            file: self.path.clone(),
            offset: self.next,
            kind: ProblemKind::TornTail,
            what: format!("torn tail: the file ends inside {what}"),
            advice: "What stands before was read; the recorder was killed, the disk was full, or it still writes"
                .to_owned(),
        }
    }

    fn damaged(&self, offset: u64, what: &str) -> Problem {
        Problem {
            file: self.path.clone(),
            offset,
            kind: ProblemKind::Damaged,
            what: format!("damaged: {what}"),
            advice: "What stands before was read, the rest of this file was not; copy it again from where it was \
                     recorded"
                .to_owned(),
        }
    }

    /// What a newer writer's values mean for who reads them here; `None` if there were none.
    pub fn newer_problem(&self) -> Option<Problem> {
        (self.newer > 0).then(|| Problem {
            file: self.path.clone(),
            offset: 0,
            kind: ProblemKind::Newer,
            what: format!(
                "{} blocks or values are not known to this build (the file is in format {FORMAT_MAJOR}.{}, this build reads \
                 {FORMAT_MAJOR}.{FORMAT_MINOR})",
                self.newer, self.header.minor
            ),
            advice: "They were left out; a newer rankdiff reads them".to_owned(),
        })
    }
}
