//! The members of a communicator by what their digests prove to be equal, and what the largest class says of each other.
//!
//! Members with one history made equal calls, so one of them speaks for all. Work grows with members and classes, not
//! with pairs of members.

use rankdiff_trace::{CommRef, StreamOutline};
use rustc_hash::FxHashMap;

use super::agree::{History, Relation, history, made, relate};

/// A member of a communicator: index of its stream among the outlines, and the communicator as that stream numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) stream: usize,
    pub(super) comm: CommRef,
}

/// Members that made equal calls; those whose digests are not whole stand alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    /// Indices of members, ascending; the first one speaks for all.
    pub(super) members: Vec<usize>,
    /// What the digests say of it and the first class.
    pub(super) relation: Relation,
    /// One past its last position.
    pub(super) end: u64,
    /// Nothing is missing in its digests.
    pub(super) whole: bool,
}

/// The classes of a communicator, the largest first; members without a collective are in none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Classes {
    pub(super) list: Vec<Class>,
    /// Positions that were called: first, and one past the last of the member that has most.
    pub(super) positions: (u64, u64),
}

impl Classes {
    pub(super) fn of(members: &[Member], outlines: &[StreamOutline]) -> Classes {
        let points = |member: &Member| {
            let stream = outlines.get(member.stream);
            stream.and_then(|stream| stream.chains.get(&member.comm)).map_or(&[][..], Vec::as_slice)
        };
        let mut by_history: FxHashMap<History, usize> = FxHashMap::default();
        let mut list: Vec<Class> = Vec::new();
        let mut positions = (u64::MAX, 0);
        for (at, member) in members.iter().enumerate() {
            let spans = made(points(member));
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else { continue };
            positions = (positions.0.min(first.0), positions.1.max(last.1));
            let history = history(points(member));
            let class = match history {
                Some(history) => *by_history.entry(history).or_insert(list.len()),
                None => list.len(),
            };
            match list.get_mut(class) {
                Some(class) => class.members.push(at),
                None => list.push(Class {
                    members: vec![at],
                    relation: Relation::default(),
                    end: last.1,
                    whole: history.is_some(),
                }),
            }
        }
        list.sort_by_key(|class| {
            (!class.whole, std::cmp::Reverse(class.members.len()), class.members.first().copied())
        });
        if let Some((main, others)) = list.split_first_mut() {
            let speaker = |class: &Class| class.members.first().and_then(|&at| members.get(at)).map(points);
            let reference = speaker(main).unwrap_or_default();
            for class in others {
                class.relation = relate(reference, speaker(class).unwrap_or_default());
            }
        }
        Classes { list, positions }
    }

    /// Whether some have made fewer calls.
    pub(super) fn is_uneven(&self) -> bool {
        self.list.iter().any(|class| Some(class.end) != self.list.first().map(|first| first.end))
    }

    /// One past the last position of the member that has fewest.
    pub(super) fn shortest(&self) -> u64 {
        self.list.iter().map(|class| class.end).min().unwrap_or(0)
    }
}
