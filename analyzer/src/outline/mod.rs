//! Digests first: from outlines of the streams to a report, decoding only the blocks that the digests leave in question.
//!
//! Data flow: outlines -> `stream` and `comms` (who is a member of what) -> `classes` by `agree` and `sums` (what digests
//! prove) -> `plan` (which blocks to decode) -> `fill` (traces with what was decoded, and what is known of the rest) ->
//! the same alignment and checks as for whole traces.
//!
//! What digests do not hold is not seen in calls that were not decoded: call sites and labels, times. The report's
//! coverage says so.

mod agree;
mod classes;
mod fill;
mod plan;
mod sums;

use rankdiff_trace::{ProcessTrace, StreamOutline};
use rustc_hash::FxHashMap;

use self::classes::Member;
use self::plan::{Group, Plan};
use crate::comms::Comms;
use crate::finding::Report;
use crate::options::Options;
use crate::stream;

/// Calls that are decoded at least if there are so many: 128 blocks of the usual size.
const LEAST_BUDGET: u64 = 128 * 4096;
/// The share of all calls that is decoded at most, beyond that: one in so many.
const SHARE: u64 = 250;

/// What was left out of the traces, and how much was decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// Blocks of calls that were decoded, and that there are.
    pub(crate) blocks: (u64, u64),
    /// What could not be judged, in words.
    pub(crate) open: Vec<String>,
    /// A difference that digests show and calls do not, since they are not there or too many: the first, in words.
    pub(crate) differs: Option<String>,
    /// Positions of which nothing is proven.
    pub(crate) unproven: u64,
}

/// Analyzes a job by its digests.
pub(crate) fn analyze(outlines: Vec<StreamOutline>, options: &Options) -> Report {
    let (traces, facts) = decoded(outlines, options);
    crate::report_of(&traces, options, Some(&facts))
}

/// The traces of a job with the calls that its digests leave in question, and what is known of the others.
pub(crate) fn decoded(mut outlines: Vec<StreamOutline>, options: &Options) -> (Vec<ProcessTrace>, Facts) {
    let shells: Vec<ProcessTrace> = outlines.iter_mut().map(fill::shell).collect();
    let groups = groups(&shells, &outlines, options);
    let total: u64 = outlines.iter().map(|outline| outline.calls).sum();
    let budget = options.decode_calls.unwrap_or(LEAST_BUDGET.max(total / SHARE));
    let plan = Plan::make(&groups, &outlines, budget);
    fill::traces(shells, &outlines, &groups, &plan)
}

/// The communicators of all attempts of the job with their members' digests.
fn groups(shells: &[ProcessTrace], outlines: &[StreamOutline], options: &Options) -> Vec<Group> {
    let index: FxHashMap<*const ProcessTrace, usize> =
        shells.iter().enumerate().map(|(at, shell)| (std::ptr::from_ref(shell), at)).collect();
    let mut groups = Vec::new();
    for attempt in &stream::attempts(shells, &options.boots) {
        let comms = Comms::join(attempt);
        for comm in comms.list.iter().filter(|comm| comm.members.len() > 1 && !comm.is_unjoined(attempt.world)) {
            let member = |&(stream, def): &(usize, &rankdiff_trace::CommDef)| {
                let trace = attempt.streams.get(stream)?.trace;
                Some(Member { stream: *index.get(&std::ptr::from_ref(trace))?, comm: def.id })
            };
            let members: Vec<Member> = comm.views.iter().filter_map(member).collect();
            groups.push(Group::judge(comm.display(), members, outlines));
        }
    }
    groups
}
