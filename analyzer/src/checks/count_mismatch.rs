//! Members pass different element counts to one call.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D004",
    name: "count-mismatch",
    severity: Severity::Error,
    class: Class::ParameterMismatch,
    summary: "members pass different element counts to one call",
    doc: "\
## What
All members make the same call, but with unequal numbers of elements (after derived types are flattened).

## Why
Most libraries do not check. The call hangs, fails on some ranks, or returns with some elements wrong: silent corruption.

## Example
    tail = numel % world_size          # forgot that the last bucket is padded on rank 0 only
    all_reduce(flat[:numel - tail])

## How to fix
Compute the size from what all members share. If the call belongs to a gradient bucket, the model or its graph differs
between ranks: compare the lists of parameters.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherArgument && divergence.what == What::Count,
            |divergence, finding| report::buckets(alignment, divergence, finding),
        );
    },
};
