//! How a library is described: its functions, where their arguments are and what each one means.
//!
//! Data only. The tracer turns a [`Function`] into a probe description, records raw values, and gives them back to the
//! library's [`Decoder`](crate::decode::Decoder).

use rankdiff_trace::{Level, Op, Semantics};

/// What an argument means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Address of the data to send (compared with the library's in-place mark only).
    SendBuffer,
    /// Address of the data to receive.
    RecvBuffer,
    /// Elements sent (or both sent and received).
    Count,
    /// Element type of the sent data (or of both).
    DType,
    /// Elements received per member, where the send side is not significant on this member.
    RecvCount,
    /// Element type of the received data.
    RecvDType,
    /// Reduction.
    Reduction,
    /// Root.
    Root,
    /// Peer of a send or receive.
    Peer,
    /// Tag of a send or receive.
    Tag,
    /// The communicator.
    Comm,
    /// Device stream.
    Stream,
    /// Colour of a split.
    Color,
    /// Key of a split.
    Key,
    /// Number of members of a new communicator.
    MemberCount,
    /// This member's rank in a new communicator.
    MemberRank,
    /// The 128-byte unique id, by value or at an address.
    UniqueId,
    /// Elements sent to each member: an array.
    SendCounts,
    /// Elements received from each member: an array.
    RecvCounts,
    /// Address that receives the new communicator's handle.
    NewComm,
    /// A derived type's constituents: array of block lengths.
    BlockLengths,
    /// A derived type's constituents: array of types.
    BlockTypes,
    /// Address that receives a new type's or reduction's handle.
    NewHandle,
    /// An existing type that a constructor builds on.
    OldType,
    /// A number a constructor needs (blocks, block length).
    Extent,
    /// A group of processes.
    Group,
    /// Ranks of a group that make up a new one: an array.
    Ranks,
    /// Ranges of a group's ranks that make up a new one: an array of (first, last, stride).
    RankRanges,
    /// Address that receives a new group's handle.
    NewGroup,
    /// A second communicator (of an intercommunicator's other side), a group, a topology: kept as it is.
    Other,
    /// Exit or error code.
    Code,
    /// A request, or the address that receives one.
    Request,
    /// Array of requests.
    Requests,
    /// What a split by hardware goes by.
    SplitType,
    /// Array of the members that a new communicator leaves out.
    ExcludedRanks,
    /// Array of a grid's extents.
    Dims,
    /// Array that says which of a grid's dimensions are kept.
    RemainingDims,
    /// Whether members may be renumbered.
    Reorder,
    /// Address that receives the number of members of the call's communicator.
    CommSize,
    /// Address that receives this member's rank in the call's communicator.
    CommRank,
}

/// How an argument is passed and how wide it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// A signed 32-bit value.
    I32,
    /// An unsigned 32-bit value (enumerations).
    U32,
    /// A signed 64-bit value.
    I64,
    /// An unsigned 64-bit value (sizes).
    U64,
    /// A handle of the library's width ([`Abi::handle_bytes`]).
    Handle,
    /// The address of a handle. [`Role::Comm`]: read at the entry. Any other role: written by the call, read at the
    /// return.
    HandleAt,
    /// The address of one handle that is read at the entry: a short memory region.
    HandleIn,
    /// The address of a 32-bit value that the call writes, read at the return.
    I32At,
    /// An address that is not followed.
    Pointer,
    /// 128 bytes by value: on x86-64 in the stack's argument area, taking no register. A short memory region.
    Bytes128,
    /// 128 bytes at an address: a short memory region.
    Bytes128At,
    /// An array of 32-bit values: a long memory region.
    Array32,
    /// An array of 64-bit values: a long memory region.
    Array64,
    /// An array of handles: a long memory region.
    HandleArray,
}

impl Pass {
    /// Whether the argument is recorded as a short memory region. A function with one has no other region.
    pub fn is_short_region(self) -> bool {
        matches!(self, Pass::Bytes128 | Pass::Bytes128At | Pass::HandleIn)
    }

    /// Whether the argument is recorded as a memory region.
    pub fn is_region(self) -> bool {
        self.is_short_region() || matches!(self, Pass::Array32 | Pass::Array64 | Pass::HandleArray)
    }
}

/// One argument of a function that is worth recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arg {
    /// What it means.
    pub role: Role,
    /// Its index among the integer and pointer parameters, from 0, counting a [`Pass::Bytes128`] parameter as none.
    /// For a [`Pass::Bytes128`] parameter itself: its first slot in the stack's argument area.
    pub index: u8,
    /// How it is passed.
    pub pass: Pass,
}

/// Something behind a pointer that a function is given: `steps` times the address at (address + offset), then `bytes` at
/// the last offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    /// What it is, for the library's decoder.
    pub name: &'static str,
    /// Index of the pointer among the integer and pointer parameters.
    pub index: u8,
    /// Pointers to follow behind the argument, at most three.
    pub steps: u8,
    /// Offset at each address on the way and at the last; zero behind it.
    pub offsets: [u16; 4],
    /// Size.
    pub bytes: u16,
}

/// A load or store of one of a function's first instructions, or an address that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// What is done.
    pub kind: AccessKind,
    /// Offset from the register.
    pub offset: u16,
    /// Bytes that are moved; 0 for an address.
    pub bytes: u8,
    /// The register moved is the function's argument with this index, not yet overwritten.
    pub argument: Option<u8>,
}

/// Kinds of [`Access`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Memory to a register.
    Load,
    /// A register to memory.
    Store,
    /// The address itself to a register.
    Address,
}

/// An ELF file's code, as far as a library looks at it.
pub trait Binary {
    /// Whether it defines a function of this name.
    fn defines(&self, symbol: &str) -> bool;
    /// What the first instructions of a function access relative to a register, in their order in the file; empty if there
    /// is no such function.
    fn accesses(&self, symbol: &str) -> Vec<Access>;
}

/// What an inspection of a file found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The build.
    pub abi: Abi,
    /// What cannot be recorded and why, for the user.
    pub notes: Vec<String>,
}

/// Nothing to find out: the symbols told it all.
pub fn nothing_to_inspect(abi: Abi, _: &dyn Binary) -> Inspected {
    Inspected { abi, notes: Vec::new() }
}

/// Nothing lies behind pointers.
pub fn no_fields(_: &Abi, _: &Function) -> Vec<Field> {
    Vec::new()
}

/// Properties of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Traits {
    /// The non-blocking form.
    pub nonblocking: bool,
    /// Its return is worth recording: it blocks, or it has a result that matters.
    pub returns: bool,
    /// It may call other public functions of the library (their calls are parts of it).
    pub calls_others: bool,
    /// It makes a persistent request instead of issuing the operation.
    pub persistent_init: bool,
    /// It is no call of the job's pattern but teaches the decoder something (type constructors, unique ids).
    pub auxiliary: bool,
    /// It polls at a high rate; probed only on request.
    pub high_rate: bool,
    /// Its out handle may be set only when the enclosing batch ends.
    pub out_at_group_end: bool,
    /// It releases a communicator only in part: the handle stays valid, so its counters stay too.
    pub keeps_handle: bool,
    /// It ends a batch without issuing it: the batch's calls never happened, although they were entered.
    pub simulated: bool,
    /// It issues persistent requests: [`Decoder::started`](crate::decode::Decoder::started) says which operations.
    pub starts: bool,
    /// Some members of the communicator rightly do not call it: it takes no ordinal on the communicator.
    pub partial: bool,
}

impl Traits {
    /// No properties ([`Default`] for constants).
    pub const NONE: Traits = Traits {
        nonblocking: false,
        returns: false,
        calls_others: false,
        persistent_init: false,
        auxiliary: false,
        high_rate: false,
        out_at_group_end: false,
        keeps_handle: false,
        simulated: false,
        starts: false,
        partial: false,
    };
}

/// One function of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Exported symbol. Aliases at the same address (`PMPI_X`, `pncclX`) need no entry: probes are placed once per
    /// address; [`Library::alias_prefixes`] finds the ones at other addresses.
    pub symbol: &'static str,
    /// What it does. Auxiliary functions and those that start persistent requests have no operation of their own and
    /// carry [`Op::Wait`], which takes no position.
    pub op: Op,
    /// The arguments that are recorded, at most eight, in the order of their recorded values.
    pub args: &'static [Arg],
    /// Properties.
    pub traits: Traits,
}

impl Function {
    /// The argument with this role.
    pub fn arg(&self, role: Role) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.role == role)
    }

    /// Position of the argument with this role among the recorded values.
    pub fn slot(&self, role: Role) -> Option<usize> {
        self.args.iter().position(|arg| arg.role == role)
    }

    /// The arguments that are recorded as memory regions, at most two, in the order of
    /// [`RawCall::regions`](crate::decode::RawCall::regions).
    pub fn regions(&self) -> impl Iterator<Item = &Arg> {
        self.args.iter().filter(|arg| arg.pass.is_region())
    }

    /// The argument whose value is the address of what the call writes, read at the return.
    pub fn out(&self) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.pass == Pass::I32At || (arg.pass == Pass::HandleAt && arg.role != Role::Comm))
    }

    /// The argument that is the handle of a new communicator: an object that is made in memory which the caller gives. Such
    /// a function is auxiliary and its return is not needed.
    pub fn made_in_place(&self) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.role == Role::NewComm && arg.pass == Pass::Handle)
    }
}

/// Differences between builds of one library that change how handles are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Abi {
    /// Name for people and the trace ('mpich', 'openmpi').
    pub name: &'static str,
    /// Width of a handle: 4 or 8.
    pub handle_bytes: u8,
    /// Where things lie in this build's objects.
    pub offsets: Offsets,
}

/// Offsets that [`Library::inspect`] found in a build; each library has its own numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Offsets([Option<u16>; 8]);

impl Offsets {
    /// None is known.
    pub const NONE: Offsets = Offsets([None; 8]);

    /// The offset with this number.
    pub fn get(&self, number: usize) -> Option<u16> {
        self.0.get(number).copied().flatten()
    }

    /// Notes an offset.
    pub fn set(&mut self, number: usize, offset: Option<u16>) {
        if let Some(slot) = self.0.get_mut(number) {
            *slot = offset;
        }
    }
}

/// Whether an ELF file defines a symbol.
pub type Defines<'a> = &'a dyn Fn(&str) -> bool;

/// A collective library.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// Name in traces and reports ('mpi', 'nccl').
    pub name: &'static str,
    /// File name patterns for finding it before a program starts (`libnccl.so*`); matching a mapped file is done by
    /// symbols, never by name.
    pub file_patterns: &'static [&'static str],
    /// An ELF file is this library if it defines one of these symbols.
    pub marker_symbols: &'static [&'static str],
    /// Prefixes that alias names carry (`P` for `PMPI_X`, `p` for `pncclX`).
    pub alias_prefixes: &'static [&'static str],
    /// Where its communicators live in the stack.
    pub level: Level,
    /// What its calls mean.
    pub semantics: Semantics,
    /// Its functions.
    pub functions: &'static [Function],
    /// The build's ABI, from the symbols the file defines (given as a lookup).
    pub abi: fn(defines: Defines<'_>) -> Abi,
    /// What the file's code says beyond that.
    pub inspect: fn(Abi, &dyn Binary) -> Inspected,
    /// What to read behind the pointers of a function of this build. Such a function has no other memory regions.
    pub fields: fn(&Abi, &Function) -> Vec<Field>,
    /// A fresh decoder for one process and this ABI.
    pub decoder: fn(Abi) -> Box<dyn crate::decode::Decoder>,
}

/// Number of functions in these parts of a table.
pub(crate) const fn total(parts: &[&[Function]]) -> usize {
    let mut count = 0;
    let mut part = 0;
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// The parts of a table in one array of [`total`] functions.
pub(crate) const fn concat<const N: usize>(parts: &[&[Function]]) -> [Function; N] {
    const NOTHING: Function = Function { symbol: "", op: Op::Wait, args: &[], traits: Traits::NONE };
    let mut all = [NOTHING; N];
    let mut next = 0;
    let mut part = 0;
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[next] = parts[part][index];
            next += 1;
            index += 1;
        }
        part += 1;
    }
    all
}
