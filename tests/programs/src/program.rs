//! Made-up programs that are healthy by construction: one global order of events, of which each rank executes its part.
//! An order that exists for the whole job cannot deadlock, whatever the speeds.
//!
//! Here is the model; `text` writes it as a scenario.

use std::collections::BTreeMap;

pub use crate::text::collective;

/// A group of ranks.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Its name; what stands before the first `_` is its kind.
    pub name: String,
    /// Members in the group's order.
    pub ranks: Vec<u32>,
    /// Level of its calls; `None`: the scenario's default.
    pub level: Option<&'static str>,
    /// Thread that makes its calls on every rank; empty: the main one. Calls on one group keep one thread: two threads'
    /// order is chance.
    pub thread: &'static str,
    /// Device stream of its calls; 0: none.
    pub stream: u32,
    /// How it is made during the run; `None`: it is there from the start.
    pub made: Option<Made>,
}

/// How a group comes to be.
#[derive(Debug, Clone)]
pub struct Made {
    /// `split`, `dup` or `init`.
    pub by: &'static str,
    /// Name of the group it is made from.
    pub parent: Option<String>,
    /// Its colour at a split.
    pub color: Option<i64>,
}

/// What a collective passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collective {
    /// As a scenario writes it, so `iall_reduce` is the non-blocking form.
    pub op: &'static str,
    /// Elements; `None` for a barrier.
    pub count: Option<u64>,
    /// Element type.
    pub dtype: &'static str,
    /// Reduction.
    pub redop: Option<&'static str>,
    /// Global rank.
    pub root: Option<u32>,
    /// Where it is called.
    pub site: String,
}

/// One thing that happens in the job.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of a scenario's call")]
pub enum Event {
    /// All members call it.
    Collective { group: usize, call: Collective },
    /// `matrix[i][j]`: what member i sends to member j.
    Splits { group: usize, dtype: &'static str, site: String, matrix: Vec<Vec<u64>> },
    /// A v-form: each member passes as many elements as it has.
    Uneven { group: usize, op: &'static str, dtype: &'static str, root: Option<u32>, site: String, counts: Vec<u64> },
    /// One member sends to another.
    Message { group: usize, from: u32, to: u32, count: u64, dtype: &'static str, tag: i64, site: String },
    /// Every member sends to the next one and receives from the one before, in one batch.
    Ring { group: usize, count: u64, dtype: &'static str, site: String },
    /// Messages that are all posted before any is waited for: in one batch, or with non-blocking sends.
    Exchange {
        group: usize,
        /// Sender and receiver, each pair once.
        pairs: Vec<(u32, u32)>,
        count: u64,
        dtype: &'static str,
        tag: i64,
        site: String,
        /// Shuffles the order inside each rank's batch.
        order: u64,
    },
    /// A collective that is recorded into a graph and not executed.
    Captured { group: usize, call: Collective },
    /// Groups are made from this one, or (`init`) this one is made by its members.
    Create {
        by: &'static str,
        on: usize,
        /// Colour of each member that comes into a group; the others pass none.
        colors: BTreeMap<u32, i64>,
        site: String,
    },
    /// A group is given up.
    Free { group: usize, site: String },
    /// A rank is busy with something else, ms.
    Pause { rank: u32, ms: u64 },
}

impl Event {
    /// The group that its calls are on; `None` for a pause and for what makes and frees groups.
    pub fn group(&self) -> Option<usize> {
        match self {
            Event::Collective { group, .. }
            | Event::Splits { group, .. }
            | Event::Uneven { group, .. }
            | Event::Message { group, .. }
            | Event::Exchange { group, .. }
            | Event::Captured { group, .. }
            | Event::Ring { group, .. } => Some(*group),
            Event::Create { .. } | Event::Free { .. } | Event::Pause { .. } => None,
        }
    }

    /// Whether it takes a position on its group.
    pub fn has_position(&self) -> bool {
        matches!(self, Event::Collective { .. } | Event::Splits { .. } | Event::Uneven { .. })
    }
}

/// What differs from rank to rank, or from level to level, and means nothing.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// Ranks that make the calls of a site from another line: site, ranks, their own site.
    pub elsewhere: Vec<(String, Vec<u32>, String)>,
    /// What arguments are called, by site.
    pub labels: BTreeMap<String, String>,
    /// Sites whose floats are described as one derived type by odd ranks.
    pub derived: Vec<String>,
    /// Each collective of a framework's group shows again one level below.
    pub two_levels: bool,
    /// Rounds carry step marks.
    pub marked: bool,
}

/// A job.
#[derive(Debug, Clone)]
pub struct Program {
    /// Number of ranks.
    pub world: u32,
    /// Calls return when they are complete.
    pub blocking: bool,
    /// Distance of calls, ms.
    pub step_ms: u64,
    /// The groups.
    pub groups: Vec<Group>,
    /// What happens first.
    pub prologue: Vec<Event>,
    /// A round of the loop.
    pub body: Vec<Event>,
    /// How often.
    pub rounds: u64,
    /// What happens last.
    pub epilogue: Vec<Event>,
    /// Lines of the document that say what the recorder missed.
    pub blind: Vec<String>,
    /// What differs and means nothing.
    pub style: Style,
}

impl Program {
    /// Whether a rank is a member of a group.
    pub fn is_member(&self, group: usize, rank: u32) -> bool {
        self.groups[group].ranks.contains(&rank)
    }

    /// All events of one round, those around the loop included, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.prologue.iter().chain(&self.body).chain(&self.epilogue)
    }
}
