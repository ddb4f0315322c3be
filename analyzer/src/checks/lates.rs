//! Ranks that are waited for and alive: what the checks about them have in common.

use rankdiff_trace::RankSet;

use super::report::{self, fact};
use super::{Meta, Raw, Rule, blank};
use crate::align::Alignment;
use crate::common;
use crate::finding::Severity;
use crate::lateness::Late;
use crate::state::Activity;
use crate::waits::Place;
use crate::words::{Who as _, absent_side, duration};

/// Findings about late ranks of one activity.
pub(super) fn each(
    alignment: &Alignment<'_>,
    meta: &'static Meta,
    found: &mut Vec<Raw>,
    activities: &[Activity],
    more: impl Fn(&Late, &mut Raw),
) {
    for late in alignment.late.iter().filter(|late| activities.contains(&late.activity)) {
        if let Some(mut raw) = of_late(alignment, late, meta) {
            more(late, &mut raw);
            found.push(raw);
        }
    }
}

fn of_late(alignment: &Alignment<'_>, late: &Late, meta: &Meta) -> Option<Raw> {
    let instance = alignment.waits.instances.get(late.instance)?;
    let mut finding = blank(meta);
    let comm = instance.comm.and_then(|comm| alignment.comm(comm));
    finding.group = comm.map(|comm| comm.reference());
    finding.first_visible = match instance.place {
        Place::Collective(pos) => Some(pos),
        _ => None,
    };
    finding.sides = report::waiting_sides(alignment, instance);
    for rank in late.roots.iter() {
        let state = if late.came {
            format!("came {} after the first", duration(millis(late.by)))
        } else {
            report::elsewhere(alignment, rank, instance.comm)
        };
        match finding.sides.iter_mut().find(|side| side.call.is_none() && side.state == state) {
            Some(side) => {
                side.ranks.insert(rank);
            }
            None => finding.sides.push(absent_side(RankSet::from_iter([rank]), state)),
        }
    }
    finding.suspects = late.roots.clone();
    report::held_by(alignment, &late.roots, &mut finding);
    finding.evidence.extend(late.facts.iter().map(|(ranks, text)| fact("thread", ranks.clone(), text.clone())));
    finding.evidence.extend(report::endings(alignment, &alignment.deaths.collateral));
    finding.evidence.extend(report::same_call_elsewhere(alignment, instance));
    let members = comm.map(|comm| comm.ranks()).unwrap_or_default();
    finding.common = common::shared(alignment, &late.roots, &members);
    if let (Some(at), Some(comm)) = (instance.comm, comm) {
        finding.confidence = report::confidence(alignment, at, comm);
    }
    Some(Raw {
        finding,
        rule: Rule::Wait,
        at: instance.since,
        roots: late.roots.clone(),
        open: true,
        comm: instance.comm,
    })
}

/// What the waiters wait in, and how long the others are known to be missing.
pub(super) fn missing_phrase(alignment: &Alignment<'_>, late: &Late) -> String {
    let Some(instance) = alignment.waits.instances.get(late.instance) else { return String::new() };
    let call = instance.waiters.first().map(|waiter| report::waiter_text(alignment, instance, waiter));
    let place = call.map(|call| report::place_phrase(alignment, instance, &call)).unwrap_or_default();
    let waiters = instance.waiting();
    if late.came {
        return format!(
            "{} had not entered {place} when {}, which waited there, had ended",
            late.roots.who(),
            waiters.who()
        );
    }
    let verb = if late.roots.len() == 1 { "has" } else { "have" };
    let wait = if waiters.len() == 1 { "waits" } else { "wait" };
    format!(
        "{} {verb} not entered {place}, where {} {wait} for {}",
        late.roots.who(),
        waiters.who(),
        duration(millis(late.by))
    )
}

/// Lateness alone is a warning; once the job has given up waiting, or the rank is gone, nobody comes any more.
pub(super) fn severity(alignment: &Alignment<'_>, late: &Late) -> Severity {
    if alignment.deaths.watchdog || late.ended || late.came { Severity::Error } else { Severity::Warning }
}

/// ns as ms.
pub(super) fn millis(ns: i64) -> u64 {
    u64::try_from(ns / 1_000_000).unwrap_or(0)
}
