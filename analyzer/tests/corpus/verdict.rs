//! The right answers of scenario files, read apart from the analyzer, and their comparison with a report.
//!
//! Reads the little YAML that verdicts are written in: a `verdict:` key at the margin with indented keys below it, or one
//! flow mapping behind it.

use std::collections::BTreeMap;

use rankdiff_analyzer::Report;
use rankdiff_analyzer::finding::{Class, Finding, Severity};
use rankdiff_analyzer::render::{ExitPolicy, RenderOptions, format_named};
use rankdiff_trace::RankSet;

/// A value of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

pub(crate) type Verdict = BTreeMap<String, Value>;

/// The verdicts of a file by scenario id.
pub(crate) fn load(text: &str) -> Vec<(String, Verdict)> {
    text.split("\n---").map(document).collect()
}

fn document(text: &str) -> (String, Verdict) {
    let mut id = String::new();
    let mut verdict = Verdict::new();
    let mut inside = false;
    let mut map: Option<String> = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        if let Some(rest) = line.strip_prefix("id:") {
            rest.trim().clone_into(&mut id);
        }
        if indent == 0 {
            inside = line.starts_with("verdict:");
            map = None;
            let rest = line.strip_prefix("verdict:").map(str::trim).filter(|rest| !rest.is_empty());
            if let Some(Value::Map(entries)) = rest.map(flow) {
                verdict = entries;
            }
            continue;
        }
        if !inside {
            continue;
        }
        let (key, value) = key_value(line.trim());
        match (indent, &map) {
            (2, _) if value.is_empty() => {
                map = Some(key.clone());
                verdict.insert(key, Value::Map(BTreeMap::new()));
            }
            (2, _) => {
                map = None;
                verdict.insert(key, flow(&value));
            }
            (_, Some(name)) => {
                if let Some(Value::Map(entries)) = verdict.get_mut(name) {
                    entries.insert(key, flow(&value));
                }
            }
            _ => panic!("{id}: not understood: {line}"),
        }
    }
    (id, verdict)
}

/// Splits at the first colon outside quotes.
fn key_value(text: &str) -> (String, String) {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ':' if !quoted => {
                return (text[..at].trim().trim_matches('"').to_owned(), text[at + 1..].trim().to_owned());
            }
            _ => {}
        }
    }
    panic!("no key: {text}");
}

fn flow(text: &str) -> Value {
    let text = text.trim();
    let inner = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(list) = inner('[', ']') {
        return Value::List(parts(list).iter().map(|part| flow(part)).collect());
    }
    if let Some(map) = inner('{', '}') {
        let parts = parts(map);
        let entries = parts.iter().map(|part| key_value(part)).map(|(key, value)| (key, flow(&value)));
        return Value::Map(entries.collect());
    }
    match text {
        "null" => Value::Null,
        _ => Value::Text(text.trim_matches('"').to_owned()),
    }
}

/// Splits at commas outside quotes and brackets.
fn parts(text: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut found) = (0, false, vec![String::new()]);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().expect("never empty").push(c);
    }
    found.retain(|part| !part.trim().is_empty());
    found.iter().map(|part| part.trim().to_owned()).collect()
}

impl Value {
    fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    fn number(&self) -> Option<u64> {
        self.text().parse().ok()
    }

    fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    fn ranks(&self) -> RankSet {
        match self {
            Value::List(list) => list.iter().filter_map(|rank| rank.text().parse().ok()).collect(),
            other => other.text().parse().expect("a rank set"),
        }
    }
}

/// What in the report contradicts the verdict.
pub(crate) fn compare(verdict: &Verdict, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = rendered(report);
    let loud: Vec<&Finding> = report.findings.iter().filter(|finding| finding.severity > Severity::Note).collect();
    let expected = verdict.get("class").expect("a verdict has a class").text();
    let accepted = |key: &str| match verdict.get("accept") {
        Some(Value::Map(accept)) => accept.get(key).map(|values| values.list().to_vec()),
        _ => None,
    };
    let got = report.class.name();
    if got != expected && !accepted("class").is_some_and(|values| values.iter().any(|value| value.text() == got)) {
        wrong.push(format!("class {got}, expected {expected}"));
    }
    if expected == Class::Clean.name() {
        wrong.extend(loud.iter().map(|finding| format!("{} on a healthy job: {}", finding.code, finding.headline)));
    }
    let blank = Finding { ..empty() };
    let finding = report.findings.first().unwrap_or(&blank);
    for (key, got) in [("first_visible", finding.first_visible), ("first_divergence", finding.first_divergence)] {
        let (value, accepted) = (verdict.get(key), accepted(key));
        let fits = value.is_some_and(|value| value.number() == got)
            || accepted.as_ref().is_some_and(|values| values.iter().any(|one| one.number() == got));
        if !fits && (value.is_some() || accepted.is_some()) {
            wrong.push(format!("{key} {got:?}, expected {value:?}"));
        }
    }
    let group = finding.group.as_ref().map_or("", |group| group.name.as_str());
    for (key, got) in [("what", finding.what.unwrap_or("")), ("group", group)] {
        if verdict.get(key).is_some_and(|value| value.text() != got) {
            wrong.push(format!("{key} '{got}'"));
        }
    }
    wrong.extend(compare_ranks(verdict, finding));
    wrong.extend(compare_sides(verdict, finding));
    if let Some(limit) = verdict.get("findings_max").and_then(Value::number)
        && loud.len() as u64 > limit
    {
        wrong.push(format!("{} findings, at most {limit}", loud.len()));
    }
    for wanted in verdict.get("must_say").map_or(&[][..], Value::list) {
        if !wanted.text().split('|').any(|part| text.contains(part)) {
            wrong.push(format!("must say '{}'", wanted.text()));
        }
    }
    for unwanted in verdict.get("must_not_say").map_or(&[][..], Value::list) {
        if text.contains(unwanted.text()) {
            wrong.push(format!("must not say '{}'", unwanted.text()));
        }
    }
    wrong.extend(compare_exit(verdict, report, &loud));
    wrong
}

fn compare_ranks(verdict: &Verdict, finding: &Finding) -> Vec<String> {
    let mut wrong = Vec::new();
    let victims = finding.direct_victims.union(&finding.transitive_victims);
    for (key, got) in [
        ("suspects", &finding.suspects),
        ("waiting_ranks", &finding.waiting),
        ("direct_victims", &finding.direct_victims),
        ("transitive_victims", &finding.transitive_victims),
        ("victims", &victims),
        ("stalled_ranks", &finding.stalled),
        ("late_ranks", &finding.late),
        ("failed_ranks", &finding.failed),
        ("missing_callers", &finding.missing_callers),
        ("collateral_exits", &finding.collateral_exits),
    ] {
        if let Some(expected) = verdict.get(key).map(Value::ranks)
            && expected != *got
        {
            wrong.push(format!("{key} '{got}', expected '{expected}'"));
        }
    }
    if let Some(cycle) = verdict.get("cycle") {
        let cycle: Vec<u32> = cycle.list().iter().filter_map(|rank| rank.text().parse().ok()).collect();
        let rotated = (0..cycle.len()).any(|at| [&cycle[at..], &cycle[..at]].concat() == finding.cycle);
        if !rotated {
            wrong.push(format!("cycle {:?}, expected {cycle:?}", finding.cycle));
        }
    }
    if let Some(expected) = verdict.get("late_ms").and_then(Value::number) {
        let near = finding.late_ms.is_some_and(|late| late.abs_diff(expected) * 10 <= expected);
        if !near {
            wrong.push(format!("late_ms {:?}, expected {expected}", finding.late_ms));
        }
    }
    wrong
}

fn compare_sides(verdict: &Verdict, finding: &Finding) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(Value::Map(sides)) = verdict.get("sides") else { return wrong };
    for (key, words) in sides {
        let ranks: RankSet = key.parse().expect("a rank set");
        let Some(side) = finding.sides.iter().find(|side| side.ranks == ranks) else {
            wrong.push(format!("no side {key}"));
            continue;
        };
        let shown = format!("{side:?}").to_lowercase();
        for word in words.text().split_whitespace().filter(|word| !shown.contains(&word.to_lowercase())) {
            wrong.push(format!("side {key} lacks {word}"));
        }
    }
    wrong
}

fn compare_exit(verdict: &Verdict, report: &Report, loud: &[&Finding]) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(ci) = verdict.get("ci").map(Value::text) else { return wrong };
    let code = ExitPolicy::default().code(report);
    if code != u8::from(ci == "fail") {
        wrong.push(format!("exit code {code} with ci: {ci}"));
    }
    if ci == "pass_with_warning" && !loud.iter().any(|finding| finding.severity == Severity::Warning) {
        wrong.push("no warning".to_owned());
    }
    let strict = ExitPolicy { strict: true, ..ExitPolicy::default() };
    if ci == "inconclusive" && strict.code(report) != 3 {
        wrong.push("not inconclusive under strict".to_owned());
    }
    wrong
}

/// The report for people, in lower case with blanks collapsed.
fn rendered(report: &Report) -> String {
    let mut bytes = Vec::new();
    let format = format_named("full").expect("a format");
    format.render(report, &RenderOptions::default(), &mut bytes).expect("a vector takes everything");
    let text = String::from_utf8(bytes).expect("text").to_lowercase();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn empty() -> Finding {
    Finding {
        code: "",
        name: "",
        severity: Severity::Note,
        class: Class::Clean,
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
        confidence: rankdiff_analyzer::finding::Confidence::Low,
        headline: String::new(),
        detail: Vec::new(),
    }
}
