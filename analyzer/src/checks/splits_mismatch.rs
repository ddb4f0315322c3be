//! What one member sends another is not what that one expects.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D008",
    name: "splits-mismatch",
    severity: Severity::Error,
    class: Class::ParameterMismatch,
    summary: "what one member sends to another is not what that one expects",
    doc: "\
## What
In a vector form each pair of members must agree on the number of elements between them. Different vectors on
different members are normal; a pair that disagrees is not.

## Why
The receiver waits for elements that never come, or gets more than it has room for.

## Example
    out = all_to_all_single(x, input_split_sizes=mine, output_split_sizes=stale)

## How to fix
Exchange the sizes first (an all_to_all of the counts) and use what came.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherArgument && divergence.what == What::Splits,
            |divergence, finding| report::pairs(alignment, divergence, finding),
        );
    },
};
