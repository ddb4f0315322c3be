//! A table of how faults fared.

use std::fmt::Write as _;

use fastrand::Rng;

use super::judge::{Verdict, judge};
use super::{Case, FAULTS, Fault, case};
use crate::report;

/// One fault's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Programs with it that ranks executed differently for it.
    pub tried: u64,
    /// Right verdicts among these.
    pub right: u64,
    /// Lower end of the 95 % interval of the share of right verdicts (Wilson).
    pub lower_bound: f64,
    /// Programs where an innocent rank was suspected, whether anything changed or not.
    pub innocent: u64,
    /// Programs in which the fault changed nothing that could be observed.
    pub unobservable: u64,
}

/// Lower end of Wilson's 95 % interval.
pub fn lower_bound(right: u64, tried: u64) -> f64 {
    if tried == 0 {
        return 0.0;
    }
    let (n, p, z) = (tried as f64, right as f64 / tried as f64, 1.959_964);
    let centre = p + z * z / (2.0 * n);
    let spread = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + z * z / n)).max(0.0)
}

/// So many programs of every fault.
pub fn measure(seed: u64, programs_per_fault: u64) -> Vec<Row> {
    measure_each(seed, programs_per_fault, &FAULTS, |_, _, _, _| {})
}

/// So many programs of each of these faults; what did not get its right answer is handed on with its number.
pub fn measure_each(
    seed: u64,
    programs_per_fault: u64,
    faults: &[Fault],
    mut wrong: impl FnMut(Fault, u64, &Case, &Verdict),
) -> Vec<Row> {
    let mut rows = Vec::new();
    for &fault in faults {
        let mut row = Row { fault, tried: 0, right: 0, lower_bound: 0.0, innocent: 0, unobservable: 0 };
        let mut number = 0;
        // Some faults mostly change nothing; if one never does, that shall end too.
        while row.tried < programs_per_fault && row.unobservable < 10 * programs_per_fault {
            let case = numbered(seed, fault, number);
            let verdict = judge(&report(&case.document), &case);
            row.innocent += u64::from(verdict.innocent);
            if case.truths.is_empty() {
                row.unobservable += 1;
            } else {
                row.tried += 1;
                row.right += u64::from(verdict.wrong.is_empty());
            }
            if !verdict.is_right() {
                wrong(fault, number, &case, &verdict);
            }
            number += 1;
        }
        row.lower_bound = lower_bound(row.right, row.tried);
        rows.push(row);
    }
    rows
}

/// The case of this number: of one seed always the same.
fn numbered(seed: u64, fault: Fault, number: u64) -> Case {
    let mut rng = Rng::with_seed(seed ^ (number * 64 + fault as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    case(&mut rng, fault, &format!("{fault:?}-{number}"))
}

/// The rows as a table in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| fault | programs | right | share | at least (95 %) | wrong suspect | nothing observable |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let share = row.right as f64 * 100.0 / row.tried.max(1) as f64;
        let _ = writeln!(
            text,
            "| {:?} | {} | {} | {share:.1} % | {:.1} % | {} | {} |",
            row.fault,
            row.tried,
            row.right,
            row.lower_bound * 100.0,
            row.innocent,
            row.unobservable
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::lower_bound;

    #[test]
    fn the_bound_is_wilsons() {
        assert!((lower_bound(300, 300) - 0.98736).abs() < 1e-4);
        assert!((lower_bound(297, 300) - 0.97098).abs() < 1e-4);
        assert!(lower_bound(0, 0).abs() < 1e-9);
    }
}
