//! Sets of ranks and their compressed text form (`0-3,8,12-15`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of ranks. Prints compressed: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RankSet(BTreeSet<u32>);

/// The text is no rank set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a rank set: '{0}' (expected ranges and lists such as 0-3,8)")]
pub struct RankSetError(String);

/// Most ranks that a text may name, so that `0-4000000000` in a hostile file takes no memory.
const MAX_PARSED: u32 = 1 << 20;

impl RankSet {
    /// No ranks.
    pub fn new() -> RankSet {
        RankSet::default()
    }

    /// Adds a rank; returns whether it was not there.
    pub fn insert(&mut self, rank: u32) -> bool {
        self.0.insert(rank)
    }

    /// Whether the rank is in the set.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.contains(&rank)
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranks in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The lowest rank.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Ranks of either set.
    #[must_use]
    pub fn union(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.union(&other.0).copied().collect())
    }

    /// Ranks of both sets.
    #[must_use]
    pub fn intersection(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.intersection(&other.0).copied().collect())
    }

    /// Ranks of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.difference(&other.0).copied().collect())
    }

    /// Whether every rank is in the other set.
    pub fn is_subset(&self, other: &RankSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// 'rank 6', 'ranks 0-5,7', 'no rank'.
    pub fn phrase(&self) -> String {
        match self.len() {
            0 => "no rank".to_owned(),
            1 => format!("rank {self}"),
            _ => format!("ranks {self}"),
        }
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> RankSet {
        RankSet(ranks.into_iter().collect())
    }
}

impl Extend<u32> for RankSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ranks: I) {
        self.0.extend(ranks);
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranks = self.iter().peekable();
        let mut first = true;
        while let Some(start) = ranks.next() {
            let mut end = start;
            while let Some(&next) = ranks.peek() {
                if next != end + 1 {
                    break;
                }
                end = next;
                ranks.next();
            }
            if !first {
                f.write_str(",")?;
            }
            first = false;
            if start == end { write!(f, "{start}")? } else { write!(f, "{start}-{end}")? }
        }
        Ok(())
    }
}

impl FromStr for RankSet {
    type Err = RankSetError;

    fn from_str(text: &str) -> Result<RankSet, RankSetError> {
        let error = || RankSetError(text.to_owned());
        let mut set = RankSet::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u32 = low.trim().parse().map_err(|_| error())?;
            let high: u32 = high.trim().parse().map_err(|_| error())?;
            if high < low || high - low >= MAX_PARSED || set.len() as u32 >= MAX_PARSED {
                return Err(error());
            }
            set.extend(low..=high);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::RankSet;

    #[test]
    fn prints_and_parses_compressed() {
        for text in ["", "0", "0-1", "0-3,8,12-15", "1,3,5"] {
            assert_eq!(text.parse::<RankSet>().expect("valid").to_string(), text);
        }
        assert_eq!("3,0-2,1".parse::<RankSet>().expect("valid").to_string(), "0-3");
    }

    #[test]
    fn refuses_what_is_no_set() {
        for text in ["x", "3-1", "0-4294967295", "-1", "1-2-3"] {
            assert!(text.parse::<RankSet>().is_err(), "{text}");
        }
    }
}
