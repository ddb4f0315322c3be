//! What the checks' findings have in common: sides, roles, confidence, the lines before and after.

use rankdiff_trace::{Call, RankSet};
use rustc_hash::FxHashSet;

use super::{Meta, Raw, Rule, blank};
use crate::align::{Alignment, What};
use crate::awaited::{self, Odd};
use crate::common;
use crate::comms::Comm;
use crate::diverge::{Divergence, Kind};
use crate::finding::{CallText, Confidence, Evidence, Finding, Side};
use crate::index::{Base, Progress, Track};
use crate::merged::{self, Departure, Deviation};
use crate::state::How;
use crate::steps::{self, Rhythm};
use crate::stream::RankStream;
use crate::waits::{Instance, Place, Waiter};
use crate::words::{
    Who as _, absent_side, article, call_phrase, call_text, counted, duration, entry_text, may_be_barrier, number,
    ordinal,
};

/// The finding of a divergence: everything but what only the check knows.
pub(super) fn of_divergence(alignment: &Alignment<'_>, divergence: &Divergence, meta: &Meta) -> Option<Raw> {
    let comm = alignment.comm(divergence.comm)?;
    let mut finding = blank(meta);
    finding.what = what_name(divergence);
    finding.group = Some(comm.reference());
    finding.first_visible = Some(divergence.visible);
    finding.first_divergence = divergence.first;
    finding.suspects = divergence.suspects.clone();
    finding.sides = sides(alignment, divergence.comm, comm, &divergence.groups, divergence.visible);
    let major = divergence.groups.first().and_then(|group| alignment.track(divergence.comm, *group.first()?));
    let place = divergence.first.unwrap_or(divergence.visible);
    finding.step = major.and_then(|track| steps::position(track, place));
    let pending: RankSet = alignment
        .tracks(divergence.comm)
        .iter()
        .filter(|track| {
            let start = track.entries.partition_point(|entry| entry.pos < divergence.visible);
            track.entries.get(start..).is_some_and(|rest| rest.iter().any(|entry| entry.progress != Progress::Done))
        })
        .map(|track| track.rank)
        .collect();
    if divergence.open {
        let all: RankSet = divergence
            .groups
            .iter()
            .flat_map(|group| alignment.ranks_of(divergence.comm, group).iter().collect::<Vec<_>>())
            .collect();
        let roots = if finding.suspects.is_empty() { &all } else { &finding.suspects };
        let (direct, transitive) = alignment.waits.victims(roots);
        finding.waiting = pending.union(&direct).union(&transitive).difference(&alignment.deaths.collateral);
        if !finding.suspects.is_empty() {
            finding.direct_victims = pending.difference(&finding.suspects).union(&direct);
            finding.transitive_victims = transitive.difference(&finding.direct_victims);
        } else {
            finding.transitive_victims = transitive;
        }
        finding.collateral_exits = alignment.deaths.collateral.clone();
    }
    finding.common = common::shared(alignment, &finding.suspects, &comm.ranks());
    finding.confidence = confidence(alignment, divergence.comm, comm);
    finding.headline = headline(divergence, &finding, comm);
    finding.detail.extend(before(alignment, divergence, comm));
    finding.detail.extend(again(divergence, comm));
    Some(Raw {
        rule: Rule::Differ,
        at: divergence.at,
        roots: divergence
            .groups
            .iter()
            .skip(usize::from(!finding.suspects.is_empty()))
            .flat_map(|group| alignment.ranks_of(divergence.comm, group).iter().collect::<Vec<_>>())
            .collect(),
        open: divergence.open,
        comm: Some(divergence.comm),
        finding,
    })
}

fn what_name(divergence: &Divergence) -> Option<&'static str> {
    if divergence.kind != Kind::OtherArgument {
        return None;
    }
    match divergence.what {
        What::Op | What::Form => None,
        What::Count => Some("count"),
        What::Dtype => Some("dtype"),
        What::Redop => Some("redop"),
        What::Root => Some("root"),
        What::Splits => Some("splits"),
    }
}

/// What each group of members did at a position; members without a call there by what became of them.
pub(super) fn sides(
    alignment: &Alignment<'_>,
    at: usize,
    comm: &Comm<'_>,
    groups: &[Vec<usize>],
    pos: u64,
) -> Vec<Side> {
    let mut sides: Vec<Side> = groups
        .iter()
        .filter_map(|group| {
            let track = alignment.track(at, *group.first()?)?;
            let call = entry_text(alignment, comm, track, track.at(pos)?);
            Some(Side { ranks: alignment.ranks_of(at, group), call: Some(call), state: String::new() })
        })
        .collect();
    // Whose call was not decoded stands on the side of those that it is equal to.
    let told: FxHashSet<usize> = groups.iter().flatten().copied().collect();
    for (index, track) in alignment.tracks(at).iter().enumerate() {
        if track.base == Base::Unknown || track.at(pos).is_some() || told.contains(&index) {
            continue;
        }
        let state = alignment.states.get(track.stream);
        let text = match state {
            _ if track.elides(pos) => "its call there was not decoded".to_owned(),
            _ if track.end() > pos => "its call there was not recorded".to_owned(),
            _ if track.blind_after.is_some() => "not known, later calls may be lost".to_owned(),
            Some(state) if state.is_gone() => state.ending(),
            _ => elsewhere(alignment, track.rank, Some(at)),
        };
        match sides.iter_mut().find(|side| side.call.is_none() && side.state == text) {
            Some(side) => {
                side.ranks.insert(track.rank);
            }
            None => sides.push(absent_side(RankSet::from_iter([track.rank]), text)),
        }
    }
    sides
}

/// What a rank that has not come was doing, in a few words.
pub(super) fn elsewhere(alignment: &Alignment<'_>, rank: u32, comm: Option<usize>) -> String {
    let other = alignment.waits.of_rank(rank).find(|instance| instance.comm != comm);
    if let Some(instance) = other
        && let Some(waiter) = instance.waiters.iter().find(|waiter| waiter.rank == rank)
    {
        let call = waiter_text(alignment, instance, waiter);
        return format!("not entered; waits in {}", place_phrase(alignment, instance, &call));
    }
    let facts = alignment.state_of(rank).map(|state| state.activity(alignment.limit).1).unwrap_or_default();
    match facts.first() {
        // The details stand with the evidence.
        Some(fact) => format!("not entered; {}", fact.split(": ").next().unwrap_or(fact)),
        None => "not entered".to_owned(),
    }
}

/// Waiters of an instance by what they called, the largest side first.
pub(super) fn waiting_sides(alignment: &Alignment<'_>, instance: &Instance<'_>) -> Vec<Side> {
    let mut sides: Vec<Side> = Vec::new();
    for waiter in &instance.waiters {
        let mut call = waiter_text(alignment, instance, waiter);
        call.pending = true;
        let same = |side: &Side| {
            side.call.as_ref().is_some_and(|held| {
                (&held.op, held.count, &held.dtype, &held.site, held.peer)
                    == (&call.op, call.count, &call.dtype, &call.site, call.peer)
            })
        };
        match sides.iter_mut().find(|side| same(side)) {
            Some(side) => {
                side.ranks.insert(waiter.rank);
            }
            None => {
                sides.push(Side { ranks: RankSet::from_iter([waiter.rank]), call: Some(call), state: String::new() });
            }
        }
    }
    sides.sort_by_key(|side| (std::cmp::Reverse(side.ranks.len()), side.ranks.first()));
    sides
}

/// The call of a waiter.
pub(super) fn waiter_text(alignment: &Alignment<'_>, instance: &Instance<'_>, waiter: &Waiter<'_>) -> CallText {
    let comm = instance.comm.and_then(|comm| alignment.comm(comm));
    let mut text = call_text(alignment, comm, waiter.stream, waiter.call);
    text.seq = waiter.pos.or(waiter.call.seq);
    text
}

/// A call with its communicator: 'ALL_REDUCE of 8192 bf16 on tp0 (call 10)'.
pub(super) fn place_phrase(alignment: &Alignment<'_>, instance: &Instance<'_>, call: &CallText) -> String {
    let comm = instance.comm.and_then(|comm| alignment.comm(comm));
    let name = comm.map(Comm::display).unwrap_or_else(|| "a new communicator".to_owned());
    let phrase = match instance.place {
        Place::Message(_) | Place::Transfer => {
            let direction = if call.op.ends_with("send") { "to" } else { "from" };
            let peer = call.peer.map(|peer| format!(" {direction} {}", peer.named()));
            format!("{}{}", call_phrase(call, false), peer.unwrap_or_default())
        }
        Place::FromAny => format!("{} from any rank", call_phrase(call, false)),
        _ => call_phrase(
            call,
            comm.is_some_and(|comm| comm.semantics.contains(rankdiff_trace::Semantics::BARRIER_IS_ALL_REDUCE)),
        ),
    };
    match instance.place {
        Place::Collective(_) | Place::Diverged(_) | Place::Behind(_) => {
            format!("{phrase} on {name} (call {})", call.seq.unwrap_or_default())
        }
        Place::Creation(at) => {
            let of = if makes(alignment, at) { "for" } else { "of" };
            format!("{phrase} {of} {name}")
        }
        Place::Message(_) | Place::Transfer | Place::FromAny => format!("{phrase} on {name}"),
        Place::Unjoined => format!("{phrase} on a communicator whose members are not known"),
    }
}

/// Whether the communicator that a creation is told by is the one it makes, not the one it is made from.
pub(super) fn makes(alignment: &Alignment<'_>, creation: usize) -> bool {
    let creation = alignment.waits.creations.get(creation);
    creation.is_none_or(|creation| {
        creation.comm.is_none() || creation.callers.iter().any(|caller| caller.made == creation.comm)
    })
}

/// Most that can be claimed given what was not seen of a communicator.
pub(super) fn confidence(alignment: &Alignment<'_>, at: usize, comm: &Comm<'_>) -> Confidence {
    let tracks = alignment.tracks(at);
    let gaps = tracks.iter().any(|track| {
        let stream = alignment.attempt.streams.get(track.stream);
        track.base != Base::Known || stream.is_some_and(RankStream::has_gaps)
    });
    if tracks.iter().any(|track| track.base == Base::Inferred) {
        Confidence::Low
    } else if gaps || comm.inferred || !comm.members_known || !alignment.unseen(comm).is_empty() {
        Confidence::Medium
    } else {
        Confidence::High
    }
}

fn headline(divergence: &Divergence, finding: &Finding, comm: &Comm<'_>) -> String {
    let parts: Vec<String> = finding
        .sides
        .iter()
        .take(3)
        .map(|side| match &side.call {
            Some(call) => format!("{} on {}", side_phrase(call, comm, finding), side.ranks.who()),
            None => format!("no call on {}", side.ranks.who()),
        })
        .collect();
    let more = if finding.sides.len() > 3 { format!(" and {} more", finding.sides.len() - 3) } else { String::new() };
    format!("call {} differs: {}{more}", divergence.visible, parts.join(", "))
}

/// A side's call with the part that differs.
fn side_phrase(call: &CallText, comm: &Comm<'_>, finding: &Finding) -> String {
    let op = rankdiff_trace::Op::from_name(&call.op);
    let phrase = call_phrase(call, op.is_some_and(|op| may_be_barrier(comm, op)));
    match finding.what {
        Some("root") => {
            format!("{phrase} with root {}", call.root.map_or_else(|| "?".to_owned(), |root| root.to_string()))
        }
        Some("redop") => format!("{phrase} with {}", call.redop.as_deref().unwrap_or("?")),
        _ => phrase,
    }
}

/// The line about what lies before: '80 calls before it agree (20 whole steps of 4): …'.
fn before(alignment: &Alignment<'_>, divergence: &Divergence, comm: &Comm<'_>) -> Option<String> {
    let pos = divergence.visible;
    if pos == 0 || divergence.first != Some(pos) {
        return None;
    }
    let agreed = alignment.compared.get(divergence.comm)?.mismatches.first().is_none_or(|first| first.pos >= pos);
    if !agreed {
        return None;
    }
    let track = |group: usize| alignment.track(divergence.comm, *divergence.groups.get(group)?.first()?);
    let major = track(0)?;
    let first_seen = alignment.tracks(divergence.comm).iter().filter_map(Track::first).min()?;
    let mut text = format!("the {} before it agree", counted(pos.saturating_sub(first_seen), "call"));
    if pos - first_seen == 1 {
        text = "the call before it agrees".to_owned();
    }
    let Some(rhythm) = Rhythm::before(major, pos).filter(|rhythm| rhythm.period > 1) else { return Some(text) };
    if !rhythm.is_whole(pos) {
        let (count, rest) = (rhythm.count(pos), (pos - rhythm.start) % rhythm.period);
        text.push_str(&format!(" ({} of {} and {rest} of the next)", counted(count, "whole step"), rhythm.period));
        return Some(text);
    }
    text.push_str(&format!(" ({} of {})", counted(rhythm.count(pos), "whole step"), rhythm.period));
    let begins = |track: &Track<'_>| {
        let first = track.at(pos.checked_sub(rhythm.period)?)?;
        Some(first.meaning() == track.at(pos)?.meaning())
    };
    let starting: Vec<usize> =
        (0..divergence.groups.len()).filter(|&group| track(group).and_then(begins) == Some(true)).collect();
    if let ([group], 2) = (starting.as_slice(), divergence.groups.len()) {
        let other = track(1 - group)?;
        let call = entry_text(alignment, comm, other, other.at(pos)?);
        let who = |group: usize| -> Option<String> {
            let ranks = alignment.ranks_of(divergence.comm, divergence.groups.get(group)?);
            Some(if ranks.len() > 3 { format!("{} ranks", number(ranks.len())) } else { ranks.who() })
        };
        let place = call.frames.last().map(|frame| frame.function.as_str()).filter(|name| !name.is_empty());
        let phrase = call_phrase(&call, may_be_barrier(comm, other.at(pos)?.call.op));
        let verb = |group: usize, one: &'static str, many: &'static str| {
            if divergence.groups.get(group).map_or(0, Vec::len) == 1 { one } else { many }
        };
        text.push_str(&format!(
            ": {} {} {} {} step where {} {} {phrase}{}",
            who(*group)?,
            verb(*group, "begins", "begin"),
            article(rhythm.count(pos) + 1),
            ordinal(rhythm.count(pos) + 1),
            who(1 - group)?,
            verb(1 - group, "calls", "call"),
            place.map(|place| format!(" in {place}")).unwrap_or_default()
        ));
    }
    Some(text)
}

fn again(divergence: &Divergence, comm: &Comm<'_>) -> Option<String> {
    (divergence.again > 0)
        .then(|| format!("the same again at {} on {}", counted(divergence.again as u64, "later call"), comm.display()))
}

/// The line about what cannot be trusted any more.
pub(super) fn not_to_be_trusted(raw: &mut Raw, comm: &str) {
    let since = raw.finding.first_divergence.or(raw.finding.first_visible);
    let line = match (raw.open, since, raw.finding.first_divergence) {
        (true, Some(since), Some(_)) => format!("results on {comm} since call {since} are not to be trusted"),
        (true, Some(since), None) => {
            format!("results on {comm} some time before call {since} and since are not to be trusted")
        }
        (false, Some(since), _) => format!(
            "every rank's call returned, so nothing hangs: the results of call {since} on {comm} and all that follows from them are not to be trusted"
        ),
        _ => return,
    };
    raw.finding.detail.push(line);
}

/// Divergences of one kind as findings, with the line about trust.
pub(super) fn each(
    alignment: &Alignment<'_>,
    meta: &'static Meta,
    found: &mut Vec<Raw>,
    wanted: impl Fn(&Divergence) -> bool,
    more: impl Fn(&Divergence, &mut Finding),
) {
    for divergence in alignment.divergences.iter().filter(|divergence| wanted(divergence)) {
        let Some(mut raw) = of_divergence(alignment, divergence, meta) else { continue };
        more(divergence, &mut raw.finding);
        let name = alignment.comm(divergence.comm).map(Comm::display).unwrap_or_default();
        not_to_be_trusted(&mut raw, &name);
        found.push(raw);
    }
}

/// A fact about ranks.
pub(super) fn fact(kind: &str, ranks: RankSet, text: impl Into<String>) -> Evidence {
    Evidence { kind: kind.to_owned(), ranks, text: text.into() }
}

/// The fact that nobody makes a call any more.
pub(super) fn stands_still(alignment: &Alignment<'_>) -> Option<Evidence> {
    let quiet = alignment.quiet.as_ref()?;
    let by = duration(super::lates::millis(quiet.by));
    let alive = quiet.live.iter().any(|rank| alignment.state_of(rank).is_some_and(|state| !state.is_gone()));
    let text = if alive {
        format!("no rank has made a call for {by}")
    } else {
        format!("no rank made a call for {by} before the job was ended")
    };
    Some(fact("quiet", quiet.live.clone(), text))
}

/// Who waits because of these ranks, directly and behind others, and who ended for it.
pub(super) fn held_by(alignment: &Alignment<'_>, ranks: &RankSet, finding: &mut Finding) {
    let (direct, transitive) = alignment.waits.victims(ranks);
    finding.waiting = direct.union(&transitive).difference(&alignment.deaths.collateral);
    finding.direct_victims = direct;
    finding.transitive_victims = transitive;
    finding.collateral_exits = alignment.deaths.collateral.clone();
}

/// What the threads of these ranks were seen to do, as evidence.
pub(super) fn activities(alignment: &Alignment<'_>, ranks: &RankSet, finding: &mut Finding) {
    for rank in ranks.iter() {
        for text in alignment.state_of(rank).map(|state| state.activity(alignment.limit).1).unwrap_or_default() {
            match finding.evidence.iter_mut().find(|held| held.text == text) {
                Some(held) => {
                    held.ranks.insert(rank);
                }
                None => finding.evidence.push(fact("thread", RankSet::from_iter([rank]), text)),
            }
        }
    }
}

/// Facts about how ranks ended.
pub(super) fn endings(alignment: &Alignment<'_>, ranks: &RankSet) -> Vec<Evidence> {
    let mut facts: Vec<Evidence> = Vec::new();
    for rank in ranks.iter() {
        let Some(state) = alignment.state_of(rank) else { continue };
        if state.ended.is_none() && state.aborted.is_none() {
            continue;
        }
        let text = state.ending();
        match facts.iter_mut().find(|fact| fact.text == text) {
            Some(fact) => {
                fact.ranks.insert(rank);
            }
            None => facts.push(fact("exit", RankSet::from_iter([rank]), text)),
        }
    }
    facts
}

/// A call elsewhere that is the same but for its communicator, made by a rank that is waited for.
pub(super) fn same_call_elsewhere(alignment: &Alignment<'_>, instance: &Instance<'_>) -> Option<Evidence> {
    let waiter = instance.waiters.first()?;
    let alike = |call: &Call| {
        call.op == waiter.call.op
            && call.count == waiter.call.count
            && call.dtype == waiter.call.dtype
            && call.root == waiter.call.root
    };
    instance.lacking.iter().find_map(|rank| {
        let stream = alignment.attempt.streams.get(alignment.stream_of(rank)?)?;
        let at = alignment.stream_of(rank)?;
        let last = stream.calls.iter().rev().find(|call| call.op.is_collective())?;
        let other = alignment.comms.of(at, last.comm)?;
        if Some(other) == instance.comm || !alike(last) {
            return None;
        }
        let name = alignment.comm(other)?.display();
        let text =
            format!("its last call is the same call, other communicator: {} on {name}", last.op.name().to_uppercase());
        Some(fact("other_communicator", RankSet::from_iter([rank]), text))
    })
}

/// Everybody but the largest group.
pub(super) fn minority(alignment: &Alignment<'_>, divergence: &Divergence) -> RankSet {
    divergence
        .groups
        .iter()
        .skip(1)
        .flat_map(|group| alignment.ranks_of(divergence.comm, group).iter().collect::<Vec<_>>())
        .collect()
}

/// Where a shift began and where it showed.
pub(super) fn shifted(divergence: &Divergence, finding: &mut Finding, what: &str) {
    let visible = divergence.visible;
    match divergence.first {
        Some(first) if first < visible => {
            finding.headline = format!(
                "{what} at call {first}, {} before it showed at call {visible}",
                counted(visible - first, "call")
            );
            finding.detail.insert(
                0,
                format!(
                    "from call {first} on the call sites are those of other calls of the majority, by the same distance"
                ),
            );
        }
        Some(first) => finding.headline = format!("{what} at call {first}; {}", finding.headline),
        None => {
            finding.headline = format!("{what} somewhere before call {visible}; {}", finding.headline);
            finding
                .detail
                .insert(0, "the calls before are all alike: where the streams parted cannot be placed".to_owned());
        }
    }
}

/// Unequal counts at a gradient bucket are another graph, not another argument.
pub(super) fn buckets(alignment: &Alignment<'_>, divergence: &Divergence, finding: &mut Finding) {
    let at_bucket = finding.sides.iter().filter_map(|side| side.call.as_ref()).all(|call| {
        let site = call.site.to_lowercase();
        ["ddp", "reducer", "bucket", "zero", "fsdp"].iter().any(|word| site.contains(word))
    });
    if at_bucket && alignment.comm(divergence.comm).is_some() {
        finding
            .detail
            .push("the counts of gradient buckets differ: the ranks have different graphs or parameters".to_owned());
    }
}

/// Roots that differ by the group's offset: a rank in the group was used as a global rank, or the reverse.
pub(super) fn root_pattern(alignment: &Alignment<'_>, divergence: &Divergence, finding: &mut Finding) {
    let Some(comm) = alignment.comm(divergence.comm) else { return };
    let mut locals: Vec<u32> = divergence
        .groups
        .iter()
        .filter_map(|group| alignment.track(divergence.comm, *group.first()?)?.at(divergence.visible)?.call.root)
        .collect();
    locals.sort_unstable();
    locals.dedup();
    let mixed = locals.iter().any(|&one| locals.iter().any(|&other| one != other && comm.global(one) == Some(other)));
    if mixed {
        finding
            .detail
            .push("the roots differ by the group's offset: a group rank was used as a global rank".to_owned());
    }
    let own = divergence.groups.iter().flatten().all(|&at| {
        alignment.track(divergence.comm, at).is_some_and(|track| {
            track.at(divergence.visible).and_then(|entry| entry.call.root).and_then(|root| comm.global(root))
                == Some(track.rank)
        })
    });
    if own && divergence.groups.len() > 1 {
        finding.detail.push("every rank names itself as the root".to_owned());
    }
}

/// The pairs of members that disagree.
pub(super) fn pairs(alignment: &Alignment<'_>, divergence: &Divergence, finding: &mut Finding) {
    let Some(comm) = alignment.comm(divergence.comm) else { return };
    for pair in divergence.pairs.iter().take(4) {
        let (Some(sender), Some(receiver)) = (comm.global(pair.sender as u32), comm.global(pair.receiver as u32))
        else {
            continue;
        };
        finding.detail.push(format!(
            "rank {sender} sends {} to rank {receiver}, which expects {}",
            counted(pair.sent, "element"),
            pair.expected
        ));
    }
    if divergence.pairs.len() > 4 {
        finding.detail.push(format!("and {} more pairs", divergence.pairs.len() - 4));
    }
    finding.headline = format!("call {}: the members' splits do not pair up", divergence.visible);
}

/// A rank that ended, or shut the library down, without a call that others wait in: where it left it out, if the rest of
/// its program tells. `Some(None)`: it left it out, and nobody can say where.
pub(super) fn left_out(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32) -> Option<Option<Deviation>> {
    let state = alignment.state_of(rank)?;
    if !matches!(state.ended, None | Some((_, How::Exit(0)))) || state.aborted.is_some() || !state.is_gone() {
        return None;
    }
    let deviation = merged::deviation(alignment, rank).filter(|found| is_of(found, instance));
    if deviation.is_some() {
        return Some(deviation);
    }
    // Shutting down in the middle of a step is no end of inputs.
    state.finalized?;
    let track = alignment.tracks(instance.comm?).iter().find(|track| track.rank == rank)?;
    let whole = Rhythm::before(track, track.end()).is_some_and(|rhythm| rhythm.is_whole(track.end()));
    (!whole).then_some(None)
}

/// A rank that is late for a call, yet made the calls that ranks in its role make behind it: it left that call out.
pub(super) fn went_on(alignment: &Alignment<'_>, instance: &Instance<'_>, rank: u32) -> Option<Deviation> {
    let Place::Collective(pos) = instance.place else { return None };
    let fits = |found: &Deviation| is_of(found, instance) && found.pos <= pos;
    let plain = merged::deviation(alignment, rank).filter(fits);
    let odd = || Some(Odd { lacks: true, comm: instance.comm?, message: None });
    // Whoever waits itself may come when that ends.
    let free = alignment.waits.of_rank(rank).next().is_none();
    plain.or_else(|| awaited::find(alignment, rank, odd().filter(|_| free)?, 1).filter(fits))
}

/// Whether what a rank left out is a collective on the communicator that others wait on.
fn is_of(found: &Deviation, instance: &Instance<'_>) -> bool {
    found.lacks() && found.message.is_none() && Some(found.comm) == instance.comm
}

/// What says that a rank left the program.
pub(super) fn who_says(deviation: &Deviation) -> &'static str {
    match deviation.how {
        Departure::Instead if deviation.by_own_past => {
            "it made that call from the same call site before, and there is no such call on the communicator it made it on now"
        }
        _ if deviation.by_own_past => {
            "in each round before it made that call at this place of the program and went on to what it does now"
        }
        Departure::Lacks(_) => {
            "ranks in the same role made that call at this place of the program and went on to what it does now"
        }
        Departure::Extra(_) => "ranks in the same role made no such call at this place of the program",
        Departure::Instead => {
            "ranks in the same role made that call at this place of the program, and none of them what it does now"
        }
    }
}
