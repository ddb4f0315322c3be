//! Calls that were not decoded, where members are compared: whoever is known to have made the same calls stands on the
//! side of a member whose calls were decoded.
//!
//! Not here: what is decoded and what digests prove (`outline`).

use rustc_hash::FxHashMap;

use crate::index::Track;

/// The members of a communicator whose calls were not all decoded, by what they are equal to.
#[derive(Debug, Default)]
pub(crate) struct Elision {
    /// Tracks of each class, ascending; empty if every call of every member was decoded.
    by_class: FxHashMap<u32, Vec<usize>>,
    any: bool,
}

impl Elision {
    pub(crate) fn of(tracks: &[Track<'_>]) -> Elision {
        let mut found = Elision { any: tracks.iter().any(|track| !track.made.is_empty()), ..Elision::default() };
        if found.any {
            for (at, track) in tracks.iter().enumerate() {
                if let Some(class) = track.class {
                    found.by_class.entry(class).or_default().push(at);
                }
            }
        }
        found
    }

    /// Whether calls of a member were not decoded.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Adds to each group the members that made the same call there without its being decoded. A member whose call was
    /// decoded stays in front.
    pub(crate) fn extend(&self, groups: &mut [Vec<usize>], tracks: &[Track<'_>], pos: u64) {
        if !self.any {
            return;
        }
        for group in groups.iter_mut() {
            let mut classes: Vec<u32> =
                group.iter().filter_map(|&at| tracks.get(at).and_then(|track| track.class)).collect();
            classes.sort_unstable();
            classes.dedup();
            let alike = classes.iter().filter_map(|class| self.by_class.get(class)).flatten().copied();
            let mut more: Vec<usize> = alike
                .filter(|&at| tracks.get(at).is_some_and(|track| track.at(pos).is_none() && track.elides(pos)))
                .collect();
            more.sort_unstable();
            group.append(&mut more);
        }
        groups.sort_by_key(|tracks| (std::cmp::Reverse(tracks.len()), tracks.iter().min().copied()));
    }

    /// Positions that every one of these members has called, decoded or not.
    pub(crate) fn common(tracks: &[Track<'_>], usable: &[usize]) -> u64 {
        let tracks = || usable.iter().filter_map(|&at| tracks.get(at));
        let first = tracks().filter_map(Track::first).max().unwrap_or(0);
        let end = tracks().map(Track::end).min().unwrap_or(0);
        let holes = tracks().map(|track| {
            track.first().map_or(0, |first| track.end().saturating_sub(first).saturating_sub(track.count()))
        });
        end.saturating_sub(first).saturating_sub(holes.max().unwrap_or(0))
    }
}

/// A member of the same class whose call at the position was decoded.
pub(crate) fn stand_in<'t, 'a>(tracks: &'t [Track<'a>], track: &Track<'_>, pos: u64) -> Option<&'t Track<'a>> {
    let class = track.class.filter(|_| track.elides(pos))?;
    tracks.iter().find(|other| other.class == Some(class) && other.at(pos).is_some())
}

#[cfg(test)]
mod tests {
    use super::{Elision, stand_in};
    use crate::testing::track;

    #[test]
    fn members_of_a_class_stand_with_the_one_that_was_decoded() {
        let mut tracks = vec![track("abc"), track("abc"), track("abx")];
        for (rank, (track, class)) in tracks.iter_mut().zip([0, 0, 1]).enumerate() {
            track.rank = rank as u32;
            track.class = Some(class);
        }
        // The second one was not decoded.
        tracks[1].entries.clear();
        tracks[1].made = vec![(0, 3)];
        let elision = Elision::of(&tracks);
        let mut groups = vec![vec![0], vec![2]];
        elision.extend(&mut groups, &tracks, 2);
        assert_eq!(groups, [vec![0, 1], vec![2]]);
        assert_eq!(stand_in(&tracks, &tracks[1], 2).map(|track| track.rank), Some(0));
        assert!(stand_in(&tracks, &tracks[1], 3).is_none(), "no call was made there");
        assert_eq!(Elision::common(&tracks, &[0, 1, 2]), 3);
    }
}
