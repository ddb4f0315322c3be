//! What people and programs get to see of canonical reports, held against files in `golden/`.
//!
//! After a wanted change: `RANKDIFF_UPDATE_GOLDEN=1 cargo test -p rankdiff-analyzer --test render`, then read the diff.

mod dumps;
mod reports;
mod schema;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use rankdiff_analyzer::finding::{Class, Evidence, Report, Severity, Side};
use rankdiff_analyzer::render::{FORMATS, RenderOptions, SCHEMA_VERSION, format_named};
use serde_json::Value;

const SCREEN: usize = 24;

fn rendered(format: &str, report: &Report, options: &RenderOptions) -> String {
    let mut bytes = Vec::new();
    let format = format_named(format).expect("a known format");
    format.render(report, options, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("reports are UTF-8")
}

fn at_width(width: usize) -> RenderOptions {
    RenderOptions { width, ..RenderOptions::default() }
}

fn verbose() -> RenderOptions {
    RenderOptions { verbose: true, ..at_width(120) }
}

fn colored() -> RenderOptions {
    RenderOptions { color: true, ..at_width(100) }
}

fn folder(part: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(part)
}

fn report_schema() -> Value {
    let text = fs::read_to_string(folder("../docs/schema/report-1.0.json")).expect("the schema is committed");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Every format and layout of every canonical report; the two that exist to be long only where length matters.
fn outputs() -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    for case in reports::all() {
        let mut add = |kind: &str, text| outputs.push((format!("{}.{kind}", case.name), text));
        add("80.txt", rendered("full", &case.report, &at_width(80)));
        add("120.txt", rendered("full", &case.report, &at_width(120)));
        add("concise.txt", rendered("concise", &case.report, &at_width(80)));
        if !matches!(case.name, "ranks-4096" | "crowded" | "hostile") {
            add("json", rendered("json", &case.report, &at_width(80)));
        }
        if matches!(case.name, "op-mismatch" | "clean-with-gaps") {
            add("verbose.txt", rendered("full", &case.report, &verbose()));
            add("color.txt", rendered("full", &case.report, &colored()));
        }
    }
    outputs.extend(dumps::outputs());
    outputs
}

#[test]
fn output_is_as_in_the_golden_files() {
    let golden = folder("tests/render/golden");
    let mut wrong = Vec::new();
    for (name, text) in outputs() {
        let path = golden.join(&name);
        if std::env::var_os("RANKDIFF_UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).expect("golden files can be written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected != text {
            wrong.push(format!("--- {name}, expected\n{expected}--- got\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_golden_file_belongs_to_an_output() {
    let known: Vec<String> = outputs().into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(folder("tests/render/golden")).expect("the folder exists") {
        let name = entry.expect("its entries can be read").file_name().into_string().expect("names are text");
        assert!(known.contains(&name), "golden/{name} is left over");
    }
}

#[test]
fn a_report_fits_a_screen_and_its_width() {
    for case in reports::all() {
        for width in [80, 120] {
            let text = rendered("full", &case.report, &at_width(width));
            let height = text.lines().count();
            assert!(height < SCREEN, "{} at {width} takes {height} lines:\n{text}", case.name);
            for line in text.lines().filter(|_| case.name != "hostile") {
                assert!(line.chars().count() <= width, "{} is wider than {width}: {line}", case.name);
            }
        }
    }
}

#[test]
fn the_first_line_tells_what_happened() {
    for case in reports::all() {
        let text = rendered("full", &case.report, &at_width(120));
        let first = text.lines().next().expect("no report is empty");
        match case.report.findings.first().filter(|_| case.report.class != Class::Clean) {
            Some(finding) => {
                assert!(first.starts_with(finding.severity.name()), "{first}");
                assert!(first.contains(&format!("{} {}", finding.code, finding.name)), "{first}");
                assert!(finding.group.as_ref().is_none_or(|_| first.contains(" on ")), "{first}");
            }
            None => assert!(first.starts_with("ok: no divergence up to call 643"), "{first}"),
        }
    }
}

#[test]
fn a_line_of_each_side_names_its_ranks_and_its_call() {
    for case in reports::all().iter().filter(|case| !matches!(case.name, "ranks-4096" | "crowded" | "hostile")) {
        for width in [80, 120] {
            let text = rendered("full", &case.report, &at_width(width));
            for Side { ranks, call, .. } in case.report.findings.iter().flat_map(|finding| &finding.sides) {
                let what = call.as_ref().map_or_else(|| "no call".to_owned(), |call| call.op.to_uppercase());
                let start = [format!("  {} ", ranks.phrase()), format!("  rank  {ranks} ")];
                let has_line = |line: &str| start.iter().any(|start| line.contains(start)) && line.contains(&what);
                assert!(text.lines().any(has_line), "{}: no line for {ranks} with {what} in\n{text}", case.name);
            }
        }
    }
}

#[test]
fn what_was_cut_is_counted_and_verbose_has_it() {
    let crowded = reports::all().into_iter().find(|case| case.name == "crowded").expect("a canonical report").report;
    let short = rendered("full", &crowded, &at_width(80));
    assert!(short.contains("sides more (--verbose)") && short.contains("facts more (--verbose)"), "{short}");
    let long = rendered("full", &crowded, &verbose());
    assert!(!long.contains("--verbose"), "{long}");
    for text in ["detail line 11,", "fact 19", "file39.rdt", "1015 f32"] {
        assert!(long.contains(text) && !short.contains(text), "{text}");
    }
    assert_eq!(long.matches("warning S001 straggler on").count(), 9);
}

#[test]
fn colour_changes_nothing_else() {
    for case in reports::all() {
        let plain = rendered("full", &case.report, &at_width(100));
        let coloured = rendered("full", &case.report, &colored());
        assert!(coloured.contains("\x1b["), "{}: no colour", case.name);
        assert_eq!(without_styles(&coloured), plain, "{}", case.name);
    }
}

/// The text without what we print ourselves to colour it: `ESC [ digits m`.
fn without_styles(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let (digits, after) = after.split_once('m').expect("a style ends with m");
        assert!(digits.chars().all(|c| c.is_ascii_digit() || c == ';'), "not a style: {digits}");
        rest = after;
    }
    plain + rest
}

fn is_terminal_safe(text: &str) -> bool {
    text.chars()
        .all(|c| c == '\n' || !(c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')))
}

#[test]
fn a_hostile_trace_cannot_reach_the_terminal() {
    let hostile = reports::hostile();
    for format in FORMATS {
        for options in [at_width(80), verbose()] {
            let text = rendered(format.name(), &hostile, &options);
            assert!(is_terminal_safe(&text), "{}: {text}", format.name());
            let forged = text.lines().filter(|line| line.trim_start().starts_with("ok: no divergence"));
            assert_eq!(forged.count(), 0, "{}: {text}", format.name());
        }
    }
    assert_eq!(rendered("concise", &hostile, &at_width(80)).lines().count(), 1);
}

#[test]
fn json_is_as_its_schema_says() {
    let schema = report_schema();
    for case in reports::all() {
        let value: Value = serde_json::from_str(&rendered("json", &case.report, &at_width(80))).expect("JSON");
        assert_eq!(schema::problems(&schema, &value), Vec::<String>::new(), "{}", case.name);
    }
}

#[test]
fn the_schema_requires_every_property() {
    fn walk(schema: &Value, seen: &mut usize) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let mut required: Vec<&str> =
                schema["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
            let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
            required.sort_unstable();
            names.sort_unstable();
            assert_eq!(required, names);
            *seen += names.len();
        }
        for part in schema.as_object().into_iter().flat_map(|object| object.values()).filter(|part| part.is_object()) {
            walk(part, seen);
        }
    }
    let mut seen = 0;
    walk(&report_schema(), &mut seen);
    assert!(seen > 60, "only {seen} properties were found");
}

#[test]
fn the_schema_knows_every_class_and_version() {
    let schema = report_schema();
    let classes = [
        Class::CodeDivergence,
        Class::UnevenInputs,
        Class::ParameterMismatch,
        Class::LogicalMismatch,
        Class::OrderInversion,
        Class::GroupCreation,
        Class::P2pDeadlock,
        Class::P2pMismatch,
        Class::RankFailed,
        Class::Straggler,
        Class::DriverStall,
        Class::DeviceStall,
        Class::HostStall,
        Class::Unknown,
        Class::Clean,
    ];
    let names: Vec<Value> = classes.iter().map(|class| class.name().into()).collect();
    assert_eq!(schema["$defs"]["class"]["enum"], Value::Array(names));
    assert_eq!(schema["properties"]["schema_version"]["const"], SCHEMA_VERSION);
}

#[test]
fn the_validator_sees_what_is_wrong() {
    let schema = report_schema();
    let good = rendered("json", &reports::all().remove(0).report, &at_width(80));
    let breakages = [
        ("\"schema_version\": \"1.0\"", "\"schema_version\": \"2.0\""),
        ("\"exit\": 1", "\"exit\": 2"),
        ("\"suspects\": \"6\"", "\"suspects\": [6]"),
        ("\"suspects\": \"6\"", "\"suspects\": \"six\""),
        ("\"suspects\": \"6\"", "\"suspect\": \"6\""),
        ("\"first_visible\": 80", "\"first_visible\": -80"),
        ("\"compared\": 1.0", "\"compared\": 1.5"),
        ("\"code\": \"D001\"", "\"code\": \"D1\""),
    ];
    for (right, wrong) in breakages {
        assert!(good.contains(right), "{right}");
        let value = serde_json::from_str(&good.replacen(right, wrong, 1)).expect("JSON");
        assert!(!schema::problems(&schema, &value).is_empty(), "{wrong} went unnoticed");
    }
}

#[test]
fn json_fields_keep_their_order() {
    let text = rendered("json", &reports::all().remove(0).report, &at_width(80));
    let keys = |indent: usize| -> Vec<String> {
        let start = " ".repeat(indent) + "\"";
        let keys = text.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("\":"));
        keys.map(|(key, _)| key.to_owned()).collect()
    };
    assert_eq!(keys(2), ["schema_version", "verdict", "findings", "coverage"]);
    assert_eq!(
        keys(6),
        [
            "code",
            "name",
            "severity",
            "class",
            "confidence",
            "what",
            "group",
            "first_divergence",
            "first_visible",
            "step",
            "sides",
            "window",
            "suspects",
            "waiting",
            "victims",
            "cycle",
            "stalled_ranks",
            "late_ranks",
            "late_ms",
            "failed_ranks",
            "missing_callers",
            "collateral_exits",
            "evidence",
            "common",
            "text"
        ]
    );
}

#[test]
fn a_share_that_is_no_number_is_still_json() {
    for (share, expected) in [(f64::NAN, 0.0), (f64::INFINITY, 0.0), (-1.0, 0.0), (2.0, 1.0), (0.25, 0.25)] {
        let mut report = reports::all().remove(0).report;
        report.coverage.compared = share;
        let value: Value = serde_json::from_str(&rendered("json", &report, &at_width(80))).expect("JSON");
        assert_eq!(value["coverage"]["compared"], expected);
    }
}

proptest! {
    /// Any text in any place: people's formats stay printable and one finding stays one line, JSON keeps every value.
    #[test]
    fn any_text_is_safe(texts in proptest::collection::vec(any::<String>(), 8), color in any::<bool>(), width in 0_usize..200) {
        let mut report = reports::hostile();
        let mut texts = texts.into_iter().cycle();
        let mut next = || texts.next().unwrap_or_default();
        report.summary = next();
        report.coverage.problems = vec![next()];
        report.coverage.gaps = vec![Evidence { text: next(), ..Evidence::default() }];
        let finding = &mut report.findings[0];
        finding.severity = Severity::Warning;
        finding.headline = next();
        finding.detail = vec![next()];
        finding.common = vec![next()];
        finding.evidence = vec![Evidence { kind: next(), text: next(), ..Evidence::default() }];
        for side in &mut finding.sides {
            side.state = next();
            if let Some(call) = &mut side.call {
                call.op = next();
                call.dtype = Some(next());
                call.site = next();
                for frame in &mut call.frames {
                    frame.function = next();
                    frame.file = next();
                }
            }
        }
        for verbose in [false, true] {
            let options = RenderOptions { color, verbose, ..at_width(width) };
            let text = rendered("full", &report, &options);
            prop_assert!(is_terminal_safe(&without_styles(&text)), "{}", text);
            prop_assert_eq!(text, rendered("full", &report, &options));
        }
        let concise = rendered("concise", &report, &at_width(80));
        prop_assert!(is_terminal_safe(&concise) && concise.lines().count() == 1, "{}", concise);
        let json = rendered("json", &report, &at_width(80));
        prop_assert!(is_terminal_safe(&json), "{}", json);
        let value: Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(value["verdict"]["summary"].as_str(), Some(report.summary.as_str()));
        prop_assert_eq!(value["coverage"]["problems"][0].as_str(), Some(report.coverage.problems[0].as_str()));
    }
}
