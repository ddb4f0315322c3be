//! The checks: what may be wrong with a job, one file each.
//!
//! A check reads an alignment and writes findings; it knows no input format, no library and no other check. Which finding
//! becomes the verdict is decided in `verdict`. A new check is one file here and one line in [`CHECKS`].

use rankdiff_trace::RankSet;

use crate::align::Alignment;
use crate::finding::{Class, Confidence, Finding, Severity};

mod count_mismatch;
mod crossed_communicators;
pub(crate) mod cycles;
mod device_stall;
mod driver_stall;
mod dropped_messages;
mod dtype_mismatch;
mod extra_call;
mod form_mismatch;
mod graph_capture;
mod group_creation;
mod group_order;
mod host_stall;
mod late_arrival;
mod lates;
mod launcher_end;
mod logical_mismatch;
mod lost_events;
mod missing_call;
mod op_mismatch;
mod p2p_deadlock;
mod p2p_mismatch;
mod rank_failed;
mod redop_mismatch;
mod reordered_calls;
mod report;
mod root_mismatch;
mod splits_mismatch;
mod straggler;
mod unbuffered_sends;
mod uneven_inputs;
mod unexplained_wait;

/// What a check is.
#[derive(Debug)]
pub struct Meta {
    /// Code, never reused: a letter for the family (D divergence, H hang, P point-to-point, F failure, S lateness,
    /// W potential fault, Q trace quality) and three digits.
    pub code: &'static str,
    /// Name in kebab-case; reads well after 'allow'.
    pub name: &'static str,
    /// Severity of its findings unless they say otherwise.
    pub severity: Severity,
    /// Cause that it finds.
    pub class: Class,
    /// One line.
    pub summary: &'static str,
    /// What it finds, why that hangs or corrupts, an example, how to fix it; Markdown.
    pub doc: &'static str,
}

/// A check.
#[derive(Debug)]
pub struct Check {
    /// What it is.
    pub meta: &'static Meta,
    run: fn(&Alignment<'_>, &mut Vec<Raw>),
}

/// Every check, in the order of the decision list.
pub static CHECKS: &[Check] = &[
    rank_failed::CHECK,
    uneven_inputs::CHECK,
    op_mismatch::CHECK,
    missing_call::CHECK,
    extra_call::CHECK,
    form_mismatch::CHECK,
    count_mismatch::CHECK,
    dtype_mismatch::CHECK,
    redop_mismatch::CHECK,
    root_mismatch::CHECK,
    splits_mismatch::CHECK,
    reordered_calls::CHECK,
    logical_mismatch::CHECK,
    crossed_communicators::CHECK,
    p2p_deadlock::CHECK,
    group_creation::CHECK,
    p2p_mismatch::CHECK,
    driver_stall::CHECK,
    straggler::CHECK,
    host_stall::CHECK,
    unexplained_wait::CHECK,
    device_stall::CHECK,
    unbuffered_sends::CHECK,
    group_order::CHECK,
    late_arrival::CHECK,
    lost_events::CHECK,
    graph_capture::CHECK,
];

/// The check with this code or name, in either case.
pub fn find(code: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.meta.code.eq_ignore_ascii_case(code) || check.meta.name.eq_ignore_ascii_case(code))
}

/// The documentation of the check with this code or name, as Markdown.
pub fn explain(code: &str) -> Option<String> {
    let meta = find(code)?.meta;
    Some(format!(
        "# {} {}\n\n{}\n\nSeverity: {}. Class: {}.\n\n{}\n",
        meta.code,
        meta.name,
        meta.summary,
        meta.severity.name(),
        meta.class.name(),
        meta.doc.trim()
    ))
}

/// Which part of the decision list a finding comes from: the first that fires is the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A member died or left first.
    Gone,
    /// The members' calls differ.
    Differ,
    /// Ranks wait for one another in a circle.
    Cycle,
    /// A communicator's creation.
    Creation,
    /// Messages that do not fit.
    Message,
    /// Ranks wait for one that is alive and waits for nobody.
    Wait,
    /// All entered and nothing completes.
    Device,
    /// Ranks were ended, and only the end itself is known.
    Ended,
    /// Nothing is waiting, or it is only a potential fault.
    Note,
}

/// A finding with what the verdict needs to know of it.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) finding: Finding,
    pub(crate) rule: Rule,
    /// When it began, on the job's clock.
    pub(crate) at: i64,
    /// Ranks where it lies: what waits for these is explained by it.
    pub(crate) roots: RankSet,
    /// Whether somebody may be left waiting by it.
    pub(crate) open: bool,
    pub(crate) comm: Option<usize>,
}

/// Runs the selected checks.
pub(crate) fn run(alignment: &Alignment<'_>) -> Vec<Raw> {
    let mut found = Vec::new();
    for check in CHECKS.iter().filter(|check| alignment.options.runs(check.meta.code)) {
        (check.run)(alignment, &mut found);
    }
    found
}

/// A finding of a check with nothing in it yet.
pub(crate) fn blank(meta: &Meta) -> Finding {
    Finding {
        code: meta.code,
        name: meta.name,
        severity: meta.severity,
        class: meta.class,
        what: None,
        group: None,
        first_divergence: None,
        first_visible: None,
        step: None,
        sides: Vec::new(),
        window: Vec::new(),
        suspects: RankSet::new(),
        waiting: RankSet::new(),
        direct_victims: RankSet::new(),
        transitive_victims: RankSet::new(),
        cycle: Vec::new(),
        stalled: RankSet::new(),
        late: RankSet::new(),
        late_ms: None,
        failed: RankSet::new(),
        missing_callers: RankSet::new(),
        collateral_exits: RankSet::new(),
        evidence: Vec::new(),
        common: Vec::new(),
        confidence: Confidence::High,
        headline: String::new(),
        detail: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CHECKS, explain};

    #[test]
    fn codes_and_names_are_unique_and_documented() {
        let codes: BTreeSet<&str> = CHECKS.iter().map(|check| check.meta.code).collect();
        let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.meta.name).collect();
        assert_eq!(codes.len(), CHECKS.len());
        assert_eq!(names.len(), CHECKS.len());
        for check in CHECKS {
            let meta = check.meta;
            let family = meta.code.chars().next().expect("a letter");
            assert!("DHPFSWQ".contains(family), "{}", meta.code);
            assert!(meta.code.len() == 4 && meta.code.chars().skip(1).all(|c| c.is_ascii_digit()), "{}", meta.code);
            assert!(
                meta.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{}",
                meta.name
            );
            for heading in ["## What", "## Why", "## Example", "## How to fix"] {
                assert!(meta.doc.contains(heading), "{} lacks '{heading}'", meta.code);
            }
            assert!(!meta.summary.ends_with('.'), "{}", meta.code);
        }
    }

    #[test]
    fn checks_explain_themselves_by_code_or_name() {
        assert!(explain("d001").expect("known").contains("op-mismatch"));
        assert!(explain("op-mismatch").expect("known").contains("D001"));
        assert_eq!(explain("D999"), None);
    }
}
