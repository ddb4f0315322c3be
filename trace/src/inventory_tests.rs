//! Counts of a small trace, with and without decoding.

use std::path::Path;
use std::sync::Arc;

use super::{CallCount, GapCount, Inventory};
use crate::call::{Call, Return, SiteRef};
use crate::comm::{CommDef, CommIdentity, CommRef, RankDef};
use crate::directory::TraceDir;
use crate::evidence::{ClockSnapshot, GapCause, Life, ProcessState};
use crate::job::{JobDir, JobInfo, write_job_info};
use crate::op::Op;
use crate::retain::{Keep, Retention};
use crate::stream::{ProcessKey, Record};
use crate::tail::TailOptions;
use crate::writer::{StreamWriter, WriterOptions};

/// Two hosts, 50 calls each; the second one's recorder was killed, and has the last of them in its tail.
fn write(path: &Path) {
    for pid in 0..2_u32 {
        let dir = TraceDir::open(path).expect("open");
        let dir = Arc::new(if pid == 0 { dir.with_retention() } else { dir });
        let key = ProcessKey { host: format!("n{pid}"), pid, start_time: 9 };
        let options = WriterOptions {
            job_id: "j".to_owned(),
            block_calls: 20,
            tail: (pid == 1).then(TailOptions::default),
            ..WriterOptions::default()
        };
        let clock = ClockSnapshot { monotonic: 100, boottime: 100, realtime: 1_000_100 };
        let mut writer = StreamWriter::create_in(&dir, &key, clock, &options).expect("create");
        let mut put = |record| writer.write(record).expect("write");
        put(Record::Rank(RankDef { rank: pid, world: Some(4), ..RankDef::default() }));
        let world = CommDef {
            id: CommRef(1),
            name: "world".to_owned(),
            identity: CommIdentity(7),
            size: Some(2),
            ..CommDef::default()
        };
        put(Record::Comm(world));
        put(Record::State(ProcessState { at: 9, life: Life::Exited(0) }));
        for seq in 0..50 {
            put(Record::Call(Call {
                op: if seq % 10 == 9 { Op::Barrier } else { Op::AllReduce },
                comm: CommRef(1),
                seq: Some(seq),
                count: Some(1),
                enter: 1000 + seq * 10,
                exit: (seq % 2 == 0).then_some(1005 + seq * 10),
                site: SiteRef(u32::from(seq < 20)),
                thread: 1 + (seq % 3) as u32,
                thread_seq: seq,
                ..Call::default()
            }));
        }
        if pid == 1 {
            // Killed: neither flushed nor closed.
            std::mem::forget(writer);
            continue;
        }
        put(Record::Return(Return { thread: 2, thread_seq: 1, exit: 2000, ..Return::default() }));
        writer.rotate(clock).expect("rotate");
        Retention::new(Keep::Bytes(0)).enforce(&dir).expect("rewritten");
        writer.close().expect("close");
    }
    write_job_info(path, &JobInfo { host: "n0".to_owned(), ..JobInfo::default() }).expect("write");
}

#[test]
fn everything_is_counted() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let job = JobDir::open(dir.path()).expect("a trace");
    let inventory = Inventory::take(&job, 1000);
    assert_eq!(inventory.problems, []);
    assert_eq!(inventory.ranks.iter().collect::<Vec<u32>>(), [0, 1]);
    assert_eq!((inventory.world, inventory.infos.len()), (Some(4), 1));
    assert_eq!(inventory.job_ids.iter().collect::<Vec<_>>(), ["j"]);
    assert_eq!(inventory.hosts.keys().collect::<Vec<_>>(), ["n0", "n1"]);
    assert_eq!((inventory.calls(), inventory.expired()), (90, 50));
    let [one, two] = inventory.processes.as_slice() else { panic!("{:?}", inventory.processes) };
    assert_eq!((one.calls, one.expired, one.segments, one.closed, one.tail_rows), (50, 50, 2, true, None));
    assert_eq!((two.calls, two.expired, two.segments, two.closed), (40, 0, 1, false));
    assert_eq!((one.run, two.run, inventory.runs()), (1, 1, 1));
    // A tail has its room from the start: it says nothing of the calls.
    assert!(one.tail_bytes == 0 && two.tail_bytes > 100_000, "{} and {}", one.tail_bytes, two.tail_bytes);
    assert_eq!(inventory.tail_bytes(), two.tail_bytes);
    assert!(two.tail_rows.is_some_and(|rows| rows >= 10), "{two:?}");
    assert_eq!(one.life, Some(Life::Exited(0)));
    let gaps: Vec<(GapCause, GapCount)> = inventory.gaps().into_iter().collect();
    assert_eq!(gaps, [(GapCause::Expired, GapCount { gaps: 1, calls: 50, uncounted: 0 })]);
    // By digests: those of the dropped calls are still there.
    let comms: Vec<_> =
        inventory.comms.iter().map(|comm| (comm.name.as_str(), comm.members, comm.collectives)).collect();
    assert_eq!(comms, [("world", 2, (40, 50))]);
    let counted = inventory.decoded.clone().expect("few enough");
    assert_eq!(
        counted.ops.iter().map(|(op, calls)| (*op, *calls)).collect::<Vec<_>>(),
        [(Op::Barrier, 4), (Op::AllReduce, 36)]
    );
    assert_eq!(counted, CallCount { calls: 40, returned: 20, with_site: 20, threads: 3, ops: counted.ops.clone() });
    let bytes: u64 = std::fs::read_dir(dir.path())
        .expect("list")
        .map(|entry| entry.expect("entry"))
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with(".json"))
        .map(|entry| entry.metadata().expect("file").len())
        .sum();
    assert_eq!(inventory.bytes(), bytes);
}

#[test]
fn many_calls_are_not_decoded() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let job = JobDir::open(dir.path()).expect("a trace");
    let inventory = Inventory::take(&job, 89);
    assert_eq!(inventory.decoded, None);
    assert_eq!(inventory.calls(), 90);
}

#[test]
fn runs_of_one_directory_are_counted_apart() {
    let dir = tempfile::tempdir().expect("directory");
    // Twice the same two ranks on the same communicator, the second time an hour later and with more calls.
    for (run, calls) in [(0_u64, 5_u64), (1, 7)] {
        for rank in 0..2_u32 {
            let key = ProcessKey { host: "n".to_owned(), pid: rank + 10 * run as u32, start_time: run };
            let clock = ClockSnapshot { monotonic: 0, boottime: 0, realtime: 1_000 };
            let options = WriterOptions::default();
            let mut writer = StreamWriter::create(dir.path(), &key, clock, &options).expect("create");
            let mut put = |record| writer.write(record).expect("write");
            put(Record::Rank(RankDef { rank, world: Some(2), ..RankDef::default() }));
            let identity = CommIdentity(7);
            put(Record::Comm(CommDef { id: CommRef(1), identity, size: Some(2), ..CommDef::default() }));
            for seq in 0..calls {
                let enter = run * 3_600_000_000_000 + seq * 10;
                put(Record::Call(Call {
                    op: Op::Barrier,
                    comm: CommRef(1),
                    seq: Some(seq),
                    enter,
                    thread: 1,
                    thread_seq: seq,
                    ..Call::default()
                }));
            }
            writer.close().expect("close");
        }
    }
    let inventory = Inventory::take(&JobDir::open(dir.path()).expect("a trace"), 1000);
    assert_eq!(inventory.runs(), 2);
    let comms: Vec<_> =
        inventory.comms.iter().map(|comm| (comm.run, comm.members, comm.size, comm.collectives)).collect();
    assert_eq!(comms, [(2, 2, Some(2), (7, 7)), (1, 2, Some(2), (5, 5))]);
    assert_eq!(inventory.processes.iter().map(|process| process.run).collect::<Vec<_>>(), [1, 1, 2, 2]);
}
