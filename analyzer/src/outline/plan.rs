//! Which blocks are worth decoding: those around the first differences, those that tell where ranks stand, and, of what
//! the digests leave open, as much as the budget allows. What it does not allow is said.

use std::collections::BTreeSet;

use rankdiff_trace::{CommRef, StreamOutline};

use super::agree::Span;
use super::classes::{Classes, Member};
use super::sums::{self, Splits};

/// Positions before and behind a difference that are looked at: for the rhythm of steps, and for a shift.
const CONTEXT: u64 = 4096;
/// Calls of one stream that are decoded for it, before and behind.
const CONTEXT_CALLS: (u64, u64) = (32_768, 8192);
/// A stream of so few calls is decoded whole.
const SMALL: u64 = 40_000;
/// Differences of one communicator that are looked at.
const MOST_SPANS: usize = 4;
/// Classes of one communicator of which a member is decoded.
const MOST_CLASSES: usize = 16;
/// Members of the largest class that are decoded: programs of several ranks tell what one of them left out.
const SPEAKERS: usize = 3;

/// A communicator with what is to be judged.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) members: Vec<Member>,
    /// Members that have no stream, or whose views are not joined with it, cannot be judged.
    pub(super) classes: Classes,
    pub(super) splits: Splits,
    /// All messages are known and pair up; `None`: it has none.
    pub(super) messages: Option<bool>,
}

impl Group {
    pub(super) fn judge(name: String, members: Vec<Member>, outlines: &[StreamOutline]) -> Group {
        let classes = Classes::of(&members, outlines);
        let splits = sums::splits(&members, outlines);
        let messages = sums::messages(&members, outlines);
        Group { name, members, classes, splits, messages }
    }
}

/// What is decoded, and what is left open.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By stream: indices of blocks.
    pub(super) wanted: Vec<BTreeSet<usize>>,
    /// Calls that may still be decoded.
    left: u64,
    /// What could not be judged, in words.
    pub(super) open: Vec<String>,
    /// The first of them that is a difference.
    pub(super) differs: Option<String>,
    /// Positions of which nothing is proven.
    pub(super) unproven: u64,
}

/// Why blocks are decoded; in the order in which the budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Differ,
    Splits,
    OpenEnd,
    Uneven,
    Unproven,
    Messages,
}

/// Blocks that are worth decoding for one reason: all of them, or the few that matter most.
struct Wish {
    reason: Reason,
    /// When the first of them began, ns.
    since: u64,
    all: Vec<(usize, Vec<usize>)>,
    few: Vec<(usize, Vec<usize>)>,
    /// What is left open if it cannot be granted, and how many positions.
    otherwise: (String, u64),
    /// Some of them have no payload any more: it is left open whatever is granted.
    dropped: bool,
}

impl Plan {
    /// Spends a budget of so many calls.
    pub(super) fn make(groups: &[Group], outlines: &[StreamOutline], budget: u64) -> Plan {
        let mut plan = Plan { wanted: vec![BTreeSet::new(); outlines.len()], left: budget, ..Plan::default() };
        let total: u64 = outlines.iter().map(|outline| outline.calls).sum();
        if total <= budget {
            // Nothing is saved by leaving anything out.
            for (wanted, outline) in plan.wanted.iter_mut().zip(outlines) {
                wanted.extend(all_blocks(outline));
            }
            if !outlines.iter().any(StreamOutline::has_dropped_calls) {
                return plan;
            }
            // What digests say of calls that are gone is said below; blocks that are wanted already cost nothing.
        }
        let mut wishes: Vec<Wish> = Vec::new();
        for group in groups {
            wishes.extend(differences(group, outlines));
            wishes.extend(unpaired(group, outlines));
            wishes.extend(uneven(group, outlines));
            wishes.extend(unproven(group, outlines));
            wishes.extend(unsettled(group, outlines));
            wishes.extend(unnumbered(group, outlines));
        }
        wishes.extend((0..outlines.len()).filter_map(|at| open_end(at, outlines)));
        wishes.sort_by_key(|wish| (wish.reason, wish.since));
        for wish in wishes {
            let granted = plan.grant(&wish.all, outlines) || plan.grant(&wish.few, outlines);
            if !granted || wish.dropped {
                let (mut text, positions) = wish.otherwise;
                if wish.dropped && !text.is_empty() {
                    text.push_str(": those of some members were dropped (--keep)");
                }
                if wish.reason == Reason::Differ && plan.differs.is_none() {
                    plan.differs = Some(text.clone());
                }
                if !text.is_empty() && !plan.open.contains(&text) {
                    plan.open.push(text);
                }
                plan.unproven = plan.unproven.saturating_add(positions);
            }
        }
        plan
    }

    fn grant(&mut self, blocks: &[(usize, Vec<usize>)], outlines: &[StreamOutline]) -> bool {
        let is_new =
            |stream: usize, block: usize| self.wanted.get(stream).is_some_and(|wanted| !wanted.contains(&block));
        let cost = |stream: usize, block: usize| {
            let block = outlines.get(stream).and_then(|outline| outline.blocks.get(block));
            block.map_or(0, |block| u64::from(block.header().count))
        };
        let all = blocks.iter().flat_map(|(stream, blocks)| blocks.iter().map(|&block| (*stream, block)));
        let price: u64 = all.filter(|&(stream, block)| is_new(stream, block)).map(|(s, b)| cost(s, b)).sum();
        if blocks.is_empty() || price > self.left {
            return false;
        }
        self.left -= price;
        for (stream, blocks) in blocks {
            if let Some(wanted) = self.wanted.get_mut(*stream) {
                wanted.extend(blocks);
            }
        }
        true
    }
}

/// The blocks of calls of a stream that can be decoded.
fn all_blocks(outline: &StreamOutline) -> impl Iterator<Item = usize> + '_ {
    let calls = outline.blocks.iter().enumerate().filter(|(_, block)| block.holds_calls());
    calls.filter(|(_, block)| !block.header().is_expired()).map(|(at, _)| at)
}

/// The blocks that hold these positions of a communicator.
fn blocks_of(outline: &StreamOutline, comm: CommRef, span: Span) -> Vec<usize> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, block) in outline.blocks.iter().enumerate().filter(|(_, block)| block.holds_calls()) {
        let Some(end) = block.end_of(comm) else { continue };
        if end > span.0 && begin < span.1 && !block.header().is_expired() {
            found.push(at);
        }
        begin = end;
    }
    found
}

/// Whether calls at these positions have no payload any more.
fn is_dropped(outline: &StreamOutline, comm: CommRef, span: Span) -> bool {
    let mut begin = 0;
    outline.blocks.iter().filter(|block| block.holds_calls()).any(|block| {
        let Some(end) = block.end_of(comm) else { return false };
        let from = std::mem::replace(&mut begin, end);
        end > span.0 && from < span.1 && block.header().is_expired()
    })
}

/// These blocks and, on both sides, what tells the rhythm of steps and the size of a shift.
fn with_context(outline: &StreamOutline, comm: CommRef, span: Span) -> Vec<usize> {
    if outline.calls <= SMALL {
        return all_blocks(outline).collect();
    }
    let wide = (span.0.saturating_sub(CONTEXT), span.1.saturating_add(CONTEXT));
    let inner = blocks_of(outline, comm, span);
    let (Some(&first), Some(&last)) = (inner.first(), inner.last()) else { return inner };
    let outer = blocks_of(outline, comm, wide);
    let before = |at: usize| outline.blocks.get(at).map_or(0, |block| block.header().calls_before);
    let (from, to) = (before(first).saturating_sub(CONTEXT_CALLS.0), before(last).saturating_add(CONTEXT_CALLS.1));
    let (Some(&low), Some(&high)) = (outer.first(), outer.last()) else { return inner };
    // Blocks of other communicators between them are a part of the program.
    let inside = |at: &usize| (low..=high).contains(at) && (from..=to).contains(&before(*at));
    let mut found: Vec<usize> = all_blocks(outline).filter(inside).chain(inner).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Blocks of one member around a span, with and without context.
fn around(
    group: &Group,
    outlines: &[StreamOutline],
    member: usize,
    spans: &[Span],
) -> Option<(usize, Vec<usize>, Vec<usize>)> {
    let member = group.members.get(member)?;
    let outline = outlines.get(member.stream)?;
    let mut all: BTreeSet<usize> = BTreeSet::new();
    let mut few: BTreeSet<usize> = BTreeSet::new();
    for (at, span) in spans.iter().enumerate() {
        few.extend(blocks_of(outline, member.comm, *span));
        if at == 0 {
            all.extend(with_context(outline, member.comm, *span));
        }
    }
    all.extend(&few);
    Some((member.stream, all.into_iter().collect(), few.into_iter().collect()))
}

fn wish(
    group: &Group,
    outlines: &[StreamOutline],
    reason: Reason,
    spans: &[(usize, Vec<Span>)],
    otherwise: (String, u64),
) -> Option<Wish> {
    let mut wish = Wish { reason, since: u64::MAX, all: Vec::new(), few: Vec::new(), otherwise, dropped: false };
    for (member, spans) in spans {
        let place = group.members.get(*member).and_then(|member| Some((outlines.get(member.stream)?, member.comm)));
        let dropped =
            |(outline, comm): (&StreamOutline, CommRef)| spans.iter().any(|span| is_dropped(outline, comm, *span));
        wish.dropped |= place.is_some_and(dropped);
        let Some((stream, all, few)) = around(group, outlines, *member, spans) else { continue };
        let first = few.first().and_then(|&at| outlines.get(stream)?.blocks.get(at));
        wish.since = wish.since.min(first.map_or(u64::MAX, |block| block.header().first_time));
        wish.all.push((stream, all));
        wish.few.push((stream, few));
    }
    (!wish.few.is_empty()).then_some(wish)
}

/// The members that speak for the largest class, and one of each other class that `pick` names spans for.
fn speakers(group: &Group, pick: impl Fn(&super::classes::Class) -> Vec<Span>) -> Vec<(usize, Vec<Span>)> {
    let mut found: Vec<(usize, Vec<Span>)> = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    for class in group.classes.list.iter().skip(1) {
        let mine = pick(class);
        if let (Some(&member), false, true) = (class.members.first(), mine.is_empty(), found.len() < MOST_CLASSES) {
            spans.extend(&mine);
            found.push((member, mine));
        }
    }
    spans.sort_unstable();
    spans.dedup();
    spans.truncate(2 * MOST_SPANS);
    if let Some(main) = group.classes.list.first().filter(|_| !found.is_empty()) {
        found.extend(main.members.iter().take(SPEAKERS).map(|&member| (member, spans.clone())));
    }
    found
}

fn differences(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    let spans = speakers(group, |class| class.relation.differ.iter().take(MOST_SPANS).copied().collect());
    let (low, high) = spans.iter().flat_map(|(_, spans)| spans).copied().min()?;
    let text = format!(
        "{}: the members' digests differ between call {low} and call {high}, and their calls there were not decoded",
        group.name
    );
    wish(group, outlines, Reason::Differ, &spans, (text, high.saturating_sub(low)))
}

fn unpaired(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    let (span, certain) = match (group.splits.differ, group.splits.unproven) {
        (Some(span), _) => (span, true),
        (None, Some(span)) => (span, false),
        (None, None) => return None,
    };
    let spans: Vec<(usize, Vec<Span>)> = (0..group.members.len()).map(|member| (member, vec![span])).collect();
    let reason = if certain { Reason::Splits } else { Reason::Unproven };
    let (low, high) = span;
    let text = if certain {
        format!("{}: split vectors between call {low} and call {high} do not pair up, and were not decoded", group.name)
    } else {
        format!("{}: split vectors between call {low} and call {high} were not compared", group.name)
    };
    wish(group, outlines, reason, &spans, (text, high.saturating_sub(low)))
}

/// Some members have fewer calls: what those and the others did last.
fn uneven(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    if !group.classes.is_uneven() || group.members.len() < 2 {
        return None;
    }
    let short = group.classes.shortest();
    let span = (short.saturating_sub(1), short.saturating_add(1));
    let mut spans: Vec<(usize, Vec<Span>)> = Vec::new();
    for (at, class) in group.classes.list.iter().enumerate() {
        let speak = if at == 0 { SPEAKERS } else { usize::from(class.end == short || at < SPEAKERS) };
        if spans.len() < MOST_CLASSES {
            spans.extend(class.members.iter().take(speak).map(|&member| (member, vec![span])));
        }
    }
    let mut wish = wish(group, outlines, Reason::Uneven, &spans, (String::new(), 0))?;
    // Whoever has waited longest began it.
    let last = spans.iter().filter_map(|(member, _)| {
        let member = group.members.get(*member)?;
        let calls = &outlines.get(member.stream)?.trace.calls;
        calls.iter().rev().find(|call| call.comm == member.comm).map(|call| call.enter)
    });
    wish.since = last.min().unwrap_or(u64::MAX);
    Some(wish)
}

/// Spans that hashes do not cover, of members that are not known to differ.
fn unproven(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    let is_open = |class: &super::classes::Class| class.relation.differ.is_empty();
    let spans = speakers(group, |class| {
        if is_open(class) { class.relation.unproven.iter().take(MOST_SPANS).copied().collect() } else { Vec::new() }
    });
    if spans.is_empty() {
        return None;
    }
    let all = group.classes.list.iter().filter(|class| is_open(class)).flat_map(|class| &class.relation.unproven);
    let positions = all.map(|span| span.1.saturating_sub(span.0)).sum();
    let text = format!("{}: parts of some members' calls are not covered by digests, and were not decoded", group.name);
    wish(group, outlines, Reason::Unproven, &spans, (text, positions))
}

/// Messages that do not all pair up, or are not all known.
fn unsettled(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    if group.messages != Some(false) {
        return None;
    }
    let text = format!("{}: sends and receives were paired by their numbers only", group.name);
    Some(Wish { otherwise: (text, 0), ..whole(group, outlines) })
}

/// Members whose calls have no positions: their place among the others' is told by what they hold.
fn unnumbered(group: &Group, outlines: &[StreamOutline]) -> Option<Wish> {
    let placed: usize = group.classes.list.iter().map(|class| class.members.len()).sum();
    let calls = |member: &Member| {
        let points = outlines.get(member.stream).and_then(|outline| outline.chains.get(&member.comm));
        points.is_some_and(|points| !points.is_empty())
    };
    if group.members.iter().filter(|member| calls(member)).count() <= placed {
        return None;
    }
    let text = format!("{}: some members' calls have no positions, and were not decoded", group.name);
    Some(Wish { reason: Reason::Unproven, otherwise: (text, 0), ..whole(group, outlines) })
}

/// All that the members did.
fn whole(group: &Group, outlines: &[StreamOutline]) -> Wish {
    let mut wish = Wish {
        reason: Reason::Messages,
        since: u64::MAX,
        all: Vec::new(),
        few: Vec::new(),
        otherwise: (String::new(), 0),
        dropped: false,
    };
    for member in &group.members {
        let Some(outline) = outlines.get(member.stream) else { continue };
        wish.all.push((member.stream, all_blocks(outline).collect()));
        wish.since = wish.since.min(outline.times.0);
    }
    wish.few.clone_from(&wish.all);
    wish
}

/// The calls behind the last frontier of a stream: where its rank stands.
fn open_end(at: usize, outlines: &[StreamOutline]) -> Option<Wish> {
    let outline = outlines.get(at).filter(|outline| outline.is_open_ended())?;
    let known = outline.frontier_at.unwrap_or(0);
    let behind = |block: &&usize| {
        outline
            .blocks
            .get(**block)
            .is_some_and(|block| block.header().calls_before.saturating_add(u64::from(block.header().count)) > known)
    };
    let blocks: Vec<usize> = all_blocks(outline).collect();
    let last: Vec<usize> = blocks.iter().filter(behind).rev().take(2).copied().collect();
    let newest = last.first().copied();
    let otherwise = "what some ranks did last was not decoded: their records were not closed".to_owned();
    Some(Wish {
        reason: Reason::OpenEnd,
        since: at as u64,
        all: vec![(at, last)],
        few: vec![(at, newest.into_iter().collect())],
        otherwise: (otherwise, 0),
        dropped: false,
    })
}
