//! The table of sides: which ranks made which call, and where, with what differs standing out in a column.

use rankdiff_trace::RankSet;

use super::RenderOptions;
use super::place::{self, Place};
use super::screen::{Item, Line, Tone};
use super::{text, window};
use crate::finding::{CallText, Finding, Side};
use crate::objects;

const INDENT: usize = 2;
const GAP: usize = 2;
/// Where lines that continue a side begin if there is no room below its call.
const HANG: usize = 6;
/// Characters of one cell, unless verbose: names of C++ functions can be as long as a page.
const LONGEST_CELL: usize = 36;

/// A side's cells; the call's fields keep their own columns.
struct Row<'a> {
    side: &'a Side,
    ranks: String,
    share: String,
    /// Operation, count, type; the rest in one.
    fields: [String; 4],
    place: Place,
    tone: Tone,
}

/// Widths of the columns.
struct Columns {
    /// Room for the position, where calls around it are shown as well.
    lead: usize,
    ranks: usize,
    share: usize,
    fields: [usize; 4],
}

impl Columns {
    fn of(rows: &[Row<'_>], lead: usize) -> Columns {
        let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or_default();
        Columns {
            lead,
            ranks: widest(|row| width(&row.ranks)),
            share: widest(|row| width(&row.share)),
            fields: [
                widest(|row| width(&row.fields[0])),
                widest(|row| width(&row.fields[1])),
                widest(|row| width(&row.fields[2])),
                widest(|row| width(&row.fields[3])),
            ],
        }
    }

    /// Column where the call begins.
    fn call(&self) -> usize {
        INDENT + self.lead + self.ranks + 1 + self.share + GAP
    }

    /// Column behind the call.
    fn call_end(&self) -> usize {
        let fields: usize = self.fields.iter().filter(|field| **field > 0).map(|field| field + 1).sum();
        self.call() + fields.saturating_sub(1)
    }
}

/// Columns of a text once it is escaped.
fn width(text: &str) -> usize {
    text::escape(text).chars().count()
}

/// One item per side, in the finding's order.
pub(super) fn items(finding: &Finding, options: &RenderOptions) -> Vec<Item> {
    let rows = rows(finding, options);
    let width = options.width;
    let fits = |columns: &Columns, functions: usize| {
        let places = rows.iter().map(|row| place_width(&row.place, functions)).max().unwrap_or_default();
        columns.call_end() + GAP + places <= width
    };
    let fit = |columns: &Columns| (1..=place::FUNCTIONS).rev().find(|&functions| fits(columns, functions));
    // The place says more than the position, which stands below as well.
    let (with, without) = (Columns::of(&rows, window::lead(finding)), Columns::of(&rows, 0));
    let columns = if fit(&with).is_none() || fit(&with) < fit(&without) { without } else { with };
    let on_one_line = fit(&columns);
    let position =
        finding.first_visible.filter(|_| columns.lead > 0).map(|at| format!("call {at}")).unwrap_or_default();
    let place_column = rows.iter().map(|row| functions_width(&row.place, on_one_line.unwrap_or(1))).max();
    let first = rows.first().map(|row| row.fields.clone()).unwrap_or_default();
    let some_complete = finding.sides.iter().filter_map(|side| side.call.as_ref()).any(|call| !call.pending);
    rows.iter()
        .map(|row| {
            let mut item = Vec::new();
            let mut line = Line::indented(INDENT);
            line.push(Tone::Strong, &position).pad_to(INDENT + columns.lead);
            line.push(row.tone, &row.ranks).pad_to(INDENT + columns.lead + columns.ranks + 1);
            line.push(Tone::Plain, &row.share);
            let Some(call) = &row.side.call else {
                line.pad_to(columns.call());
                let state = if row.side.state.is_empty() { "" } else { ": " };
                line.push(Tone::Strong, "no call").push(Tone::Plain, state).push(Tone::Plain, &row.side.state);
                return line.wrap(width, columns.call().min(width / 2));
            };
            if columns.call_end() > width {
                item.push(std::mem::replace(&mut line, Line::indented(HANG)));
            } else {
                line.pad_to(columns.call());
            }
            let start = line.width();
            push_call(&mut line, row, &first, &columns);
            if let Some(functions) = on_one_line {
                line.pad_to(start + columns.call_end() - columns.call() + GAP);
                push_place(&mut line, &row.place, functions, place_column.unwrap_or_default());
            }
            if call.pending && some_complete {
                line.push(Tone::Plain, "  pending");
            }
            if !row.side.state.is_empty() {
                line.push(Tone::Plain, "  ").push(Tone::Plain, &row.side.state);
            }
            item.extend(line.wrap(width, HANG));
            if on_one_line.is_none() && row.place != Place::default() {
                item.push(place_line(row, columns.call(), width));
            }
            if options.verbose {
                item.extend(stack(call));
            }
            item
        })
        .collect()
}

fn rows<'a>(finding: &'a Finding, options: &RenderOptions) -> Vec<Row<'a>> {
    let calls: Vec<Option<&CallText>> = finding.sides.iter().map(|side| side.call.as_ref()).collect();
    let sides: usize = finding.sides.iter().map(|side| side.ranks.len()).sum();
    let members = finding.group.as_ref().map_or(0, |group| group.ranks.len()).max(sides);
    let limit = if options.verbose { usize::MAX } else { (options.width / 4).clamp(16, 32) };
    let cell = |text: String| {
        if options.verbose { text } else { text::clip(&text::escape(&text), LONGEST_CELL).into_owned() }
    };
    let has_several = finding.sides.iter().any(|side| side.ranks.len() > 1);
    finding
        .sides
        .iter()
        .zip(place::places(&calls))
        .map(|(side, place)| Row {
            side,
            ranks: ranks(&side.ranks, has_several, limit),
            share: format!("({} of {members})", side.ranks.len()),
            fields: side.call.as_ref().map(|call| fields(call).map(&cell)).unwrap_or_default(),
            place: Place {
                functions: place.functions.into_iter().map(&cell).collect(),
                location: cell(place.location),
            },
            tone: tone(finding, &side.ranks),
        })
        .collect()
}

/// The word 'rank' takes the room of 'ranks' where both occur, so that the numbers line up.
fn ranks(set: &RankSet, has_several: bool, limit: usize) -> String {
    match set.len() {
        1 if has_several => format!("rank  {set}"),
        _ => text::ranks_phrase(set, limit),
    }
}

fn tone(finding: &Finding, ranks: &RankSet) -> Tone {
    let is_bad = [&finding.suspects, &finding.failed, &finding.stalled].iter().any(|set| ranks.is_subset(set));
    match (is_bad, ranks.is_subset(&finding.late)) {
        (true, _) => Tone::Error,
        (false, true) => Tone::Warning,
        (false, false) => Tone::Plain,
    }
}

/// The call in columns: operation, count, type, the rest.
pub(super) fn fields(call: &CallText) -> [String; 4] {
    if let Some(object) = call.object {
        // The program made one call; its count and type are the framework's.
        let part = objects::part(call.dtype.as_deref());
        let part = call.count.map_or_else(|| part.to_owned(), |count| format!("{part}, {count}"));
        return [object.to_uppercase(), String::new(), String::new(), format!("({part})")];
    }
    // A barrier moves nothing: its one element is the library's, not the program's.
    let is_barrier = call.op.ends_with("barrier");
    let count = call.count.filter(|_| !is_barrier).map(|count| count.to_string()).unwrap_or_default();
    let dtype = call.dtype.clone().filter(|_| !is_barrier).unwrap_or_default();
    let direction = match call.op.as_str() {
        "send" | "isend" => "to",
        "recv" | "irecv" => "from",
        _ => "peer",
    };
    let rest = [
        call.redop.clone().filter(|_| !is_barrier),
        call.root.map(|root| format!("root {root}")),
        call.peer.map(|peer| format!("{direction} {peer}")),
        call.tag.map(|tag| format!("tag {tag}")),
    ];
    [call.op.to_uppercase(), count, dtype, rest.into_iter().flatten().collect::<Vec<_>>().join(" ")]
}

fn push_call(line: &mut Line, row: &Row<'_>, first: &[String; 4], columns: &Columns) {
    let mut column = line.width();
    let other_op = row.fields.first() != first.first();
    for (at, ((field, same), &room)) in row.fields.iter().zip(first).zip(&columns.fields).enumerate() {
        if room == 0 {
            continue;
        }
        let stands_out = field != same && (at == 0 || !other_op);
        let tone = match (stands_out, row.tone) {
            (true, Tone::Plain) => Tone::Strong,
            (true, tone) => tone,
            (false, _) => Tone::Plain,
        };
        // Counts line up at their last digit.
        let blanks = if at == 1 { room.saturating_sub(width(field)) } else { 0 };
        line.pad_to(column + blanks).push(tone, field);
        column += room + 1;
        line.pad_to(column);
    }
}

/// 'in a > b', of the innermost functions; empty if none is known.
fn functions(place: &Place, limit: usize) -> String {
    let skipped = place.functions.len().saturating_sub(limit);
    let shown = place.functions.get(skipped..).unwrap_or_default();
    if shown.is_empty() { String::new() } else { format!("in {}", shown.join(" > ")) }
}

fn functions_width(place: &Place, limit: usize) -> usize {
    width(&functions(place, limit))
}

fn place_width(place: &Place, limit: usize) -> usize {
    let location = width(&place.location);
    functions_width(place, limit) + if location > 0 { GAP + location } else { 0 }
}

fn push_place(line: &mut Line, place: &Place, limit: usize, column: usize) {
    let start = line.width();
    line.push(Tone::Plain, &functions(place, limit));
    if !place.location.is_empty() {
        let gap = if column > 0 { GAP } else { 0 };
        line.pad_to(start + column + gap).push(Tone::Hint, &place.location);
    }
}

/// The place on a line of its own, below the call where there is room.
fn place_line(row: &Row<'_>, call_column: usize, width: usize) -> Line {
    let fits = |column: usize, functions: usize| column + place_width(&row.place, functions) <= width;
    let below = (1..=place::FUNCTIONS).rev().find(|&functions| fits(call_column, functions));
    let (column, limit) = match below {
        Some(functions) => (call_column, functions),
        None => (HANG, (1..=place::FUNCTIONS).rev().find(|&functions| fits(HANG, functions)).unwrap_or(1)),
    };
    let mut line = Line::indented(column);
    push_place(&mut line, &row.place, limit, functions_width(&row.place, limit));
    line
}

/// The whole stack, outermost first.
fn stack(call: &CallText) -> Vec<Line> {
    place::frames(call)
        .iter()
        .map(|frame| {
            let mut line = Line::indented(HANG);
            line.push(Tone::Faint, &place::whole(frame));
            line
        })
        .collect()
}
