//! One rank's calls over all communicators in program order, against those of ranks in the same role, and against its own
//! earlier rounds.
//!
//! A blocking rank that left a call out shows nothing on that communicator but an absence, and waits on another one. What
//! ranks of other groups did at the same place of their programs tells whether a call is missing or the order is another;
//! of a rank that nobody shares a role with, what it did every round before. Ranks may legally do different things, so this
//! only explains what is already known to be wrong.

use std::hash::{Hash as _, Hasher as _};

use rankdiff_trace::{CallFlags, Op, OpKind};
use rustc_hash::{FxHashMap, FxHasher};

use crate::align::Alignment;
use crate::comms::Comm;
use crate::index::{Base, Entry, Progress, Track, takes_position};
use crate::misdirected;
use crate::shift;
use crate::stream::RankStream;

/// How a rank left the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It lacks so many calls.
    Lacks(u64),
    /// It made so many more.
    Extra(u64),
    /// It is held by a call that is nowhere in the program, where the others make another one.
    Instead,
}

/// Where a rank left the program that others follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deviation {
    pub(crate) how: Departure,
    /// The rank's communicator of the first such call, and the position there: of the call that the others make, or of the
    /// first one too many.
    pub(crate) comm: usize,
    pub(crate) pos: u64,
    /// That call is a send or a receive; the position is the one of the next collective then.
    pub(crate) message: Option<Op>,
    /// Which one it is of a run of equal calls is known.
    pub(crate) exact: bool,
    /// Only the rank's own earlier rounds say so.
    pub(crate) by_own_past: bool,
}

impl Deviation {
    /// Whether a call is missing that the others wait in.
    pub(crate) fn lacks(&self) -> bool {
        !matches!(self.how, Departure::Extra(_))
    }

    /// How many calls.
    pub(crate) fn calls(&self) -> u64 {
        calls_of(self.how)
    }
}

/// Ranks that are compared with.
const MOST: usize = 64;
/// Longest period of a rank's own rounds that is looked for.
const LONGEST_PERIOD: usize = 512;
/// Rhythms of a rank's own calls that are tried.
const MOST_RHYTHMS: usize = 16;
/// Calls of a rank that are searched for its own rounds, the last ones.
pub(crate) const LOOK_BACK: usize = 8192;

/// What a comparison with the ranks of the same role says.
enum Compared {
    /// Somebody did all the same: the rank is at most behind.
    Same,
    Left(Deviation),
    Unclear,
}

/// The deviation of a rank, if at least two others went on alike where it did not, and agree with it again behind; or, where
/// there is nobody to compare it with, if it did the same in each of its own rounds before and again behind.
pub(crate) fn deviation(alignment: &Alignment<'_>, rank: u32) -> Option<Deviation> {
    // Several checks ask for it, and for each it is the rank against many others.
    let known = alignment.deviations.borrow().get(&rank).copied();
    known.unwrap_or_else(|| {
        let found = compare(alignment, rank);
        alignment.deviations.borrow_mut().insert(rank, found);
        found
    })
}

fn compare(alignment: &Alignment<'_>, rank: u32) -> Option<Deviation> {
    if let Some(found) = misdirected::find(alignment, rank) {
        return Some(found);
    }
    let whole = is_whole(alignment);
    // Groups of one kind that pass equal numbers of elements tell more; they need not.
    for sizes in [true, false] {
        if whole {
            match against_others(alignment, rank, What { messages: true, sizes }) {
                Compared::Same => return None,
                Compared::Left(deviation) => return Some(deviation),
                Compared::Unclear => {}
            }
        }
        // Ranks of other stages of a pipeline send elsewhere and make the same collectives.
        match against_others(alignment, rank, What { messages: false, sizes }) {
            Compared::Left(deviation) => return Some(deviation),
            Compared::Same => return against_own_past(alignment, rank, whole).filter(|found| found.message.is_some()),
            Compared::Unclear => {}
        }
    }
    against_own_past(alignment, rank, whole)
}

/// The deviation of a rank from its own rounds, whatever others did.
pub(crate) fn from_own_past(alignment: &Alignment<'_>, rank: u32) -> Option<Deviation> {
    against_own_past(alignment, rank, is_whole(alignment))
}

/// Whether every call was decoded: sends and receives have a place in the program only then.
pub(crate) fn is_whole(alignment: &Alignment<'_>) -> bool {
    !alignment.attempt.streams.iter().any(|stream| stream.trace.has_elided())
}

/// What of a program is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct What {
    /// Sends and receives as well.
    pub(crate) messages: bool,
    /// Numbers of elements, also where sites are known.
    pub(crate) sizes: bool,
}

fn against_others(alignment: &Alignment<'_>, rank: u32, what: What) -> Compared {
    let mut roles = Roles::default();
    let Some((mine, same, parted)) = parted(alignment, rank, &mut roles, what, true) else { return Compared::Unclear };
    if same {
        return Compared::Same;
    }
    left(alignment, rank, &mut roles, &mine, parted).map_or(Compared::Unclear, Compared::Left)
}

/// A program that parts from another one: the places in both.
pub(crate) type Parted<'a> = (usize, Program<'a>, usize);

/// A rank's program, whether somebody did all the same, and those who did something else: with each the place where they
/// part in both programs. `first_same`: who did all the same ends the search.
pub(crate) fn parted<'a>(
    alignment: &Alignment<'a>,
    rank: u32,
    roles: &mut Roles,
    what: What,
    first_same: bool,
) -> Option<(Program<'a>, bool, Vec<Parted<'a>>)> {
    let mine = Program::of(alignment, rank, roles, what)?;
    let mut parted: Vec<Parted<'a>> = Vec::new();
    let mut same = false;
    for stream in candidates(alignment, rank).take(MOST) {
        let Some(other) = Program::of(alignment, stream.rank, roles, what) else { continue };
        let Some((skip, ahead)) = mine.meet(&other) else { continue };
        let (own, theirs) = (mine.from(skip), other.from(ahead));
        let common = own.iter().zip(theirs).take_while(|(a, b)| a.key == b.key).count();
        same |= common == own.len();
        if same && first_same {
            break;
        }
        if common < theirs.len() {
            parted.push((skip + common, other, ahead + common));
        }
    }
    Some((mine, same, parted))
}

/// How the rank left what those who agree with it the longest do; with each the place where they part in both programs.
fn left(
    alignment: &Alignment<'_>,
    rank: u32,
    roles: &mut Roles,
    mine: &Program<'_>,
    mut parted: Vec<Parted<'_>>,
) -> Option<Deviation> {
    if let Some(best) = best_rejoined(mine, &parted, alignment.options.k_shift, |_| true) {
        let odd = mine.calls.get(best.at)?;
        let (comm, message) = match best.how {
            Departure::Extra(_) => (odd.comm, odd.message),
            _ => (roles.comm_of(alignment, rank, best.role)?, best.message),
        };
        return Some(Deviation { exact: best.exact, ..placed(mine, best.at, comm, message, best.how) });
    }
    let longest = parted.iter().map(|one| one.0).max()?;
    // The same call from another line of the program may be one of theirs in another order.
    let nowhere = |step: &Step<'_>| {
        let same = |call: &Step<'_>| call.key == step.key || call.role == step.role && call.entry.sig == step.entry.sig;
        parted.iter().all(|(_, other, _)| !other.calls.iter().any(same))
    };
    let unknown = mine.calls.get(longest).filter(|call| nowhere(call)).map(|call| call.key);
    parted.retain(|one| one.0 == longest);
    let key_of = |(_, program, at): &Parted<'_>| program.calls.get(*at).map(|call| call.key);
    let next = most_common(parted.iter().filter_map(key_of))?;
    parted.retain(|one| key_of(one) == Some(next));
    if parted.len() < 2 {
        return None;
    }
    let expected = parted.first().and_then(|one| one.1.calls.get(one.2))?;
    // A call that holds the rank shows nothing behind it.
    let held = mine.calls.get(longest).filter(|call| call.entry.progress != Progress::Done)?;
    if longest + 1 != mine.calls.len() {
        return None;
    }
    let earlier = mine.calls.get(..longest).unwrap_or_default();
    let made_before = earlier.iter().filter(|call| call.key == held.key).count();
    // Others that wait for the rank get no further: that its call comes nowhere is known of rounds that were seen whole, or
    // it is the expected one by its line and its arguments, on another communicator.
    let same = held.entry.site != 0 && misdirected::is_same(&held.entry, &expected.entry);
    let certain = same || earlier.iter().any(|call| call.key == next);
    let knows =
        |program: &Program<'_>| mine.begins.iter().all(|begin| program.begins.iter().any(|other| other.2 == begin.2));
    if unknown == Some(held.key) && certain && made_before == 0 && parted.iter().filter(|one| knows(&one.1)).count() > 1
    {
        let comm = roles.comm_of(alignment, rank, expected.role)?;
        return Some(placed(mine, longest, comm, expected.message, Departure::Instead));
    }
    // The same once more, of a call that does not come again.
    let again = earlier.last().is_some_and(|call| call.key == held.key);
    let comes = parted.iter().any(|(_, other, at)| other.from(*at).iter().any(|call| call.key == held.key));
    let once = again && made_before == 1 && !comes;
    once.then(|| placed(mine, longest, held.comm, held.message, Departure::Extra(1)))
}

/// Those who go on alike may yet play other roles: the ones that the rank agrees with again, over the most calls, tell.
pub(crate) fn best_rejoined(
    mine: &Program<'_>,
    parted: &[Parted<'_>],
    most: usize,
    fits: impl Fn(&Rejoined) -> bool,
) -> Option<Rejoined> {
    let again = |(at, other, place): &Parted<'_>| {
        let (how, matched, exact) = rejoined(mine, *at, other, *place, most)?;
        let &Step { key, role, message, .. } = other.calls.get(*place)?;
        Some(Rejoined { how, at: *at, key, role, message, matched, exact })
    };
    let told: Vec<Rejoined> = parted.iter().filter_map(again).collect();
    let agree = |one: &Rejoined| {
        told.iter().filter(|other| (other.how, other.at, other.key) == (one.how, one.at, one.key)).count()
    };
    told.iter()
        .filter(|one| agree(one) > 1 && fits(one))
        .max_by_key(|one| (one.at as u64 + one.matched, std::cmp::Reverse(calls_of(one.how))))
        .copied()
}

/// How a program that parts from another one comes back to it, over how many calls, and whether the place is certain.
fn rejoined(
    mine: &Program<'_>,
    at: usize,
    other: &Program<'_>,
    place: usize,
    most: usize,
) -> Option<(Departure, u64, bool)> {
    // Both from where they can be compared.
    let begin = at.min(place);
    let (own, theirs) = (mine.track(at - begin), other.track(place - begin));
    let shifted = shift::find(&theirs, &own, begin as u64, most);
    // One call is another, and all that follows is the same.
    let (own, theirs) = (mine.from(at + 1), other.from(place + 1));
    let same = own.iter().zip(theirs).take_while(|(a, b)| a.key == b.key).count();
    // Groups of one kind may pass other numbers of elements: that makes it no other call.
    let other_call = mine.calls.get(at).zip(other.calls.get(place)).is_some_and(|(a, b)| {
        let alike = a.role == b.role && a.entry.site == b.entry.site && a.entry.call.op == b.entry.call.op;
        !alike || a.entry.site == 0
    });
    let whole = other_call && same > 0 && same == own.len().min(theirs.len());
    // A loop in which one call is another agrees as well with itself some rounds later; one call is the simpler reason.
    if let Some(found) = shifted.filter(|found| !whole || found.calls == 1 || found.matched > same as u64) {
        let how = if found.lacks { Departure::Lacks(found.calls) } else { Departure::Extra(found.calls) };
        return Some((how, found.matched, found.first.is_some()));
    }
    whole.then_some((Departure::Instead, same as u64, true))
}

fn calls_of(how: Departure) -> u64 {
    match how {
        Departure::Lacks(calls) | Departure::Extra(calls) => calls,
        Departure::Instead => 1,
    }
}

/// A comparison with a rank that the program comes back to.
#[derive(Clone, Copy)]
pub(crate) struct Rejoined {
    pub(crate) how: Departure,
    /// Where the rank's program leaves the other's.
    pub(crate) at: usize,
    /// What the other one does there.
    pub(crate) key: u32,
    pub(crate) role: u32,
    pub(crate) message: Option<Op>,
    /// Calls that agree behind.
    pub(crate) matched: u64,
    pub(crate) exact: bool,
}

/// The deviation with the position on the rank's communicator.
pub(crate) fn placed(mine: &Program<'_>, at: usize, comm: usize, message: Option<Op>, how: Departure) -> Deviation {
    let before = mine.calls.iter().take(at).rev().find(|call| call.comm == comm && call.message.is_none());
    let pos = match before {
        Some(call) => call.entry.pos + 1,
        None => mine.begins.iter().find(|begin| begin.0 == comm).map_or(0, |begin| begin.1),
    };
    Deviation { how, comm, pos, message, exact: true, by_own_past: false }
}

/// The deviation of a rank from what it did itself in every round before, if it did so again behind.
fn against_own_past(alignment: &Alignment<'_>, rank: u32, messages: bool) -> Option<Deviation> {
    let mut roles = Roles::default();
    let mine = Program::of(alignment, rank, &mut roles, What { messages, sizes: false })?;
    let from = mine.calls.len().saturating_sub(LOOK_BACK);
    let keys: Vec<u32> = mine.from(from).iter().map(|call| call.key).collect();
    let tries = broken_rhythms(&keys).into_iter().filter_map(|(at, period)| {
        // What the rank would have done had it gone on as before.
        let mut expected = keys.get(..at)?.to_vec();
        while expected.len() < keys.len() + period {
            expected.push(*expected.get(expected.len().checked_sub(period)?)?);
        }
        let own = mine.track(from);
        let model = own.entries.first()?;
        let entry = |(pos, &key): (usize, &u32)| Entry { pos: pos as u64, sig: key, ..model.clone() };
        let reference =
            Track { entries: expected.iter().enumerate().map(entry).collect(), ..mine.track(mine.calls.len()) };
        let found = shift::find(&reference, &own, at as u64, period)?;
        // Without others to compare with, the rank's next round must be whole again, or hold it. Several calls too many are
        // the beginning of a round as well, with another end of the last one.
        let inside = |call: &Step<'_>| call.entry.progress == Progress::Pending && call.entry.call.exit.is_none();
        let held = mine.calls.last().is_some_and(inside);
        let several_too_many = !found.lacks && found.calls > 1;
        if found.calls >= period as u64 || found.matched < period as u64 && (!held || several_too_many) {
            return None;
        }
        let (odd, how) = if found.lacks {
            (mine.calls.get(from + at - period)?, Departure::Lacks(found.calls))
        } else {
            (mine.calls.get(from + at)?, Departure::Extra(found.calls))
        };
        let deviation = placed(&mine, from + at, odd.comm, odd.message, how);
        let exact = found.first.is_some();
        Some((at as u64 + found.matched, Deviation { exact, by_own_past: true, ..deviation }))
    });
    // The rhythm that explains the most.
    tries.max_by_key(|(explained, deviation)| (*explained, std::cmp::Reverse(deviation.calls()))).map(|best| best.1)
}

/// Where calls that repeat at least twice in whole cease to, and the period: for each period the first such place.
pub(crate) fn broken_rhythms(keys: &[u32]) -> Vec<(usize, usize)> {
    let first_break = |period: usize| {
        let mut run = 0;
        for at in period..keys.len() {
            if keys.get(at) == keys.get(at - period) {
                run += 1;
            } else if run >= period {
                return Some((at, period));
            } else {
                run = 0;
            }
        }
        None
    };
    (2..=LONGEST_PERIOD.min(keys.len() / 2)).filter_map(first_break).take(MOST_RHYTHMS).collect()
}

/// Ranks whose programs are known: where calls were not decoded, those that have the most of them first.
fn candidates<'b, 'a>(alignment: &'b Alignment<'a>, rank: u32) -> impl Iterator<Item = &'b RankStream<'a>> {
    let others = alignment.attempt.streams.iter().filter(move |stream| stream.rank != rank);
    let mut others: Vec<&RankStream<'a>> = others.collect();
    if others.iter().any(|stream| stream.trace.has_elided()) {
        others.sort_by_key(|stream| std::cmp::Reverse(stream.calls.len()));
    }
    others.into_iter()
}

fn most_common(keys: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: Vec<(u32, usize)> = Vec::new();
    for key in keys {
        match counts.iter_mut().find(|(held, _)| *held == key) {
            Some((_, count)) => *count += 1,
            None => counts.push((key, 1)),
        }
    }
    counts.into_iter().max_by_key(|&(key, count)| (count, std::cmp::Reverse(key))).map(|(key, _)| key)
}

/// A call of a program.
pub(crate) struct Step<'a> {
    pub(crate) entry: Entry<'a>,
    pub(crate) comm: usize,
    pub(crate) role: u32,
    pub(crate) key: u32,
    /// Which of the two, of a send or a receive.
    pub(crate) message: Option<Op>,
    /// Place in the program: time, and what orders calls of one time.
    pub(crate) order: (u64, u64, u64),
}

pub(crate) struct Program<'a> {
    pub(crate) calls: Vec<Step<'a>>,
    /// Of each communicator: the position of its first call in the program, and its role.
    pub(crate) begins: Vec<(usize, u64, u32)>,
}

impl<'a> Program<'a> {
    /// The collectives of a rank, and its messages if wanted, in the order of entry; `None` where the record is not whole.
    /// Where not every call was decoded, those behind the last that was not.
    pub(crate) fn of(alignment: &Alignment<'a>, rank: u32, roles: &mut Roles, what: What) -> Option<Program<'a>> {
        let at = alignment.stream_of(rank)?;
        let stream = alignment.attempt.streams.get(at)?;
        if stream.has_gaps() {
            return None;
        }
        let mut calls: Vec<Step<'a>> = Vec::new();
        let mut begins: Vec<(usize, u64, u32)> = Vec::new();
        // From here on nothing is missing, on any communicator.
        let mut known: Option<u64> = None;
        let played = roles.of_rank(alignment, at);
        for (comm, track) in alignment.tracks_of(rank) {
            let Some(&(_, role)) = played.iter().find(|(held, _)| *held == comm) else { continue };
            let from = if track.made.is_empty() { 0 } else { track.known_from(track.end()) };
            let first = track.entries.partition_point(|entry| entry.pos < from);
            let whole = track.made.is_empty() || Some(from) == track.first();
            if !whole {
                known = known.max(Some(track.entries.get(first)?.call.enter));
            }
            begins.push((comm, track.first().unwrap_or(0), role));
            for entry in track.entries.get(first..).unwrap_or_default() {
                let key = roles.key(meaning(role, entry, what.sizes));
                let order = (entry.call.enter, 0, entry.call.thread_seq);
                calls.push(Step { entry: entry.clone(), comm, role, key, message: None, order });
            }
        }
        if what.messages {
            calls.extend(sent(alignment, at, &played, roles));
        }
        calls.sort_by_key(|step| step.order);
        if let Some(known) = known {
            calls.retain(|step| step.entry.call.enter >= known);
            for begin in &mut begins {
                let track = alignment.tracks(begin.0).iter().find(|track| track.rank == rank);
                let end = track.map_or(0, Track::end);
                begin.1 = calls.iter().find(|step| step.comm == begin.0).map_or(end, |step| step.entry.pos);
            }
        }
        Some(Program { calls, begins })
    }

    pub(crate) fn from(&self, at: usize) -> &[Step<'a>] {
        self.calls.get(at..).unwrap_or_default()
    }

    /// Where in both programs the same numbers of calls of each role were made; `None` where there is no such place.
    fn meet(&self, other: &Program<'_>) -> Option<(usize, usize)> {
        let made = |program: &Program<'_>| -> FxHashMap<u32, u64> {
            let mut made: FxHashMap<u32, u64> = FxHashMap::default();
            for (_, first, role) in &program.begins {
                *made.entry(*role).or_default() += first;
            }
            made.retain(|_, calls| *calls > 0);
            made
        };
        let (mut mine, mut theirs) = (made(self), made(other));
        let (mut own, mut there) = (0, 0);
        loop {
            let (a, b): (u64, u64) = (mine.values().sum(), theirs.values().sum());
            if a == b {
                return (mine == theirs).then_some((own, there));
            }
            if a < b {
                *mine.entry(self.calls.get(own)?.role).or_default() += 1;
                own += 1;
            } else {
                *theirs.entry(other.calls.get(there)?.role).or_default() += 1;
                there += 1;
            }
        }
    }

    /// The program from a place on as if it were the calls of one communicator.
    fn track(&self, from: usize) -> Track<'a> {
        let entries = self
            .from(from)
            .iter()
            .enumerate()
            .map(|(pos, step)| Entry {
                pos: pos as u64,
                sig: step.key,
                site: 0,
                label: 0,
                step: None,
                ..step.entry.clone()
            })
            .collect();
        Track {
            stream: 0,
            rank: 0,
            entries,
            base: Base::Known,
            blind_after: None,
            blind_before: false,
            made: Vec::new(),
            class: None,
        }
    }
}

/// What a collective is in the program. Groups of one kind need not pass equal numbers of elements (an object is as long as
/// it is), so where sites are known these may be left out.
fn meaning(role: u32, entry: &Entry<'_>, sizes: bool) -> (u32, u32, u32, u32, u64) {
    if sizes || entry.site == 0 {
        return (role, entry.sig, entry.site, entry.label, 0);
    }
    let mut hasher = FxHasher::default();
    (entry.call.op, &entry.call.dtype).hash(&mut hasher);
    (role, u32::MAX, entry.site, entry.label, hasher.finish())
}

/// A rank's sends and receives on communicators whose roles are known. Inside a batch they have no order, so they get one.
fn sent<'a>(alignment: &Alignment<'a>, at: usize, played: &[(usize, u32)], roles: &mut Roles) -> Vec<Step<'a>> {
    let mut steps: Vec<Step<'a>> = Vec::new();
    let Some(stream) = alignment.attempt.streams.get(at) else { return steps };
    let progress = alignment.index.progress.get(at).map_or(&[][..], Vec::as_slice);
    let mut batches: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    for (&call, &progress) in stream.calls.iter().zip(progress) {
        if call.op.kind() != OpKind::PointToPoint || !takes_position(call) {
            continue;
        }
        let Some(comm) = alignment.comms.of(at, call.comm) else { continue };
        let Some(&(_, role)) = played.iter().find(|(held, _)| *held == comm) else { continue };
        let site = alignment.index.sites.get(at).and_then(|sites| sites.get(&call.site)).copied().unwrap_or(0);
        let peer = call.peer.map_or(u32::MAX, |peer| peer.saturating_mul(2)) | u32::from(call.op == Op::Send);
        let tag = call.tag.map_or(0, |tag| tag as u32);
        // What is sent may be of another size on each edge; without sites it is all that tells calls apart.
        let size = if site == 0 { call.count.map_or(1, |count| count.saturating_add(2)) } else { 0 };
        let key = roles.key((role, peer, site, tag, size));
        let grouped = call.flags.contains(CallFlags::GROUPED) && call.group != 0;
        let order = if grouped {
            let begun = *batches.entry((call.thread, call.group)).or_insert(call.enter);
            (begun, u64::from(peer) + 1, u64::from(tag))
        } else {
            (call.enter, 0, call.thread_seq)
        };
        let entry = Entry { pos: 0, call, sig: key, site, label: 0, step: None, progress };
        steps.push(Step { entry, comm, role, key, message: Some(call.op), order });
    }
    steps
}

/// What communicators are for, so that one rank's compares with another's: the first of its tensor groups, the second
/// group that nobody named.
#[derive(Default)]
pub(crate) struct Roles {
    roles: FxHashMap<(u8, String, usize), u32>,
    keys: FxHashMap<(u32, u32, u32, u32, u64), u32>,
}

impl Roles {
    /// The communicators of several members that a stream's rank is in, with their roles, in the order in which the rank
    /// came to know them: ranks that run one program create theirs in one order.
    pub(crate) fn of_rank(&mut self, alignment: &Alignment<'_>, stream: usize) -> Vec<(usize, u32)> {
        let mut found: Vec<(usize, u32)> = Vec::new();
        let mut named: Vec<(u8, String, usize)> = Vec::new();
        let Some(defs) = alignment.attempt.streams.get(stream).map(|stream| &stream.trace.comms) else { return found };
        for def in defs {
            let Some(comm) = alignment.comms.of(stream, def.id) else { continue };
            let Some(group) = alignment.comm(comm).filter(|group| group.members.len() > 1) else { continue };
            if found.iter().any(|(held, _)| *held == comm) {
                continue;
            }
            let (level, name) = kind(group);
            let before = named.iter().filter(|held| held.0 == level && held.1 == name).count();
            named.push((level, name.clone(), before));
            let next = self.roles.len() as u32;
            let role = *self.roles.entry((level, name, before)).or_insert(next);
            found.push((comm, role));
        }
        found
    }

    fn key(&mut self, parts: (u32, u32, u32, u32, u64)) -> u32 {
        let next = self.keys.len() as u32 + 1;
        *self.keys.entry(parts).or_insert(next)
    }

    /// The communicator of a role that the rank is in.
    fn comm_of(&mut self, alignment: &Alignment<'_>, rank: u32, role: u32) -> Option<usize> {
        let stream = alignment.stream_of(rank)?;
        self.of_rank(alignment, stream).into_iter().find(|found| found.1 == role).map(|found| found.0)
    }
}

/// What communicators of one kind have in common: level, and description or name.
pub(crate) fn kind(group: &Comm<'_>) -> (u8, String) {
    let name = if group.desc.is_empty() { without_numbers(&group.name) } else { group.desc.clone() };
    (group.level as u8, name)
}

/// A name with each number in it as one sign: groups of one kind differ in their numbers.
fn without_numbers(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}
