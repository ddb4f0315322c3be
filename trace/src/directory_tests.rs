//! What is created belongs to whom, what is followed, and that the limit holds.

use std::sync::Arc;

use super::{Owner, TraceDir};
use crate::call::Call;
use crate::evidence::{ClockSnapshot, GapCause, LogLine};
use crate::job::JobDir;
use crate::stream::{ProcessKey, Record};
use crate::writer::{StreamWriter, WriterOptions};

/// Says why a test that only root can run is not run, and whether it must be.
#[cfg(unix)]
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let required = std::env::var_os("RANKDIFF_REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "{test} may not be skipped: it needs root");
        eprintln!("SKIPPED {test}: it needs root");
    }
    root
}

#[test]
fn names_that_lead_away_are_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let opened = TraceDir::open(dir.path()).expect("it is there");
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"] {
        assert!(opened.create_file(name).is_err(), "{name:?}");
        assert!(opened.open_file(name).is_err(), "{name:?}");
        assert!(opened.rename(name, "x").is_err(), "{name:?}");
        assert!(opened.remove(name).is_err(), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
}

#[cfg(unix)]
#[test]
fn links_and_pipes_are_neither_written_through_nor_read() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let dir = tempfile::tempdir().expect("temporary directory");
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").expect("write");
    let trace = dir.path().join("a/trace");
    let opened = TraceDir::create(&trace, None).expect("new directories");
    assert_eq!(std::fs::metadata(&trace).expect("made").permissions().mode() & 0o777, 0o700);
    symlink(&victim, trace.join("link")).expect("link");
    symlink(dir.path().join("nothing"), trace.join("dangling")).expect("link");
    for name in ["link", "dangling"] {
        assert!(opened.create_file(name).is_err(), "{name}");
        assert!(opened.open_file(name).is_err(), "{name}");
    }
    assert!(!dir.path().join("nothing").exists());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        trace.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    assert!(opened.open_file("pipe").is_err(), "a pipe would make the reader wait");
    // Over a link, a rename replaces the link.
    drop(opened.create_file("draft").expect("a free name"));
    opened.rename("draft", "link").expect("rename");
    assert_eq!(std::fs::read_to_string(&victim).expect("still there"), "precious");
    assert!(!std::fs::symlink_metadata(trace.join("link")).expect("renamed").is_symlink());
    opened.remove("dangling").expect("the link itself");
}

#[cfg(target_os = "linux")]
#[test]
fn root_follows_no_link_that_somebody_else_could_have_made() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    if !is_root("root_follows_no_link_that_somebody_else_could_have_made") {
        return;
    }
    const NOBODY: u32 = 65534;
    let owner = Some(Owner { uid: NOBODY, gid: NOBODY });
    let dir = tempfile::tempdir().expect("temporary directory");
    let home = dir.path().join("home");
    let system = dir.path().join("system");
    for made in [&home, &system] {
        std::fs::create_dir(made).expect("create");
    }
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("chown");
    // The user lets a name in their own directory lead into root's.
    symlink(&system, home.join("trap")).expect("link");
    for path in [home.join("trap"), home.join("trap/trace"), home.join("./trap/../trap/x")] {
        let error = TraceDir::create(&path, owner).expect_err("a trap").to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }
    assert_eq!(std::fs::read_dir(&system).expect("list").count(), 0);
    // Root's own link, where only root writes, is part of the system.
    symlink(&home, dir.path().join("moved")).expect("link");
    let made = TraceDir::create(&dir.path().join("moved/deep/trace"), owner).expect("root's link");
    drop(made.create_file("x.rdt").expect("a free name"));
    assert!(made.is_given());
    for path in ["deep", "deep/trace", "deep/trace/x.rdt"] {
        let found = std::fs::symlink_metadata(home.join(path)).expect("made");
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{path}");
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.mode() & 0o7777, expected, "{path}");
    }
    // What was there before stays whose it was.
    assert_eq!(std::fs::metadata(&system).expect("there").uid(), 0);
    drop(TraceDir::create(&system, owner).expect("a directory that is there"));
    assert_eq!(std::fs::metadata(&system).expect("there").uid(), 0);
    // A link that somebody else owns is not trusted in a shared directory either, sticky or not.
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).expect("create");
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("chmod");
    symlink(&system, shared.join("mine")).expect("link");
    std::os::unix::fs::lchown(shared.join("mine"), Some(NOBODY), Some(NOBODY)).expect("chown");
    assert!(TraceDir::create(&shared.join("mine"), owner).is_err());
    symlink(&system, shared.join("roots")).expect("link");
    assert!(TraceDir::create(&shared.join("roots"), owner).is_ok());
    symlink("loop", dir.path().join("loop")).expect("link");
    assert!(TraceDir::create(&dir.path().join("loop"), owner).is_err(), "a link to itself ends");
}

#[test]
fn room_is_claimed_before_it_is_used() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let opened = TraceDir::open(dir.path()).expect("it is there").with_limit(1000);
    opened.claim(600).expect("fits");
    assert!(opened.claim(500).is_err());
    assert_eq!(opened.used(), 600, "nothing is taken where not all of it fits");
    assert!(!opened.is_full());
    opened.claim(300).expect("fits");
    assert!(opened.is_full(), "the last eighth is for what says how it ended");
    opened.claim(100).expect("which can still be written");
    opened.release(150);
    assert!(opened.is_full(), "and it takes more than a little room to go on");
    opened.release(200);
    assert!(!opened.is_full());
    assert_eq!(opened.used(), 650);
    opened.release(u64::MAX);
    assert_eq!(opened.used(), 0);
}

#[test]
fn a_limit_stops_calls_and_is_told_as_a_gap() {
    const LIMIT: u64 = 64 << 10;
    let dir = tempfile::tempdir().expect("temporary directory");
    let opened = Arc::new(TraceDir::open(dir.path()).expect("it is there").with_limit(LIMIT));
    let options = WriterOptions { block_calls: 64, ..WriterOptions::default() };
    let mut writers: Vec<StreamWriter> = (1..=2)
        .map(|pid| {
            let key = ProcessKey { host: "n0".to_owned(), pid, start_time: 9 };
            StreamWriter::create_in(&opened, &key, ClockSnapshot::default(), &options).expect("create")
        })
        .collect();
    let mut random = 1_u64;
    for seq in 0..40_000_u64 {
        for writer in &mut writers {
            // Numbers that do not compress.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let call = Call {
                seq: Some(seq),
                count: Some(random),
                enter: seq * 1000 + 1,
                exit: Some(seq * 1000 + 2 + random % 900),
                thread: 1,
                thread_seq: seq,
                ..Call::default()
            };
            writer.write(Record::Call(call)).expect("calls without room are counted, not refused");
        }
    }
    assert!(opened.is_full());
    for writer in &mut writers {
        let line = LogLine { at: 40_000_001, text: "what it was doing".to_owned() };
        writer.write(Record::Log(line)).expect("there is room for evidence");
    }
    let mut lost = Vec::new();
    for writer in writers {
        lost.push(writer.close().expect("there is room for the end").lost_calls);
    }
    let bytes: u64 = std::fs::read_dir(dir.path())
        .expect("list")
        .map(|entry| entry.expect("entry").metadata().expect("file").len())
        .sum();
    assert!(bytes <= LIMIT, "{bytes} bytes of {LIMIT}");
    assert_eq!(bytes, opened.used());
    let job = JobDir::open(dir.path()).expect("open");
    for (stream, lost) in job.streams().iter().zip(lost) {
        let outcome = stream.read();
        assert_eq!(outcome.problems, []);
        let trace = outcome.trace;
        assert!(trace.closed && lost > 0);
        assert_eq!(trace.logs.len(), 1);
        assert_eq!(trace.calls.len() as u64 + lost, 40_000);
        let seqs: Vec<u64> = trace.calls.iter().filter_map(|call| call.seq).collect();
        assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "what is there is the beginning");
        let gaps: Vec<_> = trace.gaps.iter().map(|gap| (gap.cause, gap.events)).collect();
        assert_eq!(gaps, [(GapCause::DiskFull, Some(lost))]);
    }
}
