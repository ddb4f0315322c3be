use super::{CHECKPOINT_EVERY, ChainPoint, DigestState, Digests, P2pPoint, Restart, Standing};
use crate::call::{Call, CallFlags, SiteRef};
use crate::comm::{CommDef, CommRef, Semantics};
use crate::datatype::{Basic, DType, RedOp, Reduction, TypeDef};
use crate::op::Op;

const COMM: CommRef = CommRef(3);

fn state(comm: CommRef, my_rank: u32) -> DigestState {
    let mut state = DigestState::new();
    state.define_comm(&CommDef {
        id: comm,
        my_rank: Some(my_rank),
        size: Some(3),
        semantics: Semantics::NONBLOCKING_DISTINCT,
        ..CommDef::default()
    });
    state
}

fn call(comm: CommRef, seq: u64) -> Call {
    Call {
        op: if seq.is_multiple_of(3) { Op::Broadcast } else { Op::AllReduce },
        comm,
        seq: Some(seq),
        count: Some(8 + seq % 5),
        dtype: DType::Basic(Basic::F32),
        redop: RedOp::Predefined(Reduction::Sum),
        root: Some(0),
        ..Call::default()
    }
}

fn digests(mut state: DigestState, calls: impl IntoIterator<Item = Call>) -> Digests {
    for call in calls {
        state.absorb(&call);
    }
    state.seal_block()
}

fn end(digests: &Digests) -> ChainPoint {
    let [end] = digests.ends.as_slice() else { panic!("{digests:?}") };
    *end
}

fn hashes(digests: &Digests) -> Vec<(u64, u64, u64, Option<u64>)> {
    digests
        .checkpoints
        .iter()
        .chain(&digests.ends)
        .map(|point| (point.base, point.upto, point.running, point.interval))
        .collect()
}

#[test]
fn equal_calls_of_two_streams_have_equal_digests_whatever_their_local_numbers() {
    let here = digests(state(COMM, 0), (0..700).map(|seq| call(COMM, seq)));
    let other = CommRef(9);
    let mut there = state(other, 2);
    there.define_type(&TypeDef { id: 4, runs: vec![(Basic::F32, 4)], ..TypeDef::default() });
    let there = digests(
        there,
        (0..700).flat_map(|seq| {
            let plain = call(other, seq);
            // The same elements as another type, other times, sites and threads, and calls that take no position.
            let same = match plain.count {
                Some(8) => Call { dtype: DType::Derived(4), count: Some(2), ..plain.clone() },
                _ => plain.clone(),
            };
            let same = Call { enter: seq, site: SiteRef(1), thread: 7, flags: CallFlags::IN_PLACE, ..same };
            let nested = Call { flags: CallFlags::NESTED, count: Some(1), ..plain.clone() };
            let captured = Call { flags: CallFlags::CAPTURED, count: Some(1), ..plain };
            [same, nested, captured]
        }),
    );
    assert_eq!(hashes(&here), hashes(&there));
    let places: Vec<u64> = here.checkpoints.iter().map(|point| point.upto).collect();
    assert_eq!(places, [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]);
    assert_eq!(end(&here).upto, 700);
}

#[test]
fn each_parameter_changes_the_digest_from_there_on() {
    let changes: [fn(Call) -> Call; 6] = [
        |call| Call { op: Op::AllGather, ..call },
        |call| Call { count: Some(7), ..call },
        |call| Call { dtype: DType::Basic(Basic::Bf16), ..call },
        |call| Call { redop: RedOp::Predefined(Reduction::Max), op: Op::Reduce, ..call },
        |call| Call { root: Some(1), op: Op::Broadcast, ..call },
        |call| Call { flags: CallFlags::NONBLOCKING, ..call },
    ];
    let base = digests(state(COMM, 0), (0..1024).map(|seq| call(COMM, seq)));
    let mut seen = vec![end(&base).running];
    for change in changes {
        let with = |seq| if seq == 300 { change(call(COMM, seq)) } else { call(COMM, seq) };
        let other = digests(state(COMM, 0), (0..1024).map(with));
        let equal: Vec<bool> =
            base.checkpoints.iter().zip(&other.checkpoints).map(|(a, b)| a.running == b.running).collect();
        assert_eq!(equal, [true, false, false, false]);
        // The interval tells which one it is.
        let equal: Vec<bool> =
            base.checkpoints.iter().zip(&other.checkpoints).map(|(a, b)| a.interval == b.interval).collect();
        assert_eq!(equal, [true, false, true, true]);
        assert!(!seen.contains(&end(&other).running), "two changes have one hash");
        seen.push(end(&other).running);
    }
    // Order matters, and so does the number of calls.
    let swapped = digests(
        state(COMM, 0),
        (0..1024).map(|seq| {
            let from = match seq {
                4 => 5,
                5 => 4,
                seq => seq,
            };
            Call { seq: Some(seq), ..call(COMM, from) }
        }),
    );
    assert_ne!(end(&swapped).running, end(&base).running);
}

#[test]
fn unreadable_calls_and_jumps_restart_the_chain_marked() {
    let unread = |seq| {
        let call = call(COMM, seq);
        if seq == 100 { Call { flags: CallFlags::UNREADABLE, ..call } } else { call }
    };
    let broken = digests(state(COMM, 0), (0..600).map(unread));
    assert_eq!((end(&broken).base, end(&broken).upto, end(&broken).restart), (101, 600, Restart::Unreadable));
    let whole = digests(state(COMM, 0), (0..600).map(|seq| call(COMM, seq)));
    // The running hash no longer compares, the interval after the break does.
    let [first, second] = broken.checkpoints.as_slice() else { panic!("{broken:?}") };
    assert_eq!((first.upto, first.interval), (256, None));
    assert_eq!((second.upto, second.interval), (512, whole.checkpoints[1].interval));
    assert!(second.interval.is_some());

    let jumped = digests(state(COMM, 0), (0..600).filter(|seq| !(200..300).contains(seq)).map(|seq| call(COMM, seq)));
    assert_eq!((end(&jumped).base, end(&jumped).restart), (300, Restart::Jump));
    assert_eq!(jumped.checkpoints[0].interval, None);

    let unknown =
        digests(state(COMM, 0), (0..10).map(|seq| Call { seq: (seq != 4).then_some(seq), ..call(COMM, seq) }));
    assert_eq!((end(&unknown).base, end(&unknown).upto, end(&unknown).restart), (5, 10, Restart::Jump));

    let late = digests(state(COMM, 0), (300..600).map(|seq| call(COMM, seq)));
    assert_eq!((end(&late).base, end(&late).restart), (300, Restart::None));
    assert_eq!(late.checkpoints[0].interval, None);
}

#[test]
fn a_block_says_only_what_it_moved() {
    let mut state = state(COMM, 0);
    state.absorb(&call(COMM, 0));
    let first = state.seal_block();
    assert_eq!(end(&first).upto, 1);
    state.absorb(&Call { op: Op::Send, peer: Some(1), ..call(COMM, 0) });
    let second = state.seal_block();
    assert!(second.ends.is_empty());
    assert_eq!(second.p2p.len(), 1);
    assert!(state.seal_block().is_empty());
    let mut standing = Standing::default();
    standing.advance(&first);
    standing.advance(&second);
    assert_eq!(standing.digests(), Digests { checkpoints: vec![], ends: first.ends, p2p: second.p2p });
}

fn pairs(op: Op, members: [(&[u64], &[u64], u64); 3]) -> u64 {
    let mut sum = 0_u64;
    for (rank, (sends, recvs, count)) in (0..).zip(members) {
        let made = Call {
            op,
            count: Some(count),
            sends: sends.to_vec(),
            recvs: recvs.to_vec(),
            root: Some(1),
            ..call(COMM, 7)
        };
        let end = end(&digests(state(COMM, rank), [made]));
        assert_eq!(end.pairs_base, 7, "{op}: the vectors of rank {rank} are known");
        sum = sum.wrapping_add(end.pairs);
    }
    sum
}

#[test]
fn vectors_that_pair_up_sum_to_zero() {
    // Who sends what to whom: i sends 10 i + j to j, and nothing from 2 to 0.
    let all_to_all: [(&[u64], &[u64], u64); 3] =
        [(&[0, 1, 2], &[0, 10, 0], 0), (&[10, 11, 12], &[1, 11, 21], 0), (&[0, 21, 22], &[2, 12, 22], 0)];
    assert_eq!(pairs(Op::AllToAllV, all_to_all), 0);
    assert_eq!(pairs(Op::AllToAll, all_to_all), 0);
    let mut wrong = all_to_all;
    wrong[1].1 = &[1, 11, 20];
    assert_ne!(pairs(Op::AllToAllV, wrong), 0);

    let gathered: &[u64] = &[4, 0, 6];
    assert_eq!(pairs(Op::AllGatherV, [(&[], gathered, 4), (&[], gathered, 0), (&[], gathered, 6)]), 0);
    assert_ne!(pairs(Op::AllGatherV, [(&[], gathered, 4), (&[], gathered, 1), (&[], gathered, 6)]), 0);
    assert_eq!(pairs(Op::ReduceScatterV, [(&[], gathered, 4), (gathered, &[], 0), (&[], gathered, 6)]), 0);
    assert_ne!(pairs(Op::ReduceScatterV, [(&[], gathered, 4), (&[], &[4, 1, 6], 1), (&[], gathered, 6)]), 0);
    assert_eq!(pairs(Op::GatherV, [(&[], &[], 4), (&[], gathered, 0), (&[], &[], 6)]), 0);
    assert_ne!(pairs(Op::GatherV, [(&[], &[], 4), (&[], gathered, 0), (&[], &[], 5)]), 0);
    assert_eq!(pairs(Op::ScatterV, [(&[], &[], 4), (gathered, &[], 0), (&[], &[], 6)]), 0);
    assert_ne!(pairs(Op::ScatterV, [(&[], &[], 3), (gathered, &[], 0), (&[], &[], 6)]), 0);
}

#[test]
fn a_vector_forms_type_is_in_the_pair_sum_and_not_in_the_chain() {
    let made = |rank: u32, count: u64, recvs: &[u64], dtype: Basic| {
        let call = Call {
            op: Op::GatherV,
            count: Some(count),
            recvs: recvs.to_vec(),
            dtype: DType::Basic(dtype),
            root: Some(1),
            ..call(COMM, 7)
        };
        end(&digests(state(COMM, rank), [call]))
    };
    let total = |ends: [ChainPoint; 3]| {
        assert!(ends.iter().all(|end| (end.base, end.upto, end.restart) == (7, 8, Restart::None)));
        assert!(ends.iter().all(|end| end.running == ends[0].running), "the chain is the same for every type");
        ends.iter().fold(0_u64, |sum, end| sum.wrapping_add(end.pairs))
    };
    let root = made(1, 5, &[4, 5, 0], Basic::F32);
    // Who sends nothing passes any type, who sends something does not.
    assert_eq!(total([made(0, 4, &[], Basic::F32), root, made(2, 0, &[], Basic::F64)]), 0);
    assert_ne!(total([made(0, 4, &[], Basic::F64), root, made(2, 0, &[], Basic::F64)]), 0);
    assert_eq!(total([made(0, 0, &[], Basic::I8), made(1, 0, &[0, 0, 0], Basic::F32), made(2, 0, &[], Basic::F64)]), 0);
}

#[test]
fn vectors_that_are_not_known_restart_the_sum() {
    let base = Call { op: Op::AllToAllV, sends: vec![1, 2, 3], recvs: vec![1, 2, 3], ..call(COMM, 7) };
    for unknown in [
        Call { flags: CallFlags::VECTORS_CUT, sends: vec![], recvs: vec![], ..base.clone() },
        Call { recvs: vec![], ..base.clone() },
        Call { recvs: vec![1, 2], ..base.clone() },
        Call { op: Op::NeighborAllToAllV, ..base.clone() },
    ] {
        let end = end(&digests(state(COMM, 0), [unknown]));
        assert_eq!((end.base, end.upto, end.pairs_base, end.pairs), (7, 8, 8, 0));
    }
    // A member that does not know its own rank.
    let mut nobody = DigestState::new();
    nobody.define_comm(&CommDef { id: COMM, ..CommDef::default() });
    assert_eq!(end(&digests(nobody, [base])).pairs_base, 8);
}

#[test]
fn sends_and_receives_that_pair_up_sum_to_zero() {
    let p2p = |op, peer, tag, seq| Call { op, peer: Some(peer), tag, ..call(COMM, seq) };
    let sum = |rank, calls: Vec<Call>| {
        let digests = digests(state(COMM, rank), calls);
        assert!(digests.ends.is_empty(), "point-to-point calls take no position");
        digests.p2p[0]
    };
    let sender = sum(0, vec![p2p(Op::Send, 1, Some(5), 0), p2p(Op::Send, 1, Some(5), 1)]);
    let receiver = sum(1, vec![p2p(Op::Recv, 0, Some(5), 1), p2p(Op::Recv, 0, Some(5), 0)]);
    assert_eq!((sender.sends, sender.recvs, receiver.recvs), (2, 0, 2));
    assert_eq!(sender.sum.wrapping_add(receiver.sum), 0);
    let short = Call { count: Some(1), ..p2p(Op::Recv, 0, Some(5), 1) };
    for other in [short, p2p(Op::Recv, 0, Some(6), 1), p2p(Op::Recv, 0, None, 1), p2p(Op::Recv, 2, Some(5), 1)] {
        let receiver = sum(1, vec![other, p2p(Op::Recv, 0, Some(5), 0)]);
        assert_ne!(sender.sum.wrapping_add(receiver.sum), 0);
    }
    let any = Call { flags: CallFlags::ANY_SOURCE, ..p2p(Op::Recv, 0, Some(5), 0) };
    assert_eq!(sum(1, vec![any]), P2pPoint { comm: COMM, unknown: 1, ..P2pPoint::default() });
}

#[test]
fn tables_round_trip_and_skip_unknown_entries() {
    let mut state = state(COMM, 0);
    for seq in 0..300 {
        state.absorb(&call(COMM, seq));
    }
    state.absorb(&Call { op: Op::AllToAllV, sends: vec![1, 2, 3], recvs: vec![1, 0, 9], ..call(COMM, 300) });
    state.absorb(&Call { flags: CallFlags::UNREADABLE, ..call(CommRef(8), 5) });
    state.absorb(&Call { op: Op::Send, peer: Some(1), ..call(COMM, 0) });
    let digests = state.seal_block();
    assert_eq!((digests.checkpoints.len(), digests.ends.len(), digests.p2p.len()), (1, 2, 1));
    let mut table = vec![99, 2, 0, 0];
    digests.encode(&mut table);
    assert_eq!(Digests::decode(&table), Ok(digests));
    for length in 1..table.len() {
        // A cut table is an error or a shorter table, never a panic; the block's checksum tells which.
        let _ = Digests::decode(&table[..length]);
    }
}
