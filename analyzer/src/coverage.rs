//! What was seen of the job and what was not.

use rankdiff_trace::{GapCause, ProcessTrace, RankSet};
use rustc_hash::FxHashSet;

use crate::align::Alignment;
use crate::finding::{Coverage, Decoding, Evidence};
use crate::index::Base;
use crate::outline::Facts;
use crate::unjoined::Unjoined;
use crate::words::counted;

/// Fills the coverage of one attempt.
pub(crate) fn of(alignment: &Alignment<'_>) -> Coverage {
    let seen: RankSet = alignment.attempt.streams.iter().map(|stream| stream.rank).collect();
    let members = alignment.comms.list.iter().flat_map(|comm| comm.members.iter().copied()).max();
    let highest = seen.iter().last().max(members).map_or(0, |rank| rank + 1);
    let world = alignment.options.expected_world.or(alignment.attempt.world).unwrap_or(0).max(highest);
    // A world from a hostile file is not made into a set.
    let listed = world.min(1 << 20);
    let known: RankSet = (0..listed).collect();
    let (complete, positions) = alignment
        .compared
        .iter()
        .fold((0_u64, 0_u64), |sum, one| (sum.0.saturating_add(one.complete), sum.1.saturating_add(one.positions)));
    let unjoined = Unjoined::of(alignment);
    let complete = complete.saturating_sub(alignment.facts.map_or(0, |facts| facts.unproven));
    let share = if positions == 0 { 1.0 } else { complete as f64 / positions as f64 };
    Coverage {
        ranks_expected: world as usize,
        missing: known.difference(&seen),
        ranks_seen: seen,
        truncated: alignment.states.iter().filter(|state| state.torn).map(|state| state.rank).collect(),
        gaps: gaps(alignment).into_iter().chain(unjoined.gap()).chain(open(alignment)).collect(),
        calls: calls(alignment),
        compared: share * unjoined.comparable_share(),
        clocks: alignment.attempt.clocks.clone(),
        attempts: 1,
        decoding: alignment.facts.and_then(decoding),
        problems: alignment.problems.clone(),
    }
}

/// What digests left open and was not decoded.
fn open(alignment: &Alignment<'_>) -> impl Iterator<Item = Evidence> {
    let texts = alignment.facts.map_or(&[][..], |facts| facts.open.as_slice());
    texts.iter().map(|text| Evidence { kind: "gap".to_owned(), ranks: RankSet::new(), text: text.clone() })
}

fn decoding(facts: &Facts) -> Option<Decoding> {
    let (blocks, of) = facts.blocks;
    (blocks < of).then(|| Decoding {
        blocks,
        of,
        text: format!(
            "agreement is proven by digests, {blocks} of {} of calls decoded; call sites, labels and lateness of the \
             other calls were not looked at (--decode all does)",
            counted(of, "block")
        ),
    })
}

/// Calls of the attempt's ranks, decoded or not.
fn calls(alignment: &Alignment<'_>) -> u64 {
    let mut counted: FxHashSet<*const ProcessTrace> = FxHashSet::default();
    let streams = alignment.attempt.streams.iter().map(|stream| {
        // Whose of a process's ranks the calls are that were not decoded is not known.
        match stream.trace.has_elided() {
            true if counted.insert(std::ptr::from_ref(stream.trace)) => stream.trace.call_count(),
            true => 0,
            false => stream.calls.len() as u64,
        }
    });
    streams.sum()
}

/// The gaps of all ranks in words, alike ones together.
pub(crate) fn gaps(alignment: &Alignment<'_>) -> Vec<Evidence> {
    let mut found: Vec<Evidence> = Vec::new();
    let mut note = |rank: u32, text: String| match found.iter_mut().find(|gap| gap.text == text) {
        Some(gap) => {
            gap.ranks.insert(rank);
        }
        None => found.push(Evidence { kind: "gap".to_owned(), ranks: RankSet::from_iter([rank]), text }),
    };
    for (at, stream) in alignment.attempt.streams.iter().enumerate() {
        for gap in stream.trace.gaps.iter().filter(|gap| gap.events != Some(0)) {
            let what = match gap.events {
                Some(events) => counted(events, "call"),
                None => "calls".to_owned(),
            };
            let last = stream.calls.partition_point(|call| call.enter <= gap.after);
            let place = match gap.cause {
                GapCause::LateAttach | GapCause::Unprobed => first_seen(alignment, at),
                _ if gap.after > 0 && last > 0 && !stream.trace.has_elided() => {
                    format!(", after call {last} of the rank")
                }
                _ => String::new(),
            };
            note(stream.rank, format!("{what} {}{place}", gap.cause.describe()));
        }
    }
    found
}

/// From which call on a rank is known, per communicator.
fn first_seen(alignment: &Alignment<'_>, stream: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (at, comm) in alignment.comms.list.iter().enumerate() {
        let track = alignment.tracks(at).iter().find(|track| track.stream == stream);
        let Some((track, first)) = track.and_then(|track| Some((track, track.entries.first()?))) else { continue };
        if track.base == Base::Inferred && parts.len() < 3 {
            parts.push(format!("first seen at call {} of {} (inferred)", first.pos, comm.display()));
        }
    }
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}
