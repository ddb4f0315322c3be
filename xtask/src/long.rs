//! Long runs: the tests that repeat themselves, with many more repetitions than CI can afford. What they report is kept.
//!
//! A test takes part when its name contains `repeated`; it asks `rankdiff_tests::repetitions` how often, and reports
//! through `rankdiff_tests::report`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::results::{self, Origin};
use crate::{dist, process};

/// How a line of a test's report begins.
const MARK: &str = "long-run: ";

/// Runs the tests and keeps what they reported.
pub(crate) fn run(root: &Path, repeat: u32) -> Result<()> {
    ensure!(process::is_root(), "the long runs record with eBPF: run them as root");
    let binary = dist::binary(root);
    ensure!(binary.is_file(), "{} is missing: run cargo xtask dist", binary.display());
    let origin = Origin::now(root)?;
    let mut command = process::cargo(root);
    command
        .args(["test", "--locked", "--package", "rankdiff-tests", "repeated", "--", "--nocapture", "--test-threads=1"])
        .env("RANKDIFF_BIN", &binary)
        .env("RANKDIFF_REQUIRE_PRIVILEGED", "1")
        .env("RANKDIFF_LONG", repeat.to_string());
    let start = Instant::now();
    let printed = process::watched(&mut command)?;
    let reports = reports(&printed);
    ensure!(!reports.is_empty(), "no test reported anything; nothing was added to {}", results::PAGE);
    results::add(root, &origin, &format!("cargo xtask long --repeat {repeat}"), start.elapsed(), &reports)
}

/// The reports as a list.
fn reports(printed: &str) -> String {
    // The test runner prints the test's name before the first of them, on the same line.
    printed.lines().filter_map(|line| line.split_once(MARK)).map(|(_, text)| format!("- {}\n", text.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::reports;

    #[test]
    fn reports_are_found_among_the_runners_lines() {
        let printed = "test suite::kill ... long-run: kill -9: 9 of 9\nok\nlong-run: mpi: 3 jobs\n";
        assert_eq!(reports(printed), "- kill -9: 9 of 9\n- mpi: 3 jobs\n");
    }
}
