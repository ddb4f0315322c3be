//! Words for people: safe, short, and always the same for the same value.

use std::borrow::Cow;
use std::fmt::Write as _;

use rankdiff_trace::RankSet;

pub(super) use crate::words::{counted, grouped};

/// What a terminal obeys or hides instead of printing it: control characters (escape sequences begin with one), text
/// direction overrides, invisible and line-separating characters.
pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Text from a trace as a terminal may have it: what would move the cursor, change colours, reorder the line or start a
/// new one is spelled out (`\n`, `\u{1b}`).
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if is_unsafe(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// At most `limit` characters; what was cut is shown by a final `…`.
pub(super) fn clip(text: &str, limit: usize) -> Cow<'_, str> {
    if text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(limit.saturating_sub(1)).chain(['…']).collect())
}

/// The set compressed, in about `limit` characters: `0-5,7`, or `1,3,5,…,4095` where it is longer.
pub(super) fn ranks(set: &RankSet, limit: usize) -> String {
    let all = set.to_string();
    if all.len() <= limit {
        return all;
    }
    let last = all.rsplit(',').next().unwrap_or_default();
    let mut short = String::new();
    for part in all.split(',') {
        if !short.is_empty() && short.len() + part.len() + last.len() + 5 > limit {
            break;
        }
        short.push_str(part);
        short.push(',');
    }
    short + "…," + last
}

/// 'rank 6', 'ranks 0-5,7', shortened as [`ranks`] does.
pub(super) fn ranks_phrase(set: &RankSet, limit: usize) -> String {
    match set.len() {
        0 => "no rank".to_owned(),
        1 => format!("rank {set}"),
        _ => format!("ranks {}", ranks(set, limit)),
    }
}

/// `text` with the ranks in front unless it names them itself.
pub(super) fn with_ranks(set: &RankSet, text: &str, limit: usize) -> String {
    if set.is_empty() || names(text, &set.phrase()) {
        text.to_owned()
    } else {
        format!("{}: {text}", ranks_phrase(set, limit))
    }
}

/// Whether `text` has `phrase` in it and the ranks end there ('rank 1' is not in 'rank 12').
fn names(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let mut rest = text.get(at + phrase.len()..).unwrap_or_default().chars();
        match rest.next() {
            Some('0'..='9' | '-') => false,
            Some(',') => !rest.next().is_some_and(|c| c.is_ascii_digit()),
            _ => true,
        }
    })
}

/// A share in whole percent, rounded down so that only all is 100 %.
pub(super) fn percent(share: f64) -> String {
    if !share.is_finite() || share <= 0.0 {
        return "0 %".to_owned();
    }
    let whole = (share.min(1.0) * 100.0).floor();
    if whole < 1.0 { "under 1 %".to_owned() } else { format!("{whole} %") }
}

/// A duration in the units people use for its size.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A wait cycle as arrows, back to where it began; of a long one the first and the last ranks.
pub(super) fn cycle(ranks: &[u32], limit: usize) -> String {
    let mut text = String::new();
    for (at, rank) in ranks.iter().chain(ranks.first()).enumerate() {
        let cut = ranks.len() > limit;
        if cut && at == limit {
            text.push_str(" -> …");
        }
        if cut && (limit..ranks.len()).contains(&at) {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{rank}", if at == 0 { "" } else { " -> " });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{clip, counted, cycle, duration, escape, is_unsafe, percent, ranks, with_ranks};
    use proptest::prelude::{any, prop_assert, proptest};
    use rankdiff_trace::RankSet;

    fn set(text: &str) -> RankSet {
        text.parse().expect("a rank set")
    }

    #[test]
    fn control_and_invisible_characters_are_spelled_out() {
        assert_eq!(escape("plain äöü 漢字"), "plain äöü 漢字");
        assert_eq!(escape("a\x1b[2Jb\r\n\u{9b}31m\u{202e}x"), "a\\u{1b}[2Jb\\r\\n\\u{9b}31m\\u{202e}x");
    }

    proptest! {
        #[test]
        fn escaped_text_is_always_safe(text in any::<String>()) {
            prop_assert!(!escape(&text).contains(is_unsafe));
        }
    }

    #[test]
    fn long_rank_sets_keep_their_ends() {
        assert_eq!(ranks(&set("0-5,7"), 20), "0-5,7");
        let odd: RankSet = (0..2048).map(|i| 2 * i + 1).collect();
        assert_eq!(ranks(&odd, 20), "1,3,5,7,9,…,4095");
        assert!(ranks(&odd, 3).ends_with("…,4095"));
    }

    #[test]
    fn ranks_are_named_once() {
        assert_eq!(with_ranks(&set("1"), "exited with code 0", 40), "rank 1: exited with code 0");
        assert_eq!(with_ranks(&set("1"), "rank 1 exited", 40), "rank 1 exited");
        assert_eq!(with_ranks(&set("1"), "rank 12 exited", 40), "rank 1: rank 12 exited");
        assert_eq!(with_ranks(&set("0-1"), "ranks 0-1,3 wait", 40), "ranks 0-1: ranks 0-1,3 wait");
        assert_eq!(with_ranks(&set("0-1"), "of ranks 0-1, two", 40), "of ranks 0-1, two");
        assert_eq!(with_ranks(&RankSet::new(), "clock", 40), "clock");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(0.9999), "99 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.001), "under 1 %");
        assert_eq!(percent(f64::NAN), "0 %");
        assert_eq!(duration(999), "999 ms");
        assert_eq!(duration(1_860_000), "31 min");
        assert_eq!(duration(61_500), "1 min 1 s");
        assert_eq!(duration(7_500_000), "2 h 5 min");
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(counted(1_234_567, "call"), "1,234,567 calls");
    }

    #[test]
    fn cycles_close_and_stay_short() {
        assert_eq!(cycle(&[2, 0, 1], 8), "2 -> 0 -> 1 -> 2");
        let long: Vec<u32> = (0..100).collect();
        assert_eq!(cycle(&long, 3), "0 -> 1 -> 2 -> … -> 0");
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
    }
}
