//! What of a collective's arguments counts on this member.
//!
//! The rule of the standard in one sentence: a member's block as it sends it, or as it receives it where it sends none.
//! The root of a gather receives, too, and what it receives must be what it sends itself; where both sides are significant
//! and differ, that is kept beside the call ([`Decoded::other_side`]), since the other members' arguments cannot show it.
//!
//! Vectors are given in elements of a basic type wherever a type repeats one, since members may send and receive the same
//! elements as different types. Deliberately without vectors: the w-forms, whose entries each have a type of their own,
//! and neighbourhoods, whose entries go by edges that are not kept; both are marked as cut.

use rankdiff_trace::{DType, Op, RedOp};

use super::decoder::MpiDecoder;
use crate::decode::{Context, Decoded};
use crate::spec::{Function, Role};
use crate::values::Values;

/// What the root argument says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// This member is the root.
    Root,
    /// It is not, or nobody is.
    Other,
    /// Its own rank is not known.
    Unknown,
}

/// Fills in what a collective says.
pub(super) fn collective(
    decoder: &mut MpiDecoder,
    decoded: &mut Decoded,
    function: &Function,
    values: &mut Values<'_>,
    context: &dyn Context,
) {
    let op = function.op;
    let place = if op.has_root() { root(decoder, decoded, values, context) } else { Place::Other };
    if decoded.bystander {
        return;
    }
    let in_place = decoder.handles.numbers().in_place;
    decoded.in_place = [Role::SendBuffer, Role::RecvBuffer].into_iter().any(|role| values.get(role) == Some(in_place));
    if op.has_reduction() {
        let handle = values.need(Role::Reduction);
        decoded.redop = handle.map_or(RedOp::None, |handle| decoder.handles.reduction(handle, context));
    }
    let mut call = Call { decoder, values, context, inter: context.comm_is_inter() };
    match op {
        Op::AllReduce | Op::Broadcast | Op::Reduce | Op::ReduceScatter | Op::Scan | Op::Exscan => {
            (decoded.count, decoded.dtype) = call.side(Role::Count, Role::DType);
        }
        Op::NeighborAllGather | Op::NeighborAllToAll => {
            (decoded.count, decoded.dtype) = call.side(Role::Count, Role::DType);
        }
        Op::NeighborAllGatherV => {
            (decoded.count, decoded.dtype) = call.side(Role::Count, Role::DType);
            decoded.vectors_cut = true;
        }
        Op::NeighborAllToAllV => {
            decoded.dtype = call.dtype(Role::DType);
            decoded.vectors_cut = true;
        }
        Op::AllToAllW | Op::NeighborAllToAllW => decoded.vectors_cut = true,
        Op::AllGather | Op::AllToAll => call.symmetric(decoded),
        Op::Gather => call.gather(decoded, place),
        Op::Scatter => call.scatter(decoded, place),
        Op::ReduceScatterV => call.reduce_scatter_v(decoded),
        Op::AllGatherV => call.all_gather_v(decoded),
        Op::GatherV => call.gather_v(decoded, place),
        Op::ScatterV => call.scatter_v(decoded, place),
        Op::AllToAllV => call.all_to_all_v(decoded),
        _ => {}
    }
}

fn root(decoder: &MpiDecoder, decoded: &mut Decoded, values: &mut Values<'_>, context: &dyn Context) -> Place {
    let numbers = decoder.handles.numbers();
    let Some(value) = values.need_signed(Role::Root) else { return Place::Unknown };
    if value == numbers.root {
        decoded.root_is_self = true;
        return Place::Root;
    }
    if value == numbers.proc_null {
        decoded.bystander = true;
        return Place::Other;
    }
    decoded.root = values.need_rank(Role::Root);
    if context.comm_is_inter() {
        return Place::Other; // The root is in the other group.
    }
    match (decoded.root, context.comm_rank()) {
        (Some(root), Some(own)) if root == own => Place::Root,
        (Some(_), None) => Place::Unknown,
        _ => Place::Other,
    }
}

/// One call while it is decoded.
struct Call<'a, 'v> {
    decoder: &'a mut MpiDecoder,
    values: &'a mut Values<'v>,
    context: &'a dyn Context,
    inter: bool,
}

impl Call<'_, '_> {
    fn dtype(&mut self, role: Role) -> DType {
        self.decoder.dtype(self.values, role, self.context)
    }

    fn side(&mut self, count: Role, dtype: Role) -> (Option<u64>, DType) {
        (self.values.need_count(count), self.dtype(dtype))
    }

    fn send(&mut self) -> (Option<u64>, DType) {
        self.side(Role::Count, Role::DType)
    }

    fn recv(&mut self) -> (Option<u64>, DType) {
        self.side(Role::RecvCount, Role::RecvDType)
    }

    /// Keeps the other side if it surely transfers something else. On an intercommunicator the sides belong to two
    /// groups and may differ.
    fn keep_difference(&self, decoded: &mut Decoded, other: (Option<u64>, DType)) {
        if let (Some(count), (Some(other_count), dtype), false) = (decoded.count, other, self.inter) {
            let same = self.decoder.types.same((count, decoded.dtype), (other_count, dtype));
            decoded.other_side = (same == Some(false)).then_some((other_count, dtype));
        }
    }

    /// Every member sends a block to every member and receives one of the same size.
    fn symmetric(&mut self, decoded: &mut Decoded) {
        if decoded.in_place {
            (decoded.count, decoded.dtype) = self.recv();
            return;
        }
        (decoded.count, decoded.dtype) = self.send();
        let other = self.other(Role::RecvCount, Role::RecvDType);
        self.keep_difference(decoded, other);
    }

    fn gather(&mut self, decoded: &mut Decoded, place: Place) {
        // Only the root may have the mark, so it tells the root where its rank is not known.
        let receives_only = decoded.root_is_self || (decoded.in_place && place != Place::Other);
        if receives_only {
            (decoded.count, decoded.dtype) = self.recv();
            return;
        }
        (decoded.count, decoded.dtype) = self.send();
        if place == Place::Root {
            let other = self.other(Role::RecvCount, Role::RecvDType);
            self.keep_difference(decoded, other);
        }
    }

    fn scatter(&mut self, decoded: &mut Decoded, place: Place) {
        let sends_only = decoded.root_is_self || (decoded.in_place && place != Place::Other);
        if sends_only {
            (decoded.count, decoded.dtype) = self.send();
            return;
        }
        (decoded.count, decoded.dtype) = self.recv();
        if place == Place::Root {
            let other = self.other(Role::Count, Role::DType);
            self.keep_difference(decoded, other);
        }
    }

    /// A side that is only looked at for a difference: that it cannot be read takes nothing from the call.
    fn other(&mut self, count: Role, dtype: Role) -> (Option<u64>, DType) {
        let unreadable = self.values.unreadable;
        let side = self.side(count, dtype);
        self.values.unreadable = unreadable;
        side
    }

    /// An array with one entry per member. On an intercommunicator it goes by one of the groups, whose size is not known.
    fn vector(&mut self, decoded: &mut Decoded, role: Role) -> Vec<u64> {
        let members = if self.inter { None } else { self.context.comm_size() };
        let vector = members.and_then(|members| self.values.array(role, usize::try_from(members).ok()?));
        decoded.vectors_cut |= vector.is_none();
        vector.unwrap_or_default()
    }

    fn own_entry(&self, vector: &[u64]) -> Option<u64> {
        vector.get(usize::try_from(self.context.comm_rank()?).ok()?).copied()
    }

    fn reduce_scatter_v(&mut self, decoded: &mut Decoded) {
        let dtype = self.dtype(Role::DType);
        decoded.recvs = self.vector(decoded, Role::RecvCounts);
        decoded.count = self.own_entry(&decoded.recvs);
        self.in_basic_elements(decoded, dtype, dtype, dtype);
    }

    fn all_gather_v(&mut self, decoded: &mut Decoded) {
        decoded.recvs = self.vector(decoded, Role::RecvCounts);
        let received = self.dtype(Role::RecvDType);
        if decoded.in_place {
            decoded.count = self.own_entry(&decoded.recvs);
            self.in_basic_elements(decoded, received, received, received);
        } else {
            let (count, sent) = self.send();
            decoded.count = count;
            self.in_basic_elements(decoded, sent, sent, received);
        }
    }

    fn gather_v(&mut self, decoded: &mut Decoded, place: Place) {
        let root = place == Place::Root || (decoded.in_place && place == Place::Unknown);
        if !root {
            let (count, sent) = self.send();
            decoded.count = count;
            decoded.vectors_cut = place == Place::Unknown;
            self.in_basic_elements(decoded, sent, sent, sent);
            return;
        }
        decoded.recvs = self.vector(decoded, Role::RecvCounts);
        let received = self.dtype(Role::RecvDType);
        if decoded.in_place || decoded.root_is_self {
            decoded.count = if decoded.in_place { self.own_entry(&decoded.recvs) } else { None };
            self.in_basic_elements(decoded, received, received, received);
        } else {
            let (count, sent) = self.send();
            decoded.count = count;
            self.in_basic_elements(decoded, sent, sent, received);
        }
    }

    fn scatter_v(&mut self, decoded: &mut Decoded, place: Place) {
        let root = place == Place::Root || (decoded.in_place && place == Place::Unknown);
        if !root {
            let (count, received) = self.recv();
            decoded.count = count;
            decoded.vectors_cut = place == Place::Unknown;
            self.in_basic_elements(decoded, received, received, received);
            return;
        }
        decoded.sends = self.vector(decoded, Role::SendCounts);
        let sent = self.dtype(Role::DType);
        if decoded.in_place || decoded.root_is_self {
            decoded.count = if decoded.in_place { self.own_entry(&decoded.sends) } else { None };
            self.in_basic_elements(decoded, sent, sent, sent);
        } else {
            let (count, received) = self.recv();
            decoded.count = count;
            self.in_basic_elements(decoded, received, sent, received);
        }
    }

    fn all_to_all_v(&mut self, decoded: &mut Decoded) {
        decoded.recvs = self.vector(decoded, Role::RecvCounts);
        let received = self.dtype(Role::RecvDType);
        if decoded.in_place {
            // What is sent is what is received in its place.
            decoded.sends = decoded.recvs.clone();
            self.in_basic_elements(decoded, received, received, received);
            return;
        }
        decoded.sends = self.vector(decoded, Role::SendCounts);
        if decoded.vectors_cut {
            decoded.sends.clear();
            decoded.recvs.clear();
        }
        let sent = self.dtype(Role::DType);
        self.in_basic_elements(decoded, sent, sent, received);
    }

    /// Turns count and vectors, each in its own type, into elements of one basic type where all are made of it. Where
    /// only the own side can be expressed, the other one's vector is left out.
    fn in_basic_elements(&self, decoded: &mut Decoded, own: DType, sent: DType, received: DType) {
        decoded.dtype = own;
        let types = &self.decoder.types;
        if let Some((basic, repeat)) = types.unit(own) {
            decoded.dtype = DType::Basic(basic);
            decoded.count = decoded.count.map(|count| count.saturating_mul(repeat));
        }
        for (vector, dtype) in [(&mut decoded.sends, sent), (&mut decoded.recvs, received)] {
            match (types.unit(own), types.unit(dtype)) {
                (Some((basic, _)), Some((other, repeat))) if basic == other => {
                    for entry in vector {
                        *entry = entry.saturating_mul(repeat);
                    }
                }
                _ if dtype == own => {}
                _ => {
                    decoded.vectors_cut |= !vector.is_empty();
                    vector.clear();
                }
            }
        }
    }
}
