//! Python call sites: what is recorded against what the program itself says of its stack, call by call, for every
//! version of CPython from 3.9 on that is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankdiff_tests::examples::{Flavour, cpuccl, folder, slot};
use rankdiff_tests::recorder::{Place, record};
use rankdiff_tests::{is_privileged, repetitions, report, root, skipped};
use rankdiff_trace::{Frame, FrameKind, JobDir};
use rankdiff_tracer::interpreter::{LineFormat, line_of};
use serde_json::Value;

/// Minor versions that must be right.
const VERSIONS: std::ops::RangeInclusive<u32> = 9..=13;
/// Frames of a stack that are recorded at most.
const WALKED: usize = 40;

/// What the program logged of one call.
#[derive(Debug, Clone, PartialEq)]
struct Logged {
    /// Made by a thread without Python state.
    is_native: bool,
    /// Function, file, line, outermost first.
    frames: Vec<(String, String, u32)>,
}

/// The calls of a job by process and count.
type Calls<T> = BTreeMap<(u32, u64), T>;

/// How the recorded sites compare.
#[derive(Debug, Default)]
struct Compared {
    right: usize,
    /// Without frames, and with a reason.
    unknown: Vec<String>,
    wrong: Vec<String>,
}

/// An interpreter of this minor version that runs.
fn interpreter(minor: u32) -> Option<PathBuf> {
    let name = format!("python3.{minor}");
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    let mut installed: Vec<PathBuf> = std::fs::read_dir(pyenv.join("versions"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin").join(&name))
        .collect();
    installed.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    installed.extend(std::env::split_paths(&path).map(|folder| folder.join(&name)));
    installed.into_iter().find(|python| {
        // A shim is there for versions that are not.
        let runs = Command::new(python).args(["-c", "import ctypes, sys; print(sys.version_info[1])"]).output();
        runs.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == minor.to_string())
    })
}

/// The C library that makes calls from threads of its own.
fn helper() -> PathBuf {
    let library = folder().join("libpython_helper.so");
    let status = Command::new("cc")
        .args(["-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-pthread", "-o"])
        .arg(&library)
        .arg(root().join("tests/suite/python/helper.c"))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the helper does not build");
    library
}

/// Records a run of the program and compares every call's site.
fn run(python: &Path, mode: &str, calls: u32, helper: &Path) -> Compared {
    let place = Place::new();
    let script = root().join("tests/suite/python/calls.py");
    let job: Vec<String> = [python, &script]
        .into_iter()
        .map(|path| path.display().to_string())
        .chain([mode.to_owned()])
        .chain([&cpuccl(), helper, &place.logs()].map(|path| path.display().to_string()))
        .chain([calls.to_string()])
        .collect();
    let ended = record(&mut place.record(&["--timeout", "100s"], &job));
    assert_eq!(ended.code, 0, "{}: {}", python.display(), ended.stderr);
    let compared = compare(&logged(&place.logs()), &recorded(&place.trace()));
    if !compared.wrong.is_empty() {
        let kept = place.keep();
        panic!("{} {mode}: trace kept: {}\n{}", python.display(), kept.display(), compared.wrong.join("\n"));
    }
    compared
}

fn logged(folder: &Path) -> Calls<Logged> {
    let mut calls = Calls::new();
    for entry in std::fs::read_dir(folder).expect("the logs' folder").flatten() {
        for line in std::fs::read_to_string(entry.path()).expect("a log is text").lines() {
            let value: Value = serde_json::from_str(line).expect("a line is JSON");
            let number = |key: &str| value[key].as_u64().expect("a number");
            let frame = |frame: &Value| {
                let text = |at: usize| frame[at].as_str().map(str::to_owned);
                Some((text(0)?, text(1)?, u32::try_from(frame[2].as_u64()?).ok()?))
            };
            let frames = value["frames"].as_array().expect("frames");
            let frames = frames.iter().map(|value| frame(value).expect("a frame")).collect();
            let logged = Logged { is_native: value["kind"] == "native", frames };
            let before = calls.insert((number("pid") as u32, number("count")), logged);
            assert_eq!(before, None, "two calls of one number");
        }
    }
    calls
}

fn recorded(trace: &Path) -> Calls<Vec<Frame>> {
    let mut calls = Calls::new();
    for stream in JobDir::open(trace).expect("a trace").streams() {
        let trace = stream.read().trace;
        for call in trace.calls.iter().filter(|call| call.op.name() == "all_reduce") {
            let frames = trace.site(call.site).map(|site| site.frames.clone()).unwrap_or_default();
            let before = calls.insert((trace.key.pid, call.count.expect("a count")), frames);
            assert_eq!(before, None, "a call was recorded twice");
        }
    }
    calls
}

fn compare(logged: &Calls<Logged>, recorded: &Calls<Vec<Frame>>) -> Compared {
    let mut compared = Compared::default();
    assert!(!logged.is_empty(), "the program made no calls");
    assert!(logged.keys().eq(recorded.keys()), "{} calls were made, {} recorded", logged.len(), recorded.len());
    for (call, expected) in logged {
        let frames = &recorded[call];
        let python: Vec<(String, String, u32)> = frames
            .iter()
            .filter(|frame| frame.kind == FrameKind::Python)
            .map(|frame| (frame.function.clone(), frame.file.clone(), frame.line))
            .collect();
        let notes: Vec<&str> =
            frames.iter().filter(|frame| frame.kind == FrameKind::Text).map(|frame| frame.function.as_str()).collect();
        let is_right = if expected.is_native {
            // Not the caller's frames, but context: what the main thread was doing.
            let (function, file, line) = expected.frames.last().expect("a frame");
            let file = file.rsplit('/').next().unwrap_or_default();
            let inner = format!("main thread in {function} ({file}, line {line})");
            python.is_empty() && notes.last() == Some(&"thread native_worker") && notes.contains(&inner.as_str())
        } else if let Some(cut) = notes.iter().find(|note| note.contains("left out")) {
            // The innermost are there; some slots may be the interpreter's own.
            let outer = expected.frames.len().saturating_sub(python.len());
            assert!(cut.contains("more than 40"));
            python.len() > WALKED / 2 && expected.frames.len() > python.len() && expected.frames[outer..] == python[..]
        } else {
            python == expected.frames
        };
        if is_right {
            compared.right += 1;
        } else if python.is_empty() && !expected.is_native {
            compared.unknown.push(format!("{call:?}: {}", notes.first().unwrap_or(&"(no interpreter known yet)")));
        } else {
            compared.wrong.push(format!("{call:?}: {frames:?}\n  expected {expected:?}"));
        }
    }
    compared.wrong.truncate(3);
    compared
}

/// Every version that is installed; one that is missing is said to be, and one at least must be there.
#[expect(clippy::print_stderr, reason = "what is not tested is said")]
fn versions(test: &str) -> Vec<(u32, PathBuf)> {
    let (found, missing): (Vec<_>, Vec<_>) =
        VERSIONS.map(|minor| (minor, interpreter(minor))).partition(|(_, found)| found.is_some());
    for (minor, _) in missing {
        eprintln!("SKIPPED {test} for Python 3.{minor}: it is not installed");
    }
    if found.is_empty() {
        skipped(test, "no Python of a version that is read is installed");
    }
    found.into_iter().filter_map(|(minor, python)| Some((minor, python?))).collect()
}

fn check(test: &str, mode: &str, calls: u32) {
    let (true, Some(_)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let helper = helper();
    for (minor, python) in versions(test) {
        let _slot = slot();
        let compared = run(&python, mode, calls, &helper);
        let total = compared.right + compared.unknown.len();
        assert!(
            compared.unknown.len() * 200 <= total,
            "Python 3.{minor} {mode}: {} of {total} sites are unknown: {:?}",
            compared.unknown.len(),
            compared.unknown.iter().take(5).collect::<Vec<_>>()
        );
        report(&format!(
            "Python 3.{minor}, {mode}: {} sites right, {} unknown, 0 wrong",
            compared.right,
            compared.unknown.len()
        ));
    }
}

#[test]
fn every_call_has_the_lines_that_python_itself_names_repeated() {
    check("every_call_has_the_lines_that_python_itself_names_repeated", "shapes", repetitions(1) * 500);
}

#[test]
fn threads_and_processes_under_load_are_not_mixed_up_repeated() {
    check("threads_and_processes_under_load_are_not_mixed_up_repeated", "crowd", repetitions(1) * 640);
}

#[test]
fn line_tables_are_read_as_each_version_reads_its_own() {
    for (minor, python) in versions("line_tables_are_read_as_each_version_reads_its_own") {
        let format = match minor {
            9 => LineFormat::Lnotab,
            10 => LineFormat::Linetable,
            _ => LineFormat::Locations,
        };
        let output = Command::new(&python).arg(root().join("tests/suite/python/lines.py")).output();
        let output = output.expect("the interpreter ran before");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut instructions = 0;
        for text in String::from_utf8(output.stdout).expect("text").lines() {
            let code: Value = serde_json::from_str(text).expect("a line is JSON");
            let first = u32::try_from(code[0].as_u64().expect("first line")).expect("a line");
            let table = unhex(code[1].as_str().expect("table"));
            for pair in code[2].as_array().expect("lines") {
                let offset = pair[0].as_i64().expect("an offset");
                let expected = pair[1].as_u64().and_then(|line| u32::try_from(line).ok());
                assert_eq!(
                    line_of(format, &table, first, offset),
                    expected.filter(|&line| line > 0),
                    "3.{minor}: first line {first}, offset {offset}, table {table:02x?}"
                );
                instructions += 1;
            }
        }
        assert!(instructions > 50_000, "3.{minor}: only {instructions} instructions");
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
