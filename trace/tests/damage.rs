//! Damaged files: whatever is cut off or flipped, a reader gives a prefix of the true calls and at most one named
//! problem. Never another call, never a panic.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use rankdiff_trace::{
    BlockKind, BlockReader, Call, ClockSnapshot, CommDef, CommRef, Decoded, GapCause, Op, ProblemKind, ProcessKey,
    ReadOutcome, Record, StreamFiles, StreamWriter, WriterOptions,
};

fn key() -> ProcessKey {
    ProcessKey { host: "node-1".to_owned(), pid: 4711, start_time: 123_456_789 }
}

/// A small stream of many blocks, as bytes, with its true calls.
fn sample() -> &'static (Vec<u8>, Vec<Call>) {
    static SAMPLE: LazyLock<(Vec<u8>, Vec<Call>)> = LazyLock::new(write_sample);
    &SAMPLE
}

fn write_sample() -> (Vec<u8>, Vec<Call>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = WriterOptions { block_calls: 8, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir.path(), &key(), ClockSnapshot::default(), &options).expect("create");
    writer
        .write(Record::Comm(CommDef { id: CommRef(1), my_rank: Some(0), size: Some(2), ..CommDef::default() }))
        .expect("write");
    let mut calls = Vec::new();
    for index in 0..40_u64 {
        let call = Call {
            op: if index % 5 == 0 { Op::AllToAllV } else { Op::AllReduce },
            comm: CommRef(1),
            seq: Some(index),
            count: Some(1 + index),
            sends: if index % 5 == 0 { vec![index, 7] } else { vec![] },
            recvs: if index % 5 == 0 { vec![index, 9] } else { vec![] },
            thread: 1,
            thread_seq: index,
            enter: 1000 * index,
            exit: Some(1000 * index + 10 + index % 3),
            ..Call::default()
        };
        writer.write(Record::Call(call.clone())).expect("write");
        calls.push(call);
    }
    let path = writer.path().to_owned();
    writer.close().expect("close");
    (std::fs::read(path).expect("read"), calls)
}

/// Reads a file of these bytes as a stream.
fn read(dir: &Path, bytes: &[u8]) -> ReadOutcome {
    let path = dir.join("x.rdt");
    std::fs::write(&path, bytes).expect("write");
    StreamFiles { key: key(), session: 0, segments: vec![path], tail: None }.read()
}

fn check_prefix(outcome: &ReadOutcome, calls: &[Call]) -> Result<(), TestCaseError> {
    prop_assert!(calls.starts_with(&outcome.trace.calls), "read calls that were not made");
    prop_assert!(outcome.problems.len() <= 1, "{:?}", outcome.problems);
    if let [problem] = outcome.problems.as_slice() {
        let text = problem.to_string();
        prop_assert!(text.contains("x.rdt"), "{text}");
        prop_assert!(outcome.trace.gaps.iter().any(|gap| gap.cause == GapCause::Torn));
        prop_assert!(!outcome.trace.closed);
    }
    Ok(())
}

#[test]
fn every_prefix() {
    let (bytes, calls) = sample();
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut most = 0;
    for length in 0..bytes.len() {
        let outcome = read(dir.path(), &bytes[..length]);
        check_prefix(&outcome, calls).expect("a prefix");
        assert!(outcome.trace.calls.len() >= most, "a longer prefix gave fewer calls");
        most = outcome.trace.calls.len();
        let kinds: Vec<ProblemKind> = outcome.problems.iter().map(|problem| problem.kind).collect();
        assert!(kinds.iter().all(|kind| matches!(kind, ProblemKind::TornTail | ProblemKind::Unreadable)), "{kinds:?}");
    }
    assert_eq!(most, calls.len());
    let whole = read(dir.path(), bytes);
    assert_eq!(whole.problems, []);
    assert!(whole.trace.closed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits(flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..4)) {
        let (original, calls) = sample();
        let mut bytes = original.clone();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let dir = tempfile::tempdir().expect("temporary directory");
        let outcome = read(dir.path(), &bytes);
        check_prefix(&outcome, calls)?;
        prop_assert!(bytes == *original || outcome.problems.len() == 1, "a flipped bit went unseen");
    }

    /// Damage that keeps the checksums right (a hostile file) may give anything but a panic or a huge allocation.
    #[test]
    fn payloads_of_any_bytes(kind in 0_u16..70, count in 0_u32..70_000, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode_forged(kind, count, 0, &payload, payload.len() as u32)?;
    }

    #[test]
    fn payloads_with_a_flipped_byte(at in any::<prop::sample::Index>(), value: u8) {
        let (bytes, _) = sample();
        for (kind, count, mut payload) in payloads(bytes) {
            let at = at.index(payload.len());
            payload[at] = value;
            decode_forged(kind, count, 0, &payload, payload.len() as u32)?;
        }
    }
}

/// Kind, count and raw payload of every block of a file.
fn payloads(bytes: &[u8]) -> Vec<(u16, u32, Vec<u8>)> {
    let mut reader = BlockReader::new(Path::new("x.rdt"), Cursor::new(bytes)).expect("header");
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().expect("block") {
        let header = block.header();
        let body = block.offset() as usize + 56 + header.table as usize;
        let stored = &bytes[body..body + header.stored as usize];
        let raw = if header.flags & 1 == 0 {
            stored.to_vec()
        } else {
            zstd::bulk::decompress(stored, header.raw as usize).expect("whole")
        };
        found.push((header.kind.0, header.count, raw));
    }
    assert!(found.len() > 5);
    found
}

/// A file with a header and one block whose checksums are right, whatever else is not.
fn forge(kind: u16, count: u32, flags: u16, stored: &[u8], raw: u32) -> Vec<u8> {
    let (bytes, _) = sample();
    let mut file = bytes[..u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize].to_vec();
    let start = file.len();
    file.extend_from_slice(b"RDb\n");
    file.extend_from_slice(&kind.to_le_bytes());
    file.extend_from_slice(&flags.to_le_bytes());
    for value in [stored.len() as u32, raw, count, 0] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    file.extend_from_slice(&[0; 24]);
    file.extend_from_slice(&crc32fast::hash(stored).to_le_bytes());
    let crc = crc32fast::hash(&file[start..]);
    file.extend_from_slice(&crc.to_le_bytes());
    file.extend_from_slice(stored);
    file
}

fn decode_forged(kind: u16, count: u32, flags: u16, stored: &[u8], raw: u32) -> Result<(), TestCaseError> {
    let file = forge(kind, count, flags, stored, raw);
    let mut reader = BlockReader::new(Path::new("x.rdt"), Cursor::new(file)).expect("header");
    match reader.next_block() {
        Ok(Some(block)) => {
            if let Err(problem) = block.decode(&mut reader) {
                prop_assert_eq!(problem.kind, ProblemKind::Damaged);
            }
        }
        Ok(None) => prop_assert!(false, "a block is there"),
        Err(problem) => {
            prop_assert_eq!(problem.kind, ProblemKind::Damaged);
            prop_assert!(count > 65_536, "{}", problem);
        }
    }
    Ok(())
}

fn problem_of(file: Vec<u8>) -> String {
    let mut reader = BlockReader::new(Path::new("x.rdt"), Cursor::new(file)).expect("header");
    match reader.next_block() {
        Err(problem) => problem.to_string(),
        Ok(Some(block)) => block.decode(&mut reader).expect_err("damaged").to_string(),
        Ok(None) => panic!("a block is there"),
    }
}

#[test]
fn lengths_are_bounded_before_anything_is_allocated() {
    assert!(problem_of(forge(16, 1, 0, b"", 17 << 20)).contains("decompressed payload of 17825792 is over the limit"));
    assert!(problem_of(forge(16, 65_537, 0, b"", 0)).contains("number of records"));
    // A bomb: 64 MiB of zeroes that claims to be 16 MiB.
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).expect("compress");
    assert!(problem_of(forge(16, 1, 1, &bomb, 16 << 20)).contains("does not decompress"));
    // Strings that grow when they are resolved: one of 64 KiB, which 65,000 labels refer to.
    let mut payload = vec![1, 0x80, 0x80, 0x04];
    payload.extend_from_slice(&[b'x'; 65_536]);
    for _ in 0..65_000 {
        payload.extend_from_slice(&[2, 1, 1]);
    }
    let raw = payload.len() as u32;
    assert!(problem_of(forge(5, 65_000, 0, &payload, raw)).contains("strings over the limit"));
}

#[test]
fn what_a_newer_writer_adds_is_skipped() {
    let (bytes, calls) = sample();
    let unknown = forge(40, 3, 0, b"something new", 13);
    let header = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let mut file = unknown;
    file.extend_from_slice(&bytes[header..]);
    let dir = tempfile::tempdir().expect("temporary directory");
    let outcome = read(dir.path(), &file);
    assert_eq!(&outcome.trace.calls, calls);
    assert!(outcome.trace.closed);
    let [problem] = outcome.problems.as_slice() else { panic!("{:?}", outcome.problems) };
    assert_eq!(problem.kind, ProblemKind::Newer);
    assert!(problem.to_string().contains("not known to this build"), "{problem}");
}

#[test]
fn a_growing_file_is_read_on() {
    let (bytes, calls) = sample();
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("x.rdt");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("write");
    let mut reader = BlockReader::open(&path).expect("header");
    let mut found = Vec::new();
    let mut torn = 0;
    loop {
        match reader.next_block() {
            Ok(Some(block)) => match block.decode(&mut reader).expect("whole") {
                Decoded::Calls(mut read) => found.append(&mut read),
                Decoded::End(end) => {
                    assert!(end.last);
                    assert_eq!(end.calls, 40);
                    break;
                }
                _ => {}
            },
            Ok(None) => panic!("the file ends in the middle of a block"),
            Err(problem) => {
                assert_eq!(problem.kind, ProblemKind::TornTail);
                torn += 1;
                std::fs::write(&path, bytes).expect("write");
            }
        }
    }
    assert_eq!(torn, 1);
    assert_eq!(&found, calls);
}

/// Segments of three writes; the middle one is damaged in different ways.
fn three_segments(dir: &Path) -> Vec<PathBuf> {
    let options = WriterOptions { segment_bytes: 1, block_calls: 10, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir, &key(), ClockSnapshot::default(), &options).expect("create");
    for index in 0..30 {
        let call = Call { thread: 1, thread_seq: index, enter: 100 * index + 100, ..Call::default() };
        writer.write(Record::Call(call)).expect("write");
    }
    writer.close().expect("close");
    rankdiff_trace::JobDir::open(dir).expect("open").streams()[0].segments.clone()
}

/// Where a segment's first block of calls begins.
fn first_calls(path: &Path) -> u64 {
    let mut reader = BlockReader::open(path).expect("header");
    loop {
        let block = reader.next_block().expect("whole").expect("the segment holds calls");
        if block.header().kind == BlockKind::CALLS {
            return block.offset();
        }
    }
}

#[test]
fn a_missing_or_torn_segment_is_a_gap_of_known_size() {
    for damage in ["missing", "torn", "foreign"] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut segments = three_segments(dir.path());
        let middle = segments[1].clone();
        match damage {
            "missing" => {
                segments.remove(1);
            }
            "torn" => {
                let bytes = std::fs::read(&middle).expect("read");
                let calls = first_calls(&middle) as usize;
                std::fs::write(&middle, &bytes[..calls + 60]).expect("write");
            }
            _ => std::fs::write(&middle, "{}").expect("write"),
        }
        let outcome = StreamFiles { key: key(), session: 0, segments, tail: None }.read();
        let ordinals: Vec<u64> = outcome.trace.calls.iter().map(|call| call.thread_seq).collect();
        assert_eq!(ordinals, (0..10).chain(20..30).collect::<Vec<u64>>(), "{damage}");
        assert_eq!(outcome.problems.len(), 1, "{damage}: {:?}", outcome.problems);
        let [gap] = outcome.trace.gaps.as_slice() else { panic!("{damage}: {:?}", outcome.trace.gaps) };
        assert_eq!((gap.cause, gap.events, gap.after, gap.before), (GapCause::Torn, Some(10), 1000, 2100), "{damage}");
        assert!(outcome.trace.closed, "{damage}");
    }
}

#[test]
fn few_bytes_do_not_stand_for_gigabytes_of_definitions() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer =
        StreamWriter::create(dir.path(), &key(), ClockSnapshot::default(), &WriterOptions::default()).expect("create");
    let long = "x".repeat(60_000);
    // Equal strings stand in a block once; read, each label has its own.
    for id in 0..6_000 {
        writer.write(Record::Label(id + 1, long.clone())).expect("write");
    }
    let path = writer.path().to_owned();
    writer.close().expect("close");
    let length = std::fs::metadata(&path).expect("metadata").len();
    assert!(length < 1 << 20, "{length} bytes");
    let outcome = StreamFiles { key: key(), session: 0, segments: vec![path], tail: None }.read();
    let held: usize = outcome.trace.labels.iter().map(|label| label.1.len()).sum();
    assert!(held <= 256 << 20, "{held} bytes are held");
    let [problem] = outcome.problems.as_slice() else { panic!("{:?}", outcome.problems) };
    assert!(problem.to_string().contains("more than 256 MiB"), "{problem}");
}
