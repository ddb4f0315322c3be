//! Choices that differ from run to run and can be repeated: every test prints its seed, and `RANKDIFF_TEST_SEED` sets it.

use std::env;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A new source; its seed is printed, and shown where the test fails.
    ///
    /// # Panics
    /// If `RANKDIFF_TEST_SEED` is no number.
    #[expect(clippy::print_stderr, reason = "a failed test must be repeatable")]
    pub fn new(test: &str) -> Random {
        let seed = match env::var("RANKDIFF_TEST_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("RANKDIFF_TEST_SEED is no number: {text}")),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
        };
        eprintln!("{test}: RANKDIFF_TEST_SEED={seed}");
        Random(seed)
    }

    /// A number within a range.
    pub fn within(&mut self, range: Range<u32>) -> u32 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let span = u64::from(range.end.saturating_sub(range.start).max(1));
        range.start + ((x ^ (x >> 31)) % span) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_stay_within_their_range_and_reach_all_of_it() {
        let mut random = Random(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[random.within(3..7) as usize - 3] = true;
        }
        assert_eq!(seen, [true; 4]);
    }
}
