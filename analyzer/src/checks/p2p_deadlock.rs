//! Sends and receives wait for one another in a circle.

use super::cycles::{self, Sort};
use super::{Check, Meta, Rule, report};
use crate::finding::{Class, Confidence, Severity};

const META: Meta = Meta {
    code: "P001",
    name: "p2p-deadlock",
    severity: Severity::Error,
    class: Class::P2pDeadlock,
    summary: "sends and receives wait for one another in a circle",
    doc: "\
## What
Ranks wait in sends or receives (and perhaps collectives) for partners that wait themselves, in a circle.

## Why
A send that does not fit the transport's buffer returns only when the receive was posted. If all send first, none receives.

## Example
    send(x, (rank + 1) % n)        # everybody sends first
    recv(y, (rank - 1) % n)

## How to fix
Let even ranks send first and odd ranks receive first, use a combined send-receive, non-blocking forms, or one batch.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        for cycle in cycles::of_sort(alignment, Sort::Message) {
            if super::p2p_mismatch::wrong_address(alignment, &cycle).is_some()
                || super::p2p_mismatch::passed_by(alignment, &cycle)
            {
                continue;
            }
            let mut raw = cycles::finding(alignment, &cycle, &META, Rule::Cycle);
            if alignment.waits.by_sends {
                raw.finding.confidence = raw.finding.confidence.min(Confidence::Medium);
                raw.finding.detail.push(
                    "calls of one stream run in order, so no receive starts before the send in front of it ends"
                        .to_owned(),
                );
                raw.finding.evidence.extend(report::stands_still(alignment));
            }
            found.push(raw);
        }
    },
};
