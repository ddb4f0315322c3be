//! Calls that were made and are not in the record.

use super::{Check, Meta, Raw, Rule, blank};
use crate::coverage;
use crate::finding::{Class, Severity};
use crate::words::Who as _;
use rankdiff_trace::RankSet;

const META: Meta = Meta {
    code: "Q001",
    name: "lost-events",
    severity: Severity::Note,
    class: Class::Clean,
    summary: "calls were made that are not in the record",
    doc: "\
## What
The record has gaps: calls lost in a full buffer, a recorder attached late, a torn file, a full disk, calls that `--keep`
dropped.

## Why
A call that was not seen is not a missing call. Gaps limit what can be said, and the report says how far.

## Example
    rank 3: 57 calls lost in a full ring buffer, after call 119 of the rank

## How to fix
Record from the start of the job, with larger buffers, on a disk with room.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        let gaps = coverage::gaps(alignment);
        if gaps.is_empty() {
            return;
        }
        let mut finding = blank(&META);
        let ranks: RankSet = gaps.iter().flat_map(|gap| gap.ranks.iter().collect::<Vec<_>>()).collect();
        finding.headline = format!("the record of {} has gaps", ranks.who());
        finding.evidence = gaps;
        found.push(Raw { finding, rule: Rule::Note, at: 0, roots: RankSet::new(), open: false, comm: None });
    },
};
