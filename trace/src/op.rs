//! What a call does: the operations of collective libraries under the field's common (torch) names.
//!
//! The numbers are part of the file format (docs/format.md): never reuse or renumber one.

use std::fmt;

/// What an operation is to the alignment: which counter it advances and which rules pair it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// Every member takes part; takes a position (sequence number) on its communicator.
    Collective,
    /// One sender, one receiver; counted per (communicator, peer, direction, tag).
    PointToPoint,
    /// Creates a communicator; collective over the parent, counted on the parent apart from collectives.
    CommCreate,
    /// Releases a communicator.
    CommFree,
    /// Start or end of the library's use by this process.
    Lifecycle,
    /// Opens or closes a batch of calls that are issued together.
    Group,
    /// Waits for earlier calls; takes no position.
    Wait,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $kind:ident;)*) => {
        /// An operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Op { $($(#[$doc])* $variant = $code,)* }

        impl Op {
            /// Every operation, in the order of their codes.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// The operation with this code in the file format.
            #[inline]
            pub fn from_code(code: u16) -> Option<Op> {
                match code { $($code => Some(Op::$variant),)* _ => None }
            }

            /// The name in snake_case, as torch names it.
            pub fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// What the operation is to the alignment.
            #[inline]
            pub fn kind(self) -> OpKind {
                match self { $(Op::$variant => OpKind::$kind,)* }
            }
        }
    };
}

ops! {
    /// All members wait for each other.
    Barrier = 1, "barrier", Collective;
    /// Reduction whose result every member gets.
    AllReduce = 2, "all_reduce", Collective;
    /// One member's data to all.
    Broadcast = 3, "broadcast", Collective;
    /// Reduction whose result the root gets.
    Reduce = 4, "reduce", Collective;
    /// Every member's block to all.
    AllGather = 5, "all_gather", Collective;
    /// All-gather with one count per member.
    AllGatherV = 6, "all_gather_v", Collective;
    /// Reduction whose result is scattered in equal blocks.
    ReduceScatter = 7, "reduce_scatter", Collective;
    /// Reduce-scatter with one count per member.
    ReduceScatterV = 8, "reduce_scatter_v", Collective;
    /// Every member's block to the root.
    Gather = 9, "gather", Collective;
    /// Gather with one count per member.
    GatherV = 10, "gather_v", Collective;
    /// The root's blocks to the members.
    Scatter = 11, "scatter", Collective;
    /// Scatter with one count per member.
    ScatterV = 12, "scatter_v", Collective;
    /// A block from each member to each member.
    AllToAll = 13, "all_to_all", Collective;
    /// All-to-all with one count per pair.
    AllToAllV = 14, "all_to_all_v", Collective;
    /// All-to-all with one count and type per pair.
    AllToAllW = 15, "all_to_all_w", Collective;
    /// Inclusive prefix reduction.
    Scan = 16, "scan", Collective;
    /// Exclusive prefix reduction.
    Exscan = 17, "exscan", Collective;
    /// All-gather over the edges of a topology.
    NeighborAllGather = 18, "neighbor_all_gather", Collective;
    /// All-gather over the edges of a topology, one count per edge.
    NeighborAllGatherV = 19, "neighbor_all_gather_v", Collective;
    /// All-to-all over the edges of a topology.
    NeighborAllToAll = 20, "neighbor_all_to_all", Collective;
    /// All-to-all over the edges of a topology, one count per edge.
    NeighborAllToAllV = 21, "neighbor_all_to_all_v", Collective;
    /// All-to-all over the edges of a topology, one count and type per edge.
    NeighborAllToAllW = 22, "neighbor_all_to_all_w", Collective;
    /// Collective file open, close or transfer.
    FileCollective = 23, "file_collective", Collective;
    /// Collective window creation, fence or release.
    WindowCollective = 24, "window_collective", Collective;
    /// Send to one member.
    Send = 64, "send", PointToPoint;
    /// Receive from one member.
    Recv = 65, "recv", PointToPoint;
    /// A communicator made from an agreed identifier, with no parent.
    CommInit = 96, "comm_init", CommCreate;
    /// A communicator per colour of the parent's members.
    CommSplit = 97, "comm_split", CommCreate;
    /// A copy of a communicator.
    CommDup = 98, "comm_dup", CommCreate;
    /// A communicator over a subset of the parent's members.
    CommCreate = 99, "comm_create", CommCreate;
    /// The parent without some members.
    CommShrink = 100, "comm_shrink", CommCreate;
    /// The parent with more members.
    CommGrow = 101, "comm_grow", CommCreate;
    /// A communicator between two groups.
    IntercommCreate = 102, "intercomm_create", CommCreate;
    /// Two groups of an intercommunicator made one.
    IntercommMerge = 103, "intercomm_merge", CommCreate;
    /// A communicator with a Cartesian, graph or distributed-graph topology.
    TopologyCreate = 104, "topology_create", CommCreate;
    /// The communicator is released.
    CommFree = 128, "comm_free", CommFree;
    /// The communicator is torn down after an error.
    CommAbort = 129, "comm_abort", CommFree;
    /// Pending work of the communicator is flushed before its release.
    CommFinalize = 130, "comm_finalize", CommFree;
    /// The library is initialised.
    Init = 160, "init", Lifecycle;
    /// The library is shut down; collective over all processes where the library says so.
    Finalize = 161, "finalize", Lifecycle;
    /// The job is ended by this process.
    Abort = 162, "abort", Lifecycle;
    /// A batch of calls begins.
    GroupStart = 192, "group_start", Group;
    /// A batch of calls ends and is issued.
    GroupEnd = 193, "group_end", Group;
    /// Waits for one or more requests or a stream.
    Wait = 224, "wait", Wait;
}

impl Op {
    /// The code in the file format.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The operation of this name.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Whether the operation has one root member.
    pub fn has_root(self) -> bool {
        matches!(self, Op::Broadcast | Op::Reduce | Op::Gather | Op::GatherV | Op::Scatter | Op::ScatterV)
    }

    /// Whether the operation applies a reduction.
    pub fn has_reduction(self) -> bool {
        matches!(self, Op::AllReduce | Op::Reduce | Op::ReduceScatter | Op::ReduceScatterV | Op::Scan | Op::Exscan)
    }

    /// Whether members legally pass different counts (compared as a matrix, not by equality).
    pub fn is_vector(self) -> bool {
        matches!(
            self,
            Op::AllGatherV
                | Op::ReduceScatterV
                | Op::GatherV
                | Op::ScatterV
                | Op::AllToAllV
                | Op::AllToAllW
                | Op::NeighborAllGatherV
                | Op::NeighborAllToAllV
                | Op::NeighborAllToAllW
        )
    }

    /// Whether it is a collective that takes a position on its communicator.
    pub fn is_collective(self) -> bool {
        self.kind() == OpKind::Collective
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Op;

    #[test]
    fn codes_and_names_are_unique_and_invertible() {
        for &op in Op::ALL {
            assert_eq!(Op::from_code(op.code()), Some(op));
            assert_eq!(Op::from_name(op.name()), Some(op));
        }
    }
}
