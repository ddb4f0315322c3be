//! Members make the same calls on one communicator in another order.

use rankdiff_trace::RankSet;

use super::report;
use super::{Check, Meta};
use crate::diverge::Kind;
use crate::finding::{Class, Severity};

const META: Meta = Meta {
    code: "D010",
    name: "reordered-calls",
    severity: Severity::Error,
    class: Class::OrderInversion,
    summary: "members make the same calls on one communicator in another order",
    doc: "\
## What
Within a few positions the members of a communicator make the same calls, but not in the same order.

## Why
Calls are paired by position. Two members that swap two calls wait for each other for ever, or exchange the wrong data.

## Example
    for name in {'stress', 'forces'}:      # a set: its order differs between processes
        all_reduce(outputs[name])

Two threads that share one communicator do the same, now and then.

## How to fix
Sort before looping over sets, dictionaries or files. One thread per communicator, or a lock around the issue of calls.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| matches!(divergence.kind, Kind::Reordered { .. }),
            |divergence, finding| {
                let Kind::Reordered { width, several_threads } = divergence.kind else { return };
                finding.headline = format!("{}; the same {width} calls in another order", finding.headline);
                finding.detail.insert(
                    0,
                    format!(
                        "calls {}-{} are the same calls on all sides, in another order (order inversion)",
                        divergence.visible,
                        divergence.visible + width - 1
                    ),
                );
                if several_threads {
                    let text =
                        "the reordered calls come from different threads of one rank: two threads on one communicator";
                    finding.evidence.push(report::fact("threads", RankSet::new(), text));
                }
            },
        );
    },
};
