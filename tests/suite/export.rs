//! Exports, read by the tools that they are for, and imports: what goes out is what `show` says, what comes back is what
//! was there, and mistakes are said.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rankdiff_tests::process;
use rankdiff_tests::recorder::{LIMIT, Place, Verdict, calls, rankdiff, run};
use rankdiff_tests::{root, skipped, target_dir};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A job of three ranks that says something of every kind: two communicators, split vectors, a derived type, a call that
/// never returns, lost calls, a rank that is killed.
const SCENARIO: &str = r#"id: small
world: 3
blocking: true
groups: {world: [0, 1, 2], pair: [0, 1]}
streams:
  "0-1":
    - repeat: 40
      mark: step
      do: [all_reduce 8 f32 @world job.c:1:step, barrier - - @pair job.c:2:pair, all_reduce 9 type:cell:2xf32 @world job.c:1:step]
    - broadcast 5 f32 @world job.c:9:last root=2
  "2":
    - repeat: 40
      mark: step
      do: [all_reduce 8 f32 @world job.c:1:step, all_reduce 9 type:cell:2xf32 @world job.c:1:step]
lost: {"2": [{after_call: 60, events: 5}]}
evidence: {"2": {log: [gone], log_t: 9000}}
end: {"2": {signal: 9, t: 9100, by: oom_killer}}
verdict: {class: clean}
"#;

fn made(place: &Place) -> PathBuf {
    let scenario = place.path().join("small.yaml");
    fs::write(&scenario, SCENARIO).expect("own folder");
    let trace = place.trace();
    let made = run([Path::new("synth"), &scenario, Path::new("-o"), &trace]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    trace
}

fn text(path: &Path) -> String {
    path.to_str().expect("an own path").to_owned()
}

/// Runs `rankdiff` with these words; it must succeed.
fn succeeds(words: &[&str]) -> String {
    let ended = run(words);
    assert_eq!(ended.code, 0, "{}: {}", words.join(" "), ended.stderr);
    ended.stdout
}

fn refused(words: &[&str], said: &[&str]) {
    let ended = run(words);
    assert_eq!(ended.code, 2, "{}: {}\n{}", words.join(" "), ended.stdout, ended.stderr);
    for word in said {
        assert!(ended.stderr.contains(word), "{}: '{word}' is missing in: {}", words.join(" "), ended.stderr);
    }
}

/// Reads an export with other tools' libraries; `None`, said loudly, where they are not installed.
fn read(test: &str, words: &[&str]) -> Option<Value> {
    let modules = target_dir().join("python");
    let interpreter = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut imports = Command::new(python);
        imports.args(["-c", "import duckdb, perfetto.protos.perfetto.trace.perfetto_trace_pb2"]);
        imports.env("PYTHONPATH", &modules).output().is_ok_and(|output| output.status.success())
    });
    let Some(python) = interpreter else {
        skipped(test, "it needs duckdb and perfetto for Python: cargo xtask setup");
        return None;
    };
    let mut command = Command::new(python);
    command.arg(root().join("tests/suite/export_tables.py")).args(words);
    command.env("PYTHONPATH", &modules).env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = process::run(&mut command, LIMIT);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    Some(serde_json::from_str(&ended.stdout).expect("the script prints JSON"))
}

/// Blocks of a language in the page about exports.
fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/export.md")).expect("the page about exports");
    let fence = format!("```{language}\n");
    let parts = page.split(&fence).skip(1).filter_map(|rest| rest.split_once("```"));
    parts.map(|(block, _)| block.trim().to_owned()).collect()
}

#[test]
fn parquet_tables_hold_what_show_says() {
    let place = Place::new();
    let trace = made(&place);
    let tables = text(&place.path().join("tables"));
    succeeds(&["export", &text(&trace), "--to", "parquet", "-o", &tables]);
    let queries = blocks("sql");
    assert!(queries.len() >= 4, "docs/export.md shows {} queries", queries.len());
    let words: Vec<&str> = ["parquet", &tables].into_iter().chain(queries.iter().map(String::as_str)).collect();
    let Some(found) = read("parquet", &words) else { return };

    let shown = calls(&trace);
    let number = |call: &Value, key: &str| call[key].as_u64();
    let mut by_op: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for call in &shown {
        let of_op = by_op.entry(call["op"].as_str().expect("an operation")).or_default();
        of_op.0 += 1;
        of_op.1 += number(call, "count").unwrap_or(0);
    }
    assert_eq!(found["rows"]["calls"], shown.len());
    let expected: Vec<Value> = by_op
        .iter()
        .map(|(op, (many, sum))| json!([op, many, if *op == "barrier" { Value::Null } else { json!(sum) }]))
        .collect();
    assert_eq!(found["by_op"], json!(expected));
    let ends = shown.iter().filter_map(|call| Some((number(call, "enter_ns")?, number(call, "exit_ns")?)));
    let ends: Vec<(u64, u64)> = ends.collect();
    assert_eq!(found["returned"], json!([ends.len(), ends.iter().map(|(from, to)| to - from).sum::<u64>()]));
    let entered: Vec<u64> = shown.iter().filter_map(|call| number(call, "enter_ns")).collect();
    let elapsed = entered.iter().max().zip(entered.iter().min()).map(|(last, first)| last - first);
    assert_eq!(found["elapsed"].as_u64(), elapsed);
    assert_eq!(found["order"], 0);

    assert_eq!(found["types"]["enter"], "TIMESTAMP_NS");
    assert_eq!(found["types"]["count"], "UBIGINT");
    assert_eq!(found["rows"]["communicators"], 2);
    assert_eq!(found["orphans"], 0, "every call's communicator is in its table");
    let lost: u64 = found["gaps"].as_array().into_iter().flatten().filter_map(|gap| gap[2].as_u64()).sum();
    assert_eq!(lost, 5, "{}", found["gaps"]);
    assert_eq!(found["ranks"][2][3], "killed by signal 9 (SIGKILL) by the kernel's OOM killer (out of memory)");
    let of_ranks: u64 = found["ranks"].as_array().into_iter().flatten().filter_map(|rank| rank[1].as_u64()).sum();
    assert_eq!(of_ranks, shown.len() as u64);
    let kinds: Vec<&str> = found["events"].as_array().into_iter().flatten().filter_map(|row| row[0].as_str()).collect();
    assert!(["log", "state", "step"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert_eq!(found["queries"].as_array().map(Vec::len), Some(queries.len()));
}

#[test]
fn perfetto_tracks_hold_what_show_says() {
    let place = Place::new();
    let trace = made(&place);
    let file = text(&place.path().join("job.pftrace"));
    succeeds(&["export", &text(&trace), "--to", "perfetto", "-o", &file]);
    assert!(fs::metadata(&file).is_ok_and(|found| found.len() > 10_000));
    let Some(found) = read("perfetto", &["perfetto", &file]) else { return };
    assert_eq!(found["wrong"], json!([]));
    let names: Vec<&str> =
        found["processes"].as_array().into_iter().flatten().filter_map(|process| process[0].as_str()).collect();
    assert_eq!(names, ["rank 0", "rank 1", "rank 2"]);

    let shown = calls(&trace);
    let slices = found["slices"].as_array().expect("slices");
    assert_eq!(slices.len(), shown.len(), "each call is a slice");
    let pending = shown.iter().filter(|call| call["exit_ns"].is_null()).count();
    assert_eq!(found["open"], pending);
    for call in &shown {
        let rank = format!("rank {}", call["rank"]);
        let same = slices
            .iter()
            .filter(|slice| slice[0] == rank.as_str() && slice[1] == call["comm"] && slice[3]["seq"] == call["seq"]);
        let same: Vec<&Value> = same.collect();
        assert_eq!(same.len(), 1, "{call}");
        let name = same[0][2].as_str().unwrap_or_default();
        assert!(name.starts_with(&call["op"].as_str().unwrap_or_default().to_uppercase()), "{name}: {call}");
        assert_eq!(same[0][3]["count"], call["count"]);
    }
    assert!(slices.iter().any(|slice| slice[2] == "ALL_REDUCE 8 f32 sum"), "names are those of reports");
    // An instance's members are one flow.
    let mut instances: BTreeMap<(String, u64), Vec<String>> = BTreeMap::new();
    for call in &shown {
        let key = (call["comm_id"].to_string(), call["seq"].as_u64().expect("counted"));
        instances.entry(key).or_default().push(format!("rank {}", call["rank"]));
    }
    let mut expected: Vec<Vec<String>> = instances.into_values().collect();
    expected.iter_mut().for_each(|members| members.sort());
    expected.sort();
    assert_eq!(found["flows"], json!(expected));
    let instants: Vec<&str> =
        found["instants"].as_array().into_iter().flatten().filter_map(|instant| instant[2].as_str()).collect();
    for wanted in ["killed by signal 9 (SIGKILL) by the kernel's OOM killer (out of memory)", "log: gone", "step 3"] {
        assert!(instants.contains(&wanted), "{wanted}: {instants:?}");
    }
    assert!(instants.iter().any(|name| name.starts_with("gap: ")), "{instants:?}");
    let ids: Vec<u64> =
        found["clocks"].as_array().into_iter().flatten().filter_map(|clock| clock[0].as_u64()).collect();
    assert_eq!(ids, [6, 1], "boottime, realtime");
}

#[test]
fn json_lines_are_a_trace_like_any_other() {
    let place = Place::new();
    let trace = made(&place);
    let (trace, lines) = (text(&trace), text(&place.path().join("job.jsonl")));
    succeeds(&["export", &trace, "--to", "jsonl", "-o", &lines]);
    assert_eq!(succeeds(&["export", &trace, "--to", "jsonl", "-o", "-"]), fs::read_to_string(&lines).expect("there"));
    // Straight from the file, and imported.
    assert_eq!(succeeds(&["show", &lines]), succeeds(&["show", &trace]));
    let verdict = |path: &str| {
        let verdict = Verdict::of(Path::new(path), &[]);
        (verdict.code, verdict.json["findings"].clone(), verdict.json["summary"].clone())
    };
    let expected = verdict(&trace);
    assert_eq!(verdict(&lines), expected);
    let back = text(&place.path().join("back"));
    succeeds(&["import", &lines, "-o", &back]);
    assert_eq!(verdict(&back), expected);
    assert_eq!(calls(Path::new(&back)), calls(Path::new(&trace)));
    // From a pipe.
    let piped = text(&place.path().join("piped"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" import - -o \"$1\" < \"$2\""]).arg(rankdiff().get_program()).args([&piped, &lines]);
    let ended = process::run(&mut shell, LIMIT);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(calls(Path::new(&piped)), calls(Path::new(&trace)));
    // A file for each process; one rank alone.
    let many = place.path().join("many");
    succeeds(&["export", &trace, "--to", "jsonl", "--per-process", "-o", &text(&many)]);
    assert_eq!(fs::read_dir(&many).expect("made").count(), 3);
    let alone = succeeds(&["export", &trace, "--to", "jsonl", "-o", "-", "--rank", "1"]);
    assert_eq!(alone.lines().filter(|line| line.starts_with("{\"kind\":\"process\"")).count(), 1);
}

#[test]
fn the_example_of_the_page_can_be_imported() {
    let place = Place::new();
    let lines = place.path().join("page.jsonl");
    let example = blocks("json");
    assert_eq!(example.len(), 1);
    fs::write(&lines, &example[0]).expect("own folder");
    let back = place.path().join("back");
    succeeds(&["import", &text(&lines), "-o", &text(&back)]);
    let shown = calls(&back);
    assert_eq!(shown.len(), 1);
    assert_eq!((&shown[0]["op"], &shown[0]["comm_size"]), (&json!("all_reduce"), &json!(2)));
}

#[test]
fn mistakes_are_said() {
    let place = Place::new();
    let trace = text(&made(&place));
    let at = |name: &str| text(&place.path().join(name));
    refused(&["export", &trace, "--to", "xml"], &["unknown format `xml`", "parquet, jsonl, perfetto"]);
    refused(&["export", &trace, "--to", "parquet", "-o", "-"], &["directory"]);
    refused(&["export", &trace, "--to", "perfetto", "--per-process", "-o", &at("x")], &["--per-process"]);
    refused(&["export", &trace, "--to", "jsonl", "-o", &at("x"), "--rank", "77"], &["no process"]);
    refused(&["export", &at("nowhere"), "--to", "jsonl", "-o", &at("x")], &["nowhere"]);
    refused(&["export", &trace, "--to", "jsonl", "-o", &at("no/such/folder/x")], &["no/such/folder"]);
    assert!(!Path::new(&at("x")).exists(), "a refused export leaves nothing");
    fs::write(at("there"), "mine").expect("own folder");
    refused(&["export", &trace, "--to", "jsonl", "-o", &at("there")], &["there exists", "--force"]);
    refused(&["export", &trace, "--to", "parquet", "-o", place.path().to_str().expect("own path")], &["not empty"]);
    assert_eq!(fs::read_to_string(at("there")).expect("there"), "mine");
    succeeds(&["export", &trace, "--to", "jsonl", "-o", &at("there"), "--force"]);

    refused(&["import", &at("small.yaml"), "-o", &at("y")], &["small.yaml", "JSON Lines"]);
    refused(&["import", &at("nowhere"), "-o", &at("y")], &["nowhere"]);
    refused(&["import", &at("there"), "-o", &trace], &["not empty"]);
    let mut text = fs::read_to_string(at("there")).expect("there");
    text.push_str(
        "{\"kind\":\"process\",\"host\":\"b\",\"pid\":1,\"start_time\":2}\n{\"kind\":\"call\",\"op\":\"barrier\"}\n",
    );
    let lines = text.lines().count();
    fs::write(at("wrong.jsonl"), &text).expect("own folder");
    let line = format!("wrong.jsonl line {lines}");
    refused(&["import", &at("wrong.jsonl"), "-o", &at("y")], &[&line, "missing field `thread`"]);
    refused(&["analyze", &at("wrong.jsonl")], &[&line]);
    assert!(!Path::new(&at("y")).exists(), "a refused import leaves nothing");
    fs::write(at("newer.jsonl"), text.replacen("\"1.0\"", "\"7.0\"", 1)).expect("own folder");
    refused(&["import", &at("newer.jsonl"), "-o", &at("y")], &["7.0", "this build reads 1.0"]);
}

/// Names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("own folder");
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ends a command once something of it is in the empty `dir`: nothing may stay.
fn ends_clean(dir: &Path, words: &[&str], signal: Signal) {
    let mut running = process::start(rankdiff().args(words).env("TMPDIR", dir));
    let until = Instant::now() + LIMIT;
    while names(dir).is_empty() {
        assert!(Instant::now() < until, "{}: no draft", words.join(" "));
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(signal);
    let ended = running.wait(LIMIT).expect("it ends by the signal");
    assert_eq!(ended.code, 128 + signal.as_raw(), "{}: {}", words.join(" "), ended.stderr);
    assert_eq!(names(dir), Vec::<String>::new(), "{}", words.join(" "));
}

#[test]
fn a_command_that_is_ended_leaves_no_draft() {
    let place = Place::new();
    let scenario = place.path().join("long.yaml");
    fs::write(&scenario, SCENARIO.replace("repeat: 40", "repeat: 20000")).expect("own folder");
    let trace = text(&place.trace());
    succeeds(&["synth", &text(&scenario), "-o", &trace]);
    let lines = text(&place.path().join("long.jsonl"));
    succeeds(&["export", &trace, "--to", "jsonl", "-o", &lines]);
    let dir = place.path().join("own");
    fs::create_dir(&dir).expect("own folder");
    ends_clean(&dir, &["analyze", &lines], Signal::INT);
    let (file, tables) = (dir.join("again.jsonl"), dir.join("tables"));
    ends_clean(&dir, &["export", &trace, "--to", "jsonl", "-o", &text(&file)], Signal::INT);
    ends_clean(&dir, &["export", &trace, "--to", "parquet", "-o", &text(&tables)], Signal::TERM);
    ends_clean(&dir, &["import", &lines, "-o", &text(&dir.join("imported"))], Signal::TERM);
    let (grid, packed) = (text(&place.path().join("grid")), text(&place.path().join("grid.rdpack")));
    succeeds(&["synth", "--grid", "tp=8,pp=4,dp=64", "--calls", "6000", "-o", &grid]);
    ends_clean(&dir, &["pack", &grid, "-o", &text(&dir.join("again.rdpack"))], Signal::INT);
    succeeds(&["pack", &grid, "-o", &packed]);
    ends_clean(&dir, &["pack", "--unpack", &packed, "-o", &text(&dir.join("unpacked"))], Signal::TERM);
}
