//! Communicators of the job, joined from what each member's process knew of them.
//!
//! Views join by identity. A view without one joins only where exactly one communicator of that description exists on
//! every process; everything inferred is marked, and whatever cannot be joined is said, never guessed.

use std::collections::BTreeMap;

use rankdiff_trace::{CommDef, CommIdentity, CommRef, Level, Provenance, RankSet, Semantics};
use rustc_hash::FxHashMap;

use crate::finding::GroupRef;
use crate::stream::Attempt;
use crate::titles;

/// A communicator of the job.
#[derive(Debug, Default)]
pub(crate) struct Comm<'a> {
    pub(crate) identity: CommIdentity,
    /// Name that the program or the library gave it; empty if none.
    pub(crate) name: String,
    /// What reports call it.
    pub(crate) title: String,
    pub(crate) desc: String,
    pub(crate) library: String,
    pub(crate) level: Level,
    pub(crate) semantics: Semantics,
    /// Connects two groups.
    pub(crate) inter: bool,
    /// Global ranks in communicator order.
    pub(crate) members: Vec<u32>,
    /// Whether `members` is all of them, in order.
    pub(crate) members_known: bool,
    /// How many there are, if somebody said so.
    pub(crate) size: Option<u32>,
    /// Members by their place in the communicator, as far as they told it.
    pub(crate) places: BTreeMap<u32, u32>,
    /// Identity or members were inferred.
    pub(crate) inferred: bool,
    /// Some member's process did not see its creation.
    pub(crate) creation_unseen: bool,
    /// The communicator it was made from, if known.
    pub(crate) parent: Option<usize>,
    /// The members' views: stream and definition.
    pub(crate) views: Vec<(usize, &'a CommDef)>,
}

impl Comm<'_> {
    /// Name for sentences.
    pub(crate) fn display(&self) -> String {
        if self.title.is_empty() { format!("communicator {}", self.identity) } else { self.title.clone() }
    }

    /// Members as a set.
    pub(crate) fn ranks(&self) -> RankSet {
        self.members.iter().copied().collect()
    }

    /// A member's global rank; `None` if it is not known who has that place.
    pub(crate) fn global(&self, local: u32) -> Option<u32> {
        if self.members_known { self.members.get(local as usize) } else { self.places.get(&local) }.copied()
    }

    /// Whether it is known which place a rank has, so that others' calls that name it are known to mean it.
    pub(crate) fn is_placed(&self, rank: u32) -> bool {
        self.members_known || self.places.values().any(|&placed| placed == rank)
    }

    /// Members, those of whom nothing but their number is known among them.
    pub(crate) fn count(&self) -> usize {
        self.members.len().max(self.size.map_or(0, |size| size as usize))
    }

    pub(crate) fn reference(&self) -> GroupRef {
        GroupRef {
            identity: self.identity,
            name: self.title.clone(),
            desc: self.desc.clone(),
            library: self.library.clone(),
            ranks: self.ranks(),
        }
    }
}

/// All communicators, and which one each stream means by its numbers.
#[derive(Debug, Default)]
pub(crate) struct Comms<'a> {
    pub(crate) list: Vec<Comm<'a>>,
    by_stream: Vec<FxHashMap<CommRef, usize>>,
    pub(crate) problems: Vec<String>,
}

impl<'a> Comms<'a> {
    pub(crate) fn join(attempt: &Attempt<'a>) -> Comms<'a> {
        let mut comms = Comms { by_stream: vec![FxHashMap::default(); attempt.streams.len()], ..Comms::default() };
        let mut groups: BTreeMap<Key, Vec<(usize, &'a CommDef)>> = BTreeMap::new();
        for (at, stream) in attempt.streams.iter().enumerate() {
            for def in &stream.trace.comms {
                if def.owner.is_none_or(|owner| owner == stream.rank) {
                    groups.entry(Key::of(def, at)).or_default().push((at, def));
                }
            }
        }
        comms.separate_ambiguous(&mut groups);
        let mut list: Vec<Comm<'a>> = groups.into_iter().map(|(key, views)| joined(&key, views, attempt)).collect();
        list.sort_by(|a, b| {
            let key = |comm: &Comm<'_>| (comm.level, comm.members.first().copied(), comm.members.len());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name)).then_with(|| a.identity.cmp(&b.identity))
        });
        for (at, comm) in list.iter().enumerate() {
            for &(stream, def) in &comm.views {
                if let Some(map) = comms.by_stream.get_mut(stream) {
                    map.insert(def.id, at);
                }
            }
        }
        comms.list = list;
        comms.find_parents();
        comms.infer_split_members(attempt);
        titles::give(&mut comms.list, attempt.world);
        comms
    }

    /// Which communicator a stream means by this number.
    pub(crate) fn of(&self, stream: usize, comm: CommRef) -> Option<usize> {
        self.by_stream.get(stream)?.get(&comm).copied()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Comm<'a>> {
        self.list.get(at)
    }

    /// Descriptions that several communicators of one process share tell nothing: such views stay apart.
    fn separate_ambiguous(&mut self, groups: &mut BTreeMap<Key, Vec<(usize, &'a CommDef)>>) {
        let ambiguous: Vec<Key> = groups
            .iter()
            .filter(|(key, views)| {
                let described = matches!(key, Key::Described { .. });
                described && views.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in ambiguous {
            let views = groups.remove(&key).unwrap_or_default();
            self.problems.push(format!(
                "{} communicators of {} rank(s) have no identity and cannot be told apart: they were not compared (record from the start of the job)",
                views.len(),
                key.size()
            ));
            for (stream, def) in views {
                groups.entry(Key::Alone { stream, id: def.id }).or_default().push((stream, def));
            }
        }
    }

    fn find_parents(&mut self) {
        for at in 0..self.list.len() {
            let parent = self.list.get(at).and_then(|comm| {
                comm.views.iter().find_map(|&(stream, def)| self.of(stream, def.parent).filter(|&parent| parent != at))
            });
            if let Some(comm) = self.list.get_mut(at) {
                comm.parent = parent;
            }
        }
    }

    /// Members that nobody listed: of a split child the parent's members of one colour, ordered by key; else all that
    /// have it, where those are as many as it has.
    fn infer_split_members(&mut self, attempt: &Attempt<'a>) {
        for at in 0..self.list.len() {
            let Some(comm) = self.list.get(at).filter(|comm| !comm.members_known) else { continue };
            let size = comm.size;
            let ordered = comm.parent.and_then(|parent| self.list.get(parent)).filter(|parent| parent.members_known);
            let members: Vec<u32> = match ordered {
                Some(parent) => {
                    let mut keyed: Vec<(i64, usize, u32)> = comm
                        .views
                        .iter()
                        .filter_map(|&(stream, def)| {
                            let rank = rank_of(attempt, stream, def)?;
                            let in_parent = parent.members.iter().position(|&member| member == rank)?;
                            Some((def.key.unwrap_or(0), in_parent, rank))
                        })
                        .collect();
                    keyed.sort_unstable();
                    keyed.dedup();
                    keyed.into_iter().map(|known| known.2).collect()
                }
                None => comm.members.clone(),
            };
            let complete = size.is_some_and(|size| size as usize == members.len());
            if let Some(comm) = self.list.get_mut(at)
                && complete
            {
                comm.members = members;
                comm.members_known = true;
                comm.inferred = true;
            }
        }
    }
}

/// What views of one communicator have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Identity(CommIdentity),
    Described { level: Level, library: String, name: String, desc: String, size: Option<u32>, members: Vec<u32> },
    Alone { stream: usize, id: CommRef },
}

impl Key {
    fn of(def: &CommDef, stream: usize) -> Key {
        if def.identity.is_known() {
            return Key::Identity(def.identity);
        }
        // Only who knows the job from elsewhere may say that equal descriptions mean one communicator. A recorder that
        // could not identify one knows nothing that would join it with another's; one of a single member has no other.
        let described = matches!(def.provenance, Provenance::Declared | Provenance::Inferred)
            && !(def.name.is_empty() && def.members.is_empty() && def.size.is_none());
        if !described || def.size == Some(1) {
            return Key::Alone { stream, id: def.id };
        }
        Key::Described {
            level: def.level,
            library: def.library.clone(),
            name: def.name.clone(),
            desc: def.desc.clone(),
            size: def.size,
            members: def.members.clone(),
        }
    }

    fn size(&self) -> String {
        match self {
            Key::Described { size: Some(size), .. } => size.to_string(),
            _ => "an unknown number of".to_owned(),
        }
    }
}

fn joined<'a>(key: &Key, views: Vec<(usize, &'a CommDef)>, attempt: &Attempt<'a>) -> Comm<'a> {
    let first = views.first().map(|view| view.1);
    let text = |pick: fn(&CommDef) -> &String| {
        views.iter().map(|(_, def)| pick(def)).find(|text| !text.is_empty()).cloned().unwrap_or_default()
    };
    let mut comm = Comm {
        identity: match key {
            Key::Identity(identity) => *identity,
            _ => CommIdentity::UNKNOWN,
        },
        name: text(|def| &def.name),
        desc: text(|def| &def.desc),
        library: text(|def| &def.library),
        level: first.map(|def| def.level).unwrap_or_default(),
        semantics: first.map(|def| def.semantics).unwrap_or_default(),
        inter: views.iter().any(|(_, def)| def.inter),
        inferred: !matches!(key, Key::Identity(_))
            || views.iter().any(|(_, def)| def.provenance == Provenance::Inferred),
        size: views.iter().find_map(|(_, def)| def.size),
        creation_unseen: views
            .iter()
            .any(|(_, def)| matches!(def.provenance, Provenance::Inferred | Provenance::Unknown)),
        ..Comm::default()
    };
    comm.places = places(&views, attempt);
    (comm.members, comm.members_known) = members(&views, attempt, &comm);
    comm.views = views;
    comm
}

fn members(views: &[(usize, &CommDef)], attempt: &Attempt<'_>, comm: &Comm<'_>) -> (Vec<u32>, bool) {
    // Of lists that contradict each other, the same one is taken whatever the order of the views.
    let fuller = |a: &&Vec<u32>, b: &&Vec<u32>| a.len().cmp(&b.len()).then_with(|| b.cmp(a));
    if let Some(listed) = views.iter().map(|(_, def)| &def.members).max_by(fuller)
        && !listed.is_empty()
    {
        return (listed.clone(), true);
    }
    let (size, placed) = (comm.size, &comm.places);
    if size.is_some_and(|size| placed.len() == size as usize) {
        return (placed.values().copied().collect(), true);
    }
    let is_world = comm.name == "world" && views.iter().all(|(_, def)| def.provenance == Provenance::Predefined);
    if let Some(size) = size
        && (is_world || attempt.world == Some(size))
        && size <= MAX_INFERRED
    {
        // A communicator as large as the job holds every rank; its order is the ranks' unless views said otherwise.
        if placed.iter().all(|(local, global)| local == global) {
            return ((0..size).collect(), true);
        }
    }
    let mut seen: Vec<u32> = views.iter().filter_map(|&(stream, def)| rank_of(attempt, stream, def)).collect();
    seen.sort_unstable();
    seen.dedup();
    (seen, false)
}

/// The global rank that a view's process plays.
fn rank_of(attempt: &Attempt<'_>, stream: usize, def: &CommDef) -> Option<u32> {
    def.owner.or_else(|| attempt.streams.get(stream).map(|stream| stream.rank))
}

/// Members by the places that they told.
fn places(views: &[(usize, &CommDef)], attempt: &Attempt<'_>) -> BTreeMap<u32, u32> {
    views.iter().filter_map(|&(stream, def)| Some((def.my_rank?, rank_of(attempt, stream, def)?))).collect()
}

/// Most members that are made up from a size alone, so that a hostile file takes no memory.
const MAX_INFERRED: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use rankdiff_trace::{CommDef, CommIdentity, CommRef, ProcessTrace, Provenance, RankDef};

    use super::Comms;
    use crate::stream::{self, Attempt};

    fn attempts(traces: &[ProcessTrace]) -> Vec<Attempt<'_>> {
        stream::attempts(traces, &std::collections::BTreeMap::new())
    }

    fn trace(rank: u32, comms: Vec<CommDef>) -> ProcessTrace {
        let ranks = vec![RankDef { rank, world: Some(4), ..RankDef::default() }];
        ProcessTrace { ranks, comms, ..ProcessTrace::default() }
    }

    fn def(id: u32, identity: u128) -> CommDef {
        CommDef {
            id: CommRef(id),
            identity: CommIdentity(identity),
            provenance: Provenance::Created,
            ..CommDef::default()
        }
    }

    #[test]
    fn views_join_by_identity_and_members_come_from_places() {
        let traces: Vec<ProcessTrace> = (0..2)
            .map(|rank| trace(rank, vec![CommDef { size: Some(2), my_rank: Some(1 - rank), ..def(rank + 5, 77) }]))
            .collect();
        let found = attempts(&traces);
        let comms = Comms::join(&found[0]);
        assert_eq!(comms.list.len(), 1);
        assert_eq!(comms.list[0].members, [1, 0]);
        assert!(comms.list[0].members_known);
        assert_eq!(comms.of(1, CommRef(6)), Some(0));
    }

    #[test]
    fn split_children_get_their_members_by_colour_and_key() {
        let world = CommDef { members: vec![0, 1, 2, 3], name: "world".into(), ..def(1, 1) };
        let traces: Vec<ProcessTrace> = (0..4)
            .map(|rank| {
                let child = CommDef {
                    parent: CommRef(1),
                    color: Some(i64::from(rank % 2)),
                    key: Some(-i64::from(rank)),
                    size: Some(2),
                    owner: Some(rank),
                    ..def(2, 10 + u128::from(rank % 2))
                };
                trace(rank, vec![world.clone(), child])
            })
            .collect();
        let found = attempts(&traces);
        let comms = Comms::join(&found[0]);
        let members: Vec<&Vec<u32>> = comms.list.iter().map(|comm| &comm.members).collect();
        assert!(members.contains(&&vec![2, 0]), "{members:?}");
        assert!(members.contains(&&vec![3, 1]), "{members:?}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_joined() {
        let twin = |id| CommDef {
            size: Some(2),
            identity: CommIdentity::UNKNOWN,
            provenance: Provenance::Declared,
            ..def(id, 0)
        };
        let traces: Vec<ProcessTrace> = (0..2).map(|rank| trace(rank, vec![twin(1), twin(2)])).collect();
        let found = attempts(&traces);
        let comms = Comms::join(&found[0]);
        assert_eq!(comms.list.len(), 4);
        assert_eq!(comms.problems.len(), 1);
    }

    #[test]
    fn what_a_recorder_could_not_identify_is_joined_with_nothing() {
        let made = |size, name: &str, provenance| CommDef {
            size: Some(size),
            name: name.into(),
            identity: CommIdentity::UNKNOWN,
            provenance,
            ..def(1, 0)
        };
        for unknown in [made(2, "", Provenance::Created), made(1, "self", Provenance::Predefined)] {
            let traces: Vec<ProcessTrace> = (0..2).map(|rank| trace(rank, vec![unknown.clone()])).collect();
            assert_eq!(Comms::join(&attempts(&traces)[0]).list.len(), 2, "{unknown:?}");
        }
        let same = made(2, "tp", Provenance::Declared);
        let traces: Vec<ProcessTrace> = (0..2).map(|rank| trace(rank, vec![same.clone()])).collect();
        assert_eq!(Comms::join(&attempts(&traces)[0]).list.len(), 1);
    }
}
