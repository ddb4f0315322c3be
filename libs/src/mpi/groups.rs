//! Groups: which ranks of the world they hold, so that what `MPI_Comm_create` makes of them is known.
//!
//! Only groups that come from the world's by listing ranks are followed; of others nothing is known. A group that is
//! freed is forgotten, so that its handle may come to mean another one.

use rankdiff_trace::CommIdentity;
use rustc_hash::FxHashMap;

use crate::spec::{Function, Role};
use crate::values::Values;

/// Most groups of one process.
const MAX_GROUPS: usize = 1 << 16;
/// Most ranks of a group that is kept.
const MAX_RANKS: usize = 1 << 16;

/// The groups of one process.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Ranks of the world, in the group's order, by handle.
    members: FxHashMap<u64, Vec<u32>>,
    /// Communicators made over each group by its members alone.
    made: FxHashMap<CommIdentity, u64>,
}

impl Groups {
    /// A call made a group of this handle. `world`: the world's size, if the call is on the world.
    pub(super) fn made(&mut self, function: &Function, values: &Values<'_>, new: u64, world: Option<u32>) {
        match members(self, function, values, world) {
            Some(members) if members.len() <= MAX_RANKS && self.members.len() < MAX_GROUPS => {
                self.members.insert(new, members);
            }
            _ => self.freed(new),
        }
    }

    /// The handle means no group any more.
    pub(super) fn freed(&mut self, group: u64) {
        self.members.remove(&group);
    }

    /// The ranks of a group.
    pub(super) fn members(&self, group: u64) -> Option<&[u32]> {
        self.members.get(&group).map(Vec::as_slice)
    }

    /// Identity of the next communicator that the members of a group make by themselves with this tag: it is the same
    /// number of such calls for each of them.
    pub(super) fn next_identity(&mut self, library: &str, group: u64, tag: i64) -> Option<CommIdentity> {
        let mut text = b"group".to_vec();
        text.extend_from_slice(&tag.to_le_bytes());
        self.members(group)?.iter().for_each(|rank| text.extend_from_slice(&rank.to_le_bytes()));
        let count = self.made.entry(CommIdentity::root(library, &text)).or_default();
        text.extend_from_slice(&count.to_le_bytes());
        *count += 1;
        Some(CommIdentity::root(library, &text))
    }
}

/// A number that stands for the ranks of a group, equal in every process.
pub(super) fn number_of(members: &[u32]) -> i64 {
    let bytes: Vec<u8> = members.iter().flat_map(|rank| rank.to_le_bytes()).collect();
    CommIdentity::root("group", &bytes).0 as i64
}

fn members(groups: &Groups, function: &Function, values: &Values<'_>, world: Option<u32>) -> Option<Vec<u32>> {
    if function.arg(Role::Comm).is_some() {
        return Some((0..world?).collect());
    }
    let old = groups.members(values.get(Role::Group)?)?;
    let count = usize::try_from(values.get(Role::Extent)?).ok()?;
    if values.has(Role::Ranks) {
        let listed = values.array(Role::Ranks, count)?;
        return listed.iter().map(|&at| old.get(usize::try_from(at).ok()?).copied()).collect();
    }
    if values.has(Role::RankRanges) {
        let listed = values.array(Role::RankRanges, count.checked_mul(3)?)?;
        let mut members = Vec::new();
        for range in listed.chunks_exact(3) {
            let [first, last, stride] = range else { return None };
            in_range(*first as u32 as i32, *last as u32 as i32, *stride as u32 as i32, old, &mut members)?;
        }
        return Some(members);
    }
    let left_out = values.array(Role::ExcludedRanks, count)?;
    Some(old.iter().enumerate().filter(|(at, _)| !left_out.contains(&(*at as u64))).map(|(_, &rank)| rank).collect())
}

/// Adds the ranks of a range of a group: `first`, `first + stride`, … not beyond `last`; `None` if one is not in the group.
fn in_range(first: i32, last: i32, stride: i32, old: &[u32], members: &mut Vec<u32>) -> Option<()> {
    let steps = (i64::from(last) - i64::from(first)).checked_div(i64::from(stride))?;
    for step in 0..=steps.max(-1) {
        let at = i64::from(first) + step * i64::from(stride);
        members.push(*old.get(usize::try_from(at).ok()?)?);
    }
    Some(())
}
