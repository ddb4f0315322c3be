//! Collectives: what is significant where, in three ABIs.

use rankdiff_trace::{Basic, DType, RedOp, Reduction};

use super::{Process, Recorded, function};
use crate::decode::{Decoded, Decoder};
use crate::mpi::decoder::MpiDecoder;
use crate::mpi::handles::{MPICH, OPEN_MPI, STANDARD};
use crate::spec::Abi;

const INT: u64 = 0x4c00_0405;
const FLOAT: u64 = 0x4c00_040a;
const NULL_TYPE: u64 = 0x0c00_0000;
const SUM: u64 = 0x5800_0003;
const WORLD: u64 = 0x4400_0000;
const IN_PLACE: u64 = u64::MAX;
const I32: DType = DType::Basic(Basic::I32);

fn decode(symbol: &str, recorded: &Recorded, process: &Process) -> Decoded {
    MpiDecoder::new(MPICH).enter(function(symbol), &recorded.raw(), process)
}

fn int(value: i64) -> u64 {
    value as u64
}

#[test]
fn reductions_in_every_form_and_abi() {
    let process = Process::member(0, 4)
        .global(0x7000, "ompi_mpi_int")
        .global(0x7100, "ompi_mpi_op_sum")
        .global(0x7200, "ompi_mpi_comm_world");
    let cases: [(Abi, [u64; 3]); 3] =
        [(MPICH, [INT, SUM, WORLD]), (STANDARD, [0x209, 0x21, 0x101]), (OPEN_MPI, [0x7000, 0x7100, 0x7200])];
    for (abi, [dtype, op, comm]) in cases {
        for symbol in [
            "MPI_Allreduce",
            "MPI_Allreduce_c",
            "MPI_Iallreduce",
            "MPI_Allreduce_init",
            "MPI_Iallreduce_c",
            "MPI_Scan",
            "MPI_Exscan",
            "MPI_Reduce_scatter_block",
        ] {
            let recorded = Recorded::new([0x10, 7, dtype, op, comm, 0x99]);
            let decoded = MpiDecoder::new(abi).enter(function(symbol), &recorded.raw(), &process);
            let expected =
                Decoded { count: Some(7), dtype: I32, redop: RedOp::Predefined(Reduction::Sum), ..Decoded::default() };
            assert_eq!(decoded, expected, "{symbol} {}", abi.name);
        }
    }
}

#[test]
fn in_place_marks_of_three_abis() {
    for (abi, mark) in [(MPICH, u64::MAX), (STANDARD, 1), (OPEN_MPI, 1)] {
        for (buffer, expected) in [(mark, true), (0x10, false)] {
            let recorded = Recorded::new([buffer, 7, INT, SUM, WORLD]);
            let decoded = MpiDecoder::new(abi).enter(function("MPI_Allreduce"), &recorded.raw(), &Process::default());
            assert_eq!(decoded.in_place, expected, "{}", abi.name);
        }
    }
}

#[test]
fn special_roots_of_three_abis() {
    for (abi, root, null) in [(MPICH, -3, -1), (STANDARD, -4, -3), (OPEN_MPI, -4, -2)] {
        let decode = |root: i64| {
            let recorded = Recorded::new([5, INT, int(root), WORLD]);
            MpiDecoder::new(abi).enter(function("MPI_Bcast"), &recorded.raw(), &Process::member(1, 4).inter())
        };
        let own = decode(root);
        assert!(own.root_is_self && own.root.is_none() && own.count == Some(5), "{}", abi.name);
        let null = decode(null);
        assert!(null.bystander && null.count.is_none() && !null.unreadable, "{}", abi.name);
        let remote = decode(2);
        assert!(!remote.root_is_self && !remote.bystander && remote.root == Some(2), "{}", abi.name);
        assert!(decode(-77).unreadable, "{}", abi.name);
    }
}

#[test]
fn barriers_say_nothing() {
    assert_eq!(decode("MPI_Barrier", &Recorded::new([WORLD]), &Process::default()), Decoded::default());
    assert_eq!(decode("MPI_Ibarrier", &Recorded::new([WORLD, 0x99]), &Process::default()), Decoded::default());
    assert_eq!(decode("MPI_Win_create", &Recorded::new([WORLD]), &Process::default()), Decoded::default());
}

#[test]
fn equal_bytes_of_another_type_differ_and_other_names_of_a_type_do_not() {
    let dtype = |handle: u64| decode("MPI_Bcast", &Recorded::new([1, handle, 0, WORLD]), &Process::default()).dtype;
    assert_ne!(dtype(INT), dtype(FLOAT));
    let int32_t = 0x4c00_0439;
    let fortran_integer = 0x4c00_041b;
    assert_eq!([dtype(int32_t), dtype(fortran_integer)], [I32; 2]);
    let (long, long_long, int64_t) = (0x4c00_0807, 0x4c00_0809, 0x4c00_083a);
    assert_eq!([dtype(long), dtype(long_long), dtype(int64_t)], [DType::Basic(Basic::I64); 3]);
    let (char, byte, int8_t) = (0x4c00_0101, 0x4c00_010d, 0x4c00_0137);
    assert!(dtype(char) != dtype(byte) && dtype(byte) != dtype(int8_t) && dtype(char) != dtype(int8_t));
    assert_eq!(dtype(0x8c00_0000), DType::Basic(Basic::F32I32));
}

// Values of a gather: send buffer, send count, send type, receive count, receive type, root, communicator.
fn gather(send: [u64; 3], recv: [u64; 2], root: u64) -> Recorded {
    Recorded::new([send[0], send[1], send[2], recv[0], recv[1], root, WORLD])
}

#[test]
fn a_gather_ignores_the_receive_side_off_the_root() {
    let recorded = gather([0x10, 3, INT], [int(-1), NULL_TYPE], 0);
    let decoded = decode("MPI_Gather", &recorded, &Process::member(1, 4));
    assert_eq!((decoded.count, decoded.dtype, decoded.root), (Some(3), I32, Some(0)));
    assert!(!decoded.unreadable && decoded.other_side.is_none());
}

#[test]
fn a_gather_in_place_takes_the_receive_side_at_the_root() {
    let recorded = gather([IN_PLACE, int(-1), NULL_TYPE], [3, INT], 2);
    for process in [Process::member(2, 4), Process::default()] {
        let decoded = decode("MPI_Gather", &recorded, &process);
        assert_eq!((decoded.count, decoded.dtype, decoded.in_place), (Some(3), I32, true));
        assert!(!decoded.unreadable);
    }
}

#[test]
fn a_root_whose_sides_differ_is_noted() {
    let root = Process::member(0, 4);
    let same = decode("MPI_Gather", &gather([0x10, 3, INT], [3, INT], 0), &root);
    assert_eq!(same.other_side, None);
    let longer = decode("MPI_Gather", &gather([0x10, 3, INT], [4, INT], 0), &root);
    assert_eq!((longer.count, longer.other_side), (Some(3), Some((4, I32))));
    let typed = decode("MPI_Gather", &gather([0x10, 3, INT], [3, FLOAT], 0), &root);
    assert_eq!(typed.other_side, Some((3, DType::Basic(Basic::F32))), "equal bytes");
    let elsewhere = decode("MPI_Gather", &gather([0x10, 3, INT], [4, INT], 0), &Process::member(1, 4));
    assert_eq!(elsewhere.other_side, None);
}

#[test]
fn a_gather_across_groups_has_one_side_each() {
    let process = Process::member(0, 4).inter();
    let root = decode("MPI_Gather", &gather([0x10, int(-1), NULL_TYPE], [3, INT], int(-3)), &process);
    assert_eq!((root.count, root.dtype, root.root_is_self), (Some(3), I32, true));
    let sender = decode("MPI_Gather", &gather([0x10, 3, INT], [9, FLOAT], 0), &process);
    assert_eq!((sender.count, sender.dtype, sender.other_side), (Some(3), I32, None), "rank 0 of the other group");
}

// Values of a scatter: send count, send type, receive buffer, receive count, receive type, root, communicator.
#[test]
fn a_scatter_mirrors_a_gather() {
    let member = Recorded::new([int(-1), NULL_TYPE, 0x20, 3, INT, 0, WORLD]);
    let decoded = decode("MPI_Scatter", &member, &Process::member(1, 4));
    assert_eq!((decoded.count, decoded.dtype, decoded.unreadable), (Some(3), I32, false));
    let in_place = Recorded::new([3, INT, IN_PLACE, int(-1), NULL_TYPE, 1, WORLD]);
    let decoded = decode("MPI_Iscatter", &in_place, &Process::member(1, 4));
    assert_eq!((decoded.count, decoded.dtype, decoded.in_place), (Some(3), I32, true));
    let differs = Recorded::new([5, INT, 0x20, 3, INT, 1, WORLD]);
    let decoded = decode("MPI_Scatter", &differs, &Process::member(1, 4));
    assert_eq!((decoded.count, decoded.other_side), (Some(3), Some((5, I32))));
    let root = Recorded::new([5, INT, 0x20, int(-1), NULL_TYPE, int(-3), WORLD]);
    let decoded = decode("MPI_Scatter", &root, &Process::member(1, 4).inter());
    assert_eq!((decoded.count, decoded.root_is_self, decoded.unreadable), (Some(5), true, false));
}

#[test]
fn all_gather_and_all_to_all_by_block() {
    for symbol in ["MPI_Allgather", "MPI_Alltoall", "MPI_Ialltoall_c", "MPI_Allgather_init"] {
        let both = decode(symbol, &Recorded::new([0x10, 3, INT, 3, INT, WORLD]), &Process::member(1, 4));
        assert_eq!((both.count, both.dtype, both.other_side), (Some(3), I32, None), "{symbol}");
        let placed = Recorded::new([IN_PLACE, int(-1), NULL_TYPE, 3, INT, WORLD]);
        let placed = decode(symbol, &placed, &Process::member(1, 4));
        assert_eq!((placed.count, placed.in_place, placed.unreadable), (Some(3), true, false), "{symbol}");
        let differs = decode(symbol, &Recorded::new([0x10, 3, INT, 4, INT, WORLD]), &Process::member(1, 4));
        assert_eq!(differs.other_side, Some((4, I32)), "{symbol}");
        let across = decode(symbol, &Recorded::new([0x10, 3, INT, 4, INT, WORLD]), &Process::member(1, 4).inter());
        assert_eq!(across.other_side, None, "{symbol}: the groups may differ");
    }
}

#[test]
fn neighbourhoods_say_what_they_send() {
    for symbol in ["MPI_Neighbor_allgather", "MPI_Neighbor_alltoall", "MPI_Ineighbor_allgatherv"] {
        let decoded = decode(symbol, &Recorded::new([3, INT, WORLD]), &Process::member(1, 4));
        assert_eq!((decoded.count, decoded.dtype), (Some(3), I32), "{symbol}");
        assert_eq!(decoded.vectors_cut, symbol.ends_with('v'), "{symbol}");
    }
    let vector = decode("MPI_Neighbor_alltoallv", &Recorded::new([INT, WORLD]), &Process::member(1, 4));
    assert_eq!((vector.count, vector.dtype, vector.vectors_cut), (None, I32, true));
    for (symbol, args) in [("MPI_Alltoallw", vec![0x10, WORLD]), ("MPI_Neighbor_alltoallw", vec![WORLD])] {
        let decoded = decode(symbol, &Recorded::new(args), &Process::member(1, 4));
        assert_eq!(decoded, Decoded { vectors_cut: true, ..Decoded::default() }, "{symbol}");
    }
}

#[test]
fn all_to_all_v_has_both_vectors() {
    let recorded = Recorded::new([0x10, 0x100, INT, 0x200, INT, WORLD]).ints(&[1, 2, 3, 77]).ints(&[4, 5, 6, 77]);
    let decoded = decode("MPI_Alltoallv", &recorded, &Process::member(1, 3));
    assert_eq!((decoded.sends, decoded.recvs), (vec![1, 2, 3], vec![4, 5, 6]), "no more than there are members");
    assert_eq!((decoded.count, decoded.dtype, decoded.vectors_cut), (None, I32, false));

    let placed = Recorded::new([IN_PLACE, 0, NULL_TYPE, 0x200, INT, WORLD]).ints(&[]).ints(&[4, 5, 6]);
    let decoded = decode("MPI_Alltoallv", &placed, &Process::member(1, 3));
    assert_eq!((decoded.sends, decoded.recvs, decoded.dtype), (vec![4, 5, 6], vec![4, 5, 6], I32));
    assert!(!decoded.unreadable && !decoded.vectors_cut);

    for process in [Process::member(1, 5), Process::default(), Process::member(1, 3).inter()] {
        let decoded = decode("MPI_Alltoallv", &recorded, &process);
        assert!(decoded.vectors_cut && decoded.sends.is_empty() && decoded.recvs.is_empty());
        assert_eq!(decoded.dtype, I32);
    }
}

#[test]
fn vectors_with_64_bit_counts() {
    let recorded = Recorded::new([0x10, 0x100, INT, 0x200, INT, WORLD]).longs(&[1 << 40, 2]).longs(&[3, 4]);
    let decoded = decode("MPI_Alltoallv_c", &recorded, &Process::member(0, 2));
    assert_eq!((decoded.sends, decoded.recvs), (vec![1 << 40, 2], vec![3, 4]));
}

#[test]
fn gather_v_has_a_vector_at_the_root_only() {
    let recorded = Recorded::new([0x10, 2, INT, 0x200, INT, 1, WORLD]).ints(&[1, 2, 3]);
    let root = decode("MPI_Gatherv", &recorded, &Process::member(1, 3));
    assert_eq!((root.count, root.recvs, root.vectors_cut), (Some(2), vec![1, 2, 3], false));
    let member = decode("MPI_Gatherv", &recorded, &Process::member(0, 3));
    assert_eq!((member.count, member.recvs, member.vectors_cut), (Some(2), vec![], false));
    let unknown = decode("MPI_Gatherv", &recorded, &Process::default());
    assert_eq!((unknown.count, unknown.vectors_cut), (Some(2), true));
    let placed = Recorded::new([IN_PLACE, int(-1), NULL_TYPE, 0x200, INT, 1, WORLD]).ints(&[1, 2, 3]);
    let placed = decode("MPI_Gatherv", &placed, &Process::member(1, 3));
    assert_eq!((placed.count, placed.recvs, placed.unreadable), (Some(2), vec![1, 2, 3], false));
}

#[test]
fn scatter_v_mirrors_gather_v() {
    let recorded = Recorded::new([0x100, INT, 0x20, 2, INT, 1, WORLD]).ints(&[1, 2, 3]);
    let root = decode("MPI_Scatterv", &recorded, &Process::member(1, 3));
    assert_eq!((root.count, root.sends, root.recvs), (Some(2), vec![1, 2, 3], vec![]));
    let member = Recorded::new([0, NULL_TYPE, 0x20, 2, INT, 1, WORLD]);
    let member = decode("MPI_Scatterv", &member, &Process::member(0, 3));
    assert_eq!((member.count, member.sends, member.unreadable), (Some(2), vec![], false));
    let placed = Recorded::new([0x100, INT, IN_PLACE, int(-1), NULL_TYPE, 1, WORLD]).ints(&[1, 2, 3]);
    let placed = decode("MPI_Iscatterv", &placed, &Process::member(1, 3));
    assert_eq!((placed.count, placed.sends, placed.dtype), (Some(2), vec![1, 2, 3], I32));
}

#[test]
fn all_gather_v_and_reduce_scatter_have_the_same_vector_everywhere() {
    let recorded = Recorded::new([0x10, 2, INT, 0x200, INT, WORLD]).ints(&[1, 2, 3]);
    let decoded = decode("MPI_Allgatherv", &recorded, &Process::member(1, 3));
    assert_eq!((decoded.count, decoded.recvs, decoded.dtype), (Some(2), vec![1, 2, 3], I32));
    let placed = Recorded::new([IN_PLACE, 0, NULL_TYPE, 0x200, INT, WORLD]).ints(&[1, 2, 3]);
    let decoded = decode("MPI_Allgatherv", &placed, &Process::member(2, 3));
    assert_eq!((decoded.count, decoded.recvs, decoded.unreadable), (Some(3), vec![1, 2, 3], false));

    let recorded = Recorded::new([0x10, 0x200, INT, SUM, WORLD]).ints(&[1, 2, 3]);
    let decoded = decode("MPI_Reduce_scatter", &recorded, &Process::member(0, 3));
    assert_eq!((decoded.count, decoded.recvs), (Some(1), vec![1, 2, 3]));
    assert_eq!((decoded.dtype, decoded.redop), (I32, RedOp::Predefined(Reduction::Sum)));
}

#[test]
fn vectors_of_derived_types_count_basic_elements() {
    let process = Process::member(1, 2);
    let mut decoder = MpiDecoder::new(MPICH);
    let make = Recorded::new([4, INT, 0x500]);
    decoder.exit(function("MPI_Type_contiguous"), &make.raw(), 0, Some(0x8c00_0010), &process);
    // One sends fours, the other side counts ints.
    let recorded = Recorded::new([0x10, 0x100, 0x8c00_0010, 0x200, INT, WORLD]).ints(&[1, 2]).ints(&[4, 8]);
    let decoded = decoder.enter(function("MPI_Alltoallv"), &recorded.raw(), &process);
    assert_eq!((decoded.sends, decoded.recvs, decoded.dtype), (vec![4, 8], vec![4, 8], I32));
    // Types of several kinds can't be counted so: only the own side is kept.
    let structure = Recorded::new([2, 0x100, 0x200, 0x500]).ints(&[1, 1]).handles32(&[INT, FLOAT]);
    decoder.exit(function("MPI_Type_create_struct"), &structure.raw(), 0, Some(0x8c00_0011), &process);
    let recorded = Recorded::new([0x10, 0x100, 0x8c00_0011, 0x200, INT, WORLD]).ints(&[1, 2]).ints(&[4, 8]);
    let decoded = decoder.enter(function("MPI_Alltoallv"), &recorded.raw(), &process);
    assert_eq!((decoded.sends, decoded.recvs, decoded.vectors_cut), (vec![1, 2], vec![], true));
    assert!(matches!(decoded.dtype, DType::Derived(_)));
}

#[test]
fn derived_types_are_written_with_the_call_that_names_them() {
    let process = Process::member(1, 2);
    let mut decoder = MpiDecoder::new(OPEN_MPI);
    let process = process.global(0x7000, "ompi_mpi_double");
    let make = Recorded::new([3, 0x7000, 0x500]);
    decoder.exit(function("MPI_Type_contiguous"), &make.raw(), 0, Some(0x5555_0010), &process);
    let call = Recorded::new([2, 0x5555_0010, 0, 0x5555_0000]);
    let decoded = decoder.enter(function("MPI_Bcast"), &call.raw(), &process);
    let types = decoder.take_types();
    assert_eq!(types.len(), 1);
    assert_eq!((decoded.dtype, types[0].runs.as_slice()), (DType::Derived(types[0].id), &[(Basic::F64, 3)][..]));

    let free = Recorded::new([0x500]).longs(&[0x5555_0010, 0xffff]);
    decoder.enter(function("MPI_Type_free"), &free.raw(), &process);
    let decoded = decoder.enter(function("MPI_Bcast"), &call.raw(), &process);
    assert!(decoded.unreadable, "a type whose constructor was not seen");
    assert_eq!(decoder.take_types()[0].size, None);

    decoder.exit(function("MPI_Type_contiguous"), &make.raw(), 15, Some(0x5555_0020), &process);
    let call = Recorded::new([2, 0x5555_0020, 0, 0x5555_0000]);
    assert!(decoder.enter(function("MPI_Bcast"), &call.raw(), &process).unreadable, "the constructor failed");
}

#[test]
fn operations_of_the_program_are_dynamic() {
    let redop = |op: u64| decode("MPI_Allreduce", &Recorded::new([0x10, 1, INT, op, WORLD]), &Process::default()).redop;
    assert_eq!(redop(0x9800_0000), RedOp::Dynamic);
    assert_eq!(redop(0x1800_0000), RedOp::None, "MPI_OP_NULL");
}
