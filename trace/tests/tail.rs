//! The live tail: whatever moment a writer is killed at, tail and segments together give what was written, once.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rankdiff_trace::{
    Call, ClockSnapshot, CommRef, JobDir, ProblemKind, ReadOutcome, Record, StreamWriter, Tail, TailOptions,
    WriterOptions,
};

const CLOCK: ClockSnapshot = ClockSnapshot { monotonic: 5, boottime: 6, realtime: 7 };

fn options(rows: u32, block_calls: usize, segment_bytes: u64) -> WriterOptions {
    WriterOptions { block_calls, segment_bytes, tail: Some(TailOptions { rows }), ..WriterOptions::default() }
}

fn read(dir: &Path) -> ReadOutcome {
    let job = JobDir::open(dir).expect("open");
    assert_eq!(job.problems(), &[]);
    let [stream] = job.streams() else { panic!("{:?}", job.streams()) };
    stream.read()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("list") {
        let path = entry.expect("entry").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copy");
    }
}

/// What is done to a stream between two records.
#[derive(Debug, Clone, Copy)]
enum Act {
    Nothing,
    Flush,
    Rotate,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![8 => Just(Act::Nothing), 2 => Just(Act::Flush), 1 => Just(Act::Rotate)];
    proptest::collection::vec(act, 60)
}

fn act(writer: &mut StreamWriter, act: Act) {
    match act {
        Act::Nothing => {}
        Act::Flush => writer.flush().expect("flush"),
        Act::Rotate => writer.rotate(CLOCK).expect("rotate"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// A writer that is killed behind any record: all of them are there.
    #[test]
    fn every_record_is_there_once(
        records in common::records(60),
        acts in acts(),
        rows in prop_oneof![16_u32..40, Just(200), Just(8192)],
        block_calls in prop_oneof![1_usize..8, Just(4096)],
        segment_bytes in prop_oneof![Just(1_u64), 200_u64..3000, Just(64 << 20)],
        stop in 0_usize..60,
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let killed = tempfile::tempdir().expect("temporary directory");
        let options = options(rows, block_calls, segment_bytes);
        let mut writer = StreamWriter::create(dir.path(), &common::key(), CLOCK, &options).expect("create");
        prop_assert!(writer.tail_problem().is_none());
        for (index, record) in records.iter().enumerate() {
            writer.write(record.clone()).expect("write");
            act(&mut writer, acts[index]);
            if index == stop {
                copy(dir.path(), killed.path());
                let outcome = read(killed.path());
                prop_assert_eq!(&outcome.problems, &vec![]);
                prop_assert_eq!(outcome.orphan_returns, 0);
                prop_assert_eq!(&outcome.trace, &common::expected(&records[..=index], false));
            }
        }
        let tail = writer.tail_path().expect("a tail").to_owned();
        prop_assert!(tail.exists());
        writer.close().expect("close");
        prop_assert!(!tail.exists());
        let outcome = read(dir.path());
        prop_assert_eq!(&outcome.problems, &vec![]);
        prop_assert_eq!(&outcome.trace, &common::expected(&records, true));
    }

    /// A writer that is killed while it appends a block, or behind that and before the tail says so; and files that were
    /// copied one before the other.
    #[test]
    fn the_moments_of_a_write(
        records in common::records(60),
        rows in prop_oneof![16_u32..40, Just(200)],
        kept in 0.0..1.0,
        late_tail in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let killed = tempfile::tempdir().expect("temporary directory");
        let mut writer =
            StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(rows, 4096, 64 << 20)).expect("create");
        for (index, record) in records.iter().enumerate() {
            writer.write(record.clone()).expect("write");
            if index == records.len() / 3 {
                writer.flush().expect("flush");
            }
        }
        let (segment, tail) = (writer.path().to_owned(), writer.tail_path().expect("a tail").to_owned());
        let before = fs::metadata(&segment).expect("metadata").len();
        let early = fs::read(&tail).expect("read");
        writer.flush().expect("flush");
        let mut bytes = fs::read(&segment).expect("read");
        let late = fs::read(&tail).expect("read");
        let length = before + ((bytes.len() as u64 - before) as f64 * kept) as u64;
        bytes.truncate(length as usize);
        fs::write(killed.path().join(segment.file_name().expect("a name")), &bytes).expect("write");
        let bytes = if late_tail { &late } else { &early };
        fs::write(killed.path().join(tail.file_name().expect("a name")), bytes).expect("write");
        let outcome = read(killed.path());
        prop_assert_eq!(&outcome.problems, &vec![], "{} of {}", length, before);
        prop_assert_eq!(&outcome.trace, &common::expected(&records, false));
    }

    /// Any byte of a tail that is changed: a prefix, a named problem, and never a wrong record.
    #[test]
    fn changed_bytes_are_named(
        records in common::records(30),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1_u8..=255), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut writer =
            StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(64, 4096, 64 << 20)).expect("create");
        for record in &records {
            writer.write(record.clone()).expect("write");
        }
        let path = writer.tail_path().expect("a tail").to_owned();
        let copied = tempfile::tempdir().expect("temporary directory");
        copy(dir.path(), copied.path());
        let path = copied.path().join(path.file_name().expect("a name"));
        let mut bytes = fs::read(&path).expect("read");
        for (index, change) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= change;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).expect("write");
        let job = JobDir::open(copied.path()).expect("open");
        let [stream] = job.streams() else { panic!("{:?}", job.streams()) };
        let outcome = stream.read();
        let calls: Vec<_> = records.iter().filter(|record| matches!(record, Record::Call(_))).collect();
        prop_assert!(outcome.trace.calls.len() <= calls.len());
        // Returns change calls, so what must be equal is compared over every prefix.
        let prefix = (0..=records.len()).any(|end| {
            let expected = common::expected(&records[..end], false);
            expected.calls == outcome.trace.calls && expected.comms == outcome.trace.comms
        });
        prop_assert!(prefix, "{:?}", outcome);
    }
}

fn call(index: u64) -> Call {
    Call { comm: CommRef(1), thread: 1, thread_seq: index, seq: Some(index), enter: 1000 + index, ..Call::default() }
}

#[test]
fn every_call_carries_the_chain_behind_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer =
        StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(64, 4096, 64 << 20)).expect("create");
    for index in 0..9 {
        writer.write(Record::Call(call(index))).expect("write");
    }
    let mut tail = Tail::open(writer.tail_path().expect("a tail")).expect("open");
    let chains = tail.chains().expect("read");
    writer.flush().expect("flush");
    assert_eq!(tail.chains().expect("read"), [], "nothing waits");
    let path = writer.path().to_owned();
    let mut reader = rankdiff_trace::BlockReader::open(&path).expect("open");
    let mut ends = Vec::new();
    while let Some(block) = reader.next_block().expect("a block") {
        ends.extend(block.digests().ends.clone());
    }
    let [end] = ends.as_slice() else { panic!("{ends:?}") };
    let [chain] = chains.as_slice() else { panic!("{chains:?}") };
    assert_eq!((chain.comm, chain.base, chain.upto, chain.running), (end.comm, end.base, end.upto, end.running));
    assert_eq!(chain.upto, 9);
}

/// A vector that no ring holds is in a block at once.
#[test]
fn what_is_too_large_is_sealed_at_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer =
        StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(16, 4096, 64 << 20)).expect("create");
    let large = Call { sends: (0..2000).map(|index| index << 40).collect(), ..call(1) };
    writer.write(Record::Call(call(0))).expect("write");
    writer.write(Record::Call(large.clone())).expect("write");
    writer.write(Record::Call(call(2))).expect("write");
    let outcome = read(dir.path());
    assert_eq!(outcome.problems, []);
    assert_eq!(outcome.trace.calls, [call(0), large, call(2)]);
}

#[test]
fn a_writer_that_is_dropped_leaves_its_tail() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer =
        StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(16, 4096, 64 << 20)).expect("create");
    writer.write(Record::Call(call(0))).expect("write");
    let path = writer.tail_path().expect("a tail").to_owned();
    drop(writer);
    let state = Tail::open(&path).expect("open").state().expect("read");
    assert_eq!((state.committed, state.sealed, state.state), (1, 1, 2));
    let outcome = read(dir.path());
    assert_eq!(outcome.trace.calls, [call(0)]);
    assert!(!outcome.trace.closed);
}

#[test]
fn two_recordings_have_two_tails() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let writers: Vec<StreamWriter> = (0..2)
        .map(|realtime| {
            let clock = ClockSnapshot { realtime, ..ClockSnapshot::default() };
            let options = options(16, 4096, 64 << 20);
            let mut writer = StreamWriter::create(dir.path(), &common::key(), clock, &options).expect("create");
            writer.write(Record::Call(call(realtime))).expect("write");
            writer
        })
        .collect();
    let job = JobDir::open(dir.path()).expect("open");
    let calls: Vec<_> = job.streams().iter().map(|stream| stream.read().trace.calls).collect();
    assert_eq!(calls, [vec![call(0)], vec![call(1)]]);
    for writer in &writers {
        let found = fs::symlink_metadata(writer.tail_path().expect("a tail")).expect("metadata");
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_name_that_is_taken_is_left_alone() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let target = dir.path().join("target");
    std::os::unix::fs::symlink(&target, dir.path().join("node-1.example-4711-123456789.0001.tail")).expect("link");
    let mut writer =
        StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(16, 4096, 64 << 20)).expect("create");
    assert!(writer.tail_problem().is_some_and(|problem| problem.to_string().contains("0001.tail")));
    assert!(!target.exists());
    writer.write(Record::Call(call(0))).expect("the stream is written without it");
    writer.close().expect("close");
    let job = JobDir::open(dir.path()).expect("open");
    assert_eq!(job.streams()[0].read().trace.calls, [call(0)]);
}

/// What a tail may be instead: each is a problem by name, read in bounded time and memory.
#[test]
fn hostile_tails_are_problems() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer =
        StreamWriter::create(dir.path(), &common::key(), CLOCK, &options(64, 4096, 64 << 20)).expect("create");
    writer.write(Record::Call(call(0))).expect("write");
    writer.flush().expect("flush");
    writer.write(Record::Call(call(1))).expect("write");
    let (segment, tail) = (writer.path().to_owned(), writer.tail_path().expect("a tail").to_owned());
    let good = fs::read(&tail).expect("read");
    let with = |make: &dyn Fn(&Path)| {
        let place = tempfile::tempdir().expect("temporary directory");
        fs::copy(&segment, place.path().join(segment.file_name().expect("a name"))).expect("copy");
        make(&place.path().join(tail.file_name().expect("a name")));
        let job = JobDir::open(place.path()).expect("open");
        let outcome = job.streams()[0].read();
        assert_eq!(outcome.trace.calls[0], call(0));
        let problems: Vec<_> = job.problems().iter().chain(&outcome.problems).cloned().collect();
        (outcome.trace.calls.len(), problems)
    };
    let (calls, problems) = with(&|path| fs::write(path, &good).expect("write"));
    assert_eq!((calls, problems.len()), (2, 0));
    let patched = |at: usize, bytes: &[u8]| {
        let mut patched = good.clone();
        patched[at..at + bytes.len()].copy_from_slice(bytes);
        patched
    };
    // (bytes, what the problem says)
    let cases = [
        (Vec::new(), "empty"),
        (vec![0; 8192], "empty"),
        (b"{}".to_vec(), "does not begin"),
        (good[..3000].to_vec(), "cut off"),
        (good[..4096].to_vec(), "checksum of a row"),
        (patched(8, &[9, 0]), "format 9"),
        (patched(40, &u32::MAX.to_le_bytes()), "checksum"),
        (patched(2048, &u64::MAX.to_le_bytes()), "more rows"),
        (patched(2048, &3_u64.to_le_bytes()), "checksum of a row"),
        (patched(4096 + 128 + 30, &[0xff]), "checksum of a row"),
    ];
    for (bytes, says) in cases {
        let (calls, problems) = with(&|path| fs::write(path, &bytes).expect("write"));
        let [problem] = problems.as_slice() else { panic!("{says}: {problems:?}") };
        assert!(problem.to_string().contains(says), "{says}: {problem}");
        assert!(calls <= 2);
    }
    let fifo = |path: &Path| {
        let status = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(status.success());
    };
    let (calls, problems) = with(&fifo);
    assert_eq!((calls, problems.len(), problems[0].kind), (1, 1, ProblemKind::Unreadable));
    let (calls, problems) = with(&|path| std::os::unix::fs::symlink("/dev/zero", path).expect("link"));
    assert_eq!((calls, problems.len(), problems[0].kind), (1, 1, ProblemKind::Unreadable));
}

/// Segments by time, and what each begins with.
#[test]
fn segments_by_time_read_alone() {
    use rankdiff_trace::{Attribute, StepMark};
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = WriterOptions { segment_ns: Some(100), block_calls: 10, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir.path(), &common::key(), CLOCK, &options).expect("create");
    let clock = ClockSnapshot { monotonic: 1000, boottime: 1001, realtime: 1002 };
    let attribute = |value: &str| Attribute { rank: None, key: "k".to_owned(), value: value.to_owned() };
    let step = StepMark { at: 1000, thread: 1, first_thread_seq: 0, step: 3 };
    let mut records = vec![
        Record::Clock(ClockSnapshot { monotonic: 999, ..clock }),
        Record::Clock(clock),
        Record::Attribute(attribute("old")),
        Record::Attribute(attribute("new")),
        Record::Attribute(attribute("new")),
        Record::Step(step),
    ];
    records.extend((0..400).map(|index| Record::Call(call(index))));
    for record in &records {
        writer.write(record.clone()).expect("write");
    }
    let summary = writer.close().expect("close");
    assert_eq!(summary.segments, 5, "each spans less than 100 ns");
    let outcome = read(dir.path());
    assert_eq!(outcome.trace, common::expected(&records, true), "nothing twice");
    for path in &JobDir::open(dir.path()).expect("open").streams()[0].segments {
        let alone = JobDir::open(path).expect("open").streams()[0].read().trace;
        assert_eq!(alone.clocks.last(), Some(&clock));
        assert_eq!(alone.attributes.last(), Some(&attribute("new")));
        assert_eq!(alone.steps, [step]);
    }
}
