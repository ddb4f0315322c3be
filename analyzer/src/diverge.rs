//! What a difference between members means: a shift, another order, other code, another argument.
//!
//! Per communicator the first difference decides; later ones count only where the streams agree again in between, since
//! behind a divergence nothing is comparable.

use rankdiff_trace::RankSet;

use crate::align::{Alignment, Comparison, Mismatch, What};
use crate::index::{Base, Entry, Progress, Track};
use crate::logical;
use crate::merged::{self, Departure, Deviation};
use crate::objects;
use crate::permute::{self, Permutation};
use crate::shift::{self, Shift};
use crate::steps::Rhythm;
use crate::vectors::Pair;

/// Calls that are searched for an earlier one of the same meaning.
const LOOK_BACK: usize = 4096;
/// How far apart calls may be that changed places while those between them stayed.
const MOST_EXCHANGED: u64 = 16;
/// Divergences of one communicator that are told apart.
const MOST: usize = 16;

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Other code was reached.
    OtherCall,
    /// The same call with another argument.
    OtherArgument,
    /// The minority lacks calls.
    Lacks(u64),
    /// The minority made more calls.
    Extra(u64),
    /// The same calls in another order within so many positions.
    Reordered { width: u64, several_threads: bool },
    /// One side goes on with another step where the other has left the loop; which group left.
    LoopLeft { group: usize },
    /// Equal signatures, other meaning.
    Meaning { exclusive: bool, run: u64 },
}

/// A difference between the members of a communicator.
#[derive(Debug, Clone)]
pub(crate) struct Divergence {
    pub(crate) comm: usize,
    pub(crate) kind: Kind,
    pub(crate) what: What,
    /// Where it shows.
    pub(crate) visible: u64,
    /// Where it began; `None` if it cannot be placed.
    pub(crate) first: Option<u64>,
    /// Tracks by what they called where it shows, the largest group first.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Members that probably went wrong; empty without a majority.
    pub(crate) suspects: RankSet,
    /// When the first call that differs was entered.
    pub(crate) at: i64,
    /// Whether a member may be left waiting by it.
    pub(crate) open: bool,
    /// More differences of this kind on the communicator.
    pub(crate) again: usize,
    pub(crate) pairs: Vec<Pair>,
}

/// All divergences, in order of communicators and positions.
pub(crate) fn find(alignment: &Alignment<'_>) -> Vec<Divergence> {
    let mut found = Vec::new();
    for (comm, compared) in alignment.compared.iter().enumerate() {
        let before = found.len();
        of_comm(alignment, comm, compared, &mut found);
        if found.len() == before {
            found.extend(by_length(alignment, comm));
        }
        if found.len() == before {
            found.extend(logical::find(alignment, comm, compared));
        }
    }
    found
}

fn of_comm(alignment: &Alignment<'_>, comm: usize, compared: &Comparison, found: &mut Vec<Divergence>) {
    let start = found.len();
    let mut last: Option<u64> = None;
    for mismatch in &compared.mismatches {
        // Right behind a difference nothing is comparable unless the streams agreed again.
        if last.is_some_and(|last| mismatch.pos <= last + 1) {
            last = Some(mismatch.pos);
            continue;
        }
        let Some(divergence) = explain(alignment, comm, compared, mismatch) else { continue };
        last = Some(match divergence.kind {
            Kind::Reordered { width, .. } => mismatch.pos + width - 1,
            _ => mismatch.pos,
        });
        let is_final = matches!(divergence.kind, Kind::Lacks(_) | Kind::Extra(_) | Kind::LoopLeft { .. });
        let alike =
            (start..found.len()).find(|&at| found.get(at).is_some_and(|held| is_alike(alignment, held, &divergence)));
        if let Some(at) = alike {
            found[at].again += 1;
        } else if found.len() - start < MOST {
            found.push(divergence);
        }
        if is_final {
            break;
        }
    }
}

/// Whether two differences are the same fault met twice.
fn is_alike(alignment: &Alignment<'_>, one: &Divergence, other: &Divergence) -> bool {
    let sites = |divergence: &Divergence| -> Vec<u32> {
        divergence
            .groups
            .iter()
            .filter_map(|group| alignment.track(divergence.comm, *group.first()?)?.at(divergence.visible))
            .map(|entry| entry.site)
            .collect()
    };
    one.what == other.what
        && std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
        && alike(&one.groups, &other.groups)
        && sites(one) == sites(other)
}

/// Whether the same members stand on each side. Which of them were decoded may differ from place to place.
fn alike(one: &[Vec<usize>], other: &[Vec<usize>]) -> bool {
    let sorted = |group: &Vec<usize>| {
        let mut group = group.clone();
        group.sort_unstable();
        group
    };
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b || sorted(a) == sorted(b))
}

fn explain(alignment: &Alignment<'_>, comm: usize, compared: &Comparison, mismatch: &Mismatch) -> Option<Divergence> {
    let tracks = alignment.tracks(comm);
    let pos = mismatch.pos;
    let major = tracks.get(*mismatch.groups.first()?.first()?)?;
    let minor = tracks.get(*mismatch.groups.get(1)?.first()?)?;
    let mut divergence = Divergence {
        comm,
        kind: if mismatch.what <= What::Form { Kind::OtherCall } else { Kind::OtherArgument },
        what: mismatch.what,
        visible: pos,
        first: Some(pos),
        groups: mismatch.groups.clone(),
        // A pair that disagrees is one against one, however many others there are.
        suspects: if mismatch.what == What::Splits && mismatch.groups.len() != 2 {
            RankSet::new()
        } else {
            suspects(alignment, comm, &mismatch.groups)
        },
        at: first_entry(alignment, tracks, &mismatch.groups, pos),
        open: is_open(tracks, &mismatch.groups, pos),
        again: 0,
        pairs: mismatch.pairs.clone(),
    };
    if mismatch.what == What::Splits || resumes(compared, major, minor, pos) {
        // Calls that changed places a few calls apart leave those between them as they are.
        if let Some(permuted) = exchanged(mismatch, major, minor) {
            divergence.kind = Kind::Reordered { width: permuted.width, several_threads: permuted.several_threads };
            return Some(divergence);
        }
        if mismatch.what > What::Form && other_code(alignment, compared, major, minor, pos) {
            divergence.kind = Kind::OtherCall;
        }
        return Some(divergence);
    }
    if permute::at_once(major, minor, pos) {
        divergence.kind = Kind::Reordered { width: 2, several_threads: true };
        return Some(divergence);
    }
    let shifted = shift::find(major, minor, pos, alignment.options.k_shift);
    if let Some(permuted) =
        permute::find(major, minor, pos).filter(|found| !permute::is_only_shifted(major, minor, *found, shifted))
        && (permute::beats(permuted, shifted) || permute::ends_with_the_rest(major, minor, pos, permuted))
    {
        divergence.kind = Kind::Reordered { width: permuted.width, several_threads: permuted.several_threads };
        return Some(divergence);
    }
    if let Some(shift) = shifted {
        apply(&mut divergence, shift);
        outvoted(alignment, &mut divergence, minor);
        if divergence.first.is_none() {
            // Calls of other communicators in between may tell which of a run of equal calls it is.
            let same = |found: &Deviation| found.exact && found.lacks() == shift.lacks && found.calls() == shift.calls;
            divergence.first = deviates(alignment, comm, mismatch).filter(same).map(|found| found.pos);
        }
        return Some(divergence);
    }
    // Another call in the same place is what the mismatch says already, and one other argument at one site is no other call.
    let same_call = major.at(pos).zip(minor.at(pos)).is_some_and(|(a, b)| {
        let one_place = a.site != 0 && a.site == b.site;
        one_place && a.call.op == b.call.op && (a.call.count == b.call.count || a.call.dtype == b.call.dtype)
    });
    let earlier = |found: &Deviation| {
        // One line may make several calls one after the other: the other argument is then the next one's.
        let is_next = || {
            let (first, next) = if found.lacks() { (major, minor) } else { (minor, major) };
            first.at(pos).zip(next.at(pos)).is_some_and(|(first, next)| follow(alignment, first, next))
        };
        let argument = same_call && (found.by_own_past || mismatch.what > What::Form && !is_next());
        // A call that nobody else makes is no later or earlier one of theirs.
        let stray = found.pos < pos && is_only_its_own(alignment, minor, pos);
        !argument && !stray && (found.how != Departure::Instead || found.pos < pos)
    };
    if let Some(deviation) = deviates(alignment, comm, mismatch).filter(earlier) {
        divergence.kind =
            if deviation.lacks() { Kind::Lacks(deviation.calls()) } else { Kind::Extra(deviation.calls()) };
        divergence.first = Some(deviation.pos);
        return Some(divergence);
    }
    if let Some(group) = loop_left(alignment, comm, mismatch) {
        divergence.kind = Kind::LoopLeft { group };
        return Some(divergence);
    }
    if mismatch.what > What::Form {
        let barrier = scalar_against_tensor(alignment, comm, major, minor, pos);
        if barrier || other_code(alignment, compared, major, minor, pos) || skipped_ahead(major, minor, pos) {
            divergence.kind = Kind::OtherCall;
        }
    }
    Some(divergence)
}

/// Calls that changed places, from different places of the program: one site may well pass other counts each time.
fn exchanged(mismatch: &Mismatch, major: &Track<'_>, minor: &Track<'_>) -> Option<Permutation> {
    let (a, b) = (major.at(mismatch.pos)?, minor.at(mismatch.pos)?);
    // An object's length and bytes have one site and two types.
    let other_place = mismatch.what <= What::Form || a.site != b.site || a.call.dtype != b.call.dtype;
    permute::find(major, minor, mismatch.pos).filter(|found| {
        let end = mismatch.pos + found.width;
        let whole = found.agrees > 0 || major.end() == end && minor.end() == end;
        other_place && found.width <= MOST_EXCHANGED && whole
    })
}

/// A member that left out or added calls, told by what ranks of other groups did at that place of their programs.
fn deviates(alignment: &Alignment<'_>, comm: usize, mismatch: &Mismatch) -> Option<Deviation> {
    let members = mismatch.groups.iter().rev().filter_map(|group| alignment.track(comm, *group.first()?));
    let mut found = members.filter_map(|track| merged::deviation(alignment, track.rank));
    // What broke the rounds of those who are right as well is the program's.
    let right = mismatch.groups.first().and_then(|group| alignment.track(comm, *group.first()?));
    let alone = |found: &Deviation| {
        let usual = || right.and_then(|track| merged::from_own_past(alignment, track.rank));
        !found.by_own_past
            || usual().is_none_or(|usual| (usual.how, usual.comm, usual.pos) != (found.how, comm, found.pos))
    };
    found.find(|found| found.message.is_none() && found.comm == comm && found.pos <= mismatch.pos && alone(found))
}

fn apply(divergence: &mut Divergence, shift: Shift) {
    divergence.kind = if shift.lacks { Kind::Lacks(shift.calls) } else { Kind::Extra(shift.calls) };
    divergence.first = shift.first;
    // Of two equal halves the one that lags is named.
    let halves = matches!(divergence.groups.as_slice(), [one, other] if one.len() == other.len());
    if halves && !shift.lacks {
        divergence.kind = Kind::Lacks(shift.calls);
        divergence.groups.reverse();
    }
}

/// Whether somebody makes two such calls one after the other.
fn follow(alignment: &Alignment<'_>, first: &Entry<'_>, next: &Entry<'_>) -> bool {
    let mut pairs = alignment.index.tracks.iter().flatten().flat_map(|track| track.entries.windows(2));
    pairs.any(|pair| matches!(pair, [a, b] if (a.sig, b.sig) == (first.sig, next.sig) && a.site == first.site))
}

/// Whether neither another rank nor this one before makes a call from the site of this one.
fn is_only_its_own(alignment: &Alignment<'_>, track: &Track<'_>, pos: u64) -> bool {
    let Some(site) = track.at(pos).map(|entry| entry.site).filter(|&site| site != 0) else { return false };
    let mut tracks = alignment.index.tracks.iter().flatten();
    !tracks.any(|other| {
        let own = other.rank == track.rank;
        other.entries.iter().any(|entry| entry.site == site && !(own && entry.pos >= pos))
    })
}

/// Where only two halves came as far as it shows, what all members did where the streams part may tell who left.
fn outvoted(alignment: &Alignment<'_>, divergence: &mut Divergence, minor: &Track<'_>) {
    let (Some(first), visible) = (divergence.first, divergence.visible) else { return };
    let tracks = alignment.tracks(divergence.comm);
    let two = |groups: &[Vec<usize>]| matches!(groups, [one, other] if one.len() == other.len());
    if first >= visible || !two(&divergence.groups) {
        return;
    }
    let usable: Vec<usize> =
        (0..tracks.len()).filter(|&at| tracks.get(at).is_some_and(|track| track.at(first).is_some())).collect();
    let Some(mut sides) = sides_at(tracks, &usable, first) else { return };
    // Those whose call shows it speak for their sides.
    let shows = |at: &usize| tracks.get(*at).is_some_and(|track| track.at(visible).is_some());
    sides.iter_mut().for_each(|side| side.sort_by_key(|at| (!shows(at), *at)));
    if !sides.iter().all(|side| side.first().is_some_and(shows)) {
        return;
    }
    let is_minor = |at: &usize| tracks.get(*at).is_some_and(|track| track.rank == minor.rank);
    let lagging = matches!(divergence.kind, Kind::Lacks(_))
        == divergence.groups.get(1).is_some_and(|side| side.iter().any(is_minor));
    let odd = sides.get(1).is_some_and(|side| side.iter().any(is_minor));
    let (Kind::Lacks(calls) | Kind::Extra(calls)) = divergence.kind else { return };
    divergence.kind = if lagging == odd { Kind::Lacks(calls) } else { Kind::Extra(calls) };
    divergence.suspects = suspects(alignment, divergence.comm, &sides);
    divergence.groups = sides;
}

/// Whether both streams go on in agreement behind the difference, to the end of what both show.
fn resumes(compared: &Comparison, major: &Track<'_>, minor: &Track<'_>, pos: u64) -> bool {
    let (Some(a), Some(b)) = (major.at(pos + 1), minor.at(pos + 1)) else { return false };
    if a.sig != b.sig {
        return false;
    }
    // Later differences that are as rare as this one are faults of their own; a run of them is a shift.
    // Calls that were not decoded tell nothing.
    let end = |track: &Track<'_>| if track.made.is_empty() { track.end() } else { track.known_to(pos) };
    let common_end = end(major).min(end(minor));
    let after = compared.mismatches.iter().filter(|other| other.pos > pos && other.pos < common_end).count() as u64;
    after.saturating_mul(4) <= common_end.saturating_sub(pos + 1)
}

/// Whether the two are in different code: one of the sites is one that all members have met at before.
fn other_code(
    alignment: &Alignment<'_>,
    compared: &Comparison,
    major: &Track<'_>,
    minor: &Track<'_>,
    pos: u64,
) -> bool {
    let (Some(a), Some(b)) = (major.at(pos), minor.at(pos)) else { return false };
    // An object's length and its bytes are two calls of one site.
    if a.site != 0 && a.site == b.site && objects::are_both_parts(a.call.dtype, b.call.dtype) {
        return alignment.tables.site_of(a.site).is_some_and(|site| objects::function_of(&site.frames).is_some());
    }
    if a.site == 0 || b.site == 0 || a.site == b.site {
        return false;
    }
    // Groups of one kind run one program: what members of another group meet at is code as well.
    let met =
        |site: u32| compared.met.knows_site(site) || alignment.compared.iter().any(|other| other.met.knows_site(site));
    // Only the innermost functions tell other code from another line of the same function.
    alignment.tables.site_text(a.site) != alignment.tables.site_text(b.site) && (met(a.site) || met(b.site))
}

/// Whether the minority's call is the one that the stream's period foretells for a little later.
fn skipped_ahead(major: &Track<'_>, minor: &Track<'_>, pos: u64) -> bool {
    let (Some(call), Some(expected)) = (minor.at(pos), major.at(pos)) else { return false };
    // What followed the majority's call the last time it was made.
    let start = major.entries.partition_point(|entry| entry.pos < pos);
    let before = major.entries.get(..start).unwrap_or_default();
    let last = before.iter().rev().take(LOOK_BACK).find(|entry| entry.meaning() == expected.meaning());
    if last.and_then(|last| major.at(last.pos + 1)).is_some_and(|next| next.meaning() == call.meaning()) {
        return true;
    }
    let Some(rhythm) = Rhythm::before(major, pos).filter(|rhythm| rhythm.period > 1) else { return false };
    (1..rhythm.period).any(|ahead| {
        let foretold = (pos + ahead).checked_sub(rhythm.period).and_then(|pos| major.at(pos));
        foretold.is_some_and(|foretold| foretold.meaning() == call.meaning())
    })
}

/// One element against many, where a framework's barrier arrives as a one-element reduction.
fn scalar_against_tensor(
    alignment: &Alignment<'_>,
    comm: usize,
    major: &Track<'_>,
    minor: &Track<'_>,
    pos: u64,
) -> bool {
    let Some(comm) = alignment.comm(comm) else { return false };
    let count = |track: &Track<'_>| {
        track
            .at(pos)
            .filter(|entry| crate::words::may_be_barrier(comm, entry.call.op))
            .and_then(|entry| entry.call.count)
    };
    let at_other_sites = major.at(pos).zip(minor.at(pos)).is_some_and(|(a, b)| a.site != b.site);
    at_other_sites && matches!((count(major), count(minor)), (Some(1), Some(2..)) | (Some(2..), Some(1)))
}

/// The group that left the loop, where all agree on whole steps before and the other group begins another one.
fn loop_left(alignment: &Alignment<'_>, comm: usize, mismatch: &Mismatch) -> Option<usize> {
    if mismatch.groups.len() != 2 {
        return None;
    }
    let pos = mismatch.pos;
    let call_of = |group: usize| {
        let track = alignment.track(comm, *mismatch.groups.get(group)?.first()?)?;
        Some((track, track.at(pos)?))
    };
    (0..2).find(|&left| {
        let (Some((_, leaving)), Some((track, staying))) = (call_of(left), call_of(1 - left)) else { return false };
        let Some(rhythm) = Rhythm::before(track, pos).filter(|rhythm| rhythm.is_whole(pos)) else { return false };
        let begins = track.at(pos - rhythm.period).is_some_and(|first| first.meaning() == staying.meaning());
        begins && is_epilogue(alignment.tables.site_text(leaving.site))
    })
}

/// Whether a call site says of itself that it is behind the end of a loop.
pub(crate) fn is_epilogue(site: &str) -> bool {
    const WORDS: [&str; 16] = [
        "epoch_end",
        "end_epoch",
        "end_of_epoch",
        "after_epoch",
        "train_end",
        "end_train",
        "end_of_training",
        "after_train",
        "fit_end",
        "finish",
        "teardown",
        "cleanup",
        "shutdown",
        "finalize",
        "epilogue",
        "destroy",
    ];
    let site = site.to_lowercase();
    WORDS.iter().any(|word| site.contains(word))
}

/// The minority, if there is a real majority among the members.
pub(crate) fn suspects(alignment: &Alignment<'_>, comm: usize, groups: &[Vec<usize>]) -> RankSet {
    let total: usize = groups.iter().map(Vec::len).sum();
    let largest = groups.first().map_or(0, Vec::len);
    if largest * 2 <= total {
        return RankSet::new();
    }
    // Members that were not seen could tip the balance.
    let unseen = alignment.comm(comm).map_or(0, |comm| alignment.unseen_count(comm));
    if largest * 2 <= total + unseen && unseen > 0 {
        return RankSet::new();
    }
    groups.iter().skip(1).flat_map(|group| alignment.ranks_of(comm, group).iter().collect::<Vec<_>>()).collect()
}

fn first_entry(alignment: &Alignment<'_>, tracks: &[Track<'_>], groups: &[Vec<usize>], pos: u64) -> i64 {
    let entries = groups.iter().flatten().filter_map(|&at| {
        let track = tracks.get(at)?;
        Some(alignment.entered(track.stream, track.at(pos)?.call))
    });
    entries.min().unwrap_or(i64::MAX)
}

/// Whether a call at the position may never have completed.
fn is_open(tracks: &[Track<'_>], groups: &[Vec<usize>], pos: u64) -> bool {
    groups.iter().flatten().any(|&at| {
        let Some(track) = tracks.get(at) else { return false };
        track.at(pos).is_some_and(|entry| match entry.progress {
            Progress::Done => false,
            Progress::Pending => true,
            // A later call that completed shows that this one did.
            Progress::Unknown => !track
                .entries
                .iter()
                .rev()
                .take_while(|later| later.pos > pos)
                .any(|later| later.progress == Progress::Done),
        })
    })
}

/// No signature differs, but a member has fewer calls: where call sites say that it has been out of step for long, that
/// is the divergence, and where it stands now only its consequence.
fn by_length(alignment: &Alignment<'_>, comm: usize) -> Option<Divergence> {
    let tracks = alignment.tracks(comm);
    let usable: Vec<usize> = (0..tracks.len())
        .filter(|&at| {
            tracks
                .get(at)
                .is_some_and(|track| track.base == Base::Known && track.blind_after.is_none() && !track.is_empty())
        })
        .collect();
    let end = |at: usize| tracks.get(at).map_or(0, Track::end);
    let short = usable.iter().map(|&at| end(at)).min()?;
    let groups = [true, false]
        .map(|longer| usable.iter().copied().filter(|&at| (end(at) > short) == longer).collect::<Vec<usize>>());
    let [longer, shorter] = groups;
    let (major, minor) = if longer.len() >= shorter.len() { (longer, shorter) } else { (shorter, longer) };
    // One of each side whose calls before that were decoded.
    let speaker = |side: &[usize]| {
        let decoded = |at: &&usize| tracks.get(**at).is_some_and(|track| track.known_from(short) < short);
        tracks.get(*side.iter().find(decoded).or(side.first())?)
    };
    let (a, b) = (speaker(&major)?, speaker(&minor)?);
    let by_sites = shift::find(a, b, short, alignment.options.k_shift);
    let by_sites =
        by_sites.and_then(|shift| Some((shift.lacks, shift.calls, shift.first.filter(|&first| first < short)?)));
    // A rank that is gone will make no more calls: its whole program tells what it left out.
    let of_program = || {
        let shorter = tracks.iter().find(|track| track.end() == short)?;
        alignment.states.get(shorter.stream)?.ended.as_ref()?;
        let deviation =
            merged::deviation(alignment, shorter.rank).filter(|found| found.comm == comm && found.pos < short)?;
        let shifts = deviation.how != Departure::Instead && deviation.message.is_none();
        shifts.then(|| (deviation.lacks(), deviation.calls(), deviation.pos))
    };
    let is_shift = by_sites.is_some();
    let (mut lacks, calls, first) = by_sites.or_else(of_program)?;
    let mut groups = vec![major, minor];
    // How far members came says who was held where; who left the program is told by what each did at the first place.
    if let Some(sides) = sides_at(tracks, &usable, first).filter(|_| is_shift) {
        let odd = sides
            .get(1)
            .is_some_and(|side| side.iter().any(|&at| tracks.get(at).map(|track| track.rank) == Some(a.rank)));
        lacks ^= odd;
        groups = sides;
    }
    let suspects = suspects(alignment, comm, &groups);
    let at = first_entry(alignment, tracks, &groups, first);
    groups.retain(|group| !group.is_empty());
    Some(Divergence {
        comm,
        kind: if lacks { Kind::Lacks(calls) } else { Kind::Extra(calls) },
        what: What::Op,
        visible: short,
        first: Some(first),
        groups,
        suspects,
        at,
        open: true,
        again: 0,
        pairs: Vec::new(),
    })
}

/// Members by what they meant at a position, if a real majority agrees and all others do.
fn sides_at(tracks: &[Track<'_>], usable: &[usize], pos: u64) -> Option<Vec<Vec<usize>>> {
    let mut sides: Vec<((u32, u32, u32), Vec<usize>)> = Vec::new();
    for &at in usable {
        let meaning = tracks.get(at)?.at(pos)?.meaning();
        match sides.iter_mut().find(|(held, _)| *held == meaning) {
            Some((_, members)) => members.push(at),
            None => sides.push((meaning, vec![at])),
        }
    }
    sides.sort_by_key(|(_, members)| (std::cmp::Reverse(members.len()), members.first().copied()));
    let clear = sides.len() == 2 && sides.first().is_some_and(|side| side.1.len() * 2 > usable.len());
    clear.then(|| sides.into_iter().map(|side| side.1).collect())
}
