//! Members name different roots in one call.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D007",
    name: "root-mismatch",
    severity: Severity::Error,
    class: Class::ParameterMismatch,
    summary: "members name different roots in one call",
    doc: "\
## What
All members make the same rooted call (broadcast, reduce, gather, scatter), but name different roots.

## Why
Nobody sends what others wait for, or two send at once: the call hangs or delivers another member's data.

## Example
    broadcast(config, src=dist.get_rank(group))     # a rank in the group where a global rank is expected

## How to fix
Pass one root on all members. In torch `src` and `dst` are global ranks unless `group_src`/`group_dst` are used.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherArgument && divergence.what == What::Root,
            |divergence, finding| report::root_pattern(alignment, divergence, finding),
        );
    },
};
