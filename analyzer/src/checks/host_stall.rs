//! A rank that others wait for is asleep or stopped.

use super::lates::{each, millis, missing_phrase, severity};
use super::report;
use super::{Check, Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::finding::{Class, Severity};
use crate::index::Progress;
use crate::state::Activity;
use crate::steps::Rhythm;
use crate::words::{Who as _, absent_side, duration};

const META: Meta = Meta {
    code: "S002",
    name: "host-stall",
    severity: Severity::Warning,
    class: Class::HostStall,
    summary: "a rank that others wait for sleeps on a lock or a queue, or is stopped",
    doc: "\
## What
The rank that has not come is in no collective and uses no CPU: its thread sleeps on a lock, a queue or a pipe, or a
debugger or signal has stopped it. Or no rank is inside a call at all, and yet the steps have stopped: all of them sleep, for
more than twice as long as the job has ever paused.

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
            let verb = match (late.ended, late.roots.len()) {
                (false, 1) => "is",
                (false, _) => "are",
                (true, 1) => "was",
                (true, _) => "were",
            };
            raw.finding.late = late.roots.clone();
            raw.finding.late_ms = Some(millis(late.by));
            raw.finding.headline = format!("{} {verb} {what}", late.roots.who());
            raw.finding.detail.push(missing_phrase(alignment, late));
            raw.finding.severity = severity(alignment, late);
            if alignment.deaths.watchdog {
                raw.finding.detail.push("the job's own time-out has passed".to_owned());
            }
        });
        found.extend(all_rest(alignment));
    },
};

/// Nothing is pending anywhere, every rank sleeps, and the steps that the job did before have stopped.
fn all_rest(alignment: &Alignment<'_>) -> Option<Raw> {
    let quiet = alignment.quiet.as_ref().filter(|quiet| quiet.rests && quiet.live.len() > 1)?;
    let waits = &alignment.waits;
    let told = !waits.instances.is_empty()
        || !waits.stuck.is_empty()
        || !waits.transfers.is_empty()
        || !alignment.deaths.roots.is_empty()
        || alignment.divergences.iter().any(|one| one.open)
        || alignment.messages.misfits.iter().any(|misfit| misfit.recv.progress != Progress::Done);
    // Ranks that have ended by themselves, or of which there is no record, may be what is waited for.
    let everybody = alignment.attempt.world.is_none_or(|world| quiet.live.len() == world as usize)
        && alignment.states.iter().all(|state| quiet.live.contains(state.rank));
    let tracks = || (0..alignment.comms.list.len()).flat_map(|at| alignment.tracks(at));
    let complete = tracks().filter_map(|track| track.entries.last()).all(|entry| entry.progress == Progress::Done);
    let steps = tracks().filter_map(|track| Rhythm::before(track, track.end()).map(|rhythm| rhythm.count(track.end())));
    if told || !everybody || !complete || steps.max().unwrap_or(0) < STEPS {
        return None;
    }
    let mut finding = blank(&META);
    let ended = quiet.live.iter().filter_map(|rank| alignment.state_of(rank)).all(|state| state.is_gone());
    if ended {
        finding.severity = Severity::Error;
        finding.collateral_exits = alignment.deaths.collateral.clone();
    }
    finding.late = quiet.live.clone();
    finding.late_ms = Some(millis(quiet.by));
    let did = if ended { "had made" } else { "have made" };
    finding.headline = format!(
        "no call is pending, and {} {did} none for {}: the steps have stopped outside any collective",
        quiet.live.who(),
        duration(millis(quiet.by))
    );
    finding.detail.push("host streams agree on all communicators, and every call is complete".to_owned());
    report::activities(alignment, &quiet.live, &mut finding);
    for evidence in &finding.evidence {
        finding.sides.push(absent_side(
            evidence.ranks.clone(),
            evidence.text.split(": ").next().unwrap_or(&evidence.text).to_owned(),
        ));
    }
    let at = alignment.states.iter().map(|state| state.horizon).min()?.saturating_sub(quiet.by);
    let roots = quiet.live.clone();
    Some(Raw { finding, rule: Rule::Device, at, roots, open: true, comm: None })
}

/// Fewer whole steps than this are no habit that could have stopped.
const STEPS: u64 = 3;
