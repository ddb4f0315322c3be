//! The blocks of a stream while segments are appended and begun.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Problem, ProblemKind, ReadError};
use crate::flushes::{Flushes, Item};
use crate::limits;
use crate::payload::{Decoded, TailRows};
use crate::reader::{Block, BlockReader};
use crate::stream::ProcessKey;
use crate::stream_files::{StreamFiles, missing_segments, unreadable};
use crate::tail::Seal;

/// The directory is searched for the next segment each time it was not found by its name so often.
const SEARCH_EVERY: u32 = 64;
/// The next segment is looked for each time the one that is read gave nothing so often.
const LOOK_EVERY: u32 = 8;

/// What the segments give next.
#[derive(Debug)]
pub(crate) enum Found {
    Item(Item),
    /// Something is missing here.
    Hole(Problem),
    /// Nothing now.
    Nothing,
}

/// Where a follower stands in the segments.
#[derive(Debug)]
pub(crate) struct Sealed {
    key: ProcessKey,
    session: u64,
    /// Segments that are known and not begun, in order.
    ahead: std::collections::VecDeque<PathBuf>,
    /// The first segment.
    first: Option<PathBuf>,
    /// The segment that is read, or was read last.
    path: Option<PathBuf>,
    reader: Option<BlockReader<File>>,
    flushes: Flushes,
    /// Its ordinal.
    ordinal: u32,
    /// The segment has its end block, or the rest of it cannot be read.
    ended: bool,
    closed: bool,
    /// Blocks in front of this place hold nothing new.
    go_on_at: Option<Seal>,
    /// Segments are missing: what the next one repeats is new.
    missed: bool,
    /// The segment gave nothing although another one is there.
    leaving: bool,
    searches: u32,
}

impl Sealed {
    pub(crate) fn new(files: &StreamFiles) -> Sealed {
        Sealed {
            key: files.key.clone(),
            session: files.session,
            ahead: files.segments.iter().cloned().collect(),
            first: files.segments.first().cloned(),
            path: None,
            reader: None,
            flushes: Flushes::default(),
            ordinal: 0,
            ended: true,
            closed: false,
            go_on_at: None,
            missed: false,
            leaving: false,
            searches: 0,
        }
    }

    pub(crate) fn key(&self) -> &ProcessKey {
        &self.key
    }

    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Whether the end of the recording was read.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether repeated records are news.
    pub(crate) fn wants_repeated(&self) -> bool {
        self.missed
    }

    /// Where the stream's tail is: beside its first segment.
    pub(crate) fn tail_path(&self) -> Option<PathBuf> {
        self.first.as_ref().map(|path| path.with_extension("tail"))
    }

    /// Everything before this place is known already.
    pub(crate) fn go_on_at(&mut self, seal: Seal) {
        let offset = self.reader.as_ref().map_or(0, BlockReader::offset);
        if (seal.ordinal, seal.length) > (self.ordinal, offset) {
            self.go_on_at = Some(seal);
        }
    }

    /// Decodes a block of the segment that is being read.
    pub(crate) fn decode(&mut self, block: &Block) -> Result<Decoded, Problem> {
        match &mut self.reader {
            Some(reader) => block.decode(reader),
            None => Ok(Decoded::Unknown),
        }
    }

    /// A write that is not in the file to its end.
    pub(crate) fn unfinished(&mut self) -> Option<(TailRows, Vec<Block>)> {
        std::mem::take(&mut self.flushes).unfinished()
    }

    /// The next blocks.
    pub(crate) fn next(&mut self) -> Found {
        loop {
            self.skip();
            if self.ended {
                match self.next_segment() {
                    Ok(true) => {}
                    Ok(false) => return Found::Nothing,
                    Err(problem) => return Found::Hole(problem),
                }
                continue;
            }
            let Some(reader) = &mut self.reader else { return Found::Nothing };
            match self.flushes.next(reader) {
                Ok(Some(Item::Block(block))) if block.header().kind == crate::block::BlockKind::SEGMENT_END => {
                    self.ended = true;
                    if let Ok(Decoded::End(end)) = block.decode(reader) {
                        self.closed = end.last;
                    }
                    if self.closed {
                        return Found::Nothing;
                    }
                }
                Ok(Some(item)) => return Found::Item(item),
                // It is being written.
                Ok(None) if self.is_left() => {}
                Ok(None) => return Found::Nothing,
                Err(problem) if problem.kind == ProblemKind::TornTail => {
                    if !self.is_left() {
                        return Found::Nothing;
                    }
                    if self.ended {
                        return Found::Hole(problem);
                    }
                }
                Err(problem) => {
                    self.ended = true;
                    self.missed = true;
                    self.flushes = Flushes::default();
                    return Found::Hole(problem);
                }
            }
        }
    }

    /// The segment gives nothing now. If another one is there, its writer could not go on with this one; true: it is left
    /// for the next one.
    fn is_left(&mut self) -> bool {
        let later = self.go_on_at.is_some_and(|seal| seal.ordinal > self.ordinal);
        if !later && self.ahead.is_empty() {
            self.searches += 1;
            if !self.searches.is_multiple_of(LOOK_EVERY) {
                return false;
            }
            match self.find_next() {
                Some(next) => self.ahead.push_back(next),
                None => return false,
            }
        }
        // Its end may have been written since it was looked at.
        if !std::mem::replace(&mut self.leaving, true) {
            return true;
        }
        self.leaving = false;
        self.ended = true;
        self.missed = true;
        self.flushes = Flushes::default();
        true
    }

    /// Passes over blocks that hold nothing new, as far as that is in the segment that is open.
    fn skip(&mut self) {
        let Some(seal) = self.go_on_at else { return };
        if self.ordinal > seal.ordinal {
            self.go_on_at = None;
        } else if self.ordinal < seal.ordinal {
            self.ended = true;
        } else if let Some(reader) = &mut self.reader {
            self.go_on_at = None;
            if seal.length > reader.offset() && !self.ended {
                self.flushes = Flushes::default();
                reader.go_on_at(seal.length);
            }
        }
    }

    /// Opens the next segment; false if there is none yet.
    fn next_segment(&mut self) -> Result<bool, Problem> {
        if self.closed {
            return Ok(false);
        }
        let Some(path) = self.ahead.pop_front().or_else(|| self.find_next()) else { return Ok(false) };
        match BlockReader::open(&path) {
            Ok(reader) => {
                let found = reader.header().ordinal;
                if found <= self.ordinal {
                    // A copy of one that was read.
                    return Ok(true);
                }
                let hole = found != self.ordinal + 1 && self.go_on_at.is_none();
                let last = self.ordinal;
                self.missed |= hole;
                self.ordinal = found;
                self.path = Some(path.clone());
                self.reader = Some(reader);
                self.flushes = Flushes::default();
                self.ended = false;
                self.leaving = false;
                self.searches = 0;
                if hole { Err(missing_segments(&path, last, found)) } else { Ok(true) }
            }
            Err(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                self.missed = true;
                Ok(true)
            }
            Err(error) => {
                self.missed = true;
                self.path = Some(path.clone());
                Err(unreadable(&path, &error))
            }
        }
    }

    /// The segment behind the last one: by the next number in its name, and now and then by a look at all names.
    fn find_next(&mut self) -> Option<PathBuf> {
        let path = self.path.clone()?;
        let (begin, mut number) = numbered(&path)?;
        loop {
            number = number.checked_add(1).filter(|number| *number <= limits::MAX_SEGMENTS)?;
            let next = path.with_file_name(format!("{begin}.{number:04}.rdt"));
            match self.is_own(&next) {
                Some(true) => return Some(next),
                // Another recording of the process.
                Some(false) => {}
                None => break,
            }
        }
        self.searches += 1;
        let later = self.go_on_at.is_some_and(|seal| seal.ordinal > self.ordinal);
        if !later && !self.searches.is_multiple_of(SEARCH_EVERY) {
            return None;
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut later: Vec<(u32, PathBuf)> = fs::read_dir(dir)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter_map(|path| {
                let (same, number) = numbered(&path)?;
                (same == begin).then_some((number, path))
            })
            .collect();
        later.sort_unstable();
        let ordinal = self.ordinal;
        later.into_iter().map(|(_, path)| path).find(|path| {
            self.is_own(path) == Some(true)
                && BlockReader::open(path).is_ok_and(|reader| reader.header().ordinal > ordinal)
        })
    }

    /// Whether a file is a segment of this recording; `None` if it is not there or cannot be read (yet).
    fn is_own(&self, path: &Path) -> Option<bool> {
        let reader = BlockReader::open(path).ok()?;
        let header = reader.header();
        Some(header.key == self.key && header.session == self.session)
    }
}

/// The beginning of a segment's name and its number.
fn numbered(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".rdt")?;
    let (begin, number) = name.rsplit_once('.')?;
    Some((begin.to_owned(), number.parse().ok()?))
}
