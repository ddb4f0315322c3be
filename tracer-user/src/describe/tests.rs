//! Descriptions of single functions, and rules that hold for every function of every library.

use rankdiff_common::probe::{Chain, MAX_ARGS, Region, SOURCE_NONE, counter, flag, handle, region};
use rankdiff_libs::registry::LIBRARIES;
use rankdiff_libs::spec::{Abi, Arg, Field, Function, Library, Offsets, Pass, Role, Traits};
use rankdiff_trace::{Level, Op};

use super::{chains, place, probe_desc};
use crate::prologue::{EntryPoint, ExitPoint, PointCost};

const NARROW: Abi = Abi { name: "narrow", handle_bytes: 4, offsets: Offsets::NONE };
const WIDE: Abi = Abi { name: "wide", handle_bytes: 8, offsets: Offsets::NONE };

fn any_library() -> &'static Library {
    LIBRARIES.iter().find(|library| library.level == Level::Library).expect("there is one")
}

fn function(op: Op, traits: Traits, args: &'static [Arg]) -> Function {
    Function { symbol: "f", op, args, traits }
}

const fn arg(role: Role, index: u8, pass: Pass) -> Arg {
    Arg { role, index, pass }
}

#[test]
fn the_seventh_parameter_is_the_first_slot_of_the_stack() {
    const ARGS: &[Arg] = &[
        arg(Role::Count, 2, Pass::U64),
        arg(Role::Comm, 5, Pass::Handle),
        arg(Role::Stream, 6, Pass::Pointer),
        arg(Role::Other, 13, Pass::Pointer),
        arg(Role::Other, 14, Pass::Pointer),
    ];
    let desc = probe_desc(any_library(), WIDE, &function(Op::AllReduce, Traits::default(), ARGS));
    assert_eq!(desc.args, [2, 5, 16, 23, SOURCE_NONE, SOURCE_NONE, SOURCE_NONE, SOURCE_NONE]);
    assert_eq!((desc.arg_count, desc.counter, desc.flags), (5, counter::COLLECTIVE, 0));
    assert_eq!((desc.comm, desc.comm_handle), (5, handle::VALUE64));
    let desc = probe_desc(any_library(), NARROW, &function(Op::AllReduce, Traits::default(), ARGS));
    assert_eq!(desc.comm_handle, handle::VALUE32);
}

#[test]
fn a_structure_by_value_takes_slots_and_no_register() {
    // init(comm *, int size, id by value, int rank)
    const ARGS: &[Arg] = &[
        arg(Role::NewComm, 0, Pass::HandleAt),
        arg(Role::MemberCount, 1, Pass::I32),
        arg(Role::UniqueId, 0, Pass::Bytes128),
        arg(Role::MemberRank, 2, Pass::I32),
    ];
    let traits = Traits { returns: true, out_at_group_end: true, ..Traits::default() };
    let desc = probe_desc(any_library(), WIDE, &function(Op::CommInit, traits, ARGS));
    assert_eq!(desc.args[..4], [0, 1, 16, 2]);
    assert_eq!(desc.regions[0], Region { source: 16, mode: region::SHORT_BY_VALUE });
    assert_eq!(desc.regions[1].mode, region::NONE);
    assert_eq!((desc.out, desc.out_handle), (0, handle::AT64));
    assert_eq!(desc.flags, flag::RETURNS | flag::OUT_AT_GROUP_END | flag::MAKES_COMM);
    assert_eq!(desc.counter, counter::NONE, "it has no parent to count on");
    // Behind six registers and one slot; what follows it is out of reach.
    const LATE: &[Arg] = &[
        arg(Role::Other, 6, Pass::Pointer),
        arg(Role::UniqueId, 1, Pass::Bytes128),
        arg(Role::Other, 7, Pass::Pointer),
        arg(Role::Color, 3, Pass::I32),
    ];
    let desc = probe_desc(any_library(), WIDE, &function(Op::CommInit, Traits::default(), LATE));
    assert_eq!(desc.args[..4], [16, 17, SOURCE_NONE, 3]);
}

#[test]
fn handles_at_an_address_are_followed() {
    const ARGS: &[Arg] = &[arg(Role::Comm, 0, Pass::HandleAt)];
    let free = function(Op::CommFree, Traits::default(), ARGS);
    let desc = probe_desc(any_library(), NARROW, &free);
    assert_eq!((desc.comm_handle, desc.counter), (handle::AT32, counter::FREE));
    let finalize = function(Op::CommFinalize, Traits::default(), ARGS);
    assert_eq!(probe_desc(any_library(), WIDE, &finalize).counter, counter::NONE);
}

#[test]
fn what_a_call_writes_is_read_at_its_return() {
    const ARGS: &[Arg] = &[arg(Role::Comm, 1, Pass::Handle), arg(Role::Request, 2, Pass::HandleAt)];
    let persistent = function(Op::AllReduce, Traits { persistent_init: true, ..Traits::default() }, ARGS);
    let desc = probe_desc(any_library(), WIDE, &persistent);
    assert_eq!((desc.out, desc.out_handle, desc.counter), (2, handle::AT64, counter::NONE));
    assert_eq!(desc.flags & (flag::RETURNS | flag::MAKES_COMM), flag::RETURNS, "a request is no communicator");
    const RANK: &[Arg] = &[arg(Role::Comm, 0, Pass::Handle), arg(Role::CommRank, 1, Pass::I32At)];
    let desc = probe_desc(any_library(), WIDE, &function(Op::Wait, Traits::default(), RANK));
    assert_eq!((desc.out, desc.out_handle), (1, handle::AT32));
}

#[test]
fn a_call_that_takes_no_position_advances_no_counter() {
    const ARGS: &[Arg] = &[arg(Role::Comm, 0, Pass::Handle)];
    let of = |op, traits| probe_desc(any_library(), WIDE, &function(op, traits, ARGS)).counter;
    let none = Traits::default();
    assert_eq!(of(Op::CommCreate, none), counter::CREATION);
    assert_eq!(of(Op::CommCreate, Traits { partial: true, ..none }), counter::NONE);
    assert_eq!(of(Op::AllReduce, Traits { auxiliary: true, ..none }), counter::NONE);
    assert_eq!(of(Op::CommFree, Traits { keeps_handle: true, ..none }), counter::NONE);
    assert_eq!(of(Op::Recv, none), counter::RECV);
    assert_eq!(of(Op::Send, none), counter::SEND);
}

#[test]
fn batches_and_parents_are_marked() {
    let plain = |op, traits| probe_desc(any_library(), WIDE, &function(op, traits, &[])).flags;
    assert_eq!(plain(Op::GroupStart, Traits::default()), flag::GROUP_START | flag::NOT_A_PARENT);
    assert_ne!(plain(Op::GroupEnd, Traits::default()) & flag::GROUP_END, 0);
    let nests = Traits { calls_others: true, ..Traits::default() };
    assert_eq!(plain(Op::Broadcast, nests), flag::RETURNS, "its parts are known only while it is open");
    let framework = Library { level: Level::Framework, ..*any_library() };
    let desc = probe_desc(&framework, WIDE, &function(Op::Broadcast, nests, &[]));
    assert_ne!(desc.flags & flag::NOT_A_PARENT, 0, "the library's calls below it count for themselves");
}

#[test]
fn an_entry_behind_its_exit_is_marked() {
    let mut desc = probe_desc(any_library(), WIDE, &function(Op::Barrier, Traits::default(), &[]));
    let entry = EntryPoint { delta: 9, stack_shift: 24, cost: PointCost::Emulated };
    place(&mut desc, &entry, None);
    assert_eq!((desc.entry_stack_shift, desc.flags & flag::ENTRY_AFTER_EXIT), (24, 0));
    place(&mut desc, &entry, Some(&ExitPoint { delta: 0, cost: PointCost::Stepped }));
    assert_ne!(desc.flags & flag::ENTRY_AFTER_EXIT, 0);
}

#[test]
fn every_function_of_every_library_can_be_read() {
    for library in LIBRARIES {
        for function in library.functions {
            for abi in [NARROW, WIDE] {
                let desc = probe_desc(library, abi, function);
                let name = format!("{} {}", library.name, function.symbol);
                assert!(function.args.len() <= MAX_ARGS, "{name}: more arguments than a record holds");
                for (arg, source) in function.args.iter().zip(desc.args) {
                    assert_ne!(source, SOURCE_NONE, "{name}: {arg:?} is out of reach");
                }
                let short = |region: &&Region| matches!(region.mode, region::SHORT | region::SHORT_BY_VALUE);
                assert!(desc.regions.iter().filter(short).count() <= 1, "{name}: a record holds one short region");
                let in_place = function.made_in_place().is_some();
                let wanted = in_place || function.arg(Role::Comm).is_some();
                assert_eq!(desc.comm_handle != handle::NONE, wanted, "{name}");
                if desc.out_handle != handle::NONE {
                    assert_ne!(desc.flags & flag::RETURNS, 0, "{name}: the handle is read at the return");
                }
                if function.arg(Role::NewComm).is_some() && !in_place {
                    assert_ne!(desc.out_handle, handle::NONE, "{name}: the new communicator is not read");
                }
                if matches!(desc.counter, counter::SEND | counter::RECV) {
                    assert!(desc.peer != SOURCE_NONE, "{name}: counted per peer");
                }
            }
        }
    }
}

fn two_fields(_: &Abi, _: &Function) -> Vec<Field> {
    let field = |index, steps, bytes| Field { name: "", index, steps, offsets: [8, 16, 0, 0], bytes };
    vec![field(2, 1, 2), field(9, 0, 8)]
}

#[test]
fn fields_behind_pointers_become_chains() {
    let library = Library { fields: two_fields, ..*any_library() };
    let barrier = function(Op::Barrier, Traits::default(), &[]);
    let desc = probe_desc(&library, WIDE, &barrier);
    assert_eq!(desc.regions[0].mode, region::GATHERED);
    let found = chains(&library, WIDE, &barrier).expect("chains").chains;
    assert_eq!(found[0], Chain { source: 2, steps: 1, bytes: 2, into: 8, offsets: [8, 16, 0, 0] });
    assert_eq!((found[1].source, found[1].into), (SOURCE_NONE, 16), "no register holds it");
    assert_eq!(found[2].bytes, 0);
    assert!(chains(any_library(), WIDE, &barrier).is_none());
}

#[test]
fn what_is_made_in_place_begins_a_new_generation_of_its_handle() {
    const MADE: &[Arg] = &[Arg { role: Role::NewComm, index: 0, pass: Pass::Handle }];
    let traits = Traits { auxiliary: true, ..Traits::default() };
    let desc = probe_desc(any_library(), WIDE, &function(Op::Wait, traits, MADE));
    assert_eq!((desc.comm, desc.comm_handle, desc.counter), (0, handle::VALUE64, counter::FREE));
    assert_eq!((desc.out_handle, desc.flags & flag::RETURNS), (handle::NONE, 0));
}
