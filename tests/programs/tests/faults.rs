//! One injected fault a program.

use rankdiff_programs::faults::{FAULTS, Fault, Row, measure_each, table};
use rankdiff_programs::{seed, times};

/// Programs of each fault.
const USUAL: u64 = 20;

#[test]
fn every_fault_gets_its_right_answer() {
    let seed = seed();
    eprintln!("RANKDIFF_TEST_SEED={seed}");
    let only = std::env::var("RANKDIFF_FAULT").ok();
    let faults: Vec<Fault> = FAULTS
        .into_iter()
        .filter(|fault| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == fault.name())))
        .collect();
    let mut failures = Vec::new();
    let rows = measure_each(seed, times(USUAL), &faults, |fault, number, case, verdict| {
        let kept = std::env::temp_dir().join(format!("rankdiff-fault-{seed}-{fault:?}-{number}.yaml"));
        std::fs::write(&kept, &case.document).expect("the temporary directory takes it");
        let innocent = if verdict.innocent { " INNOCENT" } else { "" };
        let (wrong, told) = (&verdict.wrong, &verdict.told);
        let failure = format!("{}{innocent}: {wrong:?}; told: {told:?}; right: {:?}", kept.display(), case.truths);
        // Also where few enough are wrong: which ones is what to look at next.
        eprintln!("{failure}");
        failures.push(failure);
    });
    eprintln!("{}", table(&rows));
    // Few programs bring a few wrong verdicts by chance; many must not. The worst fault is wrong in 3 of 100.
    let most = |row: &Row| 4 + row.tried / 20;
    let bad = |row: &&Row| row.innocent > 0 || row.tried - row.right > most(row);
    let bad: Vec<&Row> = rows.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:#?}\n{}", failures.join("\n"));
    let (tried, right) = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.tried, sum.1 + row.right));
    assert!(only.is_some() || right * 100 >= tried * 98, "{right} of {tried}:\n{}", failures.join("\n"));
    assert!(rows.iter().all(|row| row.tried > 0), "a fault was never tried");
}
