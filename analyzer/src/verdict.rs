//! The decision list: which finding is the verdict, and which ones it explains.
//!
//! A divergence and the hang it causes are one finding. What waits, at the end of some chain, for ranks that another
//! finding is about, is explained by it and not told again.

use crate::align::Alignment;
use crate::checks::{Raw, Rule};
use crate::finding::{Class, Confidence, Coverage, Finding, Report, Severity};
use crate::unjoined::Unjoined;
use crate::window;
use crate::words::counted;

/// Findings that are kept, the verdict's first.
const MOST: usize = 64;

/// Puts findings in order and leaves out what others explain.
pub(crate) fn decide(alignment: &Alignment<'_>, mut raws: Vec<Raw>) -> Vec<Finding> {
    // Earlier beats later within one rule; a difference that nobody waits for never hides a failure.
    raws.sort_by_key(|raw| (order(raw), raw.at, raw.comm));
    let mut kept: Vec<Raw> = Vec::new();
    for raw in raws {
        if let Some(by) = kept.iter().position(|held| explains(alignment, held, &raw)) {
            if let Some(held) = kept.get_mut(by) {
                absorb(held, &raw);
            }
            continue;
        }
        kept.push(raw);
    }
    // Warnings stand behind errors, whatever the list says of their order.
    kept.sort_by_key(|raw| (std::cmp::Reverse(raw.finding.severity), order(raw), raw.at));
    kept.truncate(MOST);
    let with_window = |Raw { comm, mut finding, .. }: Raw| {
        finding.window = comm.map(|comm| window::around(alignment, comm, &finding)).unwrap_or_default();
        finding
    };
    kept.into_iter().map(with_window).collect()
}

/// Place in the decision list. A difference that leaves ranks waiting was there before they died of it.
fn order(raw: &Raw) -> (u8, bool) {
    let rank = match raw.rule {
        // What only the call sites say stands behind whatever is certain.
        _ if raw.finding.class == Class::LogicalMismatch => 8,
        Rule::Gone => 1,
        Rule::Differ if raw.open => 0,
        Rule::Differ => 2,
        Rule::Creation => 3,
        Rule::Cycle => 4,
        Rule::Message => 5,
        Rule::Wait => 6,
        Rule::Device => 7,
        Rule::Ended => 9,
        Rule::Note => 10,
    };
    (rank, !raw.open)
}

/// Whether `held` is why `raw` is there.
fn explains(alignment: &Alignment<'_>, held: &Raw, raw: &Raw) -> bool {
    if raw.rule == Rule::Note {
        return false;
    }
    if raw.rule == Rule::Ended {
        // Whatever was wrong with the job is a better reason for its end than none.
        return held.rule != Rule::Note;
    }
    if raw.finding.class == Class::LogicalMismatch {
        let began = held.finding.first_divergence.is_some_and(|first| Some(first) <= raw.finding.first_visible);
        return held.comm == raw.comm && began;
    }
    if held.rule == Rule::Differ && raw.rule == Rule::Differ {
        let later = raw.at >= held.at;
        let shared = !held.roots.intersection(&raw.roots).is_empty();
        let same_fault = held.finding.code == raw.finding.code
            && held.finding.first_visible == raw.finding.first_visible
            && held.finding.what == raw.finding.what;
        let other_group = held.comm != raw.comm;
        return other_group && later && shared && (held.open || same_fault);
    }
    if held.rule == Rule::Gone && raw.rule == Rule::Differ {
        // Calls made after a member died are part of how the others ended.
        return raw.open && raw.at >= held.at;
    }
    if held.rule == Rule::Differ && raw.rule == Rule::Gone {
        // Ranks that took part in the divergence and died of it.
        let took_part =
            raw.roots.is_subset(&held.roots.union(&held.finding.waiting).union(&held.finding.collateral_exits))
                || raw.roots.iter().all(|rank| took_part(alignment, held, rank));
        return held.open && took_part;
    }
    if !held.open {
        return false;
    }
    // Those who went wrong wait in calls that nobody else was to make.
    let waiters = &raw.finding.direct_victims;
    let alone = raw.rule == Rule::Wait && !waiters.is_empty() && waiters.is_subset(&held.roots);
    if alone && matches!(held.rule, Rule::Differ | Rule::Cycle | Rule::Creation) {
        return true;
    }
    let (direct, transitive) = alignment.waits.victims(&held.roots);
    let explained = held.roots.union(&direct).union(&transitive).union(&held.finding.waiting);
    !raw.roots.intersection(&explained).is_empty()
}

/// Whether a rank made a call at the place of the finding.
fn took_part(alignment: &Alignment<'_>, held: &Raw, rank: u32) -> bool {
    let (Some(comm), Some(pos)) = (held.comm, held.finding.first_visible) else { return false };
    alignment.tracks(comm).iter().any(|track| track.rank == rank && track.end() > pos)
}

fn absorb(held: &mut Raw, raw: &Raw) {
    if matches!(raw.rule, Rule::Gone | Rule::Ended) {
        let ended = raw.finding.failed.union(&raw.finding.collateral_exits).difference(&held.finding.failed);
        held.finding.collateral_exits = held.finding.collateral_exits.union(&ended);
    }
    let same = raw.finding.code == held.finding.code && raw.finding.what == held.finding.what;
    if raw.rule == Rule::Differ
        && same
        && let Some(group) = &raw.finding.group
    {
        let name = if group.name.is_empty() { group.identity.to_string() } else { group.name.clone() };
        let library = if group.library.is_empty() { String::new() } else { format!(" ({})", group.library) };
        held.finding.detail.push(format!("the same on {name}{library}"));
    }
}

/// How a summary begins that is neither a finding nor a clean bill.
pub(crate) const CANNOT_TELL: &str = "cannot tell";

/// The report of one attempt's findings.
pub(crate) fn report(alignment: &Alignment<'_>, findings: Vec<Finding>, coverage: Coverage) -> Report {
    let first = findings.first().filter(|finding| finding.severity > Severity::Note);
    let (class, confidence, summary) = match first {
        Some(finding) => {
            let on = finding.group.as_ref().map(|group| {
                let name = if group.name.is_empty() { group.identity.to_string() } else { group.name.clone() };
                format!(" on {name}")
            });
            let summary = format!("{} {}{}: {}", finding.code, finding.name, on.unwrap_or_default(), finding.headline);
            (finding.class, finding.confidence, summary)
        }
        None => {
            // Unequal digests are no proof (handles may differ and mean the same), but no agreement either.
            if let Some(text) = alignment.facts.and_then(|facts| facts.differs.as_ref()) {
                let summary = format!("{CANNOT_TELL}: {text}");
                return Report { class: Class::Clean, confidence: Confidence::Low, summary, findings, coverage };
            }
            let unjoined = Unjoined::of(alignment);
            let confidence = clean_confidence(&coverage, &unjoined);
            (Class::Clean, confidence, clean_summary(alignment, &coverage, &unjoined))
        }
    };
    Report { class, confidence, summary, findings, coverage }
}

/// More than a third of the calls on communicators that nobody can compare leaves an answer without a base.
const MOST_UNJOINED: f64 = 1.0 / 3.0;

fn clean_confidence(coverage: &Coverage, unjoined: &Unjoined) -> Confidence {
    let blind = 1.0 - unjoined.comparable_share() > MOST_UNJOINED;
    if coverage.calls == 0 || coverage.compared < 0.5 || blind {
        Confidence::Low
    } else if coverage.missing.is_empty()
        && coverage.gaps.is_empty()
        && coverage.problems.is_empty()
        && unjoined.calls == 0
        && coverage.compared >= 0.99
    {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

fn clean_summary(alignment: &Alignment<'_>, coverage: &Coverage, unjoined: &Unjoined) -> String {
    if coverage.calls == 0 {
        return "no collective calls were seen".to_owned();
    }
    let last = alignment
        .compared
        .iter()
        .zip(&alignment.comms.list)
        .enumerate()
        .filter(|(_, (compared, _))| compared.positions > 0)
        .filter_map(|(at, _)| alignment.tracks(at).iter().map(|track| track.end()).max())
        .collect::<Vec<u64>>();
    let groups = counted(last.len() as u64, "communicator");
    let share = (coverage.compared.clamp(0.0, 1.0) * 100.0).floor();
    let limits = unjoined.phrase();
    match (last.iter().max().and_then(|last| last.checked_sub(1)), limits) {
        (Some(last), None) => format!("no divergence up to call {last} ({groups}, coverage {share} %)"),
        (Some(last), Some(limits)) => {
            format!("no divergence up to call {last} ({groups}, coverage {share} %); {limits}")
        }
        (None, Some(limits)) if unjoined.comparable == 0 && alignment.messages.paired == 0 => {
            format!("nothing could be compared; {limits}")
        }
        (None, Some(limits)) => format!("no divergence in what could be compared; {limits}"),
        (None, None) => format!("no divergence in {}", counted(coverage.calls, "call")),
    }
}

/// The reports of several attempts as one: the latest first, earlier ones' findings behind it.
pub(crate) fn merge(mut reports: Vec<(u32, Report)>) -> Option<Report> {
    let several = reports.len() > 1;
    let mut rest = reports.split_off(reports.len().min(1));
    let (_, mut latest) = reports.pop()?;
    if !several {
        return Some(latest);
    }
    rest.retain(|(_, report)| report.coverage.calls > 0);
    latest.coverage.attempts += rest.len();
    for (number, report) in rest {
        for mut finding in report.findings {
            finding.headline = format!("in attempt {number}: {}", finding.headline);
            latest.findings.push(finding);
        }
        latest.coverage.problems.extend(report.coverage.problems);
    }
    latest.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if latest.class == Class::Clean
        && let Some(first) = latest.findings.first().filter(|finding| finding.severity > Severity::Note)
    {
        latest.class = first.class;
        latest.confidence = first.confidence;
        latest.summary = format!("{} {}: {}", first.code, first.name, first.headline);
    }
    Some(latest)
}
