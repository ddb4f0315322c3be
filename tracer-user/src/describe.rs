//! From a function's description to what the eBPF programs read at it.
//!
//! Argument places follow the System V calling convention of x86-64: the first six integer and pointer parameters are in
//! registers, the others lie in 8-byte slots above the return address; a 128-byte structure by value is copied to that
//! area and takes no register. Not here: where the probes sit (`prologue`), which functions there are (`points`).

use rankdiff_common::probe::{
    Chain, Chains, GATHERED_MASK, LONG_REGION, MAX_ARGS, MAX_CHAINS, MAX_REGIONS, MAX_STACK_SLOT, MAX_STEPS, ProbeDesc,
    Region, SHORT_REGION, SOURCE_NONE, SOURCE_STACK, Source, counter, flag, handle, region,
};
use rankdiff_libs::gathered::{MASK_BYTES, MOST_BYTES, MOST_FIELDS, place as place_fields};
use rankdiff_libs::spec::{Abi, Arg, Function, Library, Pass, Role};
use rankdiff_trace::{Level, Op, OpKind};

use crate::prologue::{EntryPoint, ExitPoint};

/// Integer argument registers.
const REGISTERS: u8 = 6;
/// Stack slots that a structure by value takes.
const STRUCTURE_SLOTS: usize = SHORT_REGION / 8;

// The kernel's side and the libraries' agree on gathered memory.
const _: () = assert!(MASK_BYTES == GATHERED_MASK && MOST_BYTES == LONG_REGION && MOST_FIELDS == MAX_CHAINS);

/// What the kernel reads at a function, its probes on its first instruction.
pub fn probe_desc(library: &Library, abi: Abi, function: &Function) -> ProbeDesc {
    let args = function.args.get(..MAX_ARGS).unwrap_or(function.args);
    let place = |arg: &Arg| source(args, arg);
    let place_of = |role: Role| function.arg(role).map_or(SOURCE_NONE, place);
    let mut desc = ProbeDesc { arg_count: args.len() as u8, ..ProbeDesc::EMPTY };
    for (slot, arg) in desc.args.iter_mut().zip(args) {
        *slot = place(arg);
    }
    // What a communicator is made in held another one before, if it held one at all.
    let made = function.made_in_place();
    if let Some(comm) = function.arg(Role::Comm).or(made) {
        desc.comm = place(comm);
        desc.comm_handle = if desc.comm == SOURCE_NONE { handle::NONE } else { comm_handle(abi, comm.pass) };
    }
    if let Some(out) = function.out()
        && place(out) != SOURCE_NONE
    {
        desc.out = place(out);
        desc.out_handle = if out.pass == Pass::I32At { handle::AT32 } else { at_handle(abi) };
    }
    desc.counter = if made.is_some() { counter::FREE } else { counter_of(function) };
    desc.peer = place_of(Role::Peer);
    desc.tag = place_of(Role::Tag);
    desc.regions = regions(args);
    if chains(library, abi, function).is_some() {
        desc.regions[0] = Region { source: SOURCE_NONE, mode: region::GATHERED };
    }
    desc.flags = flags(library, function, desc.out_handle != handle::NONE);
    desc
}

/// What the kernel reads behind the pointers that a function is given; `None`: nothing.
pub fn chains(library: &Library, abi: Abi, function: &Function) -> Option<Chains> {
    let fields = (library.fields)(&abi, function);
    let mut chains = Chains::default();
    for ((chain, field), into) in chains.chains.iter_mut().zip(&fields).zip(place_fields(&fields)) {
        // Registers only: a pointer on the stack would need its own reading.
        let source = if field.index < REGISTERS { field.index } else { SOURCE_NONE };
        let steps = field.steps.min(MAX_STEPS as u8);
        *chain = Chain { source, steps, bytes: field.bytes, into, offsets: field.offsets };
    }
    (!fields.is_empty()).then_some(chains)
}

/// Whether a return probe is needed.
pub(crate) fn has_return(desc: &ProbeDesc) -> bool {
    desc.flags & flag::RETURNS != 0
}

/// Does without the return.
pub(crate) fn drop_return(desc: &mut ProbeDesc) {
    desc.flags &= !(flag::RETURNS | flag::OUT_AT_GROUP_END);
    desc.out_handle = handle::NONE;
    desc.out = SOURCE_NONE;
}

/// Adjusts a description to where the probes sit.
pub(crate) fn place(desc: &mut ProbeDesc, entry: &EntryPoint, exit: Option<&ExitPoint>) {
    desc.entry_stack_shift = entry.stack_shift;
    if exit.is_some_and(|exit| exit.delta < entry.delta) {
        desc.flags |= flag::ENTRY_AFTER_EXIT;
    }
}

/// Where an argument is at the function's entry. A structure by value tells its own first slot; parameters that have no
/// register lie before and behind it.
fn source(args: &[Arg], arg: &Arg) -> Source {
    let slot = if arg.pass == Pass::Bytes128 {
        usize::from(arg.index)
    } else if arg.index < REGISTERS {
        return arg.index;
    } else {
        let mut slot = usize::from(arg.index - REGISTERS);
        for structure in args.iter().filter(|other| other.pass == Pass::Bytes128) {
            if usize::from(structure.index) <= slot {
                slot += STRUCTURE_SLOTS;
            }
        }
        slot
    };
    let source = u8::try_from(usize::from(SOURCE_STACK) + slot);
    source.ok().filter(|&source| source <= MAX_STACK_SLOT).unwrap_or(SOURCE_NONE)
}

/// How the communicator is passed.
fn comm_handle(abi: Abi, pass: Pass) -> u8 {
    match pass {
        Pass::Handle if abi.handle_bytes == 4 => handle::VALUE32,
        Pass::HandleAt => at_handle(abi),
        Pass::I32 | Pass::U32 => handle::VALUE32,
        _ => handle::VALUE64,
    }
}

fn at_handle(abi: Abi) -> u8 {
    if abi.handle_bytes == 4 { handle::AT32 } else { handle::AT64 }
}

fn counter_of(function: &Function) -> u8 {
    let traits = function.traits;
    let takes_no_position = traits.auxiliary || traits.persistent_init || traits.partial || traits.starts;
    if takes_no_position || function.arg(Role::Comm).is_none() {
        return counter::NONE;
    }
    match function.op.kind() {
        OpKind::Collective => counter::COLLECTIVE,
        OpKind::CommCreate => counter::CREATION,
        OpKind::PointToPoint if function.op == Op::Recv => counter::RECV,
        OpKind::PointToPoint => counter::SEND,
        // Flushing a communicator's work does not release it.
        OpKind::CommFree if function.op != Op::CommFinalize && !traits.keeps_handle => counter::FREE,
        OpKind::CommFree | OpKind::Lifecycle | OpKind::Group | OpKind::Wait => counter::NONE,
    }
}

/// The first memory regions among the arguments, in their order.
fn regions(args: &[Arg]) -> [Region; MAX_REGIONS] {
    let mut regions = ProbeDesc::EMPTY.regions;
    let found = args.iter().filter(|arg| arg.pass.is_region());
    for (slot, arg) in regions.iter_mut().zip(found) {
        let source = source(args, arg);
        // One that is out of reach keeps its place: the reader goes by the order.
        let mode = match arg.pass {
            _ if source == SOURCE_NONE => region::NONE,
            Pass::Bytes128 => region::SHORT_BY_VALUE,
            pass if pass.is_short_region() => region::SHORT,
            _ => region::LONG,
        };
        *slot = Region { source, mode };
    }
    regions
}

fn flags(library: &Library, function: &Function, has_out: bool) -> u32 {
    let traits = function.traits;
    let group = function.op.kind() == OpKind::Group;
    let set = |on: bool, flag: u32| if on { flag } else { 0 };
    // What a call runs below itself is known as a part of it only while it is open. Handles that a batch sets are read
    // when the call that ends it returns.
    let ends_batch = function.op == Op::GroupEnd && library.functions.iter().any(|other| other.traits.out_at_group_end);
    let returns = traits.returns || traits.calls_others || has_out || ends_batch;
    // A framework's call and the library calls that it makes live on different levels and count each for itself.
    let apart = library.level == Level::Framework || (group && !traits.calls_others);
    set(returns, flag::RETURNS)
        | set(function.op == Op::GroupStart, flag::GROUP_START)
        | set(function.op == Op::GroupEnd, flag::GROUP_END)
        | set(traits.out_at_group_end && has_out, flag::OUT_AT_GROUP_END)
        | set(has_out && function.arg(Role::NewComm).is_some(), flag::MAKES_COMM)
        | set(apart, flag::NOT_A_PARENT)
}

#[cfg(test)]
mod tests;
