//! MPI's functions and where their arguments are.
//!
//! Every collective has up to seven forms (blocking, non-blocking, persistent, each with 32-bit and with 64-bit counts, and
//! Open MPI 4's name for the persistent one), which differ in the width of counts and in where the request is. Only the
//! buffer that may hold the in-place mark is recorded.

use rankdiff_trace::Op;

use crate::spec::{Arg, Function, Pass, Role, Traits, concat, total};

/// Returns when its part is done; MPI-internal calls of public functions below it are parts of it.
const BLOCKING: Traits = Traits { returns: true, calls_others: true, ..Traits::NONE };
/// Gives a request, which the return carries.
const NONBLOCKING: Traits = Traits { nonblocking: true, returns: true, ..Traits::NONE };
/// Gives a request that others start.
const PERSISTENT: Traits = Traits { persistent_init: true, returns: true, ..Traits::NONE };
/// Called by some members of the communicator only.
const PARTIAL: Traits = Traits { partial: true, ..BLOCKING };
/// Waits for requests.
const WAITS: Traits = Traits { returns: true, ..Traits::NONE };
/// Starts persistent requests; as with every non-blocking call, its return says nothing.
const STARTS: Traits = Traits { starts: true, nonblocking: true, ..Traits::NONE };
/// Its result is worth knowing, it is no call of the job's pattern.
const TEACHES: Traits = Traits { auxiliary: true, returns: true, ..Traits::NONE };
/// Ends what an earlier call taught.
const FORGETS: Traits = Traits { auxiliary: true, ..Traits::NONE };

macro_rules! pass {
    (count small) => {
        Pass::I32
    };
    (count large) => {
        Pass::I64
    };
    (counts small) => {
        Pass::Array32
    };
    (counts large) => {
        Pass::Array64
    };
    (int $width:ident) => {
        Pass::I32
    };
    (handle $width:ident) => {
        Pass::Handle
    };
    (handle_at $width:ident) => {
        Pass::HandleAt
    };
    (handle_in $width:ident) => {
        Pass::HandleIn
    };
    (handles $width:ident) => {
        Pass::HandleArray
    };
    (ints $width:ident) => {
        Pass::Array32
    };
    (int_at $width:ident) => {
        Pass::I32At
    };
    (pointer $width:ident) => {
        Pass::Pointer
    };
}

macro_rules! function {
    ($symbol:expr, $op:ident, $traits:ident, $width:ident, [$($role:ident $index:expr, $pass:ident;)*]) => {
        Function {
            symbol: $symbol,
            op: Op::$op,
            args: &[$(Arg { role: Role::$role, index: $index, pass: pass!($pass $width) }),*],
            traits: $traits,
        }
    };
}

/// The forms of a collective without and with 64-bit counts. The request follows the communicator, in the persistent
/// forms after an info argument.
macro_rules! collective {
    (small $op:ident $name:literal $lower:literal comm $comm:literal; $($role:ident $index:literal $pass:ident;)*) => {
        &[
            function!(concat!("MPI_", $name), $op, BLOCKING, small, [$($role $index, $pass;)* Comm $comm, handle;]),
            function!(concat!("MPI_I", $lower), $op, NONBLOCKING, small,
                [$($role $index, $pass;)* Comm $comm, handle; Request $comm + 1, handle_at;]),
            function!(concat!("MPI_", $name, "_init"), $op, PERSISTENT, small,
                [$($role $index, $pass;)* Comm $comm, handle; Request $comm + 2, handle_at;]),
            function!(concat!("MPIX_", $name, "_init"), $op, PERSISTENT, small,
                [$($role $index, $pass;)* Comm $comm, handle; Request $comm + 2, handle_at;]),
        ]
    };
    (large $op:ident $name:literal $lower:literal comm $comm:literal; $($role:ident $index:literal $pass:ident;)*) => {
        &[
            function!(concat!("MPI_", $name, "_c"), $op, BLOCKING, large, [$($role $index, $pass;)* Comm $comm, handle;]),
            function!(concat!("MPI_I", $lower, "_c"), $op, NONBLOCKING, large,
                [$($role $index, $pass;)* Comm $comm, handle; Request $comm + 1, handle_at;]),
            function!(concat!("MPI_", $name, "_init_c"), $op, PERSISTENT, large,
                [$($role $index, $pass;)* Comm $comm, handle; Request $comm + 2, handle_at;]),
        ]
    };
}

/// All collectives that carry data, for one width of counts.
macro_rules! collectives {
    ($width:ident) => {
        &[
            collective!($width Broadcast "Bcast" "bcast" comm 4;
                Count 1 count; DType 2 handle; Root 3 int;),
            collective!($width AllReduce "Allreduce" "allreduce" comm 5;
                SendBuffer 0 pointer; Count 2 count; DType 3 handle; Reduction 4 handle;),
            collective!($width Reduce "Reduce" "reduce" comm 6;
                SendBuffer 0 pointer; Count 2 count; DType 3 handle; Reduction 4 handle; Root 5 int;),
            collective!($width ReduceScatter "Reduce_scatter_block" "reduce_scatter_block" comm 5;
                SendBuffer 0 pointer; Count 2 count; DType 3 handle; Reduction 4 handle;),
            collective!($width ReduceScatterV "Reduce_scatter" "reduce_scatter" comm 5;
                SendBuffer 0 pointer; RecvCounts 2 counts; DType 3 handle; Reduction 4 handle;),
            collective!($width Scan "Scan" "scan" comm 5;
                SendBuffer 0 pointer; Count 2 count; DType 3 handle; Reduction 4 handle;),
            collective!($width Exscan "Exscan" "exscan" comm 5;
                SendBuffer 0 pointer; Count 2 count; DType 3 handle; Reduction 4 handle;),
            collective!($width AllGather "Allgather" "allgather" comm 6;
                SendBuffer 0 pointer; Count 1 count; DType 2 handle; RecvCount 4 count; RecvDType 5 handle;),
            collective!($width AllGatherV "Allgatherv" "allgatherv" comm 7;
                SendBuffer 0 pointer; Count 1 count; DType 2 handle; RecvCounts 4 counts; RecvDType 6 handle;),
            collective!($width Gather "Gather" "gather" comm 7;
                SendBuffer 0 pointer; Count 1 count; DType 2 handle; RecvCount 4 count; RecvDType 5 handle; Root 6 int;),
            collective!($width GatherV "Gatherv" "gatherv" comm 8;
                SendBuffer 0 pointer; Count 1 count; DType 2 handle; RecvCounts 4 counts; RecvDType 6 handle;
                Root 7 int;),
            collective!($width Scatter "Scatter" "scatter" comm 7;
                Count 1 count; DType 2 handle; RecvBuffer 3 pointer; RecvCount 4 count; RecvDType 5 handle; Root 6 int;),
            collective!($width ScatterV "Scatterv" "scatterv" comm 8;
                SendCounts 1 counts; DType 3 handle; RecvBuffer 4 pointer; RecvCount 5 count; RecvDType 6 handle;
                Root 7 int;),
            collective!($width AllToAll "Alltoall" "alltoall" comm 6;
                SendBuffer 0 pointer; Count 1 count; DType 2 handle; RecvCount 4 count; RecvDType 5 handle;),
            collective!($width AllToAllV "Alltoallv" "alltoallv" comm 8;
                SendBuffer 0 pointer; SendCounts 1 counts; DType 3 handle; RecvCounts 5 counts; RecvDType 7 handle;),
            collective!($width AllToAllW "Alltoallw" "alltoallw" comm 8;
                SendBuffer 0 pointer;),
            collective!($width NeighborAllGather "Neighbor_allgather" "neighbor_allgather" comm 6;
                Count 1 count; DType 2 handle;),
            collective!($width NeighborAllGatherV "Neighbor_allgatherv" "neighbor_allgatherv" comm 7;
                Count 1 count; DType 2 handle;),
            collective!($width NeighborAllToAll "Neighbor_alltoall" "neighbor_alltoall" comm 6;
                Count 1 count; DType 2 handle;),
            collective!($width NeighborAllToAllV "Neighbor_alltoallv" "neighbor_alltoallv" comm 8;
                DType 3 handle;),
            collective!($width NeighborAllToAllW "Neighbor_alltoallw" "neighbor_alltoallw" comm 8;),
        ]
    };
}

/// Functions with one form: symbol, operation, properties, arguments.
macro_rules! functions {
    ($($symbol:literal $op:ident $traits:ident: $($role:ident $index:literal $pass:ident),*;)*) => {
        &[$(function!($symbol, $op, $traits, small, [$($role $index, $pass;)*])),*]
    };
}

/// Type constructors, each for one width of counts.
macro_rules! constructors {
    ($width:ident: $($symbol:literal: $($role:ident $index:literal $pass:ident),*;)*) => {
        &[$(function!($symbol, Wait, TEACHES, $width, [$($role $index, $pass;)*])),*]
    };
}

const BARRIER: &[Function] = collective!(small Barrier "Barrier" "barrier" comm 0;);

/// Communicators. Only the root's arguments of a spawn matter, and only the leaders' of an intercommunicator.
/// Open MPI sets the handle of a non-blocking copy only on completion: that copy is then one whose creation was not seen.
/// Not here: creations without a parent communicator and without anything to tell them by (`MPI_Comm_join`,
/// `MPI_Intercomm_create_from_groups`).
const COMMUNICATORS: &[Function] = functions! {
    "MPI_Comm_split" CommSplit BLOCKING: Comm 0 handle, Color 1 int, Key 2 int, NewComm 3 handle_at;
    "MPI_Comm_split_type" CommSplit BLOCKING: Comm 0 handle, SplitType 1 int, Key 2 int, NewComm 4 handle_at;
    "MPI_Comm_dup" CommDup BLOCKING: Comm 0 handle, NewComm 1 handle_at;
    "MPI_Comm_dup_with_info" CommDup BLOCKING: Comm 0 handle, NewComm 2 handle_at;
    "MPI_Comm_idup" CommDup NONBLOCKING: Comm 0 handle, NewComm 1 handle_at;
    "MPI_Comm_idup_with_info" CommDup NONBLOCKING: Comm 0 handle, NewComm 2 handle_at;
    "MPI_Comm_create" CommCreate BLOCKING: Comm 0 handle, Group 1 handle, NewComm 2 handle_at;
    "MPI_Comm_create_group" CommCreate PARTIAL: Comm 0 handle, Group 1 handle, Tag 2 int, NewComm 3 handle_at;
    "MPI_Comm_create_from_group" CommInit BLOCKING: NewComm 4 handle_at;
    "MPI_Cart_create" TopologyCreate BLOCKING:
        Comm 0 handle, Extent 1 int, Dims 2 ints, Reorder 4 int, NewComm 5 handle_at;
    "MPI_Cart_sub" CommSplit BLOCKING: Comm 0 handle, RemainingDims 1 ints, NewComm 2 handle_at;
    "MPI_Graph_create" TopologyCreate BLOCKING: Comm 0 handle, MemberCount 1 int, Reorder 4 int, NewComm 5 handle_at;
    "MPI_Dist_graph_create" TopologyCreate BLOCKING: Comm 0 handle, Reorder 7 int, NewComm 8 handle_at;
    "MPI_Dist_graph_create_adjacent" TopologyCreate BLOCKING: Comm 0 handle, Reorder 8 int, NewComm 9 handle_at;
    "MPI_Intercomm_create" IntercommCreate BLOCKING: Comm 0 handle, NewComm 5 handle_at;
    "MPI_Intercomm_merge" IntercommMerge BLOCKING: Comm 0 handle, NewComm 2 handle_at;
    "MPI_Comm_spawn" IntercommCreate BLOCKING: Root 4 int, Comm 5 handle, NewComm 6 handle_at;
    "MPI_Comm_spawn_multiple" IntercommCreate BLOCKING: Root 5 int, Comm 6 handle, NewComm 7 handle_at;
    "MPI_Comm_accept" IntercommCreate BLOCKING: Root 2 int, Comm 3 handle, NewComm 4 handle_at;
    "MPI_Comm_connect" IntercommCreate BLOCKING: Root 2 int, Comm 3 handle, NewComm 4 handle_at;
    "MPI_Comm_free" CommFree BLOCKING: Comm 0 handle_at;
    "MPI_Comm_disconnect" CommFree BLOCKING: Comm 0 handle_at;
    "MPI_Comm_size" Wait TEACHES: Comm 0 handle, CommSize 1 int_at;
    "MPI_Comm_rank" Wait TEACHES: Comm 0 handle, CommRank 1 int_at;
};

/// Groups that list ranks of the world's. Handles that other constructors give are not known; they are forgotten when they
/// are freed like all others, so that a handle never means an earlier group.
const GROUPS: &[Function] = functions! {
    "MPI_Comm_group" Wait TEACHES: Comm 0 handle, NewGroup 1 handle_at;
    "MPI_Group_incl" Wait TEACHES: Group 0 handle, Extent 1 int, Ranks 2 ints, NewGroup 3 handle_at;
    "MPI_Group_excl" Wait TEACHES: Group 0 handle, Extent 1 int, ExcludedRanks 2 ints, NewGroup 3 handle_at;
    "MPI_Group_range_incl" Wait TEACHES: Group 0 handle, Extent 1 int, RankRanges 2 ints, NewGroup 3 handle_at;
    "MPI_Group_free" Wait FORGETS: Group 0 handle_in;
};

/// Start and end of the library.
const LIFECYCLE: &[Function] = functions! {
    "MPI_Init" Init BLOCKING: ;
    "MPI_Init_thread" Init BLOCKING: ;
    "MPI_Finalize" Finalize BLOCKING: ;
    "MPI_Abort" Abort BLOCKING: Comm 0 handle, Code 1 int;
};

/// Requests. Waits that end with any one request of several are not here: which one does not stand in the arguments.
const REQUESTS: &[Function] = functions! {
    "MPI_Wait" Wait WAITS: Request 0 handle_in;
    "MPI_Waitall" Wait WAITS: Extent 0 int, Requests 1 handles;
    "MPI_Start" Wait STARTS: Request 0 handle_in;
    "MPI_Startall" Wait STARTS: Extent 0 int, Requests 1 handles;
    "MPI_Request_free" Wait FORGETS: Request 0 handle_in;
};

/// Collectives that make something other than a communicator.
const FILES_AND_WINDOWS: &[Function] = functions! {
    "MPI_File_open" FileCollective BLOCKING: Comm 0 handle;
    "MPI_Win_create" WindowCollective BLOCKING: Comm 4 handle;
    "MPI_Win_create_c" WindowCollective BLOCKING: Comm 4 handle;
    "MPI_Win_allocate" WindowCollective BLOCKING: Comm 3 handle;
    "MPI_Win_allocate_c" WindowCollective BLOCKING: Comm 3 handle;
    "MPI_Win_allocate_shared" WindowCollective BLOCKING: Comm 3 handle;
    "MPI_Win_allocate_shared_c" WindowCollective BLOCKING: Comm 3 handle;
    "MPI_Win_create_dynamic" WindowCollective BLOCKING: Comm 1 handle;
};

/// Constructors of derived types, those that MPI-3 removed included: libraries still export them.
const TYPES: &[Function] = constructors! { small:
    "MPI_Type_contiguous": Extent 0 count, OldType 1 handle, NewHandle 2 handle_at;
    "MPI_Type_vector": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hvector": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_hvector": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_indexed": Extent 0 count, BlockLengths 1 counts, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hindexed": Extent 0 count, BlockLengths 1 counts, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_hindexed": Extent 0 count, BlockLengths 1 counts, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_indexed_block": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hindexed_block": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_struct": Extent 0 count, BlockLengths 1 counts, BlockTypes 3 handles, NewHandle 4 handle_at;
    "MPI_Type_struct": Extent 0 count, BlockLengths 1 counts, BlockTypes 3 handles, NewHandle 4 handle_at;
    "MPI_Type_create_subarray": Extent 0 int, BlockLengths 2 counts, OldType 5 handle, NewHandle 6 handle_at;
    "MPI_Type_create_darray": OldType 8 handle, NewHandle 9 handle_at;
    "MPI_Type_create_resized": OldType 0 handle, NewHandle 3 handle_at;
    "MPI_Type_dup": OldType 0 handle, NewHandle 1 handle_at;
};

const LARGE_TYPES: &[Function] = constructors! { large:
    "MPI_Type_contiguous_c": Extent 0 count, OldType 1 handle, NewHandle 2 handle_at;
    "MPI_Type_vector_c": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hvector_c": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_indexed_c": Extent 0 count, BlockLengths 1 counts, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hindexed_c": Extent 0 count, BlockLengths 1 counts, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_indexed_block_c": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_hindexed_block_c": Extent 0 count, Extent 1 count, OldType 3 handle, NewHandle 4 handle_at;
    "MPI_Type_create_struct_c": Extent 0 count, BlockLengths 1 counts, BlockTypes 3 handles, NewHandle 4 handle_at;
    "MPI_Type_create_subarray_c": Extent 0 int, BlockLengths 2 counts, OldType 5 handle, NewHandle 6 handle_at;
    "MPI_Type_create_darray_c": OldType 8 handle, NewHandle 9 handle_at;
    "MPI_Type_create_resized_c": OldType 0 handle, NewHandle 3 handle_at;
};

const TYPE_ENDS: &[Function] = functions! {
    "MPI_Type_free" Wait FORGETS: OldType 0 handle_in;
};

const SMALL: [Function; total(collectives!(small))] = concat(collectives!(small));
const LARGE: [Function; total(collectives!(large))] = concat(collectives!(large));
const PARTS: &[&[Function]] = &[
    BARRIER,
    &SMALL,
    &LARGE,
    COMMUNICATORS,
    GROUPS,
    LIFECYCLE,
    REQUESTS,
    FILES_AND_WINDOWS,
    TYPES,
    LARGE_TYPES,
    TYPE_ENDS,
];

/// All of them.
pub(super) static FUNCTIONS: [Function; total(PARTS)] = concat(PARTS);
