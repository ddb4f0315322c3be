//! What must be known of the whole job before the first stream is exported: who plays which rank, what communicators are
//! called, and one clock for all. Read from everything but the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankdiff_trace::{ClockSnapshot, CommDef, CommIdentity, ProcessKey, ProcessTrace, RankSet, read_outlines};
use rustc_hash::FxHashMap;

use super::Job;
use crate::clocks::HostClock;
use crate::stream;
use crate::words::Who as _;

/// Jobs of at most so many calls are read once more to join the clocks of several hosts by them.
const CALLS_FOR_CLOCKS: u64 = 2_000_000;

/// What a job is made of.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Parallel to the job's streams.
    pub(super) processes: Vec<Process>,
    pub(super) comms: FxHashMap<CommIdentity, Comm>,
    clocks: BTreeMap<String, Arc<HostClock>>,
    /// Wall clock minus the job's clock, ns.
    wall: i64,
}

/// One recording of one process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) key: ProcessKey,
    pub(super) session: u64,
    /// Global ranks it plays, of its latest attempt.
    pub(super) ranks: Vec<u32>,
    /// Calls that can be read; those whose payload was dropped are not counted.
    pub(super) calls: u64,
}

/// A communicator of the job.
#[derive(Debug, Default, Clone)]
pub(super) struct Comm {
    /// The most that any member's process said.
    pub(super) def: CommDef,
}

impl Comm {
    /// What it is called: its name, else what it is for, else its library and members.
    pub(super) fn title(def: &CommDef) -> String {
        if !def.name.is_empty() {
            return def.name.clone();
        }
        if !def.desc.is_empty() {
            return def.desc.clone();
        }
        if !def.members.is_empty() {
            let ranks: RankSet = def.members.iter().copied().collect();
            return format!("{} {}", def.library, ranks.who()).trim().to_owned();
        }
        if def.identity.is_known() { def.identity.to_string() } else { format!("communicator {}", def.id.0) }
    }

    fn refine(&mut self, def: &CommDef) {
        let mine = &mut self.def;
        for (own, other) in [(&mut mine.name, &def.name), (&mut mine.desc, &def.desc)] {
            if own.is_empty() {
                own.clone_from(other);
            }
        }
        if mine.members.is_empty() {
            mine.members.clone_from(&def.members);
        }
        mine.size = mine.size.or(def.size);
    }
}

impl Survey {
    pub(super) fn of(job: &Job) -> Survey {
        let outlines = read_outlines(&job.streams);
        let mut survey = Survey::default();
        for (outline, files) in outlines.iter().zip(&job.streams) {
            let trace = &outline.trace;
            let attempt = trace.ranks.iter().map(|def| def.attempt).max().unwrap_or(0);
            let ranks: BTreeSet<u32> = trace
                .ranks
                .iter()
                .filter(|def| def.attempt == attempt)
                .map(|def| def.rank)
                .chain(trace.comms.iter().filter_map(|def| def.owner))
                .collect();
            survey.processes.push(Process {
                key: files.key.clone(),
                session: files.session,
                ranks: ranks.into_iter().collect(),
                calls: outline.decodable_calls(),
            });
            for def in trace.comms.iter().filter(|def| def.identity.is_known()) {
                survey.comms.entry(def.identity).or_insert_with(|| Comm { def: def.clone() }).refine(def);
            }
        }
        let hosts: BTreeSet<&str> = job.streams.iter().map(|files| files.key.host.as_str()).collect();
        let calls: u64 = survey.processes.iter().map(|process| process.calls).sum();
        let traces: Vec<ProcessTrace> = if hosts.len() > 1 && calls <= CALLS_FOR_CLOCKS {
            drop(outlines);
            job.streams.iter().map(|files| files.read().trace).collect()
        } else {
            outlines.into_iter().map(|outline| outline.trace).collect()
        };
        survey.join_clocks(job, &traces);
        survey
    }

    fn join_clocks(&mut self, job: &Job, traces: &[ProcessTrace]) {
        let boots = job.infos.iter().map(|info| (info.host.clone(), info.boot_id.clone())).collect();
        for attempt in stream::attempts(traces, &boots) {
            for stream in &attempt.streams {
                self.clocks.entry(stream.trace.key.host.clone()).or_insert_with(|| Arc::clone(&stream.clock));
            }
        }
        let wall = |trace: &ProcessTrace| {
            let clock: &ClockSnapshot = trace.clocks.iter().find(|clock| clock.realtime > 0)?;
            let realtime = i64::try_from(clock.realtime).ok()?;
            Some(realtime.saturating_sub(self.job_time(&trace.key.host, clock.monotonic)))
        };
        self.wall = traces.iter().find_map(wall).unwrap_or(0);
    }

    /// A time of a host's monotonic clock on the job's clock, ns.
    pub(super) fn job_time(&self, host: &str, ns: u64) -> i64 {
        match self.clocks.get(host) {
            Some(clock) => clock.time(ns),
            None => i64::try_from(ns).unwrap_or(i64::MAX / 2),
        }
    }

    /// Such a time as wall clock, ns since 1970; as it is if no recorder noted the wall clock.
    pub(super) fn wall_time(&self, host: &str, ns: u64) -> i64 {
        self.job_time(host, ns).saturating_add(self.wall)
    }

    /// Wall clock minus the job's clock, ns.
    pub(super) fn wall(&self) -> i64 {
        self.wall
    }
}
