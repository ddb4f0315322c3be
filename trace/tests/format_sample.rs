//! Samples of the format: directories that hold everything a trace can hold, with their content beside them. Every
//! version of this crate reads every committed sample to exactly its content.
//!
//! `tests/corpus/format/MAJOR.MINOR/` are the samples; `cargo xtask sample --write` adds the one of this version. The
//! same sample is made anew in every run and compared with `trace/tests/data/sample.jsonl`, so that a change of the
//! format is seen before it is frozen; `RANKDIFF_UPDATE_GOLDEN=1` accepts one.

#[path = "common/json.rs"]
mod json;
#[path = "common/sample.rs"]
mod sample;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankdiff_trace::{
    BlockReader, Completion, DType, FORMAT_MAJOR, FORMAT_MINOR, JobDir, JobInfo, Keep, Op, RedOp, Retention,
    StreamWriter, TailOptions, TraceDir, WriterOptions, write_job_info,
};

/// Content of a sample, beside its files.
const CONTENT: &str = "content.jsonl";

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes the sample: rank 0 in several segments, of which the oldest is expired, closed; rank 1 as it is left by a
/// writer that is killed, with its live tail.
fn write(dir: &Path) {
    for rank in 0..sample::RANKS {
        let info = JobInfo {
            format_version: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
            recorder_version: "0.0.0".to_owned(),
            host: sample::key(rank).host,
            job_id: "sample".to_owned(),
            command: vec!["train".to_owned(), "--lr=0.1".to_owned()],
            world: Some(sample::RANKS),
            start_realtime: 1_700_000_000_000_000_000,
            boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
            stall_after_ms: Some(90_000),
            ..JobInfo::default()
        };
        write_job_info(dir, &info).expect("write");
        let trace = TraceDir::open(dir).expect("open");
        let trace = Arc::new(if rank == 0 { trace.with_retention() } else { trace });
        let (block_calls, tail) = if rank == 0 { (64, None) } else { (512, Some(TailOptions { rows: 1024 })) };
        let job_id = "sample".to_owned();
        let options = WriterOptions { job_id, block_calls, segment_bytes: 3000, tail, ..WriterOptions::default() };
        let mut writer =
            StreamWriter::create_in(&trace, &sample::key(rank), sample::clock(1), &options).expect("create");
        for record in sample::records(rank) {
            writer.write(record).expect("write");
        }
        if rank == 0 {
            let summary = writer.close().expect("close");
            assert!(summary.segments >= 3, "only {} segments", summary.segments);
            let kept = Keep::Bytes(summary.bytes - 1);
            let mut retention = Retention::new(kept);
            retention.enforce(&trace).expect("the oldest segment expires");
            assert_eq!(retention.dropped().segments, 1);
        } else {
            std::mem::forget(writer);
        }
    }
}

/// What a directory holds, as text.
fn content(dir: &Path) -> String {
    let job = JobDir::open(dir).expect("open");
    assert_eq!(job.problems(), []);
    let mut text = String::new();
    for info in job.infos() {
        let line = serde_json::to_string(info).expect("it came from JSON");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    for stream in job.streams() {
        let outcome = stream.read();
        assert_eq!(outcome.problems, []);
        for line in json::lines(&outcome.trace) {
            let _ = writeln!(text, "{}", without_absent(line));
        }
        let end = serde_json::json!({"record": "stream", "host": stream.key.host, "pid": stream.key.pid,
            "start_time": stream.key.start_time, "session": stream.session, "closed": outcome.trace.closed,
            "unjoined": outcome.orphan_returns});
        let _ = writeln!(text, "{end}");
    }
    text
}

/// A record without the fields that say nothing.
fn without_absent(mut line: serde_json::Value) -> serde_json::Value {
    if let serde_json::Value::Object(fields) = &mut line {
        fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
    }
    line
}

fn compare(found: &str, expected: &str, what: &Path) {
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {}", number + 1, what.display());
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{}", what.display());
}

#[test]
fn the_sample_of_this_version() {
    let dir = tempfile::tempdir().expect("temporary directory");
    write(dir.path());
    let found = content(dir.path());
    let golden = data("tests/data/sample.jsonl");
    if std::env::var_os("RANKDIFF_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &found).expect("write");
    }
    let expected = std::fs::read_to_string(&golden).expect("the content is committed");
    compare(&found, &expected, &golden);
    // For `cargo xtask sample --write`: a version's sample is written once.
    if let Some(target) = std::env::var_os("RANKDIFF_WRITE_SAMPLE").map(PathBuf::from) {
        std::fs::create_dir_all(target.parent().expect("it is below a folder")).expect("create");
        std::fs::create_dir(&target).expect("the sample of this version is not there yet");
        for entry in std::fs::read_dir(dir.path()).expect("list") {
            let entry = entry.expect("entry");
            std::fs::copy(entry.path(), target.join(entry.file_name())).expect("copy");
        }
        std::fs::write(target.join(CONTENT), found).expect("write");
    }
}

#[test]
fn every_committed_sample_reads_as_it_did() {
    let Ok(versions) = std::fs::read_dir(data("../tests/corpus/format")) else {
        // Before the first version is frozen there is none.
        assert_eq!(FORMAT_MAJOR, 0, "a frozen format has its sample: cargo xtask sample --write");
        return;
    };
    let mut seen = 0;
    for version in versions {
        let path = version.expect("entry").path();
        let expected = std::fs::read_to_string(path.join(CONTENT)).expect("a sample has its content");
        compare(&content(&path), &expected, &path);
        seen += 1;
    }
    assert!(seen > 0);
}

/// The sample would prove little if it lacked something.
#[test]
fn the_sample_holds_everything() {
    let dir = tempfile::tempdir().expect("temporary directory");
    write(dir.path());
    let job = JobDir::open(dir.path()).expect("open");
    let mut kinds = BTreeSet::new();
    let mut flags = 0;
    for path in job.streams().iter().flat_map(|stream| &stream.segments) {
        let mut reader = BlockReader::open(path).expect("open");
        while let Some(block) = reader.next_block().expect("whole") {
            kinds.insert(block.header().kind.0);
            flags |= block.header().flags;
        }
    }
    let known: BTreeSet<u16> = (0..=u16::MAX).filter(|&kind| rankdiff_trace::BlockKind(kind).is_known()).collect();
    assert_eq!(kinds, known, "kinds of blocks");
    assert_eq!(flags, 0b1_0000_0011, "flags of blocks");
    assert!(job.streams().iter().any(|stream| stream.tail.is_some()));
    let traces: Vec<_> = job.streams().iter().map(|stream| stream.read().trace).collect();
    // The tail holds what no block does.
    let [_, killed] = traces.as_slice() else { panic!("{} streams", traces.len()) };
    let made = sample::records(1).into_iter().filter(|record| matches!(record, rankdiff_trace::Record::Call(_)));
    assert_eq!(killed.calls.len(), made.count());
    let calls = || traces.iter().flat_map(|trace| &trace.calls);
    let ops: BTreeSet<Op> = calls().map(|call| call.op).collect();
    assert!(Op::ALL.iter().all(|op| ops.contains(op)), "operations: {ops:?}");
    for (what, found) in [
        ("a derived type", calls().any(|call| matches!(call.dtype, DType::Derived(_)))),
        ("a raw type", calls().any(|call| matches!(call.dtype, DType::Raw(_)))),
        ("a dynamic reduction", calls().any(|call| call.redop == RedOp::Dynamic)),
        ("a raw reduction", calls().any(|call| matches!(call.redop, RedOp::Raw(_)))),
        ("a completion", calls().any(|call| matches!(call.completion, Completion::At(_)))),
        ("a pending call", calls().any(|call| call.completion == Completion::Pending)),
        ("a tag", calls().any(|call| call.tag.is_some() && call.peer.is_some())),
        ("vectors", calls().any(|call| !call.sends.is_empty() && !call.recvs.is_empty())),
        ("a batch", calls().any(|call| call.group > 0)),
        ("a call that did not return", calls().any(|call| call.exit.is_none())),
    ] {
        assert!(found, "the sample lacks {what}");
    }
    let bits = calls().fold(0, |bits, call| bits | call.flags.0);
    assert_eq!(bits, (1 << 14) - 1, "flags of calls");
}
