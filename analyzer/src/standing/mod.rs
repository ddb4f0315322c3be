//! Where the ranks of a job stand: how far each has come on each communicator, who waits for whom, what each is doing.
//!
//! Everything is grouped by what is identical, so that ten thousand ranks in one hang are a few lines. Nothing here judges:
//! no cause is named and no rank is suspected, that is the checks' part. A live job is described by the same types.
//!
//! Data flow: `align` -> `frontiers` (communicators), `chains` (waits), `whereabouts` (ranks) -> [`Standing`] ->
//! [`render`](crate::render).

mod chains;
mod frontiers;
mod whereabouts;

use rankdiff_trace::{ProcessTrace, RankSet, StreamOutline};

use crate::align::Alignment;
use crate::comms::Comm;
use crate::finding::{CallText, Decoding, GroupRef};
use crate::options::Options;
use crate::{coverage, outline, stream};

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Only these ranks, and what they have to do with; `None`: all.
    pub ranks: Option<RankSet>,
    /// Only communicators whose name or description contains this.
    pub comm: Option<String>,
    /// Every communicator and every rank's details for itself, however many there are.
    pub each: bool,
}

impl Query {
    fn wants_rank(&self, rank: u32) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank))
    }

    fn wants_comm(&self, comm: &Comm<'_>) -> bool {
        let named = |name: &String| comm.display().contains(name.as_str()) || comm.desc.contains(name.as_str());
        self.comm.as_ref().is_none_or(named) && comm.members.iter().any(|&rank| self.wants_rank(rank))
    }

    /// Whether what differs in details only is told apart.
    fn wants_details(&self) -> bool {
        self.each || self.ranks.is_some()
    }
}

/// Where the ranks of a job stand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Ranks that the job has, as far as known.
    pub ranks_expected: usize,
    /// Ranks with a stream.
    pub ranks_seen: RankSet,
    /// Ranks without one.
    pub missing: RankSet,
    /// Calls that were made.
    pub calls: u64,
    /// Runs of the job that the traces hold; this is the latest.
    pub attempts: usize,
    /// How long before the end of the record the last call was entered, ms; `None` without a call.
    pub quiet_ms: Option<u64>,
    /// Communicators, those whose members differ first.
    pub comms: Vec<CommStanding>,
    /// Who waits for whom.
    pub chains: Vec<Chain>,
    /// Where the ranks are.
    pub ranks: Vec<RankStanding>,
    /// How much was decoded; `None` if all of it was.
    pub decoding: Option<Decoding>,
    /// What could not be read or used, in words.
    pub problems: Vec<String>,
}

/// A communicator, or several of one kind whose members stand alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommStanding {
    /// The first of them.
    pub group: GroupRef,
    /// How many they are.
    pub comms: usize,
    /// Members of all of them.
    pub ranks: RankSet,
    /// Members that stand alike, furthest first.
    pub frontiers: Vec<Frontier>,
    /// Members of which nothing is known there.
    pub unknown: RankSet,
}

/// Members of communicators that have come equally far; over several communicators the least and the most.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Frontier {
    /// Global ranks.
    pub ranks: RankSet,
    /// Collectives that were entered.
    pub entered: (u64, u64),
    /// Collectives that are complete; `None` where nobody saw completions.
    pub completed: Option<(u64, u64)>,
    /// The last call that was entered, or the first that is pending.
    pub call: Option<CallText>,
    /// Why more calls may have been made, in words; empty if none were.
    pub doubt: String,
}

/// Waits that hang together, from whom nobody waits behind to those furthest behind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chain {
    /// Who is waited for and does not wait.
    pub roots: RankSet,
    /// Who is in a call as well, but in another one than those who wait for it; without roots, two sides of which
    /// neither is a majority.
    pub differ: RankSet,
    /// Who waits for one another, each for the next.
    pub cycle: Vec<u32>,
    /// Of whom it is not known whether they came.
    pub unsure: RankSet,
    /// Who waits, by distance from the roots.
    pub links: Vec<Link>,
}

/// Ranks that wait in calls of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Link {
    /// Distance from the roots, from 1. 0: all have entered the call, and it is not complete.
    pub distance: usize,
    /// Who waits.
    pub ranks: RankSet,
    /// For whom, of those that are nearer to the roots.
    pub behind: RankSet,
    /// The call; what differs between them is left out.
    pub call: CallText,
    /// Communicators of these calls: the kind, or the name of a single one.
    pub on: String,
    /// How many communicators.
    pub comms: usize,
    /// How long the longest has waited when the record ends, ms.
    pub waited_ms: u64,
}

/// Ranks in the same situation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RankStanding {
    /// Global ranks.
    pub ranks: RankSet,
    /// How the processes stood, in words; empty if not recorded.
    pub life: String,
    /// Whether they are inside of `call`; else it is the last one they made.
    pub inside: bool,
    /// A call; what differs between them is left out.
    pub call: Option<CallText>,
    /// Its communicator: the kind, or the name of a single one.
    pub on: String,
    /// Since when the longest of them has been there, ms before the end of the record.
    pub since_ms: Option<u64>,
    /// What their threads did, in words, of the lowest rank.
    pub facts: Vec<String>,
    /// Others wait for them, and they wait for nobody.
    pub waited_for: bool,
}

/// Says where the ranks stand in these traces.
pub fn standing(traces: &[ProcessTrace], options: &Options, query: &Query) -> Standing {
    of_traces(traces, options, None, query)
}

/// The same by the digests and frontiers of the streams; decodes only what they leave in question.
pub fn standing_of_outlines(outlines: Vec<StreamOutline>, options: &Options, query: &Query) -> Standing {
    let (traces, facts) = outline::decoded(outlines, options);
    of_traces(&traces, options, Some(&facts), query)
}

fn of_traces(traces: &[ProcessTrace], options: &Options, facts: Option<&outline::Facts>, query: &Query) -> Standing {
    let attempts = stream::attempts(traces, &options.boots);
    let with_calls = attempts.iter().filter(|attempt| attempt.streams.iter().any(|stream| !stream.calls.is_empty()));
    let several = with_calls.count().max(1);
    let Some(attempt) = attempts.first() else { return Standing::default() };
    let alignment = Alignment::build(attempt, options, facts);
    let coverage = coverage::of(&alignment);
    let now = now(&alignment);
    let last = attempt.streams.iter().flat_map(|stream| stream.calls.iter().map(|call| stream.time(call.enter))).max();
    let chains = chains::all(&alignment, query, now);
    let roots: RankSet = chains.iter().flat_map(|chain| chain.roots.iter()).collect();
    Standing {
        ranks_expected: coverage.ranks_expected,
        ranks_seen: coverage.ranks_seen,
        missing: coverage.missing,
        calls: coverage.calls,
        attempts: several,
        quiet_ms: last.map(|last| ago(now, last)),
        comms: frontiers::all(&alignment, query),
        ranks: whereabouts::all(&alignment, query, &roots, now),
        chains,
        decoding: coverage.decoding,
        problems: coverage.problems,
    }
}

/// The last sign of any rank, on the job's clock.
fn now(alignment: &Alignment<'_>) -> i64 {
    alignment.states.iter().map(|state| state.horizon).filter(|&horizon| horizon > i64::MIN).max().unwrap_or(0)
}

/// ms between two times, none if the first is earlier.
fn ago(now: i64, then: i64) -> u64 {
    u64::try_from(now.saturating_sub(then)).unwrap_or(0) / 1_000_000
}

/// What tells kinds of communicators apart: what they are for and their size; the name where they are for nothing.
fn kind_of(comm: &Comm<'_>) -> String {
    if comm.desc.is_empty() { comm.display() } else { comm.desc.clone() }
}

/// What is equal in calls of one kind.
type Shape = (String, Option<u64>, Option<String>, String);

fn shape_of(call: &CallText) -> Shape {
    (call.op.clone(), call.count, call.dtype.clone(), call.site.clone())
}

/// Leaves of a call what holds for another one of its shape too.
fn generalise(held: &mut CallText, other: &CallText) {
    fn keep<T: PartialEq>(held: &mut Option<T>, other: Option<&T>) {
        if held.as_ref() != other {
            *held = None;
        }
    }
    keep(&mut held.seq, other.seq.as_ref());
    keep(&mut held.root, other.root.as_ref());
    keep(&mut held.peer, other.peer.as_ref());
    keep(&mut held.tag, other.tag.as_ref());
    keep(&mut held.redop, other.redop.as_ref());
}
