//! A trace as one file, to send to somebody: a tar archive of its files, compressed with zstd (`.rdpack`).
//!
//! The same trace gives the same bytes: files in the order of their kinds and names, no times, no owners. The first entry
//! announces how much follows, and a reader believes no more than that.
//!
//! Not here: what a redacted trace leaves out (`redact`).

mod read;
mod write;

use serde::{Deserialize, Serialize};

use crate::job::FileKind;
pub use read::{Limits, UnpackError, Unpacked, is_pack, unpack};
pub use write::{PackError, PackOptions, Packed, pack};

/// Name of the first entry.
const MANIFEST: &str = "rankdiff-pack.json";
/// Version of the container: another one is refused.
const VERSION: u32 = 1;
/// Longest name of an entry: what the plainest kind of tar header holds.
const MAX_NAME: usize = 100;
/// Bytes that the first entry may take.
const MAX_MANIFEST: u64 = 64 << 10;

/// The first entry: what follows, at most.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Manifest {
    /// Version of the container.
    rankdiff_pack: u32,
    /// Trace format of the segments, 'major.minor'.
    format_version: String,
    /// Files that follow, at most.
    files: u64,
    /// Bytes of all of them, at most.
    bytes: u64,
    /// Names, paths and texts were replaced.
    redacted: bool,
}

/// Place of a kind among the files. Tails come before segments: what is put into blocks while a trace is packed is then
/// in both, which readers can tell, and not in neither.
fn rank(kind: FileKind) -> u32 {
    match kind {
        FileKind::Info => 0,
        FileKind::Tail => 1,
        FileKind::Segment => 2,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
