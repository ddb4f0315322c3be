//! Late attach: fixes the base of a member's positions from what overlaps with the other members.
//!
//! Content decides (signatures, sites, labels, step marks); time only chooses between places where the content fits
//! equally, once per member, and what it chose is marked inferred. Where no place is clearly best the member is left out
//! of the comparison and the report says so. Clocks that may be further apart than two places are tell nothing.
//!
//! Members complete a call together, but where calls return at once a member may issue them long before the others. So a
//! place where the last call differs is taken for its time only if that is the time of completions; times of entry choose
//! it only where nothing fits wholly.

use rankdiff_trace::Completion;

use crate::align::synchronises;
use crate::index::{Base, Entry, Progress, Track};
use crate::stream::Attempt;

/// Calls on each side of the place that time suggests which are tried.
const REACH: i64 = 2048;
/// Calls that must agree if a difference follows.
const PROOF: usize = 8;
/// Calls at each end of what overlaps that are compared for each place.
const SAMPLE: usize = 2048;
/// Of so many calls one may be made from another line than its counterpart: a branch that both took their way.
const STRAY: usize = 8;
/// Calls whose times are compared for each place.
const TIMES: usize = 64;

/// Fixes what can be fixed of one communicator's tracks. Returns what could not be, in words.
pub(crate) fn fix(tracks: &mut [Track<'_>], attempt: &Attempt<'_>, name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let is_open = |track: &Track<'_>| track.base == Base::Unknown && !track.entries.is_empty();
    if !tracks.iter().any(is_open) {
        return problems;
    }
    // A few calls of a record say too little of where they belong.
    let is_whole =
        |track: &Track<'_>| attempt.streams.get(track.stream).is_some_and(|stream| !stream.trace.has_elided());
    if !tracks.iter().any(|track| track.base != Base::Unknown && !track.entries.is_empty()) {
        // Nobody was seen from the start: positions count from the earliest call that was seen.
        let earliest = (0..tracks.len())
            .filter(|&at| tracks.get(at).is_some_and(|track| is_open(track) && is_whole(track)))
            .min_by_key(|&at| tracks.get(at).and_then(|track| entered(track.entries.first()?, track, attempt)));
        if let Some(track) = earliest.and_then(|at| tracks.get_mut(at)) {
            track.base = Base::Inferred;
        }
    }
    for at in 0..tracks.len() {
        let Some(track) = tracks.get(at).filter(|track| is_open(track)) else { continue };
        let reference = tracks
            .iter()
            .filter(|other| other.base != Base::Unknown && !other.entries.is_empty() && is_whole(other))
            .max_by_key(|other| (other.base == Base::Known, other.entries.len(), std::cmp::Reverse(other.rank)));
        let Some(offset) = reference.filter(|_| is_whole(track)).and_then(|reference| place(track, reference, attempt))
        else {
            problems.push(format!(
                "rank {}: recorded from call {} of an unknown number on {name}; its place among the other ranks' calls cannot be fixed, so it was not compared",
                track.rank,
                track.entries.first().map_or(0, |entry| entry.pos)
            ));
            continue;
        };
        if let Some(track) = tracks.get_mut(at) {
            for entry in &mut track.entries {
                entry.pos = entry.pos.saturating_add(offset);
            }
            track.base = Base::Inferred;
        }
    }
    problems
}

fn entered(entry: &Entry<'_>, track: &Track<'_>, attempt: &Attempt<'_>) -> Option<i64> {
    attempt.streams.get(track.stream).map(|stream| stream.time(entry.call.enter))
}

/// How well a place fits.
struct Fit {
    offset: u64,
    /// Calls that agree.
    agree: usize,
    /// Those among them whose call sites or labels differ.
    strays: usize,
    /// Everything that overlaps agrees.
    whole: bool,
    /// Median difference of times, ns.
    apart: i64,
    /// These are times of completion.
    timely: bool,
}

fn place(track: &Track<'_>, reference: &Track<'_>, attempt: &Attempt<'_>) -> Option<u64> {
    let first = track.entries.first()?;
    let begun = entered(first, track, attempt)?;
    let near = reference.entries.partition_point(|entry| entered(entry, reference, attempt).unwrap_or(0) < begun);
    let near_pos = reference.entries.get(near.min(reference.entries.len() - 1))?.pos as i64;
    let mut fits: Vec<Fit> = Vec::new();
    for pos in (near_pos - REACH).max(0)..=near_pos + REACH {
        let Some(offset) = (pos as u64).checked_sub(first.pos) else { continue };
        if let Some(fit) = fit(track, reference, offset, attempt) {
            fits.push(fit);
        }
    }
    // Few calls that overlap agree easily: they do not say how well the others have to.
    let most = fits.iter().map(|fit| fit.agree).max()?;
    let fewest = fits.iter().filter(|fit| fit.agree >= most / 2).map(|fit| fit.strays).min()?;
    fits.retain(|fit| fit.strays <= fewest);
    fits.sort_by_key(|fit| (fit.apart, fit.offset));
    // Another place that fits must be far worse in time, else nothing tells the two apart.
    let doubt = doubt(track, reference, attempt);
    let clear = |best: &Fit, next: Option<&Fit>| {
        let far = |next: &Fit| next.apart.saturating_sub(best.apart) >= doubt.saturating_mul(2);
        next.is_none_or(|next| best.apart.saturating_mul(3) <= next.apart && far(next))
    };
    let best = fits.first()?;
    let is_timely = best.timely || !fits.iter().any(|fit| fit.whole);
    if !best.whole && is_timely && clear(best, fits.get(1)) {
        return Some(best.offset);
    }
    let mut whole = fits.iter().filter(|fit| fit.whole);
    let best = whole.next()?;
    clear(best, whole.next()).then_some(best.offset)
}

/// How far the difference of two members' times may be off, ns.
fn doubt(track: &Track<'_>, reference: &Track<'_>, attempt: &Attempt<'_>) -> i64 {
    let first = |track: &Track<'_>| track.entries.first().map_or(0, |entry| entry.call.enter);
    let streams = attempt.streams.get(track.stream).zip(attempt.streams.get(reference.stream));
    streams.map_or(0, |(own, other)| own.clock.doubt_between(first(track), &other.clock, first(reference)))
}

/// When a call that no member leaves before all have entered it was complete, on the common clock.
fn completed(entry: &Entry<'_>, track: &Track<'_>, attempt: &Attempt<'_>) -> Option<i64> {
    let at = match entry.call.completion {
        Completion::At(at) if synchronises(entry.call.op) => at,
        _ => return None,
    };
    attempt.streams.get(track.stream).map(|stream| stream.time(at))
}

fn fit(track: &Track<'_>, reference: &Track<'_>, offset: u64, attempt: &Attempt<'_>) -> Option<Fit> {
    let (mut agree, mut strays, mut whole) = (0, 0, true);
    let (mut entries, mut completions): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let end = reference.end();
    let overlap = track.entries.partition_point(|entry| entry.pos.saturating_add(offset) < end);
    let common = track.entries.get(..overlap)?;
    let tail = common.len().saturating_sub(SAMPLE).max(SAMPLE);
    for entry in common.iter().take(SAMPLE).chain(common.iter().skip(tail)) {
        let Some(other) = reference.at(entry.pos + offset) else { continue };
        let steps_differ = entry.step.is_some() && other.step.is_some() && entry.step != other.step;
        if entry.sig != other.sig || steps_differ {
            // Completed calls fitted; only one that hangs may be a divergence rather than the wrong place.
            if entry.progress == Progress::Done || agree < PROOF {
                return None;
            }
            whole = false;
            break;
        }
        agree += 1;
        strays += usize::from(entry.meaning() != other.meaning());
        if entries.len() < TIMES {
            let times = (entered(entry, track, attempt)?, entered(other, reference, attempt)?);
            entries.push((times.0 - times.1).abs());
        }
        if completions.len() < TIMES
            && let Some(times) = completed(entry, track, attempt).zip(completed(other, reference, attempt))
        {
            completions.push((times.0 - times.1).abs());
        }
    }
    if agree == 0 || strays * STRAY > agree {
        return None;
    }
    let timely = completions.len() >= agree.min(PROOF);
    let mut apart = if timely { completions } else { entries };
    apart.sort_unstable();
    Some(Fit { offset, agree, strays, whole, apart: apart.get(apart.len() / 2).copied().unwrap_or(i64::MAX), timely })
}
