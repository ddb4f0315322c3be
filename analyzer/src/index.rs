//! Positions: per communicator and member, which call stands where, and what is not known of the rest.
//!
//! Only executed collectives take a position. Positions come from the recorder's counters; where it had none they are
//! counted, or, after a late attach, left open for `rebase` to fix.

use rankdiff_trace::{
    Call, CallFlags, Completion, ElidedChain, GapCause, OpKind, Semantics, Signature, SiteRef, TypeTable,
};
use rustc_hash::FxHashMap;

use crate::comms::{Comm, Comms};
use crate::step_marks::StepMarks;
use crate::stream::{Attempt, RankStream};
use crate::tables::Tables;

/// What is known of a call's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    Pending,
    Unknown,
}

/// A call at its position.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) pos: u64,
    pub(crate) call: &'a Call,
    pub(crate) sig: u32,
    pub(crate) site: u32,
    pub(crate) label: u32,
    pub(crate) step: Option<u64>,
    pub(crate) progress: Progress,
}

impl Entry<'_> {
    /// What the program meant by the call: equal for calls that do the same at the same place.
    pub(crate) fn meaning(&self) -> (u32, u32, u32) {
        (self.sig, self.site, self.label)
    }
}

/// How a track's positions came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Known,
    /// Fixed by overlap with other members.
    Inferred,
    /// Positions are relative to the first call seen.
    Unknown,
}

/// One member's calls on one communicator.
#[derive(Debug)]
pub(crate) struct Track<'a> {
    pub(crate) stream: usize,
    pub(crate) rank: u32,
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) base: Base,
    /// Why calls after the last one may be missing from the record; `None` if none are.
    pub(crate) blind_after: Option<String>,
    /// Calls may have been made before the first one seen.
    pub(crate) blind_before: bool,
    /// Positions of which calls were made, where not all of them are among the entries; ascending.
    pub(crate) made: Vec<(u64, u64)>,
    /// Members with one number made equal calls at all positions, as far as signatures go.
    pub(crate) class: Option<u32>,
}

impl<'a> Track<'a> {
    /// One past the last position.
    pub(crate) fn end(&self) -> u64 {
        let made = self.made.last().map_or(0, |span| span.1);
        self.entries.last().map_or(0, |entry| entry.pos + 1).max(made)
    }

    /// The first position.
    pub(crate) fn first(&self) -> Option<u64> {
        let made = self.made.first().map(|span| span.0);
        self.entries.first().map(|entry| entry.pos).into_iter().chain(made).min()
    }

    /// Whether it has no call.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.made.is_empty()
    }

    /// Number of calls.
    pub(crate) fn count(&self) -> u64 {
        let made: u64 = self.made.iter().map(|span| span.1.saturating_sub(span.0)).sum();
        made.max(self.entries.len() as u64)
    }

    /// Whether a call was made at the position that is not among the entries: it is in the files, and its digests say
    /// what others it agrees with.
    pub(crate) fn elides(&self, pos: u64) -> bool {
        let at = self.made.partition_point(|span| span.1 <= pos);
        self.made.get(at).is_some_and(|span| span.0 <= pos) && self.at(pos).is_none()
    }

    /// The first of the entries that stand without a hole up to this position.
    pub(crate) fn known_from(&self, pos: u64) -> u64 {
        let end = self.entries.partition_point(|entry| entry.pos < pos);
        let before = self.entries.get(..end).unwrap_or_default();
        let mut from = pos;
        for entry in before.iter().rev() {
            if entry.pos + 1 != from {
                break;
            }
            from = entry.pos;
        }
        from
    }

    /// One past the last of the entries that stand without a hole from this position on.
    pub(crate) fn known_to(&self, pos: u64) -> u64 {
        let start = self.entries.partition_point(|entry| entry.pos < pos);
        let behind = self.entries.get(start..).unwrap_or_default();
        let mut to = pos;
        for entry in behind {
            if entry.pos != to {
                break;
            }
            to += 1;
        }
        to
    }

    /// The call at a position.
    pub(crate) fn at(&self, pos: u64) -> Option<&Entry<'a>> {
        let first = self.entries.first()?.pos;
        let guess = usize::try_from(pos.checked_sub(first)?).ok()?;
        // Without gaps the place is known; a gap only moves it towards the front.
        match self.entries.get(guess) {
            Some(entry) if entry.pos == pos => Some(entry),
            _ => self.entries.binary_search_by_key(&pos, |entry| entry.pos).ok().and_then(|at| self.entries.get(at)),
        }
    }
}

/// Positions of the whole job.
#[derive(Debug, Default)]
pub(crate) struct Index<'a> {
    /// By communicator; tracks in order of rank, one for each member with a stream.
    pub(crate) tracks: Vec<Vec<Track<'a>>>,
    /// By stream, parallel to its calls.
    pub(crate) progress: Vec<Vec<Progress>>,
    /// By stream: the number of a call's site.
    pub(crate) sites: Vec<FxHashMap<SiteRef, u32>>,
    /// By rank: communicators and places among their tracks, ascending.
    pub(crate) of_rank: FxHashMap<u32, Vec<(usize, usize)>>,
    /// Ranks with calls that were recorded into a graph.
    pub(crate) captured: Vec<u32>,
    pub(crate) problems: Vec<String>,
}

impl<'a> Index<'a> {
    pub(crate) fn build(attempt: &Attempt<'a>, comms: &Comms<'a>, tables: &mut Tables) -> Index<'a> {
        let mut index = Index { tracks: comms.list.iter().map(|_| Vec::new()).collect(), ..Index::default() };
        let mut of_rank: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (at, comm) in comms.list.iter().enumerate() {
            for &member in &comm.members {
                of_rank.entry(member).or_default().push(at);
            }
        }
        for (at, stream) in attempt.streams.iter().enumerate() {
            let memberships = of_rank.get(&stream.rank).map_or(&[][..], Vec::as_slice);
            index.add(at, stream, memberships, comms, tables);
        }
        index
    }

    fn add(
        &mut self,
        at: usize,
        stream: &RankStream<'a>,
        memberships: &[usize],
        comms: &Comms<'a>,
        tables: &mut Tables,
    ) {
        let progress = progress(at, stream, comms);
        let sites: FxHashMap<SiteRef, u32> =
            stream.trace.sites.iter().map(|def| (def.id, tables.site(&def.frames))).collect();
        let labels: FxHashMap<u32, u32> =
            stream.trace.labels.iter().map(|(id, text)| (*id, tables.label(text))).collect();
        let types = TypeTable::new(&stream.trace.types);
        let mut steps = StepMarks::of(stream.trace);
        let mut by_comm: FxHashMap<usize, Vec<(Option<u64>, Entry<'a>)>> = FxHashMap::default();
        let mut captured = false;
        for (&call, &progress) in stream.calls.iter().zip(&progress) {
            captured |= call.flags.contains(CallFlags::CAPTURED);
            let step = steps.certain(call);
            if call.op.kind() != OpKind::Collective || !takes_position(call) {
                continue;
            }
            let Some(comm_at) = comms.of(at, call.comm) else { continue };
            let Some(comm) = comms.get(comm_at) else { continue };
            let signature = Signature::with(call, comm.semantics, comm.inter, &types);
            let entry = Entry {
                pos: 0,
                call,
                sig: tables.signature(signature),
                site: sites.get(&call.site).copied().unwrap_or(0),
                label: labels.get(&call.label).copied().unwrap_or(0),
                step,
                progress,
            };
            by_comm.entry(comm_at).or_default().push((call.seq, entry));
        }
        if captured {
            self.captured.push(stream.rank);
        }
        let mut present: Vec<usize> = by_comm.keys().chain(memberships).copied().collect();
        present.sort_unstable();
        present.dedup();
        for comm_at in present {
            let calls = by_comm.remove(&comm_at).unwrap_or_default();
            let Some(comm) = comms.get(comm_at) else { continue };
            // Views are in the order of streams.
            let view = comm.views.get(comm.views.partition_point(|view| view.0 < at)).filter(|view| view.0 == at);
            let known = view.and_then(|view| stream.trace.elided.as_ref()?.chain(view.1.id));
            let mut track = self.track(at, stream, calls, comm, known);
            if track.is_empty() {
                track.blind_before =
                    stream.in_parts || starts_blind(stream, u64::MAX) || starts_expired(stream, u64::MAX);
            }
            if let Some(tracks) = self.tracks.get_mut(comm_at) {
                self.of_rank.entry(stream.rank).or_default().push((comm_at, tracks.len()));
                tracks.push(track);
            }
        }
        self.progress.push(progress);
        self.sites.push(sites);
    }

    /// Puts one member's calls on one communicator into positions.
    fn track(
        &mut self,
        at: usize,
        stream: &RankStream<'a>,
        calls: Vec<(Option<u64>, Entry<'a>)>,
        comm: &Comm<'_>,
        known: Option<&ElidedChain>,
    ) -> Track<'a> {
        let creation_unseen = comm.creation_unseen;
        let mut track = Track {
            stream: at,
            rank: stream.rank,
            entries: Vec::with_capacity(calls.len()),
            base: Base::Known,
            blind_after: None,
            blind_before: false,
            made: known.filter(|_| stream.trace.has_elided()).map(|known| known.made.clone()).unwrap_or_default(),
            class: known.and_then(|known| known.class),
        };
        let first = calls.first().map_or(0, |(_, entry)| entry.call.enter);
        let blind_start = !calls.is_empty() && starts_blind(stream, first);
        let is_counted = calls.iter().any(|(seq, _)| seq.is_some());
        // A counter that starts at 0 behind a late attach, on a communicator that existed before, counts from the attach.
        let first_number = track.made.first().map(|span| span.0).or(calls.first().and_then(|(seq, _)| *seq));
        let from_attach = creation_unseen && first_number == Some(0);
        // Without counters, what a gap took may have been the first calls here.
        let lost_start = !calls.is_empty() && !is_counted && lost_between(stream, 0, first);
        // Without counters nobody knows how many stand before them among the calls that were not decoded.
        let unplaced = !calls.is_empty() && !is_counted && stream.trace.has_elided();
        if blind_start && (!is_counted || from_attach) || lost_start || unplaced {
            track.base = Base::Unknown;
        }
        if stream.in_parts && !calls.is_empty() {
            track.base = Base::Unknown;
        }
        track.blind_before = blind_start || lost_start || unplaced || stream.in_parts || starts_expired(stream, first);
        let mut next = 0;
        let mut last_enter = first;
        let mut left_out = 0_usize;
        // A call that returned an error to a program that goes on may have been refused before anybody else learnt of it,
        // or have failed half way: nothing says whether it took a position.
        let failed =
            |call: &Call| comm.semantics.contains(Semantics::BLOCKING) && call.result.is_some_and(|result| result != 0);
        let mut after_error = false;
        for (seq, mut entry) in calls {
            after_error |= failed(entry.call);
            if after_error {
                continue;
            }
            entry.pos = match seq {
                // Positions are counted; no job makes so many calls, and sums of smaller ones cannot overflow.
                Some(seq) if seq > HIGHEST => {
                    left_out += 1;
                    continue;
                }
                Some(seq) => seq,
                // Without a counter nothing places the calls behind a gap.
                None if left_out > 0 || lost_between(stream, last_enter, entry.call.enter) => {
                    left_out += 1;
                    continue;
                }
                None => next,
            };
            next = entry.pos.saturating_add(1);
            last_enter = entry.call.enter;
            track.entries.push(entry);
        }
        track.entries.sort_by_key(|entry| entry.pos);
        let before = track.entries.len();
        track.entries.dedup_by_key(|entry| entry.pos);
        if track.entries.len() < before {
            self.problems.push(format!(
                "rank {}: {} calls have a position that another call has; the first of each was kept",
                stream.rank,
                before - track.entries.len()
            ));
        }
        if after_error {
            // Its positions are not certain either.
            track.made.clear();
            track.class = None;
        }
        if stream.in_parts {
            track.blind_after = Some("other calls are in another recording of the process".to_owned());
        } else if after_error {
            track.blind_after =
                Some("a call returned an error: those from there on have no certain position".to_owned());
        } else if left_out > 0 {
            track.blind_after = Some(format!("{left_out} calls have no position that could be used"));
        } else {
            track.blind_after =
                lost_after(stream, track.entries.iter().map(|entry| entry.call.enter).max().unwrap_or(0));
        }
        track
    }
}

/// Highest position that is believed.
const HIGHEST: u64 = 1 << 60;

/// Whether a collective was executed by the program itself.
pub(crate) fn takes_position(call: &Call) -> bool {
    !call.flags.contains(CallFlags::CAPTURED) && !call.flags.contains(CallFlags::NESTED)
}

/// What is known of the end of every call of a stream.
fn progress(at: usize, stream: &RankStream<'_>, comms: &Comms<'_>) -> Vec<Progress> {
    let mut open = vec![false; stream.calls.len()];
    // A thread is inside its last call and inside those around it: calls that did not return and are followed only by
    // calls of lower levels. Any other call without a return lost it.
    let mut innermost: FxHashMap<u32, u8> = FxHashMap::default();
    for (slot, call) in open.iter_mut().zip(&stream.calls).rev() {
        let level = comms.of(at, call.comm).and_then(|comm| comms.get(comm)).map_or(2, |comm| comm.level as u8);
        let depth = if call.flags.contains(CallFlags::NESTED) { level.saturating_add(8) } else { level };
        match innermost.get_mut(&call.thread) {
            None => {
                *slot = call.exit.is_none();
                innermost.insert(call.thread, depth);
            }
            Some(reached) if depth < *reached => {
                *slot = call.exit.is_none();
                *reached = depth;
            }
            Some(_) => {}
        }
    }
    stream
        .calls
        .iter()
        .zip(open)
        .map(|(call, open)| {
            if call.flags.contains(CallFlags::DONE) {
                return Progress::Done;
            }
            if call.flags.contains(CallFlags::INCOMPLETE) {
                return Progress::Pending;
            }
            match call.completion {
                Completion::At(_) => return Progress::Done,
                Completion::Pending => return Progress::Pending,
                Completion::Unknown => {}
            }
            let comm = comms.of(at, call.comm).and_then(|comm| comms.get(comm));
            let blocks = comm.is_some_and(|comm| comm.semantics.contains(Semantics::BLOCKING))
                && !call.flags.contains(CallFlags::NONBLOCKING);
            if !blocks {
                Progress::Unknown
            } else if open {
                Progress::Pending
            } else {
                Progress::Done
            }
        })
        .collect()
}

/// Whether calls before this time were dropped: they were made, and their positions are known.
fn starts_expired(stream: &RankStream<'_>, first: u64) -> bool {
    stream.trace.gaps.iter().any(|gap| gap.cause == GapCause::Expired && gap.after < first)
}

/// Whether calls before this time may be missing from the record.
pub(crate) fn starts_blind(stream: &RankStream<'_>, first: u64) -> bool {
    stream.trace.gaps.iter().any(|gap| {
        matches!(gap.cause, GapCause::LateAttach | GapCause::Unprobed) && gap.events != Some(0) && gap.after < first
    })
}

/// Whether calls between two times are missing.
pub(crate) fn lost_between(stream: &RankStream<'_>, from: u64, to: u64) -> bool {
    stream.trace.gaps.iter().any(|gap| gap.events != Some(0) && gap.after >= from && gap.after < to)
}

/// Why calls after this time may be missing from the record.
pub(crate) fn lost_after(stream: &RankStream<'_>, last: u64) -> Option<String> {
    stream.trace.gaps.iter().find(|gap| gap.events != Some(0) && gap.before > last).map(|gap| match gap.events {
        Some(events) => format!("{events} events {}", gap.cause.describe()),
        None => format!("calls {}", gap.cause.describe()),
    })
}
