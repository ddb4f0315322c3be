//! The alignment: everything that checks read. Built once, stage by stage, from the streams of one attempt.
//!
//! Here the members of each communicator are compared position by position; what a difference means is `diverge`'s part.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use rankdiff_trace::{Basic, Call, Op, Part, RankSet, Unit};
use rustc_hash::FxHashMap;

use crate::checks::cycles::Sort;
use crate::comms::{Comm, Comms};
use crate::creation;
use crate::deaths::{self, Deaths};
use crate::diverge::{self, Divergence};
use crate::elision::{self, Elision};
use crate::index::{Base, Entry, Index, Progress, Track};
use crate::lateness::{self, Late};
use crate::merged::Deviation;
use crate::messages::{self, Messages};
use crate::met::Met;
use crate::options::Options;
use crate::outline::Facts;
use crate::quiet::{self, Quiet};
use crate::rebase;
use crate::state::{self, RankState};
use crate::stream::{Attempt, RankStream};
use crate::tables::Tables;
use crate::vectors::{self, Pair};
use crate::waits::{self, Cycle, Waits};

/// What checks read.
#[derive(Debug)]
pub(crate) struct Alignment<'a> {
    pub(crate) options: &'a Options,
    pub(crate) facts: Option<&'a Facts>,
    pub(crate) attempt: &'a Attempt<'a>,
    pub(crate) comms: Comms<'a>,
    pub(crate) tables: Tables,
    pub(crate) index: Index<'a>,
    /// Parallel to the attempt's streams.
    pub(crate) states: Vec<RankState<'a>>,
    /// Parallel to the communicators.
    pub(crate) compared: Vec<Comparison>,
    /// Where ranks left the program, once somebody asked: it follows from what stands above.
    pub(crate) deviations: RefCell<FxHashMap<u32, Option<Deviation>>>,
    /// Circles of waits that are certain, once a check asked for them.
    pub(crate) cycles: OnceCell<Vec<(Sort, Cycle)>>,
    pub(crate) divergences: Vec<Divergence>,
    pub(crate) messages: Messages<'a>,
    pub(crate) waits: Waits<'a>,
    pub(crate) deaths: Deaths,
    pub(crate) late: Vec<Late>,
    /// The job stands still.
    pub(crate) quiet: Option<Quiet>,
    /// A wait is long from here on, ns.
    pub(crate) limit: i64,
    /// What could not be used, in words.
    pub(crate) problems: Vec<String>,
}

/// Which part of the calls differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Op,
    Form,
    Count,
    Dtype,
    Redop,
    Root,
    Splits,
}

/// A position where members differ.
#[derive(Debug, Clone)]
pub(crate) struct Mismatch {
    pub(crate) pos: u64,
    pub(crate) what: What,
    /// Tracks by what they called, the largest group first.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Members whose vectors do not pair up.
    pub(crate) pairs: Vec<Pair>,
}

/// The comparison of one communicator's members.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Positions where members differ, the first ones.
    pub(crate) mismatches: Vec<Mismatch>,
    /// Positions with equal signatures at different sites or labels, the first ones.
    pub(crate) meanings: Vec<u64>,
    /// (site, label) at which members met, and which tracks those were.
    pub(crate) met: Met,
    pub(crate) positions: u64,
    /// Positions that were compared on every member.
    pub(crate) complete: u64,
    /// The instance whose members entered furthest apart: lateness in ns, position, the last track.
    pub(crate) latest: Option<(i64, u64, usize)>,
}

/// Differences that are kept per communicator.
const KEPT: usize = 4096;

impl<'a> Alignment<'a> {
    /// `facts`: what was left out of the traces, if something was.
    pub(crate) fn build(attempt: &'a Attempt<'a>, options: &'a Options, facts: Option<&'a Facts>) -> Alignment<'a> {
        let comms = Comms::join(attempt);
        let mut tables = Tables::default();
        let mut index = Index::build(attempt, &comms, &mut tables);
        let mut problems = attempt.problems.clone();
        problems.extend(comms.problems.iter().cloned());
        problems.append(&mut index.problems);
        problems.extend(not_closed(attempt));
        for (tracks, comm) in index.tracks.iter_mut().zip(&comms.list) {
            problems.append(&mut rebase::fix(tracks, attempt, &comm.display()));
        }
        let compared: Vec<Comparison> = comms
            .list
            .iter()
            .zip(&index.tracks)
            .map(|(comm, tracks)| compare(comm, tracks, attempt, &tables))
            .collect();
        let longest = compared.iter().filter_map(|one| one.latest).map(|latest| latest.0).max().unwrap_or(0);
        let mut alignment = Alignment {
            options,
            facts,
            attempt,
            states: state::all(attempt),
            comms,
            tables,
            index,
            compared,
            deviations: RefCell::default(),
            cycles: OnceCell::new(),
            divergences: Vec::new(),
            messages: Messages::default(),
            waits: Waits::default(),
            deaths: Deaths::default(),
            late: Vec::new(),
            quiet: None,
            limit: options.stall_ns().max(longest.saturating_mul(2)),
            problems,
        };
        alignment.messages = messages::pair(&alignment);
        let creations = creation::all(&alignment);
        let others = alignment.messages.longest.max(creation::longest_wait(&alignment, &creations));
        alignment.limit = alignment.limit.max(others.saturating_mul(2));
        alignment.quiet = quiet::find(&alignment);
        alignment.divergences = diverge::find(&alignment);
        alignment.waits = waits::build(&alignment, creations);
        alignment.deaths = deaths::find(&alignment);
        // Those that waited for each other began at different times, and it is the first that gave up.
        if let Some(patience) = alignment.deaths.patience {
            alignment.limit = alignment.limit.min((patience / 2).max(deaths::MOMENT));
        }
        alignment.late = lateness::find(&alignment, &alignment.waits);
        alignment
    }

    /// A communicator; the index must be one of this alignment's.
    pub(crate) fn comm(&self, at: usize) -> Option<&Comm<'a>> {
        self.comms.get(at)
    }

    /// The members' calls on a communicator.
    pub(crate) fn tracks(&self, comm: usize) -> &[Track<'a>] {
        self.index.tracks.get(comm).map_or(&[], Vec::as_slice)
    }

    /// A rank's calls by communicator.
    pub(crate) fn tracks_of(&self, rank: u32) -> impl Iterator<Item = (usize, &Track<'a>)> {
        let places = self.index.of_rank.get(&rank).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|&(comm, at)| Some((comm, self.track(comm, at)?)))
    }

    /// A track of a communicator.
    pub(crate) fn track(&self, comm: usize, at: usize) -> Option<&Track<'a>> {
        self.tracks(comm).get(at)
    }

    /// The decoded call of a member at a position, or one that is known to be equal: with the member that made it.
    pub(crate) fn call_at<'t>(
        &'t self,
        comm: usize,
        track: &'t Track<'a>,
        pos: u64,
    ) -> Option<(&'t Track<'a>, &'t Entry<'a>)> {
        let other = || elision::stand_in(self.tracks(comm), track, pos);
        let held = if track.at(pos).is_some() { Some(track) } else { other() }?;
        Some((held, held.at(pos)?))
    }

    /// The ranks of some tracks.
    pub(crate) fn ranks_of(&self, comm: usize, tracks: &[usize]) -> RankSet {
        tracks.iter().filter_map(|&at| self.track(comm, at)).map(|track| track.rank).collect()
    }

    /// When a call was entered, on the job's clock.
    pub(crate) fn entered(&self, stream: usize, call: &Call) -> i64 {
        self.attempt.streams.get(stream).map_or(0, |stream| stream.time(call.enter))
    }

    /// The index of a rank's stream.
    pub(crate) fn stream_of(&self, rank: u32) -> Option<usize> {
        self.attempt.streams.binary_search_by_key(&rank, |stream| stream.rank).ok()
    }

    /// How a rank stood.
    pub(crate) fn state_of(&self, rank: u32) -> Option<&RankState<'a>> {
        self.states.get(self.stream_of(rank)?)
    }

    /// How many members have no stream; of some, only that they are may be known.
    pub(crate) fn unseen_count(&self, comm: &Comm<'_>) -> usize {
        self.unseen(comm).len() + comm.count().saturating_sub(comm.members.len())
    }

    /// Members without a stream, as far as they are known.
    pub(crate) fn unseen(&self, comm: &Comm<'_>) -> RankSet {
        comm.members.iter().copied().filter(|&rank| self.stream_of(rank).is_none()).collect()
    }
}

/// Streams whose recorder did not end them: it was killed, or still writes. What they lack at their ends proves nothing;
/// absences count from when a stream was last written on.
fn not_closed(attempt: &Attempt<'_>) -> Option<String> {
    let ranks: RankSet =
        attempt.streams.iter().filter(|stream| !stream.trace.closed).map(|stream| stream.rank).collect();
    (!ranks.is_empty()).then(|| {
        format!(
            "{}: the recorder did not close the record (it was killed, or still writes); what came after is not known",
            ranks.phrase()
        )
    })
}

/// Compares the members of one communicator position by position.
fn compare(comm: &Comm<'_>, tracks: &[Track<'_>], attempt: &Attempt<'_>, tables: &Tables) -> Comparison {
    let mut found = Comparison::default();
    if comm.members.len() < 2 || comm.is_unjoined(attempt.world) {
        return found;
    }
    let usable: Vec<usize> = (0..tracks.len())
        .filter(|&at| tracks.get(at).is_some_and(|track| track.base != Base::Unknown && !track.is_empty()))
        .collect();
    let low = usable.iter().filter_map(|&at| tracks.get(at)?.first()).min();
    let high = usable.iter().filter_map(|&at| tracks.get(at)).map(Track::end).max();
    let (Some(low), Some(high)) = (low, high) else { return found };
    let clocks = attempt.streams.iter().all(RankStream::has_clock);
    let everybody = comm.count();
    let mut present: Vec<(usize, &Entry<'_>)> = Vec::with_capacity(usable.len());
    let elision = Elision::of(tracks);
    // A hole on all members costs nothing: a hostile file could name any number of positions.
    found.positions = high.saturating_sub(low);
    // Who comes to which position next.
    let mut coming: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut cursors: Vec<usize> = vec![0; tracks.len()];
    let entry_of = |at: usize, cursor: usize| tracks.get(at).and_then(|track| track.entries.get(cursor));
    for &at in &usable {
        if let Some(entry) = entry_of(at, 0) {
            coming.entry(entry.pos).or_default().push(at);
        }
    }
    let mut spare: Vec<usize> = Vec::new();
    while let Some((pos, mut here)) = coming.pop_first() {
        here.sort_unstable();
        present.clear();
        for &at in &here {
            let Some(cursor) = cursors.get_mut(at) else { continue };
            present.extend(entry_of(at, *cursor).map(|entry| (at, entry)));
            *cursor += 1;
            if let Some(next) = entry_of(at, *cursor) {
                coming.entry(next.pos).or_insert_with(|| std::mem::take(&mut spare)).push(at);
            }
        }
        here.clear();
        spare = here;
        found.complete += u64::from(present.len() == everybody);
        if present.len() > 1 {
            at_position(&mut found, comm, tracks, pos, &present, tables, &elision);
        }
        if clocks && present.len() == everybody && found.mismatches.is_empty() {
            let stream_of = |at: usize| tracks.get(at).and_then(|track| attempt.streams.get(track.stream));
            let time =
                |(at, entry): &(usize, &Entry<'_>)| stream_of(*at).map_or(0, |stream| stream.time(entry.call.enter));
            let last = present.iter().max_by_key(|one| time(one));
            let first = present.iter().min_by_key(|one| time(one));
            if let (Some(last), Some(first)) = (last, first) {
                // What the clocks may be apart is no lateness.
                let doubt = stream_of(last.0)
                    .zip(stream_of(first.0))
                    .map_or(0, |(a, b)| a.clock.doubt_between(last.1.call.enter, &b.clock, first.1.call.enter));
                let late = time(last).saturating_sub(time(first)).saturating_sub(doubt).max(0);
                // A call that is still pending is no measure of what is usual here.
                let done = present.iter().all(|(_, entry)| entry.progress != Progress::Pending);
                if done && found.latest.is_none_or(|held| held.0 < late) {
                    found.latest = Some((late, pos, last.0));
                }
            }
        }
    }
    if elision.any() && usable.len() == everybody {
        found.complete = Elision::common(tracks, &usable);
    }
    found
}

fn at_position(
    found: &mut Comparison,
    comm: &Comm<'_>,
    tracks: &[Track<'_>],
    pos: u64,
    present: &[(usize, &Entry<'_>)],
    tables: &Tables,
    elision: &Elision,
) {
    let Some((_, first)) = present.first() else { return };
    if present.iter().any(|(_, entry)| entry.sig != first.sig)
        && let Some((mut groups, what)) = group(present, tables)
    {
        elision.extend(&mut groups, tracks, pos);
        if found.mismatches.len() < KEPT {
            found.mismatches.push(Mismatch { pos, what, groups, pairs: Vec::new() });
        }
        return;
    }
    // Vectors are in the members' order.
    if comm.members_known && present.iter().any(|(_, entry)| vectors::has_vectors(entry.call)) {
        let calls = by_member(comm, tracks, present);
        let pairs = vectors::disagreements(&calls);
        if !pairs.is_empty() {
            let groups = group_by_pairs(comm, tracks, present, &pairs);
            if found.mismatches.len() < KEPT {
                found.mismatches.push(Mismatch { pos, what: What::Splits, groups, pairs });
            }
            return;
        }
    }
    let meaning = (first.site, first.label);
    if present.iter().all(|(_, entry)| (entry.site, entry.label) == meaning) {
        found.met.insert(meaning, present.iter().map(|(at, _)| *at), tracks.len());
    } else if found.meanings.len() < KEPT
        && present.iter().all(|(_, entry)| entry.site != 0)
        && !(elision.any() && tracks.iter().any(|track| track.elides(pos)))
    {
        // What call sites say is known only where all of them are.
        found.meanings.push(pos);
    }
}

/// The calls in the communicator's order, `None` where a member has none.
fn by_member<'c>(comm: &Comm<'_>, tracks: &[Track<'_>], present: &[(usize, &Entry<'c>)]) -> Vec<Option<&'c Call>> {
    // Tracks and what is present of them are in order of rank, members in the communicator's.
    let rank_of = |(at, _): &(usize, &Entry<'c>)| tracks.get(*at).map(|track| track.rank);
    let call_of = |member: &u32| {
        let at = present.binary_search_by_key(&Some(*member), rank_of).ok()?;
        present.get(at).map(|(_, entry)| entry.call)
    };
    comm.members.iter().map(call_of).collect()
}

/// Members by signature; `None` where nothing is known to differ.
fn group(present: &[(usize, &Entry<'_>)], tables: &Tables) -> Option<(Vec<Vec<usize>>, What)> {
    let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
    // A member whose call agrees with several kinds (it transfers nothing, its type is not known) must not be what the
    // others are compared with: agreeing with the same call does not make two others agree.
    let vague = |entry: &Entry<'_>| {
        tables.signature_of(entry.sig).is_none_or(|signature| match &signature.elements {
            Part::Is(elements) => match elements.unit {
                Unit::Basic(basic) => basic == Basic::Packed,
                Unit::Runs(_) => false,
                _ => true,
            },
            Part::Unknown => true,
            Part::Absent | Part::LeftOut => false,
        })
    };
    let (certain, open): (Vec<_>, Vec<_>) = present.iter().partition(|(_, entry)| !vague(entry));
    for (at, entry) in certain.into_iter().chain(open) {
        let signature = tables.signature_of(entry.sig);
        let same = groups.iter_mut().find(|(sig, _)| {
            *sig == entry.sig
                || signature
                    .zip(tables.signature_of(*sig))
                    .is_some_and(|(mine, theirs)| mine.differences(theirs).differ.is_empty())
        });
        match same {
            Some((_, tracks)) => tracks.push(at),
            None => groups.push((entry.sig, vec![at])),
        }
    }
    if groups.len() < 2 {
        return None;
    }
    groups.iter_mut().for_each(|(_, tracks)| tracks.sort_unstable());
    groups.sort_by_key(|(_, tracks)| (std::cmp::Reverse(tracks.len()), tracks.first().copied()));
    let signatures: Vec<_> = groups.iter().filter_map(|(sig, _)| tables.signature_of(*sig)).collect();
    let first = signatures.first()?;
    let what = signatures.iter().skip(1).map(|other| kind_of(first, other)).min()?;
    Some((groups.into_iter().map(|(_, tracks)| tracks).collect(), what))
}

fn kind_of(one: &rankdiff_trace::Signature, other: &rankdiff_trace::Signature) -> What {
    use rankdiff_trace::Fields;
    let differ = one.differences(other).differ;
    let bytes = |signature: &rankdiff_trace::Signature| match &signature.elements {
        Part::Is(elements) => elements.bytes(),
        _ => None,
    };
    if differ.contains(Fields::OP) {
        What::Op
    } else if differ.contains(Fields::FORM) {
        What::Form
    } else if differ.contains(Fields::DTYPE) && (!differ.contains(Fields::COUNT) || bytes(one) == bytes(other)) {
        What::Dtype
    } else if differ.contains(Fields::COUNT) {
        What::Count
    } else if differ.contains(Fields::DTYPE) {
        What::Dtype
    } else if differ.contains(Fields::REDOP) {
        What::Redop
    } else {
        What::Root
    }
}

/// Members that are in no pair that disagrees first, then those that are in one, the most involved ones alone.
fn group_by_pairs(
    comm: &Comm<'_>,
    tracks: &[Track<'_>],
    present: &[(usize, &Entry<'_>)],
    pairs: &[Pair],
) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..comm.members.len()).collect();
    order.sort_by_key(|&at| comm.members.get(at));
    let mut count = vec![0_usize; comm.members.len()];
    for pair in pairs {
        for member in [pair.sender, pair.receiver] {
            if let Some(count) = count.get_mut(member) {
                *count += 1;
            }
        }
    }
    let most = count.iter().copied().max().unwrap_or(0);
    // One member that is in every pair that disagrees is the odd one; else all that are in one stand for themselves.
    let centre = most == pairs.len() && pairs.len() > 1 && count.iter().filter(|&&n| n == most).count() == 1;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut fine: Vec<usize> = Vec::new();
    let member_of = |at: usize| {
        let rank = tracks.get(at).map(|track| track.rank);
        order.binary_search_by_key(&rank, |&member| comm.members.get(member).copied()).ok().and_then(|at| order.get(at))
    };
    for (at, _) in present {
        let involved = member_of(*at).and_then(|&member| count.get(member)).copied().unwrap_or(0);
        if involved == 0 || centre && involved < most {
            fine.push(*at);
        } else {
            groups.push(vec![*at]);
        }
    }
    if !fine.is_empty() {
        groups.push(fine);
    }
    groups.sort_by_key(|tracks| (std::cmp::Reverse(tracks.len()), tracks.first().copied()));
    groups
}

/// Whether an operation cannot complete on any member before all have entered it.
pub(crate) fn synchronises(op: Op) -> bool {
    matches!(op, Op::Barrier | Op::AllReduce | Op::AllGather | Op::AllGatherV | Op::ReduceScatter | Op::AllToAll)
}
