//! From a report to an exit code (docs/report.md lists the codes).
//!
//! Usage errors and unreadable input (2) never get as far as a report.

use crate::finding::{Class, Confidence, Report, Severity};

/// What makes a run fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitPolicy {
    /// The least grave finding that fails a run; `None`: nothing does.
    pub fail_on: Option<Severity>,
    /// Whether an answer that could not be given fails too.
    pub strict: bool,
}

impl Default for ExitPolicy {
    fn default() -> ExitPolicy {
        ExitPolicy { fail_on: Some(Severity::Error), strict: false }
    }
}

impl ExitPolicy {
    /// 1 with a finding at or above `fail_on`; else 3 where `strict` and inconclusive; else 0.
    pub fn code(&self, report: &Report) -> u8 {
        let fails = |severity| self.fail_on.is_some_and(|limit| severity >= limit);
        if report.findings.iter().any(|finding| fails(finding.severity)) {
            1
        } else if self.strict && is_inconclusive(report) {
            3
        } else {
            0
        }
    }
}

/// Something waits and the cause is unknown, or nothing was found where too little was seen to say so.
fn is_inconclusive(report: &Report) -> bool {
    match report.class {
        Class::Unknown => true,
        Class::Clean => report.confidence == Confidence::Low,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::ExitPolicy;
    use crate::finding::{Class, Confidence, Coverage, Finding, Report, Severity};
    use rankdiff_trace::RankSet;

    fn report(class: Class, confidence: Confidence, severity: Option<Severity>) -> Report {
        let findings = severity.into_iter().map(|severity| Finding {
            code: "X001",
            name: "made-up",
            severity,
            class,
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
            confidence,
            headline: String::new(),
            detail: Vec::new(),
        });
        Report {
            class,
            confidence,
            summary: String::new(),
            findings: findings.collect(),
            coverage: Coverage::default(),
        }
    }

    #[test]
    fn findings_fail_at_the_limit() {
        let warning = report(Class::Straggler, Confidence::High, Some(Severity::Warning));
        let error = report(Class::CodeDivergence, Confidence::High, Some(Severity::Error));
        let policy = ExitPolicy::default();
        assert_eq!((policy.code(&warning), policy.code(&error)), (0, 1));
        let eager = ExitPolicy { fail_on: Some(Severity::Warning), strict: false };
        assert_eq!((eager.code(&warning), eager.code(&error)), (1, 1));
        let never = ExitPolicy { fail_on: None, strict: true };
        assert_eq!((never.code(&warning), never.code(&error)), (0, 0));
    }

    #[test]
    fn only_strict_minds_an_inconclusive_answer() {
        let unknown = report(Class::Unknown, Confidence::Low, Some(Severity::Warning));
        let blind = report(Class::Clean, Confidence::Low, None);
        let clean = report(Class::Clean, Confidence::Medium, None);
        let strict = ExitPolicy { strict: true, ..ExitPolicy::default() };
        assert_eq!((strict.code(&unknown), strict.code(&blind), strict.code(&clean)), (3, 3, 0));
        let lax = ExitPolicy::default();
        assert_eq!((lax.code(&unknown), lax.code(&blind), lax.code(&clean)), (0, 0, 0));
    }
}
