//! Wait cycles: what the checks about them have in common.

use rankdiff_trace::{Op, RankSet};

use super::{Meta, Raw, Rule, blank, report};
use crate::align::Alignment;
use crate::awaited::{self, Odd};
use crate::diverge::is_epilogue;
use crate::finding::Side;
use crate::merged::{self, Departure, Deviation};
use crate::waits::{Cycle, Instance, Place};

/// What a cycle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A communicator's creation is in it.
    Creation,
    /// A send or receive is in it.
    Message,
    /// One rank has left the loop.
    LoopLeft,
    /// One rank left a call out or made one more.
    Deviation,
    /// Collectives on several communicators.
    Collectives,
}

/// Cycles that are certain, of one sort.
pub(super) fn of_sort<'b>(alignment: &'b Alignment<'_>, sort: Sort) -> impl Iterator<Item = &'b Cycle> {
    let sorted = alignment.cycles.get_or_init(|| {
        let certain = |cycle: &Cycle| is_certain(alignment, cycle);
        let cycles = alignment.waits.cycles(alignment).into_iter().filter(certain);
        cycles.map(|cycle| (sort_of(alignment, &cycle), cycle)).collect()
    });
    sorted.iter().filter(move |(own, _)| *own == sort).map(|(_, cycle)| cycle)
}

fn instances<'w, 'a>(alignment: &'w Alignment<'a>, cycle: &Cycle) -> Vec<&'w Instance<'a>> {
    cycle.instances.iter().filter_map(|&at| alignment.waits.instances.get(at)).collect()
}

fn sort_of(alignment: &Alignment<'_>, cycle: &Cycle) -> Sort {
    let instances = instances(alignment, cycle);
    if instances.iter().any(|instance| matches!(instance.place, Place::Creation(_))) {
        return Sort::Creation;
    }
    if culprit(alignment, cycle).is_some() {
        return Sort::Deviation;
    }
    if instances.iter().any(|instance| matches!(instance.place, Place::Message(_) | Place::Transfer | Place::FromAny)) {
        return Sort::Message;
    }
    let leaves = |(rank, instance): (&u32, &&Instance<'_>)| {
        let waiter = instance.waiters.iter().find(|waiter| waiter.rank == *rank);
        waiter.is_some_and(|waiter| is_epilogue(&report::waiter_text(alignment, instance, waiter).site))
    };
    if cycle.ranks.iter().zip(&instances).any(leaves) { Sort::LoopLeft } else { Sort::Collectives }
}

/// The one rank of a circle that left the program which the others follow, and the instance that shows it: the one that
/// waits for the rank, or that it waits in with a call too many.
pub(super) fn culprit(alignment: &Alignment<'_>, cycle: &Cycle) -> Option<(u32, Deviation, usize)> {
    // Whoever waits for a message from anybody may be right, and one of those that could send it wrong.
    if instances(alignment, cycle).iter().any(|instance| instance.place == Place::FromAny) {
        return None;
    }
    let crossed = only_sends(alignment, cycle);
    let mut found = cycle.ranks.iter().enumerate().filter_map(|(at, &rank)| {
        // The instance before a rank in the circle is the one that waits for it.
        let before = at.checked_sub(1).unwrap_or(cycle.instances.len().checked_sub(1)?);
        let waits = cycle.instances.get(before).and_then(|&before| alignment.waits.instances.get(before));
        let of_wait = || match waits?.place {
            Place::Collective(_) => {
                awaited::find(alignment, rank, Odd { lacks: true, comm: waits?.comm?, message: None }, GOES_ON)
            }
            _ => None,
        };
        let deviation = merged::deviation(alignment, rank).or_else(of_wait)?;
        let shown = *cycle.instances.get(if deviation.lacks() { before } else { at })?;
        let fits = |shown: &usize| {
            let Some(instance) = alignment.waits.instances.get(*shown) else { return false };
            let fits = match instance.place {
                Place::Collective(pos) => deviation.message.is_none() && deviation.pos <= pos,
                Place::Message(_) | Place::Transfer => {
                    // Ranks that all send first are each as wrong as the other.
                    !crossed && deviation.message.is_some() && matches!(deviation.how, Departure::Lacks(_))
                }
                _ => false,
            };
            fits && instance.comm == Some(deviation.comm)
        };
        // Several too many in one call's place are rather another end of the round before.
        let plain = !matches!(deviation.how, Departure::Extra(calls) if calls > 1);
        // Of the waits for a rank that made another collective, the circle need not go through the one that it should have
        // made.
        let in_collective = cycle.instances.get(at).and_then(|&at| alignment.waits.instances.get(at));
        let in_collective = in_collective.is_some_and(|own| matches!(own.place, Place::Collective(_)));
        let instead = deviation.how == Departure::Instead && in_collective;
        let others = || alignment.waits.wanted.get(&rank).filter(|_| instead);
        let shown = Some(shown).filter(fits).or_else(|| others()?.iter().copied().find(fits))?;
        plain.then_some((rank, deviation, shown))
    });
    let first = found.next()?;
    // Where all communicators have the same members, another order looks just like a call that is missing.
    let members = |at: &usize| {
        alignment.waits.instances.get(*at)?.comm.and_then(|comm| alignment.comm(comm)).map(|comm| comm.ranks())
    };
    let is_order = matches!(first.1.how, Departure::Lacks(_)) && first.1.message.is_none();
    let alike = is_order && cycle.instances.windows(2).all(|pair| matches!(pair, [a, b] if members(a) == members(b)));
    (found.next().is_none() && !alike).then_some(first)
}

/// Calls behind one that is missing which tell that it will not come.
const GOES_ON: u64 = 4;

/// Whether every rank of a circle waits in a send.
fn only_sends(alignment: &Alignment<'_>, cycle: &Cycle) -> bool {
    let sends = |(rank, instance): (&u32, &Instance<'_>)| {
        instance.waiters.iter().any(|waiter| waiter.rank == *rank && waiter.call.op == Op::Send)
    };
    cycle.ranks.iter().zip(instances(alignment, cycle)).all(sends)
}

/// Blocked threads in a circle stay there, whatever time it is, if all were seen inside their calls at one time.
/// Where a call does not hold its thread, only a long wait tells.
fn is_certain(alignment: &Alignment<'_>, cycle: &Cycle) -> bool {
    let mut latest = i64::MIN;
    let mut blocks = true;
    for (rank, instance) in cycle.ranks.iter().zip(instances(alignment, cycle)) {
        let Some(waiter) = instance.waiters.iter().find(|waiter| waiter.rank == *rank) else { return false };
        latest = latest.max(waiter.since);
        blocks &= waiter.blocks;
    }
    let seen = cycle.ranks.iter().filter_map(|&rank| alignment.state_of(rank)).map(|state| state.horizon).min();
    let by = seen.unwrap_or(i64::MIN).saturating_sub(latest);
    if blocks { by > CLOCK_DOUBT } else { by >= alignment.limit }
}

/// How far clocks of one job may be apart unnoticed, ns.
const CLOCK_DOUBT: i64 = 250_000_000;

/// Communicators of a circle that its headline names.
const NAMED: usize = 4;

/// The finding of a cycle.
pub(super) fn finding(alignment: &Alignment<'_>, cycle: &Cycle, meta: &Meta, rule: Rule) -> Raw {
    let mut finding = blank(meta);
    finding.cycle.clone_from(&cycle.ranks);
    let instances = instances(alignment, cycle);
    let mut names: Vec<String> = Vec::new();
    for (at, (rank, instance)) in cycle.ranks.iter().zip(&instances).enumerate() {
        let Some(waiter) = instance.waiters.iter().find(|waiter| waiter.rank == *rank) else { continue };
        let mut call = report::waiter_text(alignment, instance, waiter);
        call.pending = true;
        let next = cycle.ranks.get((at + 1) % cycle.ranks.len()).copied().unwrap_or_default();
        let place = report::place_phrase(alignment, instance, &call);
        finding.detail.push(format!("rank {rank} waits in {place} for rank {next}"));
        let name = instance.comm.and_then(|comm| alignment.comm(comm)).map(|comm| comm.display()).unwrap_or_default();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name.clone());
        }
        finding.sides.push(Side {
            ranks: RankSet::from_iter([*rank]),
            call: Some(call),
            state: if name.is_empty() { String::new() } else { format!("on {name}") },
        });
    }
    let in_cycle: RankSet = cycle.ranks.iter().copied().collect();
    let (direct, transitive) = alignment.waits.victims(&in_cycle);
    finding.waiting = in_cycle.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
    finding.transitive_victims = direct.union(&transitive);
    finding.collateral_exits = alignment.deaths.collateral.clone();
    if let Some(comm) = instances.first().and_then(|instance| instance.comm)
        && instances.iter().all(|instance| instance.comm == Some(comm))
    {
        finding.group = alignment.comm(comm).map(|comm| comm.reference());
    }
    finding.evidence.extend(instances.iter().find_map(|instance| report::same_call_elsewhere(alignment, instance)));
    finding.confidence = instances
        .iter()
        .filter_map(|instance| Some(report::confidence(alignment, instance.comm?, alignment.comm(instance.comm?)?)))
        .min()
        .unwrap_or(finding.confidence);
    let on = match names.len() {
        0 => String::new(),
        1 => format!(" on {}", names.join("")),
        2 => format!(" on {}", names.join(" and ")),
        // A circle may go through thousands of communicators; the first tell which ones are meant.
        count if count > NAMED => {
            let first: Vec<&str> = names.iter().take(NAMED - 1).map(String::as_str).collect();
            format!(" on {} and {} more", first.join("; "), count - first.len())
        }
        _ => format!(" on {}", names.join("; ")),
    };
    finding.headline = format!("{} ranks wait for one another in a circle{on}", cycle.ranks.len());
    Raw { finding, rule, at: cycle.since, roots: in_cycle, open: true, comm: None }
}
