//! Walks the tables: consistent within themselves, and equal to the probe table row by row.

use std::collections::BTreeSet;

use rankdiff_trace::{Level, Op, OpKind};

use super::{LIBRARIES, identify, library};
use crate::spec::{Function, Library, Pass, Role};

/// The reference: facts about each library's functions, gathered from headers and binaries.
const PROBE_TABLE: &str = include_str!("../../probe-table.csv");

const P2P: &str = "point-to-point of MPI is not recorded: its rate is far above that of collectives";
const HANDLE: &str = "keyed by a file or window, which is no communicator";
const ONE_SIDED: &str = "one-sided: no operation that members' streams could be compared by";

/// Rows of supported libraries that are deliberately not in a table.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("nccl", "ncclPutSignal", ONE_SIDED),
    ("nccl", "ncclSignal", ONE_SIDED),
    ("nccl", "ncclWaitSignal", ONE_SIDED),
    ("nccl", "ncclGetUniqueId", "the id is read where a communicator is made from it"),
    ("nccl", "ncclCommSuspend", "releases memory, changes nothing that members compare"),
    ("nccl", "ncclCommResume", "as suspend"),
    ("nccl", "ncclRedOpCreatePreMulSum", "a handle of 5 or more is dynamic, whoever made it: nothing to learn"),
    ("nccl", "ncclRedOpDestroy", "as its creation"),
    ("nccl", "ncclCommGetAsyncError", "polled at a high rate by watchdogs"),
    ("rccl", "mscclRunAlgo", "what it transfers stands in a file, not in its arguments"),
    ("rccl", "ncclGetUniqueId", "the id is read where a communicator is made from it"),
    ("mpi", "MPI_Session_init", "a session has no communicator of its own"),
    ("mpi", "MPI_Comm_set_name", "names are for people; identity never depends on them"),
    ("mpi", "MPI_Waitany", "which request ended it does not stand in its arguments"),
    ("mpi", "MPI_Test", "polled at a high rate"),
    ("mpi", "MPI_Type_commit", "a type's constructor says all that its commit could"),
    ("mpi", "MPI_Op_create", "a handle that is not predefined is the program's own: nothing to learn"),
    ("mpi", "MPI_Win_fence", HANDLE),
    ("mpi", "MPI_File_write_all", HANDLE),
    ("mpi", "MPI_File_read_all", HANDLE),
];

struct Row {
    cells: Vec<String>,
}

impl Row {
    const LIBRARY: usize = 0;
    const SYMBOL: usize = 2;
    const OP: usize = 3;
    const SEND_BUFFER: usize = 4;
    const RECV_BUFFER: usize = 5;
    const COUNT: usize = 6;
    const DTYPE: usize = 7;
    const REDUCTION: usize = 8;
    const ROOT_OR_PEER: usize = 9;
    const COMM: usize = 10;
    const STREAM: usize = 11;
    const NOTES: usize = 12;

    fn get(&self, column: usize) -> &str {
        &self.cells[column]
    }

    /// The index in a cell such as `3`, `1[]` or `out:*0`.
    fn index(&self, column: usize) -> Option<u8> {
        self.get(column).trim_start_matches("out:*").trim_end_matches("[]").parse().ok()
    }
}

/// Lines of comma-separated cells, quoted where they hold a comma.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in PROBE_TABLE.lines().skip(1) {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for character in line.chars() {
            match character {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                other => cells.last_mut().expect("never empty").push(other),
            }
        }
        assert_eq!(cells.len(), 14, "{line}");
        rows.push(Row { cells });
    }
    assert!(rows.len() > 500);
    rows
}

fn is_p2p(row: &Row) -> bool {
    row.get(Row::LIBRARY) == "mpi" && ["send", "recv", "sendrecv"].contains(&row.get(Row::OP))
}

fn find(library: &Library, symbol: &str) -> Option<&'static Function> {
    library.functions.iter().find(|function| function.symbol == symbol)
}

#[test]
fn every_row_of_a_supported_library_is_in_its_table_or_left_out_for_a_reason() {
    let mut left_out: BTreeSet<(&str, &str)> = LEFT_OUT.iter().map(|&(library, symbol, _)| (library, symbol)).collect();
    assert_eq!(left_out.len(), LEFT_OUT.len());
    assert!(LEFT_OUT.iter().all(|(_, _, reason)| !reason.is_empty()));
    let mut compared = 0;
    for row in rows() {
        let Some(library) = library(row.get(Row::LIBRARY)) else { continue };
        let symbol = row.get(Row::SYMBOL);
        let listed = left_out.iter().find(|&&(of, name)| of == library.name && name == symbol).copied();
        match (find(library, symbol), listed) {
            (Some(_), Some(_)) => panic!("{symbol} is in the table and left out"),
            (Some(function), None) => {
                compare(library, function, &row);
                compared += 1;
            }
            (None, Some(entry)) => {
                left_out.remove(&entry);
            }
            (None, None) => assert!(is_p2p(&row), "{} {symbol} is missing, and not because {P2P}", library.name),
        }
    }
    assert!(left_out.is_empty(), "no rows for {left_out:?}");
    assert!(compared > 230, "{compared}");
}

/// Rows of c10d over Gloo that are deliberately not in its table.
const LEFT_OUT_OF_GLOO: &[(&str, &str)] = &[
    ("allreduce_sparse", "sparse tensors have no number of elements that members compare"),
    ("5split", "the group that it makes passes the constructor"),
];

#[test]
fn every_method_of_gloos_process_groups_is_in_its_table_or_left_out_for_a_reason() {
    let gloo = library("c10d").expect("by its name");
    let mut compared = 0;
    let mut left_out = 0;
    for row in rows().iter().filter(|row| row.get(Row::LIBRARY) == "c10d-gloo") {
        let symbol = row.get(Row::SYMBOL);
        match find(gloo, symbol) {
            Some(function) => {
                // With numbers of rows or without: one method either way.
                let is_all_to_all = function.op == Op::AllToAllV && row.get(Row::OP) == "all_to_all";
                assert!(is_all_to_all || ops_of(row.get(Row::OP)).contains(&function.op), "{symbol}: {}", function.op);
                compared += 1;
            }
            None if LEFT_OUT_OF_GLOO.iter().any(|(name, _)| symbol.contains(name)) => left_out += 1,
            None => panic!("{symbol} ({}) is missing", row.get(Row::OP)),
        }
    }
    assert_eq!(left_out, LEFT_OUT_OF_GLOO.len());
    assert!(compared > 20, "{compared}");
}

fn compare(library: &Library, function: &Function, row: &Row) {
    let symbol = function.symbol;
    assert!(ops_of(row.get(Row::OP)).contains(&function.op), "{symbol}: {} is no {}", function.op, row.get(Row::OP));
    let index = |role: Role| function.arg(role).map(|arg| arg.index);
    let same = |column: usize, role: Role| {
        if let Some(expected) = row.index(column) {
            assert_eq!(index(role), Some(expected), "{} {symbol}: {role:?}", library.name);
        }
    };
    let same_if_recorded = |column: usize, role: Role| {
        if let (Some(expected), Some(found)) = (row.index(column), index(role)) {
            assert_eq!(found, expected, "{} {symbol}: {role:?}", library.name);
        }
    };
    // Of the buffers, only those are recorded that can hold an in-place mark.
    same_if_recorded(Row::SEND_BUFFER, Role::SendBuffer);
    same_if_recorded(Row::RECV_BUFFER, Role::RecvBuffer);
    let vectors_left_out = matches!(function.op, Op::AllToAllW | Op::NeighborAllToAllW | Op::NeighborAllToAllV);
    if !vectors_left_out {
        same(Row::COUNT, count_role(function));
    }
    if !matches!(function.op, Op::AllToAllW | Op::NeighborAllToAllW) {
        let scatter = matches!(function.op, Op::Scatter | Op::ScatterV) && function.arg(Role::RecvDType).is_some();
        same(Row::DTYPE, if scatter { Role::RecvDType } else { Role::DType });
    }
    same(Row::REDUCTION, Role::Reduction);
    same(Row::ROOT_OR_PEER, if function.op.kind() == OpKind::PointToPoint { Role::Peer } else { Role::Root });
    let made = row.get(Row::COMM).starts_with("out:");
    same(Row::COMM, if made { Role::NewComm } else { Role::Comm });
    same(Row::STREAM, Role::Stream);
    if library.name == "mpi" {
        compare_names(function, row.get(Row::NOTES));
    }
}

fn count_role(function: &Function) -> Role {
    match function.op {
        Op::AllToAllV => Role::SendCounts,
        Op::ReduceScatterV => Role::RecvCounts,
        Op::Scatter | Op::ScatterV if function.arg(Role::RecvCount).is_some() => Role::RecvCount,
        Op::CommInit => Role::MemberCount,
        Op::Wait => Role::Extent,
        _ => Role::Count,
    }
}

/// The notes on MPI's functions begin with their parameters' names: every recorded argument must be the right one.
fn compare_names(function: &Function, notes: &str) {
    let Some((list, _)) = notes.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        panic!("{}: no parameters in '{notes}'", function.symbol)
    };
    let names: Vec<&str> = list.split(',').collect();
    for arg in function.args {
        let name = names.get(usize::from(arg.index)).copied().unwrap_or("nothing");
        let expected: &[&str] = match arg.role {
            Role::SendBuffer => &["sendbuf"],
            Role::RecvBuffer => &["recvbuf"],
            Role::Count => &["count", "sendcount", "recvcount"],
            Role::DType => &["datatype", "sendtype"],
            Role::RecvCount => &["recvcount"],
            Role::RecvDType => &["recvtype"],
            Role::SendCounts => &["sendcounts"],
            Role::RecvCounts => &["recvcounts"],
            Role::Reduction => &["op"],
            Role::Root => &["root"],
            Role::Comm => &["comm", "comm_old", "local_comm", "intercomm"],
            Role::NewComm => &["newcomm", "comm_cart", "comm_graph", "comm_dist_graph", "newintercomm", "newintracomm"],
            Role::Request => &["request"],
            Role::Requests => &["array_of_requests"],
            Role::Color => &["color"],
            Role::Key => &["key"],
            Role::SplitType => &["split_type"],
            Role::Dims => &["dims"],
            Role::RemainingDims => &["remain_dims"],
            Role::Reorder => &["reorder"],
            Role::Extent => &["count", "ndims"],
            Role::MemberCount => &["nnodes"],
            Role::CommSize => &["size"],
            Role::CommRank => &["rank"],
            Role::Code => &["errorcode"],
            Role::Group => &["group"],
            Role::Tag => &["tag"],
            other => panic!("{}: no name for {other:?}", function.symbol),
        };
        assert!(expected.contains(&name), "{}: {:?} is '{name}'", function.symbol, arg.role);
    }
}

fn ops_of(name: &str) -> &'static [Op] {
    match name {
        "all_reduce" => &[Op::AllReduce],
        "broadcast" => &[Op::Broadcast],
        "reduce" => &[Op::Reduce],
        "all_gather" => &[Op::AllGather],
        "all_gather_v" => &[Op::AllGatherV],
        "reduce_scatter" => &[Op::ReduceScatter],
        "reduce_scatter_v" => &[Op::ReduceScatterV],
        "gather" => &[Op::Gather],
        "gather_v" => &[Op::GatherV],
        "scatter" => &[Op::Scatter],
        "scatter_v" => &[Op::ScatterV],
        "all_to_all" => &[Op::AllToAll],
        "all_to_all_v" => &[Op::AllToAllV],
        "all_to_all_w" => &[Op::AllToAllW],
        "neighbor_all_gather" => &[Op::NeighborAllGather],
        "neighbor_all_gather_v" => &[Op::NeighborAllGatherV],
        "neighbor_all_to_all" => &[Op::NeighborAllToAll],
        "neighbor_all_to_all_v" => &[Op::NeighborAllToAllV],
        "neighbor_all_to_all_w" => &[Op::NeighborAllToAllW],
        "scan" => &[Op::Scan],
        "exscan" => &[Op::Exscan],
        "barrier" => &[Op::Barrier],
        "send" => &[Op::Send],
        "recv" => &[Op::Recv],
        "group_start" => &[Op::GroupStart],
        "group_end" => &[Op::GroupEnd],
        "comm_init" | "comm_init_all" => &[Op::CommInit],
        "comm_split" => &[Op::CommSplit],
        "comm_dup" => &[Op::CommDup],
        "comm_create" => &[Op::CommCreate, Op::CommInit, Op::TopologyCreate, Op::IntercommCreate, Op::IntercommMerge],
        "comm_shrink" => &[Op::CommShrink],
        "comm_grow" => &[Op::CommGrow],
        "comm_finalize" => &[Op::CommFinalize],
        "comm_destroy" => &[Op::CommFree],
        "comm_abort" | "comm_revoke" => &[Op::CommAbort],
        "init" => &[Op::Init],
        "finalize" => &[Op::Finalize],
        "abort" => &[Op::Abort],
        "wait" | "start" | "comm_query_rank" | "comm_query_size" => &[Op::Wait],
        "win_create" => &[Op::WindowCollective],
        "file_open" => &[Op::FileCollective],
        other => panic!("no operation is called '{other}' here"),
    }
}

#[test]
fn names_are_unique_and_libraries_told_apart() {
    let names: BTreeSet<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    assert_eq!(names.len(), LIBRARIES.len());
    for &library in LIBRARIES {
        assert!(std::ptr::eq(super::library(library.name).expect("by its name"), library));
        assert!(!library.file_patterns.is_empty() && !library.marker_symbols.is_empty(), "{}", library.name);
        let symbols: BTreeSet<&str> = library.functions.iter().map(|function| function.symbol).collect();
        assert_eq!(symbols.len(), library.functions.len(), "{}", library.name);
        let abi = (library.abi)(&|_| false);
        assert!([4, 8].contains(&abi.handle_bytes));
        // A file that defines a marker of a library and all of its functions is that library and no other one.
        for &marker in library.marker_symbols {
            let found = identify(&|symbol| symbol == marker || symbols.contains(symbol));
            assert_eq!(found.map(|found| found.name), Some(library.name), "{marker}");
        }
    }
    assert!(super::library("none").is_none());
    assert!(identify(&|_| false).is_none());
}

#[test]
fn every_function_is_consistent_with_its_operation() {
    for library in LIBRARIES {
        for function in library.functions {
            check_shape(function);
            // What a framework's methods are given lies behind pointers; its own tests look at that.
            if library.level == Level::Framework {
                continue;
            }
            check_roles(function);
        }
    }
}

fn check_shape(function: &Function) {
    let symbol = function.symbol;
    assert!(function.args.len() <= 8, "{symbol}");
    let regions: Vec<_> = function.regions().collect();
    assert!(regions.len() <= 2, "{symbol}");
    assert!(regions.len() <= 1 || !regions.iter().any(|arg| arg.pass.is_short_region()), "{symbol}");
    let mut indexes = BTreeSet::new();
    for arg in function.args {
        assert!(arg.index <= 13, "{symbol}: {:?} lies beyond the stack slots that are read", arg.role);
        let in_place_by_design = function.op == Op::Broadcast && arg.role == Role::RecvBuffer;
        if arg.pass != Pass::Bytes128 && !in_place_by_design {
            assert!(indexes.insert(arg.index), "{symbol}: two arguments at {}", arg.index);
        }
    }
    if function.out().is_some() {
        assert!(function.traits.returns, "{symbol}: what it writes is read at its return");
    }
}

fn check_roles(function: &Function) {
    let symbol = function.symbol;
    let has = |role: Role| function.arg(role).is_some();
    let traits = function.traits;
    let kind = function.op.kind();
    assert_eq!(has(Role::Reduction), function.op.has_reduction(), "{symbol}");
    if function.op.has_root() {
        assert!(has(Role::Root), "{symbol}");
    }
    match kind {
        OpKind::Collective | OpKind::PointToPoint => {
            assert!(has(Role::Comm), "{symbol}");
            let bare = matches!(
                function.op,
                Op::Barrier | Op::FileCollective | Op::WindowCollective | Op::AllToAllW | Op::NeighborAllToAllW
            );
            assert_eq!(has(Role::DType), !bare, "{symbol}");
            if bare || function.op == Op::NeighborAllToAllV {
                assert!(!has(Role::Count), "{symbol}");
            } else {
                let counts = [Role::Count, Role::RecvCount, Role::SendCounts, Role::RecvCounts];
                assert!(counts.into_iter().any(has), "{symbol}");
            }
            assert_eq!(has(Role::Peer), kind == OpKind::PointToPoint, "{symbol}");
            assert_eq!(has(Role::Request), traits.nonblocking || traits.persistent_init, "{symbol}");
        }
        OpKind::CommCreate => {
            assert!(has(Role::NewComm) && traits.returns, "{symbol}");
            assert_eq!(has(Role::Comm), function.op != Op::CommInit, "{symbol}");
        }
        OpKind::CommFree => assert!(has(Role::Comm), "{symbol}"),
        OpKind::Group => assert!(function.args.is_empty(), "{symbol}"),
        OpKind::Lifecycle => assert!(traits.returns, "{symbol}"),
        OpKind::Wait => assert!(traits.auxiliary || traits.starts || traits.returns, "{symbol}"),
    }
    assert!(!(traits.auxiliary || traits.starts) || kind == OpKind::Wait, "{symbol}");
    assert!(!traits.keeps_handle || kind == OpKind::CommFree, "{symbol}");
    assert!(!traits.out_at_group_end || kind == OpKind::CommCreate, "{symbol}");
    assert!(!traits.simulated || function.op == Op::GroupEnd, "{symbol}");
    assert!(!traits.calls_others || traits.returns, "{symbol}: only a return tells where its parts end");
    for role in [Role::NewComm, Role::NewHandle] {
        assert!(function.arg(role).is_none_or(|arg| arg.pass == Pass::HandleAt), "{symbol}");
    }
}
