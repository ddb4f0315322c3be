//! Writers that are killed, and writers that race with their readers: real processes, real SIGKILL.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rankdiff_trace::{
    Call, ClockSnapshot, CommDef, CommRef, FollowState, Follower, JobDir, JobFollower, ProcessKey, Record, Return,
    StreamWriter, TailOptions, WriterOptions,
};

const DIR: &str = "RANKDIFF_TEST_DIR";
const RANK: &str = "RANKDIFF_TEST_RANK";
const SESSION: &str = "RANKDIFF_TEST_SESSION";
/// The process writes so many calls as fast as it can, and then waits to be killed.
const CALLS: u64 = 16_000;

fn call(rank: u32, index: u64) -> Call {
    // Every seventh has a vector of its own length: records of one row and of several.
    let sends = if index.is_multiple_of(7) { (0..index % 90).map(|peer| peer * index).collect() } else { Vec::new() };
    Call {
        comm: CommRef(1),
        thread: rank + 1,
        thread_seq: index,
        seq: Some(index),
        enter: 10 + index,
        sends,
        ..Call::default()
    }
}

fn returned(rank: u32, index: u64) -> Return {
    Return { thread: rank + 1, thread_seq: index, exit: 20 + index, result: index as i64, ..Return::default() }
}

/// Writes calls and their returns until it is killed; says each thousandth on its standard output once it is written.
#[test]
#[ignore = "run by the other tests, as a process that is killed"]
fn writer_process() {
    let dir = std::env::var_os(DIR).expect("a directory");
    let number = |name: &str| std::env::var(name).expect("a number").parse::<u32>().expect("a number");
    let (rank, session) = (number(RANK), number(SESSION));
    let key = ProcessKey { host: "node".to_owned(), pid: rank + 100, start_time: 5 };
    let options = WriterOptions {
        block_calls: 512,
        segment_bytes: 200_000,
        tail: Some(TailOptions { rows: 2048 }),
        ..WriterOptions::default()
    };
    let clock = ClockSnapshot { realtime: u64::from(session), ..ClockSnapshot::default() };
    let mut writer = StreamWriter::create(Path::new(&dir), &key, clock, &options).expect("create");
    assert!(writer.tail_problem().is_none());
    writer.write(Record::Comm(CommDef { id: CommRef(1), ..CommDef::default() })).expect("write");
    for index in 0..CALLS {
        writer.write(Record::Call(call(rank, index))).expect("write");
        if index % 1000 == 999 {
            println!("written {}", index + 1);
        }
        if index >= 20 {
            writer.write(Record::Return(returned(rank, index - 20))).expect("write");
        }
    }
    std::thread::sleep(Duration::from_secs(600));
}

struct Writer {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn start(dir: &Path, rank: u32, session: u32) -> Writer {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "writer_process", "--nocapture"])
            .env(DIR, dir)
            .env(RANK, rank.to_string())
            .env(SESSION, session.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Writer { child, said }
    }

    /// Waits until it has written so many calls.
    fn wait_for(&mut self, calls: u64) {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.said.read_line(&mut line).expect("read") > 0, "it ended too early");
            let said = line.trim().strip_prefix("written ").and_then(|text| text.parse::<u64>().ok());
            if said.is_some_and(|said| said >= calls) {
                return;
            }
        }
    }

    /// Kills it; gives how many calls it had said to be written.
    fn kill(mut self) -> u64 {
        self.child.kill().expect("kill");
        let status = self.child.wait().expect("wait");
        assert_eq!(status.signal(), Some(9), "{status}");
        let lines = self.said.lines().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok()).last().unwrap_or(0)
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

fn rounds(usual: u32) -> u32 {
    std::env::var("RANKDIFF_LONG").map_or(usual, |text| text.parse().expect("RANKDIFF_LONG is a number"))
}

fn check(rank: u32, calls: &[Call], written: u64) {
    assert!(calls.len() as u64 >= written, "{} of {written} calls that were written", calls.len());
    for (made, index) in calls.iter().zip(0..) {
        let mut expected = call(rank, index);
        if made.exit.is_some() {
            let entry = returned(rank, index);
            (expected.exit, expected.result) = (Some(entry.exit), Some(entry.result));
        }
        assert_eq!(*made, expected);
    }
    // A return that was written is there; at most the last 21 had none.
    let open = calls.iter().filter(|call| call.exit.is_none()).count();
    assert!(open <= 22, "{open} calls without a return");
}

#[test]
fn everything_that_was_written_outlives_its_writer() {
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let rounds = rounds(10);
    for round in 0..rounds {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut writer = Writer::start(dir.path(), 3, round);
        writer.wait_for(1000 + 1000 * random(&mut seed, 10));
        std::thread::sleep(Duration::from_micros(random(&mut seed, 3000)));
        let written = writer.kill();
        let job = JobDir::open(dir.path()).expect("open");
        // A segment that was created and not written to yet is said, and holds nothing.
        let begun =
            |problem: &&rankdiff_trace::Problem| std::fs::metadata(&problem.file).is_ok_and(|file| file.len() == 0);
        assert_eq!(job.problems().iter().find(|problem| !begun(problem)), None, "round {round}");
        let outcome = job.streams()[0].read();
        assert_eq!(outcome.problems, [], "round {round}");
        assert_eq!((outcome.trace.gaps.len(), outcome.orphan_returns), (0, 0));
        check(3, &outcome.trace.calls, written);
        assert!(!outcome.trace.closed);
        // Who comes afterwards sees the same, and that the writer is gone.
        let mut follower = Follower::new(&job.streams()[0]);
        let (mut calls, mut state) = (0, FollowState::Open);
        for _ in 0..100_000 {
            let batch = follower.poll();
            assert_eq!(batch.problems, []);
            calls += batch.records.iter().filter(|record| matches!(record, Record::Call(_))).count();
            state = batch.state;
            if state != FollowState::Open {
                break;
            }
        }
        assert_eq!(calls, outcome.trace.calls.len());
        if cfg!(target_os = "linux") {
            assert_eq!(state, FollowState::Gone);
        }
    }
}

/// One follower of a directory, eight writers at full speed; then they are killed, then they are resumed.
#[test]
fn a_follower_of_eight_writers_sees_every_call_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut followed = JobFollower::new(dir.path());
    let mut seed = 77;
    let mut calls: Vec<Vec<Call>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let mut take = |followed: &mut JobFollower, calls: &mut Vec<Vec<Call>>| {
        let mut taken = 0;
        for news in followed.poll().expect("poll") {
            assert_eq!(news.batch.problems, []);
            calls.resize(calls.len().max(news.stream + 1), Vec::new());
            let stream = &mut calls[news.stream];
            places.insert(news.stream, (news.key.pid, news.session));
            for record in news.batch.records {
                match record {
                    Record::Call(call) => {
                        assert_eq!(call.thread_seq, stream.len() as u64, "in order and once");
                        stream.push(call);
                        taken += 1;
                    }
                    Record::Return(entry) => {
                        let call = stream.get_mut(entry.thread_seq as usize).expect("its call came before");
                        assert!(call.exit.is_none(), "it returns once");
                        (call.exit, call.result) = (Some(entry.exit), Some(entry.result));
                    }
                    Record::Comm(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        taken
    };
    let mut written = Vec::new();
    for session in 0..2 {
        let mut writers: Vec<Writer> = (0..8).map(|rank| Writer::start(dir.path(), rank, session)).collect();
        for writer in &mut writers {
            writer.wait_for(2000);
            take(&mut followed, &mut calls);
            std::thread::sleep(Duration::from_micros(random(&mut seed, 2000)));
        }
        for _ in 0..random(&mut seed, 40) {
            take(&mut followed, &mut calls);
        }
        written.extend((0..8).zip(writers.into_iter().map(Writer::kill)).map(|(rank, calls)| (rank, session, calls)));
    }
    let mut ended = 0;
    for _ in 0..200_000 {
        take(&mut followed, &mut calls);
        ended = followed.states().filter(|(_, _, state)| *state != FollowState::Open).count();
        if ended == 16 {
            break;
        }
    }
    if cfg!(target_os = "linux") {
        assert_eq!(ended, 16);
    }
    let job = JobDir::open(dir.path()).expect("open");
    for (rank, session, written) in written {
        let (stream, _) = places
            .iter()
            .find(|(_, place)| **place == (rank + 100, u64::from(session)))
            .expect("the stream was noticed");
        check(rank, &calls[*stream], written);
        let whole =
            job.streams().iter().find(|stream| (stream.key.pid, stream.session) == (rank + 100, u64::from(session)));
        assert_eq!(whole.expect("its files").read().trace.calls, calls[*stream]);
    }
}

/// A file system of little room, unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Where the tail does not fit there is none, and it is never a signal.
#[test]
fn a_full_disk_is_no_signal() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=300k", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a_full_disk_is_no_signal may not mount a file system");
        return;
    }
    let disk = SmallDisk(dir.path());
    let write = |pid: u32, rows: u32| {
        let key = ProcessKey { host: "node".to_owned(), pid, start_time: 1 };
        let options = WriterOptions { tail: Some(TailOptions { rows }), block_calls: 64, ..WriterOptions::default() };
        let mut writer = StreamWriter::create(dir.path(), &key, ClockSnapshot::default(), &options).expect("create");
        let problem = writer.tail_problem().map(|problem| (problem.kind(), problem.to_string()));
        let mut failed = 0;
        for index in 0..40_003 {
            failed += usize::from(writer.write(Record::Call(call(0, index))).is_err());
        }
        (problem, failed, writer)
    };
    let (problem, _, writer) = write(1, 8192);
    let (kind, text) = problem.expect("one mebibyte does not fit");
    assert!(kind == std::io::ErrorKind::StorageFull && text.contains("0001.tail"), "{text}");
    assert!(writer.tail_path().is_none());
    drop(writer);
    for entry in std::fs::read_dir(dir.path()).expect("list") {
        std::fs::remove_file(entry.expect("entry").path()).expect("remove");
    }
    // One that fits keeps its room while segments fill the disk.
    let (problem, failed, writer) = write(2, 512);
    assert_eq!(problem, None);
    assert!(failed > 0, "the disk is full");
    let job = JobDir::open(dir.path()).expect("open");
    let outcome = job.streams()[0].read();
    assert_eq!(outcome.problems, []);
    let last = outcome.trace.calls.last().expect("calls");
    assert_eq!(last.thread_seq, 40_002, "the newest calls are in the tail");
    drop(writer);
    drop(disk);
}
