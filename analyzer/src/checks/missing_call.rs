//! A minority lacks calls that the majority made and is out of step since.

use super::report;
use super::{Check, Meta};
use crate::diverge::Kind;
use crate::finding::{Class, Severity};
use crate::words::counted;

const META: Meta = Meta {
    code: "D002",
    name: "missing-call",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "members lack calls that the others made, and are out of step since",
    doc: "\
## What
Some members agree with the others once a few calls are put in: they left calls out. Where call sites or step marks tell,
the report says at which call that was, which is often long before anything looked wrong.

## Why
Calls of equal size hide a shift: every later call of these members meets an earlier one of the others, and sums up
numbers that do not belong together, until a call of another kind shows it, or never.

## Example
    loss.backward()
    if loss.isnan():        # true on one rank only
        continue            # skips the all_reduce of the gradient norm
    all_reduce(grad_norm)

## How to fix
Decide together whether to skip: reduce the flag first. Everything computed since the first divergence is void.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| matches!(divergence.kind, Kind::Lacks(_)),
            |divergence, finding| {
                let Kind::Lacks(calls) = divergence.kind else { return };
                let who = report::minority(alignment, divergence);
                let verb = if who.len() == 1 { "lacks" } else { "lack" };
                let text = format!("{} {verb} {}", who.phrase(), counted(calls, "call"));
                report::shifted(divergence, finding, &text);
            },
        );
    },
};
