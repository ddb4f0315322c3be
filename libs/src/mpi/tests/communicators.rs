//! Communicators, requests, and what is predefined.

use rankdiff_trace::{Basic, CommIdentity, DType};

use super::{Process, Recorded, function};
use crate::decode::{Decoded, Decoder, Lineage};
use crate::mpi::MPI;
use crate::mpi::decoder::MpiDecoder;
use crate::mpi::handles::{MPICH, OPEN_MPI, STANDARD};

const INT: u64 = 0x4c00_0405;
const WORLD: u64 = 0x4400_0000;
const UNDEFINED: u64 = -32766_i64 as u64;

fn decode(symbol: &str, recorded: &Recorded, process: &Process) -> Decoded {
    MpiDecoder::new(MPICH).enter(function(symbol), &recorded.raw(), process)
}

#[test]
fn builds_are_told_apart_by_their_symbols() {
    let abi = |defined: &'static str| (MPI.abi)(&move |symbol| symbol == defined).name;
    assert_eq!(abi("ompi_mpi_comm_world"), "openmpi");
    assert_eq!(abi("MPIR_Dup_fn"), "mpich");
    assert_eq!(abi("MPI_Init"), "mpi-abi");
}

#[test]
fn what_is_predefined() {
    let process = Process::default()
        .global(0x10, "ompi_mpi_comm_null")
        .global(0x20, "ompi_mpi_comm_world")
        .global(0x30, "ompi_mpi_comm_self");
    let mut worlds = Vec::new();
    for (abi, [null, world, itself]) in
        [(MPICH, [0x0400_0000, WORLD, 0x4400_0001]), (STANDARD, [0x100, 0x101, 0x102]), (OPEN_MPI, [0x10, 0x20, 0x30])]
    {
        let decoder = (MPI.decoder)(abi);
        let found = decoder.predefined(world, &process).expect("the world");
        assert!(found.world && found.identity.is_known());
        worlds.push(found.identity);
        let found = decoder.predefined(itself, &process).expect("the process's own");
        assert!(!found.world && found.identity == CommIdentity::UNKNOWN);
        assert!(decoder.is_null_comm(null, &process) && !decoder.is_null_comm(world, &process));
        assert_eq!(decoder.predefined(0x8400_0001, &process), None);
    }
    worlds.dedup();
    assert_eq!(worlds.len(), 1);
}

#[test]
fn splits() {
    let process = Process::member(1, 4);
    let split = decode("MPI_Comm_split", &Recorded::new([WORLD, 3, 7, 0x99]), &process);
    assert_eq!((split.color, split.key, split.lineage), (Some(3), Some(7), Lineage::Colour));
    let out = decode("MPI_Comm_split", &Recorded::new([WORLD, UNDEFINED, 0, 0x99]), &process);
    assert_eq!((out.color, out.lineage), (None, Lineage::Colour), "no communicator for this member");

    for (abi, shared) in [(MPICH, 1), (STANDARD, 221), (OPEN_MPI, 0)] {
        let decode = |kind: u64| {
            let recorded = Recorded::new([WORLD, kind, 0, 0x99]);
            MpiDecoder::new(abi).enter(function("MPI_Comm_split_type"), &recorded.raw(), &process)
        };
        assert_eq!((decode(shared).lineage, decode(shared).color), (Lineage::Node, Some(shared as i64)));
        assert_eq!(decode(3).lineage, Lineage::Unknown, "{}: what hardware it goes by is not known here", abi.name);
        assert_eq!((decode(UNDEFINED).lineage, decode(UNDEFINED).color), (Lineage::Colour, None));
    }
}

#[test]
fn copies_and_subsets() {
    let process = Process::member(1, 4);
    let dup = decode("MPI_Comm_dup", &Recorded::new([WORLD, 0x99]), &process);
    assert_eq!((dup.new_size, dup.new_rank, dup.new_inter), (Some(4), Some(1), false));
    assert!(decode("MPI_Comm_dup", &Recorded::new([WORLD, 0x99]), &process.clone().inter()).new_inter);
    let create = decode("MPI_Comm_create", &Recorded::new([WORLD, 0x99]), &process);
    assert_eq!((create.new_size, create.lineage), (None, Lineage::Unknown));
    assert_eq!(decode("MPI_Comm_create_group", &Recorded::new([WORLD, 0x99]), &process).lineage, Lineage::Unknown);
    assert_eq!(decode("MPI_Comm_create_from_group", &Recorded::new([0x99]), &process).lineage, Lineage::Unknown);
}

/// A decoder that has seen a group of these ranks of the world made, under this handle.
fn with_group(rank: u32, ranks: &[i32], group: u64) -> (MpiDecoder, Process) {
    let process = Process::member(rank, 4);
    let mut decoder = MpiDecoder::new(MPICH);
    let all = Recorded::new([WORLD, 0x99]);
    decoder.enter(function("MPI_Comm_group"), &all.raw(), &process);
    decoder.exit(function("MPI_Comm_group"), &all.raw(), 0, Some(0x50), &process);
    let list = Recorded::new([0x50, ranks.len() as u64, 0x99, 0x99]).ints(ranks);
    decoder.enter(function("MPI_Group_incl"), &list.raw(), &process);
    decoder.exit(function("MPI_Group_incl"), &list.raw(), 0, Some(group), &process);
    (decoder, process)
}

#[test]
fn communicators_over_groups_are_told_apart_by_the_groups_ranks() {
    let create = |rank, ranks: &[i32], group| {
        let (mut decoder, process) = with_group(rank, ranks, group);
        decoder.enter(function("MPI_Comm_create"), &Recorded::new([WORLD, group, 0x99]).raw(), &process)
    };
    // Handles differ between processes, ranks do not.
    let (one, two, other) = (create(0, &[0, 1], 0x51), create(1, &[0, 1], 0x77), create(2, &[2, 3], 0x51));
    assert_eq!((one.color, one.lineage, one.new_size), (two.color, Lineage::Colour, Some(2)));
    assert_ne!(one.color, other.color);
    assert_ne!(one.color, create(0, &[1, 0], 0x51).color, "another order is another communicator");
}

#[test]
fn communicators_that_a_group_makes_alone_are_numbered() {
    let (mut decoder, process) = with_group(1, &[1, 3], 0x51);
    let (mut partner, other) = with_group(3, &[1, 3], 0x60);
    let call = |decoder: &mut MpiDecoder, process: &Process, group, tag| {
        let recorded = Recorded::new([WORLD, group, tag, 0x99]);
        decoder.enter(function("MPI_Comm_create_group"), &recorded.raw(), process).new_identity
    };
    let first = call(&mut decoder, &process, 0x51, 5);
    assert!(first.is_known());
    assert_eq!(first, call(&mut partner, &other, 0x60, 5));
    let second = call(&mut decoder, &process, 0x51, 5);
    assert_ne!(first, second);
    assert_eq!(second, call(&mut partner, &other, 0x60, 5));
    assert_ne!(call(&mut decoder, &process, 0x51, 6), call(&mut partner, &other, 0x60, 7));
}

#[test]
fn what_is_not_known_of_a_group_is_not_guessed() {
    let unknown = |decoder: &mut MpiDecoder, process: &Process, comm, group| {
        let create = Recorded::new([comm, group, 0x99]);
        let alone = Recorded::new([comm, group, 5, 0x99]);
        let both = [
            decoder.enter(function("MPI_Comm_create"), &create.raw(), process),
            decoder.enter(function("MPI_Comm_create_group"), &alone.raw(), process),
        ];
        both.iter().all(|decoded| decoded.lineage == Lineage::Unknown && !decoded.new_identity.is_known())
    };
    let (mut decoder, process) = with_group(0, &[0, 1], 0x51);
    assert!(unknown(&mut decoder, &process, WORLD, 0x52), "a group that was never seen");
    assert!(unknown(&mut decoder, &process, 0x8400_0001, 0x51), "its ranks are the world's, the parent is another");
    decoder.enter(function("MPI_Group_free"), &Recorded::new([0x99]).handles32(&[0x51]).raw(), &process);
    assert!(unknown(&mut decoder, &process, WORLD, 0x51), "a group that was freed");
    let (mut decoder, process) = with_group(0, &[0, 9], 0x51);
    assert!(unknown(&mut decoder, &process, WORLD, 0x51), "a rank that the old group has not");
}

#[test]
fn leaving_ranks_out_lists_the_others() {
    let (mut decoder, process) = with_group(0, &[0, 1], 0x51);
    let rest = Recorded::new([0x50, 2, 0x99, 0x99]).ints(&[2, 3]);
    decoder.enter(function("MPI_Group_excl"), &rest.raw(), &process);
    decoder.exit(function("MPI_Group_excl"), &rest.raw(), 0, Some(0x52), &process);
    let create = |decoder: &mut MpiDecoder, group| {
        decoder.enter(function("MPI_Comm_create"), &Recorded::new([WORLD, group, 0x99]).raw(), &process).color
    };
    assert_eq!(create(&mut decoder, 0x51), create(&mut decoder, 0x52));
}

#[test]
fn ranges_list_ranks() {
    let (mut decoder, process) = with_group(0, &[3, 1], 0x51);
    let mut create = |ranges: &[i32], count| {
        let list = Recorded::new([0x50, count, 0x99, 0x99]).ints(ranges);
        decoder.enter(function("MPI_Group_range_incl"), &list.raw(), &process);
        decoder.exit(function("MPI_Group_range_incl"), &list.raw(), 0, Some(0x52), &process);
        let call = |group| Recorded::new([WORLD, group, 0x99]);
        let color = |decoded: Decoded| (decoded.lineage == Lineage::Colour).then_some(decoded.color);
        let listed = color(decoder.enter(function("MPI_Comm_create"), &call(0x51).raw(), &process));
        (listed, color(decoder.enter(function("MPI_Comm_create"), &call(0x52).raw(), &process)))
    };
    for same in [[3, 1, -2], [3, 0, -2]] {
        let (listed, ranged) = create(&same, 1);
        assert_eq!(listed, ranged, "{same:?}");
    }
    let (listed, ranged) = create(&[3, 3, 1, 1, 1, 1], 2);
    assert_eq!(listed, ranged);
    for (bad, count) in [([0, 9, 1], 1), ([0, 1, 0], 1), ([0, 1, 1], 2), ([i32::MIN, i32::MAX, 1], 1)] {
        assert_eq!(create(&bad, count).1, None, "{bad:?}");
    }
}

#[test]
fn intercommunicators() {
    let process = Process::member(1, 4);
    for (symbol, args) in [
        ("MPI_Intercomm_create", vec![WORLD, 0x99]),
        ("MPI_Comm_spawn", vec![0, WORLD, 0x99]),
        ("MPI_Comm_accept", vec![0, WORLD, 0x99]),
    ] {
        let decoded = decode(symbol, &Recorded::new(args), &process);
        assert!(decoded.new_inter && decoded.lineage == Lineage::Unknown, "{symbol}");
        assert_eq!(decoded.root, (symbol != "MPI_Intercomm_create").then_some(0), "{symbol}");
    }
    let merge = decode("MPI_Intercomm_merge", &Recorded::new([WORLD, 0x99]), &process.inter());
    assert_eq!((merge.new_inter, merge.lineage), (false, Lineage::Colour));
}

#[test]
fn grids_and_their_parts() {
    let mut decoder = MpiDecoder::new(MPICH);
    let parent = Process::member(4, 8);
    let cart = Recorded::new([WORLD, 2, 0x100, 0, 0x99]).ints(&[2, 3]);
    let decoded = decoder.enter(function("MPI_Cart_create"), &cart.raw(), &parent);
    assert_eq!((decoded.new_size, decoded.new_rank), (Some(6), Some(4)));
    let outside = decoder.enter(function("MPI_Cart_create"), &cart.raw(), &Process::member(7, 8));
    assert_eq!(outside.new_rank, None, "the grid has no place for it");
    let reordered = Recorded::new([WORLD, 2, 0x100, 1, 0x99]).ints(&[2, 3]);
    assert_eq!(decoder.enter(function("MPI_Cart_create"), &reordered.raw(), &parent).new_rank, None);

    let grid = 0x8400_0001;
    decoder.exit(function("MPI_Cart_create"), &cart.raw(), 0, Some(grid), &parent);
    let member = Process::member(4, 6);
    let row = Recorded::new([grid, 0x100, 0x99]).ints(&[0, 1]);
    let decoded = decoder.enter(function("MPI_Cart_sub"), &row.raw(), &member);
    assert_eq!((decoded.color, decoded.new_size, decoded.new_rank), (Some(1), Some(3), Some(1)));
    decoder.exit(function("MPI_Cart_sub"), &row.raw(), 0, Some(0x8400_0002), &member);
    let one = Recorded::new([0x8400_0002, 0x100, 0x99]).ints(&[0]);
    let decoded = decoder.enter(function("MPI_Cart_sub"), &one.raw(), &Process::member(1, 3));
    assert_eq!((decoded.color, decoded.new_size, decoded.new_rank), (Some(1), Some(1), Some(0)));

    // A copy is a grid, too; a handle that comes to mean something else is none.
    decoder.exit(function("MPI_Comm_dup"), &Recorded::new([grid, 0x99]).raw(), 0, Some(0x8400_0003), &member);
    let part = Recorded::new([0x8400_0003, 0x100, 0x99]).ints(&[0, 1]);
    assert_eq!(decoder.enter(function("MPI_Cart_sub"), &part.raw(), &member).color, Some(1));
    decoder.exit(function("MPI_Comm_split"), &Recorded::new([WORLD, 0, 0, 0x99]).raw(), 0, Some(0x8400_0003), &member);
    let unknown = decoder.enter(function("MPI_Cart_sub"), &part.raw(), &member);
    assert_eq!((unknown.color, unknown.lineage), (None, Lineage::Unknown));
}

#[test]
fn other_topologies() {
    let process = Process::member(1, 4);
    let graph = decode("MPI_Graph_create", &Recorded::new([WORLD, 3, 0, 0x99]), &process);
    assert_eq!((graph.new_size, graph.new_rank), (Some(3), Some(1)));
    let adjacent = decode("MPI_Dist_graph_create_adjacent", &Recorded::new([WORLD, 0, 0x99]), &process);
    assert_eq!((adjacent.new_size, adjacent.new_rank), (Some(4), Some(1)));
}

#[test]
fn a_persistent_operation_is_issued_by_its_start() {
    for abi in [MPICH, STANDARD] {
        let (int, world, request) = if abi == MPICH { (INT, WORLD, 0xac00_0001) } else { (0x209, 0x101, 0x5555_0001) };
        let mut decoder = MpiDecoder::new(abi);
        let process = Process::member(0, 4);
        let handles = |values: &[u64]| {
            let recorded = Recorded::new([values.len() as u64, 0x500]);
            if abi == MPICH { recorded.handles32(values) } else { recorded.longs(values) }
        };
        let init = Recorded::new([5, int, 2, world, 0x500]);
        decoder.exit(function("MPI_Bcast_init"), &init.raw(), 0, Some(request), &process);
        decoder.exit(function("MPI_Bcast_init_c"), &init.raw(), 0, Some(request + 1), &process);
        decoder.exit(function("MPI_Bcast_init"), &init.raw(), 13, Some(request + 2), &process);

        let all = handles(&[request + 1, 0xdead, request, request + 2]);
        let started = decoder.started(function("MPI_Startall"), &all.raw(), &process);
        let symbols: Vec<&str> = started.iter().map(|started| started.function.symbol).collect();
        assert_eq!(symbols, ["MPI_Bcast_init_c", "MPI_Bcast_init"], "in order; others are not ours");
        assert_eq!(started[0].comm, world);
        assert_eq!(started[0].decoded.count, Some(5));
        assert_eq!((started[0].decoded.dtype, started[0].decoded.root), (DType::Basic(Basic::I32), Some(2)));

        let one = if abi == MPICH {
            Recorded::new([0x500]).handles32(&[request, 0xdead])
        } else {
            Recorded::new([0x500]).longs(&[request, 0xdead])
        };
        assert_eq!(decoder.started(function("MPI_Start"), &one.raw(), &process).len(), 1);
        assert_eq!(decoder.started(function("MPI_Wait"), &one.raw(), &process), vec![]);
        decoder.enter(function("MPI_Request_free"), &one.raw(), &process);
        assert_eq!(decoder.started(function("MPI_Start"), &one.raw(), &process), vec![]);
    }
}

#[test]
fn waits_name_their_requests() {
    let decoder = MpiDecoder::new(MPICH);
    let one = Recorded::new([0x500]).handles32(&[0xac00_0001, 0xdead]);
    assert_eq!(decoder.requests(function("MPI_Wait"), &one.raw()), [0xac00_0001]);
    let all = Recorded::new([2, 0x500]).handles32(&[0xac00_0001, 0xac00_0002, 0xdead]);
    assert_eq!(decoder.requests(function("MPI_Waitall"), &all.raw()), [0xac00_0001, 0xac00_0002]);
    let cut = Recorded::new([9, 0x500]).handles32(&[0xac00_0001]);
    assert_eq!(decoder.requests(function("MPI_Waitall"), &cut.raw()), [0xac00_0001], "as far as recorded");
    let negative = Recorded::new([-1_i64 as u64, 0x500]).handles32(&[0xac00_0001]);
    assert_eq!(decoder.requests(function("MPI_Waitall"), &negative.raw()), [0xac00_0001]);
    assert!(decoder.requests(function("MPI_Barrier"), &Recorded::new([WORLD]).raw()).is_empty());
}
