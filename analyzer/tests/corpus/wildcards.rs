//! Receives from any source and with any tag, which scenario files cannot say: a message is only missing where no
//! assignment of messages to receives has one.

use rankdiff_analyzer::finding::{Class, Severity};
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::{
    Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, DType, EndedBy, Level, Life, Op, ProcessKey,
    ProcessState, ProcessTrace, Provenance, RankDef, Semantics,
};

const MS: u64 = 1_000_000;
/// When the recorder looked, ms.
const LOOK: u64 = 100_000;

/// A process of a job of four ranks whose calls block.
struct Process(ProcessTrace);

impl Process {
    fn new(rank: u32) -> Process {
        let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
        trace.key = ProcessKey { host: "n0".into(), pid: 100 + rank, start_time: 1 };
        trace.ranks.push(RankDef { rank, world: Some(4), ..RankDef::default() });
        trace.comms.push(CommDef {
            id: CommRef(1),
            identity: CommIdentity::root("mpi", b"world"),
            provenance: Provenance::Predefined,
            name: "world".into(),
            library: "mpi".into(),
            level: Level::Library,
            semantics: Semantics::BLOCKING | Semantics::NONBLOCKING_DISTINCT | Semantics::SENDS_MAY_BUFFER,
            members: vec![0, 1, 2, 3],
            ..CommDef::default()
        });
        Process(trace)
    }

    fn call(mut self, op: Op, peer: Option<u32>, tag: i64, flags: CallFlags, done: bool) -> Process {
        let at = (self.0.calls.len() as u64 + 1) * 10 * MS;
        let seq = self.0.calls.iter().filter(|call| call.op.is_collective()).count() as u64;
        let message = !op.is_collective();
        self.0.calls.push(Call {
            op,
            comm: CommRef(1),
            seq: (!message).then_some(seq),
            count: message.then_some(8),
            dtype: if message { DType::Basic(Basic::F64) } else { DType::None },
            peer,
            tag: message.then_some(tag),
            flags,
            thread: 7,
            thread_seq: self.0.calls.len() as u64,
            enter: at,
            exit: done.then_some(at + MS),
            ..Call::default()
        });
        self
    }

    fn send(self, peer: u32, tag: i64) -> Process {
        self.call(Op::Send, Some(peer), tag, CallFlags::default(), true)
    }

    /// A send that has not returned.
    fn sending(self, peer: u32, tag: i64) -> Process {
        self.call(Op::Send, Some(peer), tag, CallFlags::default(), false)
    }

    fn recv(self, peer: u32, tag: i64, done: bool) -> Process {
        self.call(Op::Recv, Some(peer), tag, CallFlags::default(), done)
    }

    fn any(self, tag: i64, done: bool) -> Process {
        self.call(Op::Recv, None, tag, CallFlags::ANY_SOURCE, done)
    }

    fn any_tag(self, peer: u32, done: bool) -> Process {
        self.call(Op::Recv, Some(peer), 0, CallFlags::ANY_TAG, done)
    }

    fn barrier(self, done: bool) -> Process {
        self.call(Op::Barrier, None, 0, CallFlags::default(), done)
    }

    fn end(mut self, at: u64, life: Life) -> ProcessTrace {
        self.0.states.push(ProcessState { at: at * MS, life });
        self.0.clocks.push(ClockSnapshot { monotonic: at * MS, ..ClockSnapshot::default() });
        self.0
    }

    fn waits(self) -> ProcessTrace {
        self.end(LOOK, Life::Waiting)
    }

    fn runs(self) -> ProcessTrace {
        self.end(LOOK, Life::Running)
    }

    fn left(self) -> ProcessTrace {
        self.end(1000, Life::Exited(0))
    }
}

fn report(traces: Vec<ProcessTrace>) -> Report {
    analyze(traces, &Options::default())
}

/// Class, and how many findings are warnings or errors.
fn verdict(traces: Vec<ProcessTrace>) -> (Class, usize) {
    let report = report(traces);
    let loud = report.findings.iter().filter(|finding| finding.severity > Severity::Note).count();
    (report.class, loud)
}

#[test]
fn any_order_of_arrival_is_right() {
    let master = Process::new(0).any(1, true).any(1, true).any_tag(3, true).any(9, true);
    let workers = [Process::new(1).send(0, 1), Process::new(2).send(0, 1), Process::new(3).send(0, 4).send(0, 9)];
    let traces: Vec<ProcessTrace> = std::iter::once(master).chain(workers).map(Process::left).collect();
    assert_eq!(verdict(traces), (Class::Clean, 0));
}

#[test]
fn everybody_who_could_send_has_left() {
    let mut traces = vec![Process::new(0).any(1, true).any(1, false).waits()];
    traces.extend([Process::new(1).send(0, 1).left(), Process::new(2).left(), Process::new(3).left()]);
    let report = report(traces);
    assert_eq!(report.class, Class::UnevenInputs);
    assert_eq!(report.findings[0].waiting.to_string(), "0");
    assert!(report.findings[0].headline.contains("from any rank"), "{}", report.findings[0].headline);
}

#[test]
fn everybody_who_could_send_waits_for_the_receiver() {
    let worker = |rank| Process::new(rank).barrier(true).barrier(false).waits();
    let master = Process::new(0).barrier(true).any(1, false).waits();
    let report = report(vec![master, worker(1), worker(2), worker(3)]);
    assert_eq!(report.class, Class::P2pDeadlock);
    assert_eq!(report.findings[0].cycle, [0, 1]);
    assert!(report.findings[0].suspects.is_empty());
    assert_eq!(report.findings[0].waiting.to_string(), "0-3");
}

#[test]
fn one_who_may_still_send_makes_it_no_circle() {
    let master = || Process::new(0).barrier(true).any(1, false).waits();
    let waits = |rank| Process::new(rank).barrier(true).barrier(false).waits();
    // Rank 3 computes.
    let traces = vec![master(), waits(1), waits(2), Process::new(3).barrier(true).runs()];
    let held = report(traces);
    assert!(held.findings.iter().all(|finding| finding.cycle.is_empty()), "{held:?}");
    // Rank 2 will have its message from rank 3, and may send then.
    let second = Process::new(2).barrier(true).recv(3, 5, false).waits();
    let traces = vec![master(), waits(1), second, Process::new(3).barrier(true).runs()];
    let held = report(traces);
    assert!(held.findings.iter().all(|finding| finding.cycle.is_empty()), "{held:?}");
    // Ended with the job, rank 3 may have been about to send all the same.
    let by = Life::Signaled { signal: 15, by: EndedBy::Launcher };
    let dead = |process: Process| process.end(LOOK, by.clone());
    let barred = |rank| Process::new(rank).barrier(true).barrier(false);
    let traces = vec![
        dead(Process::new(0).barrier(true).any(1, false)),
        dead(barred(1)),
        dead(barred(2)),
        dead(Process::new(3).barrier(true)),
    ];
    assert!(report(traces).findings.iter().all(|finding| finding.cycle.is_empty()));
}

#[test]
fn the_only_message_may_have_gone_elsewhere() {
    let bar = |process: Process| process.barrier(false).waits();
    let rest = || [bar(Process::new(2)), bar(Process::new(3))];
    // One message from rank 1; a receive from any source has taken it, since nobody else sent one.
    let master = Process::new(0).any(1, true).recv(1, 1, false).waits();
    let mut traces = vec![master, bar(Process::new(1).send(0, 1))];
    traces.extend(rest());
    let found = report(traces);
    assert_eq!((found.class, found.findings[0].cycle.clone()), (Class::P2pDeadlock, vec![0, 1]));
    // Rank 2 sent one too: perhaps that one was taken, and the message from rank 1 is on its way.
    let master = Process::new(0).any(1, true).recv(1, 1, false).waits();
    let traces = vec![master, bar(Process::new(1).send(0, 1)), bar(Process::new(2).send(0, 1)), bar(Process::new(3))];
    assert!(report(traces).findings.iter().all(|finding| finding.cycle.is_empty()));
    // It has another tag: it cannot have been.
    let master = Process::new(0).any(1, true).recv(1, 1, false).waits();
    let traces = vec![master, bar(Process::new(1).send(0, 1)), bar(Process::new(2).send(0, 2)), bar(Process::new(3))];
    assert_eq!(report(traces).class, Class::P2pDeadlock);
}

#[test]
fn a_send_that_no_receive_is_left_for() {
    // The master took one message from anywhere, and waits in a barrier; two ranks have sent one each.
    let master = Process::new(0).any(1, true).barrier(false).waits();
    let bar = |process: Process| process.barrier(false).waits();
    let traces = vec![
        master,
        bar(Process::new(1).send(0, 1)),
        Process::new(2).send(0, 1).sending(0, 1).waits(),
        bar(Process::new(3)),
    ];
    let found = report(traces);
    assert_eq!(found.class, Class::P2pDeadlock, "{found:?}");
    assert!(found.findings[0].cycle.contains(&2) && found.findings[0].cycle.contains(&0));
}

#[test]
fn a_worker_that_died_is_why_the_master_waits() {
    let worker = |rank| Process::new(rank).send(0, 1).recv(0, 2, false).waits();
    let master = Process::new(0).any(1, true).any(1, true).any(1, false).waits();
    let killed = Process::new(3).end(500, Life::Signaled { signal: 9, by: EndedBy::OomKiller });
    let report = report(vec![master, worker(1), worker(2), killed]);
    assert_eq!(report.class, Class::RankFailed);
    let first = &report.findings[0];
    assert_eq!((first.failed.to_string(), first.direct_victims.to_string()), ("3".to_owned(), "0".to_owned()));
    assert_eq!(first.transitive_victims.to_string(), "1-2");
}
