//! One rank's collectives over all communicators in program order, against those of ranks in the same role.
//!
//! A blocking rank that left a call out shows nothing on that communicator but an absence, and waits on another one. What
//! ranks of other groups did at the same place of their programs tells whether a call is missing or the order is another.
//! Ranks may legally do different things, so this only explains what is already known to be wrong.

use rustc_hash::FxHashMap;

use crate::align::Alignment;
use crate::comms::Comm;
use crate::index::{Base, Entry, Track};
use crate::shift;

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
    let mut parted: Vec<(usize, Program<'_>)> = Vec::new();
    for stream in alignment.attempt.streams.iter().filter(|stream| stream.rank != rank).take(MOST) {
        let Some(other) = Program::of(alignment, stream.rank, &mut roles) else { continue };
        let common = mine.calls.iter().zip(&other.calls).take_while(|(a, b)| a.key == b.key).count();
        if common == mine.calls.len() {
            // Somebody did all the same: the rank is at most behind.
            return None;
        }
        if common < other.calls.len() {
            parted.push((common, other));
        }
    }
    let longest = parted.iter().map(|one| one.0).max()?;
    parted.retain(|one| one.0 == longest);
    let key_of = |program: &Program<'_>| program.calls.get(longest).map(|call| call.key);
    let next = most_common(parted.iter().filter_map(|(_, program)| key_of(program)))?;
    parted.retain(|(_, program)| key_of(program) == Some(next));
    if parted.len() < 2 {
        return None;
    }
    let reference = parted.iter().map(|one| &one.1).max_by_key(|program| program.calls.len())?;
    let found = shift::find(&reference.track(), &mine.track(), longest as u64, alignment.options.k_shift)?;
    let odd = if found.lacks { reference.calls.get(longest)? } else { mine.calls.get(longest)? };
    // The call's communicator as this rank knows it: the one of the same role.
    let comm = if found.lacks { roles.comm_of(alignment, rank, odd.role)? } else { odd.comm };
    let before = mine.calls.iter().take(longest).filter(|call| call.comm == comm).count() as u64;
    let first = alignment.tracks(comm).iter().find(|track| track.rank == rank).and_then(|track| track.entries.first());
    let pos = first.map_or(0, |entry| entry.pos) + before;
    Some(Deviation { lacks: found.lacks, calls: found.calls, comm, pos })
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
}

impl<'a> Program<'a> {
    /// The collectives of a rank in the order of entry; `None` where the record is not whole.
    fn of(alignment: &Alignment<'a>, rank: u32, roles: &mut Roles) -> Option<Program<'a>> {
        let at = alignment.stream_of(rank)?;
        let stream = alignment.attempt.streams.get(at)?;
        if stream.has_gaps() {
            return None;
        }
        let mut calls: Vec<Step<'a>> = Vec::new();
        for (comm, group) in alignment.comms.list.iter().enumerate().filter(|(_, group)| group.members.len() > 1) {
            let Some(track) = alignment.tracks(comm).iter().find(|track| track.rank == rank) else { continue };
            let role = roles.role(group);
            for entry in &track.entries {
                let key = roles.key((role, entry.sig, entry.site, entry.label));
                calls.push(Step { entry: entry.clone(), comm, role, key });
            }
        }
        calls.sort_by_key(|step| (step.entry.call.enter, step.entry.call.thread_seq));
        Some(Program { calls })
    }

    fn track(&self) -> Track<'a> {
        let entries = self
            .calls
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
        Track { stream: 0, rank: 0, entries, base: Base::Known, blind_after: None, blind_before: false }
    }
}

/// What communicators are for, so that one rank's compares with another's.
#[derive(Default)]
struct Roles {
    roles: Vec<(u8, String)>,
    keys: FxHashMap<(u32, u32, u32, u32), u32>,
}

impl Roles {
    fn role(&mut self, comm: &Comm<'_>) -> u32 {
        let name =
            if comm.desc.is_empty() { comm.name.trim_end_matches(|c: char| c.is_ascii_digit()) } else { &comm.desc };
        let role = (comm.level as u8, name.to_owned());
        let at = self.roles.iter().position(|held| *held == role).unwrap_or_else(|| {
            self.roles.push(role);
            self.roles.len() - 1
        });
        at as u32
    }

    fn key(&mut self, parts: (u32, u32, u32, u32)) -> u32 {
        let next = self.keys.len() as u32 + 1;
        *self.keys.entry(parts).or_insert(next)
    }

    /// The communicator of a role that the rank is in; `None` if there are several.
    fn comm_of(&mut self, alignment: &Alignment<'_>, rank: u32, role: u32) -> Option<usize> {
        let mut found = None;
        for (at, comm) in alignment.comms.list.iter().enumerate() {
            if comm.members.len() > 1 && comm.members.contains(&rank) && self.role(comm) == role {
                if found.is_some() {
                    return None;
                }
                found = Some(at);
            }
        }
        found
    }
}
