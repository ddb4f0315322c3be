//! Unpacks what somebody sent. Nothing in it is trusted: names, kinds, numbers and sizes are checked before anything is
//! created, no more is unpacked than was announced, and no more is believed than the caller allows.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{MANIFEST, MAX_MANIFEST, MAX_NAME, Manifest, VERSION, rank};
use crate::directory::TraceDir;
use crate::job::FileKind;
use crate::limits;
use crate::regular::open_regular;

/// Bytes of a tar header, and of the units that entries are filled up to.
const UNIT: u64 = 512;

/// How much is unpacked at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files.
    pub bytes: u64,
    /// How many times as large as the pack they may be; small packs may always grow to [`Limits::FREE`].
    pub ratio: Option<u64>,
}

impl Limits {
    /// What any pack may unpack to.
    pub const FREE: u64 = 256 << 20;
}

impl Default for Limits {
    /// 16 GiB, and 100 times the pack: traces are compressed before they are packed.
    fn default() -> Limits {
        Limits { bytes: 16 << 30, ratio: Some(100) }
    }
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unpacked {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether names, paths and texts were replaced before it was packed.
    pub redacted: bool,
}

/// A pack could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct UnpackError {
    /// The pack.
    path: PathBuf,
    what: String,
}

/// Whether a file looks like a pack.
pub fn is_pack(path: &Path) -> bool {
    let mut name = [0; MANIFEST.len()];
    // An archive begins with the name of its first entry.
    let read = open_regular(path).and_then(zstd::Decoder::new).and_then(|mut text| text.read_exact(&mut name));
    read.is_ok() && name == MANIFEST.as_bytes()
}

/// Unpacks into a directory. Files that are there are never written over. On an error, what was unpacked is removed
/// again.
pub fn unpack(path: &Path, into: &TraceDir, limits: Limits) -> Result<Unpacked, UnpackError> {
    let failed = |what: String| UnpackError { path: path.to_owned(), what };
    let file = open_regular(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let mut created = Vec::new();
    let result = take_all(file, into, limits, &mut created);
    result.map_err(|what| {
        for name in &created {
            // It was created here; if it cannot be removed, its name is still told by the directory.
            let _ = into.remove(name);
        }
        failed(what)
    })
}

fn take_all(file: File, into: &TraceDir, limits: Limits, created: &mut Vec<String>) -> Result<Unpacked, String> {
    let broken = |error: io::Error| format!("it is damaged, or no pack: {error}");
    let packed = file.metadata().map_err(broken)?.len();
    let grown = limits.ratio.map_or(u64::MAX, |ratio| packed.saturating_mul(ratio).max(Limits::FREE));
    let most = limits.bytes.min(grown);
    let decoder = zstd::Decoder::new(file).map_err(broken)?;
    // Whatever the archive says, no more than this is decompressed.
    let headers = (limits::MAX_FILES as u64 + 4).saturating_mul(2 * UNIT);
    let mut archive = tar::Archive::new(decoder.take(most.saturating_add(headers)));
    // Raw: entries that only change what later ones mean are seen, and refused.
    let mut entries = archive.entries().map_err(broken)?.raw(true);
    let first = entries.next().ok_or("it is empty")?.map_err(broken)?;
    let manifest = announced(first)?;
    if manifest.files > limits::MAX_FILES as u64 {
        return Err(format!("it announces {} files, more than the {} of any trace", manifest.files, limits::MAX_FILES));
    }
    // Room for growth was announced as well, so what counts is what comes.
    let too_much = || {
        format!(
            "it unpacks to more than the {most} bytes that are allowed (it announces at most {} bytes); if you trust \
             who made it, unpack it with `rankdiff pack --unpack FILE --max-size SIZE`",
            manifest.bytes
        )
    };
    let mut left = Left { files: manifest.files, bytes: manifest.bytes };
    let mut unpacked = Unpacked { redacted: manifest.redacted, ..Unpacked::default() };
    let mut last = None;
    for entry in entries {
        let mut entry = entry.map_err(broken)?;
        let (kind, name) = plain_file(&entry)?;
        let place = (rank(kind), name.clone());
        if last.as_ref().is_some_and(|last| *last >= place) {
            return Err(format!("`{}` comes twice, or out of order", name.escape_debug()));
        }
        last = Some(place);
        let size = entry.header().entry_size().map_err(broken)?;
        left.take(size)?;
        if unpacked.bytes.saturating_add(size) > most {
            return Err(too_much());
        }
        let mut out = into
            .create_file(&name)
            .map_err(|error| format!("`{name}` cannot be created in {}: {error}", into.path().display()))?;
        created.push(name.clone());
        let copied = io::copy(&mut entry, &mut out).and_then(|copied| out.flush().map(|()| copied));
        let copied = copied.map_err(|error| format!("`{name}` cannot be unpacked: {error}"))?;
        if copied != size {
            return Err(format!("it is cut off in `{name}`: copy it again from where it was made"));
        }
        unpacked.files += 1;
        unpacked.bytes += size;
    }
    // To the end of the stream: there is the checksum over all of it.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    Ok(unpacked)
}

/// What may still come, by what was announced.
struct Left {
    files: u64,
    bytes: u64,
}

impl Left {
    fn take(&mut self, bytes: u64) -> Result<(), String> {
        let (files, bytes) = (self.files.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(files), Some(bytes)) = (files, bytes) else {
            return Err("it holds more than it announces: it is damaged, or made to do harm".to_owned());
        };
        (self.files, self.bytes) = (files, bytes);
        Ok(())
    }
}

/// The first entry.
fn announced<R: Read>(entry: tar::Entry<'_, R>) -> Result<Manifest, String> {
    let foreign = || "it is no pack of a trace (`rankdiff pack DIR` makes one)".to_owned();
    if entry.path_bytes().as_ref() != MANIFEST.as_bytes() || entry.header().entry_type() != tar::EntryType::Regular {
        return Err(foreign());
    }
    let mut text = Vec::new();
    entry.take(MAX_MANIFEST).read_to_end(&mut text).map_err(|error| format!("it is damaged: {error}"))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|_| foreign())?;
    if manifest.rankdiff_pack != VERSION {
        return Err(format!(
            "it is a pack of version {}; this build unpacks version {VERSION}. Unpack it with the version of rankdiff \
             that made it",
            manifest.rankdiff_pack
        ));
    }
    Ok(manifest)
}

/// Kind and name of an entry that is a file of a trace and nothing else.
fn plain_file<R: Read>(entry: &tar::Entry<'_, R>) -> Result<(FileKind, String), String> {
    let bytes = entry.path_bytes();
    let shown = bytes.escape_ascii();
    if entry.header().entry_type() != tar::EntryType::Regular {
        return Err(format!("`{shown}` is no plain file: a pack holds nothing else"));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name = std::str::from_utf8(&bytes).ok().filter(|name| name.len() <= MAX_NAME && name.chars().all(is_plain));
    let kind = name.and_then(FileKind::of);
    let (Some(kind), Some(name)) = (kind, name) else {
        return Err(format!("`{shown}` is no name of a trace's file"));
    };
    Ok((kind, name.to_owned()))
}
