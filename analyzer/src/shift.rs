//! The shift test: does a minority agree with the majority again once a few calls are taken out or put in?
//!
//! Equal signatures hide a shift: a rank that lacks one of many equal calls shows nothing until an unequal one comes.
//! Call sites, labels and step marks tell where it began; where they do not, the origin is not guessed.

use rustc_hash::FxHashSet;

use crate::index::{Entry, Track};

/// A minority that is out of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift {
    /// It lacks calls that the majority made (else: it made calls that the majority did not).
    pub(crate) lacks: bool,
    /// How many.
    pub(crate) calls: u64,
    /// Where the streams part; `None` where several places fit.
    pub(crate) first: Option<u64>,
    /// Calls that agree with the shift and did not without.
    pub(crate) matched: u64,
}

/// Calls that may differ behind a long agreement without refuting the shift.
const ENOUGH: u64 = 8;
/// Calls that are compared on each side of the visible mismatch.
const WINDOW: u64 = 4096;

/// The smallest shift that explains what `minor` did from `visible` on.
///
/// `visible` is the first position where the signatures differ or where one of the two has no call.
pub(crate) fn find(major: &Track<'_>, minor: &Track<'_>, visible: u64, most: usize) -> Option<Shift> {
    let parted = first_other_meaning(major, minor, visible);
    let mut best: Option<Shift> = None;
    for calls in 1..=most as u64 {
        for lacks in [true, false] {
            let Some(found) = test(major, minor, visible, parted, calls, lacks) else { continue };
            let better = match best {
                None => true,
                Some(held) if held.calls == calls => {
                    // A period of two fits both ways; the lengths decide.
                    let by_length = minor.end() + calls == major.end();
                    let held_by_length = minor.end() == major.end() + held.calls && !held.lacks;
                    found.matched > held.matched
                        || (found.matched == held.matched
                            && by_length == lacks
                            && !held_by_length
                            && held.lacks != lacks
                            && !lacks
                            && major.end() + calls == minor.end())
                }
                Some(held) => found.matched > held.matched.saturating_mul(2) && held.matched < ENOUGH,
            };
            if better {
                best = Some(found);
            }
        }
    }
    best
}

/// The first position, looking back from `visible`, from which on the two mean different things without a break.
fn first_other_meaning(major: &Track<'_>, minor: &Track<'_>, visible: u64) -> u64 {
    let low = visible.saturating_sub(WINDOW);
    let mut first = visible;
    for pos in (low..visible).rev() {
        let (Some(a), Some(b)) = (major.at(pos), minor.at(pos)) else { break };
        if !is_same_meaning(a, b) || a.step.is_some() && b.step.is_some() && a.step != b.step {
            first = pos;
        }
    }
    first
}

/// Whether two calls have one signature and no known difference in site or label.
fn is_same_meaning(a: &Entry<'_>, b: &Entry<'_>) -> bool {
    let same = |one: u32, other: u32| one == other || one == 0 || other == 0;
    a.sig == b.sig && same(a.site, b.site) && same(a.label, b.label)
}

fn test(major: &Track<'_>, minor: &Track<'_>, visible: u64, parted: u64, calls: u64, lacks: bool) -> Option<Shift> {
    // The pair that the shift lays on one another at `pos`.
    let pair = |pos: u64| {
        let (in_major, in_minor) = if lacks { (pos + calls, pos) } else { (pos, pos + calls) };
        Some((major.at(in_major)?, minor.at(in_minor)?))
    };
    let agrees = |pos: u64| pair(pos).map(|(a, b)| is_same_meaning(a, b));
    let mut ahead = 0;
    let mut refuted = false;
    let mut kinds: FxHashSet<(u32, u32)> = FxHashSet::default();
    for pos in visible..visible.saturating_add(WINDOW) {
        match agrees(pos) {
            Some(true) => {
                ahead += 1;
                if kinds.len() < 2 {
                    kinds.extend(pair(pos).map(|(a, _)| (a.sig, a.site)));
                }
            }
            Some(false) => {
                refuted = true;
                break;
            }
            None => break,
        }
    }
    if refuted && (ahead < ENOUGH || ahead <= 2 * calls) {
        return None;
    }
    let behind = visible - parted;
    let explained_behind = behind > 0 && (parted..visible).all(|pos| agrees(pos) != Some(false));
    // Between the beginning and what shows, enough calls must say so: one odd site is no shift, and neither is a place so
    // far off that hardly a pair of calls lies on one another.
    let behind_tells = explained_behind && (parted..visible).filter(|&pos| agrees(pos) == Some(true)).count() >= 2;
    // So many longer shifts are tried that a few calls agree by chance somewhere: several kinds of calls must, and as many
    // as are said to be missing or too many.
    let ahead_tells = ahead >= calls && (kinds.len() > 1 || calls == 1);
    if !ahead_tells && !behind_tells {
        return None;
    }
    let first = if explained_behind {
        Some(parted)
    } else if behind > 0 {
        None
    } else {
        // Would the shift fit one call earlier as well, the call that is missing may be any of a run of equal ones.
        let earlier = visible.checked_sub(1).and_then(agrees).unwrap_or(false);
        (!earlier).then_some(visible)
    };
    let matched = ahead + if explained_behind { behind } else { 0 };
    Some(Shift { lacks, calls, first, matched })
}

#[cfg(test)]
mod tests {
    use super::{Shift, find};
    use crate::testing::{track, with_sites};

    #[test]
    fn a_missing_call_is_placed_by_the_sites() {
        // Equal signatures, three sites a step; the minority lacks one call at position 4.
        let sites = "abcabcabcabc";
        let major = with_sites(&format!("{}z", "x".repeat(12)), &format!("{sites}e"));
        let minor = with_sites(&format!("{}z", "x".repeat(11)), &format!("{}{}e", &sites[..4], &sites[5..]));
        let found = find(&major, &minor, 11, 64).expect("a shift");
        assert_eq!((found.lacks, found.calls, found.first), (true, 1, Some(4)));
    }

    #[test]
    fn an_extra_call_is_placed_by_the_sites() {
        let major = with_sites("xxxxxxz", "abcabce");
        let minor = with_sites("xxxxxxxz", "abqcabce");
        let found = find(&major, &minor, 6, 64).expect("a shift");
        assert_eq!((found.lacks, found.calls, found.first), (false, 1, Some(2)));
    }

    #[test]
    fn the_origin_in_a_run_of_equal_calls_is_not_guessed() {
        let major = track("xxxxxxxxzy");
        let minor = track("xxxxxxxzy");
        let found = find(&major, &minor, 7, 64).expect("a shift");
        assert_eq!(found, Shift { lacks: true, calls: 1, first: None, matched: 2 });
    }

    #[test]
    fn unrelated_streams_are_no_shift() {
        assert_eq!(find(&track("abcabcd"), &track("abcabce"), 6, 64), None);
        assert_eq!(find(&track("ababz"), &track("ababaq"), 4, 64), None);
    }

    #[test]
    fn what_agrees_again_by_chance_is_no_shift() {
        // The same two calls once more, five calls later; then one record ends.
        assert_eq!(find(&track("abcabvw"), &track("abcabpqrstvw"), 5, 64), None);
        assert_eq!(find(&track("abcabc"), &track("abcabdxyc"), 5, 64), None);
        let whole = find(&track("abcabvwxyzv"), &track("abcabpqvwxyzv"), 5, 64).expect("two calls too many");
        assert_eq!((whole.lacks, whole.calls, whole.first), (false, 2, Some(5)));
    }
}
