//! Raw values in, what they say out, for each operation.

use proptest::prelude::{any, prop, proptest};
use rankdiff_trace::{Basic, CommIdentity, DType, RedOp, Reduction};

use super::FamilyDecoder;
use crate::decode::{Context, Decoded, Lineage, RawCall};
use crate::registry::{LIBRARIES, library};
use crate::spec::Function;

#[derive(Default)]
struct Process {
    size: Option<u32>,
    rank: Option<u32>,
}

impl Context for Process {
    fn comm_size(&self) -> Option<u32> {
        self.size
    }
    fn comm_rank(&self) -> Option<u32> {
        self.rank
    }
    fn comm_is_inter(&self) -> bool {
        false
    }
    fn symbol_at(&self, _: u64) -> Option<String> {
        None
    }
}

fn function(symbol: &str) -> &'static Function {
    let mut all = LIBRARIES.iter().flat_map(|library| library.functions);
    all.find(|function| function.symbol == symbol).expect("a known function")
}

fn decode(symbol: &str, args: &[u64], regions: [&[u8]; 2], process: &Process) -> Decoded {
    let mut decoder = FamilyDecoder::boxed("nccl");
    decoder.enter(function(symbol), &RawCall { args, regions, stack_unreadable: false }, process)
}

fn plain(symbol: &str, args: &[u64]) -> Decoded {
    decode(symbol, args, [&[], &[]], &Process::default())
}

const F32: DType = DType::Basic(Basic::F32);

#[test]
fn reductions() {
    for symbol in ["ncclAllReduce", "ncclAllReduceConfig", "ncclReduceScatter", "ncclAllReduceWithBias"] {
        let decoded = plain(symbol, &[0x10, 0x20, 4096, 7, 2, 0xc0, 0x5]);
        let expected = Decoded {
            count: Some(4096),
            dtype: F32,
            redop: RedOp::Predefined(Reduction::Max),
            stream: 5,
            ..Decoded::default()
        };
        assert_eq!(decoded, expected, "{symbol}");
    }
    let reduce = plain("ncclReduce", &[0x10, 0x10, 1, 9, 5, 3, 0xc0, 0]);
    assert_eq!((reduce.root, reduce.redop, reduce.dtype), (Some(3), RedOp::Dynamic, DType::Basic(Basic::Bf16)));
    assert!(reduce.in_place);
}

#[test]
fn numbers_of_types_and_reductions() {
    let dtype = |number: u64| plain("ncclAllGather", &[0, 0, 1, number, 0, 0]).dtype;
    let names = ["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"];
    for (number, name) in names.into_iter().enumerate() {
        assert_eq!(dtype(number as u64), DType::Basic(Basic::from_name(name).expect("a basic type")));
    }
    assert_eq!(dtype(12), DType::Raw(12));
    // The upper half of an enumeration's register is undefined.
    assert_eq!(dtype(0xdead_beef_0000_0007), F32);
    let redop = |number: u64| plain("ncclAllReduce", &[0, 0, 1, 7, number, 0, 0]).redop;
    for (number, name) in ["sum", "prod", "max", "min", "avg"].into_iter().enumerate() {
        assert_eq!(redop(number as u64), RedOp::Predefined(Reduction::from_name(name).expect("a reduction")));
    }
    assert_eq!([redop(5), redop(17)], [RedOp::Dynamic; 2]);
}

#[test]
fn rooted_and_paired() {
    assert_eq!(plain("ncclBcast", &[0x10, 0x10, 9, 7, 2, 0xc0, 0]).root, Some(2));
    assert_eq!(plain("ncclGather", &[0x10, 0x20, 9, 7, 2, 0xc0, 0]).root, Some(2));
    let send = plain("ncclSend", &[0x10, 9, 7, 3, 0xc0, 6]);
    assert_eq!((send.peer, send.count, send.stream, send.root, send.tag), (Some(3), Some(9), 6, None, None));
    assert_eq!(plain("ncclRecv", &[0x10, 9, 7, 1, 0xc0, 6]).peer, Some(1));
    let wrong = plain("ncclBroadcast", &[0x10, 0x20, 9, 7, u64::MAX, 0xc0, 0]);
    assert!(wrong.unreadable && wrong.root.is_none(), "no rank is negative");
}

#[test]
fn vectors_are_as_long_as_the_communicator() {
    let bytes = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let (sends, recvs) = (bytes(&[1, 2, 3, 99]), bytes(&[4, 5, 6, 99]));
    let args = [0x10, 0x100, 0x20, 0x200, 7, 0xc0, 5];
    let three = Process { size: Some(3), rank: Some(0) };
    for symbol in ["ncclAllToAllv", "mcclAllToAlld"] {
        let decoded = decode(symbol, &args, [&sends, &recvs], &three);
        assert_eq!((decoded.sends, decoded.recvs, decoded.vectors_cut), (vec![1, 2, 3], vec![4, 5, 6], false));
        for process in [Process { size: Some(5), rank: None }, Process::default()] {
            let decoded = decode(symbol, &args, [&sends, &recvs], &process);
            assert!(decoded.vectors_cut && decoded.sends.is_empty() && decoded.recvs.is_empty());
        }
    }
}

#[test]
fn identities_are_the_whole_id() {
    let id = [7_u8; 128];
    let mut other = id;
    other[127] = 8;
    let init = |id: &[u8]| decode("ncclCommInitRank", &[0x99, 4, 0, 2], [id, &[]], &Process::default());
    let decoded = init(&id);
    assert_eq!((decoded.new_size, decoded.new_rank), (Some(4), Some(2)));
    assert_eq!(decoded.new_identity, CommIdentity::root("nccl", &id));
    assert_ne!(init(&other).new_identity, decoded.new_identity);
    let scalable = decode("ncclCommInitRankScalable", &[0x99, 4, 2, 0x500], [&id, &[]], &Process::default());
    assert_eq!(scalable, decoded);
    let unread = init(&[]);
    assert!(unread.unreadable && !unread.new_identity.is_known() && unread.lineage == Lineage::Unknown);
    let all = plain("ncclCommInitAll", &[0x99, 8]);
    assert!(!all.unreadable && all.lineage == Lineage::Unknown && all.new_size == Some(8));
}

#[test]
fn communicators_from_communicators() {
    let split = plain("ncclCommSplit", &[0xc0, 3, 0xffff_fffe, 0x99]);
    assert_eq!((split.color, split.key, split.lineage), (Some(3), Some(-2), Lineage::Colour));
    assert_eq!(plain("ncclCommSplit", &[0xc0, 0xffff_ffff, 0, 0x99]).color, None, "takes no part");

    let process = Process { size: Some(8), rank: Some(5) };
    let excluded: Vec<u8> = [1_u32, 6, 2].iter().flat_map(|rank| rank.to_le_bytes()).collect();
    let shrunk = decode("ncclCommShrink", &[0xc0, 0x10, 3, 0x99], [&excluded, &[]], &process);
    assert_eq!((shrunk.new_size, shrunk.new_rank), (Some(5), Some(3)));

    let old = decode("ncclCommGrow", &[0xc0, 12, 0xffff_ffff, 0x99], [&[], &[]], &process);
    assert_eq!((old.new_size, old.new_rank, old.lineage), (Some(12), Some(5), Lineage::Unknown));
    let new = decode("ncclCommGrow", &[0, 12, 9, 0x99], [&[], &[]], &Process::default());
    assert_eq!((new.new_size, new.new_rank), (Some(12), Some(9)));
}

#[test]
fn what_a_reduce_has_on_the_stack_may_be_missing() {
    let raw = RawCall { args: &[0x10, 0x20, 4, 7, 0, 3, 0, 0], regions: [&[], &[]], stack_unreadable: true };
    let decoded = FamilyDecoder::boxed("nccl").enter(function("ncclReduce"), &raw, &Process::default());
    assert!(!decoded.unreadable, "communicator and stream are no part of the signature");
    assert_eq!((decoded.root, decoded.stream), (Some(3), 0));
    let decoded = FamilyDecoder::boxed("rccl").enter(
        function("ncclAllToAllv"),
        &RawCall { args: &[0; 7], regions: [&[], &[]], stack_unreadable: true },
        &Process::default(),
    );
    assert!(decoded.unreadable, "its type is on the stack");
}

#[test]
fn only_the_null_handle_is_no_communicator() {
    let decoder = (library("nccl").expect("known").decoder)(crate::nccl_family::abi(&|_| true));
    assert!(decoder.is_null_comm(0, &Process::default()) && !decoder.is_null_comm(1, &Process::default()));
    assert_eq!(decoder.predefined(1, &Process::default()), None);
}

proptest! {
    #[test]
    fn no_raw_value_panics(
        args in prop::collection::vec(any::<u64>(), 0..9),
        first in prop::collection::vec(any::<u8>(), 0..520),
        second in prop::collection::vec(any::<u8>(), 0..520),
        stack_unreadable in any::<bool>(),
        size in any::<Option<u32>>(),
        rank in any::<Option<u32>>(),
    ) {
        let raw = RawCall { args: &args, regions: [&first, &second], stack_unreadable };
        let process = Process { size, rank };
        for library in LIBRARIES.iter().filter(|library| library.name != "mpi") {
            let mut decoder = (library.decoder)((library.abi)(&|_| true));
            for function in library.functions {
                let decoded = decoder.enter(function, &raw, &process);
                assert!(decoded.sends.len() <= 65 && decoded.recvs.len() <= 65);
                decoder.exit(function, &raw, 0, Some(args.first().copied().unwrap_or(0)), &process);
            }
        }
    }
}
