//! Members pass different element types to one call.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D005",
    name: "dtype-mismatch",
    severity: Severity::Error,
    class: Class::ParameterMismatch,
    summary: "members pass different element types to one call",
    doc: "\
## What
All members make the same call, but the elements have different types on some of them.

## Why
Bits of one type are taken for another. Where sizes are equal nothing fails and nothing hangs: the numbers are wrong.

## Example
    loss = loss.bfloat16() if rank == 0 else loss
    all_reduce(loss)

## How to fix
Convert on all members or on none. Autocast contexts that only some ranks enter are the usual cause.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherArgument && divergence.what == What::Dtype,
            |_, _| {},
        );
    },
};
