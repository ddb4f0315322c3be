//! What a call says of the communicator that it makes.
//!
//! One `MPI_Comm_create` may make several communicators over disjoint groups: the group's ranks tell them apart. Where
//! they are not known ([`Groups`] follows some groups only), neither is the communicator, and it is not compared.

use rankdiff_trace::Op;

use super::groups::{Groups, number_of};
use super::handles::Numbers;
use super::topology::Grids;
use crate::decode::{Context, Decoded, Lineage};
use crate::spec::{Function, Role};
use crate::values::Values;

/// What earlier calls taught.
pub(super) struct Known<'a> {
    /// Grids by communicator.
    pub(super) grids: &'a Grids,
    /// Groups by handle.
    pub(super) groups: &'a mut Groups,
    /// Whether the call is on the world's communicator.
    pub(super) on_world: bool,
}

/// Fills in the new communicator.
pub(super) fn creation(
    decoded: &mut Decoded,
    function: &Function,
    values: &mut Values<'_>,
    numbers: &Numbers,
    known: Known<'_>,
    context: &dyn Context,
) {
    let grids = known.grids;
    decoded.new_inter = context.comm_is_inter();
    if function.traits.partial {
        decoded.lineage = Lineage::Unknown;
    }
    match function.op {
        Op::CommSplit if values.has(Role::Color) => {
            let color = values.need_signed(Role::Color);
            decoded.color = color.filter(|&color| color != numbers.undefined);
            decoded.key = values.need_signed(Role::Key);
            if color.is_none() {
                decoded.lineage = Lineage::Unknown;
            }
        }
        Op::CommSplit if values.has(Role::SplitType) => {
            let kind = values.need_signed(Role::SplitType);
            decoded.color = kind.filter(|&kind| kind != numbers.undefined);
            decoded.key = values.need_signed(Role::Key);
            decoded.lineage = match kind {
                Some(kind) if kind == numbers.undefined => Lineage::Colour,
                Some(kind) if kind == numbers.split_shared => Lineage::Node,
                _ => Lineage::Unknown,
            };
        }
        Op::CommSplit => sub_grid(decoded, values, grids, context),
        Op::CommDup => {
            decoded.new_size = context.comm_size();
            decoded.new_rank = context.comm_rank();
        }
        Op::TopologyCreate => topology(decoded, values, context),
        Op::IntercommCreate => {
            // The two sides have no communicator in common, and the leaders' one is not significant elsewhere.
            decoded.new_inter = true;
            decoded.lineage = Lineage::Unknown;
            if values.has(Role::Root) {
                decoded.root = values.need_rank(Role::Root);
            }
        }
        Op::IntercommMerge => decoded.new_inter = false,
        Op::CommCreate => over_group(decoded, function, values, known),
        Op::CommInit => {
            decoded.new_inter = false;
            decoded.lineage = Lineage::Unknown;
        }
        _ => {}
    }
}

/// The extents of the grid that a call makes.
pub(super) fn grid_of(values: &Values<'_>) -> Option<Vec<u64>> {
    values.array(Role::Dims, usize::try_from(values.get(Role::Extent)?).ok()?)
}

fn topology(decoded: &mut Decoded, values: &Values<'_>, context: &dyn Context) {
    let size = if values.has(Role::Dims) {
        grid_of(values).and_then(|dims| dims.iter().try_fold(1_u64, |size, &extent| size.checked_mul(extent)))
    } else if values.has(Role::MemberCount) {
        values.get(Role::MemberCount)
    } else {
        context.comm_size().map(u64::from)
    };
    decoded.new_size = size.and_then(|size| u32::try_from(size).ok());
    if values.get(Role::Reorder) == Some(0) {
        let rank = context.comm_rank();
        decoded.new_rank = rank.filter(|&rank| decoded.new_size.is_some_and(|size| rank < size));
    }
}

/// Part of a grid: the colour is not in the arguments but follows from this member's place.
fn sub_grid(decoded: &mut Decoded, values: &Values<'_>, grids: &Grids, context: &dyn Context) {
    let part = part_of(values, grids, context);
    match part.and_then(|part| Some((i64::try_from(part.color).ok()?, part))) {
        Some((color, part)) => {
            decoded.color = Some(color);
            decoded.new_size = u32::try_from(part.size).ok();
            decoded.new_rank = u32::try_from(part.rank).ok();
        }
        None => decoded.lineage = Lineage::Unknown,
    }
}

/// The part of a grid that the call's member comes to be in.
pub(super) fn part_of(values: &Values<'_>, grids: &Grids, context: &dyn Context) -> Option<super::topology::Part> {
    let comm = values.get(Role::Comm)?;
    let remain = values.array(Role::RemainingDims, grids.dims(comm)?.len())?;
    grids.part(comm, context.comm_rank()?, &remain)
}

/// A communicator over a group: of all members that call with groups of their own, or of one group's members alone.
fn over_group(decoded: &mut Decoded, function: &Function, values: &mut Values<'_>, known: Known<'_>) {
    decoded.lineage = Lineage::Unknown;
    let Some(group) = values.get(Role::Group).filter(|_| known.on_world) else { return };
    let Some(members) = known.groups.members(group) else { return };
    decoded.new_size = u32::try_from(members.len()).ok();
    if function.traits.partial {
        let Some(tag) = values.need_signed(Role::Tag) else { return };
        decoded.new_identity = known.groups.next_identity(super::MPI.name, group, tag).unwrap_or_default();
    } else {
        decoded.color = Some(number_of(members));
        decoded.lineage = Lineage::Colour;
    }
}
