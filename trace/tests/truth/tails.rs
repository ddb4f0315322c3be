//! Writers that are killed while their records wait in the live tail, and tails that are damaged.

use std::path::PathBuf;

use rankdiff_trace::{
    Call, FollowState, Follower, GapCause, JobDir, ProcessTrace, ReadOutcome, Record, StreamFiles, StreamWriter,
    TailOptions, WriterOptions,
};

use crate::memory::peak;
use crate::truth::short_records;
use crate::{expected, sample};

/// A stream whose writer was killed: its files stay as they were at that moment.
struct Killed {
    _dir: tempfile::TempDir,
    files: StreamFiles,
    tail: PathBuf,
    truth: ProcessTrace,
}

/// Writes the records without an end, as a writer that is killed leaves them.
fn killed(records: &[Record], block_calls: usize, rows: u32) -> Killed {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tail = Some(TailOptions { rows });
    let options = WriterOptions { block_calls, segment_bytes: 4000, tail, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir.path(), &sample::key(0), sample::clock(1), &options).expect("create");
    for record in records {
        writer.write(record.clone()).expect("write");
    }
    // Nothing of what a writer does at its end happens.
    std::mem::forget(writer);
    let files = JobDir::open(dir.path()).expect("open").streams()[0].clone();
    let tail = files.tail.clone().expect("it has a tail");
    Killed { _dir: dir, files, tail, truth: expected::expected(sample::key(0), records, false) }
}

/// Calls as a follower shows them, with their returns.
fn followed(files: &StreamFiles) -> (Vec<Call>, FollowState, usize) {
    let mut follower = Follower::new(files);
    let mut records = Vec::new();
    let mut problems = 0;
    for _ in 0..1000 {
        let batch = follower.poll();
        records.extend(batch.records);
        problems += batch.problems.len();
        // A writer that is gone is noticed after some polls without news.
        if batch.state != FollowState::Open {
            break;
        }
    }
    // Of a stream that was joined late, or is damaged, a return may have no call.
    let mut calls: Vec<Call> = Vec::new();
    for record in records {
        match record {
            Record::Call(call) => calls.push(call),
            Record::Return(entry) => {
                let same = |call: &&mut Call| (call.thread, call.thread_seq) == (entry.thread, entry.thread_seq);
                if let Some(call) = calls.iter_mut().rev().find(same) {
                    call.exit = Some(entry.exit);
                }
            }
            _ => {}
        }
    }
    (calls, follower.state(), problems)
}

#[test]
fn what_was_written_before_the_kill_is_there() {
    let records = sample::records(0);
    // Rings that are smaller than a block, and that hold everything.
    for (block_calls, rows) in [(64, 64), (16, 4096), (4096, 256)] {
        for end in (0..records.len()).step_by(29).chain(records.len() - 5..=records.len()) {
            let stream = killed(&records[..end], block_calls, rows);
            let outcome = stream.files.read();
            assert_eq!(outcome.problems, [], "{end} records");
            assert_eq!(outcome.trace.calls, stream.truth.calls, "{end} records in a ring of {rows}");
            assert_eq!(outcome.trace, ProcessTrace { closed: false, ..stream.truth.clone() });
        }
    }
}

#[test]
fn a_follower_shows_the_same_calls() {
    let records = sample::records(0);
    for end in (0..records.len()).step_by(97) {
        let stream = killed(&records[..end], 64, 128);
        let (calls, _, problems) = followed(&stream.files);
        assert_eq!(problems, 0);
        let of = |calls: &[Call]| calls.iter().map(|call| (call.thread_seq, call.exit)).collect::<Vec<_>>();
        assert_eq!(of(&calls), of(&stream.truth.calls), "{end} records");
    }
}

/// Calls in the order in which they were made, each once, each as it was at some moment.
fn check(outcome: &ReadOutcome, truth: &ProcessTrace, why: &str) {
    let mut following = truth.calls.iter();
    for found in &outcome.trace.calls {
        let Some(call) = following.find(|call| call.thread_seq == found.thread_seq) else {
            panic!("{why}: a call that was not made there: {found:?}")
        };
        let unreturned = Call {
            exit: found.exit,
            result: found.result,
            made: found.made,
            completion: found.completion,
            ..call.clone()
        };
        assert!(found == call || (found.exit.is_none() && *found == unreturned), "{why}: {found:?} was {call:?}");
    }
    // What the tail held may be gone with it: then the stream ends early, and is not closed.
    let all = outcome.trace.calls.len() == truth.calls.len();
    let prefix = truth.calls.iter().zip(&outcome.trace.calls).all(|(call, found)| call.thread_seq == found.thread_seq);
    let gap = outcome.trace.gaps.iter().any(|gap| gap.cause == GapCause::Torn && gap.thread == 0);
    assert!(all || prefix || gap, "{why}: calls are missing without a gap");
    assert!(!outcome.trace.closed, "{why}: nobody closed it");
}

#[test]
fn damaged_tails() {
    let records = short_records();
    let stream = killed(&records[..records.len() - 20], 4096, 1024);
    let whole = std::fs::read(&stream.tail).expect("read");
    let (_, cost) = peak(|| stream.files.read());
    let mut tried = 0;
    let mut named = 0;
    // Every bit of what the header page holds, and bits here and there in the rows.
    let header = (0..2200).filter(|at| whole[*at] != 0 || (2048..2080).contains(at));
    let rows = (4096..whole.len()).step_by(211);
    for (at, bit) in header.flat_map(|at| (0..8).map(move |bit| (at, bit))).chain(rows.map(|at| (at, at % 8))) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        std::fs::write(&stream.tail, &bytes).expect("write");
        let (outcome, most) = peak(|| stream.files.read());
        check(&outcome, &stream.truth, &format!("bit {bit} of byte {at}"));
        assert!(most <= cost + whole.len() + (64 << 10), "bit {bit} of byte {at}: {most} bytes, whole {cost}");
        followed(&stream.files);
        tried += 1;
        named += usize::from(!outcome.problems.is_empty());
    }
    assert!(tried > 1000 && named > 200, "{named} of {tried}");
}

#[test]
fn tails_that_end_too_early() {
    let records = short_records();
    let stream = killed(&records[..records.len() - 20], 64, 512);
    let whole = std::fs::read(&stream.tail).expect("read");
    for length in (0..4200).step_by(19).chain((4200..whole.len()).step_by(777)) {
        std::fs::write(&stream.tail, &whole[..length]).expect("write");
        check(&stream.files.read(), &stream.truth, &format!("cut at {length}"));
        followed(&stream.files);
    }
    std::fs::remove_file(&stream.tail).expect("remove");
    check(&stream.files.read(), &stream.truth, "without its tail");
}

#[test]
fn segments_that_end_too_early_beside_a_whole_tail() {
    let records = short_records();
    let stream = killed(&records[..records.len() - 20], 64, 4096);
    let last = stream.files.segments.last().expect("it has segments");
    let whole = std::fs::read(last).expect("read");
    for length in 0..whole.len() {
        std::fs::write(last, &whole[..length]).expect("write");
        check(&stream.files.read(), &stream.truth, &format!("cut at {length}"));
    }
}
