//! Random programs: healthy ones give nothing, and with one fault the right answer.
//!
//! `RANKDIFF_TEST_SEED` repeats a run, `RANKDIFF_LONG` multiplies it; both are printed.

mod faults;
mod healthy;
mod program;

use std::time::{SystemTime, UNIX_EPOCH};

use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;

/// The seed of this run.
#[expect(clippy::print_stderr, reason = "a failed test must be repeatable")]
fn seed(test: &str) -> u64 {
    let seed = match std::env::var("RANKDIFF_TEST_SEED") {
        Ok(text) => text.parse().expect("RANKDIFF_TEST_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
    };
    eprintln!("{test}: RANKDIFF_TEST_SEED={seed}");
    seed
}

/// How often a test repeats: as many as in every run, or as `RANKDIFF_PROGRAMS` says.
fn times(usual: u64) -> u64 {
    std::env::var("RANKDIFF_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The report on a document.
fn report(document: &str) -> Report {
    let scenarios = parse("random.yaml", document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    let scenario = scenarios.first().expect("one document");
    analyze(to_traces(scenario).unwrap_or_else(|error| panic!("{error}\n{document}")), &Options::default())
}
