//! Parquet: a directory of flat tables for DuckDB, pandas, polars and whatever else reads columns (docs/export.md).
//!
//! Tables are joined by `process`, the number of a recording in the export, and `comm_id`, a communicator's identity.

mod calls;
mod table;

use rankdiff_trace::{ProcessTrace, RankSet};

use self::table::{Cell, Kind, Table};
use super::survey::{Comm, Survey};
use super::view::{View, identity};
use super::{Export, ExportError, Exporter, Shape, Surveyed, Target};

/// The descriptor.
#[derive(Debug)]
pub(super) struct Parquet;

impl Exporter for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn summary(&self) -> &'static str {
        "a directory of Parquet tables: calls, communicators, ranks, gaps, events"
    }

    fn shapes(&self) -> &'static [Shape] {
        &[Shape::Directory]
    }

    fn suffix(&self) -> &'static str {
        "-parquet"
    }

    fn start<'a>(&self, job: &'a Surveyed, target: Target<'a>) -> Result<Box<dyn Export + 'a>, ExportError> {
        let Target::Directory(dir) = target else {
            return Err(ExportError::Shape { format: "parquet", wanted: "a directory" });
        };
        let tables = Tables {
            survey: &job.survey,
            calls: Table::create(dir, "calls", calls::COLUMNS)?,
            ranks: Table::create(dir, "ranks", RANKS)?,
            gaps: Table::create(dir, "gaps", GAPS)?,
            events: Table::create(dir, "events", EVENTS)?,
        };
        let mut comms = Table::create(dir, "communicators", COMMUNICATORS)?;
        communicators(&job.survey, &mut comms)?;
        comms.close()?;
        Ok(Box::new(tables))
    }
}

const COMMUNICATORS: &[(&str, Kind)] = &[
    ("comm_id", Kind::Text),
    ("comm", Kind::Text),
    ("name", Kind::Text),
    ("desc", Kind::Text),
    ("library", Kind::Text),
    ("level", Kind::Text),
    ("size", Kind::U32),
    ("members", Kind::Text),
    ("inter", Kind::Bool),
];

const RANKS: &[(&str, Kind)] = &[
    ("process", Kind::U32),
    ("rank", Kind::U32),
    ("attempt", Kind::U32),
    ("world", Kind::U32),
    ("local_rank", Kind::U32),
    ("host", Kind::Text),
    ("pid", Kind::U32),
    ("start_time", Kind::U64),
    ("session", Kind::U64),
    ("calls", Kind::U64),
    ("closed", Kind::Bool),
    ("state", Kind::Text),
];

const GAPS: &[(&str, Kind)] = &[
    ("process", Kind::U32),
    ("rank", Kind::U32),
    ("host", Kind::Text),
    ("pid", Kind::U32),
    ("cause", Kind::Text),
    ("thread", Kind::U32),
    ("first_thread_seq", Kind::U64),
    ("events", Kind::U64),
    ("after", Kind::Time),
    ("before", Kind::Time),
];

const EVENTS: &[(&str, Kind)] = &[
    ("process", Kind::U32),
    ("rank", Kind::U32),
    ("host", Kind::Text),
    ("pid", Kind::U32),
    ("at", Kind::Time),
    ("kind", Kind::Text),
    ("thread", Kind::U32),
    ("name", Kind::Text),
    ("text", Kind::Text),
];

/// A row for each communicator with an identity, in the order of their names.
fn communicators(survey: &Survey, table: &mut Table) -> Result<(), ExportError> {
    let mut all: Vec<_> = survey.comms.values().map(|comm| &comm.def).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.identity.cmp(&b.identity)));
    for def in all {
        let members: RankSet = def.members.iter().copied().collect();
        table.row([
            Cell::text(identity(def.identity)),
            Cell::known(&Comm::title(def)),
            Cell::known(&def.name),
            Cell::known(&def.desc),
            Cell::known(&def.library),
            Cell::known(&format!("{:?}", def.level).to_lowercase()),
            Cell::uint(def.size),
            Cell::known(&members.to_string()),
            Cell::Bool(def.inter),
        ])?;
    }
    Ok(())
}

struct Tables<'a> {
    survey: &'a Survey,
    calls: Table,
    ranks: Table,
    gaps: Table,
    events: Table,
}

impl Export for Tables<'_> {
    fn process(&mut self, at: usize, trace: &ProcessTrace) -> Result<(), ExportError> {
        let Some(process) = self.survey.processes.get(at) else { return Ok(()) };
        let view = View::of(trace, process, self.survey);
        calls::rows(at, &view, &mut self.calls)?;
        self.ranks_of(at, &view)?;
        self.gaps_of(at, &view)?;
        self.events_of(at, &view)
    }

    fn finish(self: Box<Self>) -> Result<(), ExportError> {
        let Tables { survey: _, calls, ranks, gaps, events } = *self;
        [calls, ranks, gaps, events].into_iter().try_for_each(Table::close)
    }
}

impl Tables<'_> {
    /// A row for each rank that the process plays; one without a rank if it plays none.
    fn ranks_of(&mut self, at: usize, view: &View<'_>) -> Result<(), ExportError> {
        let trace = view.trace;
        let key = &trace.key;
        let mut calls: std::collections::BTreeMap<Option<u32>, u64> = std::collections::BTreeMap::new();
        for call in &trace.calls {
            *calls.entry(view.rank(call)).or_default() += 1;
        }
        let mut all: Vec<Option<u32>> = view.process.ranks.iter().copied().map(Some).collect();
        all.extend(calls.keys().filter(|rank| !all.contains(rank)).copied().collect::<Vec<_>>());
        if all.is_empty() {
            all.push(None);
        }
        for rank in all {
            let def = trace.ranks.iter().rev().find(|def| Some(def.rank) == rank);
            self.ranks.row([
                Cell::Uint(at as u64),
                Cell::uint(rank),
                Cell::uint(def.map(|def| def.attempt)),
                Cell::uint(def.and_then(|def| def.world)),
                Cell::uint(def.and_then(|def| def.local_rank)),
                Cell::known(&key.host),
                Cell::Uint(u64::from(key.pid)),
                Cell::Uint(key.start_time),
                Cell::Uint(view.process.session),
                Cell::Uint(calls.get(&rank).copied().unwrap_or(0)),
                Cell::Bool(trace.closed),
                Cell::text(trace.states.last().map(|state| state.life.to_string())),
            ])?;
        }
        Ok(())
    }

    fn gaps_of(&mut self, at: usize, view: &View<'_>) -> Result<(), ExportError> {
        let key = &view.trace.key;
        for gap in &view.trace.gaps {
            self.gaps.row([
                Cell::Uint(at as u64),
                Cell::uint(view.own_rank()),
                Cell::known(&key.host),
                Cell::Uint(u64::from(key.pid)),
                Cell::known(gap.cause.name()),
                Cell::uint((gap.thread != 0).then_some(gap.thread)),
                Cell::uint((gap.thread != 0).then_some(gap.first_thread_seq)),
                Cell::uint(gap.events),
                Cell::int((gap.after > 0).then(|| view.wall_time(gap.after))),
                Cell::int((gap.before < u64::MAX).then(|| view.wall_time(gap.before))),
            ])?;
        }
        Ok(())
    }

    fn events_of(&mut self, at: usize, view: &View<'_>) -> Result<(), ExportError> {
        let trace = view.trace;
        let key = &trace.key;
        let mut row = |ns: Option<u64>, kind: &str, thread: u32, name: &str, text: &str, rank: Option<u32>| {
            self.events.row([
                Cell::Uint(at as u64),
                Cell::uint(rank.or_else(|| view.own_rank())),
                Cell::known(&key.host),
                Cell::Uint(u64::from(key.pid)),
                Cell::int(ns.map(|ns| view.wall_time(ns))),
                Cell::known(kind),
                Cell::uint((thread != 0).then_some(thread)),
                Cell::known(name),
                Cell::known(text),
            ])
        };
        for state in &trace.states {
            row(Some(state.at), "state", 0, "", &state.life.to_string(), None)?;
        }
        for line in &trace.logs {
            row((line.at > 0).then_some(line.at), "log", 0, "", &line.text, None)?;
        }
        for pair in &trace.attributes {
            row(None, "attribute", 0, &pair.key, &pair.value, pair.rank)?;
        }
        for mark in &trace.steps {
            row(Some(mark.at), "step", mark.thread, "", &mark.step.to_string(), None)?;
        }
        for thread in &trace.threads {
            let known = [
                ("state", &thread.state),
                ("syscall", &thread.syscall),
                ("device", &thread.device),
                ("wchan", &thread.wchan),
                ("python", &thread.python),
                ("native", &thread.native),
                ("io", &thread.io),
            ];
            let text: Vec<String> = known
                .iter()
                .filter(|known| !known.1.is_empty())
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            row(Some(thread.at), "thread", thread.tid, &thread.name, &text.join(" "), None)?;
        }
        Ok(())
    }
}
