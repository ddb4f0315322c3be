//! Healthy made-up jobs agree everywhere; planted faults show where the truth says, and nowhere before.

use proptest::prelude::{ProptestConfig, proptest};

use super::generate::{Fault, FaultKind, GroupKind, Job, JobSpec, SpecError};
use crate::call::{Call, CallFlags, Completion};
use crate::evidence::Life;
use crate::op::Op;

/// Calls of the group's members by position.
fn line(job: &Job, kind: GroupKind, rank: u32) -> Vec<Vec<Call>> {
    let comm = job.comm(kind);
    let of = |rank: u32| job.calls(rank).filter(|call| call.comm == comm).collect();
    job.spec().members(kind, rank).into_iter().map(of).collect()
}

fn shape(call: &Call) -> impl PartialEq + std::fmt::Debug {
    let count = if call.sends.is_empty() { call.count } else { None };
    (call.op, count, call.dtype, call.redop, call.root)
}

/// First position where members differ or some lack a call.
fn first_difference(line: &[Vec<Call>]) -> Option<u64> {
    let longest = line.iter().map(Vec::len).max().unwrap_or(0);
    let differs = |&at: &usize| {
        let first = line[0].get(at).map(shape);
        line.iter().any(|calls| calls.get(at).map(shape) != first) || first.is_none()
    };
    (0..longest).find(differs).map(|at| at as u64)
}

fn check_healthy(job: &Job) {
    for kind in [GroupKind::World, GroupKind::Tensor, GroupKind::Data] {
        for rank in 0..job.spec().world() {
            assert_eq!(first_difference(&line(job, kind, rank)), None);
        }
    }
    for rank in 0..job.spec().world() {
        let mut free = 0;
        for (index, call) in job.calls(rank).enumerate() {
            assert!(call.enter >= free, "a call begins before the one before it returned");
            free = call.exit.expect("returned");
            assert_eq!(call.thread_seq, index as u64);
            let Completion::At(done) = call.completion else { panic!("complete") };
            assert!(done > call.enter);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn healthy_jobs_agree_everywhere(seed in 0_u64..1_000_000) {
        let job = Job::new(JobSpec::small(seed), None).expect("a sane shape");
        check_healthy(&job);
        // What i sends to j is what j expects from i, and messages pair up.
        let tensor = line(&job, GroupKind::Tensor, 0);
        for (i, calls) in tensor.iter().enumerate() {
            for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.op == Op::AllToAll) {
                for (j, &sent) in call.sends.iter().enumerate() {
                    assert_eq!(tensor[j][at].recvs[i], sent);
                }
                assert_eq!(call.count, Some(call.sends.iter().sum()));
            }
        }
        let pipe = line(&job, GroupKind::Pipeline, 0);
        for (i, calls) in pipe.iter().enumerate() {
            for send in calls.iter().filter(|call| call.op == Op::Send) {
                let peer = send.peer.expect("a peer") as usize;
                let pair = |call: &&Call| call.op == Op::Recv && call.peer == Some(i as u32) && call.seq == send.seq;
                let recv = pipe[peer].iter().find(pair).expect("a receive");
                assert_eq!((recv.count, recv.completion), (send.count, send.completion));
                assert!(matches!(recv.completion, Completion::At(done) if done > recv.enter.max(send.enter)));
            }
        }
    }

    #[test]
    fn planted_faults_show_where_the_truth_says(seed in 0_u64..1_000_000, kind in 0..FaultKind::ALL.len(), at in 0_u64..1000) {
        let spec = JobSpec::small(seed);
        let kinds = [GroupKind::World, GroupKind::Tensor, GroupKind::Data];
        let groups: Vec<GroupKind> = kinds.into_iter().filter(|&kind| spec.size(kind) > 1).collect();
        let (kind, group) = (FaultKind::ALL[kind], groups[at as usize % groups.len()]);
        let rank = (seed % u64::from(spec.world())) as u32;
        let position = at % Job::new(spec.clone(), None).expect("sane").positions(group, rank);
        let fault = Fault { kind, rank, group, position };
        let job = match Job::new(spec, Some(fault)) {
            Ok(job) => job,
            Err(SpecError::NoCall { .. }) => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        let truth = job.truth();
        let seen = first_difference(&line(&job, group, rank));
        assert_eq!(seen, truth.first_visible, "{fault:?} {:?}", job.spec());
        if let Some((from, to)) = truth.first_divergence {
            assert!(from <= position && position <= to);
            assert!(seen.is_none_or(|seen| from <= seen));
        }
        if matches!(kind, FaultKind::OtherOp | FaultKind::Extra) {
            assert_eq!(seen, Some(position));
        }
        if kind.is_silent() {
            assert!((0..job.spec().world()).all(|rank| job.trace(rank).states[0].life == Life::Exited(0)));
        } else {
            let waits = |rank: &u32| job.trace(*rank).states[0].life == Life::Waiting;
            let pending = |rank: &u32| job.calls(*rank).last().is_some_and(|call| call.completion == Completion::Pending);
            for other in 0..job.spec().world() {
                assert_eq!(waits(&other), pending(&other), "rank {other}: {fault:?}");
                assert!(other == rank || waits(&other), "rank {other} cannot go on: {fault:?} {:?}", job.spec());
            }
        }
    }
}

#[test]
fn faults_are_made_as_said() {
    let spec = JobSpec { tensor: 4, jitter: 0, ..JobSpec::default() };
    let with = |kind, group, position| Job::new(spec.clone(), Some(Fault { kind, rank: 5, group, position }));
    let job = with(FaultKind::OtherCount, GroupKind::Data, 4).expect("possible");
    let calls = line(&job, GroupKind::Data, 5);
    assert_eq!((calls[1][4].count, calls[0][4].count), (Some((1 << 17) + 1), Some(1 << 17)));
    assert!(calls.iter().all(|calls| calls[4].flags == CallFlags::DONE && calls[3].flags == CallFlags::default()));
    assert_eq!(
        (job.truth().class, job.truth().what, job.truth().suspects.len()),
        ("parameter_mismatch", Some("count"), 0)
    );
    let killed = with(FaultKind::Killed, GroupKind::World, 2).expect("possible");
    assert!(matches!(killed.trace(5).states[0].life, Life::Signaled { signal: 9, .. }));
    assert_eq!(killed.trace(5).calls.iter().filter(|call| call.comm == killed.comm(GroupKind::World)).count(), 2);
    let late = with(FaultKind::Late(95_000_000_000), GroupKind::World, 1).expect("possible");
    let enters: Vec<u64> = line(&late, GroupKind::World, 0).iter().map(|calls| calls[1].enter).collect();
    assert!((0..16).all(|rank| enters[rank] + if rank == 5 { 0 } else { 95_000_000_000 } == enters[5]));
    check_healthy(&late);
    assert!(with(FaultKind::OtherOp, GroupKind::World, 1000).is_err(), "no such position");
    assert!(with(FaultKind::OtherOp, GroupKind::Pipeline, 0).is_err());
    for shape in [
        JobSpec { steps: 0, ..spec.clone() },
        JobSpec { tensor: 1 << 20, ..spec.clone() },
        JobSpec { tensor: 1, data: 1, pipeline: 1, ..spec.clone() },
    ] {
        assert!(Job::new(shape, None).is_err());
    }
}
