//! Members ask for different reductions in one call.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D006",
    name: "redop-mismatch",
    severity: Severity::Error,
    class: Class::ParameterMismatch,
    summary: "members ask for different reductions in one call",
    doc: "\
## What
All members make the same call, but some ask for another reduction (sum here, maximum there).

## Why
No library notices. Each part of the data is reduced by whichever member happens to do it: silent corruption that can
differ from run to run.

## Example
    all_reduce(metric, op=ReduceOp.MAX if is_best else ReduceOp.SUM)

## How to fix
Take the choice of the reduction from something that is equal on all members.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherArgument && divergence.what == What::Redop,
            |_, _| {},
        );
    },
};
