//! Sends and receives wait for one another in a circle.

use rankdiff_trace::Op;

use super::cycles::{self, Sort};
use super::{Check, Meta, Rule, report};
use crate::align::Alignment;
use crate::finding::{Class, Confidence, Severity};
use crate::waits::{Cycle, Place};

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
            if super::p2p_mismatch::wrong_address(alignment, cycle).is_some()
                || super::p2p_mismatch::passed_by(alignment, cycle)
            {
                continue;
            }
            let mut raw = cycles::finding(alignment, cycle, &META, Rule::Cycle);
            raw.finding.detail.extend(without_partner(alignment, cycle));
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

/// The one call of the circle that nobody has made the other end of, where all others have theirs.
fn without_partner(alignment: &Alignment<'_>, cycle: &Cycle) -> Option<String> {
    let places = || cycle.instances.iter().filter_map(|&at| alignment.waits.instances.get(at)).map(|one| one.place);
    let mut singles = places().filter_map(|place| match place {
        Place::Message(at) => alignment.messages.singles.get(at),
        _ => None,
    });
    let single = singles.next().filter(|_| singles.next().is_none())?;
    let paired = places().all(|place| matches!(place, Place::Message(_) | Place::Transfer));
    let (what, other) = if single.end.call.op == Op::Send { ("send to", "receive") } else { ("receive from", "send") };
    paired.then(|| {
        format!(
            "only the {what} rank {} on rank {} has no {other}: every other call of the circle has its partner",
            single.peer, single.end.rank
        )
    })
}
