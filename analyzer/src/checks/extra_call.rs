//! A minority made calls that the majority did not and is out of step since.

use super::report;
use super::{Check, Meta};
use crate::diverge::Kind;
use crate::finding::{Class, Severity};
use crate::words::{Who as _, counted};

const META: Meta = Meta {
    code: "D003",
    name: "extra-call",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "members made calls that the others did not, and are out of step since",
    doc: "\
## What
Some members agree with the others once a few of their calls are taken out: they made calls of their own. Where call sites
or step marks tell, the report says at which call that was.

## Why
Every later call of these members meets a later one of the others. Calls of equal size hide it; their results are wrong.

## Example
    if rank == 0 and step % 100 == 0:
        log(all_reduce(loss))      # a collective in rank-dependent code

## How to fix
Take the collective out of the condition, and only the logging into it. Everything computed since is void.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| matches!(divergence.kind, Kind::Extra(_)),
            |divergence, finding| {
                let Kind::Extra(calls) = divergence.kind else { return };
                let who = report::minority(alignment, divergence);
                let text = format!("{} made {} more than the others", who.who(), counted(calls, "call"));
                report::shifted(divergence, finding, &text);
            },
        );
    },
};
