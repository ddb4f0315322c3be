//! Calls with equal signatures that mean different things.

use rankdiff_trace::RankSet;

use super::report;
use super::{Check, Meta};
use crate::diverge::Kind;
use crate::finding::{Class, Confidence, Severity};
use crate::words::Who as _;

const META: Meta = Meta {
    code: "D011",
    name: "logical-mismatch",
    severity: Severity::Error,
    class: Class::LogicalMismatch,
    summary: "calls that fit each other come from code, or name arguments, that never met before",
    doc: "\
## What
The calls agree in everything a library compares, but their call sites, or the names of their arguments, are ones that
do not belong together: elsewhere each meets only itself.

## Why
Nothing hangs and nothing fails. One rank's validation loss is added to another's training loss.

## Example
    for name, value in metrics.items():    # 'acc' only exists on ranks that had samples
        all_reduce(value)

## How to fix
Reduce a fixed list of names on all ranks; give missing values a neutral element. If the two sites are meant to meet (one
rank takes another path to the same call on purpose), ignore this check.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        report::each(
            alignment,
            &META,
            found,
            |divergence| matches!(divergence.kind, Kind::Meaning { .. }),
            |divergence, finding| {
                let Kind::Meaning { exclusive, run } = divergence.kind else { return };
                if !exclusive && run < 2 {
                    finding.severity = Severity::Warning;
                }
                finding.confidence = Confidence::Low;
                let sites: Vec<String> = finding
                    .sides
                    .iter()
                    .filter_map(|side| Some(format!("{} on {}", side.call.as_ref()?.site, side.ranks.who())))
                    .collect();
                finding.headline =
                    format!("call {} has one signature but two meanings: {}", divergence.visible, sites.join(", "));
                let text =
                    if exclusive { "elsewhere each of these only meets itself" } else { "this pair never met before" };
                finding.evidence.push(report::fact("call_sites", RankSet::new(), text));
            },
        );
    },
};
