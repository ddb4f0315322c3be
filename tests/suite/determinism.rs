//! Same bytes in, same bytes out: whatever the order of the files in their directory, the number of threads, and how often
//! it is run.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankdiff_tests::examples::on_path;
use rankdiff_tests::process;
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{LIMIT, Place, rankdiff, run};
use rankdiff_tests::{binary, root};

/// What is compared: every form of the report, in full and by digests, and the dump.
const COMMANDS: [&[&str]; 7] = [
    &["analyze"],
    &["analyze", "-v"],
    &["analyze", "--format", "json"],
    &["analyze", "--format", "concise", "--decode", "digests"],
    &["analyze", "--format", "json", "--decode", "digests"],
    &["dump"],
    &["dump", "--format", "json", "--all"],
];

/// Documents that between them have every part of a report.
const DOCUMENTS: [(&str, &str); 4] = [
    ("cases/h5-order-inversion.yaml", "H5b"),
    ("cases/h7-driver-stall.yaml", "H7"),
    ("checks/missing-call.yaml", "missing-call"),
    ("checks/rank-failed.yaml", "rank-failed-chain"),
];

fn synth(arguments: &[&OsStr], trace: &Path) {
    let ended = run([&[OsStr::new("synth")], arguments, &[OsStr::new("-o"), trace.as_os_str()]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// The job of each document, and one of 64 ranks with a planted fault.
fn traces(place: &Place) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for (file, id) in DOCUMENTS {
        let (file, trace) = (root().join("tests/corpus").join(file), place.path().join(id));
        synth(&[file.as_os_str(), "--case".as_ref(), id.as_ref()], &trace);
        made.push(trace);
    }
    let trace = place.path().join("grid");
    let words = ["--grid", "tp=4,pp=4,dp=4", "--calls", "3000", "--plant", "missing@2000:rank=41", "--blocking"];
    synth(&words.map(OsStr::new), &trace);
    made.push(trace);
    made
}

/// What a command says; a path in it would be that of the copy.
fn said(command: &mut Command, trace: &Path, words: &[&str]) -> Vec<u8> {
    let folder = trace.parent().expect("a folder");
    command.args(words).arg(trace.file_name().expect("a name")).current_dir(folder).env("COLUMNS", "100");
    let ended = process::run(command, LIMIT);
    assert!(ended.code == 0 || ended.code == 1, "{words:?}: {}", ended.stderr);
    assert!(!ended.stdout.is_empty(), "{words:?}");
    ended.stdout.into_bytes()
}

/// A copy whose files were made in an order of chance.
fn shuffled(trace: &Path, random: &mut Random) -> PathBuf {
    let copy = trace.with_extension("d").join(trace.file_name().expect("a name"));
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(&copy).expect("own folder");
    let mut files: Vec<PathBuf> = fs::read_dir(trace).expect("a trace").flatten().map(|entry| entry.path()).collect();
    files.sort();
    while !files.is_empty() {
        let file = files.swap_remove(random.within(0..files.len() as u32) as usize);
        fs::copy(&file, copy.join(file.file_name().expect("a name"))).expect("own folder");
    }
    copy
}

#[test]
fn order_of_files_threads_and_repetition_change_nothing() {
    let place = Place::new();
    let mut random = Random::new("determinism");
    // The first processor may not be ours.
    let can_pin = on_path("taskset")
        && Command::new("taskset").args(["-c", "0", "true"]).status().is_ok_and(|status| status.success());
    let mut compared = 0;
    for trace in traces(&place) {
        let copy = shuffled(&trace, &mut random);
        for words in COMMANDS {
            let title = format!("{} {words:?}", trace.display());
            let first = said(&mut rankdiff(), &trace, words);
            assert!(first == said(&mut rankdiff(), &trace, words), "{title}: another run");
            assert!(first == said(&mut rankdiff(), &copy, words), "{title}: another order of files");
            if can_pin {
                let mut pinned = Command::new("taskset");
                pinned.args(["-c", "0"]).arg(binary());
                assert!(first == said(&mut pinned, &trace, words), "{title}: one thread");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, (DOCUMENTS.len() + 1) * COMMANDS.len());
}
