//! Decodes calls of NCCL's family. Needs no memory of earlier calls: everything stands in the arguments.

use rankdiff_trace::{Basic, CommIdentity, DType, Op, OpKind, RedOp, Reduction};

use crate::decode::{Context, Decoded, Decoder, Lineage, Predefined, RawCall};
use crate::spec::{Function, Role};
use crate::values::Values;

/// Colour of a member that a split leaves out (`NCCL_SPLIT_NOCOLOR`; every other negative colour is an error).
const NO_COLOR: i64 = -1;
/// First handle of a reduction that the program made; smaller ones are predefined.
const FIRST_DYNAMIC_REDUCTION: u64 = 5;

/// The decoder; `library` is the name space of the identities.
#[derive(Debug)]
pub(crate) struct FamilyDecoder {
    library: &'static str,
}

impl FamilyDecoder {
    /// A decoder for this library.
    pub(crate) fn boxed(library: &'static str) -> Box<dyn Decoder> {
        Box::new(FamilyDecoder { library })
    }
}

impl Decoder for FamilyDecoder {
    fn enter(&mut self, function: &Function, raw: &RawCall<'_>, context: &dyn Context) -> Decoded {
        let mut values = Values::new(function, raw, 8);
        let mut decoded = Decoded::default();
        match function.op.kind() {
            OpKind::Collective | OpKind::PointToPoint => transfer(&mut decoded, function, &mut values, context),
            OpKind::CommCreate => self.creation(&mut decoded, function, &mut values, context),
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

fn transfer(decoded: &mut Decoded, function: &Function, values: &mut Values<'_>, context: &dyn Context) {
    decoded.count = values.need_count(Role::Count);
    decoded.dtype = values.need(Role::DType).map_or(DType::None, dtype);
    if function.op.has_reduction() {
        decoded.redop = values.need(Role::Reduction).map_or(RedOp::None, reduction);
    }
    if function.op.has_root() {
        decoded.root = values.need_rank(Role::Root);
    }
    if function.op.kind() == OpKind::PointToPoint {
        decoded.peer = values.need_rank(Role::Peer);
    }
    decoded.stream = values.get(Role::Stream).unwrap_or(0);
    if let (Some(send), Some(recv)) = (values.get(Role::SendBuffer), values.get(Role::RecvBuffer)) {
        decoded.in_place = send == recv && send != 0;
    }
    if function.op == Op::AllToAllV {
        let members = context.comm_size().map(|size| size as usize);
        let vectors =
            members.and_then(|len| Some((values.array(Role::SendCounts, len)?, values.array(Role::RecvCounts, len)?)));
        match vectors {
            Some((sends, recvs)) => (decoded.sends, decoded.recvs) = (sends, recvs),
            None => decoded.vectors_cut = true,
        }
    }
}

impl FamilyDecoder {
    fn creation(&self, decoded: &mut Decoded, function: &Function, values: &mut Values<'_>, context: &dyn Context) {
        let count = values.get(Role::MemberCount).and_then(|value| u32::try_from(value).ok());
        let rank = values.get(Role::MemberRank).and_then(|value| u32::try_from(value).ok());
        match function.op {
            Op::CommInit => {
                decoded.new_size = count;
                decoded.new_rank = rank;
                let id = values.region(Role::UniqueId);
                if id.len() == 128 {
                    decoded.new_identity = CommIdentity::root(self.library, id);
                } else {
                    // Without an id the communicator is this process's own (all ranks made by one call) or unknown.
                    decoded.lineage = Lineage::Unknown;
                    decoded.unreadable |= values.has(Role::UniqueId);
                }
            }
            Op::CommSplit => {
                decoded.color = values.need_signed(Role::Color).filter(|&color| color != NO_COLOR);
                decoded.key = values.need_signed(Role::Key);
                if values.unreadable {
                    decoded.lineage = Lineage::Unknown;
                }
            }
            Op::CommShrink => {
                let excluded = values.get(Role::Extent).and_then(|value| u32::try_from(value).ok());
                decoded.new_size = excluded.and_then(|excluded| context.comm_size()?.checked_sub(excluded));
                let ranks = excluded.and_then(|excluded| values.array(Role::ExcludedRanks, excluded as usize));
                decoded.new_rank = ranks.zip(context.comm_rank()).and_then(|(ranks, own)| {
                    let below = ranks.iter().filter(|&&rank| rank < u64::from(own)).count();
                    own.checked_sub(u32::try_from(below).ok()?)
                });
            }
            Op::CommGrow => {
                decoded.new_size = count;
                // Members of the old communicator pass no rank and keep theirs; new ones pass no communicator, and only
                // one of the old ones passes the id: nothing that all know tells the new communicator.
                decoded.new_rank = rank.or_else(|| context.comm_rank());
                decoded.lineage = Lineage::Unknown;
            }
            _ => {}
        }
    }
}

/// Element types; numbers 10 and 11 are younger than the rest, none was ever renumbered.
fn dtype(value: u64) -> DType {
    DType::Basic(match value {
        0 => Basic::I8,
        1 => Basic::U8,
        2 => Basic::I32,
        3 => Basic::U32,
        4 => Basic::I64,
        5 => Basic::U64,
        6 => Basic::F16,
        7 => Basic::F32,
        8 => Basic::F64,
        9 => Basic::Bf16,
        10 => Basic::F8E4M3,
        11 => Basic::F8E5M2,
        other => return DType::Raw(other),
    })
}

/// Reductions. A dynamic handle counts the communicator's own, so its number means nothing to other members.
fn reduction(value: u64) -> RedOp {
    RedOp::Predefined(match value {
        0 => Reduction::Sum,
        1 => Reduction::Prod,
        2 => Reduction::Max,
        3 => Reduction::Min,
        4 => Reduction::Avg,
        FIRST_DYNAMIC_REDUCTION.. => return RedOp::Dynamic,
    })
}

#[cfg(test)]
mod tests;
