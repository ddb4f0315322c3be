//! A call that a rank made on another communicator than the one where the others wait for it: the same operation and
//! elements from the same call site, which nobody ever made there.
//!
//! The site tells this from another order of calls: a program that calls one after the other in a loop over communicators
//! would have done so in the rounds before as well. So the rank must have made the call from there before, and neither it nor
//! anybody else, on a communicator of that kind, this one. Without such a past both are possible, and nothing is said here.

use crate::align::Alignment;
use crate::index::{Entry, Progress, Track};
use crate::merged::{self, Departure, Deviation};

/// The call in which others wait for a rank that has made it elsewhere and got no further there.
pub(crate) fn find(alignment: &Alignment<'_>, rank: u32) -> Option<Deviation> {
    let last = |track: &Track<'_>| track.entries.last().map(|entry| entry.call.enter);
    let (odd, track) = alignment.tracks_of(rank).max_by_key(|(_, track)| last(track))?;
    let held = track.entries.last().filter(|entry| entry.progress != Progress::Done && entry.site != 0)?;
    let (earlier, others) = (track.entries.len().saturating_sub(1), alignment.tracks(odd));
    let from_there = |entry: &Entry<'_>| entry.site == held.site;
    let known = track.entries.iter().take(earlier).any(from_there)
        || others.iter().any(|other| other.rank != rank && other.entries.last().is_some_and(from_there));
    if known || is_usual(alignment, odd, held.site) {
        return None;
    }
    let waited_for = |(comm, own): &(usize, &Track<'_>)| {
        let awaited =
            |other: &Track<'_>| other.rank != rank && other.at(own.end()).is_some_and(|call| is_same(call, held));
        *comm != odd && own.entries.iter().rev().any(from_there) && alignment.tracks(*comm).iter().any(awaited)
    };
    let (comm, own) = alignment.tracks_of(rank).find(waited_for)?;
    Some(Deviation { how: Departure::Instead, comm, pos: own.end(), message: None, exact: true, by_own_past: true })
}

/// Whether members of communicators of the same kind have met at a site.
fn is_usual(alignment: &Alignment<'_>, comm: usize, site: u32) -> bool {
    let Some(kind) = alignment.comm(comm).map(merged::kind) else { return true };
    let alike = |other: usize| alignment.comm(other).is_some_and(|group| merged::kind(group) == kind);
    alignment.compared.iter().enumerate().any(|(other, compared)| compared.met.knows_site(site) && alike(other))
}

/// Whether two calls are the same but for their communicators.
pub(crate) fn is_same(one: &Entry<'_>, other: &Entry<'_>) -> bool {
    let (a, b) = (one.call, other.call);
    one.site == other.site && one.label == other.label && (a.op, a.count, &a.dtype) == (b.op, b.count, &b.dtype)
}
