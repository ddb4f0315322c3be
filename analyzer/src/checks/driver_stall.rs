//! Ranks that others wait for are stuck in a device driver.

use super::lates::{each, missing_phrase};
use super::{Check, Meta};
use crate::finding::{Class, Severity};
use crate::state::Activity;
use crate::words::Who as _;

const META: Meta = Meta {
    code: "H003",
    name: "driver-stall",
    severity: Severity::Error,
    class: Class::DriverStall,
    summary: "ranks that others wait for are stuck in a device driver",
    doc: "\
## What
The ranks that have not come are in no collective: a thread of theirs is in uninterruptible sleep, or makes one system
call on a device node again and again, each taking seconds or failing.

## Why
The program's calls are in order; the driver, the device or its firmware does not answer.

## Example
    main thread blocked in ioctl 0xc0104b05 on /dev/gpu0: 27 times, 10.24 s each, result ETIMEDOUT

## How to fix
Look at the kernel's log and the device's health on that host; other processes on the same device; driver and firmware
versions. Restarting the job there without a reset usually hangs again.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        each(alignment, &META, found, &[Activity::Driver], |late, raw| {
            raw.finding.stalled = late.roots.clone();
            let fact = late.facts.first().map(|(_, text)| format!(": {text}")).unwrap_or_default();
            raw.finding.headline = format!("{} stalled in a device driver{fact}", late.roots.who());
            raw.finding.detail.push(missing_phrase(alignment, late));
            raw.finding.detail.push("the ranks' calls agree as far as they go: this is no divergence".to_owned());
        });
    },
};
