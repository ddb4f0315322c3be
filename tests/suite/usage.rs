//! What users do wrong and what they ask for: each mistake gets a message that says what to do, and its exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankdiff_tests::examples::{Flavour, cpuccl, on_path, slot};
use rankdiff_tests::process::{self, Ended};
use rankdiff_tests::recorder::{LIMIT, Place, rankdiff, run};
use rankdiff_tests::{binary, is_privileged, root, skipped};

/// A command line is refused with this code, and its message holds all of these words.
fn refused(arguments: &[&str], code: i32, words: &[&str]) -> Ended {
    says(run(arguments), &arguments.join(" "), code, words)
}

fn says(ended: Ended, title: &str, code: i32, words: &[&str]) -> Ended {
    assert_eq!(ended.code, code, "{title}: {}\n{}", ended.stdout, ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{title}: '{word}' is missing in: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{title}: {}", ended.stderr);
    ended
}

/// A small trace, made from a scenario file.
fn small_trace(place: &Place) -> PathBuf {
    let scenario = place.path().join("small.yaml");
    let text = "id: small\nworld: 2\nblocking: true\ngroups: {world: [0,1]}\nstreams: {\"0-1\": [{repeat: 200, do: [all_reduce 8 f32 @world job.c:1:step]}]}\nend: {\"0-1\": {exited: 0, t: 9000}}\nverdict: {class: clean}\n";
    fs::write(&scenario, text).expect("own folder");
    let trace = place.trace();
    let made = run([Path::new("synth"), &scenario, Path::new("-o"), &trace]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    trace
}

fn segments(trace: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(trace).expect("a trace").flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rdt"));
    found.sort();
    found
}

#[test]
fn wrong_words_are_refused() {
    refused(&["frobnicate"], 2, &["frobnicate", "--help"]);
    refused(&["analyze", "--no-such-flag"], 2, &["--no-such-flag"]);
    refused(&["record"], 2, &["CMD"]);
    refused(&["record", "--ring", "3", "--", "true"], 2, &["power of two"]);
    refused(&["record", "--timeout", "5 parsecs", "--", "true"], 2, &["parsecs", "use ms, s, m or h"]);
    refused(&["explain", "D999"], 2, &["D999", "rankdiff explain"]);
    refused(&["completions", "nosuchshell"], 2, &["nosuchshell"]);
    let place = Place::new();
    let trace = small_trace(&place).display().to_string();
    refused(&["analyze", &trace, "--format", "nonsense"], 2, &["nonsense", "full", "concise", "json"]);
    refused(&["show", &trace, "--rank", "7-"], 2, &["7-"]);
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name).display().to_string();
    for command in ["analyze", "show"] {
        refused(&[command, &at("nowhere")], 2, &["nowhere"]);
        fs::create_dir_all(at("nothing")).expect("own folder");
        refused(&[command, &at("nothing")], 2, &["nothing", "no trace", "rankdiff record"]);
        fs::write(at("empty.rdt"), "").expect("own folder");
        refused(&[command, &at("empty.rdt")], 2, &["empty.rdt", "empty"]);
        fs::write(at("foreign.rdt"), "#!/bin/sh\necho no trace at all, and long enough to be one\n")
            .expect("own folder");
        refused(&[command, &at("foreign.rdt")], 2, &["foreign.rdt", "not a rankdiff trace"]);
    }
    let mut command = rankdiff();
    let ended = process::run(command.arg("analyze").current_dir(place.path()), LIMIT);
    says(ended, "analyze without a path", 2, &["no trace given", "rankdiff record"]);
}

#[test]
fn a_trace_of_another_version_is_refused_with_both_numbers() {
    let place = Place::new();
    let trace = small_trace(&place);
    for path in segments(&trace) {
        let mut bytes = fs::read(&path).expect("a segment");
        bytes[8..10].copy_from_slice(&77_u16.to_le_bytes());
        fs::write(&path, bytes).expect("own folder");
    }
    let known = "this build reads";
    refused(&["analyze", &trace.display().to_string()], 2, &["77.", known]);
    refused(&["show", &trace.display().to_string()], 2, &["77.", known]);
}

#[test]
fn a_cut_trace_is_read_as_far_as_it_goes() {
    let place = Place::new();
    let trace = small_trace(&place);
    let path = segments(&trace).swap_remove(0);
    let whole = fs::read(&path).expect("a segment");
    let all = place.calls().len();
    assert_eq!(all, 400, "the scenario has 2 x 200 calls");
    for cut in [whole.len() - 1, whole.len() - 40, whole.len() / 2] {
        fs::write(&path, &whole[..cut]).expect("own folder");
        let verdict = place.analyze(&[]);
        assert_eq!(verdict.code, 0, "cut at {cut} of {}: no fault of the job\n{verdict}", whole.len());
        let said = verdict.text.to_lowercase();
        assert!(said.contains("torn") || said.contains("truncated") || said.contains("cut"), "cut at {cut}: {verdict}");
        assert!(place.calls().len() <= all, "cut at {cut}: there are more calls than before");
    }
    assert!(place.calls().len() < all, "half of the file holds all calls");
}

#[test]
fn what_cannot_be_probed_is_said() {
    refused(&["list-probes", "4194304"], 2, &["no such process", "4194304"]);
    refused(&["list-probes", "/etc/passwd"], 2, &["/etc/passwd"]);
    refused(&["list-probes", "/no/such/file.so"], 2, &["/no/such/file.so"]);
    refused(&["list-probes", "/bin/sh"], 2, &["no collective library"]);
    refused(&["list-probes", &std::process::id().to_string()], 2, &["no collective library"]);
}

#[test]
fn probes_of_libraries_and_processes_are_listed() {
    let test = "list_probes";
    let (Some(dynamic), Some(inside)) = (Flavour::Dynamic.build(test), Flavour::Static.build(test)) else { return };
    for file in [cpuccl(), inside.clone()] {
        let listed = run([Path::new("list-probes"), &file]);
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        for function in ["ncclAllReduce", "ncclCommInitRank", "ncclGroupEnd"] {
            assert!(listed.stdout.contains(function), "{function} is missing: {}", listed.stdout);
        }
    }
    let place = Place::new();
    let mut job = Command::new(&dynamic);
    job.args(["plain", "--ranks", "1", "--iters", "10000000"]);
    place.prepare(&mut job);
    let job = process::start(job.env_remove("RANKDIFF_JOB_LOG"));
    let listed = process::wait_until("the job's library", LIMIT, || {
        let listed = run(["list-probes", &job.pid().to_string()]);
        (listed.code == 0).then_some(listed)
    });
    assert!(listed.stdout.contains("libcpuccl.so") && listed.stdout.contains("ncclAllReduce"), "{}", listed.stdout);

    if !on_path("strip") {
        skipped(test, "there is no strip");
        return;
    }
    // A program without symbols holds the library all the same, but nobody can find it.
    let stripped = place.path().join("stripped");
    let status = Command::new("strip").args(["--strip-all", "-o"]).args([&stripped, &inside]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let listed = run([Path::new("list-probes"), &stripped]);
    let said = format!("{}{}", listed.stdout, listed.stderr).to_lowercase();
    assert!(listed.code == 2 && said.contains("strip"), "exit code {}: {said}", listed.code);
    // A shared library keeps the symbols that programs are linked by.
    let library = place.path().join("libstripped.so");
    let status = Command::new("strip").args(["--strip-all", "-o"]).args([&library, &cpuccl()]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let listed = run([Path::new("list-probes"), &library]);
    assert!(listed.code == 0 && listed.stdout.contains("ncclAllReduce"), "{}{}", listed.stdout, listed.stderr);
}

#[test]
fn the_jobs_own_code_is_passed_on() {
    if !is_privileged("exit_codes") {
        return;
    }
    let _slot = slot();
    for (script, code) in
        [("exit 0", 0), ("exit 37", 37), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        let place = Place::new();
        let ended = process::run(&mut place.record(&[], &["sh", "-c", script].map(str::to_owned)), LIMIT);
        says(ended, script, code, &["no call of a known collective library", "--library"]);
    }
    let place = Place::new();
    let job = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let ended = process::run(&mut place.record(&["--timeout", "500ms"], &job(&["sleep", "60"])), LIMIT);
    says(ended, "sleep", 124, &["--timeout has passed"]);
    let ended = process::run(&mut place.record(&[], &job(&["/no/such/program"])), LIMIT);
    says(ended, "no program", 127, &["/no/such/program"]);
    let ended = process::run(&mut place.record(&[], &job(&["/etc/passwd"])), LIMIT);
    says(ended, "not executable", 126, &["/etc/passwd"]);
    let file = place.path().join("file");
    fs::write(&file, "").expect("own folder");
    let mut command = rankdiff();
    let ended = process::run(command.args(["record", "-o"]).arg(file.join("trace")).args(["--", "true"]), LIMIT);
    says(ended, "no folder", 125, &["cannot write a trace"]);
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    let test = "unprivileged";
    if !is_privileged(test) {
        return;
    }
    if !on_path("setpriv") {
        skipped(test, "there is no setpriv");
        return;
    }
    let place = Place::new();
    let trace = small_trace(&place);
    let copy = place.path().join("rankdiff");
    fs::copy(binary(), &copy).expect("room for a copy");
    let readable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("own file");
    [place.path(), &trace, &copy].into_iter().for_each(readable);
    fs::read_dir(&trace).expect("a trace").flatten().for_each(|entry| readable(&entry.path()));
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy).args(arguments);
        process::run(command.current_dir("/").env("NO_COLOR", "1"), LIMIT)
    };
    says(
        as_nobody(&["record", "-o", "/tmp/never", "--", "true"]),
        "record",
        125,
        &["CAP_SYS_ADMIN", "sudo", "rankdiff doctor"],
    );
    assert!(!Path::new("/tmp/never").exists(), "nothing may be left of a refused recording");
    let doctor = as_nobody(&["doctor"]);
    assert!(format!("{}{}", doctor.stdout, doctor.stderr).contains("CAP_SYS_ADMIN"), "{}", doctor.stdout);
    // Reading needs no privilege.
    let read = as_nobody(&["analyze", &trace.display().to_string()]);
    assert_eq!(read.code, 0, "{}{}", read.stdout, read.stderr);
}

/// Commands by the program's own help.
fn commands() -> Vec<String> {
    let help = run(["--help"]).stdout;
    let list = help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list of commands");
    // Lines that go on with a description are indented further.
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_its_help_and_its_page() {
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    let place = Place::new();
    let pages = place.path().join("man");
    let made = run(["man", "--out", &pages.display().to_string()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for name in &commands {
        let help = run([name.as_str(), "--help"]);
        assert!(help.code == 0 && help.stdout.contains("Usage: "), "{name}: {}{}", help.stdout, help.stderr);
        let page = fs::read_to_string(pages.join(format!("rankdiff-{name}.1")));
        assert!(page.is_ok_and(|page| page.contains(".TH")), "{name} has no manual page");
    }
    assert!(run(["man"]).stdout.contains(".TH rankdiff"));
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).stdout;
        assert!(commands.iter().all(|name| script.contains(name.as_str())), "{shell}: a command is missing");
        if on_path(shell) {
            let file = place.path().join(shell);
            fs::write(&file, &script).expect("own folder");
            let checked = process::run(Command::new(shell).arg("-n").arg(&file), LIMIT);
            assert_eq!(checked.code, 0, "{shell}: {}", checked.stderr);
        }
    }
    assert!(run(["--version"]).stdout.starts_with("rankdiff "));
}

#[test]
fn every_code_is_explained() {
    let listed = run(["explain"]);
    assert_eq!(listed.code, 0);
    let codes: Vec<&str> = listed.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(codes.len() >= 20, "{codes:?}");
    for (number, line) in codes.iter().zip(listed.stdout.lines()) {
        let name = line.split_whitespace().nth(1).expect("a name beside the code");
        let by_code = run(["explain", number]);
        assert_eq!(by_code.code, 0, "{number}");
        for heading in ["## What", "## Why", "## How to fix"] {
            assert!(by_code.stdout.contains(heading), "{number}: {heading} is missing");
        }
        assert_eq!(by_code.stdout, run(["explain", name]).stdout, "{number} and {name} are explained differently");
        assert_eq!(by_code.stdout, run(["explain", &number.to_lowercase()]).stdout);
        let pages = fs::read_dir(root().join("docs/checks")).into_iter().flatten().flatten();
        assert!(
            pages.into_iter().any(|page| page.file_name().to_string_lossy().starts_with(number)),
            "{number} has no page"
        );
    }
}

#[test]
fn output_goes_where_it_belongs() {
    let place = Place::new();
    let trace = small_trace(&place).display().to_string();
    let plain = run(["analyze", &trace]);
    assert!(!plain.stdout.contains('\u{1b}') && !plain.stdout.is_empty(), "{}", plain.stdout);
    let colored = run(["--color", "always", "analyze", &trace]);
    assert!(colored.stdout.contains('\u{1b}'), "{}{}", colored.stdout, colored.stderr);
    let refused = run(["--color", "always", "analyze", "/nowhere"]);
    assert!(refused.stderr.contains('\u{1b}') && refused.code == 2, "{}", refused.stderr);
    assert_eq!(run(["analyze", &trace]).stdout, plain.stdout, "the same trace, another report");
    let concise = run(["analyze", &trace, "--format", "concise"]);
    assert!(concise.stdout.lines().count() <= 2, "{}", concise.stdout);
    // A reader that has enough ends it quietly.
    let script = format!("{} show {trace} | head -1", binary().display());
    let cut = process::run(Command::new("sh").args(["-c", &script]), LIMIT);
    assert_eq!((cut.code, cut.stdout.lines().count(), cut.stderr.as_str()), (0, 1, ""), "{}", cut.stderr);
}
