//! A report against the truth.

use rankdiff_analyzer::Report;
use rankdiff_analyzer::finding::{Finding, Severity};

use super::Case;
use super::truth::Truth;

/// How a report fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong with it; empty: it is right.
    pub wrong: Vec<String>,
    /// It suspects a rank that did nothing wrong, or says something where nothing observable has changed.
    pub innocent: bool,
    /// What it says: each finding in a line.
    pub told: Vec<String>,
}

impl Verdict {
    /// Whether there is nothing to complain about.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty() && !self.innocent
    }
}

/// Compares a report with the truth that it fits best.
pub fn judge(report: &Report, case: &Case) -> Verdict {
    let loud: Vec<&Finding> = report.findings.iter().filter(|finding| finding.severity >= Severity::Warning).collect();
    let told = |finding: &&Finding| {
        let group = finding.group.as_ref().map(|group| group.name.clone()).unwrap_or_default();
        format!("{} on '{group}', suspects '{}': {}", finding.code, finding.suspects, finding.headline)
    };
    let told = loud.iter().map(told).collect();
    if case.truths.is_empty() {
        return Verdict { wrong: Vec::new(), innocent: !loud.is_empty(), told };
    }
    let innocent = loud.iter().any(|finding| finding.suspects.iter().any(|rank| !case.guilty.contains(&rank)));
    let complaints = case.truths.iter().map(|truth| complaints(report, truth));
    let wrong = complaints.min_by_key(Vec::len).unwrap_or_default();
    Verdict { wrong, innocent, told }
}

fn complaints(report: &Report, truth: &Truth) -> Vec<String> {
    let Some(finding) = report.findings.first().filter(|finding| finding.severity >= Severity::Warning) else {
        return vec!["nothing found".to_owned(); 9];
    };
    let mut wrong = Vec::new();
    if report.class.name() != truth.class {
        wrong.push(format!("class {}", report.class.name()));
    }
    if truth.what.is_some() && finding.what != truth.what {
        wrong.push(format!("what {:?}", finding.what));
    }
    if let Some(text) = misplaced(finding, truth) {
        wrong.push(text);
    }
    if finding.suspects != truth.suspects && !(truth.or_none && finding.suspects.is_empty()) {
        wrong.push(format!("suspects '{}'", finding.suspects));
    }
    if truth.cycle.is_some_and(|rank| !finding.cycle.contains(&rank)) {
        wrong.push(format!("cycle {:?}", finding.cycle));
    }
    if !truth.says.is_empty() {
        let said = std::iter::once(&finding.headline).chain(&finding.detail);
        let said = said.chain(finding.evidence.iter().map(|fact| &fact.text));
        if !said.map(|text| text.to_lowercase()).any(|text| text.contains(truth.says)) {
            wrong.push(format!("does not say '{}'", truth.says));
        }
    }
    wrong
}

/// What is wrong with the place that a finding names.
fn misplaced(finding: &Finding, truth: &Truth) -> Option<String> {
    if truth.places.is_empty() {
        return None;
    }
    let name = finding.group.as_ref().map(|group| group.name.clone()).unwrap_or_default();
    let named = name.split(' ').next().unwrap_or_default();
    let Some(place) = truth.places.iter().find(|place| place.group == named) else {
        return Some(format!("group '{name}'"));
    };
    if place.first.is_empty() {
        return None;
    }
    // Where the streams are alike up to a wait, the wait is the place.
    let told = finding.first_divergence.or(finding.first_visible.filter(|_| truth.class != "code_divergence"));
    match told {
        Some(first) if place.first.contains(&first) => None,
        // A place that cannot be told may be left open, never guessed.
        None if place.first.len() > 1 => None,
        _ => Some(format!("first {:?}, visible {:?}", finding.first_divergence, finding.first_visible)),
    }
}
