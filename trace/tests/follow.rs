//! A follower shows each record once and in order, however far behind it falls, whenever it comes, however the writer
//! ends.
#![cfg(unix)]

mod common;

use std::path::Path;

use proptest::prelude::*;
use rankdiff_trace::{
    Call, ClockSnapshot, CommRef, FollowState, Follower, JobDir, JobFollower, ProcessKey, Record, Return, StreamWriter,
    TailOptions, WriterOptions,
};

const CLOCK: ClockSnapshot = ClockSnapshot { monotonic: 5, boottime: 6, realtime: 7 };

fn follower(dir: &Path) -> Follower {
    Follower::new(&JobDir::open(dir).expect("open").streams()[0])
}

/// Takes what there is now.
fn drain(follower: &mut Follower, into: &mut Vec<Record>) -> FollowState {
    loop {
        let batch = follower.poll();
        assert_eq!(batch.problems, []);
        into.extend(batch.records);
        if !batch.more {
            return batch.state;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Nothing,
    Flush,
    Rotate,
    Poll,
    /// A follower that comes now, beside the first.
    Come,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        10 => Just(Act::Nothing),
        3 => Just(Act::Flush),
        1 => Just(Act::Rotate),
        3 => Just(Act::Poll),
        1 => Just(Act::Come)
    ];
    proptest::collection::vec(act, 80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_record_once_and_in_order(
        records in common::records(80),
        acts in acts(),
        rows in proptest::option::weighted(0.8, prop_oneof![16_u32..60, Just(200), Just(8192)]),
        block_calls in prop_oneof![1_usize..8, Just(4096)],
        segment_bytes in prop_oneof![Just(1_u64), 200_u64..3000, Just(64 << 20)],
        drops in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tail = rows.map(|rows| TailOptions { rows });
        let options = WriterOptions { block_calls, segment_bytes, tail, ..WriterOptions::default() };
        let mut writer = StreamWriter::create(dir.path(), &common::key(), CLOCK, &options).expect("create");
        let mut followers = vec![(follower(dir.path()), Vec::new())];
        for (index, record) in records.iter().enumerate() {
            writer.write(record.clone()).expect("write");
            match acts[index] {
                Act::Nothing => {}
                Act::Flush => writer.flush().expect("flush"),
                Act::Rotate => writer.rotate(CLOCK).expect("rotate"),
                Act::Poll => {
                    for (follower, shown) in &mut followers {
                        prop_assert_eq!(drain(follower, shown), FollowState::Open);
                        if tail.is_some() {
                            let expected = common::expected(&records[..=index], false);
                            prop_assert_eq!(common::expected(shown, false), expected);
                        }
                    }
                }
                Act::Come => followers.push((follower(dir.path()), Vec::new())),
            }
        }
        let end = if drops {
            drop(writer);
            if tail.is_some() { FollowState::Left } else { FollowState::Open }
        } else {
            writer.close().expect("close");
            FollowState::Closed
        };
        followers.push((follower(dir.path()), Vec::new()));
        for (mut follower, mut shown) in followers {
            let mut state = drain(&mut follower, &mut shown);
            // The end of a segment without an end block is only believed when it is seen again.
            for _ in 0..20 {
                state = drain(&mut follower, &mut shown);
            }
            prop_assert_eq!(common::expected(&shown, false), common::expected(&records, false));
            // Who comes after the tail was left finds it as well.
            prop_assert_eq!(state, end);
        }
    }
}

fn call(index: u64) -> Record {
    Record::Call(Call { comm: CommRef(1), thread: 1, thread_seq: index, enter: 1000 + index, ..Call::default() })
}

#[test]
fn a_resumed_recording_is_another_stream() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut followed = JobFollower::new(dir.path());
    assert_eq!(followed.poll().expect("an empty directory"), []);
    let options = WriterOptions { tail: Some(TailOptions::default()), ..WriterOptions::default() };
    let start = |realtime, pid| {
        let key = ProcessKey { pid, ..common::key() };
        let clock = ClockSnapshot { realtime, ..CLOCK };
        StreamWriter::create(dir.path(), &key, clock, &options).expect("create")
    };
    let mut first = start(1, 7);
    first.write(call(0)).expect("write");
    let news = followed.poll().expect("poll");
    assert_eq!(news.len(), 1);
    assert_eq!((news[0].stream, news[0].session), (0, 1));
    assert_eq!(news[0].batch.records, [call(0)]);
    first.write(call(1)).expect("write");
    drop(first);
    let mut again = start(2, 7);
    let mut other = start(3, 8);
    again.write(call(2)).expect("write");
    other.write(call(3)).expect("write");
    let mut shown = Vec::new();
    for _ in 0..3 {
        for news in followed.poll().expect("poll") {
            assert_eq!(news.batch.problems, []);
            shown.extend(news.batch.records.into_iter().map(|record| (news.stream, news.session, record)));
        }
    }
    assert_eq!(shown, [(0, 1, call(1)), (1, 2, call(2)), (2, 3, call(3))]);
    again.close().expect("close");
    followed.poll().expect("poll");
    followed.poll().expect("poll");
    let states: Vec<_> = followed.states().map(|(key, session, state)| (key.pid, session, state)).collect();
    assert_eq!(states, [(7, 1, FollowState::Left), (7, 2, FollowState::Closed), (8, 3, FollowState::Open)]);
    assert_eq!(followed.problems(), []);
}

/// A ring that is full of sealed rows is overwritten while nobody looks.
#[test]
fn a_slow_follower_takes_the_blocks() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options =
        WriterOptions { tail: Some(TailOptions { rows: 64 }), segment_bytes: 20_000, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir.path(), &common::key(), CLOCK, &options).expect("create");
    let (mut follower, mut shown) = (follower(dir.path()), Vec::new());
    for index in 0..20_000 {
        writer.write(call(index)).expect("write");
        // 40 rows behind, then thousands.
        if index % 40 == 7 && index % 9000 < 4000 {
            drain(&mut follower, &mut shown);
        }
    }
    writer.close().expect("close");
    assert_eq!(drain(&mut follower, &mut shown), FollowState::Closed);
    assert_eq!(shown.len(), 20_000);
    assert!(shown.iter().zip(0..).all(|(record, index)| *record == call(index)));
}

/// A return that went into its waiting call while nobody looked, and whose row was overwritten: the call's block shows it.
#[test]
fn a_return_that_only_the_block_shows() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = WriterOptions { tail: Some(TailOptions { rows: 16 }), ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir.path(), &common::key(), CLOCK, &options).expect("create");
    let (mut follower, mut shown) = (follower(dir.path()), Vec::new());
    let entry = |thread_seq, result| {
        Record::Return(Return { thread: 1, thread_seq, exit: 5000 + thread_seq, result, ..Return::default() })
    };
    // A call whose return is known may be said to return again.
    let returned = Record::Call(Call { thread: 1, thread_seq: 1, exit: Some(9), ..Call::default() });
    for record in [call(0), returned, call(2)] {
        writer.write(record).expect("write");
    }
    writer.write(entry(0, 7)).expect("write");
    drain(&mut follower, &mut shown);
    writer.write(entry(1, 8)).expect("write");
    for index in 3..60 {
        writer.write(call(index)).expect("write");
    }
    drain(&mut follower, &mut shown);
    let returns: Vec<&Record> = shown.iter().filter(|record| matches!(record, Record::Return(_))).collect();
    assert_eq!(returns, [&entry(0, 7), &entry(1, 8)]);
    assert_eq!(shown.len(), 62);
}
