//! Decodes calls of c10d's methods.
//!
//! A group's object lies at the same address in ranks that were forked from one process, so its address says nothing
//! about another rank. All ranks give a group one name, which the object keeps (since 2.4) or its store's prefix is; that is
//! the identity. A name that a process gives again (after `destroy_process_group`) means another group.

use rankdiff_trace::{Basic, CommIdentity, DType, Op, OpKind, RedOp, Reduction};
use rustc_hash::FxHashMap;

use super::NAME;
use super::fields::{MOST_SPLITS, NUMELS, fields};
use crate::decode::{CommFacts, Context, Decoded, Decoder, Lineage, Predefined, RawCall};
use crate::gathered::Gathered;
use crate::spec::{Abi, Function, Role};
use crate::values::Values;

/// The class whose prefix is a group's name.
const PREFIX_STORE: &str = "_ZTVN4c10d11PrefixStoreE";
/// Bytes of a class's table before the address that objects hold.
const TABLE_START: u64 = 16;
/// Name of the group of all ranks.
const WORLD: &str = "0";

/// The decoder of one process.
#[derive(Debug)]
pub(super) struct C10dDecoder {
    abi: Abi,
    /// How often each name was given.
    named: FxHashMap<String, u64>,
}

impl C10dDecoder {
    /// A decoder for this build.
    pub(super) fn boxed(abi: Abi) -> Box<dyn Decoder> {
        Box::new(C10dDecoder { abi, named: FxHashMap::default() })
    }
}

impl Decoder for C10dDecoder {
    fn enter(&mut self, function: &Function, raw: &RawCall<'_>, context: &dyn Context) -> Decoded {
        let gathered = Gathered::new(fields(&self.abi, function), raw.regions[0]);
        let mut values = Values::new(function, raw, self.abi.handle_bytes);
        let mut decoded = Decoded::default();
        match function.op.kind() {
            _ if function.made_in_place().is_some() => self.creation(&mut decoded, &mut values, &gathered, context),
            OpKind::Collective | OpKind::PointToPoint => {
                decoded.comm = group(&gathered);
                transfer(&mut decoded, &gathered);
                if function.op == Op::AllToAllV {
                    let members = decoded.comm.as_ref().and_then(|comm| comm.size).or_else(|| context.comm_size());
                    split(&mut decoded, &gathered, members);
                }
                if function.op.kind() == OpKind::PointToPoint {
                    message(&mut decoded, &mut values);
                }
            }
            _ => {}
        }
        decoded.unreadable |= values.unreadable;
        decoded
    }

    fn exit(&mut self, _: &Function, _: &RawCall<'_>, _result: i64, _out: Option<u64>, _: &dyn Context) {}

    fn take_types(&mut self) -> Vec<rankdiff_trace::TypeDef> {
        Vec::new()
    }

    fn predefined(&self, _handle: u64, _: &dyn Context) -> Option<Predefined> {
        None
    }

    fn is_null_comm(&self, handle: u64, _: &dyn Context) -> bool {
        handle == 0
    }
}

impl C10dDecoder {
    fn creation(
        &mut self,
        decoded: &mut Decoded,
        values: &mut Values<'_>,
        gathered: &Gathered<'_>,
        context: &dyn Context,
    ) {
        decoded.new_rank = values.need_rank(Role::MemberRank);
        decoded.new_size = values.need_rank(Role::MemberCount);
        decoded.new_is_part = true;
        decoded.lineage = Lineage::Unknown;
        let Some(name) = name_of_store(gathered, context) else { return };
        let times = self.named.entry(name.clone()).or_default();
        decoded.new_identity =
            if *times == 0 { identity(&name) } else { CommIdentity::root(NAME, format!("{name}\0{times}").as_bytes()) };
        *times += 1;
        decoded.new_is_part = name != WORLD;
        decoded.new_name = name;
    }
}

fn identity(name: &str) -> CommIdentity {
    CommIdentity::root(NAME, name.as_bytes())
}

/// A group's name from the store it is made with. Up to 2.0 the store's prefix is the name; later one for the device
/// ('cpu/') is put before it. Stores of other classes tell none.
fn name_of_store(gathered: &Gathered<'_>, context: &dyn Context) -> Option<String> {
    let prefix = |class: &str, length: &str, text_field: &str| {
        let table = gathered.number(class)?.checked_sub(TABLE_START)?;
        (context.symbol_at(table)? == PREFIX_STORE).then(|| text(gathered, length, text_field)).flatten()
    };
    let first = prefix("class", "prefix_length", "prefix")?;
    let below = prefix("class_below", "prefix_below_length", "prefix_below");
    let name = match below.filter(|below| first.ends_with('/') && below.ends_with('/')) {
        Some(below) => below,
        None => first,
    };
    let name = name.trim_end_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

/// A `std::string` that was kept whole.
fn text(gathered: &Gathered<'_>, length: &str, text: &str) -> Option<String> {
    let length = usize::try_from(gathered.number(length)?).ok()?;
    let text = std::str::from_utf8(gathered.bytes(text)?.get(..length)?).ok()?;
    text.chars().all(|c| !c.is_control()).then(|| text.to_owned())
}

/// What the group's object says; `None` if it says nothing.
fn group(gathered: &Gathered<'_>) -> Option<CommFacts> {
    let small = |field: &str| gathered.number(field).and_then(|value| u32::try_from(value).ok());
    let (rank, size) = (small("rank"), small("size"));
    // Memory that is no group's object would say anything.
    let (rank, size) = if rank.zip(size).is_some_and(|(rank, size)| rank < size) { (rank, size) } else { (None, None) };
    let name = text(gathered, "name_length", "name").filter(|name| !name.is_empty());
    if rank.is_none() && name.is_none() {
        return None;
    }
    Some(CommFacts {
        identity: name.as_deref().map_or(CommIdentity::UNKNOWN, identity),
        is_world: name.as_deref() == Some(WORLD),
        name: name.unwrap_or_default(),
        desc: text(gathered, "desc_length", "desc").filter(|desc| desc != "undefined").unwrap_or_default(),
        size,
        rank,
    })
}

/// Elements, type, reduction and root. What this build's layout has not is missing from every call alike, so it is left
/// out without a mark; what could not be read in this one is marked.
fn transfer(decoded: &mut Decoded, gathered: &Gathered<'_>) {
    let mut need = |field: &str| {
        let value = gathered.number(field);
        decoded.unreadable |= value.is_none() && gathered.has(field);
        value
    };
    decoded.dtype = need("dtype").map_or(DType::None, dtype);
    decoded.redop = need("reduction").map_or(RedOp::None, reduction);
    let root = need("root");
    let listed = gathered.has("list");
    let first = if listed { None } else { need("numel") };
    if let Some(root) = root {
        decoded.root = u32::try_from(root).ok();
        decoded.unreadable |= decoded.root.is_none();
    }
    decoded.count = if listed { sum(gathered) } else { first };
    decoded.unreadable |= listed && decoded.count.is_none();
}

/// Elements of all tensors of a list; `None` if they are too many to have been kept.
fn sum(gathered: &Gathered<'_>) -> Option<u64> {
    let length = length_of(gathered, "list")?;
    let names = NUMELS.get(..length)?;
    names.iter().try_fold(0_u64, |sum, name| sum.checked_add(gathered.number(name)?))
}

/// Entries of 8 bytes that a vector holds.
fn length_of(gathered: &Gathered<'_>, list: &str) -> Option<usize> {
    let ends = gathered.numbers(list)?;
    let &[begin, end] = ends.as_slice() else { return None };
    let bytes = end.checked_sub(begin).filter(|bytes| bytes % 8 == 0)?;
    usize::try_from(bytes / 8).ok()
}

/// Elements for and from each member. Without numbers of rows all members get the same.
fn split(decoded: &mut Decoded, gathered: &Gathered<'_>, members: Option<u32>) {
    let total = decoded.count;
    let elements = |rows: &str, list: &str, total: Option<u64>| {
        let (members, total, length) = (members?, total?, length_of(gathered, list)?);
        if length == 0 {
            let each = total.checked_div(u64::from(members)).filter(|each| each * u64::from(members) == total)?;
            return (usize::try_from(members).ok()? <= MOST_SPLITS).then(|| vec![each; members as usize]);
        }
        let rows = gathered.numbers(rows)?.get(..length)?.to_vec();
        let all = rows.iter().try_fold(0_u64, |sum, &rows| sum.checked_add(rows))?;
        let per_row = total.checked_div(all).unwrap_or(0);
        rows.iter().map(|rows| rows.checked_mul(per_row)).collect::<Option<Vec<u64>>>()
    };
    let sends = elements("send_rows", "send_list", total);
    let recvs = elements("recv_rows", "recv_list", gathered.number("received"));
    match (sends, recvs) {
        (Some(sends), Some(recvs)) => (decoded.sends, decoded.recvs) = (sends, recvs),
        _ => decoded.vectors_cut = true,
    }
}

fn message(decoded: &mut Decoded, values: &mut Values<'_>) {
    decoded.tag = values.need_signed(Role::Tag);
    if values.has(Role::Peer) {
        decoded.peer = values.need_rank(Role::Peer);
    } else {
        decoded.any_source = true;
    }
}

/// Element types (`c10::ScalarType`): numbers are only ever added.
fn dtype(value: u64) -> DType {
    DType::Basic(match value {
        0 => Basic::U8,
        1 => Basic::I8,
        2 => Basic::I16,
        3 => Basic::I32,
        4 => Basic::I64,
        5 => Basic::F16,
        6 => Basic::F32,
        7 => Basic::F64,
        9 => Basic::C64,
        10 => Basic::C128,
        11 => Basic::Bool,
        15 => Basic::Bf16,
        23 => Basic::F8E5M2,
        24 => Basic::F8E4M3,
        other => return DType::Raw(other),
    })
}

/// Reductions (`c10d::ReduceOp::RedOpType`).
fn reduction(value: u64) -> RedOp {
    RedOp::Predefined(match value {
        0 => Reduction::Sum,
        1 => Reduction::Avg,
        2 => Reduction::Prod,
        3 => Reduction::Min,
        4 => Reduction::Max,
        5 => Reduction::Band,
        6 => Reduction::Bor,
        7 => Reduction::Bxor,
        // A sum of what each rank multiplies by a factor of its own.
        8 => return RedOp::Dynamic,
        other => return RedOp::Raw(other),
    })
}
