//! Machines whose clocks are apart by hours: the verdict is the one on machines whose clocks agree.

use rankdiff_analyzer::finding::{Confidence, Report};
use rankdiff_analyzer::{Options, analyze};
use rankdiff_trace::testgen::generate::{Fault, FaultKind, GroupKind, Job, JobSpec};
use rankdiff_trace::{
    Call, ClockSnapshot, CommDef, CommIdentity, CommRef, Completion, Life, Op, ProcessKey, ProcessState, ProcessTrace,
    Provenance, RankDef, Semantics,
};

/// Hours, in an order that puts neither the first host nor the faulty one ahead.
const HOURS: [i64; 4] = [3, 0, 11, 7];

/// Whether the wall clocks are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walls {
    Right,
    Wrong,
    Missing,
}

fn skew(trace: &mut ProcessTrace, walls: Walls) {
    let host: usize = trace.key.host.trim_start_matches('n').parse().expect("hosts have numbers");
    let by = (HOURS[host % HOURS.len()] * 3_600_000_000_000) as u64;
    for call in &mut trace.calls {
        call.enter += by;
        call.exit = call.exit.map(|exit| exit + by);
        if let Completion::At(at) = &mut call.completion {
            *at += by;
        }
    }
    trace.states.iter_mut().for_each(|state| state.at += by);
    for clock in &mut trace.clocks {
        clock.monotonic += by;
        clock.boottime += by;
        clock.realtime += if walls == Walls::Wrong { 2 * by } else { 0 };
    }
    if walls == Walls::Missing {
        trace.clocks.iter_mut().for_each(|clock| clock.realtime = 0);
    }
}

fn report(job: &Job, walls: Option<Walls>) -> Report {
    let mut traces: Vec<ProcessTrace> = (0..job.spec().world()).map(|rank| job.trace(rank)).collect();
    if let Some(walls) = walls {
        traces.iter_mut().for_each(|trace| skew(trace, walls));
    }
    analyze(traces, &Options::default())
}

/// All that must not depend on clocks.
fn essence(report: &Report) -> String {
    let findings: Vec<String> = report
        .findings
        .iter()
        .map(|finding| {
            format!(
                "{} {:?} {:?} suspects {} failed {} waiting {} collateral {} late {} cycle {:?} {:?}",
                finding.code,
                finding.first_divergence,
                finding.first_visible,
                finding.suspects,
                finding.failed,
                finding.waiting,
                finding.collateral_exits,
                finding.late,
                finding.cycle,
                finding.confidence
            )
        })
        .collect();
    format!("{:?} {:?}\n{}", report.class, report.confidence, findings.join("\n"))
}

#[test]
fn clocks_that_are_hours_apart_change_no_verdict() {
    for blocking in [false, true] {
        let spec = JobSpec { tensor: 4, pipeline: 2, data: 4, steps: 6, blocking, ..JobSpec::default() };
        let kinds = FaultKind::ALL.into_iter().map(Some).chain([None]);
        for kind in kinds {
            let fault = kind.map(|kind| Fault { kind, rank: 13, group: GroupKind::Data, position: 9 });
            let job = Job::new(spec.clone(), fault).expect("a job that can be made");
            let right = report(&job, None);
            for walls in [Walls::Right, Walls::Wrong, Walls::Missing] {
                let skewed = report(&job, Some(walls));
                assert_eq!(essence(&right), essence(&skewed), "{kind:?}, blocking {blocking}, {walls:?}");
                let clocks = skewed.coverage.clocks.expect("four machines");
                assert_eq!(clocks.clocks, 4);
                assert!(clocks.within_ns.is_some(), "{kind:?}, blocking {blocking}, {walls:?}: {clocks:?}");
                let wrong = clocks.text.iter().any(|line| line.contains("proven wrong"));
                assert_eq!(wrong, walls == Walls::Wrong, "{clocks:?}");
            }
        }
    }
}

const MS: u64 = 1_000_000;

/// Three ranks, barriers that join their clocks if there are any, and then two that end in short succession: the first
/// without a word, the second with a call that failed. The third waits for them.
fn two_that_end(hosts: [&str; 3], barriers: u64) -> Report {
    let member = |rank: u32, host: &str| {
        let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
        trace.key = ProcessKey { host: host.into(), pid: 100 + rank, start_time: 1 };
        trace.ranks.push(RankDef { rank, world: Some(3), ..RankDef::default() });
        trace.comms.push(CommDef {
            id: CommRef(1),
            identity: CommIdentity::root("mpi", b"world"),
            provenance: Provenance::Created,
            name: "world".into(),
            semantics: Semantics::BLOCKING,
            size: Some(3),
            my_rank: Some(rank),
            members: vec![0, 1, 2],
            ..CommDef::default()
        });
        let call = |at: u64, exit: Option<u64>, result: i64, seq: u64| Call {
            op: Op::Barrier,
            comm: CommRef(1),
            seq: Some(seq),
            thread: 7,
            thread_seq: seq,
            enter: at,
            exit,
            result: exit.map(|_| result),
            ..Call::default()
        };
        // Each is the last in turn.
        for turn in 0..barriers {
            let late = if turn % 3 == u64::from(rank) { MS } else { 0 };
            let begin = 1_000 * MS + turn * 10 * MS;
            trace.calls.push(call(begin + late, Some(begin + MS + 20_000), 0, turn));
        }
        let life = match rank {
            0 => (70_000, Life::Exited(1)),
            1 => {
                trace.calls.push(call(69_000 * MS, Some(70_005 * MS), 5, barriers));
                (70_030, Life::Exited(1))
            }
            _ => {
                trace.calls.push(call(2_000 * MS + barriers * 10 * MS, None, 0, barriers));
                (200_000, Life::Waiting)
            }
        };
        trace.states.push(ProcessState { at: life.0 * MS, life: life.1 });
        for at in [0, life.0 * MS] {
            trace.clocks.push(ClockSnapshot { monotonic: at, boottime: at, realtime: 1_700_000_000_000 * MS + at });
        }
        trace
    };
    let traces = hosts.iter().zip(0..).map(|(host, rank)| member(rank, host)).collect();
    analyze(traces, &Options::default())
}

#[test]
fn who_ended_first_is_left_open_where_clocks_do_not_tell() {
    let told = |report: &Report| {
        let first = &report.findings[0];
        assert_eq!(first.code, "F001", "{report:?}");
        let open = first.detail.iter().any(|line| line.contains("which rank ended first is not certain"));
        (open, first.confidence)
    };
    // Wall clocks may be further apart than the two ends.
    let apart = two_that_end(["n0", "n1", "n2"], 0);
    assert_eq!(told(&apart), (true, Confidence::Medium));
    // One machine has one clock.
    assert!(!told(&two_that_end(["n0", "n0", "n1"], 0)).0);
    // A minute after the last of many barriers clocks are still known to a few ms, which is less than the 30 ms.
    let joined = two_that_end(["n0", "n1", "n2"], 300);
    assert!(joined.coverage.clocks.as_ref().is_some_and(|clocks| clocks.within_ns.is_some()), "{joined:?}");
    assert!(!told(&joined).0, "{:?}", joined.findings[0].detail);
}

/// How late, in ms, rank 1 is said to have come to a call of a library that returns at once, on these hosts.
fn lateness(hosts: [&str; 2], late_ms: u64) -> Option<u64> {
    let member = |(host, rank): (&&str, u32)| {
        let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
        trace.key = ProcessKey { host: (*host).into(), pid: 100 + rank, start_time: 1 };
        trace.ranks.push(RankDef { rank, world: Some(2), ..RankDef::default() });
        trace.comms.push(CommDef {
            id: CommRef(1),
            identity: CommIdentity::root("nccl", b"world"),
            provenance: Provenance::Created,
            size: Some(2),
            my_rank: Some(rank),
            members: vec![0, 1],
            ..CommDef::default()
        });
        let enter = 1_000 * MS + u64::from(rank) * late_ms * MS;
        let (comm, exit, result) = (CommRef(1), Some(enter + 1_000), Some(0));
        trace.calls.push(Call { comm, seq: Some(0), thread: 7, enter, exit, result, ..Call::default() });
        let at = 9_000 * MS;
        trace.clocks.push(ClockSnapshot { monotonic: at, boottime: at, realtime: 1_700_000_000_000 * MS + at });
        trace.states.push(ProcessState { at, life: Life::Exited(0) });
        trace
    };
    let traces = hosts.iter().zip(0..).map(member).collect();
    let options = Options { stall_after: std::time::Duration::from_millis(100), ..Options::default() };
    let report = analyze(traces, &options);
    report.findings.iter().find(|finding| finding.code == "S003").and_then(|finding| finding.late_ms)
}

#[test]
fn what_clocks_may_be_apart_is_no_lateness() {
    assert_eq!(lateness(["n0", "n0"], 200), Some(200));
    // A return that is no completion joins no clocks, and wall clocks may be 250 ms apart.
    assert_eq!(lateness(["n0", "n1"], 200), None);
    assert_eq!(lateness(["n0", "n1"], 600), Some(350));
}
