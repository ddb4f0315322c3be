//! Communicators and ranks as definitions: what a process knew of them, and how two processes' views are joined.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// Index of a communicator among one stream's definitions; 0 stands for 'none'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CommRef(pub u32);

impl CommRef {
    /// The call belongs to no communicator.
    pub const NONE: CommRef = CommRef(0);
}

/// What is equal on every member of a communicator and different for every other one of the job.
///
/// A 128-bit hash over what all members know: a unique id's bytes, or (parent, ordinal on the parent, colour).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CommIdentity(pub u128);

impl CommIdentity {
    /// The identity could not be had: equal to no other.
    pub const UNKNOWN: CommIdentity = CommIdentity(0);

    /// Identity of a communicator made from bytes that all members share, in the name space of `library`.
    pub fn root(library: &str, bytes: &[u8]) -> CommIdentity {
        let mut text = Vec::with_capacity(library.len() + 1 + bytes.len());
        text.extend_from_slice(library.as_bytes());
        text.push(0);
        text.extend_from_slice(bytes);
        CommIdentity(xxh3_128(&text).max(1))
    }

    /// Identity of a child: (parent, ordinal of this creation call on the parent, colour).
    pub fn child(self, ordinal: u64, color: i64) -> CommIdentity {
        if self == CommIdentity::UNKNOWN {
            return CommIdentity::UNKNOWN;
        }
        let mut text = [0_u8; 32];
        text[..16].copy_from_slice(&self.0.to_le_bytes());
        text[16..24].copy_from_slice(&ordinal.to_le_bytes());
        text[24..].copy_from_slice(&color.to_le_bytes());
        CommIdentity(xxh3_128(&text).max(1))
    }

    /// Whether two equal values mean one communicator.
    pub fn is_known(self) -> bool {
        self != CommIdentity::UNKNOWN
    }
}

impl fmt::Debug for CommIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommIdentity({:032x})", self.0)
    }
}

impl fmt::Display for CommIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", (self.0 >> 64) as u64 ^ self.0 as u64)
    }
}

/// Where in the software stack a communicator lives. Streams are compared level by level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Level {
    /// A framework's process group (c10d).
    Framework = 1,
    /// A collective library's communicator (NCCL, MPI).
    #[default]
    Library = 2,
    /// A transport below a framework (Gloo under c10d).
    Transport = 3,
}

impl Level {
    /// The level with this code in the file format.
    pub fn from_code(code: u8) -> Option<Level> {
        match code {
            1 => Some(Level::Framework),
            2 => Some(Level::Library),
            3 => Some(Level::Transport),
            _ => None,
        }
    }
}

/// What a library's calls mean; checks read these, never a library's name. Bit values are part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Semantics(pub u32);

impl Semantics {
    /// A call returns only when this member's part is complete (its return is its completion).
    pub const BLOCKING: Semantics = Semantics(1);
    /// Blocking and non-blocking forms of one operation do not match each other.
    pub const NONBLOCKING_DISTINCT: Semantics = Semantics(1 << 1);
    /// Inside a group call, sends and receives to different peers have no order.
    pub const GROUP_P2P_UNORDERED: Semantics = Semantics(1 << 2);
    /// Members keep one order of collectives over all communicators inside a group call.
    pub const GROUP_ORDER_ACROSS_COMMS: Semantics = Semantics(1 << 3);
    /// A send may return before its receive was posted.
    pub const SENDS_MAY_BUFFER: Semantics = Semantics(1 << 4);
    /// A framework-level barrier reaches this level as a one-element all-reduce.
    pub const BARRIER_IS_ALL_REDUCE: Semantics = Semantics(1 << 5);
    /// A receive must be exactly as long as what is sent to it; without this it may have more room.
    pub const P2P_SIZE_EXACT: Semantics = Semantics(1 << 6);

    /// Whether every flag of `other` is set.
    pub fn contains(self, other: Semantics) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Semantics {
    type Output = Semantics;
    fn bitor(self, other: Semantics) -> Semantics {
        Semantics(self.0 | other.0)
    }
}

/// How a communicator came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Provenance {
    /// Its creation was recorded.
    Created = 1,
    /// It exists from the library's start (a world communicator).
    Predefined = 2,
    /// Given by an importer or a scenario.
    Declared = 3,
    /// Its creation was not seen; identity was inferred.
    Inferred = 4,
    /// Its creation was not seen and its identity is not known.
    #[default]
    Unknown = 5,
}

impl Provenance {
    /// The provenance with this code in the file format.
    pub fn from_code(code: u8) -> Option<Provenance> {
        match code {
            1 => Some(Provenance::Created),
            2 => Some(Provenance::Predefined),
            3 => Some(Provenance::Declared),
            4 => Some(Provenance::Inferred),
            5 => Some(Provenance::Unknown),
            _ => None,
        }
    }
}

/// A communicator as one member process saw it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommDef {
    /// Index that calls refer to; unique in the stream, never 0.
    pub id: CommRef,
    /// What joins the members' views.
    pub identity: CommIdentity,
    /// How it came to be known.
    pub provenance: Provenance,
    /// Name for reports; empty if it has none ('world' for a world communicator).
    pub name: String,
    /// What it is for, if somebody said so ('tensor_parallel').
    pub desc: String,
    /// Name of the library ('mpi', 'nccl').
    pub library: String,
    /// Where it lives.
    pub level: Level,
    /// What its calls mean.
    pub semantics: Semantics,
    /// Number of members; `None` if not known.
    pub size: Option<u32>,
    /// This member's rank in the communicator; `None` if not known.
    pub my_rank: Option<u32>,
    /// Global ranks of the members in communicator order; empty if not known here (the analyzer may still infer it).
    pub members: Vec<u32>,
    /// The global rank that this process plays in it; `None`: the process's own rank.
    pub owner: Option<u32>,
    /// The communicator it was made from; [`CommRef::NONE`] if none.
    pub parent: CommRef,
    /// Ordinal of the creation call on the parent.
    pub ordinal: u64,
    /// Colour given at the split; `None` if it was none.
    pub color: Option<i64>,
    /// Key given at the split.
    pub key: Option<i64>,
    /// Whether it connects two groups (its members then are both groups', and roots may be special).
    pub inter: bool,
}

/// How a process's rank came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum RankSource {
    /// An argument or result of the library's own initialisation.
    Library = 1,
    /// An environment variable of the launcher.
    #[default]
    Environment = 2,
    /// Given by an importer or a scenario.
    Declared = 3,
    /// Inferred.
    Inferred = 4,
}

impl RankSource {
    /// The source with this code in the file format.
    pub fn from_code(code: u8) -> Option<RankSource> {
        match code {
            1 => Some(RankSource::Library),
            2 => Some(RankSource::Environment),
            3 => Some(RankSource::Declared),
            4 => Some(RankSource::Inferred),
            _ => None,
        }
    }
}

/// A global rank that a process plays. One process may hold several; an elastic restart reuses a rank with a new attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RankDef {
    /// Global rank.
    pub rank: u32,
    /// Number of ranks of the job; `None` if not known.
    pub world: Option<u32>,
    /// Rank on its node.
    pub local_rank: Option<u32>,
    /// Restart counter of the job, from 0.
    pub attempt: u32,
    /// How it is known.
    pub source: RankSource,
}
