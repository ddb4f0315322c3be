//! Domain types and the on-disk format of rankdiff traces.
//!
//! A job is a directory; each process incarnation writes its own append-only segments (docs/format.md is normative).
//! This crate knows no collective library by name and does no I/O but files.

pub mod admission;
pub mod block;
pub mod call;
mod columns;
pub mod comm;
pub mod datatype;
mod definitions;
pub mod digest;
pub mod directory;
mod each_stream;
pub mod error;
pub mod evidence;
mod flushes;
pub mod follow;
pub mod frontier;
pub mod header;
mod holes;
pub mod inventory;
pub mod job;
mod job_info;
mod join;
pub mod limits;
pub mod op;
pub mod outline;
#[cfg(feature = "pack")]
pub mod pack;
mod payload;
mod queues;
pub mod rankset;
pub mod reader;
#[cfg(feature = "pack")]
pub mod redact;
mod regular;
mod repeated;
pub mod retain;
mod rows;
mod segment;
pub mod signature;
mod signature_hash;
mod sizes;
pub mod stream;
pub mod stream_files;
pub mod tail;
#[cfg(feature = "testgen")]
pub mod testgen;
pub mod typesig;
mod wire;
pub mod writer;

pub use admission::{Refusal, admit};
pub use block::{BlockHeader, BlockKind};
pub use call::{Call, CallFlags, Completion, Frame, FrameKind, Return, SiteDef, SiteRef};
pub use comm::{CommDef, CommIdentity, CommRef, Level, Provenance, RankDef, RankSource, Semantics};
pub use datatype::{Basic, DType, RedOp, Reduction, TypeDef};
pub use digest::{CHECKPOINT_EVERY, ChainPoint, DigestState, Digests, P2pPoint, Restart};
pub use directory::{Owner, TraceDir};
pub use each_stream::each_stream;
pub use error::{Problem, ProblemKind, ReadError, WriteError};
pub use evidence::{
    Attribute, ClockSnapshot, EndedBy, Gap, GapCause, Life, LogLine, ProcessState, StepMark, ThreadState,
};
pub use follow::{Batch, FollowState, Follower, JobFollower, StreamBatch};
pub use header::{FORMAT_MAJOR, FORMAT_MINOR, SegmentHeader};
pub use inventory::Inventory;
pub use job::{FileKind, JobDir, JobFile, JobInfo, read_job_info, write_job_info};
pub use op::{Op, OpKind};
pub use outline::{OutlineBlock, SharedMembers, StreamOutline, read_outlines};
pub use payload::{Decoded, SegmentEnd, TailRows};
pub use rankset::RankSet;
pub use reader::{Block, BlockReader};
pub use retain::{Dropped, Keep, RetainError, Retention, SealedSegment};
pub use signature::{Differences, Elements, Fields, Form, Part, Signature};
pub use stream::{Elided, ElidedChain, ProcessKey, ProcessTrace, Record};
pub use stream_files::{ReadOutcome, StreamFiles};
pub use tail::{Presence, RowChain, Tail, TailHeader, TailOptions, TailPart, TailSnapshot, TailState, WriterIdentity};
pub use typesig::{NormalType, TypeTable, Unit};
pub use writer::{StreamWriter, Summary, WriterOptions};
