//! One recorded call and where it was made.

use crate::comm::CommRef;
use crate::datatype::{DType, RedOp};
use crate::op::Op;

/// Index of a call site among one stream's definitions; 0 stands for 'not known'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SiteRef(pub u32);

/// Properties of a call. Bit values are part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CallFlags(pub u32);

impl CallFlags {
    /// The non-blocking form (its return is not its completion).
    pub const NONBLOCKING: CallFlags = CallFlags(1);
    /// The send or receive buffer is the other one (`MPI_IN_PLACE`).
    pub const IN_PLACE: CallFlags = CallFlags(1 << 1);
    /// Made by another recorded call (`ncclBcast` calls `ncclBroadcast`); takes no position.
    pub const NESTED: CallFlags = CallFlags(1 << 2);
    /// Recorded into a graph, not executed; takes no position.
    pub const CAPTURED: CallFlags = CallFlags(1 << 3);
    /// The start of a persistent operation.
    pub const PERSISTENT: CallFlags = CallFlags(1 << 4);
    /// An argument that belongs to the signature could not be read: digests restart after it.
    pub const UNREADABLE: CallFlags = CallFlags(1 << 5);
    /// The vectors were longer than the recorder keeps: `sends` and `recvs` are incomplete and left out.
    pub const VECTORS_CUT: CallFlags = CallFlags(1 << 6);
    /// The call counts as complete on other members but is known not to be on this one.
    pub const INCOMPLETE: CallFlags = CallFlags(1 << 7);
    /// It completed although a partner made another call.
    pub const DONE: CallFlags = CallFlags(1 << 8);
    /// The root is this member and marked so by the library (`MPI_ROOT` on an intercommunicator).
    pub const ROOT_IS_SELF: CallFlags = CallFlags(1 << 9);
    /// This member takes no part although it calls (`MPI_PROC_NULL` on an intercommunicator).
    pub const BYSTANDER: CallFlags = CallFlags(1 << 10);
    /// A receive from any source.
    pub const ANY_SOURCE: CallFlags = CallFlags(1 << 11);
    /// A receive with any tag.
    pub const ANY_TAG: CallFlags = CallFlags(1 << 12);
    /// Inside a batch ([`Call::group`] is set).
    pub const GROUPED: CallFlags = CallFlags(1 << 13);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: CallFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub fn with(self, other: CallFlags) -> CallFlags {
        CallFlags(self.0 | other.0)
    }
}

/// What is known of a call's completion (which is not its return, unless the library blocks).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Completion {
    /// Nothing was observed.
    #[default]
    Unknown,
    /// Complete at this time (ns, the stream's monotonic clock).
    At(u64),
    /// Observed not to be complete when the recorder looked.
    Pending,
}

/// One call of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    /// What was called.
    pub op: Op,
    /// On which communicator (the parent for creations).
    pub comm: CommRef,
    /// The communicator that a creation made; [`CommRef::NONE`] otherwise or when none came of it.
    pub made: CommRef,
    /// Position on the communicator, from 0. Collectives: among collectives; creations: ordinal on the parent;
    /// point-to-point: ordinal per (communicator, peer, direction, tag). `None`: not counted or not known.
    pub seq: Option<u64>,
    /// Properties.
    pub flags: CallFlags,
    /// Elements, as the operation counts them for this member; `None`: none, or not significant here.
    pub count: Option<u64>,
    /// Element type.
    pub dtype: DType,
    /// Reduction.
    pub redop: RedOp,
    /// Root, in the communicator's ranks.
    pub root: Option<u32>,
    /// Peer of a send or receive, in the communicator's ranks.
    pub peer: Option<u32>,
    /// Tag of a send or receive; colour of a split.
    pub tag: Option<i64>,
    /// Elements that this member sends to each member; empty if not a vector form or not read.
    pub sends: Vec<u64>,
    /// Elements that this member expects from each member; empty if not a vector form or not read.
    pub recvs: Vec<u64>,
    /// Kernel thread id of the caller.
    pub thread: u32,
    /// Ordinal of the call on its thread, from 0; gaps in it are lost events.
    pub thread_seq: u64,
    /// Device stream or queue handle; 0 if none.
    pub stream: u64,
    /// Number of the batch on its thread, from 1; 0: not in a batch.
    pub group: u32,
    /// Entry time, ns of the stream's monotonic clock.
    pub enter: u64,
    /// Return time; `None`: not returned when last seen, or returns are not recorded for this function.
    pub exit: Option<u64>,
    /// Completion.
    pub completion: Completion,
    /// The function's result; `None` if not returned or not recorded. 0 is success in every library.
    pub result: Option<i64>,
    /// Where it was called.
    pub site: SiteRef,
    /// What the framework said the arguments were ('module.layer1.weight'); index into strings, 0 if nothing.
    pub label: u32,
    /// Global rank that made it; `None`: the communicator's owner, else the process's own rank.
    pub rank: Option<u32>,
}

#[expect(clippy::derivable_impls, reason = "no operation is a natural default; a barrier carries nothing")]
impl Default for Op {
    fn default() -> Op {
        Op::Barrier
    }
}

/// The return of a call that was written before it returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Return {
    /// Thread of the call.
    pub thread: u32,
    /// Ordinal of the call on its thread.
    pub thread_seq: u64,
    /// Return time, ns.
    pub exit: u64,
    /// The function's result.
    pub result: i64,
    /// The communicator that a creation made.
    pub made: CommRef,
    /// Completion learnt with or after the return.
    pub completion: Completion,
}

/// Whose frame it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum FrameKind {
    /// Compiled code.
    #[default]
    Native = 1,
    /// A Python frame.
    Python = 2,
    /// A frame known by text only (a scenario, another tool's file).
    Text = 3,
}

impl FrameKind {
    /// The kind with this code in the file format.
    pub fn from_code(code: u8) -> Option<FrameKind> {
        match code {
            1 => Some(FrameKind::Native),
            2 => Some(FrameKind::Python),
            3 => Some(FrameKind::Text),
            _ => None,
        }
    }
}

/// One frame of a call site. Empty strings and zeroes mean 'not known'.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Frame {
    /// Whose frame it is.
    pub kind: FrameKind,
    /// Function name.
    pub function: String,
    /// Source file.
    pub file: String,
    /// Source line.
    pub line: u32,
    /// Path of the mapped object.
    pub module: String,
    /// Build id of the object, hexadecimal.
    pub build_id: String,
    /// Offset of the return address in the object's file.
    pub offset: u64,
}

/// A call site: frames outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SiteDef {
    /// Index that calls refer to; never 0.
    pub id: SiteRef,
    /// Frames, outermost first.
    pub frames: Vec<Frame>,
}
