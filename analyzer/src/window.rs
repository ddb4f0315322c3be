//! The calls around the place of a finding, side by side: what the members called right before and right behind it.
//!
//! At each position members that did the same (the call, its arguments, its site) are one row. The place itself is told by
//! a finding's sides; it is in the window only where the first divergence lies earlier than where it shows.

use std::collections::BTreeMap;

use rankdiff_trace::RankSet;

use crate::align::Alignment;
use crate::finding::{Finding, WindowRow};
use crate::index::{Base, Track};
use crate::words::entry_text;

/// Positions before and behind.
const BEFORE: u64 = 3;
const BEHIND: u64 = 2;
/// Rows of one position; more kinds say no more.
const MOST: usize = 4;

/// The rows around a finding on this communicator.
pub(crate) fn around(alignment: &Alignment<'_>, comm: usize, finding: &Finding) -> Vec<WindowRow> {
    let Some(centre) = finding.first_divergence.or(finding.first_visible) else { return Vec::new() };
    let told = finding.first_visible.filter(|_| !finding.sides.is_empty());
    (centre.saturating_sub(BEFORE)..=centre.saturating_add(BEHIND))
        .filter(|pos| Some(*pos) != told)
        .flat_map(|pos| rows(alignment, comm, pos))
        .collect()
}

fn rows(alignment: &Alignment<'_>, at: usize, pos: u64) -> Vec<WindowRow> {
    let Some(comm) = alignment.comm(at) else { return Vec::new() };
    let tracks = alignment.tracks(at);
    let mut found: BTreeMap<(u32, u32, u32), (RankSet, &Track<'_>)> = BTreeMap::new();
    for track in tracks.iter().filter(|track| track.base != Base::Unknown) {
        let Some((held, entry)) = alignment.call_at(at, track, pos) else { continue };
        found.entry(entry.meaning()).or_insert_with(|| (RankSet::new(), held)).0.insert(track.rank);
    }
    let mut rows: Vec<WindowRow> = found
        .into_values()
        .filter_map(|(ranks, track)| {
            let call = entry_text(alignment, comm, track, track.at(pos)?);
            Some(WindowRow { position: pos, ranks, call })
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.ranks.len()), row.ranks.first()));
    rows.truncate(MOST);
    rows
}
