//! Where the arguments of the family's functions are, and which returns matter.
//!
//! The index of the communicator of a reduce is 6, so on x86-64 it is on the stack.

/// Argument lists by shape. A name says which calls it fits; `Config` forms add one last argument, which is not recorded.
pub(crate) mod args {
    use crate::spec::{Arg, Pass, Role};

    macro_rules! shapes {
        ($($name:ident: $($role:ident $index:literal $pass:ident),*;)*) => {
            $(pub(crate) const $name: &[Arg] = &[$(Arg { role: Role::$role, index: $index, pass: Pass::$pass }),*];)*
        };
    }

    shapes! {
        NONE: ;
        ALL_REDUCE: SendBuffer 0 Pointer, RecvBuffer 1 Pointer, Count 2 U64, DType 3 U32, Reduction 4 U32,
            Comm 5 Handle, Stream 6 Pointer;
        REDUCE: SendBuffer 0 Pointer, RecvBuffer 1 Pointer, Count 2 U64, DType 3 U32, Reduction 4 U32, Root 5 I32,
            Comm 6 Handle, Stream 7 Pointer;
        BCAST: SendBuffer 0 Pointer, RecvBuffer 0 Pointer, Count 1 U64, DType 2 U32, Root 3 I32, Comm 4 Handle,
            Stream 5 Pointer;
        ROOTED: SendBuffer 0 Pointer, RecvBuffer 1 Pointer, Count 2 U64, DType 3 U32, Root 4 I32, Comm 5 Handle,
            Stream 6 Pointer;
        ALL_GATHER: SendBuffer 0 Pointer, RecvBuffer 1 Pointer, Count 2 U64, DType 3 U32, Comm 4 Handle,
            Stream 5 Pointer;
        ALL_TO_ALL_V: SendBuffer 0 Pointer, SendCounts 1 Array64, RecvBuffer 3 Pointer, RecvCounts 4 Array64,
            DType 6 U32, Comm 7 Handle, Stream 8 Pointer;
        ALL_TO_ALL_D: SendBuffer 0 Pointer, SendCounts 1 Array64, RecvBuffer 2 Pointer, RecvCounts 3 Array64,
            DType 4 U32, Comm 5 Handle, Stream 6 Pointer;
        SEND: SendBuffer 0 Pointer, Count 1 U64, DType 2 U32, Peer 3 I32, Comm 4 Handle, Stream 5 Pointer;
        RECV: RecvBuffer 0 Pointer, Count 1 U64, DType 2 U32, Peer 3 I32, Comm 4 Handle, Stream 5 Pointer;
        INIT_RANK: NewComm 0 HandleAt, MemberCount 1 I32, UniqueId 0 Bytes128, MemberRank 2 I32;
        INIT_SCALABLE: NewComm 0 HandleAt, MemberCount 1 I32, MemberRank 2 I32, UniqueId 4 Bytes128At;
        INIT_ALL: NewComm 0 HandleAt, MemberCount 1 I32;
        SPLIT: Comm 0 Handle, Color 1 I32, Key 2 I32, NewComm 3 HandleAt;
        SHRINK: Comm 0 Handle, ExcludedRanks 1 Array32, Extent 2 I32, NewComm 3 HandleAt;
        GROW: Comm 0 Handle, MemberCount 1 I32, MemberRank 3 I32, NewComm 4 HandleAt;
        COMM: Comm 0 Handle;
        COMM_SIZE: Comm 0 Handle, CommSize 1 I32At;
        COMM_RANK: Comm 0 Handle, CommRank 1 I32At;
    }
}

/// Properties by kind of function.
pub(crate) mod traits {
    use crate::spec::Traits;

    /// Enqueues work and returns at once: its return says nothing. Up to NCCL 2.23 sends and receives open and close a
    /// batch of their own through the public functions; that empty batch is harmless and not worth a return probe on
    /// every send.
    pub(crate) const ENQUEUES: Traits = Traits::NONE;
    /// Enqueues work through other public functions, whose calls are parts of it. Telling them apart takes a return
    /// probe (a quarter of a microsecond), and only functions known to need it get one.
    pub(crate) const COMPOSED: Traits = Traits { returns: true, calls_others: true, ..Traits::NONE };
    /// Makes a communicator; in a batch the handle may be set only at its end.
    pub(crate) const CREATES: Traits = Traits { returns: true, out_at_group_end: true, ..Traits::NONE };
    /// The same through other public functions (the unique id is made inside).
    pub(crate) const CREATES_COMPOSED: Traits = Traits { calls_others: true, ..CREATES };
    /// May block, and its result matters.
    pub(crate) const RETURNS: Traits = Traits { returns: true, ..Traits::NONE };
    /// Winds a communicator down, whose handle is released later.
    pub(crate) const KEEPS_HANDLE: Traits = Traits { keeps_handle: true, ..RETURNS };
    /// Ends a batch and only estimates it.
    pub(crate) const SIMULATES: Traits = Traits { simulated: true, ..RETURNS };
    /// Tells the program something about a communicator, and so the recorder.
    pub(crate) const QUERIES: Traits = Traits { auxiliary: true, ..RETURNS };
}
