//! What checks say and renderers read: findings, the verdict made of them, and the coverage that limits them.
//!
//! A check fills a [`Finding`]; a renderer turns it into text and never looks behind it.

use std::fmt;

use rankdiff_trace::{CommIdentity, Frame, RankSet};

/// How grave a finding is. Ordered: a later one is graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; never fails a run.
    Note,
    /// May be a fault.
    Warning,
    /// A fault.
    Error,
}

impl Severity {
    /// Lower-case word for reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Kinds of cause (the classes of the decision list).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the vocabulary; docs/checks explains each")]
pub enum Class {
    CodeDivergence,
    UnevenInputs,
    ParameterMismatch,
    LogicalMismatch,
    OrderInversion,
    GroupCreation,
    P2pDeadlock,
    P2pMismatch,
    RankFailed,
    Straggler,
    DriverStall,
    DeviceStall,
    HostStall,
    Unknown,
    Clean,
}

impl Class {
    /// Name in snake_case, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Class::CodeDivergence => "code_divergence",
            Class::UnevenInputs => "uneven_inputs",
            Class::ParameterMismatch => "parameter_mismatch",
            Class::LogicalMismatch => "logical_mismatch",
            Class::OrderInversion => "order_inversion",
            Class::GroupCreation => "group_creation",
            Class::P2pDeadlock => "p2p_deadlock",
            Class::P2pMismatch => "p2p_mismatch",
            Class::RankFailed => "rank_failed",
            Class::Straggler => "straggler",
            Class::DriverStall => "driver_stall",
            Class::DeviceStall => "device_stall",
            Class::HostStall => "host_stall",
            Class::Unknown => "unknown",
            Class::Clean => "clean",
        }
    }
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// Evidence is missing or inferred.
    Low,
    /// The evidence agrees but something that could contradict it was not seen.
    Medium,
    /// Everything that could contradict it was seen.
    High,
}

impl Confidence {
    /// Lower-case word for reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// A communicator as a report names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupRef {
    /// Identity; prints as 16 hexadecimal digits.
    pub identity: CommIdentity,
    /// Name for people ('world').
    pub name: String,
    /// What it is for ('tensor_parallel'); may be empty.
    pub desc: String,
    /// Library ('mpi', 'nccl').
    pub library: String,
    /// Global ranks of the members.
    pub ranks: RankSet,
}

/// Whom an argument of a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A global rank.
    Rank(u32),
    /// A rank in the communicator, where it is not known which of the job's ranks that is.
    InGroup(u32),
}

impl Whom {
    /// The global rank, if it is known.
    pub fn global(self) -> Option<u32> {
        match self {
            Whom::Rank(rank) => Some(rank),
            Whom::InGroup(_) => None,
        }
    }

    /// As sentences have it: 'rank 6', 'group rank 4'.
    pub(crate) fn named(self) -> String {
        match self {
            Whom::Rank(rank) => format!("rank {rank}"),
            Whom::InGroup(rank) => format!("group rank {rank}"),
        }
    }
}

/// Without 'rank' where it is a global one: '6', 'group rank 4'.
impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::Rank(rank) => write!(f, "{rank}"),
            Whom::InGroup(_) => f.write_str(&self.named()),
        }
    }
}

/// A call as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallText {
    /// Operation in snake_case; non-blocking forms with a leading `i` where the library tells them apart.
    pub op: String,
    /// Elements; `None` if the call has none.
    pub count: Option<u64>,
    /// Element type in words.
    pub dtype: Option<String>,
    /// Reduction in words.
    pub redop: Option<String>,
    /// Root.
    pub root: Option<Whom>,
    /// Peer.
    pub peer: Option<Whom>,
    /// Tag.
    pub tag: Option<i64>,
    /// Call site in one line, outermost first, joined by `>`; empty if not known.
    pub site: String,
    /// Frames, outermost first.
    pub frames: Vec<Frame>,
    /// Position on the communicator.
    pub seq: Option<u64>,
    /// The collective of objects that it is a part of ('broadcast_object_list').
    pub object: Option<&'static str>,
    /// Entered or issued, and not complete when last seen.
    pub pending: bool,
}

/// Ranks that did the same at the place of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Global ranks.
    pub ranks: RankSet,
    /// What they called; `None` if they made no call there.
    pub call: Option<CallText>,
    /// State in words where there is no call ('exited with code 0', 'in another call'); may be empty.
    pub state: String,
}

/// Members that made the same call near the place of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WindowRow {
    /// Position on the communicator.
    pub position: u64,
    /// Global ranks.
    pub ranks: RankSet,
    /// What they called.
    pub call: CallText,
}

/// Where in the job's steps a position lies, if steps are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPosition {
    /// Step number: from marks, else counted from the period found in the stream, from 0.
    pub number: u64,
    /// Call within the step, from 0.
    pub call: u64,
    /// Calls per step.
    pub period: u64,
}

/// A fact that supports a finding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Kind in snake_case ('thread', 'exit', 'gap', 'agreement').
    pub kind: String,
    /// Whom it concerns.
    pub ranks: RankSet,
    /// The fact in words.
    pub text: String,
}

/// One thing that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Code of the check ('D001').
    pub code: &'static str,
    /// Name of the check ('op-mismatch').
    pub name: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Cause.
    pub class: Class,
    /// Which parameters differ, for parameter mismatches: count, dtype, redop, root, splits.
    pub what: Option<&'static str>,
    /// Communicator; `None` if it concerns none or several.
    pub group: Option<GroupRef>,
    /// Position of the first divergence; `None` if it cannot be placed.
    pub first_divergence: Option<u64>,
    /// Position of the first visible mismatch.
    pub first_visible: Option<u64>,
    /// Step of the first divergence.
    pub step: Option<StepPosition>,
    /// What each group of ranks did, majority first.
    pub sides: Vec<Side>,
    /// What members called right before and right behind, by position.
    pub window: Vec<WindowRow>,
    /// Ranks that probably went wrong; empty without a majority.
    pub suspects: RankSet,
    /// Ranks that wait.
    pub waiting: RankSet,
    /// Ranks that wait for a suspect.
    pub direct_victims: RankSet,
    /// Ranks that wait for a victim.
    pub transitive_victims: RankSet,
    /// A wait cycle, in order, starting from the earliest entry.
    pub cycle: Vec<u32>,
    /// Ranks stalled in a driver or device.
    pub stalled: RankSet,
    /// Ranks that are late.
    pub late: RankSet,
    /// By how much, ms.
    pub late_ms: Option<u64>,
    /// Ranks that failed.
    pub failed: RankSet,
    /// Members that did not call a communicator's creation.
    pub missing_callers: RankSet,
    /// Ranks that ended because of the finding.
    pub collateral_exits: RankSet,
    /// Facts.
    pub evidence: Vec<Evidence>,
    /// What the minority shares ('local rank 0', 'host n1').
    pub common: Vec<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// One sentence: what diverged and where. Lines of detail belong into `detail`.
    pub headline: String,
    /// Further lines in reading order (before, consequence, what to do next).
    pub detail: Vec<String>,
}

/// How the clocks of a job's machines relate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClockJoin {
    /// Clocks: one for each boot of a machine.
    pub clocks: usize,
    /// Collective calls that members on several machines share and that prove how their clocks relate.
    pub calls: u64,
    /// Times of any two of the machines compare to within so many ns, as far as these calls prove; `None` if they do not
    /// connect all machines.
    pub within_ns: Option<u64>,
    /// The same in words, and what is wrong with the clocks, a sentence each.
    pub text: Vec<String>,
}

/// How much of a job was decoded where digests were looked at first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decoding {
    /// Blocks of calls that were decoded.
    pub blocks: u64,
    /// Blocks of calls that there are.
    pub of: u64,
    /// What is not seen in calls that were not decoded, a sentence.
    pub text: String,
}

/// What was seen of the job, and what was not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Coverage {
    /// Ranks that the job has, as far as known.
    pub ranks_expected: usize,
    /// Ranks with a stream.
    pub ranks_seen: RankSet,
    /// Ranks without one.
    pub missing: RankSet,
    /// Ranks whose stream ends torn.
    pub truncated: RankSet,
    /// Gaps in words, one per rank and gap, compressed where many are alike.
    pub gaps: Vec<Evidence>,
    /// Calls read.
    pub calls: u64,
    /// Share of positions on communicators that could be compared on every member, 0 to 1.
    pub compared: f64,
    /// How the clocks of the job's machines relate; `None` if there is only one.
    pub clocks: Option<ClockJoin>,
    /// Runs or attempts of the job that the traces hold calls of, the one that this is the coverage of included.
    pub attempts: usize,
    /// How much was decoded; `None` if all of it was.
    pub decoding: Option<Decoding>,
    /// Things in the input that could not be read or used, in words, each with file and offset where it has one.
    pub problems: Vec<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Class of the first finding at warning or above, else clean.
    pub class: Class,
    /// How sure it is.
    pub confidence: Confidence,
    /// One line.
    pub summary: String,
    /// Findings, the verdict's first.
    pub findings: Vec<Finding>,
    /// What was seen.
    pub coverage: Coverage,
}
