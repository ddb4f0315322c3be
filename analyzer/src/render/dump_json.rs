//! Where ranks stand, as JSON (docs/report.md, docs/schema/dump-1.0.json).
//!
//! The structs here are the schema, as those of the report are.

use std::io::{self, Write};

use serde::Serialize;

use super::json::{Call, Group, terminal_safe};
use crate::standing::{Chain, CommStanding, Frontier, Link, RankStanding, Standing};

/// Version of the schema: major.minor. A minor one only adds fields.
pub const DUMP_SCHEMA_VERSION: &str = "1.0";

/// Writes where ranks stand as one JSON document.
///
/// # Errors
/// What the writer returns.
pub fn dump_json(standing: &Standing, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_json::to_string_pretty(&Document::new(standing)).map_err(io::Error::from)?;
    out.write_all(terminal_safe(&text).as_bytes())?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: &'static str,
    ranks_expected: usize,
    ranks_seen: usize,
    missing: String,
    calls: u64,
    attempts: usize,
    quiet_ms: Option<u64>,
    chains: Vec<ChainJson<'a>>,
    ranks: Vec<Whereabouts<'a>>,
    communicators: Vec<Communicator<'a>>,
    problems: &'a [String],
}

#[derive(Serialize)]
struct ChainJson<'a> {
    roots: String,
    differ: String,
    cycle: &'a [u32],
    unsure: String,
    links: Vec<LinkJson<'a>>,
}

#[derive(Serialize)]
struct LinkJson<'a> {
    distance: usize,
    ranks: String,
    count: usize,
    behind: String,
    call: Call<'a>,
    on: &'a str,
    communicators: usize,
    waited_ms: u64,
}

#[derive(Serialize)]
struct Whereabouts<'a> {
    ranks: String,
    count: usize,
    state: &'a str,
    inside: bool,
    call: Option<Call<'a>>,
    on: &'a str,
    since_ms: Option<u64>,
    waited_for: bool,
    facts: &'a [String],
}

#[derive(Serialize)]
struct Communicator<'a> {
    group: Group<'a>,
    communicators: usize,
    ranks: String,
    frontiers: Vec<FrontierJson<'a>>,
    unknown: String,
}

#[derive(Serialize)]
struct FrontierJson<'a> {
    ranks: String,
    count: usize,
    entered: Span,
    completed: Option<Span>,
    call: Option<Call<'a>>,
    doubt: &'a str,
}

#[derive(Serialize)]
struct Span {
    least: u64,
    most: u64,
}

impl Span {
    fn new((least, most): (u64, u64)) -> Span {
        Span { least, most }
    }
}

impl<'a> Document<'a> {
    fn new(standing: &'a Standing) -> Document<'a> {
        Document {
            schema_version: DUMP_SCHEMA_VERSION,
            ranks_expected: standing.ranks_expected,
            ranks_seen: standing.ranks_seen.len(),
            missing: standing.missing.to_string(),
            calls: standing.calls,
            attempts: standing.attempts,
            quiet_ms: standing.quiet_ms,
            chains: standing.chains.iter().map(ChainJson::new).collect(),
            ranks: standing.ranks.iter().map(Whereabouts::new).collect(),
            communicators: standing.comms.iter().map(Communicator::new).collect(),
            problems: &standing.problems,
        }
    }
}

impl<'a> ChainJson<'a> {
    fn new(chain: &'a Chain) -> ChainJson<'a> {
        ChainJson {
            roots: chain.roots.to_string(),
            differ: chain.differ.to_string(),
            cycle: &chain.cycle,
            unsure: chain.unsure.to_string(),
            links: chain.links.iter().map(LinkJson::new).collect(),
        }
    }
}

impl<'a> LinkJson<'a> {
    fn new(link: &'a Link) -> LinkJson<'a> {
        LinkJson {
            distance: link.distance,
            ranks: link.ranks.to_string(),
            count: link.ranks.len(),
            behind: link.behind.to_string(),
            call: Call::new(&link.call),
            on: &link.on,
            communicators: link.comms,
            waited_ms: link.waited_ms,
        }
    }
}

impl<'a> Whereabouts<'a> {
    fn new(one: &'a RankStanding) -> Whereabouts<'a> {
        Whereabouts {
            ranks: one.ranks.to_string(),
            count: one.ranks.len(),
            state: &one.life,
            inside: one.inside,
            call: one.call.as_ref().map(Call::new),
            on: &one.on,
            since_ms: one.since_ms,
            waited_for: one.waited_for,
            facts: &one.facts,
        }
    }
}

impl<'a> Communicator<'a> {
    fn new(one: &'a CommStanding) -> Communicator<'a> {
        Communicator {
            group: Group::new(&one.group),
            communicators: one.comms,
            ranks: one.ranks.to_string(),
            frontiers: one.frontiers.iter().map(FrontierJson::new).collect(),
            unknown: one.unknown.to_string(),
        }
    }
}

impl<'a> FrontierJson<'a> {
    fn new(frontier: &'a Frontier) -> FrontierJson<'a> {
        FrontierJson {
            ranks: frontier.ranks.to_string(),
            count: frontier.ranks.len(),
            entered: Span::new(frontier.entered),
            completed: frontier.completed.map(Span::new),
            call: frontier.call.as_ref().map(Call::new),
            doubt: &frontier.doubt,
        }
    }
}
