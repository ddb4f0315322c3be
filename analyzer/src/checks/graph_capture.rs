//! Calls inside captured graphs are not seen when the graph runs.

use super::{Check, Meta, Raw, Rule, blank};
use crate::finding::{Class, Severity};
use crate::words::Who as _;
use rankdiff_trace::RankSet;

const META: Meta = Meta {
    code: "Q002",
    name: "blind-inside-graphs",
    severity: Severity::Note,
    class: Class::Clean,
    summary: "collectives were captured into a graph and are not seen when it runs",
    doc: "\
## What
Calls were made while a device graph was captured. They were not executed then, and are not calls of the host when the graph
is replayed.

## Why
The report is blind inside graphs: a divergence in there shows only at the next call outside.

## Example
    with torch.cuda.graph(g):
        all_reduce(x)

## How to fix
Record a run without graph capture to look inside.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        let ranks: RankSet = alignment.index.captured.iter().copied().collect();
        if ranks.is_empty() {
            return;
        }
        let mut finding = blank(&META);
        finding.headline = format!("{} captured collectives into graphs: blind inside graphs", ranks.who());
        found.push(Raw { finding, rule: Rule::Note, at: 0, roots: RankSet::new(), open: false, comm: None });
    },
};
