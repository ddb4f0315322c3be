//! The permutation test: the same calls within a window, in another order.

use crate::index::Track;
use crate::shift::Shift;

/// Longest window that is tried.
const WIDEST: u64 = 64;
/// Calls behind it that are compared.
const WINDOW: u64 = 4096;

/// A window with the same calls in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permutation {
    /// Calls in the window.
    pub(crate) width: u64,
    /// Calls right behind it that agree where they stand.
    pub(crate) agrees: u64,
    /// On one of the two ranks the calls of the window came from several threads.
    pub(crate) several_threads: bool,
}

/// The smallest window from `visible` on that holds the same calls on both, behind which both agree again.
pub(crate) fn find(major: &Track<'_>, minor: &Track<'_>, visible: u64) -> Option<Permutation> {
    let mut balance: Vec<((u32, u32, u32), i64)> = Vec::new();
    let mut change = |meaning: (u32, u32, u32), by: i64| {
        match balance.iter_mut().find(|(held, _)| *held == meaning) {
            Some((_, count)) => *count += by,
            None => balance.push((meaning, by)),
        }
        balance.iter().all(|(_, count)| *count == 0)
    };
    for width in 1..=WIDEST {
        let pos = visible + width - 1;
        let (Some(a), Some(b)) = (major.at(pos), minor.at(pos)) else { return None };
        change(a.meaning(), 1);
        if change(b.meaning(), -1) && width > 1 {
            let next = (major.at(pos + 1), minor.at(pos + 1));
            if let (Some(a), Some(b)) = next
                && a.sig != b.sig
            {
                continue;
            }
            let several_threads = threads(major, minor, visible, width);
            return Some(Permutation { width, agrees: agreement(major, minor, pos + 1), several_threads });
        }
    }
    None
}

/// Whether one of two ranks made its calls at a position and the next from two threads, the second before the first had
/// returned, and the second is what the other rank calls here: where calls block nobody gets to show more of the order.
pub(crate) fn at_once(major: &Track<'_>, minor: &Track<'_>, pos: u64) -> bool {
    let crossed = |one: &Track<'_>, other: &Track<'_>| {
        let (Some(own), Some(next), Some(theirs)) = (one.at(pos), one.at(pos + 1), other.at(pos)) else { return false };
        own.call.thread != next.call.thread
            && own.call.exit.is_none_or(|exit| exit > next.call.enter)
            && next.meaning() == theirs.meaning()
    };
    crossed(minor, major) || crossed(major, minor)
}

/// Calls from a position on that mean the same on both, without a break.
fn agreement(major: &Track<'_>, minor: &Track<'_>, from: u64) -> u64 {
    let alike = |pos: u64| major.at(pos).zip(minor.at(pos)).is_some_and(|(a, b)| a.meaning() == b.meaning());
    (from..from.saturating_add(WINDOW)).take_while(|&pos| alike(pos)).count() as u64
}

/// Whether the permutation is the better explanation of the two.
pub(crate) fn beats(permutation: Permutation, shift: Option<Shift>) -> bool {
    shift.is_none_or(|shift| {
        // A stream that repeats agrees with itself shifted by a period as well, over no more calls.
        let in_place = permutation.agrees >= WINDOW || permutation.agrees >= shift.matched.max(2);
        // A shift by one call looks like a wide permutation up to the end of the record.
        in_place || permutation.width == 2 && shift.matched < 3 || shift.matched + 1 < permutation.width
    })
}

/// Whether the permutation says no more than that one call is missing or too many: nothing behind it agrees, and by just that
/// call one of the two records is shorter than the other, though no call holds either rank. Another order makes none shorter.
pub(crate) fn is_only_shifted(
    major: &Track<'_>,
    minor: &Track<'_>,
    permutation: Permutation,
    shift: Option<Shift>,
) -> bool {
    shift.is_some_and(|shift| {
        let (longer, shorter) = if shift.lacks { (major, minor) } else { (minor, major) };
        let free = |track: &Track<'_>| track.entries.last().is_some_and(|last| last.call.exit.is_some());
        let by_one = shift.calls == 1 && longer.end() == shorter.end() + 1;
        permutation.agrees == 0 && by_one && free(longer) && free(shorter)
    })
}

/// Whether both records end with the window, and the calls at the end of the minority's do not follow one another in the
/// majority's: a shift would have the next round of a loop there, whose beginning follows its end.
pub(crate) fn ends_with_the_rest(major: &Track<'_>, minor: &Track<'_>, visible: u64, permutation: Permutation) -> bool {
    let end = visible + permutation.width;
    if major.end() != end || minor.end() != end || permutation.width < 2 {
        return false;
    }
    let (Some(last), Some(before)) = (minor.at(end - 1), minor.at(end - 2)) else { return false };
    let pairs = major.entries.iter().zip(major.entries.iter().skip(1));
    !pairs.into_iter().any(|(one, next)| one.meaning() == before.meaning() && next.meaning() == last.meaning())
}

fn threads(major: &Track<'_>, minor: &Track<'_>, visible: u64, width: u64) -> bool {
    let several = |track: &Track<'_>| {
        let mut ids: Vec<u32> =
            (visible..visible + width).filter_map(|pos| track.at(pos)).map(|entry| entry.call.thread).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len() > 1
    };
    several(major) || several(minor)
}

#[cfg(test)]
mod tests {
    use super::{beats, ends_with_the_rest, find, is_only_shifted};
    use crate::shift;
    use crate::testing::{returned, track};

    #[test]
    fn two_calls_in_the_other_order() {
        let (a, b) = (track("xyxyst"), track("xyxyts"));
        let found = find(&a, &b, 4).expect("a permutation");
        assert_eq!(found.width, 2);
        assert!(beats(found, shift::find(&a, &b, 4, 64)));
    }

    #[test]
    fn a_moved_call_is_a_permutation_if_the_rest_agrees() {
        let found = find(&track("xyzq"), &track("yzxq"), 0).expect("a permutation");
        assert_eq!(found.width, 3);
    }

    #[test]
    fn two_swapped_calls_of_a_stream_that_repeats_are_no_shift_by_its_period() {
        let (a, b) = (track(&"xy".repeat(40)), track(&format!("{}yx{}", "xy".repeat(10), "xy".repeat(29))));
        let found = find(&a, &b, 20).expect("a permutation");
        assert_eq!((found.width, found.agrees), (2, 58));
        assert!(beats(found, shift::find(&a, &b, 20, 64)));
    }

    #[test]
    fn a_missing_call_of_a_long_run_is_no_permutation() {
        let (a, b) =
            (track(&format!("{0}y{0}", "x".repeat(20))), track(&format!("{}y{}", "x".repeat(19), "x".repeat(20))));
        let found = find(&a, &b, 19).expect("a permutation");
        assert!(!beats(found, shift::find(&a, &b, 19, 64)));
    }

    #[test]
    fn a_call_that_was_put_off_to_the_end_is_no_missing_one() {
        let (a, b) = (track("abcde"), track("bcdea"));
        let found = find(&a, &b, 0).expect("a permutation");
        assert!(ends_with_the_rest(&a, &b, 0, found));
        // The next round begins with it.
        let (a, b) = (track("abcabc"), track("abcbca"));
        let found = find(&a, &b, 3).expect("a permutation");
        assert!(!ends_with_the_rest(&a, &b, 3, found));
    }

    #[test]
    fn a_call_that_is_missing_makes_a_record_shorter_and_another_order_does_not() {
        let (whole, lacks) = (returned("lblblb"), returned("lbllb"));
        let (found, shift) = (find(&whole, &lacks, 3).expect("a permutation"), shift::find(&whole, &lacks, 3, 64));
        assert_eq!((found.width, found.agrees), (2, 0));
        assert!(is_only_shifted(&whole, &lacks, found, shift));
        let held = track("lbllb");
        assert!(!is_only_shifted(&whole, &held, found, shift), "the call that holds it may be in another order");
        let swapped = returned("lbllbb");
        let found = find(&whole, &swapped, 3).expect("a permutation");
        assert!(!is_only_shifted(&whole, &swapped, found, shift::find(&whole, &swapped, 3, 64)));
    }

    #[test]
    fn a_shift_in_a_repeating_stream_is_none() {
        let (a, b) = (track("abcabcabcabc"), track("bcabcabcabca"));
        let permutation = find(&a, &b, 0);
        let shift = shift::find(&a, &b, 0, 64);
        assert!(permutation.is_none_or(|found| !beats(found, shift)));
    }
}
