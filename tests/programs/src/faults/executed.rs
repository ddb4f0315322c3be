//! What the ranks of a job come to execute, by the schedule that the traces are made from.

use std::collections::BTreeMap;

use rankdiff_trace::testgen::scenario::{Scenario, parse};
use rankdiff_trace::testgen::schedule::Schedule;
use rankdiff_trace::{Completion, Op};

/// A call that was entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    /// The call with all its arguments and its site.
    pub(super) call: String,
    /// Operation, elements and site: the same on whatever communicator.
    pub(super) shape: String,
    pub(super) op: Op,
    pub(super) group: String,
    pub(super) peer: Option<u32>,
    /// It was recorded into a graph and not executed.
    pub(super) captured: bool,
    /// It did not complete.
    pub(super) pending: bool,
    /// When it was entered, ns.
    pub(super) enter: u64,
}

impl Made {
    /// What tells it from other calls, whenever it was made.
    fn seen(&self) -> (&str, bool) {
        (&self.call, self.pending)
    }
}

/// The calls of each rank, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executed(pub(super) Vec<Vec<Made>>);

impl Executed {
    /// Of a document.
    ///
    /// # Panics
    /// If the document is none of a scenario: it was made here.
    pub(super) fn of(document: &str) -> Executed {
        let scenarios = parse("program.yaml", document).unwrap_or_else(|error| panic!("{error}\n{document}"));
        let scenario = scenarios.first().expect("one document");
        let schedule = Schedule::of(scenario).unwrap_or_else(|error| panic!("{error}\n{document}"));
        let texts: Vec<String> = scenario.calls.iter().map(|spec| format!("{spec:?}")).collect();
        Executed((0..scenario.world).map(|rank| calls(scenario, &schedule, &texts, rank)).collect())
    }

    /// Whether every rank executes the same on each communicator, in whatever order across them.
    pub(super) fn same_on_each(&self, other: &Executed) -> bool {
        fn apart(calls: &[Made]) -> BTreeMap<(&str, bool), Vec<(&str, bool)>> {
            let mut apart: BTreeMap<(&str, bool), Vec<(&str, bool)>> = BTreeMap::new();
            for made in calls {
                apart.entry((&made.group, made.op.is_collective())).or_default().push(made.seen());
            }
            apart
        }
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| apart(a) == apart(b))
    }

    /// When the last call was entered, ns.
    pub(super) fn last_entry(&self) -> u64 {
        self.0.iter().flatten().map(|made| made.enter).max().unwrap_or(0)
    }

    /// Whether a rank's last call did not complete.
    pub(super) fn is_pending(&self, rank: u32) -> bool {
        self.0.get(rank as usize).and_then(|made| made.last()).is_some_and(|made| made.pending)
    }

    /// Whether some call did not complete.
    pub(super) fn hangs(&self) -> bool {
        self.0.iter().flatten().any(|made| made.pending)
    }
}

fn calls(scenario: &Scenario, schedule: &Schedule<'_>, texts: &[String], rank: u32) -> Vec<Made> {
    let Some(program) = schedule.program(rank) else { return Vec::new() };
    let made = program.calls.iter().enumerate().filter_map(|(index, &call)| {
        let fate = schedule.fate(rank, index)?;
        let spec = scenario.calls.get(call as usize)?;
        Some(Made {
            call: texts.get(call as usize)?.clone(),
            shape: format!("{} {:?} {:?} {}", spec.op, spec.count, spec.dtype, spec.site),
            op: spec.op,
            group: spec.group.clone(),
            peer: spec.peer,
            captured: spec.captured,
            pending: !spec.captured && !matches!(fate.completion, Completion::At(_)),
            enter: fate.enter,
        })
    });
    made.collect()
}
