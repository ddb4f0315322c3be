//! Where members have met: call sites and labels at which all calls of a position agreed, and who was there.
//!
//! That a site is common to some members says nothing of one that was never seen there: its record may begin later, or it
//! may have its own line for the call.

use rustc_hash::FxHashMap;

/// Site and label.
type Meaning = (u32, u32);

/// Who has met where.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Tracks that were there; `None`: all of them.
    places: FxHashMap<Meaning, Option<Vec<bool>>>,
}

impl Met {
    /// Notes that these tracks, of so many, met.
    pub(crate) fn insert(&mut self, meaning: Meaning, tracks: impl ExactSizeIterator<Item = usize>, of: usize) {
        let place = self.places.entry(meaning).or_insert_with(|| Some(vec![false; of]));
        if tracks.len() == of {
            *place = None;
        }
        let Some(there) = place else { return };
        for track in tracks {
            if let Some(there) = there.get_mut(track) {
                *there = true;
            }
        }
    }

    /// Whether somebody met at the site.
    pub(crate) fn knows_site(&self, site: u32) -> bool {
        self.places.keys().any(|meaning| meaning.0 == site)
    }

    /// Whether every one of these tracks was seen to meet others there.
    pub(crate) fn holds(&self, meaning: Meaning, mut tracks: impl Iterator<Item = usize>) -> bool {
        match self.places.get(&meaning) {
            None => false,
            Some(None) => true,
            Some(Some(there)) => tracks.all(|track| there.get(track) == Some(&true)),
        }
    }

    /// Whether every one of these tracks was seen to meet others at the site, under whatever label.
    pub(crate) fn holds_site(&self, site: u32, tracks: &[usize]) -> bool {
        let meanings = || self.places.keys().filter(|meaning| meaning.0 == site);
        tracks.iter().all(|&track| meanings().any(|&meaning| self.holds(meaning, std::iter::once(track))))
            && meanings().next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Met;

    #[test]
    fn who_was_there_is_known_by_member() {
        let mut met = Met::default();
        met.insert((1, 0), [1, 2].into_iter(), 3);
        assert!(met.holds((1, 0), [2, 1].into_iter()) && !met.holds((1, 0), [0, 1].into_iter()));
        assert!(met.knows_site(1) && !met.knows_site(2));
        met.insert((1, 7), [0, 1].into_iter(), 3);
        assert!(met.holds_site(1, &[0, 1, 2]) && !met.holds((1, 7), [2].into_iter()));
        met.insert((1, 0), [0, 1, 2].into_iter(), 3);
        assert!(met.holds((1, 0), [0, 1, 2].into_iter()));
        assert!(!met.holds((4, 0), std::iter::empty()) && !met.holds_site(4, &[]));
    }
}
