//! A rank that others wait for is late, and at work.

use super::lates::{each, millis, missing_phrase, severity};
use super::{Check, Meta};
use crate::finding::{Class, Severity};
use crate::state::Activity;
use crate::words::{Who as _, duration};

const META: Meta = Meta {
    code: "S001",
    name: "straggler",
    severity: Severity::Warning,
    class: Class::Straggler,
    summary: "a rank that others wait for is late, and at work",
    doc: "\
## What
Members wait in a call for a rank that has not come yet. That rank uses the CPU, reads or writes files, or has children at
work: it is late, not stuck.

## Why
The others' time-out does not know that. When it passes, the ranks that waited are ended and look like the failed ones.

## Example
    if rank == 0:
        dataset = dataset.map(tokenize)      # 20 minutes
    dist.barrier()                           # times out after 10

## How to fix
Do long preparation before the job, share it between ranks, or raise the time-out for that barrier.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        each(alignment, &META, found, &[Activity::Working], |late, raw| {
            raw.finding.late = late.roots.clone();
            raw.finding.late_ms = Some(millis(late.by));
            let verb = if late.roots.len() == 1 { "is" } else { "are" };
            let by = duration(millis(late.by));
            raw.finding.headline = if late.came {
                format!("{} came late by {by}, when others had given up waiting", late.roots.who())
            } else if late.ended {
                format!("{} came late by {by} or more, still running when ended", late.roots.who())
            } else {
                format!("{} {verb} late by {by}, still running", late.roots.who())
            };
            raw.finding.severity = severity(alignment, late);
            raw.finding.detail.push(missing_phrase(alignment, late));
            if alignment.deaths.watchdog {
                raw.finding
                    .detail
                    .push("the job's own time-out has passed: the ranks that waited were ended by it".to_owned());
            }
        });
    },
};
