//! Probe descriptions: what to read at the entry and the return of one probed function.
//!
//! The attach cookie is the index of the [`ProbeDesc`] in the array map `PROBES`. The generic programs read nothing
//! else about a function, so adding one never changes the kernel side.

/// Most probe points at one time (size of the array map `PROBES`).
pub const MAX_PROBES: u32 = 16 * 1024;
/// Values that an entry event carries.
pub const MAX_ARGS: usize = 8;
/// Memory regions that an entry event may carry.
pub const MAX_REGIONS: usize = 2;
/// Bytes of one short region (a 128-byte unique id).
pub const SHORT_REGION: usize = 128;
/// Bytes of one long region (a count vector).
pub const LONG_REGION: usize = 512;

/// Values behind pointers that one probe gathers.
pub const MAX_CHAINS: usize = 16;
/// Pointers that are followed to one of them, the argument itself not counted.
pub const MAX_STEPS: usize = 3;
/// Bytes at the start of gathered memory that say what could be read: bit k stands for chain k.
pub const GATHERED_MASK: usize = 8;

/// Where a value is at function entry.
///
/// 0 to 5: integer argument registers in the calling convention's order (x86-64 System V: rdi rsi rdx rcx r8 r9).
/// 16 + k: the k-th 8-byte stack slot above the return address ([rsp + 8 + 8k] on x86-64). 255: nowhere.
pub type Source = u8;

/// First stack slot of [`Source`].
pub const SOURCE_STACK: Source = 16;
/// Highest stack slot that is read.
pub const MAX_STACK_SLOT: u8 = 23;
/// No such value.
pub const SOURCE_NONE: Source = 255;

/// Which counter a call advances.
pub mod counter {
    /// None.
    pub const NONE: u8 = 0;
    /// Collectives of the communicator.
    pub const COLLECTIVE: u8 = 1;
    /// Creations on the parent communicator.
    pub const CREATION: u8 = 2;
    /// Sends per (communicator, peer, tag).
    pub const SEND: u8 = 3;
    /// Receives per (communicator, peer, tag).
    pub const RECV: u8 = 4;
    /// The communicator is released, or another one is made in its place: its counters are dropped and its handle's
    /// generation grows.
    pub const FREE: u8 = 5;
}

/// How a handle is held.
pub mod handle {
    /// There is none.
    pub const NONE: u8 = 0;
    /// The low 32 bits of the value.
    pub const VALUE32: u8 = 1;
    /// The value.
    pub const VALUE64: u8 = 2;
    /// 32 bits at the address that the value is.
    pub const AT32: u8 = 3;
    /// 64 bits at the address that the value is.
    pub const AT64: u8 = 4;
}

/// How a memory region is read.
pub mod region {
    /// Not at all.
    pub const NONE: u8 = 0;
    /// [`SHORT_REGION`](super::SHORT_REGION) bytes at the address that the value is.
    pub const SHORT: u8 = 1;
    /// [`SHORT_REGION`](super::SHORT_REGION) bytes that lie in the argument area of the stack from the source's slot on.
    pub const SHORT_BY_VALUE: u8 = 2;
    /// Up to [`LONG_REGION`](super::LONG_REGION) bytes at the address that the value is, as far as they can be read.
    pub const LONG: u8 = 3;
    /// What the probe's [`Chains`](super::Chains) lead to, behind the mask of [`GATHERED_MASK`](super::GATHERED_MASK)
    /// bytes. Only as the first region, and the only one.
    pub const GATHERED: u8 = 4;
}

/// Flags of a [`ProbeDesc`].
pub mod flag {
    /// A return probe is attached: the entry is kept until the return, and calls below it are nested.
    pub const RETURNS: u32 = 1;
    /// The call opens a batch.
    pub const GROUP_START: u32 = 1 << 1;
    /// The call closes a batch.
    pub const GROUP_END: u32 = 1 << 2;
    /// The out handle may be set only when the batch ends; it is read again then.
    pub const OUT_AT_GROUP_END: u32 = 1 << 3;
    /// The out handle is a communicator's: its counters begin at 0 and its handle's generation grows.
    pub const MAKES_COMM: u32 = 1 << 4;
    /// Calls below this one are not nested parts of it but calls of their own (a group's closing call runs no others).
    pub const NOT_A_PARENT: u32 = 1 << 5;
    /// The entry probe sits on a later instruction than the return probe: the return address on the stack is replaced
    /// when the entry probe fires.
    pub const ENTRY_AFTER_EXIT: u32 = 1 << 6;
}

/// One memory region of a probe.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// Where the address or the first slot is.
    pub source: Source,
    /// How it is read ([`region`]).
    pub mode: u8,
}

/// The way to one value behind pointers: `steps` times the address at (address + offset), then `bytes` at the last offset.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// Where the first address is.
    pub source: Source,
    /// Pointers to follow, [`MAX_STEPS`] at most.
    pub steps: u8,
    /// Bytes to keep; 0: there is no such chain.
    pub bytes: u16,
    /// Where they go in the region; with `bytes` inside it.
    pub into: u16,
    /// Offset at each address on the way, and at the last.
    pub offsets: [u16; MAX_STEPS + 1],
}

/// What a probe with a region of mode [`region::GATHERED`] reads (array map `CHAINS`, by attach cookie).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chains {
    /// The chains; those that are not used come last.
    pub chains: [Chain; MAX_CHAINS],
}

const _: () = assert!(size_of::<Chain>() == 14 && size_of::<Chains>() == 14 * MAX_CHAINS);

// SAFETY: repr(C), integers only, no padding (size asserted above).
#[cfg(feature = "user")]
unsafe impl aya::Pod for Chains {}

/// What to do at one probe point.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeDesc {
    /// [`flag`]s.
    pub flags: u32,
    /// Bytes that the prologue pushed before the entry probe's instruction: added to the stack pointer at entry.
    pub entry_stack_shift: u16,
    /// Which counter the call advances ([`counter`]).
    pub counter: u8,
    /// Number of `args` in use.
    pub arg_count: u8,
    /// Values to record, in the order of the function's description; [`SOURCE_NONE`] beyond `arg_count`.
    pub args: [Source; MAX_ARGS],
    /// The communicator's handle.
    pub comm: Source,
    /// How it is held ([`handle`]).
    pub comm_handle: u8,
    /// Address that receives the new communicator's handle.
    pub out: Source,
    /// How the new handle is held at that address: [`handle::AT32`], [`handle::AT64`] or [`handle::NONE`].
    pub out_handle: u8,
    /// Peer of a send or receive (32 bits).
    pub peer: Source,
    /// Tag of a send or receive (32 bits).
    pub tag: Source,
    /// Memory to record.
    pub regions: [Region; MAX_REGIONS],
    /// Zero.
    pub reserved: [u8; 2],
    /// A call whose return address lies so far from the entry probe's address comes from the library itself and is a part
    /// of another call: for functions whose return may not be probed. Equal to `own_to`: not known.
    pub own_from: i32,
    /// The first distance behind that.
    pub own_to: i32,
}

impl ProbeDesc {
    /// A description that records the call and nothing of it.
    pub const EMPTY: ProbeDesc = ProbeDesc {
        flags: 0,
        entry_stack_shift: 0,
        counter: counter::NONE,
        arg_count: 0,
        args: [SOURCE_NONE; MAX_ARGS],
        comm: SOURCE_NONE,
        comm_handle: handle::NONE,
        out: SOURCE_NONE,
        out_handle: handle::NONE,
        peer: SOURCE_NONE,
        tag: SOURCE_NONE,
        regions: [Region { source: SOURCE_NONE, mode: region::NONE }; MAX_REGIONS],
        reserved: [0; 2],
        own_from: 0,
        own_to: 0,
    };
}

const _: () = assert!(size_of::<ProbeDesc>() == 36 && align_of::<ProbeDesc>() == 4);

// SAFETY: repr(C), integers only, no padding (size asserted above).
#[cfg(feature = "user")]
unsafe impl aya::Pod for ProbeDesc {}
