//! Made-up machines whose clocks are wrong by a known amount: whatever is said to be proven must be true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_oneof, proptest};
use rankdiff_trace::{
    Basic, Call, ClockSnapshot, CommDef, CommIdentity, CommRef, DType, Op, ProcessKey, ProcessTrace, Provenance,
    RankDef, Semantics,
};

use super::HostClock;
use crate::finding::ClockJoin;
use crate::stream::{Attempt, attempts};

const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
/// When the wall clock was 0, on the true clock; some value that is not one of the others.
const WALL: i64 = 1_700_000_000 * S;

/// A machine.
#[derive(Debug, Clone)]
struct Machine {
    ranks: u32,
    /// What its clock shows at true time 0.
    skew: i64,
    /// ns that it runs fast in 10^9.
    rate: i64,
    /// How wrong its wall clock is; `None` if nobody noted it.
    wall: Option<i64>,
}

impl Machine {
    fn new(ranks: u32, skew: i64) -> Machine {
        Machine { ranks, skew, rate: 0, wall: Some(0) }
    }

    fn shows(&self, time: i64) -> u64 {
        (self.skew + time + (i128::from(time) * i128::from(self.rate) / i128::from(S)) as i64) as u64
    }

    fn snapshot(&self, time: i64) -> Option<ClockSnapshot> {
        let monotonic = self.shows(time);
        let realtime = (WALL + time + self.wall?) as u64;
        Some(ClockSnapshot { monotonic, boottime: monotonic, realtime })
    }
}

/// One call of some machines' ranks: when each enters, how long the work takes behind the last, how much later each leaves.
#[derive(Debug, Clone)]
struct Collective {
    op: Op,
    comm: u32,
    enters: Vec<i64>,
    work: i64,
    leaves: Vec<i64>,
}

#[derive(Debug, Clone)]
struct Job {
    machines: Vec<Machine>,
    /// Members as global ranks.
    comms: Vec<Vec<u32>>,
    calls: Vec<Collective>,
    end: i64,
}

impl Job {
    fn new(machines: Vec<Machine>, comms: &[&[u32]]) -> Job {
        Job { machines, comms: comms.iter().map(|members| members.to_vec()).collect(), calls: Vec::new(), end: 10 * S }
    }

    fn machine_of(&self, rank: u32) -> usize {
        let mut first = 0;
        let of = |machine: &Machine| {
            first += machine.ranks;
            rank < first
        };
        self.machines.iter().position(of).expect("a rank of the job")
    }

    /// Everybody enters at these times and leaves at once when it is over.
    fn call(mut self, op: Op, comm: u32, enters: &[i64]) -> Job {
        let leaves = vec![0; enters.len()];
        self.end = self.end.max(enters.iter().max().expect("members") + S);
        self.calls.push(Collective { op, comm, enters: enters.to_vec(), work: 10_000, leaves });
        self
    }

    fn traces(&self) -> Vec<ProcessTrace> {
        let world = self.machines.iter().map(|machine| machine.ranks).sum();
        let mut traces: Vec<ProcessTrace> = (0..world)
            .map(|rank| {
                let at = self.machine_of(rank);
                let machine = &self.machines[at];
                let mut trace = ProcessTrace { closed: true, ..ProcessTrace::default() };
                trace.key = ProcessKey { host: format!("n{at}"), pid: 100 + rank, start_time: 1 };
                trace.ranks.push(RankDef { rank, world: Some(world), ..RankDef::default() });
                trace.clocks.extend(machine.snapshot(0));
                for (id, members) in self.comms.iter().enumerate() {
                    let Some(mine) = members.iter().position(|&member| member == rank) else { continue };
                    trace.comms.push(CommDef {
                        id: CommRef(id as u32 + 1),
                        identity: CommIdentity::root("mpi", &[id as u8]),
                        provenance: Provenance::Created,
                        semantics: Semantics::BLOCKING,
                        size: Some(members.len() as u32),
                        my_rank: Some(mine as u32),
                        members: members.clone(),
                        ..CommDef::default()
                    });
                }
                trace
            })
            .collect();
        let mut seqs: BTreeMap<u32, u64> = BTreeMap::new();
        for call in &self.calls {
            let seq = seqs.entry(call.comm).or_default();
            let members = &self.comms[call.comm as usize];
            let last = *call.enters.iter().max().expect("members");
            for (local, &rank) in members.iter().enumerate() {
                let machine = &self.machines[self.machine_of(rank)];
                let enter = call.enters[local];
                // Only who waits for somebody leaves after the last.
                let leave = match call.op {
                    Op::Broadcast if local == 0 => enter + call.work,
                    Op::Broadcast => enter.max(call.enters[0]) + call.work,
                    Op::Reduce if local != 0 => enter + call.work,
                    _ => last + call.work,
                } + call.leaves[local];
                traces[rank as usize].calls.push(Call {
                    op: call.op,
                    comm: CommRef(call.comm + 1),
                    seq: Some(*seq),
                    count: (call.op != Op::Barrier).then_some(4),
                    dtype: if call.op == Op::Barrier { DType::None } else { DType::Basic(Basic::F32) },
                    root: call.op.has_root().then_some(0),
                    enter: machine.shows(enter),
                    exit: Some(machine.shows(leave)),
                    result: Some(0),
                    ..Call::default()
                });
            }
            *seq += 1;
        }
        for (rank, trace) in traces.iter_mut().enumerate() {
            let machine = &self.machines[self.machine_of(rank as u32)];
            trace.clocks.extend(machine.snapshot(self.end));
        }
        traces
    }
}

/// Each machine's clock, and the report of them.
fn joined(job: &Job, traces: &[ProcessTrace]) -> (Vec<Arc<HostClock>>, Option<ClockJoin>) {
    let found = attempts(traces, &BTreeMap::new());
    let attempt: &Attempt<'_> = &found[0];
    let clock = |machine: usize| {
        let stream = attempt.streams.iter().find(|stream| job.machine_of(stream.rank) == machine);
        Arc::clone(&stream.expect("a rank of every machine").clock)
    };
    ((0..job.machines.len()).map(clock).collect(), attempt.clocks.clone())
}

/// The largest that the times of two machines are wrong by at a true time, minus what is said to be possible.
fn excess(job: &Job, clocks: &[Arc<HostClock>], time: i64) -> i64 {
    let mut worst = i64::MIN;
    for (a, own) in clocks.iter().enumerate() {
        for (b, other) in clocks.iter().enumerate().skip(a + 1) {
            let (shown, theirs) = (job.machines[a].shows(time), job.machines[b].shows(time));
            let error = (own.time(shown) - other.time(theirs)).abs();
            worst = worst.max(error - own.doubt_between(shown, other, theirs));
        }
    }
    worst
}

fn text(join: &Option<ClockJoin>) -> String {
    join.as_ref().map(|join| join.text.join("\n")).unwrap_or_default()
}

/// Calls of random members at random times in order.
fn calls(comms: Vec<Vec<u32>>, ops: Vec<Op>) -> impl Strategy<Value = Vec<Collective>> {
    let sizes: Vec<usize> = comms.iter().map(Vec::len).collect();
    let one = (0..comms.len(), 0..ops.len(), 0..2 * S).prop_flat_map(move |(comm, op, gap)| {
        let (size, op) = (sizes[comm], ops[op]);
        let jitter = proptest::collection::vec(0..50 * MS, size);
        let leaves = proptest::collection::vec(prop_oneof![3 => 0..30_000_i64, 1 => 0..5 * MS], size);
        (jitter, 1_000..3 * MS, leaves)
            .prop_map(move |(enters, work, leaves)| (gap, Collective { op, comm: comm as u32, enters, work, leaves }))
    });
    proptest::collection::vec(one, 0..60).prop_map(|calls| {
        let mut time = S;
        let mut placed = Vec::new();
        for (gap, mut call) in calls {
            // One after the other, whoever takes part: nobody is in two calls at once.
            time += gap;
            call.enters.iter_mut().for_each(|enter| *enter += time);
            time = call.enters.iter().max().expect("members") + call.work + 5 * MS;
            placed.push(call);
        }
        placed
    })
}

fn job(ops: Vec<Op>) -> impl Strategy<Value = Job> {
    let wall = prop_oneof![
        3 => (-5 * MS..5 * MS).prop_map(Some),
        2 => (-9_000 * S..9_000 * S).prop_map(Some),
        1 => Just(None),
    ];
    let skew = prop_oneof![Just(0), 0..5 * S, 0..200_000 * S];
    let machine = (1_u32..4, skew, -49_000_i64..49_000, wall).prop_map(|(ranks, skew, rate, wall)| Machine {
        ranks,
        skew,
        rate,
        wall,
    });
    proptest::collection::vec(machine, 2..5).prop_flat_map(move |machines| {
        let world: u32 = machines.iter().map(|machine| machine.ranks).sum();
        let all: Vec<u32> = (0..world).collect();
        let comm = proptest::sample::subsequence(all.clone(), 2..=world as usize);
        let ops = ops.clone();
        (proptest::collection::vec(comm, 1..4), Just(machines)).prop_flat_map(move |(comms, machines)| {
            calls(comms.clone(), ops.clone()).prop_map(move |calls| {
                let last = calls.last().map_or(0, |call| call.enters.iter().copied().max().unwrap_or(0));
                Job { machines: machines.clone(), comms: comms.clone(), calls, end: last + 10 * S }
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Skews of days, drift, jitter, wall clocks that are wrong by hours: where calls join all clocks, what they are said
    /// to prove holds at every moment, before the first call and behind the last.
    #[test]
    fn the_true_offset_lies_within_what_is_proven(
        job in job(vec![Op::Barrier, Op::AllReduce, Op::AllGather, Op::Broadcast, Op::Reduce])
    ) {
        let traces = job.traces();
        let (clocks, join) = joined(&job, &traces);
        let join = join.expect("several machines");
        if let Some(within) = join.within_ns {
            prop_assert!(!join.text.iter().any(|line| line.contains("contradict")), "{:?}", join.text);
            for step in 0..=50 {
                let time = job.end / 50 * step;
                prop_assert!(excess(&job, &clocks, time) <= 0, "at {time} of {job:?}: {}", excess(&job, &clocks, time));
            }
            // The bound that is told holds where the calls are that prove it.
            let machines = |comm: &[u32]| comm.iter().map(|&rank| job.machine_of(rank)).collect::<BTreeSet<_>>().len();
            let shared = job.calls.iter().filter(|call| machines(&job.comms[call.comm as usize]) > 1);
            for call in shared {
                let time = call.enters.iter().max().expect("members") + call.work;
                for (a, b) in (1..clocks.len()).map(|b| (b - 1, b)) {
                    let shown = (job.machines[a].shows(time), job.machines[b].shows(time));
                    let error = (clocks[a].time(shown.0) - clocks[b].time(shown.1)).unsigned_abs();
                    // A call's members are in it for 100 ms at most, and which of their times counts is not said.
                    let drift = 2 * 100 * MS as u64 / 10_000;
                    prop_assert!(error <= within + drift, "{error} ns, told {within}");
                }
            }
        } else {
            prop_assert!(!text(&Some(join)).contains("contradict"));
        }
    }

    /// Time of one machine never runs backwards on the job's clock.
    #[test]
    fn a_later_time_stays_later(job in job(vec![Op::Barrier])) {
        let traces = job.traces();
        let (clocks, _) = joined(&job, &traces);
        for (clock, machine) in clocks.iter().zip(&job.machines) {
            let times: Vec<i64> = (0..=400).map(|step| clock.time(machine.shows(job.end / 400 * step))).collect();
            prop_assert!(times.is_sorted(), "{times:?}");
        }
    }
}

/// Times that files may hold, and those that no clock shows.
fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![0..1_000_u64, 0..u64::MAX, Just(u64::MAX), Just(i64::MAX as u64), Just(u64::MAX >> 3), Just(1 << 60)]
}

proptest! {
    /// Whatever a file says, it is joined or not, without a panic.
    #[test]
    fn any_times_are_taken(
        calls in proptest::collection::vec((0..3_usize, 0..4_u64, any_time(), any_time()), 0..40),
        clocks in proptest::collection::vec((0..3_usize, any_time(), any_time(), any_time()), 0..12),
        shown in any_time(),
    ) {
        let job = Job::new((0..3).map(|_| Machine::new(1, 0)).collect(), &[&[0, 1, 2]]);
        let mut traces = job.traces();
        for (rank, seq, enter, exit) in calls {
            let call = Call { comm: CommRef(1), seq: Some(seq), enter, exit: Some(exit), ..Call::default() };
            traces[rank].calls.push(call);
        }
        for (rank, monotonic, boottime, realtime) in clocks {
            traces[rank].clocks.push(ClockSnapshot { monotonic, boottime, realtime });
        }
        let (clocks, join) = joined(&job, &traces);
        prop_assert!(join.is_some());
        for clock in &clocks {
            prop_assert!(clock.time(shown) <= clock.time(u64::MAX));
            prop_assert!(clock.doubt(shown) >= 0 && clock.doubt_at_end(&clocks[0]) >= 0);
        }
    }
}

/// A barrier of all every second; each machine is last in turn.
fn in_turns(machines: Vec<Machine>, seconds: i64) -> Job {
    let world: u32 = machines.iter().map(|machine| machine.ranks).sum();
    let all: Vec<u32> = (0..world).collect();
    let mut job = Job::new(machines, &[&all]);
    for second in 1..=seconds {
        let enters: Vec<i64> = all
            .iter()
            .map(|&rank| second * S + if i64::from(rank) == second % i64::from(world) { 2 * MS } else { 0 })
            .collect();
        job = job.call(Op::Barrier, 0, &enters);
    }
    job
}

#[test]
fn clocks_that_differ_by_hours_are_joined_by_barriers() {
    let mut late = Machine::new(1, 7_200 * S);
    late.wall = Some(-3_600 * S);
    let job = in_turns(vec![Machine::new(1, 0), late, Machine::new(2, 500 * S)], 100);
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    let join = join.expect("three machines");
    assert_eq!((join.clocks, join.calls), (3, 100));
    // Work of 10 us, and drift until each was last once.
    let within = join.within_ns.expect("joined");
    assert!((10_000..1_500_000).contains(&within), "{within}");
    assert!(excess(&job, &clocks, 50 * S) <= 0);
    assert!(join.text[0].starts_with("clocks of 3 nodes joined to within "), "{join:?}");
    assert!(join.text[0].ends_with("by 100 collective calls"), "{join:?}");
    assert!(join.text[1].contains("wall clocks of 1 node are proven wrong"), "{join:?}");
    assert!(join.text[1].contains("'n1'"), "{join:?}");
}

#[test]
fn machines_without_a_common_call_are_joined_over_others() {
    let machines = (0..4).map(|at| Machine { wall: None, ..Machine::new(1, at * 1_000 * S) }).collect();
    let mut job = Job::new(machines, &[&[0, 1], &[1, 2], &[2, 3]]);
    for second in 1..40 {
        let (early, late) = (second * S, second * S + MS);
        let enters = if second % 2 == 0 { [early, late] } else { [late, early] };
        for comm in 0..3 {
            job = job.call(Op::AllReduce, comm, &enters.map(|time| time + 100 * MS * i64::from(comm)));
        }
    }
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    assert!(join.and_then(|join| join.within_ns).is_some_and(|within| within < 10_000_000));
    assert!(excess(&job, &clocks, 20 * S) <= 0);
    assert!(clocks.iter().all(|clock| clock.is_joined()));
}

#[test]
fn rooted_calls_bound_from_one_side_and_two_kinds_of_them_from_both() {
    let mut job = Job::new(vec![Machine::new(1, 0), Machine::new(1, 90 * S)], &[&[0, 1]]);
    job = job.call(Op::Broadcast, 0, &[2 * S, 2 * S - MS]);
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    // The other side is the wall clock's word.
    assert_eq!(join.expect("two machines").within_ns, None);
    assert!(excess(&job, &clocks, 3 * S) <= 0);
    assert!(clocks[0].doubt_at_end(&clocks[1]) >= super::ASSUMED);

    job = job.call(Op::Reduce, 0, &[3 * S - MS, 3 * S]);
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    assert!(join.and_then(|join| join.within_ns).is_some_and(|within| within < 2_000_000));
    assert!(excess(&job, &clocks, 3 * S) <= 0);
}

#[test]
fn drift_beyond_any_one_offset_is_followed() {
    // A minute at 40 us/s: no single offset fits what is known to a few us.
    let fast = Machine { rate: 40_000, ..Machine::new(1, 5 * S) };
    let job = in_turns(vec![Machine::new(1, 0), fast], 200);
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    assert!(text(&join).contains("drift against"), "{join:?}");
    assert!(join.and_then(|join| join.within_ns).is_some_and(|within| within < 1_000_000));
    for second in 0..=200 {
        assert!(excess(&job, &clocks, second * S) <= 0, "at {second} s");
    }
}

#[test]
fn drift_within_the_windows_of_a_long_job_is_allowed_for() {
    // Over 100 minutes windows are so long that clocks drift by more in one than the calls leave open.
    let fast = Machine { rate: 45_000, ..Machine::new(1, 5 * S) };
    let mut job = Job::new(vec![Machine::new(1, 0), fast], &[&[0, 1]]);
    for turn in 1..2_000 {
        let (early, late) = (turn * 3 * S, turn * 3 * S + MS);
        job = job.call(Op::Barrier, 0, &if turn % 2 == 0 { [early, late] } else { [late, early] });
    }
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    assert!(join.and_then(|join| join.within_ns).is_some_and(|within| within < 2_000_000));
    for second in (0..6_000).step_by(7) {
        assert!(excess(&job, &clocks, second * S) <= 0, "at {second} s");
    }
}

#[test]
fn drift_beyond_what_clocks_should_have_is_allowed_for_where_calls_prove_it() {
    let fast = Machine { rate: 600_000, ..Machine::new(1, 5 * S) };
    let job = in_turns(vec![Machine::new(1, 0), fast], 100);
    let traces = job.traces();
    let (clocks, join) = joined(&job, &traces);
    assert!(join.is_some_and(|join| join.within_ns.is_some()));
    for second in 0..=100 {
        assert!(excess(&job, &clocks, second * S) <= 0, "at {second} s");
    }
}

#[test]
fn a_call_that_does_not_wait_is_found_out_and_barriers_alone_decide() {
    let mut job = in_turns(vec![Machine::new(1, 0), Machine::new(1, 50 * S)], 50);
    job.comms.push(vec![0, 1]);
    let early = |job: &Job| {
        let mut traces = job.traces();
        // Rank 0 leaves the all-reduce long before rank 1 enters it.
        let call = traces[0].calls.iter_mut().find(|call| call.op == Op::AllReduce).expect("it was made");
        call.exit = Some(call.enter + 1);
        traces
    };
    let job = job.call(Op::AllReduce, 1, &[60 * S, 65 * S]);
    let traces = early(&job);
    let (clocks, join) = joined(&job, &traces);
    assert!(join.is_some_and(|join| join.within_ns.is_some()));
    assert!(excess(&job, &clocks, 25 * S) <= 0);

    // Without barriers nothing is left but the wall clock, and that is said.
    let mut alone = Job::new(vec![Machine::new(1, 0), Machine::new(1, 50 * S)], &[&[0, 1]]);
    alone = alone.call(Op::AllReduce, 0, &[60 * S, 65 * S]).call(Op::AllReduce, 0, &[70 * S, 66 * S]);
    let traces = early(&alone);
    let (clocks, join) = joined(&alone, &traces);
    assert!(text(&join).contains("contradict one another"), "{join:?}");
    assert_eq!(join.and_then(|join| join.within_ns), None);
    assert!(excess(&alone, &clocks, 25 * S) <= 0);
}

#[test]
fn a_communicator_that_is_caught_by_a_clock_of_its_own_is_not_used() {
    let mut job = in_turns(vec![Machine::new(2, 0), Machine::new(1, 50 * S)], 30);
    job.comms.push(vec![0, 1, 2]);
    let job = job.call(Op::AllGather, 1, &[40 * S, 45 * S, 40 * S]);
    let mut traces = job.traces();
    let call = traces[0].calls.last_mut().expect("it was made");
    call.exit = Some(call.enter + 1);
    let (clocks, join) = joined(&job, &traces);
    assert!(text(&join).contains("1 communicator not used"), "{join:?}");
    assert_eq!(join.map(|join| join.calls), Some(30));
    assert!(excess(&job, &clocks, 25 * S) <= 0);
}

#[test]
fn hosts_of_one_boot_share_a_clock() {
    let job = in_turns(vec![Machine::new(1, 0), Machine::new(1, 0)], 3);
    let traces = job.traces();
    let boots = |other: &str| BTreeMap::from([("n0".to_owned(), "b".to_owned()), ("n1".to_owned(), other.to_owned())]);
    let found = attempts(&traces, &boots("b"));
    assert_eq!(found[0].clocks, None);
    assert!(Arc::ptr_eq(&found[0].streams[0].clock, &found[0].streams[1].clock));
    assert!(attempts(&traces, &boots("c"))[0].clocks.is_some());
    // An empty one is no boot id.
    assert!(
        attempts(&traces, &BTreeMap::from([("n0".into(), String::new()), ("n1".into(), String::new())]))[0]
            .clocks
            .is_some()
    );
}

#[test]
fn a_machine_that_slept_stays_joined() {
    let mut job = in_turns(vec![Machine::new(1, 0), Machine::new(1, 9 * S)], 20);
    for second in 321..340 {
        job = job.call(
            Op::Barrier,
            0,
            &if second % 2 == 0 { [second * S, second * S + MS] } else { [second * S + MS, second * S] },
        );
    }
    let mut traces = job.traces();
    // Asleep from 20.2 to 320.2 s: its clock stood still, as two snapshots around that tell.
    let (asleep, slept) = (29_200_000_000_u64, 300 * S as u64);
    let behind = |time: &mut u64| *time -= if *time > asleep { slept } else { 0 };
    let trace = &mut traces[1];
    for call in &mut trace.calls {
        behind(&mut call.enter);
        call.exit.as_mut().into_iter().for_each(behind);
    }
    trace.clocks.iter_mut().for_each(|clock| behind(&mut clock.monotonic));
    let snapshot = |monotonic, boottime| ClockSnapshot { monotonic, boottime, realtime: 0 };
    trace.clocks.push(snapshot(asleep - 1_000_000, asleep - 1_000_000));
    trace.clocks.push(snapshot(asleep + 1_000_000, asleep + 1_000_000 + slept));
    let (clocks, join) = joined(&job, &traces);
    assert!(text(&join).contains("1 node slept"), "{join:?}");
    // Nothing bounds the drift in the five minutes but what clocks can drift at most.
    assert!(join.and_then(|join| join.within_ns).is_some_and(|within| within < 40_000_000));
    for second in [5, 15, 325, 335] {
        let shown = job.machines[1].shows(second * S) - if second > 20 { slept } else { 0 };
        let error = clocks[0].time(job.machines[0].shows(second * S)) - clocks[1].time(shown);
        assert!(error.abs() < MS, "{error} at {second} s");
    }
    // While it is not known whether it slept already, nobody can tell.
    assert!(clocks[1].doubt(asleep) >= 300 * S);
}
