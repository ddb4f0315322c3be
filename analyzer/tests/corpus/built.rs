//! What scenario files cannot say: shutting down, aborting, communicators between groups, several attempts and ranks in
//! one process.

use rankdiff_analyzer::finding::{Class, Severity};
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::{
    Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, DType, EndedBy, Level, Life, Op, ProcessKey,
    ProcessState, ProcessTrace, Provenance, RankDef, Semantics,
};

const MS: u64 = 1_000_000;

/// A blocking library's process.
struct Process(ProcessTrace);

impl Process {
    fn new(rank: u32, world: u32) -> Process {
        let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
        trace.key = ProcessKey { host: "n0".into(), pid: 100 + rank, start_time: 1 };
        trace.ranks.push(RankDef { rank, world: Some(world), ..RankDef::default() });
        Process(trace).comm(1, "world", (0..world).collect(), false)
    }

    fn comm(mut self, id: u32, name: &str, members: Vec<u32>, inter: bool) -> Process {
        self.0.comms.push(CommDef {
            id: CommRef(id),
            identity: CommIdentity::root("mpi", name.as_bytes()),
            provenance: Provenance::Created,
            name: name.into(),
            library: "mpi".into(),
            level: Level::Library,
            semantics: Semantics::BLOCKING | Semantics::NONBLOCKING_DISTINCT | Semantics::SENDS_MAY_BUFFER,
            members,
            inter,
            ..CommDef::default()
        });
        self
    }

    /// A call; it returns after 1 ms unless it is `inside`.
    fn call(mut self, op: Op, comm: u32, count: u64, inside: bool) -> Process {
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
            thread: 7,
            thread_seq: self.0.calls.len() as u64,
            enter: at,
            exit: (!inside).then_some(at + MS),
            ..Call::default()
        });
        self
    }

    /// A communicator that the recorder could not identify.
    fn unknown(mut self, id: u32, size: Option<u32>) -> Process {
        self = self.comm(id, "", Vec::new(), false);
        let def = self.0.comms.last_mut().expect("a communicator");
        (def.identity, def.size) = (CommIdentity::UNKNOWN, size);
        self
    }

    fn flag(mut self, flags: CallFlags) -> Process {
        let call = self.0.calls.last_mut().expect("a call");
        call.flags = call.flags.with(flags);
        self
    }

    fn end(mut self, life: Life, at_ms: u64) -> ProcessTrace {
        self.0.states.push(ProcessState { at: at_ms * MS, life });
        self.0.clocks.push(ClockSnapshot { monotonic: at_ms * MS, ..ClockSnapshot::default() });
        self.0
    }
}

fn report(traces: Vec<ProcessTrace>) -> Report {
    analyze(traces, &Options::default())
}

#[test]
fn shutting_down_in_the_middle_of_a_step_is_a_missing_call() {
    let steps = |rank| {
        (0..4).fold(Process::new(rank, 2), |p, _| p.call(Op::Broadcast, 1, 4, false).call(Op::Reduce, 1, 4, false))
    };
    let waits = steps(0).call(Op::Broadcast, 1, 4, false).call(Op::Barrier, 1, 0, true).end(Life::Waiting, 70_000);
    let gone = steps(1).call(Op::Broadcast, 1, 4, false).call(Op::Finalize, 0, 0, true).end(Life::Waiting, 70_000);
    let report = report(vec![waits, gone]);
    assert_eq!(report.class, Class::CodeDivergence, "{}", report.summary);
    assert_eq!(report.findings[0].first_visible, Some(9));
    assert_eq!(report.findings[0].first_divergence, Some(9));
    assert!(report.findings[0].headline.contains("rank 1"), "{}", report.findings[0].headline);
}

#[test]
fn shutting_down_after_whole_steps_is_the_end_of_inputs() {
    let steps = |rank, n| {
        (0..n).fold(Process::new(rank, 2), |p, _| p.call(Op::Broadcast, 1, 4, false).call(Op::Reduce, 1, 4, false))
    };
    let waits = steps(0, 4).call(Op::Broadcast, 1, 4, true).end(Life::Waiting, 70_000);
    let gone = steps(1, 4).call(Op::Finalize, 0, 0, false).end(Life::Exited(0), 300);
    let report = report(vec![waits, gone]);
    assert_eq!(report.class, Class::UnevenInputs, "{}", report.summary);
}

/// Rank 1 ends with an error inside its last call, at `ended`; the launcher ends the others before they get there.
fn ends_inside(ended: u64) -> Report {
    let run = |rank| (0..4).fold(Process::new(rank, 3), |p, _| p.call(Op::AllReduce, 1, 4, false));
    let killed = |rank| run(rank).end(Life::Signaled { signal: 9, by: EndedBy::Launcher }, ended + 10);
    let fails = run(1).call(Op::AllReduce, 1, 4, true).end(Life::Exited(14), ended);
    report(vec![killed(0), fails, killed(2)])
}

#[test]
fn an_error_right_behind_the_entry_is_the_ranks_own() {
    let report = ends_inside(60);
    assert_eq!(report.class, Class::RankFailed, "{}", report.summary);
    assert_eq!(report.findings[0].failed.to_string(), "1");
    // After a long wait it is the time-out of one that waited in vain.
    let late = ends_inside(90_000);
    assert!(late.findings.iter().all(|finding| !finding.suspects.contains(1)), "{}", late.summary);
}

#[test]
fn a_member_that_sends_nothing_hides_no_difference_between_the_others() {
    let gather = |rank, dtype, count: u64| {
        let mut p = Process::new(rank, 3).call(Op::GatherV, 1, 0, false);
        let call = p.0.calls.last_mut().expect("a call");
        (call.count, call.dtype) = (Some(count), DType::Basic(dtype));
        p.end(Life::Exited(0), 100)
    };
    let run = |two| report(vec![gather(0, Basic::F64, 0), gather(1, Basic::F32, 2), gather(2, two, 2)]);
    assert_eq!(run(Basic::F32).class, Class::Clean);
    let wrong = run(Basic::I32);
    assert_eq!((wrong.class, wrong.findings[0].what), (Class::ParameterMismatch, Some("dtype")), "{}", wrong.summary);
}

#[test]
fn a_call_that_returned_an_error_takes_no_certain_position() {
    // Rank 1's first broadcast is refused for its count, it goes on; or the same without an error, which is a difference.
    let run = |result| {
        let fine = |rank| {
            let p = Process::new(rank, 3).call(Op::AllReduce, 1, 4, false).call(Op::Broadcast, 1, 4, false);
            p.call(Op::Barrier, 1, 0, false).end(Life::Exited(0), 200)
        };
        let mut p = Process::new(1, 3).call(Op::AllReduce, 1, 4, false).call(Op::Broadcast, 1, 9, false);
        p.0.calls.last_mut().expect("a call").result = Some(result);
        let p = p.call(Op::Broadcast, 1, 4, false).call(Op::Barrier, 1, 0, false);
        report(vec![fine(0), p.end(Life::Exited(0), 200), fine(2)])
    };
    let refused = run(2);
    assert_eq!(refused.class, Class::Clean, "{refused:?}");
    assert_ne!(run(0).class, Class::Clean);
}

#[test]
fn vectors_are_paired_where_a_member_has_not_come() {
    let vectors = |mut p: Process, count, recvs: &[u64]| {
        let call = p.0.calls.last_mut().expect("a call");
        (call.count, call.recvs) = (Some(count), recvs.to_vec());
        p
    };
    let run = |expected: u64| {
        let root = vectors(Process::new(0, 3).call(Op::GatherV, 1, 0, true), 2, &[expected, 2, 3]);
        let other = vectors(Process::new(2, 3).call(Op::GatherV, 1, 0, false), 3, &[]);
        let none = Process::new(1, 3);
        report(vec![root.end(Life::Waiting, 100), none.end(Life::Running, 100), other.end(Life::Running, 100)])
    };
    let wrong = run(1);
    assert_eq!(wrong.class, Class::ParameterMismatch, "{}", wrong.summary);
    assert_eq!(wrong.findings[0].first_divergence, Some(0));
    assert_eq!(run(2).class, Class::Clean);
}

#[test]
fn of_two_ranks_the_one_that_lags_is_named_and_none_suspected() {
    let run = |rank, first: u64| {
        [first, 7, 8, 9, 5]
            .iter()
            .skip(usize::from(first == 0))
            .fold(Process::new(rank, 2), |p, count| p.call(Op::AllReduce, 1, *count, false))
    };
    let report = report(vec![run(0, 0).end(Life::Exited(0), 200), run(1, 6).end(Life::Exited(0), 200)]);
    assert_eq!(report.class, Class::CodeDivergence, "{}", report.summary);
    assert!(report.summary.contains("rank 0 lacks 1 call"), "{}", report.summary);
    assert!(report.findings[0].suspects.is_empty());
}

#[test]
fn the_rank_that_aborts_is_named_and_the_others_are_collateral() {
    let run = |rank| (0..4).fold(Process::new(rank, 3), |p, _| p.call(Op::AllReduce, 1, 4, false));
    let by = EndedBy::Launcher;
    let killed = |rank| run(rank).call(Op::AllReduce, 1, 4, true).end(Life::Signaled { signal: 9, by: by.clone() }, 90);
    let aborts = run(1).call(Op::Abort, 0, 0, true).end(Life::Exited(3), 80);
    let report = report(vec![killed(0), aborts, killed(2)]);
    assert_eq!(report.class, Class::RankFailed, "{}", report.summary);
    assert_eq!(report.findings[0].failed.to_string(), "1");
    assert_eq!(report.findings[0].collateral_exits.to_string(), "0,2");
    assert_eq!(report.findings.len(), 1);
}

#[test]
fn who_leaves_without_a_shutdown_is_named_when_the_launcher_ends_the_rest() {
    let killed = |rank| {
        let by = EndedBy::Launcher;
        let inside = Process::new(rank, 3).call(Op::Init, 0, 0, false).call(Op::AllReduce, 1, 4, false);
        inside.call(Op::Reduce, 1, 8, true).end(Life::Signaled { signal: 9, by }, 90)
    };
    let leaves = Process::new(2, 3).call(Op::Init, 0, 0, false).call(Op::AllReduce, 1, 4, false);
    let found = report(vec![killed(0), killed(1), leaves.call(Op::Reduce, 1, 8, false).end(Life::Exited(0), 60)]);
    let first = found.findings.first().expect("a finding");
    assert_eq!((found.class, first.failed.to_string()), (Class::RankFailed, "2".to_owned()), "{first:?}");
    assert!(first.headline.contains("without shutting the library down"), "{}", first.headline);
    // Nobody was ended for it: leaving like that is bad manners and no fault.
    let leave = |rank| Process::new(rank, 2).call(Op::Init, 0, 0, false).call(Op::AllReduce, 1, 4, false);
    let fine = report(vec![leave(0).end(Life::Exited(0), 60), leave(1).end(Life::Exited(0), 61)]);
    assert_eq!(fine.class, Class::Clean, "{fine:?}");
}

#[test]
fn groups_on_both_sides_of_an_intercommunicator_pass_what_they_like() {
    let process = |rank: u32| {
        let count = if rank < 2 { 4 } else { 9 };
        let p = Process::new(rank, 4).comm(2, "between", vec![0, 1, 2, 3], true);
        let p = p.call(Op::AllGather, 2, count, false).call(Op::Broadcast, 2, count, false);
        let p = if rank == 0 { p.flag(CallFlags::ROOT_IS_SELF) } else { p };
        let p = if rank == 1 { p.flag(CallFlags::BYSTANDER) } else { p };
        p.call(Op::Barrier, 1, 0, false).end(Life::Exited(0), 200)
    };
    let report = report((0..4).map(process).collect());
    assert_eq!(report.class, Class::Clean, "{}", report.summary);
}

#[test]
fn the_same_call_on_another_communicator_is_told() {
    let process = |rank| Process::new(rank, 2).comm(2, "copy", vec![0, 1], false).call(Op::Barrier, 1, 0, false);
    let zero = process(0).call(Op::Barrier, 1, 0, true).end(Life::Waiting, 70_000);
    let one = process(1).call(Op::Barrier, 2, 0, true).end(Life::Waiting, 70_000);
    let report = report(vec![zero, one]);
    assert_eq!(report.class, Class::OrderInversion, "{}", report.summary);
    assert!(report.findings[0].evidence.iter().any(|fact| fact.text.contains("same call, other communicator")));
}

#[test]
fn an_earlier_attempt_that_failed_is_told_behind_the_latest() {
    let attempt = |rank: u32, number: u32, life: Life| {
        let mut trace = (0..3).fold(Process::new(rank, 2), |p, _| p.call(Op::AllReduce, 1, 4, false)).end(life, 100);
        trace.ranks[0].attempt = number;
        trace.key.pid += 1000 * number;
        trace
    };
    let first = [attempt(0, 0, Life::Exited(1)), attempt(1, 0, Life::Exited(0))];
    let second = [attempt(0, 1, Life::Exited(0)), attempt(1, 1, Life::Exited(0))];
    let report = report(first.into_iter().chain(second).collect());
    assert_eq!(report.class, Class::RankFailed);
    assert!(report.summary.contains("attempt 0"), "{}", report.summary);
    assert_eq!((report.coverage.attempts, report.coverage.calls), (2, 6), "the coverage is of the latest");
    assert_eq!(report.findings[0].severity, Severity::Error);
}

#[test]
fn nothing_at_all_is_an_answer_too() {
    let report = report(Vec::new());
    assert_eq!(report.class, Class::Clean);
    assert_eq!(report.coverage.calls, 0);
}

/// Six calls on the world and `n` on a communicator that nobody can identify, on each of two ranks.
fn partly_unknown(n: usize, size: Option<u32>) -> Report {
    let run = |rank| {
        let p = Process::new(rank, 2).unknown(2, size);
        let p = (0..6).fold(p, |p, _| p.call(Op::AllReduce, 1, 4, false));
        (0..n).fold(p, |p, _| p.call(Op::Barrier, 2, 0, false)).end(Life::Exited(0), 900)
    };
    report(vec![run(0), run(1)])
}

#[test]
fn calls_that_nobody_can_compare_are_not_called_compared() {
    use rankdiff_analyzer::finding::Confidence;
    let some = partly_unknown(2, Some(2));
    assert_eq!((some.class, some.confidence), (Class::Clean, Confidence::Medium), "{some:?}");
    assert!((some.coverage.compared - 0.75).abs() < 1e-9, "{:?}", some.coverage);
    let phrase = "2 communicators whose members are not known: 4 calls on them were not compared";
    assert!(some.coverage.gaps.iter().any(|gap| gap.text.starts_with(phrase)), "{:?}", some.coverage);
    assert!(some.summary.contains(phrase) && some.summary.contains("coverage 75 %"), "{}", some.summary);
    let most = partly_unknown(4, None);
    assert_eq!((most.class, most.confidence), (Class::Clean, Confidence::Low), "{most:?}");
    // One of a single member has no other to be compared with.
    let alone = partly_unknown(4, Some(1));
    assert_eq!((alone.class, alone.confidence), (Class::Clean, Confidence::High), "{alone:?}");
    assert!((alone.coverage.compared - 1.0).abs() < 1e-9 && alone.coverage.gaps.is_empty(), "{:?}", alone.coverage);
    // Nothing but such calls.
    let run = |rank| Process::new(rank, 2).unknown(2, Some(2)).call(Op::Barrier, 2, 0, false).end(Life::Exited(0), 90);
    let none = report(vec![run(0), run(1)]);
    assert_eq!((none.class, none.confidence, none.coverage.compared), (Class::Clean, Confidence::Low, 0.0));
    assert!(none.summary.starts_with("nothing could be compared"), "{}", none.summary);
}

#[test]
fn a_wait_on_a_communicator_that_nobody_can_identify_is_told() {
    let inside = |rank| Process::new(rank, 4).unknown(2, Some(2)).call(Op::AllReduce, 1, 4, false);
    let waits = |rank| inside(rank).call(Op::Barrier, 2, 0, true).end(Life::Waiting, 70_000);
    let done = |rank| inside(rank).end(Life::Exited(0), 60);
    let found = report(vec![done(0), done(1), done(2), waits(3)]);
    let first = found.findings.first().expect("a finding");
    assert_eq!((found.class, first.code, first.severity), (Class::Unknown, "H005", Severity::Warning), "{found:?}");
    assert!(
        first
            .headline
            .starts_with("rank 3 waits in BARRIER on a communicator whose members are not known since 1 min 9 s")
            && first.headline.ends_with("cannot tell for whom"),
        "{}",
        first.headline
    );
    let strict = rankdiff_analyzer::render::ExitPolicy { strict: true, ..Default::default() };
    assert_eq!(strict.code(&found), 3);
    // Who waits for it on the world is told with it: it is no straggler.
    let next = |rank| inside(rank).call(Op::Reduce, 1, 8, true).end(Life::Waiting, 70_000);
    let chain = report(vec![next(0), next(1), next(2), waits(3)]);
    assert_eq!((chain.class, chain.findings.len()), (Class::Unknown, 1), "{chain:?}");
    assert!(chain.findings[0].headline.starts_with("rank 3 waits in BARRIER"), "{}", chain.findings[0].headline);
    assert_eq!(chain.findings[0].direct_victims.to_string(), "0-2");
    // Not for long, and all of them.
    let soon = |rank| inside(rank).call(Op::Barrier, 2, 0, true).end(Life::Waiting, 1_000);
    assert_eq!(report((0..4).map(soon).collect()).class, Class::Clean);
    let all = report((0..4).map(waits).collect());
    assert_eq!((all.class, all.findings.len()), (Class::Unknown, 1), "{all:?}");
    assert!(all.findings[0].headline.starts_with("ranks 0-3 wait in BARRIER"), "{}", all.findings[0].headline);
}

#[test]
fn messages_on_a_communicator_that_nobody_can_identify_wait_for_no_rank() {
    let receives = Process::new(0, 3).unknown(2, Some(2)).call(Op::Recv, 2, 4, true);
    let mut receives = receives.end(Life::Waiting, 70_000);
    receives.calls[0].peer = Some(1);
    let other = |rank| Process::new(rank, 3).call(Op::Init, 0, 0, false).end(Life::Running, 70_000);
    let found = report(vec![receives, other(1), other(2)]);
    assert_eq!((found.class, found.findings.len()), (Class::Unknown, 1), "{found:?}");
    assert!(found.findings[0].suspects.is_empty());
    assert!(found.findings[0].headline.contains("RECV"), "{}", found.findings[0].headline);
}

/// Whatever a damaged trace says, it is analyzed without a panic.
#[test]
fn nonsense_is_survived() {
    let mut trace = Process::new(0, 2).call(Op::AllToAllV, 1, u64::MAX, true).end(Life::Waiting, u64::MAX / MS);
    trace.calls[0].seq = Some(u64::MAX);
    trace.calls[0].enter = u64::MAX;
    trace.calls[0].sends = vec![u64::MAX; 3];
    trace.ranks[0].world = Some(u32::MAX);
    let mut other = Process::new(1, 2).call(Op::Broadcast, 1, 0, false).end(Life::Alive, 1);
    other.calls[0].seq = Some(u64::MAX - 1);
    other.calls[0].root = Some(u32::MAX);
    other.calls[0].thread_seq = u64::MAX;
    let report = report(vec![trace, other]);
    assert!(report.coverage.calls > 0);
}
