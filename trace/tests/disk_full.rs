//! A full disk: what does not fit is counted and marked, what fits later stands behind whole blocks.
//!
//! The file-size limit stands for the disk. It holds for a process, so the test runs itself under `ulimit`.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

use rankdiff_trace::{
    Call, ClockSnapshot, CommDef, CommRef, GapCause, JobDir, ProcessKey, Record, StreamWriter, WriteError,
    WriterOptions,
};

/// Calls that fit below the limit of 40 blocks of 512 or 1024 bytes.
const FIRST: u64 = 200;
/// Calls in a block, which is larger than the limit.
const BLOCK: u64 = 6000;

const DIR: &str = "RANKDIFF_TEST_DIR";

fn key() -> ProcessKey {
    ProcessKey { host: "node-1".to_owned(), pid: 4711, start_time: 123_456_789 }
}

fn call(index: u64) -> Call {
    // Times and handles that do not compress.
    let noise = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = (noise ^ (noise >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Call {
        comm: CommRef(1),
        thread: 1,
        thread_seq: index,
        enter: 1_000_000 * index + noise % 1_000_000,
        stream: noise,
        ..Call::default()
    }
}

/// Runs under the limit: fills the segment, fails, and goes on in another one.
#[test]
#[ignore = "run by the other test, under a file-size limit"]
fn under_the_limit() {
    let dir = std::env::var_os(DIR).expect("a directory");
    let options = WriterOptions { block_calls: BLOCK as usize, ..WriterOptions::default() };
    let mut writer = StreamWriter::create(Path::new(&dir), &key(), ClockSnapshot::default(), &options).expect("create");
    writer.write(Record::Comm(CommDef { id: CommRef(1), ..CommDef::default() })).expect("write");
    let mut index = 0;
    let mut fill = |writer: &mut StreamWriter, calls: u64| {
        let failures = (index..index + calls).filter(|&index| match writer.write(Record::Call(call(index))) {
            Ok(()) => false,
            Err(error) => {
                assert!(error.is_disk_full(), "{error}");
                assert!(matches!(error, WriteError::DiskFull { lost_calls: BLOCK, .. }), "{error}");
                true
            }
        });
        let failures = failures.count();
        index += calls;
        failures
    };
    assert_eq!(fill(&mut writer, FIRST), 0);
    writer.flush().expect("a small block fits");
    assert_eq!(fill(&mut writer, 2 * BLOCK), 2);
    assert_eq!(writer.summary().lost_calls, 2 * BLOCK);
    // A definition in a write that fails is not lost for good.
    writer.write(Record::Comm(CommDef { id: CommRef(2), ..CommDef::default() })).expect("buffered");
    assert_eq!(fill(&mut writer, BLOCK), 1);
    assert_eq!(fill(&mut writer, 1), 0);
    writer.flush().expect("a small block fits where a large one did not");
    assert_eq!(writer.summary().lost_calls, 3 * BLOCK);
    drop(writer);
}

#[test]
fn what_fits_is_whole_and_what_does_not_is_a_gap() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // Through a pipe: the limit holds for every file, the one that this test's own output goes to among them.
    let ended = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$0\" --ignored --exact under_the_limit --nocapture"])
        .arg(std::env::current_exe().expect("this test"))
        .env(DIR, dir.path())
        .output()
        .expect("a shell");
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    let outcome = JobDir::open(dir.path()).expect("open").streams()[0].read();
    assert_eq!(outcome.problems, [], "no torn block is left behind");
    let trace = &outcome.trace;
    let before = FIRST;
    assert_eq!(trace.calls.len() as u64, FIRST + 1);
    assert_eq!(trace.calls[..before as usize], (0..before).map(call).collect::<Vec<Call>>());
    assert_eq!(trace.calls.last(), Some(&call(before + 3 * BLOCK)));
    let [gap] = trace.gaps.as_slice() else { panic!("{:?}", trace.gaps) };
    assert_eq!((gap.cause, gap.events), (GapCause::DiskFull, Some(3 * BLOCK)));
    assert_eq!(gap.after, call(before - 1).enter);
    assert_eq!(gap.before, call(before + 3 * BLOCK - 1).enter + 1);
    assert!(trace.comm(CommRef(2)).is_some(), "the definition was written again");
}
