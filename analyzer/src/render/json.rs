//! The report as JSON (docs/report.md, docs/schema/report-1.0.json).
//!
//! The structs here are the schema: they mirror the findings on purpose instead of deriving from them, so that a change
//! inside the analyzer cannot change what programs read. Fields may be added in a minor version, never renamed or moved.

use std::fmt::Write as _;
use std::io::{self, Write};

use rankdiff_trace::{Frame, FrameKind, RankSet};
use serde::Serialize;

use super::text::is_unsafe;
use super::{ExitPolicy, Render, RenderOptions};
use crate::finding::{self, CallText, Finding, GroupRef, Report, Side, Whom};

/// Version of the schema: major.minor. A minor one only adds fields.
pub const SCHEMA_VERSION: &str = "1.0";

/// The report as JSON.
#[derive(Debug)]
pub(super) struct Json;

impl Render for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "everything, for programs; the schema has a version"
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn render(&self, report: &Report, options: &RenderOptions, out: &mut dyn Write) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&Document::new(report, options.exit)).map_err(io::Error::from)?;
        out.write_all(terminal_safe(&text).as_bytes())?;
        out.write_all(b"\n")
    }
}

/// Spells out what JSON allows as it is but a terminal would obey. Outside strings JSON has only line feeds of these.
pub(super) fn terminal_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: &'static str,
    verdict: Verdict<'a>,
    findings: Vec<FindingJson<'a>>,
    coverage: Coverage<'a>,
}

#[derive(Serialize)]
struct Verdict<'a> {
    class: &'static str,
    confidence: &'static str,
    exit: u8,
    summary: &'a str,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    code: &'static str,
    name: &'static str,
    severity: &'static str,
    class: &'static str,
    confidence: &'static str,
    what: Option<&'static str>,
    group: Option<Group<'a>>,
    first_divergence: Option<u64>,
    first_visible: Option<u64>,
    step: Option<Step>,
    sides: Vec<SideJson<'a>>,
    window: Vec<WindowJson<'a>>,
    suspects: String,
    waiting: String,
    victims: Victims,
    cycle: &'a [u32],
    stalled_ranks: String,
    late_ranks: String,
    late_ms: Option<u64>,
    failed_ranks: String,
    missing_callers: String,
    collateral_exits: String,
    evidence: Vec<Evidence<'a>>,
    common: &'a [String],
    text: String,
}

/// A communicator.
#[derive(Serialize)]
pub(super) struct Group<'a> {
    id: String,
    name: &'a str,
    desc: &'a str,
    library: &'a str,
    ranks: String,
}

#[derive(Serialize)]
struct Step {
    number: u64,
    call: u64,
    period: u64,
}

#[derive(Serialize)]
struct WindowJson<'a> {
    position: u64,
    ranks: String,
    count: usize,
    call: Call<'a>,
}

#[derive(Serialize)]
struct SideJson<'a> {
    ranks: String,
    count: usize,
    call: Option<Call<'a>>,
    state: &'a str,
}

/// A call.
#[derive(Serialize)]
pub(super) struct Call<'a> {
    op: &'a str,
    count: Option<u64>,
    dtype: Option<&'a str>,
    redop: Option<&'a str>,
    root: Option<u32>,
    peer: Option<u32>,
    tag: Option<i64>,
    site: &'a str,
    frames: Vec<FrameJson<'a>>,
    seq: Option<u64>,
    object: Option<&'a str>,
    pending: bool,
}

#[derive(Serialize)]
struct FrameJson<'a> {
    kind: &'static str,
    function: &'a str,
    file: &'a str,
    line: u32,
    module: &'a str,
    build_id: &'a str,
    offset: u64,
}

#[derive(Serialize)]
struct Victims {
    direct: String,
    transitive: String,
}

#[derive(Serialize)]
struct Evidence<'a> {
    kind: &'a str,
    ranks: String,
    text: &'a str,
}

#[derive(Serialize)]
struct Coverage<'a> {
    ranks_expected: usize,
    ranks_seen: usize,
    missing: String,
    truncated: String,
    gaps: Vec<Evidence<'a>>,
    calls: u64,
    compared: f64,
    clocks: Option<Clocks<'a>>,
    attempts: usize,
    decoding: Option<DecodingJson<'a>>,
    problems: &'a [String],
}

#[derive(Serialize)]
struct DecodingJson<'a> {
    blocks: u64,
    of: u64,
    text: &'a str,
}

#[derive(Serialize)]
struct Clocks<'a> {
    nodes: usize,
    calls: u64,
    within_ns: Option<u64>,
    text: &'a [String],
}

impl<'a> Document<'a> {
    fn new(report: &'a Report, exit: ExitPolicy) -> Document<'a> {
        let coverage = &report.coverage;
        Document {
            schema_version: SCHEMA_VERSION,
            verdict: Verdict {
                class: report.class.name(),
                confidence: report.confidence.name(),
                exit: exit.code(report),
                summary: &report.summary,
            },
            findings: report.findings.iter().map(FindingJson::new).collect(),
            coverage: Coverage {
                ranks_expected: coverage.ranks_expected,
                ranks_seen: coverage.ranks_seen.len(),
                missing: coverage.missing.to_string(),
                truncated: coverage.truncated.to_string(),
                gaps: coverage.gaps.iter().map(Evidence::new).collect(),
                calls: coverage.calls,
                // JSON has no word for 'not a number'; a share that could not be had is none.
                compared: if coverage.compared.is_finite() { coverage.compared.clamp(0.0, 1.0) } else { 0.0 },
                clocks: coverage.clocks.as_ref().map(Clocks::new),
                attempts: coverage.attempts,
                decoding: coverage.decoding.as_ref().map(|decoding| DecodingJson {
                    blocks: decoding.blocks,
                    of: decoding.of,
                    text: &decoding.text,
                }),
                problems: &coverage.problems,
            },
        }
    }
}

impl<'a> Clocks<'a> {
    fn new(join: &'a finding::ClockJoin) -> Clocks<'a> {
        Clocks { nodes: join.clocks, calls: join.calls, within_ns: join.within_ns, text: &join.text }
    }
}

impl<'a> FindingJson<'a> {
    fn new(finding: &'a Finding) -> FindingJson<'a> {
        FindingJson {
            code: finding.code,
            name: finding.name,
            severity: finding.severity.name(),
            class: finding.class.name(),
            confidence: finding.confidence.name(),
            what: finding.what,
            group: finding.group.as_ref().map(Group::new),
            first_divergence: finding.first_divergence,
            first_visible: finding.first_visible,
            step: finding.step.map(|step| Step { number: step.number, call: step.call, period: step.period }),
            sides: finding.sides.iter().map(SideJson::new).collect(),
            window: finding.window.iter().map(WindowJson::new).collect(),
            suspects: finding.suspects.to_string(),
            waiting: finding.waiting.to_string(),
            victims: Victims {
                direct: finding.direct_victims.to_string(),
                transitive: finding.transitive_victims.to_string(),
            },
            cycle: &finding.cycle,
            stalled_ranks: finding.stalled.to_string(),
            late_ranks: finding.late.to_string(),
            late_ms: finding.late_ms,
            failed_ranks: finding.failed.to_string(),
            missing_callers: finding.missing_callers.to_string(),
            collateral_exits: finding.collateral_exits.to_string(),
            evidence: finding.evidence.iter().map(Evidence::new).collect(),
            common: &finding.common,
            text: text(finding),
        }
    }
}

/// The finding in words: the headline and, a line each, the detail.
fn text(finding: &Finding) -> String {
    let mut text = finding.headline.clone();
    for line in &finding.detail {
        text.push('\n');
        text.push_str(line);
    }
    text
}

impl<'a> Group<'a> {
    pub(super) fn new(group: &'a GroupRef) -> Group<'a> {
        Group {
            id: group.identity.to_string(),
            name: &group.name,
            desc: &group.desc,
            library: &group.library,
            ranks: group.ranks.to_string(),
        }
    }
}

impl<'a> WindowJson<'a> {
    fn new(row: &'a finding::WindowRow) -> WindowJson<'a> {
        WindowJson {
            position: row.position,
            ranks: row.ranks.to_string(),
            count: row.ranks.len(),
            call: Call::new(&row.call),
        }
    }
}

impl<'a> SideJson<'a> {
    fn new(side: &'a Side) -> SideJson<'a> {
        SideJson {
            ranks: side.ranks.to_string(),
            count: RankSet::len(&side.ranks),
            call: side.call.as_ref().map(Call::new),
            state: &side.state,
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(call: &'a CallText) -> Call<'a> {
        Call {
            op: &call.op,
            count: call.count,
            dtype: call.dtype.as_deref(),
            redop: call.redop.as_deref(),
            root: call.root.and_then(Whom::global),
            peer: call.peer.and_then(Whom::global),
            tag: call.tag,
            site: &call.site,
            frames: call.frames.iter().map(FrameJson::new).collect(),
            seq: call.seq,
            object: call.object,
            pending: call.pending,
        }
    }
}

impl<'a> FrameJson<'a> {
    fn new(frame: &'a Frame) -> FrameJson<'a> {
        FrameJson {
            kind: match frame.kind {
                FrameKind::Native => "native",
                FrameKind::Python => "python",
                FrameKind::Text => "text",
            },
            function: &frame.function,
            file: &frame.file,
            line: frame.line,
            module: &frame.module,
            build_id: &frame.build_id,
            offset: frame.offset,
        }
    }
}

impl<'a> Evidence<'a> {
    fn new(evidence: &'a finding::Evidence) -> Evidence<'a> {
        Evidence { kind: &evidence.kind, ranks: evidence.ranks.to_string(), text: &evidence.text }
    }
}

#[cfg(test)]
mod tests {
    use super::terminal_safe;

    #[test]
    fn unsafe_characters_become_escapes_of_the_same_value() {
        let text = "a\u{7f}\u{9b}31m\u{202e}\u{e0041}ü\x1b";
        let json = serde_json::to_string(text).expect("text is JSON");
        let safe = terminal_safe(&json);
        assert_eq!(safe, "\"a\\u007f\\u009b31m\\u202e\\udb40\\udc41ü\\u001b\"");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("still JSON"), text);
    }
}
