//! Healthy programs: nothing at warning level or above, class clean, exit code 0.
//!
//! `RANKDIFF_ONLY=NUMBER` with `RANKDIFF_TEST_SEED` repeats one of them.

use std::time::Instant;

use fastrand::Rng;
use rankdiff_programs::files::{Scratch, by_digests, decoded, write};
use rankdiff_programs::healthy::{Job, alarms, job};
use rankdiff_programs::{seed, times};

/// Most calls of all ranks of a program: where so many programs are to run in a minute, and where time does not matter.
const MOST: (u64, u64) = (20_000, 1_500_000);
/// One in so many goes through files.
const THROUGH_FILES: u64 = 200;

#[test]
fn healthy_programs_are_clean() {
    let seed = seed();
    eprintln!("RANKDIFF_TEST_SEED={seed}");
    let only: Option<u64> = std::env::var("RANKDIFF_ONLY").ok().and_then(|text| text.parse().ok());
    let usual = times(0) == 0;
    let most = if usual { MOST.0 } else { MOST.1 };
    let programs = times(500);
    let (mut calls, mut false_alarms, begun) = (0, Vec::new(), Instant::now());
    for number in (0..programs).filter(|number| only.is_none_or(|only| only == *number)) {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let job = job(&mut rng, &format!("R{number}"), most);
        calls += job.calls;
        let mut found = alarms(&job.report(), job.whole);
        if number % THROUGH_FILES == 1 {
            found.extend(through_files(&job, number));
        }
        if !found.is_empty() || only.is_some() {
            let kept = std::env::temp_dir().join(format!("rankdiff-healthy-{seed}-{number}.yaml"));
            std::fs::write(&kept, job.kept()).expect("the temporary directory takes it");
            eprintln!("{}: {found:?}", kept.display());
            if !found.is_empty() {
                false_alarms.push(format!("{}: {found:?}", kept.display()));
            }
        }
    }
    eprintln!("{programs} programs, {calls} calls, {:.0} s", begun.elapsed().as_secs_f64());
    assert!(false_alarms.is_empty(), "{} false alarms:\n{}", false_alarms.len(), false_alarms.join("\n"));
}

/// What is said of the job when it was written and read back, in both modes of decoding.
fn through_files(job: &Job, number: u64) -> Vec<String> {
    let scratch = Scratch::new(&format!("healthy-{number}"));
    write(&job.traces(), scratch.path());
    let mut found = alarms(&decoded(scratch.path()), job.whole);
    for calls in [None, Some(0)] {
        // The scenario has no vectors of these forms: digests cannot prove what is not compared otherwise either.
        let is_proven = job.whole && calls.is_none() && !job.document.contains("er_v ");
        found.extend(alarms(&by_digests(scratch.path(), calls), is_proven));
    }
    found
}
