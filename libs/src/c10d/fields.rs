//! Which values behind its pointers a method's call is recorded with.

use rankdiff_trace::{Op, OpKind};

use super::functions::{FIRST, STORE, Tensors, method, options, tensors};
use super::layout::at;
use crate::spec::{Abi, Field, Function, Offsets, Role};

/// Bytes of a name that are kept; a longer one is not known.
const NAME_BYTES: u16 = 48;
/// Bytes of a description that are kept.
const DESC_BYTES: u16 = 32;
/// Members whose numbers of rows are kept.
pub(super) const MOST_SPLITS: usize = 16;
/// Tensors of a list whose elements are counted.
pub(super) const NUMELS: [&str; 4] = ["numel", "numel1", "numel2", "numel3"];

fn field(name: &'static str, index: u8, path: &[u16], bytes: u16) -> Field {
    let mut offsets = [0; 4];
    for (slot, &offset) in offsets.iter_mut().zip(path) {
        *slot = offset;
    }
    Field { name, index, steps: path.len().saturating_sub(1) as u8, offsets, bytes }
}

/// The fields of a method, in the order in which they are kept.
pub(super) fn fields(abi: &Abi, function: &Function) -> Vec<Field> {
    let offsets = &abi.offsets;
    if function.made_in_place().is_some() {
        return store(offsets);
    }
    let mut fields = group(offsets, function);
    if matches!(function.op.kind(), OpKind::Collective | OpKind::PointToPoint) {
        tensor(&mut fields, offsets, function);
        arguments(&mut fields, offsets, function);
    }
    fields
}

/// What the group's object says of itself.
fn group(offsets: &Offsets, function: &Function) -> Vec<Field> {
    let this = function.arg(Role::Comm).map_or(1, |arg| arg.index);
    let mut fields = Vec::new();
    if let Some(rank) = offsets.get(at::RANK) {
        fields.push(field("rank", this, &[rank], 4));
        fields.push(field("size", this, &[rank + 4], 4));
    }
    if let (Some(name), Some(desc)) = (offsets.get(at::NAME), offsets.get(at::DESC)) {
        fields.push(field("name_length", this, &[name + 8], 8));
        fields.push(field("name", this, &[name, 0], NAME_BYTES));
        fields.push(field("desc_length", this, &[desc + 8], 8));
        fields.push(field("desc", this, &[desc, 0], DESC_BYTES));
    }
    fields
}

/// Elements and type of the tensors.
fn tensor(fields: &mut Vec<Field>, offsets: &Offsets, function: &Function) {
    let (Some(numel), Some(dtype)) = (offsets.get(at::NUMEL), offsets.get(at::DTYPE)) else { return };
    match tensors(function) {
        Tensors::None => {}
        Tensors::One(index) => {
            fields.push(field("numel", index, &[0, numel], 8));
            fields.push(field("dtype", index, &[0, dtype], 2));
        }
        Tensors::List(index) => {
            fields.push(field("list", index, &[0], 16));
            fields.push(field("dtype", index, &[0, 0, dtype], 2));
            // Only coalesced calls take several tensors: Gloo refuses them elsewhere.
            let most = if method(function).ends_with("coalesced") { NUMELS.len() } else { 1 };
            for (name, tensor) in NUMELS.iter().zip((0_u16..).step_by(8)).take(most) {
                fields.push(field(name, index, &[0, tensor, numel], 8));
            }
        }
        Tensors::Split(index) => {
            fields.push(field("numel", index, &[0, numel], 8));
            fields.push(field("dtype", index, &[0, dtype], 2));
            fields.push(field("received", FIRST, &[0, numel], 8));
            fields.push(field("recv_list", index + 1, &[0], 16));
            fields.push(field("send_list", index + 2, &[0], 16));
            fields.push(field("recv_rows", index + 1, &[0, 0], 8 * MOST_SPLITS as u16));
            fields.push(field("send_rows", index + 2, &[0, 0], 8 * MOST_SPLITS as u16));
        }
    }
}

/// Reduction and root.
fn arguments(fields: &mut Vec<Field>, offsets: &Offsets, function: &Function) {
    let options = options(function);
    if function.op.has_reduction()
        && let Some(reduction) = offsets.get(at::REDUCTION)
    {
        fields.push(field("reduction", options, &[reduction], 1));
    }
    let root = match function.op {
        Op::Reduce => offsets.get(at::REDUCE_ROOT),
        // The root is the first member of the options.
        Op::Broadcast | Op::Gather | Op::Scatter => Some(0),
        _ => None,
    };
    if let Some(root) = root {
        fields.push(field("root", options, &[root], 8));
    }
}

/// What the store that a group is made with says: its class and prefix, and those of the store below it.
fn store(offsets: &Offsets) -> Vec<Field> {
    let Some(prefix) = offsets.get(at::PREFIX) else { return Vec::new() };
    let below = prefix + 32;
    vec![
        field("class", STORE, &[0, 0], 8),
        field("prefix_length", STORE, &[0, prefix + 8], 8),
        field("prefix", STORE, &[0, prefix, 0], NAME_BYTES),
        field("class_below", STORE, &[0, below, 0], 8),
        field("prefix_below_length", STORE, &[0, below, prefix + 8], 8),
        field("prefix_below", STORE, &[0, below, prefix, 0], NAME_BYTES),
    ]
}
