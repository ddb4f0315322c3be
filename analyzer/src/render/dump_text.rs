//! Where ranks stand, for people: communicators, waits, ranks, each in groups of what is identical.
//!
//! Reading order: what was seen, who waits for whom from those who wait for nobody on, where each rank is, how far each
//! communicator has come, what could not be read. Cut to one screen unless all is wanted, and says so where it is cut.

use std::io::{self, Write};

use rankdiff_trace::RankSet;

use super::place;
use super::screen::{Item, Line, Section, Tone, fit, write};
use super::{RenderOptions, text};
use crate::finding::{CallText, GroupRef};
use crate::standing::{Chain, CommStanding, Frontier, Link, RankStanding, Standing};
use crate::words::call_phrase;

/// Lines of a screen.
const SCREEN: usize = 36;
const NARROWEST: usize = 40;
/// Longest text of one fact, unless verbose.
const LONGEST: usize = 200;
/// Lines that one group may take, unless verbose.
const TALLEST: usize = 3;
/// Ranks of a cycle that are printed unless verbose.
const CYCLE: usize = 16;
/// Distances that are shown by how far in a line begins.
const DEEPEST: usize = 6;
/// What to do where something was cut.
const MORE: &str = "--all, --rank, --comm";

/// Writes where ranks stand. `verbose` of the options: everything, however long.
///
/// # Errors
/// What the writer returns.
pub fn dump_text(standing: &Standing, options: &RenderOptions, out: &mut dyn Write) -> io::Result<()> {
    let options = RenderOptions { width: options.width.max(NARROWEST), ..options.clone() };
    let page = Page { options: &options };
    let mut sections = vec![Section::fixed(page.seen(standing))];
    sections.push(Section::fixed(vec![page.heading("who waits for whom")]));
    for (at, chain) in standing.chains.iter().enumerate() {
        let items = page.chain(chain);
        // The first chain is the one most ranks hang on.
        sections.push(Section::sheddable(items, if at == 0 { 5 } else { 1 }, 2, "line"));
    }
    if standing.chains.is_empty() {
        sections.push(Section::fixed(vec![page.line(2, "nobody waits")]));
    }
    sections.push(Section::fixed(vec![page.heading("where each rank is")]));
    sections.push(Section::sheddable(page.ranks(&standing.ranks), 4, 4, "group"));
    sections.push(Section::fixed(vec![page.heading(&communicators(&standing.comms))]));
    sections.push(Section::sheddable(page.comms(&standing.comms), 3, 3, "line"));
    let problems = standing.problems.iter().map(|problem| page.warning("problem", problem)).collect();
    sections.push(Section::sheddable(problems, 1, 5, "problem"));
    if !options.verbose {
        fit(&mut sections, SCREEN);
    }
    write(&sections, 2, MORE, options.color, out)
}

fn communicators(comms: &[CommStanding]) -> String {
    let all: usize = comms.iter().map(|one| one.comms).sum();
    if all == 0 {
        return "no collective was called on a communicator of several ranks".to_owned();
    }
    let differ: usize = comms.iter().filter(|one| one.frontiers.len() > 1).map(|one| one.comms).sum();
    let differ = match differ {
        0 => String::new(),
        1 => ", the members of 1 stand at different calls".to_owned(),
        differ => format!(", the members of {} stand at different calls", text::grouped(differ as u64)),
    };
    format!("how far each communicator has come ({}{differ})", text::counted(all as u64, "communicator"))
}

/// Lays out for one set of options.
struct Page<'a> {
    options: &'a RenderOptions,
}

impl Page<'_> {
    fn seen(&self, standing: &Standing) -> Vec<Item> {
        let seen = standing.ranks_seen.len() as u64;
        let ranks = match standing.ranks_expected as u64 {
            0 => text::counted(seen, "rank"),
            expected => format!("{} of {}", text::grouped(seen), text::counted(expected, "rank")),
        };
        let quiet = standing
            .quiet_ms
            .map_or_else(String::new, |ms| format!(", the last of them {} before the record ends", text::duration(ms)));
        let mut items = vec![self.line(0, &format!("seen: {ranks}, {}{quiet}", text::counted(standing.calls, "call")))];
        if standing.attempts > 1 {
            let runs = text::grouped(standing.attempts as u64);
            items.push(self.line(2, &format!("{runs} runs in it; this is the latest")));
        }
        if !standing.missing.is_empty() {
            items.push(self.warning("missing", &format!("no trace of {}", self.set(&standing.missing))));
        }
        items
    }

    fn heading(&self, words: &str) -> Item {
        let mut line = Line::default();
        line.push(Tone::Strong, words);
        line.wrap(self.options.width, 2)
    }

    fn line(&self, indent: usize, words: &str) -> Item {
        let mut line = Line::indented(indent);
        line.push(Tone::Plain, words);
        self.wrap(line, indent + 4)
    }

    fn warning(&self, label: &str, words: &str) -> Item {
        let mut line = Line::indented(2);
        line.push(Tone::Warning, label).push(Tone::Plain, ": ").push(Tone::Plain, &self.clip(words));
        self.wrap(line, 4)
    }

    fn chain(&self, chain: &Chain) -> Vec<Item> {
        let mut items = vec![self.head(chain)];
        items.extend(chain.links.iter().map(|link| self.link(link)));
        items
    }

    /// Who is waited for.
    fn head(&self, chain: &Chain) -> Item {
        let mut line = Line::indented(2);
        if !chain.roots.is_empty() {
            let why = if chain.differ.is_empty() {
                "not arrived, and in no call that waits for others"
            } else if chain.differ == chain.roots {
                "made another call than those who wait"
            } else {
                "not arrived, or made another call than those who wait"
            };
            line.push(Tone::Error, &self.set(&chain.roots)).push(Tone::Plain, &format!("  {why}"));
        } else if !chain.cycle.is_empty() {
            let limit = if self.options.verbose { usize::MAX } else { CYCLE };
            line.push(Tone::Error, "each waits for the next: ");
            line.push(Tone::Plain, &text::cycle(&chain.cycle, limit));
        } else if !chain.differ.is_empty() {
            line.push(Tone::Warning, &self.set(&chain.differ));
            line.push(Tone::Plain, "  made different calls, and no side is a majority");
        } else if !chain.unsure.is_empty() {
            line.push(Tone::Warning, &self.set(&chain.unsure));
            line.push(Tone::Plain, "  perhaps not arrived: the record does not say");
        } else {
            line.push(Tone::Warning, "nobody is missing").push(Tone::Plain, ": all members have entered");
        }
        self.wrap(line, 6)
    }

    fn link(&self, link: &Link) -> Item {
        // Who waits for those who wait stands further in, as far as there is room.
        let indent = 2 + 2 * link.distance.clamp(1, DEEPEST);
        let mut line = Line::indented(indent);
        let arrow = if link.distance == 0 { "" } else { "<- " };
        line.push(Tone::Hint, arrow).push(Tone::Plain, &self.counted(&link.ranks));
        let comms = self.comms_named(&link.on, link.comms);
        let position = position(&link.call);
        let waited = text::duration(link.waited_ms);
        let call = phrase(&link.call);
        line.push(Tone::Plain, &format!("  in {call} on {comms}{position}, for {waited}"));
        self.wrap(line, indent + 4)
    }

    fn ranks(&self, ranks: &[RankStanding]) -> Vec<Item> {
        ranks
            .iter()
            .map(|one| {
                let mut line = Line::indented(2);
                let tone = if one.waited_for { Tone::Error } else { Tone::Plain };
                line.push(tone, &self.counted(&one.ranks)).push(Tone::Plain, "  ");
                line.push(Tone::Plain, &self.situation(one));
                self.wrap(line, 6)
            })
            .collect()
    }

    fn situation(&self, one: &RankStanding) -> String {
        let since = one.since_ms.map(text::duration);
        let waits = one.life.starts_with("waiting");
        let mut words = match (&one.call, one.inside) {
            (None, _) if waits => "waiting in a call that the record lacks".to_owned(),
            (None, _) => "made no call".to_owned(),
            (Some(call), inside) => {
                let at = place_of(call);
                let on = if one.on.is_empty() { String::new() } else { format!(" on {}", one.on) };
                let since = match (inside, &since) {
                    _ if !is_alive(&one.life) => String::new(),
                    (true, Some(since)) => format!(" for {since}"),
                    (false, Some(since)) => format!(" {since} ago"),
                    (_, None) => String::new(),
                };
                let verb = match inside {
                    true => "inside",
                    false if waits => "waiting in a call that the record lacks; the last one there was",
                    false => "outside of any call; the last one was",
                };
                format!("{verb} {}{on}{since}{at}", phrase(call))
            }
        };
        if !one.life.is_empty() && !waits {
            let when = match one.since_ms {
                Some(ms) if !is_alive(&one.life) && ms >= 1000 => {
                    format!(" {} before the record ends", text::duration(ms))
                }
                _ => String::new(),
            };
            words = format!("{}{when}; {words}", one.life);
        }
        let facts = if self.options.verbose { one.facts.len() } else { 1 };
        for fact in one.facts.iter().take(facts) {
            words.push_str("; ");
            words.push_str(&self.clip(fact));
        }
        words
    }

    fn comms(&self, comms: &[CommStanding]) -> Vec<Item> {
        let mut items = Vec::new();
        for one in comms {
            let name = self.name(&one.group, one.comms);
            let mut header = Line::indented(2);
            header.push(Tone::Plain, &name);
            if let ([frontier], true) = (one.frontiers.as_slice(), one.unknown.is_empty()) {
                header.push(Tone::Plain, &format!("  {}", frontier_words(frontier)));
                items.push(self.wrap(header, 6));
                continue;
            }
            // A name without what follows says nothing: it is cut with its first line.
            let mut lines = self.wrap(header, 6);
            let mut rest = one.frontiers.iter().map(|frontier| {
                let mut line = Line::indented(4);
                line.push(Tone::Plain, &self.counted(&frontier.ranks));
                line.push(Tone::Plain, &format!("  {}", frontier_words(frontier)));
                self.wrap(line, 8)
            });
            lines.extend(rest.next().into_iter().flatten());
            items.push(lines);
            items.extend(rest);
            if !one.unknown.is_empty() {
                let mut line = Line::indented(4);
                line.push(Tone::Warning, &self.set(&one.unknown)).push(Tone::Plain, "  not known");
                items.push(self.wrap(line, 8));
            }
        }
        items
    }

    /// `tp0 (tensor_parallel, 8 ranks)`, `1,280 x tensor_parallel (8 ranks)`.
    fn name(&self, group: &GroupRef, comms: usize) -> String {
        let name = if group.name.is_empty() { group.identity.to_string() } else { group.name.clone() };
        let ranks = text::counted(group.ranks.len() as u64, "rank");
        if comms > 1 {
            let kind = if group.desc.is_empty() { name } else { group.desc.clone() };
            return format!("{} x {} ({ranks} each)", text::grouped(comms as u64), self.clip(&kind));
        }
        let about =
            if group.desc.is_empty() || group.desc == group.name { String::new() } else { format!("{}, ", group.desc) };
        let library = if group.library.is_empty() { String::new() } else { format!(", {}", group.library) };
        format!("{} ({}{ranks}{library})", self.clip(&name), self.clip(&about))
    }

    fn comms_named(&self, on: &str, comms: usize) -> String {
        if comms > 1 { format!("{} x {}", text::grouped(comms as u64), self.clip(on)) } else { self.clip(on) }
    }

    fn set(&self, set: &RankSet) -> String {
        let limit = if self.options.verbose { usize::MAX } else { (self.options.width / 4).clamp(16, 32) };
        text::ranks_phrase(set, limit)
    }

    /// 'rank 6', 'ranks 0-5,7 (7)'.
    fn counted(&self, set: &RankSet) -> String {
        match set.len() {
            0 | 1 => self.set(set),
            many => format!("{} ({})", self.set(set), text::grouped(many as u64)),
        }
    }

    fn clip(&self, words: &str) -> String {
        if self.options.verbose { words.to_owned() } else { text::clip(&text::escape(words), LONGEST).into_owned() }
    }

    fn wrap(&self, line: Line, hang: usize) -> Item {
        let mut lines = line.wrap(self.options.width, hang);
        if !self.options.verbose && lines.len() > TALLEST {
            lines.truncate(TALLEST);
            if let Some(last) = lines.last_mut() {
                last.push(Tone::Faint, " …");
            }
        }
        lines
    }
}

fn is_alive(life: &str) -> bool {
    !(life.starts_with("exited") || life.starts_with("killed") || life.starts_with("ended") || life.starts_with("has "))
}

fn phrase(call: &CallText) -> String {
    let mut words = call_phrase(call, false);
    if let Some(peer) = call.peer {
        words.push_str(if call.op.ends_with("send") { " to" } else { " from" });
        words.push_str(&format!(" rank {peer}"));
    }
    if let Some(tag) = call.tag {
        words.push_str(&format!(", tag {tag},"));
    }
    words
}

/// The position, where it is one call's.
fn position(call: &CallText) -> String {
    call.seq.map_or_else(String::new, |seq| format!(" (call {seq})"))
}

/// ', in f > g, file:line'; empty if it is not known.
fn place_of(call: &CallText) -> String {
    let place = place::places(&[Some(call)]).into_iter().next().unwrap_or_default();
    let functions = place.functions.join(" > ");
    match (functions.is_empty(), place.location.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(", in {functions}"),
        (true, false) => format!(", at {}", place.location),
        (false, false) => format!(", in {functions} ({})", place.location),
    }
}

fn frontier_words(frontier: &Frontier) -> String {
    let range = |(low, high): (u64, u64)| {
        if low == high { text::grouped(low) } else { format!("{} to {}", text::grouped(low), text::grouped(high)) }
    };
    let mut words = format!("entered {}", range(frontier.entered));
    match frontier.completed {
        Some(done) => words.push_str(&format!(", completed {}", range(done))),
        None => words.push_str(", completions not seen"),
    }
    match &frontier.call {
        Some(call) if call.pending => {
            words.push_str(&format!("; in {}{}", phrase(call), position(call)));
        }
        Some(call) => words.push_str(&format!("; last {}", phrase(call))),
        None if frontier.entered.1 == 0 => {}
        None => words.push_str("; the last call was not decoded"),
    }
    if !frontier.doubt.is_empty() {
        words.push_str(&format!("; perhaps more: {}", frontier.doubt));
    }
    words
}
