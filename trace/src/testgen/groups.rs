//! A scenario's groups as one rank's communicator definitions.
//!
//! A group that some stream creates is defined where its creation is called, or at its first use; every other one
//! exists from the start. A group that is used at two levels is two communicators. Identity comes from the level and
//! the group's name, so that members agree on it however wrong their creation calls are.

use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{CallSpec, LevelName};
use super::scenario::Scenario;
use crate::comm::{CommDef, CommIdentity, CommRef, Provenance};
use crate::op::{Op, OpKind};

/// A group at a level.
pub(super) type Key = (usize, LevelName);

/// What holds for all ranks.
#[derive(Debug)]
pub(super) struct Groups {
    /// Groups and levels that exist from the start.
    declared: Vec<Key>,
    /// Those that streams create.
    created: FxHashSet<Key>,
    /// Groups made from each group, in the order of the text.
    children: Vec<Vec<usize>>,
    /// Rank in the group, by global rank.
    index: Vec<FxHashMap<u32, u32>>,
    /// Ordinal of each group's creation on its parent, as far as the text tells.
    ordinals: Vec<u64>,
    /// Groups of each rank.
    of_rank: Vec<Vec<usize>>,
}

/// The group on which a creation is called, and the one it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Creation {
    pub(super) on: Option<usize>,
    pub(super) made: Option<usize>,
}

impl Groups {
    pub(super) fn of(scenario: &Scenario) -> Groups {
        let groups = &scenario.groups;
        let mut children = vec![Vec::new(); groups.len()];
        let mut of_rank = vec![Vec::new(); scenario.world as usize];
        for (index, group) in groups.iter().enumerate() {
            if let Some(siblings) = group.parent.and_then(|parent| children.get_mut(parent)) {
                siblings.push(index);
            }
            for &rank in &group.ranks {
                if let Some(of_rank) = of_rank.get_mut(rank as usize) {
                    of_rank.push(index);
                }
            }
        }
        let index = groups
            .iter()
            .map(|group| group.ranks.iter().enumerate().map(|(index, &rank)| (rank, index as u32)).collect())
            .collect();
        let mut this = Groups {
            declared: Vec::new(),
            created: FxHashSet::default(),
            ordinals: ordinals(scenario, &children),
            children,
            index,
            of_rank,
        };
        let mut used: FxHashSet<Key> = FxHashSet::default();
        for (spec, &group) in scenario.calls.iter().zip(&scenario.call_groups) {
            let level = spec.level.unwrap_or(groups[group].level);
            if spec.op.kind() != OpKind::CommCreate {
                used.insert((group, level));
                continue;
            }
            let makes = this.candidates(scenario, group, spec);
            used.extend(this.on(scenario, group, spec).map(|group| (group, level)));
            this.created.extend(makes.iter().map(|&group| (group, level)));
        }
        let touched: FxHashSet<usize> = used.iter().chain(&this.created).map(|&(group, _)| group).collect();
        used.extend(
            (0..groups.len()).filter(|group| !touched.contains(group)).map(|group| (group, groups[group].level)),
        );
        this.declared = used.into_iter().filter(|key| !this.created.contains(key)).collect();
        this.declared.sort_unstable();
        this
    }

    /// Rank in the group.
    pub(super) fn local(&self, group: usize, rank: u32) -> Option<u32> {
        self.index.get(group)?.get(&rank).copied()
    }

    /// Sum over all groups of the squared number of members: what all ranks' definitions name together.
    pub(super) fn named_members(scenario: &Scenario) -> u64 {
        scenario.groups.iter().map(|group| (group.ranks.len() as u64).pow(2)).fold(0, u64::saturating_add)
    }

    /// Groups that this creation call may make, on whatever rank: for an initialisation the group itself; else the
    /// group's children of that colour, or the group itself if it has a parent and no such children.
    fn candidates(&self, scenario: &Scenario, group: usize, spec: &CallSpec) -> Vec<usize> {
        if spec.op == Op::CommInit {
            return vec![group];
        }
        let fits = |&child: &usize| match spec.color {
            Some(Some(color)) => scenario.groups[child].color == Some(color),
            Some(None) => false,
            None => true,
        };
        let children: Vec<usize> = self.children[group].iter().copied().filter(fits).collect();
        if children.is_empty() && spec.color != Some(None) && scenario.groups[group].parent.is_some() {
            return vec![group];
        }
        children
    }

    /// The group on which the creation is called.
    fn on(&self, scenario: &Scenario, group: usize, spec: &CallSpec) -> Option<usize> {
        if spec.op == Op::CommInit || self.candidates(scenario, group, spec) == [group] {
            return scenario.groups[group].parent;
        }
        Some(group)
    }
}

/// Ordinals of the groups on their parents: groups that share no member and have colours come from one split.
fn ordinals(scenario: &Scenario, children: &[Vec<usize>]) -> Vec<u64> {
    let mut ordinals = vec![0; scenario.groups.len()];
    for siblings in children {
        let mut ordinal = 0;
        let mut taken: FxHashSet<u32> = FxHashSet::default();
        let mut colored_before = false;
        for (index, &child) in siblings.iter().enumerate() {
            let group = &scenario.groups[child];
            let joins = group.color.is_some() && colored_before && group.ranks.iter().all(|rank| !taken.contains(rank));
            if index > 0 && !joins {
                ordinal += 1;
                taken.clear();
            }
            taken.extend(&group.ranks);
            colored_before = group.color.is_some();
            ordinals[child] = ordinal;
        }
    }
    ordinals
}

/// One rank's communicators.
#[derive(Debug)]
pub(super) struct RankGroups<'a> {
    scenario: &'a Scenario,
    groups: &'a Groups,
    rank: u32,
    refs: FxHashMap<Key, CommRef>,
    made: FxHashSet<Key>,
}

impl<'a> RankGroups<'a> {
    pub(super) fn new(scenario: &'a Scenario, groups: &'a Groups, rank: u32) -> RankGroups<'a> {
        RankGroups { scenario, groups, rank, refs: FxHashMap::default(), made: FxHashSet::default() }
    }

    /// Definitions of the groups that exist from the start and have this rank.
    pub(super) fn declared(&mut self, out: &mut Vec<CommDef>) {
        for &group in self.groups.of_rank.get(self.rank as usize).map_or(&[][..], Vec::as_slice) {
            let from = self.groups.declared.partition_point(|key| key.0 < group);
            for &(_, level) in self.groups.declared[from..].iter().take_while(|key| key.0 == group) {
                self.define((group, level), Provenance::Declared, None, out);
            }
        }
    }

    /// The communicator of a group, defined if it was not.
    pub(super) fn used(&mut self, key: Key, out: &mut Vec<CommDef>) -> CommRef {
        self.define(key, Provenance::Declared, None, out)
    }

    /// What a creation call is on and makes, for this rank. Of several groups of one colour the first that this rank
    /// has not made yet.
    pub(super) fn creation(&mut self, group: usize, level: LevelName, spec: &CallSpec) -> Creation {
        let candidates = self.groups.candidates(self.scenario, group, spec);
        let mine: Vec<usize> =
            candidates.into_iter().filter(|&group| self.groups.local(group, self.rank).is_some()).collect();
        let made = mine.iter().find(|&&group| !self.made.contains(&(group, level))).or(mine.first()).copied();
        if let Some(made) = made {
            self.made.insert((made, level));
        }
        Creation { on: self.groups.on(self.scenario, group, spec), made }
    }

    /// The communicator that a creation call makes.
    pub(super) fn created(
        &mut self,
        key: Key,
        ordinal: Option<u64>,
        spec: &CallSpec,
        seen: bool,
        out: &mut Vec<CommDef>,
    ) -> CommRef {
        let provenance = if seen { Provenance::Created } else { Provenance::Declared };
        self.define(key, provenance, Some((ordinal, spec)), out)
    }

    fn define(
        &mut self,
        key: Key,
        provenance: Provenance,
        creation: Option<(Option<u64>, &CallSpec)>,
        out: &mut Vec<CommDef>,
    ) -> CommRef {
        if let Some(&comm) = self.refs.get(&key) {
            return comm;
        }
        let (index, level) = key;
        let group = &self.scenario.groups[index];
        let parent = match group.parent {
            // Lines of parents are short and end; the scenario was checked.
            Some(parent) if self.groups.local(parent, self.rank).is_some() => {
                self.define((parent, level), Provenance::Declared, None, out)
            }
            _ => CommRef::NONE,
        };
        let comm = CommRef(self.refs.len() as u32 + 1);
        self.refs.insert(key, comm);
        out.push(CommDef {
            id: comm,
            identity: CommIdentity::root(level.name(), group.name.as_bytes()),
            provenance,
            name: group.name.clone(),
            desc: group.desc.clone(),
            library: level.name().to_owned(),
            level: level.level(),
            semantics: level.semantics(self.scenario.blocking),
            size: Some(group.ranks.len() as u32),
            my_rank: self.groups.local(index, self.rank),
            members: group.ranks.clone(),
            owner: None,
            parent,
            ordinal: creation.and_then(|(ordinal, _)| ordinal).unwrap_or(self.groups.ordinals[index]),
            color: creation.and_then(|(_, spec)| spec.color.flatten()).or(group.color),
            key: creation.and_then(|(_, spec)| spec.key),
            inter: false,
        });
        comm
    }
}
