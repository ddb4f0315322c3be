//! Every bound of the format in one place. A reader refuses what is over them before it allocates; a writer stays below.
//!
//! The numbers are part of the format (docs/format.md, 'Limits'): raising one needs a new minor version.

/// Bytes of a segment's header.
pub const MAX_HEADER: usize = 64 << 10;
/// Bytes of a block's payload as stored.
pub const MAX_STORED: usize = 17 << 20;
/// Bytes of a block's payload after decompression.
pub const MAX_RAW: usize = 16 << 20;
/// Bytes of a block's digest table.
pub const MAX_TABLE: usize = 8 << 20;
/// Records in a block.
pub const MAX_RECORDS: usize = 65_536;
/// Bytes that one record may take in a payload.
pub const MAX_RECORD: usize = 8 << 20;
/// Bytes of one string.
pub const MAX_STRING: usize = 64 << 10;
/// Bytes that a block's strings may take once every reference to its string table is resolved.
pub const MAX_EXPANDED: usize = 64 << 20;
/// All definitions and evidence of a segment, references to strings resolved; or 32 times the file, if that is more.
pub const MAX_HELD: usize = 256 << 20;
/// Elements of a call's split vector.
pub const MAX_VECTOR: usize = 1 << 18;
/// Members that a communicator's definition lists.
pub const MAX_MEMBERS: usize = 1 << 20;
/// Runs of a derived type.
pub const MAX_RUNS: usize = 1 << 18;
/// Frames of a call site.
pub const MAX_FRAMES: usize = 512;
/// Blocks that one write puts behind the note of the tail's rows that they hold.
pub const MAX_WRITE: u64 = 4096;
/// Segments of one stream.
pub const MAX_SEGMENTS: u32 = 1_000_000;
/// Files of a trace that are looked at in one directory.
pub const MAX_FILES: usize = 1 << 20;
/// Bytes of all `job.HOST.json` of a directory together.
pub const MAX_JOB_INFOS: u64 = 256 << 20;
/// Files that cannot be read, each named for itself; further ones are only counted.
pub const MAX_NAMED: usize = 1000;
/// Bytes of a `job.HOST.json`.
pub const MAX_JOB_INFO: u64 = 1 << 20;

/// Bytes of the command line that a `job.HOST.json` is written with, a byte for the end of each word included. Escaped
/// and indented it takes at most eight times as much, which leaves the file below [`MAX_JOB_INFO`].
pub const MAX_COMMAND: usize = 64 << 10;

/// A writer seals a block when its records may take this much: one more record still fits below [`MAX_RAW`].
pub(crate) const SEAL_AT: usize = MAX_RAW - MAX_RECORD;
