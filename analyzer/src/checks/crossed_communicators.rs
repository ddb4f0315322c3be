//! Ranks enter collectives of several communicators in different orders and wait for one another.

use super::cycles::{self, Sort};
use super::{Check, Meta, Rule, report};
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "H001",
    name: "crossed-communicators",
    severity: Severity::Error,
    class: Class::OrderInversion,
    summary: "ranks use several communicators in different orders and wait for one another in a circle",
    doc: "\
## What
Each communicator sees one order of calls, but the ranks enter the communicators in different orders. The waits form a
circle, printed once from the rank that waited first.

## Why
A call that blocks its thread keeps the rank from entering the call that others wait for. In a circle nobody can go on.

## Example
    rank 0: all_reduce(tensor_parallel); all_reduce(data_parallel)
    rank 1: all_reduce(data_parallel);   all_reduce(tensor_parallel)

## How to fix
Use the communicators in one order on all ranks, or issue calls that do not block on streams of their own. No rank of the
circle is wrong alone.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        for cycle in cycles::of_sort(alignment, Sort::Collectives) {
            let mut raw = cycles::finding(alignment, cycle, &META, Rule::Cycle);
            raw.finding.detail.push(
                "each communicator sees one order of calls; the ranks enter the communicators in different orders"
                    .to_owned(),
            );
            raw.finding.evidence.extend(report::stands_still(alignment));
            found.push(raw);
        }
    },
};
