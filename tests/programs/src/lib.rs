//! Random programs with known answers: healthy ones, of which the analyzer says nothing, and with one fault, of which it
//! names the class, the communicator, the first divergence and the suspects.
//!
//! `RANKDIFF_TEST_SEED` repeats a run, `RANKDIFF_PROGRAMS` says how many programs it makes.

pub mod faults;
pub mod files;
pub mod healthy;
pub mod lens;
pub mod pipeline;
pub mod program;
pub mod random;
pub mod shape;
mod text;
pub mod timeline;
pub mod variants;

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;

/// The seed of this run: a fresh one, or the one that is to be repeated.
///
/// # Panics
/// If `RANKDIFF_TEST_SEED` is not a number.
pub fn seed() -> u64 {
    match env::var("RANKDIFF_TEST_SEED") {
        Ok(text) => text.parse().expect("RANKDIFF_TEST_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
    }
}

/// How many programs: as many as usual, or as `RANKDIFF_PROGRAMS` says.
pub fn times(usual: u64) -> u64 {
    env::var("RANKDIFF_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The analyzer's report on a document.
///
/// # Panics
/// If the document is none of a scenario: it was made here.
pub fn report(document: &str) -> Report {
    let scenarios = parse("random.yaml", document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    let scenario = scenarios.first().expect("one document");
    analyze(to_traces(scenario).unwrap_or_else(|error| panic!("{error}\n{document}")), &Options::default())
}
