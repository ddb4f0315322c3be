//! The stream of one process incarnation: what a writer takes and a reader gives, in order.

use std::sync::Arc;

use crate::call::{Call, Return, SiteDef};
use crate::comm::{CommDef, CommRef, RankDef};
use crate::datatype::TypeDef;
use crate::evidence::{Attribute, ClockSnapshot, Gap, LogLine, ProcessState, StepMark, ThreadState};

/// Which process a stream belongs to. Unique in a job: a pid that is reused differs in its start time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ProcessKey {
    /// Host name.
    pub host: String,
    /// Process id in the recorder's pid name space.
    pub pid: u32,
    /// Start time, clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_time: u64,
}

/// Something a stream says.
///
/// Order in a stream: a definition comes before the first record that refers to it; calls of one thread come in the
/// order they were made; everything else stands where it became known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// The process plays a global rank.
    Rank(RankDef),
    /// A communicator; a later one with the same id replaces it (its size or members became known).
    Comm(CommDef),
    /// A derived type.
    Type(TypeDef),
    /// A call site; a later one with the same id replaces it (its names became known).
    Site(SiteDef),
    /// A string that calls refer to as a label.
    Label(u32, String),
    /// A call.
    Call(Call),
    /// The return of a call that was written before it returned.
    Return(Return),
    /// The clocks of one moment.
    Clock(ClockSnapshot),
    /// Missing calls.
    Gap(Gap),
    /// How the process stood.
    State(ProcessState),
    /// What a thread was doing.
    Thread(ThreadState),
    /// A log line.
    Log(LogLine),
    /// An attribute of a rank.
    Attribute(Attribute),
    /// The start of a step.
    Step(StepMark),
}

/// Everything that one process's files say, returns joined to their calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessTrace {
    /// Whose it is.
    pub key: ProcessKey,
    /// Ranks it plays.
    pub ranks: Vec<RankDef>,
    /// Communicators, latest definition of each.
    pub comms: Vec<CommDef>,
    /// Derived types.
    pub types: Vec<TypeDef>,
    /// Call sites.
    pub sites: Vec<SiteDef>,
    /// Labels by index.
    pub labels: Vec<(u32, String)>,
    /// Calls in the order they were written.
    pub calls: Vec<Call>,
    /// Clock snapshots.
    pub clocks: Vec<ClockSnapshot>,
    /// Gaps, those found while reading included.
    pub gaps: Vec<Gap>,
    /// States of the process.
    pub states: Vec<ProcessState>,
    /// States of its threads.
    pub threads: Vec<ThreadState>,
    /// Log lines.
    pub logs: Vec<LogLine>,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// Step marks.
    pub steps: Vec<StepMark>,
    /// What is known of calls that are in the files and not in `calls`; `None`: all of them are.
    pub elided: Option<Arc<Elided>>,
    /// Whether the last segment was closed by its writer (no: the recorder was killed, or still writes).
    pub closed: bool,
}

/// Calls that were made and recorded and, since their digests say enough, not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Elided {
    /// Calls of the stream, the decoded ones included.
    pub calls: u64,
    /// Earliest entry and latest entry or return of all of them, ns.
    pub times: (u64, u64),
    /// Collectives of each communicator, ascending by its id.
    pub chains: Vec<ElidedChain>,
}

/// What is known of a stream's collectives on one communicator without decoding them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElidedChain {
    /// The communicator, as the stream numbers it.
    pub comm: CommRef,
    /// Positions of which calls were made: from, and one past the last; ascending.
    pub made: Vec<(u64, u64)>,
    /// Members with one number made equal calls at all of these positions; `None`: not known.
    pub class: Option<u32>,
}

impl Elided {
    /// What is known of a communicator.
    pub fn chain(&self, comm: CommRef) -> Option<&ElidedChain> {
        let at = self.chains.binary_search_by_key(&comm, |chain| chain.comm).ok()?;
        self.chains.get(at)
    }
}

impl ProcessTrace {
    /// Whether calls were made and recorded that are not in `calls`.
    pub fn has_elided(&self) -> bool {
        self.elided.as_ref().is_some_and(|elided| elided.calls > self.calls.len() as u64)
    }

    /// Number of calls, those that were not decoded included.
    pub fn call_count(&self) -> u64 {
        self.elided.as_ref().map_or(self.calls.len() as u64, |elided| elided.calls)
    }

    /// The definition of a communicator.
    pub fn comm(&self, comm: crate::comm::CommRef) -> Option<&CommDef> {
        self.comms.iter().find(|def| def.id == comm)
    }

    /// The definition of a call site.
    pub fn site(&self, site: crate::call::SiteRef) -> Option<&SiteDef> {
        self.sites.iter().find(|def| def.id == site)
    }

    /// The definition of a derived type.
    pub fn derived(&self, id: u32) -> Option<&TypeDef> {
        self.types.iter().find(|def| def.id == id)
    }
}
