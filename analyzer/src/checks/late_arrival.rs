//! A rank came late to a call that then completed.

use rankdiff_trace::RankSet;

use super::lates::millis;
use super::{Check, Meta, Raw, Rule, blank, report};
use crate::finding::{Class, Severity};
use crate::index::Track;
use crate::steps;
use crate::words::{Who as _, duration};

const META: Meta = Meta {
    code: "S003",
    name: "late-arrival",
    severity: Severity::Note,
    class: Class::Straggler,
    summary: "a rank came late to a call that then completed",
    doc: "\
## What
All members entered the call and it completed, but one came so late that the others waited for long.

## Why
Nothing is wrong, but the time is lost on every other rank, and a shorter time-out would have ended the job.

## Example
    rank 0 came 95 s after the others to call 150

## How to fix
Look at what that rank did before the call: preparation or checkpoints that only one rank does.
",
};

pub(super) const CHECK: Check = Check {
    meta: &META,
    run: |alignment, found| {
        for (at, compared) in alignment.compared.iter().enumerate() {
            let Some((late, pos, track)) = compared.latest.filter(|latest| latest.0 >= alignment.options.stall_ns())
            else {
                continue;
            };
            let (Some(comm), Some(track)) = (alignment.comm(at), alignment.track(at, track)) else { continue };
            let mut finding = blank(&META);
            finding.group = Some(comm.reference());
            finding.first_visible = Some(pos);
            finding.step = steps::position(track, pos);
            // Several may have come last together, as far as their clocks tell.
            let moment = |track: &Track<'_>| {
                let (stream, entry) = (alignment.attempt.streams.get(track.stream)?, track.at(pos)?);
                Some((stream, entry.call.enter))
            };
            let last = moment(track);
            let together = alignment.tracks(at).iter().filter(|other| {
                moment(other).zip(last).is_some_and(|((stream, enter), (by, latest))| {
                    let doubt = stream.clock.doubt_between(enter, &by.clock, latest);
                    by.time(latest).saturating_sub(stream.time(enter)) <= doubt
                })
            });
            finding.late = together.map(|track| track.rank).collect();
            finding.late_ms = Some(millis(late));
            finding.confidence = report::confidence(alignment, at, comm);
            // What the clocks of several machines may be apart is left out of it.
            let least = if alignment.attempt.clocks.is_some() { "at least " } else { "" };
            finding.headline = format!(
                "{} came {least}{} after the first to call {pos}, which then completed",
                finding.late.who(),
                duration(millis(late))
            );
            found.push(Raw { finding, rule: Rule::Note, at: 0, roots: RankSet::new(), open: false, comm: Some(at) });
        }
    },
};
