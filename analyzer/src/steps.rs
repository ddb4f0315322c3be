//! Where a position lies among the job's steps: from step marks, else from the period of the stream before it.

use crate::finding::StepPosition;
use crate::index::Track;

/// Calls that are looked at to find the period.
const LOOK_BACK: usize = 4096;

/// The rhythm of a stream up to a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// First position of the first whole step.
    pub(crate) start: u64,
    /// Calls per step.
    pub(crate) period: u64,
}

impl Rhythm {
    /// The rhythm of the calls right before `pos`, if they repeat; `None` too where the repetition may have begun among
    /// calls that were not decoded.
    pub(crate) fn before(track: &Track<'_>, pos: u64) -> Option<Rhythm> {
        let end = track.entries.partition_point(|entry| entry.pos < pos);
        let seen = track.entries.get(end.saturating_sub(LOOK_BACK)..end)?;
        if seen.last().map(|entry| entry.pos + 1) != Some(pos) {
            return None;
        }
        let backward: Vec<(u32, u32, u32)> = seen.iter().rev().map(|entry| entry.meaning()).collect();
        let (length, period) = repeated_prefix(&backward)?;
        let mut length = length as u64;
        // The look back is bounded; the repetition may go on before it.
        while let Some(earlier) = pos.checked_sub(length + 1) {
            match (track.at(earlier), track.at(earlier + period as u64)) {
                (Some(one), Some(other)) if one.meaning() == other.meaning() => length += 1,
                _ => break,
            }
        }
        let start = pos - length;
        if start.checked_sub(1).is_some_and(|before| track.elides(before)) {
            return None;
        }
        Some(Rhythm { start, period: period as u64 })
    }

    /// Whether whole steps lie before the position.
    pub(crate) fn is_whole(self, pos: u64) -> bool {
        pos >= self.start && (pos - self.start).is_multiple_of(self.period)
    }

    /// Whole steps before the position.
    pub(crate) fn count(self, pos: u64) -> u64 {
        pos.saturating_sub(self.start) / self.period
    }
}

/// The longest prefix that repeats a shorter one at least twice: its length and the period.
fn repeated_prefix(word: &[(u32, u32, u32)]) -> Option<(usize, usize)> {
    let mut borders = vec![0_usize; word.len()];
    let mut border = 0;
    for index in 1..word.len() {
        while border > 0 && word[index] != word[border] {
            border = borders[border - 1];
        }
        if word[index] == word[border] {
            border += 1;
        }
        borders[index] = border;
    }
    (1..=word.len()).rev().find_map(|length| {
        let period = length - borders[length - 1];
        (period * 2 <= length).then_some((length, period))
    })
}

/// The step of a position.
pub(crate) fn position(track: &Track<'_>, pos: u64) -> Option<StepPosition> {
    if let Some(marked) = from_marks(track, pos) {
        return Some(marked);
    }
    let rhythm = Rhythm::before(track, pos).filter(|rhythm| rhythm.period > 1)?;
    Some(StepPosition { number: rhythm.count(pos), call: (pos - rhythm.start) % rhythm.period, period: rhythm.period })
}

fn from_marks(track: &Track<'_>, pos: u64) -> Option<StepPosition> {
    let number = track.at(pos)?.step?;
    // Calls of the step, or of the one before, that were not decoded would be missing from the count.
    let from = track.known_from(pos);
    let begins = from.checked_sub(1).is_some_and(|before| track.elides(before));
    if begins && track.at(from).and_then(|entry| entry.step).is_none_or(|step| step + 1 >= number) {
        return None;
    }
    let of_step = |step: u64| track.entries.iter().filter(move |entry| entry.step == Some(step));
    let call = of_step(number).filter(|entry| entry.pos < pos).count() as u64;
    let whole = number.checked_sub(1).map(|previous| of_step(previous).count() as u64).unwrap_or(0);
    let period = if whole > 0 { whole } else { of_step(number).count() as u64 };
    Some(StepPosition { number, call, period: period.max(1) })
}

#[cfg(test)]
mod tests {
    use super::repeated_prefix;

    fn word(text: &str) -> Vec<(u32, u32, u32)> {
        text.bytes().map(|byte| (u32::from(byte), 0, 0)).collect()
    }

    #[test]
    fn periods_are_found_behind_a_different_beginning() {
        assert_eq!(repeated_prefix(&word("abcdabcdabcdxyz")), Some((12, 4)));
        assert_eq!(repeated_prefix(&word("abab")), Some((4, 2)));
        assert_eq!(repeated_prefix(&word("aaaa")), Some((4, 1)));
        assert_eq!(repeated_prefix(&word("abc")), None);
        assert_eq!(repeated_prefix(&word("")), None);
    }
}
