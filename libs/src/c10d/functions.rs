//! The methods of `c10d::ProcessGroupGloo`, under the mangled names of all releases.
//!
//! Methods give back an object through a hidden first argument, so their own first argument, `this`, has index 1 and what
//! they are given follows. The constructor and `monitoredBarrier` give nothing back.
//!
//! No return is recorded: these methods throw where torch times out or a peer is lost, and an exception does not pass a
//! return address that the kernel has replaced, so a return probe would end the job where the program would have caught it.

use rankdiff_trace::Op;

use crate::spec::{Arg, Function, Pass, Role, Traits};

/// What only a library with Gloo's process groups defines.
pub(super) const MARKER: &str =
    "_ZN4c10d16ProcessGroupGloo9allreduceERSt6vectorIN2at6TensorESaIS3_EERKNS_16AllreduceOptionsE";

/// Index of the first argument behind `this` of a method that gives back an object.
pub(super) const FIRST: u8 = 2;
/// Index of the constructor's store.
pub(super) const STORE: u8 = 1;

const ON_GROUP: &[Arg] = &[Arg { role: Role::Comm, index: 1, pass: Pass::Handle }];
const ON_GROUP_DIRECTLY: &[Arg] = &[Arg { role: Role::Comm, index: 0, pass: Pass::Handle }];
const MESSAGE: &[Arg] = &[
    Arg { role: Role::Comm, index: 1, pass: Pass::Handle },
    Arg { role: Role::Peer, index: 3, pass: Pass::I32 },
    Arg { role: Role::Tag, index: 4, pass: Pass::I32 },
];
const FROM_ANYBODY: &[Arg] =
    &[Arg { role: Role::Comm, index: 1, pass: Pass::Handle }, Arg { role: Role::Tag, index: 3, pass: Pass::I32 }];
const CREATE: &[Arg] = &[
    Arg { role: Role::NewComm, index: 0, pass: Pass::Handle },
    Arg { role: Role::MemberRank, index: 2, pass: Pass::I32 },
    Arg { role: Role::MemberCount, index: 3, pass: Pass::I32 },
];

/// Enqueues work and returns at once.
const ENQUEUES: Traits = Traits::NONE;
/// A receive from anybody: it has no position among the receives from one peer.
const FROM_ANY: Traits = Traits { partial: true, ..Traits::NONE };
/// Says what a group is; no call that other ranks' calls are compared with.
const TEACHES: Traits = Traits { auxiliary: true, ..Traits::NONE };

macro_rules! methods {
    ($($name:literal $op:ident $args:ident $traits:ident;)*) => {
        &[$(Function {
            symbol: concat!("_ZN4c10d16ProcessGroupGloo", $name),
            op: Op::$op,
            args: $args,
            traits: $traits,
        }),*]
    };
}

/// All methods.
pub(super) static FUNCTIONS: &[Function] = methods! {
    "C1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE"
        Wait CREATE TEACHES;
    "9allreduceERSt6vectorIN2at6TensorESaIS3_EERKNS_16AllreduceOptionsE" AllReduce ON_GROUP ENQUEUES;
    "19allreduce_coalescedERSt6vectorIN2at6TensorESaIS3_EERKNS_25AllreduceCoalescedOptionsE" AllReduce ON_GROUP ENQUEUES;
    "9broadcastERSt6vectorIN2at6TensorESaIS3_EERKNS_16BroadcastOptionsE" Broadcast ON_GROUP ENQUEUES;
    "6reduceERSt6vectorIN2at6TensorESaIS3_EERKNS_13ReduceOptionsE" Reduce ON_GROUP ENQUEUES;
    "9allgatherERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_16AllgatherOptionsE" AllGather ON_GROUP ENQUEUES;
    "19allgather_coalescedERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_16AllgatherOptionsE"
        AllGather ON_GROUP ENQUEUES;
    "15_allgather_baseERN2at6TensorES3_RKNS_16AllgatherOptionsE" AllGather ON_GROUP ENQUEUES;
    "17all_gather_singleERN2at6TensorES3_RKNS_16AllgatherOptionsE" AllGather ON_GROUP ENQUEUES;
    "31allgather_into_tensor_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_16AllgatherOptionsE"
        AllGather ON_GROUP ENQUEUES;
    "27all_gather_single_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_16AllgatherOptionsE"
        AllGather ON_GROUP ENQUEUES;
    "6gatherERSt6vectorIS1_IN2at6TensorESaIS3_EESaIS5_EERS5_RKNS_13GatherOptionsE" Gather ON_GROUP ENQUEUES;
    "7scatterERSt6vectorIN2at6TensorESaIS3_EERS1_IS5_SaIS5_EERKNS_14ScatterOptionsE" Scatter ON_GROUP ENQUEUES;
    "14reduce_scatterERSt6vectorIN2at6TensorESaIS3_EERS1_IS5_SaIS5_EERKNS_20ReduceScatterOptionsE"
        ReduceScatter ON_GROUP ENQUEUES;
    "20_reduce_scatter_baseERN2at6TensorES3_RKNS_20ReduceScatterOptionsE" ReduceScatter ON_GROUP ENQUEUES;
    "21reduce_scatter_singleERN2at6TensorES3_RKNS_20ReduceScatterOptionsE" ReduceScatter ON_GROUP ENQUEUES;
    "31reduce_scatter_tensor_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_20ReduceScatterOptionsE"
        ReduceScatter ON_GROUP ENQUEUES;
    "31reduce_scatter_single_coalescedERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_20ReduceScatterOptionsE"
        ReduceScatter ON_GROUP ENQUEUES;
    "13alltoall_baseERN2at6TensorES3_RSt6vectorIlSaIlEES7_RKNS_15AllToAllOptionsE" AllToAllV ON_GROUP ENQUEUES;
    "17all_to_all_singleERN2at6TensorES3_RSt6vectorIlSaIlEES7_RKNS_15AllToAllOptionsE" AllToAllV ON_GROUP ENQUEUES;
    "8alltoallERSt6vectorIN2at6TensorESaIS3_EES6_RKNS_15AllToAllOptionsE" AllToAllV ON_GROUP ENQUEUES;
    "7barrierERKNS_14BarrierOptionsE" Barrier ON_GROUP ENQUEUES;
    "16monitoredBarrierERKNS_14BarrierOptionsEb" Barrier ON_GROUP_DIRECTLY ENQUEUES;
    "4sendERSt6vectorIN2at6TensorESaIS3_EEii" Send MESSAGE ENQUEUES;
    "4recvERSt6vectorIN2at6TensorESaIS3_EEii" Recv MESSAGE ENQUEUES;
    "13recvAnysourceERSt6vectorIN2at6TensorESaIS3_EEi" Recv FROM_ANYBODY FROM_ANY;
};

/// How a method is given the tensor that its count and type are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tensors {
    /// None.
    None,
    /// One tensor, the argument with this index.
    One(u8),
    /// A vector of tensors, the argument with this index.
    List(u8),
    /// A tensor and the numbers of its rows for each member: the first index is the sent tensor's, behind the received one;
    /// the vectors follow, those of the received one first.
    Split(u8),
}

/// The name of a method without its class and arguments.
pub(super) fn method(function: &Function) -> &'static str {
    let name = function.symbol.strip_prefix("_ZN4c10d16ProcessGroupGloo").unwrap_or("");
    let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length = name.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    name.get(digits..digits + length).unwrap_or("")
}

/// Which argument tells count and type. The side that is significant on every member is taken: what is sent of an
/// all-gather or gather, what is received of a scatter or reduce-scatter.
pub(super) fn tensors(function: &Function) -> Tensors {
    match method(function) {
        "allreduce" | "allreduce_coalesced" | "broadcast" | "reduce" | "send" | "recv" | "recvAnysource" => {
            Tensors::List(FIRST)
        }
        "scatter" | "reduce_scatter" | "reduce_scatter_tensor_coalesced" | "reduce_scatter_single_coalesced" => {
            Tensors::List(FIRST)
        }
        "allgather" | "gather" | "allgather_into_tensor_coalesced" | "all_gather_single_coalesced" | "alltoall" => {
            Tensors::List(FIRST + 1)
        }
        "allgather_coalesced" => Tensors::List(FIRST + 1),
        "_reduce_scatter_base" | "reduce_scatter_single" => Tensors::One(FIRST),
        "_allgather_base" | "all_gather_single" => Tensors::One(FIRST + 1),
        "alltoall_base" | "all_to_all_single" => Tensors::Split(FIRST + 1),
        _ => Tensors::None,
    }
}

/// Index of the options with the reduction, or with the root.
pub(super) fn options(function: &Function) -> u8 {
    match tensors(function) {
        // One list of tensors and the options.
        Tensors::List(FIRST) if matches!(function.op, Op::AllReduce | Op::Broadcast | Op::Reduce) => FIRST + 1,
        _ => FIRST + 2,
    }
}
