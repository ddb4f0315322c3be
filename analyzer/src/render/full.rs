//! The report for people: the first line says what happened, the first screen why one may believe it.
//!
//! Reading order: headline, sides, place, detail, roles (suspect, waiting, …), evidence, what the minority shares, other
//! findings, what was seen and what was not. Without `--verbose` it is cut to one screen, and says so where it is cut.

use std::io::{self, Write};

use rankdiff_trace::RankSet;

use super::screen::{Item, Line, Section, Tone, fit, write};
use super::sides;
use super::text;
use super::window;
use super::{Render, RenderOptions};
use crate::finding::{Class, Confidence, Coverage, Evidence, Finding, GroupRef, Report, Severity};
use crate::verdict::CANNOT_TELL;

/// Lines of the smallest usual terminal, less one for the prompt.
const SCREEN: usize = 23;
/// Characters of one headline, detail or fact, and lines they may take, unless verbose.
const LONGEST: usize = 400;
const TALLEST: usize = 4;
/// Lines that each of the other findings may take.
const ALSO_TALLEST: usize = 2;
const NARROWEST: usize = 40;
const INDENT: usize = 2;
/// Ranks of a cycle that are printed unless verbose.
const CYCLE: usize = 16;

/// Text for people.
#[derive(Debug)]
pub(super) struct Full;

impl Render for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn summary(&self) -> &'static str {
        "for people: what happened, on which ranks, where, and why to believe it"
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    fn render(&self, report: &Report, options: &RenderOptions, out: &mut dyn Write) -> io::Result<()> {
        let options = RenderOptions { width: options.width.max(NARROWEST), ..options.clone() };
        let layout = Layout { options: &options };
        let (mut sections, others) = match report.findings.split_first() {
            Some((first, others)) if report.class != Class::Clean => (layout.finding(first), others),
            _ => (vec![Section::fixed(vec![layout.clean(report)])], report.findings.as_slice()),
        };
        if options.verbose {
            for other in others {
                sections.push(Section::fixed(vec![vec![Line::default()]]));
                sections.extend(layout.finding(other));
            }
            sections.push(Section::fixed(vec![vec![Line::default()]]));
        } else {
            let also = others.iter().map(|other| layout.also(other)).collect();
            sections.push(Section::sheddable(also, 1, 3, "finding"));
        }
        sections.push(Section::fixed(vec![layout.seen(report)]));
        sections.push(Section::sheddable(layout.unseen(&report.coverage), 1, 4, "limit"));
        if !options.verbose {
            fit(&mut sections, SCREEN);
        }
        write(&sections, INDENT, "--verbose", options.color, out)
    }
}

/// Builds the parts of a report for one set of options.
struct Layout<'a> {
    options: &'a RenderOptions,
}

impl Layout<'_> {
    fn finding(&self, finding: &Finding) -> Vec<Section> {
        let header = self.wrap(self.headline(finding, Line::default()), TALLEST);
        let (before, behind) = window::items(finding, self.options);
        vec![
            Section::fixed(vec![header]),
            Section::sheddable(before, 0, 6, "earlier call"),
            Section::sheddable(sides::items(finding, self.options), 3, 1, "side"),
            Section::sheddable(behind, 0, 6, "later call"),
            Section::fixed(self.place(finding).into_iter().collect()),
            Section::sheddable(finding.detail.iter().map(|text| self.prose(text)).collect(), 3, 2, "line"),
            Section::fixed(self.roles(finding)),
            Section::sheddable(self.facts("evidence", &finding.evidence), 1, 5, "fact"),
            Section::fixed(self.common(finding).into_iter().collect()),
        ]
    }

    /// `error D001 op-mismatch on world (8 ranks, nccl): call 80 differs`.
    fn headline(&self, finding: &Finding, mut line: Line) -> Line {
        let tone = match finding.severity {
            Severity::Error => Tone::Error,
            Severity::Warning => Tone::Warning,
            Severity::Note => Tone::Hint,
        };
        line.push(tone, finding.severity.name()).push(Tone::Plain, " ");
        line.push(Tone::Strong, &format!("{} {}", finding.code, finding.name));
        if let Some(group) = &finding.group {
            line.push(Tone::Plain, " on ").push(Tone::Plain, &self.clip(&self.group(group)));
        }
        if !finding.headline.is_empty() {
            line.push(Tone::Plain, ": ").push(Tone::Strong, &self.clip(&finding.headline));
        }
        line
    }

    /// `world (data_parallel, 8 ranks, nccl)`; the library only where the first line has room.
    fn group(&self, group: &GroupRef) -> String {
        let name = if group.name.is_empty() { group.identity.to_string() } else { group.name.clone() };
        let members = match group.ranks.len() as u64 {
            0 => String::new(),
            members => text::counted(members, "rank"),
        };
        let desc = if group.desc == group.name { "" } else { group.desc.as_str() };
        let has_room = self.options.verbose || self.options.width >= 100;
        let library = if has_room { group.library.as_str() } else { "" };
        let about: Vec<&str> = [desc, &members, library].into_iter().filter(|part| !part.is_empty()).collect();
        if about.is_empty() { name } else { format!("{name} ({})", about.join(", ")) }
    }

    fn also(&self, finding: &Finding) -> Item {
        let mut line = Line::indented(INDENT);
        line.push(Tone::Hint, "also:").push(Tone::Plain, " ");
        self.wrap(self.headline(finding, line), ALSO_TALLEST)
    }

    fn clean(&self, report: &Report) -> Item {
        let mut line = Line::default();
        if !report.summary.starts_with(CANNOT_TELL) {
            line.push(Tone::Good, "ok").push(Tone::Plain, ": ");
        }
        line.push(Tone::Strong, &self.clip(&report.summary));
        self.wrap(line, TALLEST)
    }

    fn place(&self, finding: &Finding) -> Option<Item> {
        let step = finding.step.map_or_else(String::new, |step| {
            format!(" (step {}, call {} of {}, both from 0)", step.number, step.call, step.period)
        });
        let text = match (finding.first_divergence, finding.first_visible) {
            (Some(first), Some(visible)) if first < visible => {
                let later = text::counted(visible - first, "call");
                return Some(self.labelled(
                    "first divergence",
                    &format!("call {first}{step}, {later} before it showed at call {visible}"),
                ));
            }
            (Some(position), _) => format!("call {position}{step}"),
            (None, Some(visible)) if is_mismatch(finding.class) => {
                return Some(self.labelled(
                    "first visible mismatch",
                    &format!("call {visible}{step}; where it began cannot be placed"),
                ));
            }
            (None, Some(visible)) => format!("call {visible}{step}"),
            (None, None) => return None,
        };
        Some(self.labelled("where", &text))
    }

    fn roles(&self, finding: &Finding) -> Vec<Item> {
        let mut items = Vec::new();
        let members = finding.group.as_ref().map_or(0, |group| group.ranks.len());
        let mut role = |label: &str, set: &RankSet, more: &str| {
            if !set.is_empty() {
                items.push(self.labelled(label, &format!("{}{more}", self.ranks_of(set, members))));
            }
        };
        let suspect = if finding.suspects.len() == 1 { "suspect" } else { "suspects" };
        let late = finding.late_ms.map(|ms| format!(", by {}", text::duration(ms))).unwrap_or_default();
        role("failed", &finding.failed, "");
        role("stalled", &finding.stalled, "");
        role("late", &finding.late, &late);
        role("did not call", &finding.missing_callers, "");
        let named = [&finding.failed, &finding.stalled, &finding.late, &finding.missing_callers];
        if !named.contains(&&finding.suspects) {
            role(suspect, &finding.suspects, "");
        }
        let behind = match (finding.direct_victims.is_empty(), finding.transitive_victims.is_empty()) {
            (_, true) => String::new(),
            (true, false) => format!("; {} behind others", self.ranks(&finding.transitive_victims)),
            (false, false) => {
                let (direct, behind) = (&finding.direct_victims, &finding.transitive_victims);
                format!("; {} directly, {} behind them", self.ranks(direct), self.ranks(behind))
            }
        };
        let victims = finding.direct_victims.union(&finding.transitive_victims);
        role("waiting", &finding.waiting.union(&victims), &behind);
        role("ended because of it", &finding.collateral_exits, "");
        if !finding.cycle.is_empty() {
            let limit = if self.options.verbose { usize::MAX } else { CYCLE };
            items.push(self.labelled("each waits for the next", &text::cycle(&finding.cycle, limit)));
        }
        if let Some(split) = undecided(finding) {
            items.push(self.labelled("suspect", &format!("none, there is no majority ({split})")));
        }
        items
    }

    fn facts(&self, label: &str, facts: &[Evidence]) -> Vec<Item> {
        let text = |fact: &Evidence| text::with_ranks(&fact.ranks, &fact.text, self.limit());
        facts.iter().map(|fact| self.labelled(label, &text(fact))).collect()
    }

    fn common(&self, finding: &Finding) -> Option<Item> {
        let shared = finding.common.join("; ");
        let label = if finding.suspects.len() == 1 { "what marks it" } else { "what they share" };
        (!shared.is_empty()).then(|| self.labelled(label, &shared))
    }

    /// How much was seen and how sure the answer is.
    fn seen(&self, report: &Report) -> Item {
        let coverage = &report.coverage;
        let seen = coverage.ranks_seen.len() as u64;
        let ranks = match coverage.ranks_expected as u64 {
            0 => text::counted(seen, "rank"),
            expected => format!("{} of {}", text::grouped(seen), text::counted(expected, "rank")),
        };
        let mut line = Line::indented(INDENT);
        let tone = if report.confidence == Confidence::High { Tone::Plain } else { Tone::Warning };
        line.push(Tone::Hint, "confidence:").push(Tone::Plain, " ").push(tone, report.confidence.name());
        let calls = text::counted(coverage.calls, "call");
        let compared = text::percent(coverage.compared);
        line.push(Tone::Plain, &format!("; seen: {ranks}, {calls}; compared: {compared}"));
        self.wrap(line, TALLEST)
    }

    /// What was not seen; the limits of the answer.
    fn unseen(&self, coverage: &Coverage) -> Vec<Item> {
        let mut items = Vec::new();
        if coverage.attempts > 1 {
            let text = format!(
                "{} runs in it; this is the latest, and of the earlier ones only what was found is told",
                text::grouped(coverage.attempts as u64)
            );
            items.push(self.labelled("runs", &text));
        }
        items.extend(coverage.decoding.as_ref().map(|decoding| self.labelled("decoded", &decoding.text)));
        if let Some(join) = &coverage.clocks {
            // How far clocks agree is no flaw; that nothing proves it is one.
            let proven = usize::from(join.within_ns.is_some());
            items.extend(join.text.iter().take(proven).map(|text| self.labelled("time", text)));
            items.extend(join.text.iter().skip(proven).map(|text| self.warning("time", text)));
        }
        if !coverage.missing.is_empty() {
            items.push(self.warning("missing", &format!("no trace of {}", self.ranks(&coverage.missing))));
        }
        if !coverage.truncated.is_empty() {
            let of = if coverage.truncated.len() == 1 { "the trace of" } else { "the traces of" };
            let end = if coverage.truncated.len() == 1 { "ends" } else { "end" };
            let text = format!("{of} {} {end} in the middle of a record", self.ranks(&coverage.truncated));
            items.push(self.warning("torn", &text));
        }
        for gap in &coverage.gaps {
            items.push(self.warning("gap", &text::with_ranks(&gap.ranks, &gap.text, self.limit())));
        }
        items.extend(coverage.problems.iter().map(|problem| self.warning("problem", problem)));
        items
    }

    fn labelled(&self, label: &str, text: &str) -> Item {
        self.label(Tone::Hint, label, text)
    }

    fn warning(&self, label: &str, text: &str) -> Item {
        self.label(Tone::Warning, label, text)
    }

    fn label(&self, tone: Tone, label: &str, text: &str) -> Item {
        let mut line = Line::indented(INDENT);
        line.push(tone, label).push(tone, ":").push(Tone::Plain, " ").push(Tone::Plain, &self.clip(text));
        self.wrap(line, TALLEST)
    }

    fn prose(&self, text: &str) -> Item {
        let mut line = Line::indented(INDENT);
        line.push(Tone::Plain, &self.clip(text));
        self.wrap(line, TALLEST)
    }

    /// Wrapped below itself; cut after `tallest` lines unless verbose.
    fn wrap(&self, line: Line, tallest: usize) -> Item {
        let mut lines = line.wrap(self.options.width, 2 * INDENT);
        if !self.options.verbose && lines.len() > tallest {
            lines.truncate(tallest);
            if let Some(last) = lines.last_mut() {
                last.push(Tone::Faint, " …");
            }
        }
        lines
    }

    fn clip(&self, text: &str) -> String {
        if self.options.verbose { text.to_owned() } else { text::clip(&text::escape(text), LONGEST).into_owned() }
    }

    /// Characters that a rank set may take.
    fn limit(&self) -> usize {
        if self.options.verbose { usize::MAX } else { self.options.width / 2 }
    }

    fn ranks(&self, set: &RankSet) -> String {
        text::ranks_phrase(set, self.limit())
    }

    /// 'ranks 0-5,7 (7 of 8)'; without the share where it says nothing.
    fn ranks_of(&self, set: &RankSet, members: usize) -> String {
        let share =
            if members >= set.len() && members > 1 { format!(" ({} of {members})", set.len()) } else { String::new() };
        self.ranks(set) + &share
    }
}

/// Whether something differs that began somewhere, as opposed to somebody not arriving.
fn is_mismatch(class: Class) -> bool {
    matches!(class, Class::CodeDivergence | Class::ParameterMismatch | Class::LogicalMismatch | Class::OrderInversion)
}

/// '1 against 1' where the calls are even and nothing else says who went wrong.
fn undecided(finding: &Finding) -> Option<String> {
    let roles = [&finding.suspects, &finding.failed, &finding.stalled, &finding.late, &finding.missing_callers];
    let is_decided = roles.iter().any(|set| !set.is_empty()) || !finding.cycle.is_empty();
    let callers = finding.sides.iter().filter(|side| side.call.is_some());
    let sizes: Vec<usize> = callers.map(|side| side.ranks.len()).collect();
    let largest = sizes.iter().max()?;
    let has_tie = sizes.iter().filter(|size| *size == largest).count() > 1;
    let split = match sizes.len() {
        0..=4 => sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" against "),
        sides => format!("{sides} sides"),
    };
    (!is_decided && has_tie).then_some(split)
}
