//! A second reader, written in Python from docs/format.md alone (tests/corpus/tools/read_rdt.py), reads what this crate
//! writes, to the last field, and finds every digest to be what the calls give.

mod common;
#[path = "common/json.rs"]
mod json;
#[path = "common/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rankdiff_trace::{
    Call, ClockSnapshot, CommDef, CommRef, DType, JobDir, ProcessKey, Record, StreamWriter, TypeDef, WriterOptions,
};
use serde_json::{Value, json};

/// A Python with the modules that the script needs: the first on PATH, or else the system's.
fn python() -> Option<PathBuf> {
    ["python3", "/usr/bin/python3"].into_iter().map(PathBuf::from).find(|python| {
        let imports = Command::new(python).args(["-c", "import zstandard, xxhash"]).output();
        imports.is_ok_and(|output| output.status.success())
    })
}

/// What the script prints for a directory: a list of its lines. `None` where it cannot run.
fn script(dir: &Path) -> Option<Vec<Value>> {
    let Some(python) = python() else {
        assert!(
            std::env::var_os("RANKDIFF_REQUIRE_PRIVILEGED").is_none(),
            "no python3 has zstandard and xxhash: cargo xtask setup installs them"
        );
        skipped();
        return None;
    };
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/tools/read_rdt.py");
    let output = Command::new(python).arg(tool).arg(dir).output().expect("it was started before");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    Some(lines)
}

#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn skipped() {
    eprintln!("skipped: no python3 has zstandard and xxhash");
}

/// Compares what both readers make of a directory; gives how many digests were checked.
fn compare(dir: &Path) -> Option<u64> {
    let mut lines_of = script(dir)?.into_iter();
    let mut checked = 0;
    for stream in JobDir::open(dir).expect("open").streams() {
        let outcome = stream.read();
        assert_eq!(outcome.problems, []);
        for (index, expected) in json::lines(&outcome.trace).into_iter().enumerate() {
            assert_eq!(lines_of.next(), Some(expected), "line {index} of process {}", stream.key.pid);
        }
        let summary = lines_of.next().expect("every stream has its last line");
        assert_eq!(summary["record"], json!("stream"), "more than there is: {summary}");
        assert_eq!(summary["wrong"], json!([]), "digests of process {}", stream.key.pid);
        assert_eq!(summary["problems"], json!([]));
        assert_eq!(summary["closed"], json!(outcome.trace.closed));
        assert_eq!(summary["unjoined"], json!(outcome.orphan_returns));
        checked += summary["checked"].as_u64().expect("a number");
    }
    assert_eq!(lines_of.next(), None);
    Some(checked)
}

fn write(dir: &Path, key: &ProcessKey, records: &[Record], options: &WriterOptions) {
    let clock = ClockSnapshot { monotonic: 1, boottime: 2, realtime: 3 };
    let mut writer = StreamWriter::create(dir, key, clock, options).expect("create");
    for record in records {
        writer.write(record.clone()).expect("write");
    }
    writer.close().expect("close");
}

#[test]
fn the_sample_with_everything_in_it() {
    for rank in 0..sample::RANKS {
        for (block_calls, segment_bytes) in [(4096, 64 << 20), (64, 4000)] {
            let dir = tempfile::tempdir().expect("temporary directory");
            let options = WriterOptions { block_calls, segment_bytes, ..WriterOptions::default() };
            write(dir.path(), &sample::key(rank), &sample::records(rank), &options);
            let Some(checked) = compare(dir.path()) else { return };
            assert!(checked >= 5, "only {checked} digests");
        }
    }
}

/// A member's view of a communicator grows while calls wait: digests are those of the view that stands before the call.
#[test]
fn definitions_that_change_between_calls() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let comm = |my_rank, size| Record::Comm(CommDef { id: CommRef(1), my_rank, size, ..CommDef::default() });
    let mut records = vec![comm(None, None)];
    for seq in 0..20 {
        if seq == 7 {
            records.push(comm(Some(1), None));
        }
        if seq == 13 {
            records.push(comm(Some(1), Some(2)));
        }
        records.push(Record::Call(Call {
            op: rankdiff_trace::Op::AllToAllV,
            comm: CommRef(1),
            seq: Some(seq),
            dtype: DType::Basic(rankdiff_trace::Basic::F32),
            sends: vec![seq; 2],
            recvs: vec![seq; 2],
            thread: 1,
            thread_seq: seq,
            ..Call::default()
        }));
    }
    write(dir.path(), &common::key(), &records, &WriterOptions::default());
    let read = JobDir::open(dir.path()).expect("open").streams()[0].read().trace;
    assert_eq!(read, common::expected(&records, true));
    let Some(checked) = compare(dir.path()) else { return };
    assert!(checked >= 2);
}

#[test]
fn arbitrary_streams() {
    let mut runner = TestRunner::deterministic();
    let dir = tempfile::tempdir().expect("temporary directory");
    for round in 0..60 {
        // A type is defined before it is used; the strategy knows no such order.
        let mut records: Vec<Record> = (1..4).map(|id| Record::Type(TypeDef { id, ..TypeDef::default() })).collect();
        records.extend(common::records(150).new_tree(&mut runner).expect("a stream").current());
        let options = WriterOptions {
            block_calls: [3, 20, 4096][round % 3],
            segment_bytes: [1, 3000, 64 << 20][round / 3 % 3],
            ..WriterOptions::default()
        };
        write(dir.path(), &ProcessKey { pid: round as u32, ..common::key() }, &records, &options);
    }
    let Some(checked) = compare(dir.path()) else { return };
    assert!(checked > 500, "only {checked} digests");
}
