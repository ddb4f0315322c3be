//! What is written is read again, however it is cut into blocks and segments.

mod common;

use std::path::Path;

use proptest::prelude::*;
use rankdiff_trace::{ClockSnapshot, JobDir, ReadOutcome, Record, StreamWriter, WriterOptions};

fn write(dir: &Path, records: &[Record], options: &WriterOptions, flush_every: usize) -> StreamWriter {
    let clock = ClockSnapshot { monotonic: 5, boottime: 6, realtime: 7 };
    let mut writer = StreamWriter::create(dir, &common::key(), clock, options).expect("create");
    for (index, record) in records.iter().enumerate() {
        writer.write(record.clone()).expect("write");
        if index % flush_every == flush_every - 1 {
            writer.flush().expect("flush");
        }
    }
    writer
}

fn read(dir: &Path) -> ReadOutcome {
    let job = JobDir::open(dir).expect("open");
    assert_eq!(job.problems(), &[]);
    assert_eq!(job.streams().len(), 1);
    job.streams()[0].read()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_records(
        records in common::records(80),
        block_calls in prop_oneof![1_usize..8, Just(4096)],
        segment_bytes in prop_oneof![Just(1_u64), 200_u64..3000, Just(64 << 20)],
        flush_every in prop_oneof![1_usize..10, Just(1000)],
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options = WriterOptions { block_calls, segment_bytes, ..WriterOptions::default() };
        let writer = write(dir.path(), &records, &options, flush_every);
        let summary = writer.close().expect("close");
        let outcome = read(dir.path());
        let expected = common::expected(&records, true);
        prop_assert_eq!(&outcome.problems, &vec![]);
        prop_assert_eq!(outcome.orphan_returns, 0);
        prop_assert_eq!(&outcome.trace, &expected);
        prop_assert_eq!(summary.calls, expected.calls.len() as u64);
        prop_assert_eq!((summary.lost_calls, summary.lost_records), (0, 0));
        let sizes: u64 = std::fs::read_dir(dir.path())
            .expect("list")
            .map(|entry| entry.expect("entry").metadata().expect("metadata").len())
            .sum();
        prop_assert_eq!(summary.bytes, sizes);
    }

    /// Every segment alone gives a part of the calls, with the definitions they refer to.
    #[test]
    fn each_segment_reads_alone(records in common::records(80)) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options = WriterOptions { block_calls: 4, segment_bytes: 1, ..WriterOptions::default() };
        write(dir.path(), &records, &options, 1000).close().expect("close");
        let whole = common::expected(&records, true);
        let job = JobDir::open(dir.path()).expect("open");
        let mut calls = 0;
        for path in &job.streams()[0].segments {
            let alone = JobDir::open(path).expect("open").streams()[0].read();
            calls += alone.trace.calls.len();
            for call in &alone.trace.calls {
                let defined = whole.comm(call.comm).is_some();
                // A communicator that is defined later than it is used is the writer's caller's mistake.
                let before = records.iter().position(|record| matches!(record, Record::Comm(def) if def.id == call.comm));
                let used = records.iter().position(|record| {
                    matches!(record, Record::Call(made) if (made.thread, made.thread_seq) == (call.thread, call.thread_seq))
                });
                if defined && before < used {
                    prop_assert!(alone.trace.comm(call.comm).is_some());
                }
            }
        }
        prop_assert_eq!(calls, whole.calls.len());
    }
}

#[test]
fn a_writer_that_was_not_closed_reads_as_such() {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(write(dir.path(), &[Record::Label(1, "x".to_owned())], &WriterOptions::default(), 1));
    let outcome = read(dir.path());
    assert_eq!(outcome.problems, []);
    assert_eq!(outcome.trace.labels, [(1, "x".to_owned())]);
    assert!(!outcome.trace.closed);
}

#[test]
fn two_recordings_of_one_process_are_two_streams() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for realtime in [1, 2] {
        let clock = ClockSnapshot { realtime, ..ClockSnapshot::default() };
        let mut writer =
            StreamWriter::create(dir.path(), &common::key(), clock, &WriterOptions::default()).expect("create");
        writer.rotate(clock).expect("rotate");
        writer.close().expect("close");
    }
    let job = JobDir::open(dir.path()).expect("open");
    let sessions: Vec<(u64, usize)> =
        job.streams().iter().map(|stream| (stream.session, stream.segments.len())).collect();
    assert_eq!(sessions, [(1, 2), (2, 2)]);
    for stream in job.streams() {
        assert_eq!(stream.read().problems, []);
    }
}
