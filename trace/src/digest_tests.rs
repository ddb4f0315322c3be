use proptest::prelude::*;

use super::{CHECKPOINT_EVERY, ChainPoint, DigestState, Digests, P2pPoint, Restart, Standing};
use crate::call::{Call, CallFlags, Completion, SiteRef};
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

/// Every field of a call, so that a new one must be sorted in here, as one that counts or one that is left out.
fn changes_of_every_field(call: &Call) -> Vec<(&'static str, bool, Call)> {
    let Call {
        op: _,
        comm: _,
        made: _,
        seq: _,
        flags: _,
        count: _,
        dtype: _,
        redop: _,
        root: _,
        peer: _,
        tag: _,
        sends: _,
        recvs: _,
        thread: _,
        thread_seq: _,
        stream: _,
        group: _,
        enter: _,
        exit: _,
        completion: _,
        result: _,
        site: _,
        label: _,
        rank: _,
    } = call;
    let with = |change: &dyn Fn(&mut Call)| {
        let mut call = call.clone();
        change(&mut call);
        call
    };
    let flag = |flag: CallFlags| with(&|call| call.flags = call.flags.with(flag));
    vec![
        ("op", true, with(&|call| call.op = Op::AllReduce)),
        ("count", true, with(&|call| call.count = Some(9))),
        ("dtype", true, with(&|call| call.dtype = DType::Basic(Basic::Bf16))),
        ("redop", true, with(&|call| call.redop = RedOp::Predefined(Reduction::Max))),
        ("root", true, with(&|call| call.root = Some(1))),
        ("made", false, with(&|call| call.made = CommRef(7))),
        ("peer", false, with(&|call| call.peer = Some(2))),
        ("tag", false, with(&|call| call.tag = Some(5))),
        ("sends", false, with(&|call| call.sends = vec![1, 2, 3])),
        ("recvs", false, with(&|call| call.recvs = vec![1, 2, 3])),
        ("thread", false, with(&|call| call.thread = 9)),
        ("thread_seq", false, with(&|call| call.thread_seq = 9)),
        ("stream", false, with(&|call| call.stream = 9)),
        ("group", false, with(&|call| call.group = 9)),
        ("enter", false, with(&|call| call.enter = 9)),
        ("exit", false, with(&|call| call.exit = Some(9))),
        ("completion", false, with(&|call| call.completion = Completion::At(9))),
        ("result", false, with(&|call| call.result = Some(9))),
        ("site", false, with(&|call| call.site = SiteRef(9))),
        ("label", false, with(&|call| call.label = 9)),
        ("rank", false, with(&|call| call.rank = Some(9))),
        ("in_place", false, flag(CallFlags::IN_PLACE)),
        ("grouped", false, flag(CallFlags::GROUPED)),
        ("done", false, flag(CallFlags::DONE)),
        ("incomplete", false, flag(CallFlags::INCOMPLETE)),
        ("any_source", false, flag(CallFlags::ANY_SOURCE)),
        ("any_tag", false, flag(CallFlags::ANY_TAG)),
        ("vectors_cut", false, flag(CallFlags::VECTORS_CUT)),
        // They leave something else out.
        ("bystander", true, flag(CallFlags::BYSTANDER)),
        ("root_is_self", true, flag(CallFlags::ROOT_IS_SELF)),
        // Where the communicator tells forms apart.
        ("nonblocking", true, flag(CallFlags::NONBLOCKING)),
        ("persistent", true, flag(CallFlags::PERSISTENT)),
    ]
}

#[test]
fn what_a_signature_leaves_out_is_what_is_documented() {
    let reduce = Call { op: Op::Reduce, count: Some(8), ..call(COMM, 0) };
    let base = end(&digests(state(COMM, 0), [reduce.clone()]));
    for (field, counts, changed) in changes_of_every_field(&reduce) {
        assert_ne!(changed, reduce, "{field}");
        let changed = end(&digests(state(COMM, 0), [changed]));
        assert_eq!(changed.running != base.running, counts, "{field}");
        assert_eq!((changed.base, changed.upto, changed.restart), (0, 1, Restart::None), "{field}");
    }
    // Where the communicator does not tell forms apart.
    let plain = |call: &Call| {
        let mut state = DigestState::new();
        state.define_comm(&CommDef { id: COMM, my_rank: Some(0), size: Some(3), ..CommDef::default() });
        end(&digests(state, [call.clone()])).running
    };
    for flag in [CallFlags::NONBLOCKING, CallFlags::PERSISTENT] {
        assert_eq!(plain(&Call { flags: flag, ..reduce.clone() }), plain(&reduce));
    }
    // The number of the communicator and of the type are the stream's own.
    let mut elsewhere = state(CommRef(9), 0);
    elsewhere.define_type(&TypeDef { id: 4, runs: vec![(Basic::F32, 2)], ..TypeDef::default() });
    let moved = Call { comm: CommRef(9), dtype: DType::Derived(4), count: Some(4), ..reduce };
    assert_eq!(end(&digests(elsewhere, [moved])).running, base.running);
}

#[test]
fn a_vector_form_leaves_out_what_its_pair_sum_has() {
    let vector = Call { op: Op::AllToAllV, sends: vec![1, 2, 3], recvs: vec![1, 5, 6], ..call(COMM, 0) };
    let base = end(&digests(state(COMM, 0), [vector.clone()]));
    let others = [
        ("count", false, Call { count: Some(77), ..vector.clone() }),
        ("dtype", true, Call { dtype: DType::Basic(Basic::F64), ..vector.clone() }),
        ("sends", true, Call { sends: vec![1, 2, 4], ..vector.clone() }),
        ("recvs", true, Call { recvs: vec![1, 5, 7], ..vector.clone() }),
    ];
    for (field, in_pairs, changed) in others {
        let changed = end(&digests(state(COMM, 0), [changed]));
        assert_eq!(changed.running, base.running, "{field}");
        assert_eq!(changed.pairs != base.pairs, in_pairs, "{field}");
    }
}

#[derive(Debug, Clone)]
enum Action {
    Call(Call),
    Comm(CommDef),
    Type(TypeDef),
    Seal,
}

fn any_call() -> impl Strategy<Value = Call> {
    let op = prop_oneof![
        4 => Just(Op::AllReduce),
        2 => Just(Op::Reduce),
        1 => Just(Op::Broadcast),
        1 => Just(Op::AllToAllV),
        1 => Just(Op::GatherV),
        1 => Just(Op::AllToAll),
        1 => Just(Op::Send),
        1 => Just(Op::Barrier),
    ];
    let dtype = prop_oneof![
        Just(DType::None),
        Just(DType::Basic(Basic::F32)),
        (0_u32..3).prop_map(DType::Derived),
        (0_u64..2).prop_map(DType::Raw),
    ];
    let redop = prop_oneof![
        Just(RedOp::None),
        Just(RedOp::Predefined(Reduction::Sum)),
        Just(RedOp::Dynamic),
        (0_u64..2).prop_map(RedOp::Raw),
    ];
    let flags = prop_oneof![3 => Just(0_u32), 1 => (0_u32..14).prop_map(|bit| 1 << bit)];
    let vector = || prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec(0_u64..2, 3)];
    let numbers = (proptest::option::of(0_u64..3), proptest::option::of(0_u32..2), 1_u32..3);
    (op, dtype, redop, flags, vector(), vector(), numbers).prop_map(
        |(op, dtype, redop, flags, sends, recvs, (count, root, comm))| Call {
            op,
            comm: CommRef(comm),
            count,
            dtype,
            redop,
            root,
            peer: root,
            sends,
            recvs,
            flags: CallFlags(flags),
            ..Call::default()
        },
    )
}

fn any_action() -> impl Strategy<Value = Action> {
    let comm = (1_u32..3, any::<bool>(), any::<bool>()).prop_map(|(id, inter, distinct)| CommDef {
        id: CommRef(id),
        inter,
        semantics: if distinct { Semantics::NONBLOCKING_DISTINCT } else { Semantics::default() },
        my_rank: Some(0),
        size: Some(3),
        ..CommDef::default()
    });
    let runs = proptest::collection::vec((prop_oneof![Just(Basic::F32), Just(Basic::I32)], 1_u64..3), 0..3);
    let derived = (0_u32..3, proptest::option::of(0_u64..9), runs).prop_map(|(id, size, runs)| TypeDef {
        id,
        size,
        runs,
        ..TypeDef::default()
    });
    prop_oneof![
        16 => any_call().prop_map(Action::Call),
        1 => comm.prop_map(Action::Comm),
        1 => derived.prop_map(Action::Type),
        1 => Just(Action::Seal),
    ]
}

proptest! {
    /// With remembered hashes and without, whatever is redefined in between.
    #[test]
    fn remembered_hashes_are_those_computed_anew(actions in proptest::collection::vec(any_action(), 0..120)) {
        let (mut with, mut without) = (DigestState::new(), DigestState::new());
        let mut seqs = [0_u64; 3];
        for action in actions {
            match action {
                Action::Call(call) => {
                    let seq = &mut seqs[call.comm.0 as usize];
                    let call = Call { seq: Some(*seq), ..call };
                    *seq += 1;
                    without.signatures.forget();
                    with.absorb(&call);
                    without.absorb(&call);
                }
                Action::Comm(def) => {
                    with.define_comm(&def);
                    without.define_comm(&def);
                }
                Action::Type(def) => {
                    with.define_type(&def);
                    without.define_type(&def);
                }
                Action::Seal => prop_assert_eq!(with.seal_block(), without.seal_block()),
            }
        }
        prop_assert_eq!(with.seal_block(), without.seal_block());
    }
}
