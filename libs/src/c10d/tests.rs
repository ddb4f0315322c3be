use rankdiff_trace::{Basic, CommIdentity, DType, RedOp, Reduction};

use super::GLOO;
use super::functions::{FUNCTIONS, method};
use super::layout::at;
use crate::decode::{Context, Decoded, RawCall};
use crate::gathered::place;
use crate::spec::{Abi, Access, AccessKind, Binary, Field, Function, Role};

/// A build, as its code says.
struct Build {
    functions: &'static [(&'static str, &'static [Access])],
}

const fn access(kind: AccessKind, offset: u16, bytes: u8, argument: Option<u8>) -> Access {
    Access { kind, offset, bytes, argument }
}

impl Binary for Build {
    fn defines(&self, symbol: &str) -> bool {
        self.functions.iter().any(|(name, _)| symbol.contains(name))
    }
    fn accesses(&self, symbol: &str) -> Vec<Access> {
        let found = self.functions.iter().find(|(name, _)| symbol.contains(name));
        found.map_or(Vec::new(), |(_, accesses)| accesses.to_vec())
    }
}

const LOAD: AccessKind = AccessKind::Load;
const STORE: AccessKind = AccessKind::Store;

const OLD: Build = Build {
    functions: &[
        ("19ProcessGroupWrapperC1EN3c1013intrusive_ptrINS_12ProcessGroupE", &[]),
        ("12ProcessGroupC2Eii", &[access(STORE, 24, 4, Some(1)), access(STORE, 28, 4, Some(2))]),
        ("7BackendC2Eii", &[access(STORE, 88, 4, Some(1)), access(STORE, 92, 4, Some(2))]),
        ("12numel_customEv", &[access(LOAD, 192, 8, None), access(LOAD, 168, 8, None)]),
        ("10is_complexE", &[access(LOAD, 0, 8, None), access(LOAD, 176, 2, None)]),
        ("7joinKeyE", &[access(LOAD, 40, 8, None), access(LOAD, 32, 8, None)]),
    ],
};

const NEW: Build = Build {
    functions: &[
        (
            "7BackendC2Eii",
            &[
                access(STORE, 16, 4, Some(1)),
                access(STORE, 20, 4, Some(2)),
                access(AccessKind::Address, 48, 0, None),
                access(STORE, 32, 8, None),
                access(AccessKind::Address, 80, 0, None),
                access(STORE, 64, 8, None),
            ],
        ),
        ("12numel_customEv", &[access(LOAD, 176, 8, None), access(LOAD, 152, 8, None)]),
        ("10is_complexE", &[access(LOAD, 160, 2, None)]),
        ("7joinKeyE", &[access(LOAD, 32, 8, None), access(LOAD, 24, 8, None)]),
    ],
};

const STRANGE: Build = Build {
    functions: &[
        ("7BackendC2Eii", &[access(STORE, 16, 8, Some(1))]),
        ("12numel_customEv", &[access(LOAD, 144, 8, None)]),
        ("10is_complexE", &[access(LOAD, 160, 2, None)]),
        ("7joinKeyE", &[access(LOAD, 32, 8, None), access(LOAD, 64, 8, None)]),
    ],
};

fn inspected(build: &Build) -> (Abi, usize) {
    let found = (GLOO.inspect)((GLOO.abi)(&|_| true), build);
    (found.abi, found.notes.len())
}

fn offsets(build: &Build) -> [Option<u16>; 8] {
    let (abi, _) = inspected(build);
    std::array::from_fn(|number| abi.offsets.get(number))
}

#[test]
fn layouts_are_read_off_the_code() {
    let some = |numbers: [u16; 8]| numbers.map(Some);
    let mut old = some([24, 0, 0, 168, 176, 24, 40, 32]);
    (old[at::NAME], old[at::DESC]) = (None, None);
    assert_eq!(offsets(&OLD), old);
    assert_eq!(offsets(&NEW), some([16, 32, 64, 152, 160, 16, 32, 24]));
    assert_eq!((inspected(&OLD).1, inspected(&NEW).1), (0, 0));
}

#[test]
fn what_does_not_fit_is_left_unknown_and_said() {
    assert_eq!(offsets(&STRANGE), [None; 8]);
    assert_eq!(inspected(&STRANGE).1, 2);
    assert_eq!(offsets(&Build { functions: &[] }), [None; 8]);
}

#[test]
fn fields_fit_for_every_method_and_layout() {
    for (build, function) in [&OLD, &NEW, &STRANGE].iter().flat_map(|build| FUNCTIONS.iter().map(move |f| (build, f))) {
        let (abi, _) = inspected(build);
        let fields = (GLOO.fields)(&abi, function);
        assert_eq!(place(&fields).len(), fields.len(), "{}", function.symbol);
        assert!(!method(function).is_empty() || function.made_in_place().is_some(), "{}", function.symbol);
        assert!(function.regions().next().is_none(), "{}", function.symbol);
        assert!(fields.iter().all(|field| field.steps <= 3 && field.index < 6), "{}", function.symbol);
        let names: std::collections::BTreeSet<&str> = fields.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), fields.len(), "{}", function.symbol);
    }
}

#[test]
fn no_return_is_probed() {
    // An exception that meets a return probe ends the process.
    for function in FUNCTIONS {
        assert!(!function.traits.returns && !function.traits.calls_others, "{}", function.symbol);
        assert!(function.out().is_none(), "{}", function.symbol);
    }
}

/// Symbols at made-up addresses.
struct Image;

impl Context for Image {
    fn comm_size(&self) -> Option<u32> {
        Some(4)
    }
    fn comm_rank(&self) -> Option<u32> {
        None
    }
    fn comm_is_inter(&self) -> bool {
        false
    }
    fn symbol_at(&self, address: u64) -> Option<String> {
        (address == 0x7000).then(|| "_ZTVN4c10d11PrefixStoreE".to_owned())
    }
}

fn function(name: &str) -> &'static Function {
    FUNCTIONS.iter().find(|function| method(function) == name).expect("a method")
}

/// Memory with these fields.
fn memory(fields: &[Field], values: &[(&str, &[u8])]) -> Vec<u8> {
    let mut memory = vec![0; 512];
    let places = place(fields);
    for (name, bytes) in values {
        let index = fields.iter().position(|field| field.name == *name).unwrap_or_else(|| panic!("no field {name}"));
        let from = usize::from(places[index]);
        memory[from..from + bytes.len()].copy_from_slice(bytes);
        memory[index / 8] |= 1 << (index % 8);
    }
    memory
}

fn decode(build: &Build, function: &Function, args: &[u64], values: &[(&str, &[u8])]) -> Decoded {
    let (abi, _) = inspected(build);
    let memory = memory(&(GLOO.fields)(&abi, function), values);
    let raw = RawCall { args, regions: [&memory, &[]], stack_unreadable: false };
    (GLOO.decoder)(abi).enter(function, &raw, &Image)
}

#[test]
fn an_all_reduce_says_what_it_carries_and_on_which_group() {
    let list = [0x1000_u64.to_le_bytes(), 0x1008_u64.to_le_bytes()].concat();
    let decoded = decode(
        &NEW,
        function("allreduce"),
        &[1],
        &[
            ("list", &list),
            ("numel", &15_u64.to_le_bytes()),
            ("dtype", &[7, 0]),
            ("reduction", &[4]),
            ("rank", &1_u32.to_le_bytes()),
            ("size", &2_u32.to_le_bytes()),
            ("name_length", &1_u64.to_le_bytes()),
            ("name", b"0junk"),
            ("desc_length", &10_u64.to_le_bytes()),
            ("desc", b"default_pg"),
        ],
    );
    assert!(!decoded.unreadable);
    assert_eq!((decoded.count, decoded.dtype), (Some(15), DType::Basic(Basic::F64)));
    assert_eq!(decoded.redop, RedOp::Predefined(Reduction::Max));
    let comm = decoded.comm.expect("a group");
    assert_eq!((comm.name.as_str(), comm.desc.as_str(), comm.rank, comm.size), ("0", "default_pg", Some(1), Some(2)));
    assert!(comm.is_world && comm.identity.is_known());
}

#[test]
fn a_list_too_long_and_memory_not_read_are_unknown() {
    let list = [0x1000_u64.to_le_bytes(), 0x1050_u64.to_le_bytes()].concat();
    let decoded = decode(&OLD, function("allreduce_coalesced"), &[1], &[("list", &list), ("numel", &[1])]);
    assert!(decoded.unreadable);
    assert_eq!((decoded.count, decoded.dtype, decoded.redop), (None, DType::None, RedOp::None));
    assert_eq!(decoded.comm, None, "an object that says nothing");
    let decoded = decode(&STRANGE, function("allreduce"), &[1], &[]);
    assert!(!decoded.unreadable, "this build's layout is unknown, not this call");
    assert_eq!(decoded.count, None);
}

#[test]
fn roots_and_coalesced_sums() {
    let two = [0x1000_u64.to_le_bytes(), 0x1010_u64.to_le_bytes()].concat();
    let sum = [("list", two.as_slice()), ("numel", &[3]), ("numel1", &[4]), ("dtype", &[6, 0]), ("reduction", &[0])];
    assert_eq!(decode(&OLD, function("allreduce_coalesced"), &[1], &sum).count, Some(7));
    let one = [0x1000_u64.to_le_bytes(), 0x1008_u64.to_le_bytes()].concat();
    let root = |root: i64| {
        let root = root.to_le_bytes();
        let values = [("list", one.as_slice()), ("numel", &[3]), ("dtype", &[6, 0]), ("root", &root)];
        let decoded = decode(&OLD, function("broadcast"), &[1], &values);
        (decoded.root, decoded.unreadable)
    };
    assert_eq!(root(3), (Some(3), false));
    assert_eq!(root(-1), (None, true));
}

#[test]
fn splits_are_elements_per_member() {
    let none = [0_u8; 16];
    let equal = [
        ("numel", [8].as_slice()),
        ("dtype", &[6, 0]),
        ("received", &[8]),
        ("send_list", &none),
        ("recv_list", &none),
        ("send_rows", &[0]),
        ("recv_rows", &[0]),
    ];
    let decoded = decode(&OLD, function("alltoall_base"), &[1], &equal);
    assert_eq!((decoded.sends, decoded.recvs), (vec![2; 4], vec![2; 4]));
    let rows: Vec<u8> = [1_u64, 0, 2, 1].iter().flat_map(|rows| rows.to_le_bytes()).collect();
    let four = [0x1000_u64.to_le_bytes(), 0x1020_u64.to_le_bytes()].concat();
    let mut uneven = equal;
    (uneven[3].1, uneven[5].1) = (&four, &rows);
    let decoded = decode(&OLD, function("alltoall_base"), &[1], &uneven);
    assert_eq!((decoded.sends, decoded.vectors_cut), (vec![2, 0, 4, 2], false));
    uneven[3].1 = &[0xff; 16];
    assert!(decode(&OLD, function("alltoall_base"), &[1], &uneven).sends.iter().all(|&sent| sent == 2));
}

#[test]
fn a_new_group_is_known_by_the_prefix_of_its_store() {
    let new = FUNCTIONS.iter().find(|function| function.made_in_place().is_some()).expect("the constructor");
    assert_eq!(new.slot(Role::MemberRank), Some(1));
    let class = 0x7010_u64.to_le_bytes();
    let made = |build, class: &[u8], first: &[u8], below: &[u8]| {
        let lengths = [first.len() as u64, below.len() as u64].map(u64::to_le_bytes);
        let values = [
            ("class", class),
            ("prefix_length", &lengths[0]),
            ("prefix", first),
            ("class_below", class),
            ("prefix_below_length", &lengths[1]),
            ("prefix_below", below),
        ];
        decode(build, new, &[1, 2, 4], &values)
    };
    let old = made(&OLD, &class, b"0", b"default_pg");
    assert_eq!((old.new_name.as_str(), old.new_rank, old.new_size), ("0", Some(2), Some(4)));
    assert!(!old.new_is_part && old.new_identity.is_known());
    let newer = made(&NEW, &class, b"cpu/", b"0/");
    assert_eq!((newer.new_name.as_str(), newer.new_identity), ("0", old.new_identity));
    let part = made(&OLD, &class, b"3", b"default_pg");
    assert!(part.new_is_part && part.new_identity != old.new_identity);
    let other_store = made(&OLD, &[1; 8], b"0", b"");
    assert_eq!((other_store.new_identity, other_store.new_name.as_str()), (CommIdentity::UNKNOWN, ""));
}

#[test]
fn a_name_given_again_means_another_group() {
    let new = FUNCTIONS.iter().find(|function| function.made_in_place().is_some()).expect("the constructor");
    let (abi, _) = inspected(&OLD);
    let class = 0x7010_u64.to_le_bytes();
    let values = [("class", class.as_slice()), ("prefix_length", &[1]), ("prefix", b"0")];
    let memory = memory(&(GLOO.fields)(&abi, new), &values);
    let raw = RawCall { args: &[1, 0, 2], regions: [&memory, &[]], stack_unreadable: false };
    let mut decoder = (GLOO.decoder)(abi);
    let first = decoder.enter(new, &raw, &Image).new_identity;
    assert_ne!(first, decoder.enter(new, &raw, &Image).new_identity);
}
