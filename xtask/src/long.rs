//! Long runs: what repeats itself, with far more repetitions than CI can afford, far more random programs, and jobs far
//! larger. What came out is kept, also of the parts before one that failed.
//!
//! A test over the real binary takes part when its name contains `repeated`; it asks `rankdiff_tests::repetitions` how
//! often, and reports through `rankdiff_tests::report`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};

use crate::results::{self, Origin};
use crate::{bench, dist, fuzz, process};

/// How a line of a test's report begins.
const MARK: &str = "long-run: ";
/// How a line about a test that passed ends.
const PASSED: &str = " ... ok";

/// What the names of tests begin with that kill jobs and recorders.
const KILLS: &str = "kill::";
/// What a bench says of a goal that it missed.
const MISSED: &str = "MISSED";

/// How long the parts take.
#[derive(Debug)]
pub(crate) struct How {
    /// Repetitions of each test.
    pub(crate) repeat: u32,
    /// Seconds of fuzzing.
    pub(crate) fuzz_seconds: u64,
    /// Only these parts; all if none is named.
    pub(crate) only: Vec<String>,
    /// How the large jobs are made.
    pub(crate) bench: bench::How,
}

/// Random programs with each fault, and healthy ones.
const PROGRAMS: (u64, u64) = (1000, 10_000);

/// A part of the long runs.
struct Part {
    name: &'static str,
    /// Gives Markdown.
    run: fn(&Path, &How) -> Result<String>,
    /// Whether a goal that was missed is a failure. Where goals are times, the machine may have been busy.
    strict: bool,
}

const PARTS: &[Part] = &[
    Part { name: "kills", run: kills, strict: false },
    Part { name: "tests", run: tests, strict: false },
    Part { name: "writers", run: writers, strict: false },
    Part { name: "programs", run: programs, strict: true },
    Part { name: "fuzz", run: fuzzing, strict: false },
    Part { name: "grid", run: grid, strict: false },
];

/// Names of the parts, for the command line.
pub(crate) fn parts() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.name).collect()
}

/// Runs the parts one after the other and keeps what they gave, up to the first that failed.
pub(crate) fn run(root: &Path, how: &How) -> Result<()> {
    let origin = Origin::now(root)?;
    let start = Instant::now();
    let mut kept = String::new();
    let mut outcome = Ok(());
    for Part { name, run, strict } in PARTS {
        if !how.only.is_empty() && !how.only.iter().any(|only| only == name) {
            continue;
        }
        match run(root, how) {
            Ok(text) => {
                kept.push_str(text.trim_end());
                kept.push_str("\n\n");
                if *strict && text.contains(MISSED) {
                    outcome = Err(anyhow!("the part `{name}` missed a goal"));
                    break;
                }
            }
            Err(error) => {
                kept.push_str(&format!("- the part `{name}` FAILED; nothing after it was run\n"));
                outcome = Err(error.context(format!("the part `{name}` failed")));
                break;
            }
        }
    }
    if !kept.trim().is_empty() {
        let only: String = how.only.iter().map(|part| format!(" --only {part}")).collect();
        let command = format!("cargo xtask long --repeat {} --fuzz-seconds {}{only}", how.repeat, how.fuzz_seconds);
        results::add(root, &origin, &command, start.elapsed(), &kept)?;
    }
    outcome
}

/// The tests over the real binary that kill jobs and recorders.
fn kills(root: &Path, how: &How) -> Result<String> {
    suite(root, how, &[], &[KILLS])
}

/// All others over the real binary: days at hundreds of repetitions.
fn tests(root: &Path, how: &How) -> Result<String> {
    suite(root, how, &["--skip", KILLS], &["repeated"])
}

fn suite(root: &Path, how: &How, options: &[&str], names: &[&str]) -> Result<String> {
    ensure!(process::is_root(), "the long runs record with eBPF: run them as root");
    let binary = dist::binary(root);
    ensure!(binary.is_file(), "{} is missing: run cargo xtask dist", binary.display());
    let mut command = process::cargo(root);
    command
        .args(["test", "--locked", "--package", "rankdiff-tests", "--test", "suite", "--"])
        .args(["--nocapture", "--test-threads=1"])
        .args(options)
        .args(names)
        .env("RANKDIFF_BIN", &binary)
        .env("RANKDIFF_REQUIRE_PRIVILEGED", "1")
        .env("RANKDIFF_LONG", how.repeat.to_string());
    let reports = reports(&process::watched(&mut command)?);
    ensure!(!reports.is_empty(), "no test reported anything");
    Ok(reports)
}

/// The tests of the store that kill its writers; they need no recorder.
fn writers(root: &Path, how: &How) -> Result<String> {
    let mut command = process::cargo(root);
    command
        .args(["test", "--locked", "--package", "rankdiff-trace", "--all-features", "--test", "killed_writer"])
        .env("RANKDIFF_LONG", how.repeat.to_string());
    let printed = process::watched(&mut command)?;
    let passed = passed(&printed);
    ensure!(!passed.is_empty(), "no test passed");
    Ok(format!("- writers killed at {} random moments each: passed: {}\n", how.repeat, passed.join(", ")))
}

/// Answers on random programs, with a fault and without.
fn programs(root: &Path, how: &How) -> Result<String> {
    let how = bench::How { programs: Some(PROGRAMS), dir: how.bench.dir.clone(), ..bench::How::default() };
    bench::measure(root, &["diagnosis".to_owned()], &how)
}

fn fuzzing(root: &Path, how: &How) -> Result<String> {
    Ok(fuzz::for_all(root, how.fuzz_seconds)?.iter().map(|line| format!("- {line}\n")).collect())
}

/// The largest made-up jobs, healthy and with a change at every border of the store.
fn grid(root: &Path, how: &How) -> Result<String> {
    bench::measure(root, &["growth".to_owned()], &how.bench)
}

/// The reports as a list.
fn reports(printed: &str) -> String {
    // The test runner prints the test's name before the first of them, on the same line.
    printed.lines().filter_map(|line| line.split_once(MARK)).map(|(_, text)| format!("- {}\n", text.trim())).collect()
}

/// Names of the tests that passed.
fn passed(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(PASSED)).collect()
}

#[cfg(test)]
mod tests {
    use super::{passed, reports};

    #[test]
    fn reports_are_found_among_the_runners_lines() {
        let printed = "test suite::kill ... long-run: kill -9: 9 of 9\nok\nlong-run: mpi: 3 jobs\n";
        assert_eq!(reports(printed), "- kill -9: 9 of 9\n- mpi: 3 jobs\n");
    }

    #[test]
    fn a_test_counts_as_passed_when_it_is_said_so() {
        let printed =
            "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored, why\ntest result: ok. 1\n";
        assert_eq!(passed(printed), ["a"]);
    }
}
