//! The calls before and behind the place of a finding, around the table of sides: a line for ranks that did the same.
//!
//! Positions at which all did the same as at the one before share a line.

use super::RenderOptions;
use super::screen::{Item, Line, Tone};
use super::{place, sides, text};
use crate::finding::{CallText, Finding, WindowRow};

const INDENT: usize = 2;
const GAP: usize = 2;

/// The lines before the sides and those behind them.
pub(super) fn items(finding: &Finding, options: &RenderOptions) -> (Vec<Item>, Vec<Item>) {
    let members = finding.group.as_ref().map_or(0, |group| group.ranks.len());
    let spans = spans(&finding.window);
    let lines: Vec<[String; 4]> = spans.iter().map(|span| cells(span, members, options)).collect();
    let widest = |column: usize| {
        lines.iter().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let columns = [lead(finding).saturating_sub(GAP), widest(1), widest(2)];
    // Sides stand at the visible place; without sides, everything is one list.
    let split = finding.first_visible.filter(|_| !finding.sides.is_empty()).unwrap_or(u64::MAX);
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for (span, cells) in spans.iter().zip(lines) {
        let mut line = Line::indented(INDENT);
        let mut column = INDENT;
        for (at, cell) in cells.iter().enumerate() {
            let rest = options.width.saturating_sub(line.width());
            let shown = if options.verbose { cell.clone() } else { text::clip(cell, rest.max(1)).into_owned() };
            line.push(Tone::Faint, &shown);
            column += columns.get(at).map_or(0, |width| width + GAP);
            line.pad_to(if options.verbose { column } else { column.min(options.width) });
        }
        if span.first.position < split { &mut before } else { &mut behind }.push(vec![line]);
    }
    (before, behind)
}

/// Columns that positions take in front of the sides, the blanks behind them included; 0 without calls around them.
pub(super) fn lead(finding: &Finding) -> usize {
    let Some(visible) = finding.first_visible.filter(|_| !finding.window.is_empty()) else { return 0 };
    let widest = spans(&finding.window).iter().map(|span| positions(span).len()).max().unwrap_or_default();
    widest.max(format!("call {visible}").len()) + GAP
}

fn positions(span: &Span<'_>) -> String {
    let first = span.first.position;
    if span.last > first { format!("calls {first}-{}", span.last) } else { format!("call {first}") }
}

/// Positions in a row at which everybody did the same.
struct Span<'a> {
    first: &'a WindowRow,
    last: u64,
}

fn spans(window: &[WindowRow]) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    let alone = |row: &WindowRow| window.iter().filter(|other| other.position == row.position).count() == 1;
    for row in window {
        let goes_on = |span: &&mut Span<'_>| {
            span.last + 1 == row.position
                && span.first.ranks == row.ranks
                && alone(span.first)
                && alone(row)
                && is_same(&span.first.call, &row.call)
        };
        match spans.last_mut().filter(goes_on) {
            Some(span) => span.last = row.position,
            None => spans.push(Span { first: row, last: row.position }),
        }
    }
    spans
}

fn is_same(one: &CallText, other: &CallText) -> bool {
    // The two calls of one collective of objects.
    if one.object.is_some() {
        return (one.object, &one.site) == (other.object, &other.site);
    }
    CallText { seq: None, pending: false, ..one.clone() } == CallText { seq: None, pending: false, ..other.clone() }
}

/// Positions, ranks, call, place.
fn cells(span: &Span<'_>, members: usize, options: &RenderOptions) -> [String; 4] {
    let WindowRow { ranks, call, .. } = span.first;
    let limit = if options.verbose { usize::MAX } else { (options.width / 4).clamp(16, 32) };
    let who = if ranks.len() == members && members > 1 {
        format!("all {}", text::counted(members as u64, "rank"))
    } else {
        text::ranks_phrase(ranks, limit)
    };
    let shown = if call.object.is_some() && span.last > span.first.position { 1 } else { usize::MAX };
    let what: Vec<String> = sides::fields(call).into_iter().filter(|field| !field.is_empty()).take(shown).collect();
    let place = place::places(&[Some(call)]).into_iter().next().unwrap_or_default();
    let mut at_place = String::new();
    if !place.functions.is_empty() {
        at_place = format!("in {}", place.functions.join(" > "));
    }
    if !place.location.is_empty() {
        at_place = format!("{at_place}  {}", place.location).trim_start().to_owned();
    }
    [positions(span), who, what.join(" "), at_place].map(|cell| text::escape(&cell).into_owned())
}
