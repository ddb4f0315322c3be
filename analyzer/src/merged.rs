//! One rank's collectives over all communicators in program order, against those of ranks in the same role.
//!
//! A blocking rank that left a call out shows nothing on that communicator but an absence, and waits on another one. What
//! ranks of other groups did at the same place of their programs tells whether a call is missing or the order is another.
//! Ranks may legally do different things, so this only explains what is already known to be wrong.

use rustc_hash::FxHashMap;

use crate::align::Alignment;
use crate::index::{Base, Entry, Track};
use crate::shift;
use crate::stream::RankStream;

/// Where a rank left the program that others follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deviation {
    /// It lacks calls (else: it made more).
    pub(crate) lacks: bool,
    pub(crate) calls: u64,
    /// The rank's communicator of the first such call, and the position there.
    pub(crate) comm: usize,
    pub(crate) pos: u64,
}

/// Ranks that are compared with.
const MOST: usize = 64;

/// The deviation of a rank, if at least two others went on alike where it did not, and agree with it again behind.
pub(crate) fn deviation(alignment: &Alignment<'_>, rank: u32) -> Option<Deviation> {
    let mut roles = Roles::default();
    let mine = Program::of(alignment, rank, &mut roles)?;
    let mut parted: Vec<(usize, Program<'_>, usize)> = Vec::new();
    for stream in candidates(alignment, rank).take(MOST) {
        let Some(other) = Program::of(alignment, stream.rank, &mut roles) else { continue };
        let Some((skip, ahead)) = mine.meet(&other) else { continue };
        let (own, theirs) = (mine.from(skip), other.from(ahead));
        let common = own.iter().zip(theirs).take_while(|(a, b)| a.key == b.key).count();
        if common == own.len() {
            // Somebody did all the same: the rank is at most behind.
            return None;
        }
        if common < theirs.len() {
            parted.push((skip + common, other, ahead + common));
        }
    }
    let longest = parted.iter().map(|one| one.0).max()?;
    parted.retain(|one| one.0 == longest);
    let key_of = |(_, program, at): &(usize, Program<'_>, usize)| program.calls.get(*at).map(|call| call.key);
    let next = most_common(parted.iter().filter_map(key_of))?;
    parted.retain(|one| key_of(one) == Some(next));
    if parted.len() < 2 {
        return None;
    }
    let (_, reference, place) = parted.iter().max_by_key(|one| one.1.calls.len() - one.2)?;
    // Both from where they can be compared.
    let begin = longest.min(*place);
    let (own, theirs) = (mine.track(longest - begin), reference.track(place - begin));
    let found = shift::find(&theirs, &own, begin as u64, alignment.options.k_shift)?;
    let odd = if found.lacks { reference.calls.get(*place)? } else { mine.calls.get(longest)? };
    // The call's communicator as this rank knows it: the one of the same role.
    let comm = if found.lacks { roles.comm_of(alignment, rank, odd.role)? } else { odd.comm };
    let before = mine.calls.iter().take(longest).rev().find(|call| call.comm == comm);
    let pos = match before {
        Some(call) => call.entry.pos + 1,
        None => mine.begins.iter().find(|begin| begin.0 == comm).map_or(0, |begin| begin.1),
    };
    Some(Deviation { lacks: found.lacks, calls: found.calls, comm, pos })
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
struct Step<'a> {
    entry: Entry<'a>,
    comm: usize,
    role: u32,
    key: u32,
}

struct Program<'a> {
    calls: Vec<Step<'a>>,
    /// Of each communicator: the position of its first call in the program, and its role.
    begins: Vec<(usize, u64, u32)>,
}

impl<'a> Program<'a> {
    /// The collectives of a rank in the order of entry; `None` where the record is not whole. Where not every call was
    /// decoded, those behind the last that was not.
    fn of(alignment: &Alignment<'a>, rank: u32, roles: &mut Roles) -> Option<Program<'a>> {
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
                let key = roles.key((role, entry.sig, entry.site, entry.label));
                calls.push(Step { entry: entry.clone(), comm, role, key });
            }
        }
        calls.sort_by_key(|step| (step.entry.call.enter, step.entry.call.thread_seq));
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

    fn from(&self, at: usize) -> &[Step<'a>] {
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

/// What communicators are for, so that one rank's compares with another's: the first of its tensor groups, the second
/// group that nobody named.
#[derive(Default)]
struct Roles {
    roles: FxHashMap<(u8, String, usize), u32>,
    keys: FxHashMap<(u32, u32, u32, u32), u32>,
}

impl Roles {
    /// The communicators of several members that a stream's rank is in, with their roles, in the order in which the rank
    /// came to know them: ranks that run one program create theirs in one order.
    fn of_rank(&mut self, alignment: &Alignment<'_>, stream: usize) -> Vec<(usize, u32)> {
        let mut found: Vec<(usize, u32)> = Vec::new();
        let mut named: Vec<(u8, String, usize)> = Vec::new();
        let Some(defs) = alignment.attempt.streams.get(stream).map(|stream| &stream.trace.comms) else { return found };
        for def in defs {
            let Some(comm) = alignment.comms.of(stream, def.id) else { continue };
            let Some(group) = alignment.comm(comm).filter(|group| group.members.len() > 1) else { continue };
            if found.iter().any(|(held, _)| *held == comm) {
                continue;
            }
            let name = if group.desc.is_empty() { without_numbers(&group.name) } else { group.desc.clone() };
            let level = group.level as u8;
            let before = named.iter().filter(|held| held.0 == level && held.1 == name).count();
            named.push((level, name.clone(), before));
            let next = self.roles.len() as u32;
            let role = *self.roles.entry((level, name, before)).or_insert(next);
            found.push((comm, role));
        }
        found
    }

    fn key(&mut self, parts: (u32, u32, u32, u32)) -> u32 {
        let next = self.keys.len() as u32 + 1;
        *self.keys.entry(parts).or_insert(next)
    }

    /// The communicator of a role that the rank is in.
    fn comm_of(&mut self, alignment: &Alignment<'_>, rank: u32, role: u32) -> Option<usize> {
        let stream = alignment.stream_of(rank)?;
        self.of_rank(alignment, stream).into_iter().find(|found| found.1 == role).map(|found| found.0)
    }
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
