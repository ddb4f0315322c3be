//! Packs a directory: whole files of it, and of what is still being written a prefix that reads as one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{MANIFEST, MAX_NAME, Manifest, VERSION, rank};
use crate::error::{ProblemKind, ReadError};
use crate::header::{FORMAT_MAJOR, FORMAT_MINOR};
use crate::job::{FileKind, JobDir, list};
use crate::reader::BlockReader;
use crate::redact::{RedactError, Redactor};
use crate::regular::open_of_trace;
use crate::tail::Tail;

/// Compression level: most of it is compressed already.
const LEVEL: i32 = 3;

/// How to pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackOptions {
    /// Replace what says where and by whom the job was run: hosts, paths, arguments, texts.
    pub redact: bool,
}

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Files.
    pub files: u64,
    /// Their bytes before compression.
    pub bytes: u64,
    /// Files that could not be packed, or only in part, and why.
    pub problems: Vec<String>,
}

/// A trace could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be redacted.
    #[error(transparent)]
    Redact(#[from] RedactError),
    /// A file of it cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The pack cannot be written.
    #[error("cannot write the pack: {0}")]
    Write(#[source] io::Error),
}

/// A file that goes into the pack.
struct Part {
    kind: FileKind,
    path: PathBuf,
    name: String,
}

/// Packs the trace in a directory into `out`.
pub fn pack<W: Write>(dir: &Path, options: PackOptions, out: W) -> Result<Packed, PackError> {
    // Opened once, so that what is no trace is said before anything is written.
    let job = JobDir::open(dir)?;
    let mut packed = Packed { problems: job.problems().iter().map(ToString::to_string).collect(), ..Packed::default() };
    let mut parts: Vec<Part> =
        list(dir)?.into_iter().map(|(kind, name)| Part { kind, path: dir.join(&name), name }).collect();
    let mut redactor = options.redact.then(|| Redactor::new(dir, &job));
    if let Some(redactor) = &redactor {
        // What a tail alone holds goes into blocks behind its segments.
        parts.retain_mut(|part| match redactor.file_name(&part.path) {
            Some(name) => {
                part.name = name;
                true
            }
            None => false,
        });
    }
    shorten(&mut parts);
    parts.sort_by(|one, other| (rank(one.kind), &one.name).cmp(&(rank(other.kind), &other.name)));
    let mut encoder = zstd::Encoder::new(out, LEVEL).map_err(PackError::Write)?;
    encoder.include_checksum(true).map_err(PackError::Write)?;
    let mut archive = tar::Builder::new(encoder);
    let manifest = Manifest {
        rankdiff_pack: VERSION,
        format_version: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
        files: parts.len() as u64,
        bytes: parts.iter().map(|part| bound(part, options.redact)).fold(0, u64::saturating_add),
        redacted: options.redact,
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| PackError::Write(io::Error::other(error)))?;
    append(&mut archive, MANIFEST, text.len() as u64, text.as_slice())?;
    for part in &parts {
        let bytes = match (&mut redactor, part.kind) {
            (None, FileKind::Tail) => tail(part)?,
            (None, _) => {
                packed.bytes += copy(&mut archive, part, &mut packed.problems)?;
                packed.files += 1;
                continue;
            }
            (Some(redactor), FileKind::Info) => redactor.info(&part.path),
            (Some(redactor), _) => redactor.segment(&part.path)?,
        };
        if let Some(bytes) = bytes {
            packed.bytes += append(&mut archive, &part.name, bytes.len() as u64, bytes.as_slice())?;
            packed.files += 1;
        }
    }
    if let Some(redactor) = redactor {
        packed.problems.extend(redactor.into_problems());
    }
    let encoder = archive.into_inner().map_err(PackError::Write)?;
    encoder.finish().and_then(|mut out| out.flush()).map_err(PackError::Write)?;
    Ok(packed)
}

/// Names that a plain header cannot hold are replaced: what a file is, it says itself.
fn shorten(parts: &mut [Part]) {
    for (number, part) in parts.iter_mut().enumerate() {
        if part.name.len() > MAX_NAME {
            part.name = match part.kind {
                FileKind::Info => format!("job.long-{number}.json"),
                FileKind::Segment => format!("long-{number}.rdt"),
                FileKind::Tail => format!("long-{number}.tail"),
            };
        }
    }
}

/// Most bytes that a file will take in the pack.
fn bound(part: &Part, redact: bool) -> u64 {
    let length = std::fs::symlink_metadata(&part.path).map_or(0, |found| found.len());
    // It may grow until it is its turn, and what is replaced may be longer, or compress worse.
    if redact { length.saturating_mul(2).saturating_add(ROOM) } else { length.saturating_add(ROOM) }
}

/// Bytes of a tail that are packed; the usual one has a mebibyte.
const MAX_TAIL: u64 = 64 << 20;
/// How often a tail that changes while it is read is read again.
const TRIES: u32 = 8;
/// Room for what a file grows by while others are packed.
const ROOM: u64 = 1 << 20;

fn append<W: Write>(archive: &mut tar::Builder<W>, name: &str, length: u64, data: impl Read) -> Result<u64, PackError> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).map_err(PackError::Write)?;
    header.set_size(length);
    header.set_mode(0o600);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    archive.append(&header, data).map_err(PackError::Write)?;
    Ok(length)
}

/// Copies a file as far as it is whole now.
fn copy<W: Write>(archive: &mut tar::Builder<W>, part: &Part, problems: &mut Vec<String>) -> Result<u64, PackError> {
    let failed = |source| PackError::File { path: part.path.clone(), source };
    let file = match open_of_trace(&part.path) {
        Ok(file) => file,
        Err(error) => {
            problems.push(format!("{}: {error}; it is left out", part.path.display()));
            return append(archive, &part.name, 0, io::empty());
        }
    };
    let length = file.metadata().map_err(failed)?.len();
    let length =
        if part.kind == FileKind::Segment { whole(&part.path, &file, length).map_err(failed)? } else { length };
    let mut source = &file;
    source.seek(SeekFrom::Start(0)).map_err(failed)?;
    // A file that shrinks meanwhile, as only somebody else's does, is filled up: the header is written already.
    append(archive, &part.name, length, source.take(length).chain(io::repeat(0)).take(length))
}

/// Bytes of a segment up to the end of its last whole block. Where it is damaged, what stands behind is kept as it is.
fn whole(path: &Path, file: &File, length: u64) -> io::Result<u64> {
    let Ok(mut reader) = BlockReader::new(path, file.try_clone()?) else { return Ok(length) };
    loop {
        match reader.next_block() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(reader.offset().min(length)),
            Err(problem) => {
                let torn = problem.kind == ProblemKind::TornTail;
                return Ok(if torn { reader.offset().min(length) } else { length });
            }
        }
    }
}

/// A tail at one moment; `None` if its stream was closed and took it away.
fn tail(part: &Part) -> Result<Option<Vec<u8>>, PackError> {
    let failed = |source| PackError::File { path: part.path.clone(), source };
    let Ok(tail) = Tail::open(&part.path) else { return Ok(None) };
    let ring = u64::from(tail.header().rows);
    let mut bytes = Vec::new();
    // A writer that overwrites what is being copied is tried again a few times; then what is in blocks must do.
    for _ in 0..TRIES {
        let Ok(before) = tail.state() else { break };
        bytes.clear();
        let file = open_of_trace(&part.path).map_err(failed)?;
        file.take(MAX_TAIL).read_to_end(&mut bytes).map_err(failed)?;
        if tail.state().is_ok_and(|after| after.committed <= before.sealed + ring) {
            return Ok(Some(bytes));
        }
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}
