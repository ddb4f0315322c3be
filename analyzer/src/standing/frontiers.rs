//! How far members have come on each communicator.
//!
//! What was entered comes from positions, decoded or not; the call itself from the last calls of each stream, which are
//! known without decoding.

use std::collections::BTreeMap;

use rankdiff_trace::{CallFlags, RankSet};

use super::{CommStanding, Frontier, Query, Shape, generalise, kind_of, shape_of};
use crate::align::Alignment;
use crate::comms::Comm;
use crate::index::{Base, Entry, Progress, Track};
use crate::words::entry_text;

/// So many communicators are told each for itself.
const EACH: usize = 12;

/// What is equal in communicators that are told together.
type Kind = (usize, String, usize, Vec<(usize, Option<Shape>, bool, bool)>);

/// What is equal in members that stand alike: calls entered and completed, the last call, the doubt.
type Place = (u64, Option<u64>, Option<Shape>, String);

pub(super) fn all(alignment: &Alignment<'_>, query: &Query) -> Vec<CommStanding> {
    // Nobody can be ahead of anybody where there is only one member.
    let chosen: Vec<(usize, &Comm<'_>)> = alignment
        .comms
        .list
        .iter()
        .enumerate()
        .filter(|(at, comm)| comm.members.len() > 1 && query.wants_comm(comm) && is_used(alignment, *at))
        .collect();
    let each = query.each || query.comm.is_some() || chosen.len() <= EACH;
    let mut found: BTreeMap<Kind, CommStanding> = BTreeMap::new();
    for (at, comm) in chosen {
        let one = standing(alignment, at, comm);
        let place = if each { at } else { 0 };
        let shape = |frontier: &Frontier| {
            let size = if each { frontier.ranks.len() } else { 0 };
            let pending = frontier.call.as_ref().is_some_and(|call| call.pending);
            (size, frontier.call.as_ref().map(shape_of), pending, frontier.doubt.is_empty())
        };
        let kind = (place, kind_of(comm), comm.members.len(), one.frontiers.iter().map(shape).collect());
        match found.get_mut(&kind) {
            Some(held) => merge(held, one),
            None => {
                found.insert(kind, one);
            }
        }
    }
    let mut found: Vec<CommStanding> = found.into_values().collect();
    let pending =
        |one: &CommStanding| one.frontiers.iter().any(|front| front.call.as_ref().is_some_and(|call| call.pending));
    found.sort_by_key(|one| {
        let differs = one.frontiers.len() > 1 || !one.unknown.is_empty();
        (!differs, !pending(one), one.comms, std::cmp::Reverse(one.ranks.len()), one.ranks.first())
    });
    found
}

/// Whether somebody called something on it.
fn is_used(alignment: &Alignment<'_>, at: usize) -> bool {
    alignment.tracks(at).iter().any(|track| !track.is_empty())
}

fn merge(held: &mut CommStanding, one: CommStanding) {
    held.comms += one.comms;
    held.ranks.extend(one.ranks.iter());
    held.unknown.extend(one.unknown.iter());
    for (held, more) in held.frontiers.iter_mut().zip(one.frontiers) {
        held.ranks.extend(more.ranks.iter());
        held.entered = (held.entered.0.min(more.entered.0), held.entered.1.max(more.entered.1));
        if let (Some(held), Some(more)) = (&mut held.call, &more.call) {
            generalise(held, more);
        }
        held.completed = held.completed.zip(more.completed).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
    }
}

fn standing(alignment: &Alignment<'_>, at: usize, comm: &Comm<'_>) -> CommStanding {
    let mut one = CommStanding { group: comm.reference(), comms: 1, ranks: comm.ranks(), ..CommStanding::default() };
    one.unknown = alignment.unseen(comm);
    let mut groups: BTreeMap<Place, Frontier> = BTreeMap::new();
    for track in alignment.tracks(at) {
        if track.base == Base::Unknown {
            one.unknown.insert(track.rank);
            continue;
        }
        let entered = track.end();
        let shown = shown(track);
        let call = shown.and_then(|shown| {
            let (held, entry) = match shown {
                Shown::Own(entry) => (track, entry),
                Shown::At(pos) => alignment.call_at(at, track, pos)?,
            };
            let mut text = entry_text(alignment, comm, held, entry);
            text.pending = entry.progress == Progress::Pending;
            Some(text)
        });
        let completed = completed(track);
        let doubt = track.blind_after.clone().unwrap_or_default();
        let key = (entered, completed, call.as_ref().map(shape_of), doubt.clone());
        groups
            .entry(key)
            .or_insert_with(|| Frontier {
                ranks: RankSet::new(),
                entered: (entered, entered),
                completed: completed.map(|done| (done, done)),
                call,
                doubt,
            })
            .ranks
            .insert(track.rank);
    }
    one.frontiers = groups.into_values().collect();
    one.frontiers.sort_by_key(|frontier| {
        (std::cmp::Reverse(frontier.entered), std::cmp::Reverse(frontier.ranks.len()), frontier.ranks.first())
    });
    one
}

/// The call that tells where a member stands.
enum Shown<'t, 'a> {
    Own(&'t Entry<'a>),
    At(u64),
}

/// The first pending call, else the last one.
fn shown<'t, 'a>(track: &'t Track<'a>) -> Option<Shown<'t, 'a>> {
    if let Some(pending) = track.entries.iter().find(|entry| entry.progress == Progress::Pending) {
        return Some(Shown::Own(pending));
    }
    let last = track.end().checked_sub(1)?;
    Some(track.at(last).map_or(Shown::At(last), Shown::Own))
}

/// Collectives that are complete: up to the first that is pending, else up to the last that is known to be.
fn completed(track: &Track<'_>) -> Option<u64> {
    let is_done = |entry: &&Entry<'_>| {
        // One that returned although others made another call is no sign that earlier ones are complete.
        entry.progress == Progress::Done && !entry.call.flags.contains(CallFlags::DONE)
    };
    let pending = track.entries.iter().find(|entry| entry.progress == Progress::Pending).map(|entry| entry.pos);
    let done = track.entries.iter().rev().find(is_done).map(|entry| entry.pos + 1);
    match (pending, done) {
        (Some(pending), Some(_)) => Some(pending),
        (Some(0), None) => Some(0),
        (Some(_), None) => None,
        (None, done) if track.is_empty() => done.or(Some(0)),
        (None, done) => done,
    }
}
