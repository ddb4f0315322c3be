//! Rolling retention: sealed segments that are older than what is kept lose the payloads of their calls, and keep their
//! digests for ever.
//!
//! A segment is never changed in place. It is written again beside itself, without those payloads, and renamed over the
//! old one: whoever reads it has the one or the other, whole. Definitions, evidence, gaps and ends stay.
//!
//! Not here: when segments end (`writer.rs`), and what readers make of blocks without payload (`stream_files.rs`).

use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::block::{BLOCK_HEADER, BlockKind};
use crate::directory::TraceDir;
use crate::reader::BlockReader;

/// How much of the calls is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Calls of the last so long, counted back from the latest call: those that led to a hang stay while it lasts.
    Window(Duration),
    /// As many as fit into so many bytes, all files of all streams together.
    Bytes(u64),
}

/// Parts into which what is kept is divided: a segment is dropped whole, so it must be a small part.
const PARTS: u64 = 8;
/// Bounds of a segment's size under a limit on bytes.
const SEGMENT_BYTES: (u64, u64) = (64 << 10, 16 << 20);

impl Keep {
    /// When a segment should end, so that what is kept is close to what was asked for: bytes of a segment, and its time
    /// in ns where it matters.
    pub fn rotation(self) -> (u64, Option<u64>) {
        match self {
            Keep::Window(window) => {
                let part = window.as_nanos() / u128::from(PARTS);
                (SEGMENT_BYTES.1, Some(u64::try_from(part).unwrap_or(u64::MAX).max(1)))
            }
            // Many streams share it, and each has an open segment that cannot be dropped.
            Keep::Bytes(bytes) => ((bytes / (8 * PARTS)).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1), None),
        }
    }
}

/// A segment that its writer has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSegment {
    /// Name of the file.
    pub name: String,
    /// Tells the file from another one of the same name.
    pub(crate) identity: FileIdentity,
    /// Its length.
    pub bytes: u64,
    /// Latest entry of a call of its stream up to its end, ns of the recorder's monotonic clock.
    pub last_time: u64,
}

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileIdentity(u64, u64);

impl FileIdentity {
    pub(crate) fn of(file: &File) -> io::Result<FileIdentity> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let found = file.metadata()?;
            Ok(FileIdentity(found.dev(), found.ino()))
        }
        #[cfg(not(unix))]
        {
            file.metadata().map(|_| FileIdentity::default())
        }
    }
}

/// What dropping calls gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Segments rewritten.
    pub segments: u64,
    /// Calls whose payload was dropped.
    pub calls: u64,
    /// Bytes that are free again.
    pub bytes: u64,
}

/// Keeps the ended segments of all streams of a recorder to what is asked for.
#[derive(Debug)]
pub struct Retention {
    keep: Keep,
    /// Ended segments that still have their calls.
    waiting: Vec<SealedSegment>,
    /// Bytes of those that have not: they stay, and count for no limit but the directory's own.
    rest: u64,
    /// Latest entry of a call in a segment that has ended, ns.
    latest: u64,
    /// Least bytes that were in use since another segment was last asked for.
    low: u64,
    dropped: Dropped,
}

impl Retention {
    /// For the segments of a directory that remembers them ([`TraceDir::with_retention`]).
    pub fn new(keep: Keep) -> Retention {
        Retention { keep, waiting: Vec::new(), rest: 0, latest: 0, low: 0, dropped: Dropped::default() }
    }

    /// Drops the calls of what is too old, the oldest first over all streams. An error names the segment it happened
    /// at; that one is left as it is from then on.
    pub fn enforce(&mut self, dir: &TraceDir) -> Result<(), RetainError> {
        self.waiting.extend(dir.take_sealed());
        self.latest = self.waiting.iter().map(|segment| segment.last_time).fold(self.latest, u64::max);
        // Streams end their segments in no order.
        self.waiting.sort_by(|one, other| (other.last_time, &other.name).cmp(&(one.last_time, &one.name)));
        while self.waiting.last().is_some_and(|oldest| self.is_too_old(oldest, dir)) {
            let Some(oldest) = self.waiting.pop() else { break };
            self.rest += oldest.bytes;
            let done = expire(dir, &oldest);
            let done = done.map_err(|source| RetainError { path: dir.path_of(&oldest.name), source })?;
            self.rest -= done.bytes.min(self.rest);
            self.dropped.segments += done.segments;
            self.dropped.calls += done.calls;
            self.dropped.bytes += done.bytes;
        }
        self.ask(dir);
        Ok(())
    }

    /// Where nothing has ended that could be dropped, what is open must end first. Every new segment costs its
    /// definitions, so a little that was written since the last time is not worth it.
    fn ask(&mut self, dir: &TraceDir) {
        let used = dir.used();
        self.low = self.low.min(used);
        let bound = match self.keep {
            Keep::Bytes(bytes) => bytes.min(dir.limit()),
            Keep::Window(_) => dir.limit(),
        };
        let worth_it = used - self.low > bound / PARTS;
        if self.waiting.is_empty() && worth_it && (dir.is_full() || self.is_over(dir)) {
            dir.ask_for_rotation();
            self.low = used;
        }
    }

    fn is_too_old(&self, oldest: &SealedSegment, dir: &TraceDir) -> bool {
        let age = u128::from(self.latest.saturating_sub(oldest.last_time));
        let is_past = matches!(self.keep, Keep::Window(window) if age > window.as_nanos());
        // The limit on the disk goes before what was asked to be kept.
        is_past || self.is_over(dir) || dir.is_full()
    }

    fn is_over(&self, dir: &TraceDir) -> bool {
        matches!(self.keep, Keep::Bytes(bytes) if dir.used().saturating_sub(self.rest) > bytes)
    }

    /// All that was dropped.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }
}

/// A segment could not be rewritten.
#[derive(Debug, thiserror::Error)]
#[error("cannot drop the calls of {path}: {source}; it keeps them")]
pub struct RetainError {
    /// The segment.
    pub path: std::path::PathBuf,
    /// The system's error.
    source: io::Error,
}

/// Writes a segment again without the payloads of its calls and returns. Gives what that saved; nothing if there was
/// nothing to drop.
fn expire(dir: &TraceDir, segment: &SealedSegment) -> io::Result<Dropped> {
    let file = dir.open_file(&segment.name)?;
    if FileIdentity::of(&file)? != segment.identity || file.metadata()?.len() != segment.bytes {
        return Err(io::Error::other("another file has taken its name"));
    }
    let mut whole = Vec::new();
    file.take(segment.bytes).read_to_end(&mut whole)?;
    let mut rewritten = Vec::new();
    let calls = without_calls(&dir.path_of(&segment.name), &whole, &mut rewritten)?;
    if calls == 0 {
        return Ok(Dropped::default());
    }
    // Hidden from readers by its name until it is whole.
    let draft = format!(".{}.{}", segment.name, std::process::id());
    let written = dir.create_file(&draft).and_then(|mut out| out.write_all(&rewritten));
    if let Err(error) = written.and_then(|()| dir.rename(&draft, &segment.name)) {
        let _ = dir.remove(&draft);
        return Err(error);
    }
    let bytes = segment.bytes.saturating_sub(rewritten.len() as u64);
    dir.release(bytes);
    Ok(Dropped { segments: 1, calls, bytes })
}

/// The segment's bytes without the payloads of calls and returns; gives how many calls they held.
///
/// Everything else is copied as it stands, what this build does not know included. Damage ends it with an error: a
/// segment is only rewritten whole.
fn without_calls(path: &Path, whole: &[u8], out: &mut Vec<u8>) -> io::Result<u64> {
    let copy = |from: u64, to: u64| {
        let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
        range.and_then(|(from, to)| whole.get(from..to)).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let mut blocks = BlockReader::new(path, Cursor::new(whole)).map_err(io::Error::other)?;
    out.extend_from_slice(copy(0, blocks.offset())?);
    let mut calls = 0;
    while let Some(block) = blocks.next_block().map_err(|problem| io::Error::other(problem.to_string()))? {
        let header = block.header();
        let droppable = matches!(header.kind, BlockKind::CALLS | BlockKind::RETURNS) && !header.is_expired();
        if droppable {
            if header.kind == BlockKind::CALLS {
                calls += u64::from(header.count);
            }
            let table = block.offset() + BLOCK_HEADER as u64;
            header.expired().encode(copy(table, table + u64::from(header.table))?, out);
        } else {
            out.extend_from_slice(copy(block.offset(), blocks.offset())?);
        }
    }
    Ok(calls)
}

#[cfg(test)]
#[path = "retain_tests.rs"]
mod tests;
