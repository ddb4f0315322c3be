//! What is dropped, what stays, and how it reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Keep, Retention};
use crate::block::BlockKind;
use crate::call::{Call, Return, SiteDef};
use crate::comm::{CommDef, CommRef, RankDef};
use crate::digest::Digests;
use crate::directory::TraceDir;
use crate::evidence::{Attribute, ClockSnapshot, Gap, GapCause, LogLine, StepMark};
use crate::job::JobDir;
use crate::op::Op;
use crate::payload::Decoded;
use crate::reader::BlockReader;
use crate::stream::{ProcessKey, Record};
use crate::writer::{StreamWriter, WriterOptions};

const SECOND: u64 = 1_000_000_000;

fn call(seq: u64, enter: u64) -> Call {
    Call {
        op: Op::AllReduce,
        comm: CommRef(1),
        seq: Some(seq),
        count: Some(seq % 7),
        enter,
        exit: (!seq.is_multiple_of(5)).then_some(enter + 10),
        thread: 3,
        thread_seq: seq,
        ..Call::default()
    }
}

/// Writes `calls` calls, a second apart, in segments of 50, with a bit of everything between them.
fn write(dir: &Arc<TraceDir>, pid: u32, calls: u64) -> StreamWriter {
    let key = ProcessKey { host: "n0".to_owned(), pid, start_time: 9 };
    let options = WriterOptions { block_calls: 10, ..WriterOptions::default() };
    let mut writer = StreamWriter::create_in(dir, &key, ClockSnapshot::default(), &options).expect("create");
    let mut records = vec![
        Record::Rank(RankDef { rank: pid, ..RankDef::default() }),
        Record::Comm(CommDef { id: CommRef(1), size: Some(2), my_rank: Some(pid), ..CommDef::default() }),
        Record::Site(SiteDef::default()),
    ];
    for seq in 0..calls {
        let enter = (seq + 1) * SECOND;
        records.push(Record::Call(call(seq, enter)));
        if seq % 5 == 0 && seq >= 15 {
            records.push(Record::Return(Return { thread: 3, thread_seq: seq - 15, exit: enter, ..Return::default() }));
        }
        if seq % 30 == 0 {
            records.push(Record::Log(LogLine { at: enter, text: format!("line {seq}") }));
            records.push(Record::Step(StepMark { at: enter, step: seq, ..StepMark::default() }));
            records.push(Record::Attribute(Attribute { key: format!("k{seq}"), ..Attribute::default() }));
            records.push(Record::Gap(Gap { events: Some(0), after: enter, before: enter, ..Gap::default() }));
        }
        for record in records.drain(..) {
            writer.write(record).expect("write");
        }
        if seq % 50 == 49 {
            writer.rotate(ClockSnapshot { monotonic: enter, ..ClockSnapshot::default() }).expect("rotate");
        }
    }
    writer
}

fn open(path: &Path) -> Arc<TraceDir> {
    Arc::new(TraceDir::open(path).expect("it is there").with_retention())
}

/// Digest tables of all blocks of calls and of segment ends, in order, with the calls that each block held.
fn digests(path: &Path) -> Vec<(u32, Digests)> {
    let mut found = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(path).expect("list").map(|entry| entry.expect("entry").path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "rdt"));
    names.sort();
    for name in names {
        let mut reader = BlockReader::open(&name).expect("a segment");
        while let Some(block) = reader.next_block().expect("whole") {
            if matches!(block.header().kind, BlockKind::CALLS | BlockKind::SEGMENT_END) {
                found.push((block.header().count, block.digests().clone()));
            }
        }
    }
    found
}

#[test]
fn calls_before_the_window_are_dropped_and_everything_else_stays() {
    let (kept, whole) = (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    let dir = open(kept.path());
    let mut retention = Retention::new(Keep::Window(Duration::from_secs(120)));
    let mut writer = write(&dir, 1, 400);
    writer.flush().expect("flush");
    retention.enforce(&dir).expect("rewritten");
    // Ends of segments at 50, 100, ... 400: those before 280 are too old.
    assert_eq!(retention.dropped().segments, 5);
    assert_eq!(retention.dropped().calls, 250);
    writer.close().expect("close");
    write(&open(whole.path()), 1, 400).close().expect("close");
    assert_eq!(digests(kept.path()), digests(whole.path()), "digests are for ever");
    let read = |path: &Path| JobDir::open(path).expect("open").streams()[0].read();
    let (kept_out, whole_out) = (read(kept.path()), read(whole.path()));
    assert_eq!(kept_out.problems, []);
    let (mut short, long) = (kept_out.trace, whole_out.trace);
    let expired: Vec<Gap> = short.gaps.iter().filter(|gap| gap.cause == GapCause::Expired).copied().collect();
    let expected =
        Gap { cause: GapCause::Expired, events: Some(250), after: 0, before: 251 * SECOND, ..Gap::default() };
    assert_eq!(expired, [expected]);
    assert_eq!(short.calls, long.calls[250..], "the window is whole, returns joined");
    short.gaps.retain(|gap| gap.cause != GapCause::Expired);
    short.calls = long.calls.clone();
    assert_eq!(short, long, "definitions, evidence, gaps and the end stay");
    let total = |path: &Path| -> u64 {
        std::fs::read_dir(path).expect("list").map(|entry| entry.expect("entry").metadata().expect("file").len()).sum()
    };
    assert_eq!(dir.used(), total(kept.path()), "what was freed is free");
    assert_eq!(total(whole.path()) - total(kept.path()), retention.dropped().bytes);
    let hidden = std::fs::read_dir(kept.path()).expect("list").flatten();
    assert_eq!(hidden.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count(), 0);
}

#[test]
fn a_dropped_block_says_so_and_has_no_payload() {
    let dir = tempfile::tempdir().expect("directory");
    let opened = open(dir.path());
    write(&opened, 1, 100).close().expect("close");
    Retention::new(Keep::Bytes(0)).enforce(&opened).expect("rewritten");
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(dir.path()).expect("list") {
        let mut reader = BlockReader::open(&entry.expect("entry").path()).expect("a segment");
        while let Some(block) = reader.next_block().expect("checksums are right") {
            let header = *block.header();
            let decoded = block.decode(&mut reader).expect("not damaged");
            let is_calls = matches!(header.kind, BlockKind::CALLS | BlockKind::RETURNS);
            assert_eq!(header.is_expired(), is_calls);
            assert_eq!(decoded == Decoded::Expired, is_calls);
            if is_calls {
                assert_eq!((header.stored, header.raw), (0, 0));
                *kinds.entry(header.kind).or_insert(0) += header.count;
            }
        }
    }
    assert_eq!(kinds.get(&BlockKind::CALLS), Some(&100));
    assert!(kinds.contains_key(&BlockKind::RETURNS));
}

#[test]
fn a_budget_is_for_all_streams_and_the_oldest_go_first() {
    let dir = tempfile::tempdir().expect("directory");
    let opened = open(dir.path());
    // The second stream's calls are all older than those of the first one's later segments.
    let first = write(&opened, 1, 400);
    let second = write(&opened, 2, 100);
    let full = opened.used();
    let mut retention = Retention::new(Keep::Bytes(full / 2));
    retention.enforce(&opened).expect("rewritten");
    assert!(opened.used() < full);
    first.close().expect("close");
    second.close().expect("close");
    let job = JobDir::open(dir.path()).expect("open");
    let kept: Vec<u64> = job
        .streams()
        .iter()
        .map(|stream| stream.read().trace.calls.iter().map(|call| call.enter).min().unwrap_or(u64::MAX))
        .collect();
    assert!(kept[0] > 100 * SECOND, "the oldest of both went first: {kept:?}");
    assert_eq!(kept[1], u64::MAX, "{kept:?}");
    let calls: usize = job.streams().iter().map(|stream| stream.read().trace.calls.len()).sum();
    assert!(calls > 100, "about half is kept, not less: {calls}");
}

#[test]
fn writers_are_asked_to_end_segments_where_nothing_else_can_be_dropped() {
    let dir = tempfile::tempdir().expect("directory");
    let opened = open(dir.path());
    let mut retention = Retention::new(Keep::Bytes(8 << 10));
    let key = ProcessKey { host: "n0".to_owned(), pid: 1, start_time: 9 };
    let options = WriterOptions { block_calls: 100, ..WriterOptions::default() };
    let mut writer = StreamWriter::create_in(&opened, &key, ClockSnapshot::default(), &options).expect("create");
    let mut most = 0;
    for seq in 0..100_000 {
        writer.write(Record::Call(call(seq, seq * 977 * (seq % 13 + 1)))).expect("write");
        if seq % 100 == 0 {
            retention.enforce(&opened).expect("rewritten");
            most = most.max(opened.used() - retention.rest);
        }
    }
    let summary = writer.close().expect("close");
    assert!(retention.dropped().calls > 50_000, "{:?}", retention.dropped());
    assert!(most < 16 << 10, "{most} bytes of calls at one time");
    assert!(summary.segments < 1000, "{} segments", summary.segments);
}

#[test]
fn another_file_of_the_same_name_is_left_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let opened = open(dir.path());
    write(&opened, 1, 60).close().expect("close");
    let path = dir.path().join("n0-1-9.0001.rdt");
    let old = std::fs::read(&path).expect("read");
    let other = dir.path().join("other");
    std::fs::write(&other, &old).expect("another file with the same bytes");
    std::fs::rename(&other, &path).expect("rename");
    let error = Retention::new(Keep::Bytes(0)).enforce(&opened).expect_err("not ours");
    assert!(error.to_string().contains("n0-1-9.0001.rdt") && error.to_string().contains("keeps them"), "{error}");
    assert_eq!(std::fs::read(&path).expect("read"), old);
}

#[test]
fn segments_are_a_small_part_of_what_is_kept() {
    assert_eq!(Keep::Window(Duration::from_secs(1800)).rotation(), (16 << 20, Some(225 * SECOND)));
    assert_eq!(Keep::Window(Duration::ZERO).rotation(), (16 << 20, Some(1)));
    assert_eq!(Keep::Bytes(2 << 30).rotation(), (16 << 20, None));
    assert_eq!(Keep::Bytes(64 << 20).rotation(), (1 << 20, None));
    assert_eq!(Keep::Bytes(1).rotation(), (64 << 10, None));
}
