//! What scenario files cannot say: libraries that return at once and of whose calls nobody sees the end.

use rankdiff_analyzer::finding::{Class, Severity};
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::{
    Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, DType, Level, Life, Op, ProcessKey,
    ProcessState, ProcessTrace, Provenance, RankDef, Semantics, ThreadState,
};

const MS: u64 = 1_000_000;
/// When the recorder looked, ms.
const LOOK: u64 = 100_000;

/// A process of a job of three ranks; communicator 1 has no name, communicator 2 is split from it.
struct Process(ProcessTrace);

impl Process {
    fn new(rank: u32) -> Process {
        let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
        trace.key = ProcessKey { host: "n0".into(), pid: 100 + rank, start_time: 1 };
        trace.ranks.push(RankDef { rank, world: Some(3), ..RankDef::default() });
        let root = CommIdentity::root("nccl", b"id");
        let world = CommDef {
            id: CommRef(1),
            identity: root,
            provenance: Provenance::Created,
            library: "nccl".into(),
            level: Level::Library,
            semantics: Semantics::GROUP_P2P_UNORDERED
                | Semantics::GROUP_ORDER_ACROSS_COMMS
                | Semantics::SENDS_MAY_BUFFER
                | Semantics::P2P_SIZE_EXACT,
            members: vec![0, 1, 2],
            ..CommDef::default()
        };
        let child =
            CommDef { id: CommRef(2), identity: root.child(0, 5), parent: CommRef(1), color: Some(5), ..world.clone() };
        trace.comms.extend([world, child]);
        Process(trace)
    }

    fn push(mut self, op: Op, comm: u32, stream: u64, count: u64, peer: Option<u32>) -> Process {
        let at = (self.0.calls.len() as u64 + 1) * 10 * MS;
        let of_comm = |call: &&Call| call.comm == CommRef(comm) && call.op.is_collective();
        let seq = self.0.calls.iter().filter(of_comm).count() as u64;
        self.0.calls.push(Call {
            op,
            comm: CommRef(comm),
            seq: op.is_collective().then_some(seq),
            count: Some(count),
            dtype: DType::Basic(Basic::F32),
            root: op.has_root().then_some(0),
            peer,
            stream,
            thread: 7,
            thread_seq: self.0.calls.len() as u64,
            enter: at,
            exit: Some(at + 1000),
            ..Call::default()
        });
        self
    }

    fn reduce(self, comm: u32, stream: u64) -> Process {
        self.push(Op::AllReduce, comm, stream, 8, None)
    }

    fn send(self, peer: u32, count: u64) -> Process {
        self.push(Op::Send, 1, 7, count, Some(peer))
    }

    fn recv(self, peer: u32, count: u64) -> Process {
        self.push(Op::Recv, 1, 7, count, Some(peer))
    }

    /// Puts the last `calls` into one batch.
    fn batch(mut self, calls: usize) -> Process {
        for call in self.0.calls.iter_mut().rev().take(calls) {
            call.group = 1;
            call.flags = call.flags.with(CallFlags::GROUPED);
        }
        self
    }

    fn end(mut self, life: Life) -> ProcessTrace {
        self.0.states.push(ProcessState { at: LOOK * MS, life });
        self.0.clocks.push(ClockSnapshot { monotonic: LOOK * MS, ..ClockSnapshot::default() });
        self.0
    }

    /// Alive, its main thread asleep since shortly after its calls.
    fn asleep(mut self) -> ProcessTrace {
        let state = ThreadState {
            at: LOOK * MS,
            tid: self.0.key.pid,
            name: "main".into(),
            state: "sleeping".into(),
            syscall: "futex".into(),
            since_ms: Some(500),
            cpu_ms: Some(5),
            ..ThreadState::default()
        };
        self.0.threads.push(state);
        self.end(Life::Blocked)
    }
}

fn report(traces: Vec<ProcessTrace>) -> Report {
    analyze(traces, &Options::default())
}

fn job(process: impl Fn(Process, u32) -> Process, end: impl Fn(Process) -> ProcessTrace) -> Report {
    report((0..3).map(|rank| end(process(Process::new(rank).reduce(1, 7), rank))).collect())
}

/// Every rank's exchange with its neighbours.
fn ring(p: Process, rank: u32, count: u64) -> Process {
    p.send((rank + 1) % 3, count).recv((rank + 2) % 3, count)
}

#[test]
fn ungrouped_sends_on_one_stream_are_a_deadlock_where_the_job_stands_still() {
    let found = job(|p, rank| ring(p, rank, 4_000_000).reduce(1, 7), Process::asleep);
    assert_eq!(found.class, Class::P2pDeadlock, "{}", found.summary);
    assert_eq!(found.findings[0].cycle.len(), 3);
    assert!(found.findings[0].suspects.is_empty());
    assert_eq!(found.findings.len(), 1);
}

#[test]
fn ungrouped_sends_are_none_where_ranks_compute_or_a_batch_holds_them() {
    let computing = job(|p, rank| ring(p, rank, 4_000_000), |p| p.end(Life::Running));
    assert_eq!(computing.class, Class::Clean, "{}", computing.summary);
    let grouped = job(|p, rank| ring(p, rank, 4_000_000).batch(2), |p| p.end(Life::Running));
    assert_eq!(grouped.class, Class::Clean, "{}", grouped.summary);
}

#[test]
fn sends_that_the_ranks_went_on_from_were_buffered() {
    let found = job(
        |p, rank| {
            let mut p = ring(p, rank, 4_000);
            for _ in 0..200 {
                p = p.reduce(1, 7);
            }
            p
        },
        Process::asleep,
    );
    assert_eq!(found.class, Class::Unknown, "{}", found.summary);
    assert!(found.findings.iter().all(|finding| finding.severity < Severity::Error));
}

fn crossed(p: Process, rank: u32, streams: [u64; 2]) -> Process {
    if rank == 1 {
        p.reduce(2, streams[1]).reduce(1, streams[0])
    } else {
        p.reduce(1, streams[0]).reduce(2, streams[1])
    }
}

#[test]
fn communicators_crossed_on_one_stream_are_a_circle() {
    let found = job(|p, rank| crossed(p, rank, [7, 7]), Process::asleep);
    assert_eq!(found.class, Class::OrderInversion, "{}", found.summary);
    assert_eq!(found.findings[0].cycle.len(), 2);
    let summary = &found.summary;
    assert!(summary.contains("world and split of world, color 5 (ranks 0-2)"), "{summary}");
}

#[test]
fn communicators_crossed_on_streams_of_their_own_are_none() {
    let found = job(|p, rank| crossed(p, rank, [7, 9]), |p| p.end(Life::Running));
    assert_eq!(found.class, Class::Clean, "{}", found.summary);
    let asleep = job(|p, rank| crossed(p, rank, [7, 9]), Process::asleep);
    assert_eq!(asleep.class, Class::Unknown, "{}", asleep.summary);
}

#[test]
fn a_receive_that_its_sender_went_on_without_has_no_partner() {
    let extra = |p: Process, rank| {
        let p = ring(p, rank, 9_000);
        if rank == 1 { p.recv(2, 9_000).batch(3) } else { p.batch(2) }
    };
    let found = job(|p, rank| extra(p, rank).reduce(1, 7), Process::asleep);
    assert_eq!(found.class, Class::P2pMismatch, "{}", found.summary);
    assert_eq!(found.findings.len(), 1);
    assert!(found.findings[0].suspects.is_empty());
    assert_eq!(found.findings[0].waiting.to_string(), "0-2");
    assert!(found.summary.contains("without sending"), "{}", found.summary);
    // Nobody has gone on: the sender may only be late.
    let late = job(extra, Process::asleep);
    assert_ne!(late.class, Class::P2pMismatch, "{}", late.summary);
}

#[test]
fn a_job_in_which_everybody_sleeps_is_not_called_clean() {
    let found = job(|p, _| p.push(Op::Broadcast, 1, 7, 4, None), Process::asleep);
    assert_eq!(found.class, Class::Unknown, "{}", found.summary);
    assert_eq!(found.findings[0].severity, Severity::Warning);
    assert_eq!(found.findings[0].first_visible, Some(1));
    assert!(found.findings[0].detail.iter().any(|line| line.contains("host streams agree")));
    let one_computes = (0..3).map(|rank| {
        let p = Process::new(rank).reduce(1, 7);
        if rank == 2 { p.end(Life::Running) } else { p.asleep() }
    });
    assert_eq!(report(one_computes.collect()).class, Class::Clean);
    let ended = job(|p, _| p, |p| p.end(Life::Exited(0)));
    assert_eq!(ended.class, Class::Clean, "{}", ended.summary);
}

#[test]
fn what_a_killed_recorder_left_says_nothing_of_its_end() {
    // The files end at different times, in different calls, and nobody said how the ranks stood.
    let torn = (0..3).map(|rank| {
        let mut p = Process::new(rank);
        for _ in 0..40 + rank * 9 {
            p = p.reduce(1, 7);
        }
        p.0.closed = false;
        p.0
    });
    let found = report(torn.collect());
    assert_eq!(found.class, Class::Clean, "{}", found.summary);
    assert!(found.coverage.problems.iter().any(|text| text.contains("did not close")), "{:?}", found.coverage.problems);
}
