//! Domain types and the on-disk format of rankdiff traces.
//!
//! A job is a directory; each process incarnation writes its own append-only segments (docs/format.md is normative).
//! This crate knows no collective library by name and does no I/O but files.

pub mod block;
pub mod call;
mod columns;
pub mod comm;
pub mod datatype;
mod definitions;
pub mod digest;
pub mod error;
pub mod evidence;
pub mod header;
pub mod job;
mod join;
pub mod limits;
pub mod op;
mod payload;
mod queues;
pub mod rankset;
pub mod reader;
mod regular;
mod rows;
mod segment;
pub mod signature;
mod sizes;
pub mod stream;
pub mod stream_files;
#[cfg(feature = "testgen")]
pub mod testgen;
pub mod typesig;
mod wire;
pub mod writer;

pub use block::{BlockHeader, BlockKind};
pub use call::{Call, CallFlags, Completion, Frame, FrameKind, Return, SiteDef, SiteRef};
pub use comm::{CommDef, CommIdentity, CommRef, Level, Provenance, RankDef, RankSource, Semantics};
pub use datatype::{Basic, DType, RedOp, Reduction, TypeDef};
pub use digest::{CHECKPOINT_EVERY, ChainPoint, DigestState, Digests, P2pPoint, Restart};
pub use error::{Problem, ProblemKind, ReadError, WriteError};
pub use evidence::{
    Attribute, ClockSnapshot, EndedBy, Gap, GapCause, Life, LogLine, ProcessState, StepMark, ThreadState,
};
pub use header::{FORMAT_MAJOR, FORMAT_MINOR, SegmentHeader};
pub use job::{JobDir, JobInfo, read_job_info, write_job_info};
pub use op::{Op, OpKind};
pub use payload::{Decoded, SegmentEnd};
pub use rankset::RankSet;
pub use reader::{Block, BlockReader};
pub use signature::{Differences, Elements, Fields, Form, Part, Signature};
pub use stream::{ProcessKey, ProcessTrace, Record};
pub use stream_files::{ReadOutcome, StreamFiles};
pub use typesig::{NormalType, TypeTable, Unit};
pub use writer::{StreamWriter, Summary, WriterOptions};
