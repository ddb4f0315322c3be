//! Communicators of which only one process's view is known: nothing tells which other views are the same communicator.
//!
//! Their calls cannot be compared, and what waits in them waits for nobody knows whom. Both are said, never passed over.
//! Those of one member have no other view and are whole.

use rankdiff_trace::{CommRef, OpKind, Provenance, RankSet};
use rustc_hash::FxHashMap;

use crate::align::Alignment;
use crate::comms::Comm;
use crate::finding::Evidence;
use crate::index::{Progress, Track, takes_position};
use crate::waits::{Instance, Place, Waiter};
use crate::words::counted;

impl Comm<'_> {
    /// Whether its members are not known, so that its calls are compared with nobody's. `world`: size of the job.
    pub(crate) fn is_unjoined(&self, world: Option<u32>) -> bool {
        let [(_, def)] = self.views.as_slice() else { return false };
        // Who knows the job from elsewhere may list the members of a communicator that only one of them tells about.
        let is_declared = matches!(def.provenance, Provenance::Declared | Provenance::Inferred);
        let is_alone = def.size == Some(1) || self.members_known && self.members.len() == 1 || world == Some(1);
        !(self.identity.is_known() || is_alone || is_declared && self.members.len() > 1)
    }
}

/// A communicator with members of which it can be told whether they have come.
pub(crate) fn joined<'b>(alignment: &'b Alignment<'_>, comm: usize) -> Option<&'b Comm<'b>> {
    alignment.comm(comm).filter(|group| group.members.len() > 1 && !group.is_unjoined(alignment.attempt.world))
}

/// How much of the job's calls is on such communicators.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Unjoined {
    /// Views with calls.
    pub(crate) comms: u64,
    /// Calls on them, sends and receives among them.
    pub(crate) calls: u64,
    /// Collective calls on them.
    pub(crate) collectives: u64,
    /// Collective calls on communicators whose members can be compared.
    pub(crate) comparable: u64,
    /// Ranks that made the calls.
    pub(crate) ranks: RankSet,
}

impl Unjoined {
    pub(crate) fn of(alignment: &Alignment<'_>) -> Unjoined {
        let mut found = Unjoined::default();
        let world = alignment.attempt.world;
        let messages = messages_by_comm(alignment);
        for (at, comm) in alignment.comms.list.iter().enumerate() {
            let collectives: u64 = alignment.tracks(at).iter().map(Track::count).sum();
            if !comm.is_unjoined(world) {
                if comm.members.len() > 1 {
                    found.comparable += collectives;
                }
                continue;
            }
            let Some(stream) = comm.views.first().and_then(|view| alignment.attempt.streams.get(view.0)) else {
                continue;
            };
            let Some(&(view, def)) = comm.views.first() else { continue };
            let messages = messages.get(&(view, def.id)).copied().unwrap_or(0);
            let calls = collectives + messages;
            if calls > 0 {
                found.comms += 1;
                found.calls += calls;
                found.collectives += collectives;
                found.ranks.insert(stream.rank);
            }
        }
        found
    }

    /// Share of the collective calls that could be compared as far as their communicators are concerned, 0 to 1.
    pub(crate) fn comparable_share(&self) -> f64 {
        let all = self.comparable.saturating_add(self.collectives);
        if all == 0 { 1.0 } else { self.comparable as f64 / all as f64 }
    }

    /// '2 communicators whose members are not known: 8 calls on them were not compared'.
    pub(crate) fn phrase(&self) -> Option<String> {
        let (them, were) = (if self.comms == 1 { "it" } else { "them" }, if self.calls == 1 { "was" } else { "were" });
        (self.calls > 0).then(|| {
            format!(
                "{} whose members are not known: {} on {them} {were} not compared",
                counted(self.comms, "communicator"),
                counted(self.calls, "call")
            )
        })
    }

    /// The phrase as a limit of the answer.
    pub(crate) fn gap(&self) -> Option<Evidence> {
        let views = if self.ranks.len() > 1 { " (each rank's view counts as one)" } else { "" };
        let text = format!("{}{views}", self.phrase()?);
        Some(Evidence { kind: "gap".to_owned(), ranks: self.ranks.clone(), text })
    }
}

/// Sends and receives by stream and communicator, counted in one pass: a job may have thousands of communicators.
fn messages_by_comm(alignment: &Alignment<'_>) -> FxHashMap<(usize, CommRef), u64> {
    let mut found = FxHashMap::default();
    for (at, stream) in alignment.attempt.streams.iter().enumerate() {
        for call in stream.calls.iter().filter(|call| call.op.kind() == OpKind::PointToPoint && takes_position(call)) {
            *found.entry((at, call.comm)).or_default() += 1;
        }
    }
    found
}

/// Blocking calls on such communicators that have not returned.
pub(crate) fn waits<'a>(alignment: &Alignment<'a>) -> Vec<Instance<'a>> {
    let mut found: Vec<Instance<'a>> = Vec::new();
    for (stream, rank_stream) in alignment.attempt.streams.iter().enumerate() {
        let progress = alignment.index.progress.get(stream).map_or(&[][..], Vec::as_slice);
        for (&call, &progress) in rank_stream.calls.iter().zip(progress) {
            let waits_in_it = matches!(call.op.kind(), OpKind::Collective | OpKind::PointToPoint)
                && takes_position(call)
                && progress == Progress::Pending
                && call.exit.is_none();
            if !waits_in_it {
                continue;
            }
            let Some(comm_at) = alignment.comms.of(stream, call.comm) else { continue };
            let Some(comm) = alignment.comm(comm_at) else { continue };
            let blocking = comm.semantics.contains(rankdiff_trace::Semantics::BLOCKING)
                && !call.flags.contains(rankdiff_trace::CallFlags::NONBLOCKING);
            if !blocking || !comm.is_unjoined(alignment.attempt.world) {
                continue;
            }
            let since = alignment.entered(stream, call);
            let waiter = Waiter { rank: rank_stream.rank, stream, call, pos: None, since, blocks: true };
            found.push(Instance {
                place: Place::Unjoined,
                comm: Some(comm_at),
                waiters: vec![waiter],
                lacking: RankSet::new(),
                unsure: Vec::new(),
                since,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Unjoined;

    #[test]
    fn the_share_counts_collective_calls() {
        let found = Unjoined { comms: 1, calls: 3, collectives: 3, comparable: 9, ..Unjoined::default() };
        assert!((found.comparable_share() - 0.75).abs() < 1e-9);
        let text = found.phrase().expect("there are calls");
        assert_eq!(text, "1 communicator whose members are not known: 3 calls on it were not compared");
        assert_eq!(Unjoined::default().phrase(), None);
        assert!((Unjoined::default().comparable_share() - 1.0).abs() < 1e-9);
    }
}
