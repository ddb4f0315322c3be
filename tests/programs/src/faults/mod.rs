//! One injected fault a program: right class, right communicator, exact first divergence, right suspects.
//!
//! Data flow: `place` (where in a random healthy program) -> one module per family (`arguments`, `calls`, `orders`,
//! `creations`, `messages`, `ranks`: the faulty streams and their truth) -> `executed` (what the ranks then come to
//! execute; whether anything observable changed) and `explain` (what explains that), `evidence` (what
//! the record can prove) -> `judge` (a report against the truth) -> `tally` (a table).
//!
//! The truth is worked out from the program and from what its ranks execute, never from what the analyzer says. Where two
//! faults make every rank execute the same, nothing tells them apart, and the truth of either is right.
//! Deliberately not here: what the recorder missed. A fault is looked for in a whole record.

mod arguments;
mod calls;
mod creations;
mod evidence;
mod executed;
mod explain;
mod judge;
mod messages;
mod orders;
mod place;
mod ranks;
mod tally;
mod truth;

use fastrand::Rng;

use crate::program::{Event, Program};

pub use judge::{Verdict, judge};
pub use tally::{Row, lower_bound, measure, measure_each, table};
pub use truth::{Placed, Truth};

/// What goes wrong, on one rank unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Another operation in place of a call.
    OtherOp,
    /// One element more.
    OtherCount,
    /// Another element type.
    OtherDtype,
    /// Another reduction.
    OtherReduction,
    /// Another root.
    OtherRoot,
    /// A rank in the group used as a global rank, or the reverse.
    GroupRankAsRoot,
    /// Every member names itself.
    OwnRoot,
    /// Other parts for two members.
    OtherSplits,
    /// Another part for one member.
    OtherSplit,
    /// The non-blocking form where the others block.
    OtherForm,
    /// A call is left out.
    Missing,
    /// A call that nobody else makes.
    Extra,
    /// A call of its own once more.
    Repeated,
    /// A call of a run of equal signatures is left out.
    HiddenMissing,
    /// A call of a run of equal signatures is made twice.
    HiddenExtra,
    /// A call of a run of equal signatures from another place of the program.
    OtherSite,
    /// Two calls that follow one another in the other order.
    Swapped,
    /// Two calls a few calls apart in each other's place.
    SwappedFar,
    /// A call a few calls later than the others make it.
    Moved,
    /// Calls on two communicators in the other order.
    SwappedGroups,
    /// A call on another communicator.
    OtherGroup,
    /// Only members of a new group call its creation, or one of the parent's members does not.
    PartialCreation,
    /// The creation of a group with another list of ranks.
    OtherMembers,
    /// A send is left out.
    DroppedSend,
    /// A receive is left out.
    DroppedReceive,
    /// Two ranks send to each other before they receive.
    CrossedSends,
    /// A message larger than its receive.
    MessageSize,
    /// A message of another type than its receive.
    MessageType,
    /// Killed by a signal.
    Killed,
    /// Exited with code 0 in the middle of the program.
    Left,
    /// Exited with an error.
    Failed,
    /// Still at work in front of a call.
    Slow,
    /// Stopped by a debugger.
    Stopped,
    /// In a system call on a device.
    DriverStall,
    /// Asleep on a lock.
    HostStall,
    /// A call that all entered completes nowhere.
    DeviceStall,
    /// A call that all entered completes everywhere but on one member.
    MemberStall,
}

/// All of them.
pub const FAULTS: [Fault; 37] = [
    Fault::OtherOp,
    Fault::OtherCount,
    Fault::OtherDtype,
    Fault::OtherReduction,
    Fault::OtherRoot,
    Fault::GroupRankAsRoot,
    Fault::OwnRoot,
    Fault::OtherSplits,
    Fault::OtherSplit,
    Fault::OtherForm,
    Fault::Missing,
    Fault::Extra,
    Fault::Repeated,
    Fault::HiddenMissing,
    Fault::HiddenExtra,
    Fault::OtherSite,
    Fault::Swapped,
    Fault::SwappedFar,
    Fault::Moved,
    Fault::SwappedGroups,
    Fault::OtherGroup,
    Fault::PartialCreation,
    Fault::OtherMembers,
    Fault::DroppedSend,
    Fault::DroppedReceive,
    Fault::CrossedSends,
    Fault::MessageSize,
    Fault::MessageType,
    Fault::Killed,
    Fault::Left,
    Fault::Failed,
    Fault::Slow,
    Fault::Stopped,
    Fault::DriverStall,
    Fault::HostStall,
    Fault::DeviceStall,
    Fault::MemberStall,
];

impl Fault {
    /// Its name.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// A program with a fault.
#[derive(Debug)]
pub struct Case {
    /// Scenario document.
    pub document: String,
    /// Right answers: more than one where nothing tells them apart. None where nothing observable has changed.
    pub truths: Vec<Truth>,
    /// Ranks that are at fault: no other is to be suspected.
    pub guilty: Vec<u32>,
}

/// Puts a fault into a program; `None` where there is no place for it.
pub fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    match fault {
        Fault::OtherOp
        | Fault::OtherCount
        | Fault::OtherDtype
        | Fault::OtherReduction
        | Fault::OtherRoot
        | Fault::GroupRankAsRoot
        | Fault::OwnRoot
        | Fault::OtherSplits
        | Fault::OtherSplit
        | Fault::OtherForm => arguments::inject(rng, program, fault, id),
        Fault::Missing
        | Fault::Extra
        | Fault::Repeated
        | Fault::HiddenMissing
        | Fault::HiddenExtra
        | Fault::OtherSite => calls::inject(rng, program, fault, id),
        Fault::Swapped | Fault::SwappedFar | Fault::Moved | Fault::SwappedGroups | Fault::OtherGroup => {
            orders::inject(rng, program, fault, id)
        }
        Fault::PartialCreation | Fault::OtherMembers => creations::inject(rng, program, fault, id),
        Fault::DroppedSend | Fault::DroppedReceive | Fault::CrossedSends | Fault::MessageSize | Fault::MessageType => {
            messages::inject(rng, program, fault, id)
        }
        Fault::Killed
        | Fault::Left
        | Fault::Failed
        | Fault::Slow
        | Fault::Stopped
        | Fault::DriverStall
        | Fault::HostStall
        | Fault::DeviceStall
        | Fault::MemberStall => ranks::inject(rng, program, fault, id),
    }
}

/// A random program that takes the fault.
///
/// # Panics
/// If none of very many programs does.
pub fn case(rng: &mut Rng, fault: Fault, id: &str) -> Case {
    let found = (0..20_000).find_map(|_| {
        // Log-uniform, most of them short.
        let calls = 2_f64.powf(rng.f64() * 8.0) as u64;
        let mut program = Program::random(rng, calls);
        // Calls of several threads have no order that a fault could change.
        program.groups.iter_mut().for_each(|group| group.thread = "");
        with_elements(&mut program);
        inject(rng, &program, fault, id)
    });
    found.unwrap_or_else(|| panic!("no program takes the fault {fault:?}"))
}

/// Calls that transfer nothing agree with one another whatever their types: no fault would show.
fn with_elements(program: &mut Program) {
    let all = program.prologue.iter_mut().chain(&mut program.body).chain(&mut program.epilogue);
    for event in all {
        if let Event::Collective { call, .. } = event
            && call.count == Some(0)
        {
            call.count = Some(1);
        }
    }
}
