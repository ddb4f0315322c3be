//! Blocking sends that only return because the transport buffers them.

use rankdiff_trace::RankSet;

use super::{Check, Meta, Raw, Rule, blank, report};
use crate::finding::{Class, Severity, Side};
use crate::rendezvous;
use crate::words::{Who as _, call_text};

const META: Meta = Meta {
    code: "W001",
    name: "unbuffered-sends",
    severity: Severity::Warning,
    class: Class::P2pDeadlock,
    summary: "blocking sends that wait for one another unless the transport buffers them",
    doc: "\
## What
The run passed, but replayed with sends that return only when their receive is posted, ranks wait for one another.

## Why
Whether a send is buffered depends on its size, the library, its settings and the load. With larger messages, or on another
machine, the same program hangs.

## Example
    MPI_Send(x, n, MPI_DOUBLE, right, 0, comm);     /* everybody sends first */
    MPI_Recv(y, n, MPI_DOUBLE, left, 0, comm, &st);

## How to fix
Use MPI_Sendrecv, non-blocking forms, or let even and odd ranks take turns.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        let held = rendezvous::held(alignment);
        let Some(first) = held.sends.first() else { return };
        let mut finding = blank(&META);
        let comm = alignment.comm(first.comm);
        finding.group = comm.map(|comm| comm.reference());
        let ranks = held.senders();
        for held in held.sends.iter().take(8) {
            let Some(call) = alignment.attempt.streams.get(held.stream).and_then(|stream| stream.calls.get(held.call))
            else {
                continue;
            };
            let call = call_text(alignment, alignment.comm(held.comm), held.stream, call);
            finding.sides.push(Side { ranks: RankSet::from_iter([held.rank]), call: Some(call), state: String::new() });
        }
        finding.headline = if held.others.is_empty() {
            format!("{} send to each other before they receive: it passed because the sends were buffered", ranks.who())
        } else {
            let verb = if ranks.len() == 1 { "sends" } else { "send" };
            let wait = if held.others.len() == 1 { "waits" } else { "wait" };
            format!(
                "{} {verb} to ranks that receive only behind a call in which {} {wait} for them: it passed because the sends were buffered",
                ranks.who(),
                held.others.who()
            )
        };
        finding.detail.push("with larger messages or another transport this is a deadlock".to_owned());
        if let Some(comm) = comm {
            finding.confidence = report::confidence(alignment, first.comm, comm);
        }
        found.push(Raw {
            finding,
            rule: Rule::Note,
            at: 0,
            roots: RankSet::new(),
            open: false,
            comm: Some(first.comm),
        });
    },
};
