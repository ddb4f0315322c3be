//! Blocking and non-blocking forms of one operation meet where the library does not match them.

use super::report;
use super::{Check, Meta};
use crate::align::What;
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D009",
    name: "form-mismatch",
    severity: Severity::Error,
    class: Class::CodeDivergence,
    summary: "some members call the blocking form and others the non-blocking or persistent form",
    doc: "\
## What
All members call one operation, but not in one form: blocking here, non-blocking or persistent there.

## Why
Where a library says that the forms do not match, the call is erroneous: it may hang, or pair with a later call.

## Example
    if (rank == 0) MPI_Ibarrier(comm, &request);
    else           MPI_Barrier(comm);

## How to fix
Use the same form on all members.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| divergence.kind == Kind::OtherCall && divergence.what == What::Form,
            |_, finding| finding.detail.insert(0, "blocking and non-blocking forms do not match each other".to_owned()),
        );
    },
};
