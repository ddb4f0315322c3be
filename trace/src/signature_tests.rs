use super::{Differences, Fields, Form, Part, Signature, is_vector_form};
use crate::call::{Call, CallFlags, Completion, SiteRef};
use crate::comm::{CommDef, CommRef, Semantics};
use crate::datatype::{Basic, DType, RedOp, Reduction, TypeDef};
use crate::op::Op;
use crate::typesig::TypeTable;

fn types() -> TypeTable {
    let def = |id, size, runs: &[(Basic, u64)]| TypeDef { id, name: format!("t{id}"), size, runs: runs.to_vec() };
    TypeTable::new(&[
        def(1, Some(8), &[(Basic::F32, 2)]),
        def(2, Some(8), &[(Basic::F32, 1), (Basic::I32, 1)]),
        def(3, Some(16), &[(Basic::F32, 1), (Basic::I32, 1), (Basic::F32, 1), (Basic::I32, 1)]),
        def(4, Some(8), &[]),
        def(5, Some(12), &[]),
        def(6, None, &[]),
    ])
}

fn comm() -> CommDef {
    CommDef { id: CommRef(1), ..CommDef::default() }
}

fn all_reduce() -> Call {
    Call {
        op: Op::AllReduce,
        comm: CommRef(1),
        seq: Some(0),
        count: Some(8),
        dtype: DType::Basic(Basic::F32),
        redop: RedOp::Predefined(Reduction::Sum),
        ..Call::default()
    }
}

fn of(call: &Call) -> Signature {
    Signature::of(call, &comm(), &types())
}

fn canonical(signature: &Signature) -> Vec<u8> {
    let mut bytes = Vec::new();
    signature.write_canonical(&mut bytes);
    bytes
}

/// The differences, checked to be the same from both sides and to agree with the canonical bytes, in which a v-form's
/// type is not.
fn between(a: &Call, b: &Call) -> Differences {
    let (x, y) = (of(a), of(b));
    let found = x.differences(&y);
    assert_eq!(found, y.differences(&x), "not symmetric");
    let typed_by_pairs = is_vector_form(a) && is_vector_form(b);
    let apart_from_type =
        if typed_by_pairs && found.differ == Fields::DTYPE { Fields::default() } else { found.differ };
    if canonical(&x) == canonical(&y) && x.complete {
        assert!(apart_from_type.is_empty() && (typed_by_pairs || found.agree()), "equal bytes, but {found:?}");
    }
    if !apart_from_type.is_empty() {
        assert_ne!(canonical(&x), canonical(&y), "{found:?}, but equal bytes");
    }
    found
}

fn differ(fields: Fields) -> Differences {
    Differences { differ: fields, unknown: Fields::default() }
}

fn unknown(fields: Fields) -> Differences {
    Differences { differ: Fields::default(), unknown: fields }
}

#[test]
fn each_parameter_is_told() {
    let base = all_reduce();
    assert!(between(&base, &base).agree());
    assert_eq!(between(&base, &Call { op: Op::Barrier, ..base.clone() }), differ(Fields::OP));
    assert_eq!(between(&base, &Call { count: Some(9), ..base.clone() }), differ(Fields::COUNT));
    assert_eq!(between(&base, &Call { count: Some(0), ..base.clone() }), differ(Fields::COUNT));
    let bf16 = Call { dtype: DType::Basic(Basic::Bf16), ..base.clone() };
    assert_eq!(between(&base, &bf16), differ(Fields::DTYPE));
    let both = Call { count: Some(16), ..bf16 };
    assert_eq!(between(&base, &both), differ(Fields::DTYPE.with(Fields::COUNT)));
    let max = Call { redop: RedOp::Predefined(Reduction::Max), ..base.clone() };
    assert_eq!(between(&base, &max), differ(Fields::REDOP));
    let broadcast = Call { op: Op::Broadcast, root: Some(0), redop: RedOp::None, ..base };
    assert_eq!(between(&broadcast, &Call { root: Some(1), ..broadcast.clone() }), differ(Fields::ROOT));
}

#[test]
fn what_is_legally_different_is_left_out() {
    let base = all_reduce();
    let same = [
        Call { comm: CommRef(9), made: CommRef(4), seq: Some(7), ..base.clone() },
        Call { flags: CallFlags::IN_PLACE.with(CallFlags::GROUPED).with(CallFlags::NONBLOCKING), ..base.clone() },
        Call { flags: CallFlags::DONE.with(CallFlags::INCOMPLETE).with(CallFlags::PERSISTENT), ..base.clone() },
        Call { thread: 3, thread_seq: 9, stream: 77, group: 4, ..base.clone() },
        Call { enter: 5, exit: Some(6), result: Some(1), completion: Completion::Pending, ..base.clone() },
        Call { site: SiteRef(3), label: 2, rank: Some(5), tag: Some(1), peer: Some(2), ..base.clone() },
        // A root where the operation has none.
        Call { root: Some(2), ..base.clone() },
    ];
    for other in same {
        assert!(between(&base, &other).agree(), "{other:?}");
        assert_eq!(canonical(&of(&base)), canonical(&of(&other)), "{other:?}");
    }
}

#[test]
fn derived_and_basic_types_match_by_what_they_transfer() {
    let base = all_reduce();
    let derived = |id, count| Call { dtype: DType::Derived(id), count: Some(count), ..base.clone() };
    assert!(between(&base, &derived(1, 4)).agree());
    assert_eq!(canonical(&of(&base)), canonical(&of(&derived(1, 4))));
    assert!(between(&derived(2, 4), &derived(3, 2)).agree());
    assert_eq!(between(&derived(2, 4), &derived(3, 3)), differ(Fields::COUNT));
    assert_eq!(between(&base, &derived(2, 4)), differ(Fields::DTYPE));
    // Known by size only: another size differs for sure, an equal size is no proof.
    assert_eq!(between(&base, &derived(5, 4)), differ(Fields::COUNT));
    assert_eq!(between(&base, &derived(4, 4)), unknown(Fields::DTYPE));
    assert!(!of(&derived(4, 4)).complete);
    // Not known at all, or not defined.
    for id in [6, 99] {
        assert_eq!(between(&base, &derived(id, 4)), unknown(Fields::DTYPE.with(Fields::COUNT)));
        assert!(!of(&derived(id, 4)).complete);
    }
    // No elements are no elements of any type.
    assert!(between(&Call { count: Some(0), ..base.clone() }, &derived(2, 0)).agree());
}

#[test]
fn undecoded_handles_are_equal_or_unknown() {
    let raw = |dtype, redop| Call { dtype: DType::Raw(dtype), redop: RedOp::Raw(redop), ..all_reduce() };
    assert!(between(&raw(1, 2), &raw(1, 2)).agree());
    assert_eq!(between(&raw(1, 2), &raw(1, 3)), unknown(Fields::REDOP));
    assert_eq!(between(&raw(1, 2), &raw(3, 2)), unknown(Fields::DTYPE.with(Fields::COUNT)));
    assert_eq!(between(&raw(1, 2), &Call { count: Some(9), ..raw(1, 2) }), differ(Fields::COUNT));
    let dynamic = Call { redop: RedOp::Dynamic, ..all_reduce() };
    assert!(between(&dynamic, &dynamic).agree());
    assert_eq!(between(&dynamic, &all_reduce()), differ(Fields::REDOP));
}

#[test]
fn what_was_not_read_is_unknown_and_proves_nothing() {
    let base = all_reduce();
    for (call, fields) in [
        (Call { count: None, ..base.clone() }, Fields::COUNT.with(Fields::DTYPE)),
        (Call { dtype: DType::None, ..base.clone() }, Fields::COUNT.with(Fields::DTYPE)),
        (Call { redop: RedOp::None, ..base.clone() }, Fields::REDOP),
    ] {
        assert_eq!(between(&base, &call), unknown(fields));
        assert!(!of(&call).complete);
    }
    let reduce = Call { op: Op::Reduce, root: Some(1), ..base.clone() };
    assert_eq!(between(&reduce, &Call { root: None, ..reduce.clone() }), unknown(Fields::ROOT));
    assert!(!of(&Call { flags: CallFlags::UNREADABLE, ..base }).complete);
}

#[test]
fn forms_differ_where_the_library_says_so() {
    let distinct = CommDef { semantics: Semantics::NONBLOCKING_DISTINCT, ..comm() };
    let with = |flags| Signature::of(&Call { flags, ..all_reduce() }, &distinct, &types());
    let forms = [with(CallFlags::default()), with(CallFlags::NONBLOCKING), with(CallFlags::PERSISTENT)];
    assert_eq!(forms.each_ref().map(|signature| signature.form), [Form::Blocking, Form::Nonblocking, Form::Persistent]);
    for (i, a) in forms.iter().enumerate() {
        for (j, b) in forms.iter().enumerate() {
            assert_eq!(a.differences(b), if i == j { Differences::default() } else { differ(Fields::FORM) });
            assert_eq!(canonical(a) == canonical(b), i == j);
        }
    }
}

#[test]
fn vector_forms_leave_counts_out() {
    let base = Call { op: Op::AllToAllV, redop: RedOp::None, ..all_reduce() };
    let other = Call { count: Some(1), sends: vec![1, 2], recvs: vec![3, 4], dtype: DType::Derived(1), ..base.clone() };
    assert!(between(&base, &other).agree());
    assert_eq!(canonical(&of(&base)), canonical(&of(&other)));
    let typed = Call { dtype: DType::Basic(Basic::F64), ..base.clone() };
    assert_eq!(between(&base, &typed), differ(Fields::DTYPE));
    assert_eq!(canonical(&of(&base)), canonical(&of(&typed)), "the pair sums have the type");
    let max = Call { op: Op::ReduceScatterV, redop: RedOp::Predefined(Reduction::Max), ..base.clone() };
    let sum = Call { redop: RedOp::Predefined(Reduction::Sum), ..max.clone() };
    assert_eq!(between(&max, &sum), differ(Fields::REDOP));
    let per_pair = Call { op: Op::AllToAllW, ..base };
    assert!(between(&per_pair, &Call { dtype: DType::None, ..per_pair.clone() }).agree());
}

#[test]
fn a_member_of_a_vector_form_that_transfers_nothing_passes_any_type() {
    let f64 = DType::Basic(Basic::F64);
    let with = |op: Op, count: Option<u64>, sends: &[u64], recvs: &[u64], flags: CallFlags| Call {
        op,
        count,
        sends: sends.to_vec(),
        recvs: recvs.to_vec(),
        flags,
        root: Some(0),
        ..all_reduce()
    };
    let (none, cut) = (CallFlags::default(), CallFlags::VECTORS_CUT);
    let zeroes: &[u64] = &[0, 0, 0];
    let nothing = [
        with(Op::GatherV, Some(0), &[], &[], none),
        // The root receives another type, so its vector is left out.
        with(Op::GatherV, Some(0), &[], &[], cut),
        with(Op::GatherV, Some(0), &[], zeroes, none),
        with(Op::GatherV, None, &[], zeroes, none),
        with(Op::ScatterV, Some(0), &[], &[], none),
        with(Op::ScatterV, None, zeroes, &[], none),
        with(Op::AllGatherV, Some(0), &[], zeroes, none),
        with(Op::AllGatherV, Some(0), &[], &[], cut),
        with(Op::ReduceScatterV, Some(0), &[], zeroes, none),
        with(Op::AllToAllV, None, zeroes, zeroes, none),
        with(Op::AllToAllV, None, zeroes, &[], cut),
        with(Op::AllToAll, Some(0), zeroes, zeroes, none),
        with(Op::NeighborAllGatherV, Some(0), &[], &[], cut),
    ];
    for call in nothing {
        // What the others transfer, and other members that transfer nothing, of types known and not.
        let some = Call { count: Some(3), sends: vec![1, 0, 2], recvs: vec![2, 1, 0], ..call.clone() };
        for dtype in [f64, DType::Derived(2), DType::Derived(4), DType::Derived(99), DType::None, DType::Raw(7)] {
            let other = Call { dtype, ..call.clone() };
            assert!(between(&other, &some).agree(), "{other:?}");
            assert!(between(&other, &call).agree(), "{other:?}");
            assert!(of(&other).complete, "{other:?}");
            assert_eq!(canonical(&of(&other)), canonical(&of(&some)), "{other:?}");
        }
        // Neighbours may differ where they share no edge.
        let neighbors = call.op == Op::NeighborAllGatherV;
        let typed = if neighbors { unknown(Fields::DTYPE) } else { differ(Fields::DTYPE) };
        assert_eq!(between(&some, &Call { dtype: f64, ..some.clone() }), typed);
    }
    let something = [
        with(Op::GatherV, Some(0), &[], &[0, 3, 0], none),
        with(Op::ScatterV, Some(0), &[0, 3, 0], &[], none),
        with(Op::AllGatherV, Some(0), &[], &[0, 3, 0], none),
        // The own block of the result is empty, those of the others are not, or are not known.
        with(Op::ReduceScatterV, Some(0), &[], &[0, 3, 0], none),
        with(Op::ReduceScatterV, Some(0), &[], &[], cut),
        with(Op::AllToAllV, None, zeroes, &[0, 3, 0], none),
        with(Op::AllToAllV, None, &[], &[], cut),
        with(Op::NeighborAllToAllV, None, &[], &[], cut),
    ];
    for call in something {
        let found = of(&call).differences(&of(&Call { dtype: f64, ..call.clone() }));
        assert!(found.differ.with(found.unknown).contains(Fields::DTYPE), "{call:?}");
        assert!(!of(&Call { dtype: DType::None, ..call.clone() }).complete, "{call:?}");
    }
}

#[test]
fn without_elements_types_never_differ_whatever_the_operation() {
    let types = [
        DType::Basic(Basic::F32),
        DType::Basic(Basic::F64),
        DType::Derived(2),
        DType::Derived(4),
        DType::Derived(6),
        DType::Derived(99),
        DType::Raw(7),
        DType::None,
    ];
    for &op in Op::ALL {
        // A reduce_scatter_v's count is one member's block: only its vector tells that nothing is transferred.
        let recvs = if op == Op::ReduceScatterV { vec![0, 0] } else { Vec::new() };
        let base = Call { op, count: Some(0), root: Some(0), recvs, ..all_reduce() };
        for a in types {
            for b in types {
                let found = between(&Call { dtype: a, ..base.clone() }, &Call { dtype: b, ..base.clone() });
                assert!(found.differ.is_empty(), "{op}, {a:?}, {b:?}: {found:?}");
            }
        }
    }
}

#[test]
fn an_all_to_all_with_splits_leaves_its_count_out() {
    let base = Call { op: Op::AllToAll, redop: RedOp::None, ..all_reduce() };
    let split = |sends: &[u64], recvs: &[u64]| Call {
        count: Some(sends.iter().sum()),
        sends: sends.to_vec(),
        recvs: recvs.to_vec(),
        ..base.clone()
    };
    let (one, other) = (split(&[3, 1], &[3, 2]), split(&[2, 4], &[1, 4]));
    assert!(between(&one, &other).agree());
    assert_eq!(canonical(&of(&one)), canonical(&of(&other)));
    let cut = Call { flags: CallFlags::VECTORS_CUT, count: Some(99), ..base.clone() };
    assert!(between(&one, &cut).agree());
    let without = Call { count: Some(9), ..base.clone() };
    assert_eq!(between(&base, &without), differ(Fields::COUNT));
}

#[test]
fn neighbours_may_differ_where_they_share_no_edge() {
    let base = Call { op: Op::NeighborAllGather, redop: RedOp::None, ..all_reduce() };
    assert_eq!(between_unsure(&base, &Call { count: Some(9), ..base.clone() }), unknown(Fields::COUNT));
    assert!(between(&base, &base).agree());
}

fn between_unsure(a: &Call, b: &Call) -> Differences {
    assert_ne!(canonical(&of(a)), canonical(&of(b)), "a digest may say unequal where nothing differs, never equal");
    of(a).differences(&of(b))
}

#[test]
fn intercommunicators_leave_out_what_each_group_has_for_itself() {
    let inter = CommDef { inter: true, ..comm() };
    let of = |call: &Call| Signature::of(call, &inter, &types());
    let broadcast = Call { op: Op::Broadcast, redop: RedOp::None, root: Some(2), ..all_reduce() };
    let root = Call { flags: CallFlags::ROOT_IS_SELF, root: None, ..broadcast.clone() };
    let bystander =
        Call { flags: CallFlags::BYSTANDER, root: None, count: None, dtype: DType::None, ..broadcast.clone() };
    for call in [&root, &bystander] {
        let signature = of(call);
        assert_eq!(signature.root, Part::LeftOut);
        assert!(signature.complete);
        assert!(signature.differences(&of(&broadcast)).agree());
        assert_eq!(canonical(&signature), canonical(&of(&broadcast)));
    }
    // The sum of two groups is one sum.
    let short = Call { count: Some(7), ..all_reduce() };
    assert_eq!(of(&all_reduce()).differences(&of(&short)), differ(Fields::COUNT));
}

/// The bytes themselves are the format: a change of them makes old and new recordings of one job unequal.
#[test]
fn canonical_bytes_are_as_documented() {
    assert_eq!(
        canonical(&of(&all_reduce())),
        [
            2, 0, // all_reduce
            0, // forms are not told apart
            3, 1, 13, // elements: given; a basic type; f32
            1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // eight of them
            3, 1, 1, // reduction: given; predefined; sum
            0, // no root
        ]
    );
    let reduce =
        Call { op: Op::Reduce, root: Some(258), redop: RedOp::Dynamic, dtype: DType::Derived(2), ..all_reduce() };
    assert_eq!(
        canonical(&of(&reduce)),
        [
            4, 0, 0, // reduce
            3, 2, 2, 0, 0, 0, 0, 0, 0, 0, // elements: given; two runs
            13, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0, // one f32, one i32
            1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // eight times
            3, 2, // dynamic
            3, 2, 1, 0, 0, // root 258
        ]
    );
    assert_eq!(canonical(&of(&Call { op: Op::Barrier, ..Call::default() })), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn packed_data_may_be_received_unpacked() {
    let of_type = |basic: Basic, count: u64| Call { dtype: DType::Basic(basic), count: Some(count), ..all_reduce() };
    let packed = of_type(Basic::Packed, 48);
    for other in [of_type(Basic::F32, 10), of_type(Basic::F64, 6)] {
        assert_eq!(between(&packed, &other), unknown(Fields::COUNT.with(Fields::DTYPE)));
    }
    assert_eq!(between(&packed, &of_type(Basic::Packed, 40)), differ(Fields::COUNT));
    assert_eq!(between(&of_type(Basic::F32, 10), &of_type(Basic::F64, 6)), differ(Fields::COUNT.with(Fields::DTYPE)));
}
