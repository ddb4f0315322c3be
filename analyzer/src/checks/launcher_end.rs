//! The launcher ended ranks, and no rank was seen to fail first: what can be said of such a job, for F001.

use rankdiff_trace::RankSet;

use super::rank_failed::death;
use super::report;
use super::{Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::finding::{Class, Confidence, Severity};
use crate::index::Progress;
use crate::state::How;
use crate::words::{Who as _, call_phrase, call_text};

/// Most calls that are listed as pending.
const LISTED: usize = 8;

/// The finding; its rule lets whatever else is wrong with the job explain it.
pub(super) fn raw(alignment: &Alignment<'_>, meta: &'static Meta) -> Option<Raw> {
    let ended = &alignment.deaths.by_launcher;
    let mut signals: Vec<i32> = ended
        .iter()
        .filter_map(|rank| match alignment.state_of(rank)?.ended {
            Some((_, How::Signal(signal, _))) => Some(signal),
            _ => None,
        })
        .collect();
    signals.sort_unstable();
    signals.dedup();
    if signals.is_empty() {
        return None;
    }
    let named: Vec<String> = signals.iter().map(i32::to_string).collect();
    let plural = if named.len() > 1 { "s" } else { "" };
    let mut finding = blank(meta);
    finding.severity = Severity::Warning;
    finding.class = Class::Unknown;
    finding.confidence = Confidence::Low;
    finding.collateral_exits = ended.clone();
    finding.evidence = report::endings(alignment, ended);
    finding.headline = format!(
        "the launcher ended {} (signal{plural} {}) and no rank was seen to fail first",
        ended.who(),
        named.join(", ")
    );
    finding.detail = pending(alignment, ended);
    finding.detail.push(
        "cause unknown: see what the launcher printed; a time limit, a lost node or a rank that was not recorded ends a job like this"
            .to_owned(),
    );
    let at = death(alignment, ended);
    Some(Raw { finding, rule: Rule::Ended, at, roots: ended.clone(), open: false, comm: None })
}

/// The calls that ranks were inside when they ended, a line for each call.
fn pending(alignment: &Alignment<'_>, ended: &RankSet) -> Vec<String> {
    let mut calls: Vec<(String, RankSet)> = Vec::new();
    for (at, stream) in alignment.attempt.streams.iter().enumerate().filter(|(_, stream)| ended.contains(stream.rank)) {
        let progress = alignment.index.progress.get(at).map_or(&[][..], Vec::as_slice);
        let inside = stream.calls.iter().zip(progress).filter(|(_, progress)| **progress == Progress::Pending);
        // Behind the first ones of a rank, whatever a device has queued is pending too.
        for (&call, _) in inside.take(2) {
            let text = place(alignment, at, call);
            if let Some((_, ranks)) = calls.iter_mut().find(|(held, _)| *held == text) {
                ranks.insert(stream.rank);
            } else if calls.len() < LISTED {
                calls.push((text, RankSet::from_iter([stream.rank])));
            }
        }
    }
    calls.iter().map(|(text, ranks)| format!("{}: ended inside {text}", ranks.who())).collect()
}

/// A call with its communicator and position.
fn place(alignment: &Alignment<'_>, stream: usize, call: &rankdiff_trace::Call) -> String {
    let at = alignment.comms.of(stream, call.comm);
    let comm = at.and_then(|at| alignment.comm(at));
    let phrase = call_phrase(&call_text(alignment, comm, stream, call), false);
    let Some((at, comm)) = at.zip(comm) else { return phrase };
    if comm.is_unjoined(alignment.attempt.world) {
        return format!("{phrase} on a communicator whose members are not known");
    }
    let track = alignment.tracks(at).iter().find(|track| track.stream == stream);
    let entry = track.and_then(|track| track.entries.iter().rfind(|entry| std::ptr::eq(entry.call, call)));
    let pos = entry.map(|entry| format!(" (call {})", entry.pos)).unwrap_or_default();
    format!("{phrase} on {}{pos}", comm.display())
}
