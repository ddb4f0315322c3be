//! Members of one communicator call different operations at one position.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D001",
    name: "op-mismatch",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "members of one communicator make different calls at one position",
    doc: "\
## What
The n-th call of every member of a communicator must be one and the same collective. Here some members call another
operation, or reach other code whose call does not fit.

## Why
A collective has no name on the wire: libraries pair the n-th call of one member with the n-th of the others. Different
calls at one position hang, or mix their data up and return.

## Example
    if rank == 0:
        validate(ddp_model)        # its forward broadcasts buffers
    dist.barrier()                 # the others are here

## How to fix
Make the condition that leads to the call equal on all members: derive it from a step counter that all share, broadcast
the decision, or call the unwrapped module where only one rank works. The call sites of both sides are where to look.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherCall && divergence.what != What::Form,
            |_, _| {},
        );
    },
};
