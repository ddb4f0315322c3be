//! From raw recorded values to what a call says: the interface that each library implements.

use rankdiff_trace::{CommIdentity, DType, RedOp, TypeDef};

use crate::spec::Function;

/// Raw values of one call, as the probe recorded them.
#[derive(Debug, Clone, Copy)]
pub struct RawCall<'a> {
    /// Values in the order of [`Function::args`].
    pub args: &'a [u64],
    /// The first and second recorded memory region, as far as they could be read; empty if there is none.
    pub regions: [&'a [u8]; 2],
    /// Whether stack arguments could not be read.
    pub stack_unreadable: bool,
}

/// What the decoder may ask about the process and the call's communicator.
pub trait Context {
    /// Number of members of the call's communicator.
    fn comm_size(&self) -> Option<u32>;
    /// This process's rank in the call's communicator.
    fn comm_rank(&self) -> Option<u32>;
    /// Whether the call's communicator connects two groups.
    fn comm_is_inter(&self) -> bool;
    /// The data symbol at this address of the process (handles that are addresses of library globals, also where the
    /// executable holds a copy of them).
    fn symbol_at(&self, address: u64) -> Option<String>;
}

/// How the identity of a new communicator follows from the call that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lineage {
    /// From the parent, the ordinal of the call on the parent, and the colour (where the operation has one).
    #[default]
    Colour,
    /// The same, but members on one node make one communicator: the node is part of the identity.
    Node,
    /// Not at all: several communicators may come of one call, and nothing says which one this is.
    Unknown,
}

/// What a communicator's own object says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommFacts {
    /// What all members know it by.
    pub identity: CommIdentity,
    /// Name; empty if it has none.
    pub name: String,
    /// What it is for; empty if nobody said so.
    pub desc: String,
    /// Number of members.
    pub size: Option<u32>,
    /// This process's rank in it.
    pub rank: Option<u32>,
    /// It holds all ranks of the job.
    pub is_world: bool,
}

/// What a call says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decoded {
    /// Elements, as the operation counts them on this member; `None`: none or not significant here.
    pub count: Option<u64>,
    /// Element type.
    pub dtype: DType,
    /// Reduction.
    pub redop: RedOp,
    /// Root in the communicator's ranks.
    pub root: Option<u32>,
    /// The library's mark for 'this member is the root' (`MPI_ROOT`).
    pub root_is_self: bool,
    /// The library's mark for 'takes no part' (`MPI_PROC_NULL`).
    pub bystander: bool,
    /// Peer in the communicator's ranks.
    pub peer: Option<u32>,
    /// A receive from any source.
    pub any_source: bool,
    /// Tag.
    pub tag: Option<i64>,
    /// A receive with any tag.
    pub any_tag: bool,
    /// A buffer argument is the library's in-place mark.
    pub in_place: bool,
    /// Elements sent to each member.
    pub sends: Vec<u64>,
    /// Elements expected from each member.
    pub recvs: Vec<u64>,
    /// What the other side of the call says (elements and type), where both sides are significant on this member, must
    /// be equal, and are not: the receive side where `count` is the sent one, the send side where it is the received.
    pub other_side: Option<(u64, DType)>,
    /// Vectors exist but are longer than what was recorded, or the communicator's size is not known.
    pub vectors_cut: bool,
    /// Device stream.
    pub stream: u64,
    /// Colour of a split. `None` in a split whose lineage is [`Lineage::Colour`]: this member gets no new communicator.
    pub color: Option<i64>,
    /// Key of a split.
    pub key: Option<i64>,
    /// Number of members of a new communicator.
    pub new_size: Option<u32>,
    /// This member's rank in a new communicator.
    pub new_rank: Option<u32>,
    /// Identity that the arguments give a new communicator (a unique id), if they do.
    pub new_identity: CommIdentity,
    /// How the identity follows if `new_identity` is not known.
    pub lineage: Lineage,
    /// Name of a new communicator; empty if it has none.
    pub new_name: String,
    /// The new communicator need not hold all ranks of the job: a rank in it is no global rank.
    pub new_is_part: bool,
    /// What the call's communicator says of itself.
    pub comm: Option<CommFacts>,
    /// The new communicator connects two groups.
    pub new_inter: bool,
    /// An argument that belongs to the signature could not be read or understood.
    pub unreadable: bool,
}

/// An operation that a persistent request stands for, started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The communicator's handle.
    pub comm: u64,
    /// The function that made the request (its `op` is what was started).
    pub function: Function,
    /// What the request says.
    pub decoded: Decoded,
}

/// A communicator that exists without a creation call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predefined {
    /// Name for reports ('world', 'self').
    pub name: &'static str,
    /// Identity; of a communicator that every process has of its own, [`CommIdentity::UNKNOWN`].
    pub identity: CommIdentity,
    /// Whether it spans all ranks of the job (else it holds this process alone).
    pub world: bool,
}

/// Decodes one process's calls of one library. Keeps what it learns from constructors, so calls are given in order.
pub trait Decoder: Send {
    /// Decodes a call at its entry. Given the calls of every function, auxiliary ones included (what one of those frees,
    /// is forgotten here).
    fn enter(&mut self, function: &Function, raw: &RawCall<'_>, context: &dyn Context) -> Decoded;

    /// Learns from a return: `raw` is the entry's, `out` is the handle (or number) that the call wrote, where it writes
    /// one. Called for auxiliary functions as well. Gives a derived type only through [`Decoder::take_types`].
    fn exit(&mut self, function: &Function, raw: &RawCall<'_>, result: i64, out: Option<u64>, context: &dyn Context);

    /// The operations that a call of a function with [`Traits::starts`](crate::spec::Traits::starts) issues, in order.
    ///
    /// Such a call names requests and no communicator, so the recorder cannot count it: whoever numbers calls adds
    /// these to the recorded positions of their communicators. Starts that were lost are therefore missing from the
    /// positions after them, and nothing in the recorded counters shows it. Requests of other kinds
    /// (point-to-point), and those whose creation was not seen, are left out.
    fn started(&mut self, function: &Function, raw: &RawCall<'_>, context: &dyn Context) -> Vec<Started> {
        let _ = (function, raw, context);
        Vec::new()
    }

    /// The requests that a wait or start names, as far as they were recorded. A call that makes a request has it as its
    /// out handle.
    fn requests(&self, function: &Function, raw: &RawCall<'_>) -> Vec<u64> {
        let _ = (function, raw);
        Vec::new()
    }

    /// Derived types learnt since the last call of this, in [`Decoder::enter`] or [`Decoder::exit`]; to be written before
    /// the call that was just decoded.
    fn take_types(&mut self) -> Vec<TypeDef>;

    /// The communicator that this handle always means, if it is predefined.
    fn predefined(&self, handle: u64, context: &dyn Context) -> Option<Predefined>;

    /// Whether the handle means 'no communicator' (a member that a split leaves out).
    fn is_null_comm(&self, handle: u64, context: &dyn Context) -> bool;
}
