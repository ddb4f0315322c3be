//! A rank that others wait for is asleep or stopped.

use super::lates::{each, millis, missing_phrase};
use super::{Check, Meta};
use crate::finding::{Class, Severity};
use crate::state::Activity;
use crate::words::Who as _;

const META: Meta = Meta {
    code: "S002",
    name: "host-stall",
    severity: Severity::Warning,
    class: Class::HostStall,
    summary: "a rank that others wait for sleeps on a lock or a queue, or is stopped",
    doc: "\
## What
The rank that has not come is in no collective and uses no CPU: its thread sleeps on a lock, a queue or a pipe, or a
debugger or signal has stopped it.

## Why
Something outside the collectives holds it: a data loader that died, a lock taken twice, a file system, a terminal.

## Example
    main thread sleeping in futex: in queue.get>wait

## How to fix
Look at the stack that is printed, and at what should wake it.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        each(alignment, &META, found, &[Activity::Asleep, Activity::Stopped], |late, raw| {
            let what = if late.activity == Activity::Stopped {
                "stopped, by a signal or a debugger"
            } else {
                "asleep outside any collective"
            };
            let verb = if late.roots.len() == 1 { "is" } else { "are" };
            raw.finding.late = late.roots.clone();
            raw.finding.late_ms = Some(millis(late.by));
            raw.finding.headline = format!("{} {verb} {what}", late.roots.who());
            raw.finding.detail.push(missing_phrase(alignment, late));
            if alignment.deaths.watchdog {
                raw.finding.severity = Severity::Error;
                raw.finding.detail.push("the job's own time-out has passed".to_owned());
            }
        });
    },
};
