//! Whether calls fit into memory, before they are decoded: a block of equal calls takes a few bytes in a file, so a small
//! file may say that it holds billions.
//!
//! Not here: limits of control groups; what they allow is known to whoever set them.

use std::fs;

use rankdiff_trace::Call;

use crate::failure::{Failure, USAGE};
use crate::units::bytes;

/// Refuses so many calls at once if they would take more than half of the memory that is free: a vector that grows
/// holds its old place and its new one.
pub(crate) fn check(calls: u64) -> Result<(), Failure> {
    free().map_or(Ok(()), |free| fits(calls, free))
}

fn fits(calls: u64, free: u64) -> Result<(), Failure> {
    let needed = calls.saturating_mul(size_of::<Call>() as u64);
    if needed <= free / 2 {
        return Ok(());
    }
    Err(Failure::message(
        USAGE,
        format_args!(
            "the trace says that it holds {calls} calls, which take {} of memory once decoded; {} are free. `analyze \
             --decode digests` and `show --info` work without decoding them; a single file of the trace can be named in \
             place of its directory",
            bytes(needed),
            bytes(free)
        ),
    ))
}

/// Bytes of memory that can be had without swapping; `None` where the system does not say.
fn free() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::Call;

    use super::{fits, free};

    #[test]
    fn more_than_half_of_what_is_free_is_refused() {
        let one = size_of::<Call>() as u64;
        assert!(fits(10, 20 * one).is_ok());
        let refused = fits(11, 20 * one).expect_err("too many").error().to_string();
        assert!(refused.contains("11 calls") && refused.contains("--decode digests"), "{refused}");
        assert!(fits(u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn linux_says_what_is_free() {
        if cfg!(target_os = "linux") {
            assert!(free() > Some(0));
        }
    }
}
