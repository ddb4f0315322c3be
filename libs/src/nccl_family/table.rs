//! The family's functions by the release that brought them, for any prefix.
//!
//! A function that a library lacks costs nothing: its symbol is simply not found. What is left out, and why, is listed
//! beside the registry's test against the probe table.

/// Functions of one prefix, a line each: name, operation, arguments, properties.
macro_rules! family {
    ($prefix:literal: $($name:literal $op:ident $args:ident $traits:ident;)*) => {
        &[$($crate::spec::Function {
            symbol: concat!($prefix, $name),
            op: rankdiff_trace::Op::$op,
            args: $crate::nccl_family::args::$args,
            traits: $crate::nccl_family::traits::$traits,
        }),*]
    };
}

/// What every member of the family has.
macro_rules! core_functions {
    ($prefix:literal) => {
        $crate::nccl_family::family! { $prefix:
            "AllReduce" AllReduce ALL_REDUCE ENQUEUES;
            "Broadcast" Broadcast ROOTED ENQUEUES;
            "Bcast" Broadcast BCAST COMPOSED;
            "Reduce" Reduce REDUCE ENQUEUES;
            "AllGather" AllGather ALL_GATHER ENQUEUES;
            "ReduceScatter" ReduceScatter ALL_REDUCE ENQUEUES;
            "Send" Send SEND ENQUEUES;
            "Recv" Recv RECV ENQUEUES;
            "GroupStart" GroupStart NONE ENQUEUES;
            "GroupEnd" GroupEnd NONE RETURNS;
            "CommInitRank" CommInit INIT_RANK CREATES;
            "CommInitAll" CommInit INIT_ALL CREATES_COMPOSED;
            "CommDestroy" CommFree COMM RETURNS;
            "CommAbort" CommAbort COMM RETURNS;
            "CommCount" Wait COMM_SIZE QUERIES;
            "CommUserRank" Wait COMM_RANK QUERIES;
        }
    };
}

/// Added in 2.14.
macro_rules! since_2_14 {
    ($prefix:literal) => {
        $crate::nccl_family::family! { $prefix:
            "CommInitRankConfig" CommInit INIT_RANK CREATES;
            "CommFinalize" CommFinalize COMM KEEPS_HANDLE;
        }
    };
}

/// Communicator functions of 2.18 to 2.29.
macro_rules! later_communicators {
    ($prefix:literal) => {
        $crate::nccl_family::family! { $prefix:
            "CommSplit" CommSplit SPLIT CREATES;
            "GroupSimulateEnd" GroupEnd NONE SIMULATES;
            "CommInitRankScalable" CommInit INIT_SCALABLE CREATES;
            "CommShrink" CommShrink SHRINK CREATES;
            "CommRevoke" CommAbort COMM KEEPS_HANDLE;
            "CommGrow" CommGrow GROW CREATES;
        }
    };
}

/// Collectives of 2.28.
macro_rules! later_collectives {
    ($prefix:literal, $traits:ident) => {
        $crate::nccl_family::family! { $prefix:
            "AlltoAll" AllToAll ALL_GATHER $traits;
            "Gather" Gather ROOTED $traits;
            "Scatter" Scatter ROOTED $traits;
        }
    };
}

/// Forms of 2.31 with one more last argument; they do not go through the plain function.
macro_rules! collective_configs {
    ($prefix:literal) => {
        $crate::nccl_family::family! { $prefix:
            "AllReduceConfig" AllReduce ALL_REDUCE ENQUEUES;
            "BroadcastConfig" Broadcast ROOTED ENQUEUES;
            "ReduceConfig" Reduce REDUCE ENQUEUES;
            "AllGatherConfig" AllGather ALL_GATHER ENQUEUES;
            "ReduceScatterConfig" ReduceScatter ALL_REDUCE ENQUEUES;
            "AlltoAllConfig" AllToAll ALL_GATHER ENQUEUES;
            "GatherConfig" Gather ROOTED ENQUEUES;
            "ScatterConfig" Scatter ROOTED ENQUEUES;
        }
    };
}

pub(crate) use {collective_configs, core_functions, family, later_collectives, later_communicators, since_2_14};
