//! The decoder: gives each call to the part that understands it, and keeps what calls teach.

use rankdiff_trace::{CommIdentity, DType, OpKind, TypeDef};

use super::creation::{Known, creation, grid_of, part_of};
use super::groups::Groups;
use super::handles::{CommHandle, Handles};
use super::persistent::Requests;
use super::significance;
use super::topology::Grids;
use super::types::{Named, Types};
use crate::decode::{Context, Decoded, Decoder, Predefined, RawCall, Started};
use crate::spec::{Abi, Function, Role};
use crate::values::Values;

/// Decodes the MPI calls of one process.
#[derive(Debug)]
pub(super) struct MpiDecoder {
    pub(super) handles: Handles,
    pub(super) types: Types,
    grids: Grids,
    groups: Groups,
    requests: Requests,
}

impl MpiDecoder {
    /// A decoder for a process under this ABI.
    pub(super) fn new(abi: Abi) -> MpiDecoder {
        MpiDecoder {
            handles: Handles::new(abi),
            types: Types::default(),
            grids: Grids::default(),
            groups: Groups::default(),
            requests: Requests::default(),
        }
    }

    /// The type in an argument; without one the call is marked unreadable.
    pub(super) fn dtype(&mut self, values: &mut Values<'_>, role: Role, context: &dyn Context) -> DType {
        let Some(handle) = values.need(role) else { return DType::None };
        let Named { dtype, known } = self.types.named(handle, &mut self.handles, context);
        values.unreadable |= !known;
        dtype
    }

    /// A communicator came to be under this handle: whatever the handle meant before is gone.
    fn learn_grid(&mut self, function: &Function, values: &Values<'_>, new: u64, context: &dyn Context) {
        let dims = if values.has(Role::Dims) {
            grid_of(values)
        } else if values.has(Role::RemainingDims) {
            part_of(values, &self.grids, context).map(|part| part.dims)
        } else if function.op == rankdiff_trace::Op::CommDup {
            values.get(Role::Comm).and_then(|comm| self.grids.dims(comm)).map(<[u64]>::to_vec)
        } else {
            None
        };
        self.grids.set(new, dims);
    }

    fn is_world(&self, values: &Values<'_>, context: &dyn Context) -> bool {
        let comm = values.get(Role::Comm);
        comm.is_some_and(|comm| self.handles.communicator(comm, context) == CommHandle::World)
    }

    fn first_handle(&self, values: &Values<'_>, role: Role) -> Option<u64> {
        values.array(role, 1)?.first().copied()
    }
}

impl Decoder for MpiDecoder {
    fn enter(&mut self, function: &Function, raw: &RawCall<'_>, context: &dyn Context) -> Decoded {
        let mut values = Values::new(function, raw, self.handles.width());
        let mut decoded = Decoded::default();
        match function.op.kind() {
            OpKind::Collective => significance::collective(self, &mut decoded, function, &mut values, context),
            OpKind::CommCreate => {
                let on_world = self.is_world(&values, context);
                let known = Known { grids: &self.grids, groups: &mut self.groups, on_world };
                creation(&mut decoded, function, &mut values, self.handles.numbers(), known, context);
            }
            // What is freed here is freed before its handle can come to mean something else.
            _ if function.traits.auxiliary && !function.traits.returns => {
                if let Some(handle) = self.first_handle(&values, Role::OldType) {
                    self.types.freed(handle);
                }
                if let Some(group) = self.first_handle(&values, Role::Group) {
                    self.groups.freed(group);
                }
                if let Some(request) = self.first_handle(&values, Role::Request) {
                    self.requests.freed(request);
                }
            }
            _ => {}
        }
        decoded.unreadable |= values.unreadable;
        decoded
    }

    fn exit(&mut self, function: &Function, raw: &RawCall<'_>, result: i64, out: Option<u64>, context: &dyn Context) {
        // An int result: its upper half means nothing.
        let Some(out) = out.filter(|_| result as i32 == 0) else { return };
        let values = Values::new(function, raw, self.handles.width());
        if function.arg(Role::NewGroup).is_some() {
            let world = context.comm_size().filter(|_| self.is_world(&values, context));
            self.groups.made(function, &values, out, world);
        } else if function.arg(Role::NewHandle).is_some() {
            self.types.made(function, &values, out, &mut self.handles, context);
        } else if function.traits.persistent_init {
            let Some(comm) = values.get(Role::Comm) else { return };
            let decoded = self.enter(function, raw, context);
            self.requests.made(out, Started { comm, function: *function, decoded });
        } else if function.op.kind() == OpKind::CommCreate {
            self.learn_grid(function, &values, out, context);
        }
    }

    fn started(&mut self, function: &Function, raw: &RawCall<'_>, _: &dyn Context) -> Vec<Started> {
        if function.traits.starts { self.requests.started(&self.requests(function, raw)) } else { Vec::new() }
    }

    fn requests(&self, function: &Function, raw: &RawCall<'_>) -> Vec<u64> {
        let values = Values::new(function, raw, self.handles.width());
        if values.has(Role::Requests) {
            let count = values.get(Role::Extent).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            return values.array_prefix(Role::Requests, count);
        }
        self.first_handle(&values, Role::Request).into_iter().collect()
    }

    fn take_types(&mut self) -> Vec<TypeDef> {
        self.types.take()
    }

    fn predefined(&self, handle: u64, context: &dyn Context) -> Option<Predefined> {
        match self.handles.communicator(handle, context) {
            CommHandle::World => {
                Some(Predefined { name: "world", identity: CommIdentity::root(super::MPI.name, b"world"), world: true })
            }
            CommHandle::Itself => Some(Predefined { name: "self", identity: CommIdentity::UNKNOWN, world: false }),
            CommHandle::Null | CommHandle::Made => None,
        }
    }

    fn is_null_comm(&self, handle: u64, context: &dyn Context) -> bool {
        self.handles.communicator(handle, context) == CommHandle::Null
    }
}
