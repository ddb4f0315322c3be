//! Made-up programs that are healthy by construction: one global order of events, of which each rank executes its part.
//! An order that exists for the whole job cannot deadlock, whatever the speeds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;

/// A group of ranks.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) ranks: Vec<u32>,
}

/// What a collective passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collective {
    pub(crate) op: &'static str,
    /// Elements; `None` for a barrier.
    pub(crate) count: Option<u64>,
    pub(crate) dtype: &'static str,
    pub(crate) redop: Option<&'static str>,
    /// Global rank.
    pub(crate) root: Option<u32>,
    pub(crate) site: String,
}

/// One thing that happens in the job.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Collective {
        group: usize,
        call: Collective,
    },
    /// `matrix[i][j]`: what member i sends to member j.
    Splits {
        group: usize,
        dtype: &'static str,
        site: String,
        matrix: Vec<Vec<u64>>,
    },
    Message {
        group: usize,
        from: u32,
        to: u32,
        count: u64,
        dtype: &'static str,
        tag: i64,
        site: String,
    },
    /// Every member sends to the next one and receives from the one before, in one batch.
    Ring {
        group: usize,
        count: u64,
        dtype: &'static str,
        site: String,
    },
    /// A rank is busy with something else, ms.
    Pause {
        rank: u32,
        ms: u64,
    },
}

impl Event {
    pub(crate) fn group(&self) -> Option<usize> {
        match self {
            Event::Collective { group, .. }
            | Event::Splits { group, .. }
            | Event::Message { group, .. }
            | Event::Ring { group, .. } => Some(*group),
            Event::Pause { .. } => None,
        }
    }

    /// Whether it takes a position on its group.
    pub(crate) fn has_position(&self) -> bool {
        matches!(self, Event::Collective { .. } | Event::Splits { .. })
    }
}

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) world: u32,
    pub(crate) blocking: bool,
    pub(crate) step_ms: u64,
    pub(crate) groups: Vec<Group>,
    pub(crate) prologue: Vec<Event>,
    pub(crate) body: Vec<Event>,
    pub(crate) rounds: u64,
    pub(crate) epilogue: Vec<Event>,
    /// Lines of the document that say what the recorder missed.
    pub(crate) blind: Vec<String>,
}

const DTYPES: [&str; 6] = ["f32", "bf16", "f16", "i64", "f64", "u8"];
const REDOPS: [&str; 3] = ["sum", "max", "min"];

impl Program {
    /// A program of about `calls` calls per rank.
    pub(crate) fn random(rng: &mut Rng, calls: u64) -> Program {
        let (world, groups) = shape(rng);
        let blocking = rng.bool();
        let mut made = Maker { rng, groups: &groups, blocking, sites: 0 };
        let prologue_length = made.rng.usize(0..4);
        let prologue = made.events(prologue_length);
        let body_length = made.rng.usize(1..14);
        let body = made.events(body_length);
        let epilogue_length = made.rng.usize(0..4);
        let epilogue = made.events(epilogue_length);
        let rounds = (calls / body.len() as u64).max(1);
        Program {
            world,
            blocking,
            step_ms: rng.u64(1..50),
            groups,
            prologue,
            body,
            rounds,
            epilogue,
            blind: Vec::new(),
        }
    }

    /// The document of the scenario; `end` tells how the ranks ended.
    pub(crate) fn document(&self, id: &str, end: &str) -> String {
        let all: Vec<Vec<String>> = (0..self.world).map(|rank| self.stream(rank)).collect();
        self.document_of(id, end, &all)
    }

    /// The document with these lines for each rank.
    pub(crate) fn document_of(&self, id: &str, end: &str, streams: &[Vec<String>]) -> String {
        let mut text =
            format!("id: {id}\nworld: {}\nstep_ms: {}\nblocking: {}\n", self.world, self.step_ms, self.blocking);
        text.push_str("groups:\n");
        for group in &self.groups {
            let _ = writeln!(text, "  {}: {:?}", group.name, group.ranks);
        }
        for line in &self.blind {
            let _ = writeln!(text, "{line}");
        }
        text.push_str("streams:\n");
        for (rank, stream) in streams.iter().enumerate() {
            let _ = writeln!(text, "  \"{rank}\":{}", if stream.is_empty() { " []" } else { "" });
            for line in stream {
                let _ = writeln!(text, "    {line}");
            }
        }
        let _ = writeln!(text, "end: {end}\nverdict: {{class: clean}}");
        text
    }

    /// What a rank executes.
    pub(crate) fn stream(&self, rank: u32) -> Vec<String> {
        let mut lines = self.lines(rank, &self.prologue, "");
        let body = self.lines(rank, &self.body, "    ");
        if !body.is_empty() {
            lines.push(format!("- repeat: {}", self.rounds));
            lines.push("  do:".to_owned());
            lines.extend(body);
        }
        lines.extend(self.lines(rank, &self.epilogue, ""));
        lines
    }

    /// Lines of one rank for some events.
    pub(crate) fn lines(&self, rank: u32, events: &[Event], indent: &str) -> Vec<String> {
        events.iter().flat_map(|event| self.calls(rank, event)).map(|call| format!("{indent}{call}")).collect()
    }

    /// The steps of one rank for one event.
    pub(crate) fn calls(&self, rank: u32, event: &Event) -> Vec<String> {
        let place = |group: usize| self.groups[group].ranks.iter().position(|&member| member == rank);
        match event {
            Event::Collective { group, call } if place(*group).is_some() => {
                vec![collective(&self.groups[*group].name, call)]
            }
            Event::Splits { group, dtype, site, matrix } => {
                let Some(me) = place(*group) else { return Vec::new() };
                let sends = &matrix[me];
                let recvs: Vec<u64> = matrix.iter().map(|row| row[me]).collect();
                let sum: u64 = sends.iter().sum();
                vec![format!(
                    "- all_to_all {sum} {dtype} @{} {site} splits={} recv_splits={}",
                    self.groups[*group].name,
                    list(sends),
                    list(&recvs)
                )]
            }
            Event::Message { group, from, to, count, dtype, tag, site } => {
                let name = &self.groups[*group].name;
                if rank == *from {
                    vec![format!("- send {count} {dtype} @{name} {site} peer={to} tag={tag}")]
                } else if rank == *to {
                    vec![format!("- recv {count} {dtype} @{name} {site} peer={from} tag={tag}")]
                } else {
                    Vec::new()
                }
            }
            Event::Ring { group, count, dtype, site } => {
                let Some(me) = place(*group) else { return Vec::new() };
                let ranks = &self.groups[*group].ranks;
                let next = ranks[(me + 1) % ranks.len()];
                let before = ranks[(me + ranks.len() - 1) % ranks.len()];
                let name = &self.groups[*group].name;
                vec![format!(
                    "- {{group_call: [\"send {count} {dtype} @{name} {site} peer={next}\", \"recv {count} {dtype} @{name} {site} peer={before}\"]}}"
                )]
            }
            Event::Pause { rank: who, ms } if *who == rank => vec![format!("- sleep_ms: {ms}")],
            Event::Collective { .. } | Event::Pause { .. } => Vec::new(),
        }
    }

    /// Whether a rank is a member of a group.
    pub(crate) fn is_member(&self, group: usize, rank: u32) -> bool {
        self.groups[group].ranks.contains(&rank)
    }
}

/// A collective as a step.
pub(crate) fn collective(group: &str, call: &Collective) -> String {
    let mut text = match call.count {
        Some(count) => format!("- {} {count} {} @{group} {}", call.op, call.dtype, call.site),
        None => format!("- {} - - @{group} {}", call.op, call.site),
    };
    if let Some(redop) = call.redop {
        let _ = write!(text, " redop={redop}");
    }
    if let Some(root) = call.root {
        let _ = write!(text, " root={root}");
    }
    text
}

fn list(numbers: &[u64]) -> String {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", words.join(","))
}

/// Nested tensor, pipeline and data groups over some ranks, and the whole job.
fn shape(rng: &mut Rng) -> (u32, Vec<Group>) {
    let (tensor, pipeline, data) = loop {
        let shape = (rng.u32(1..5), rng.u32(1..5), rng.u32(1..9));
        if (2..=64).contains(&(shape.0 * shape.1 * shape.2)) {
            break shape;
        }
    };
    let world = tensor * pipeline * data;
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for rank in 0..world {
        let (t, p, d) = (rank % tensor, rank / tensor % pipeline, rank / (tensor * pipeline));
        for (name, size) in
            [(format!("tp_{p}_{d}"), tensor), (format!("pp_{t}_{d}"), pipeline), (format!("dp_{t}_{p}"), data)]
        {
            if size > 1 {
                groups.entry(name).or_default().push(rank);
            }
        }
        groups.entry("world".to_owned()).or_default().push(rank);
        if data > 1 && rng.u8(0..4) == 0 {
            // Groups of one rank take no part.
            groups.insert(format!("alone_{rank}"), vec![rank]);
        }
    }
    (world, groups.into_iter().map(|(name, ranks)| Group { name, ranks }).collect())
}

struct Maker<'a> {
    rng: &'a mut Rng,
    groups: &'a [Group],
    blocking: bool,
    sites: u32,
}

impl Maker<'_> {
    fn events(&mut self, number: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < number {
            let world = self.groups.iter().position(|group| group.name == "world").expect("every job has one");
            // Parallel groups of one kind do the same thing at the same place, as real programs do.
            let chosen = if self.rng.u8(0..3) == 0 { world } else { self.rng.usize(0..self.groups.len()) };
            let kind = self.groups[chosen].name.split('_').next().unwrap_or_default().to_owned();
            let alike: Vec<usize> = (0..self.groups.len())
                .filter(|&at| self.groups[at].name.split('_').next() == Some(kind.as_str()))
                .collect();
            self.sites += 1;
            let site = format!(
                "train.py:{}:{}>layer{}",
                10 + self.sites,
                ["step", "forward", "loss"][self.rng.usize(0..3)],
                self.sites
            );
            match self.rng.u8(0..12) {
                0 => {
                    let rank = self.rng.u32(0..self.groups[world].ranks.len() as u32);
                    events.push(Event::Pause { rank, ms: self.rng.u64(1..400) });
                }
                1 => self.messages(&alike, &site, &mut events),
                2 => {
                    let (count, dtype) = (self.count(), self.dtype());
                    // A blocking send waits for its receive: a ring of them only works in a batch.
                    if !self.blocking {
                        for group in alike.into_iter().filter(|&group| self.groups[group].ranks.len() > 1) {
                            events.push(Event::Ring { group, count, dtype, site: site.clone() });
                        }
                    }
                }
                3 => {
                    let dtype = self.dtype();
                    for group in alike {
                        let size = self.groups[group].ranks.len();
                        let matrix = (0..size).map(|_| (0..size).map(|_| self.rng.u64(0..9)).collect()).collect();
                        events.push(Event::Splits { group, dtype, site: site.clone(), matrix });
                    }
                }
                4 => {
                    // An object: its length, then its bytes.
                    for group in alike {
                        let root = Some(self.groups[group].ranks[0]);
                        let site = format!("{site}>broadcast_object_list");
                        for (count, dtype) in [(1, "i64"), (self.rng.u64(40..900), "u8")] {
                            let call = Collective {
                                op: "broadcast",
                                count: Some(count),
                                dtype,
                                redop: None,
                                root,
                                site: site.clone(),
                            };
                            events.push(Event::Collective { group, call });
                        }
                    }
                }
                _ => {
                    let template = self.collective(&site);
                    for group in alike {
                        let members = &self.groups[group].ranks;
                        let root = template.root.map(|at| members[at as usize % members.len()]);
                        events.push(Event::Collective { group, call: Collective { root, ..template.clone() } });
                    }
                }
            }
        }
        events
    }

    /// Each member passes something on to the next one.
    fn messages(&mut self, alike: &[usize], site: &str, events: &mut Vec<Event>) {
        let (count, dtype, tag) = (self.count(), self.dtype(), self.rng.i64(0..3));
        for &group in alike {
            for pair in self.groups[group].ranks.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                events.push(Event::Message { group, from, to, count, dtype, tag, site: site.to_owned() });
            }
        }
    }

    /// The root is a place among the members.
    fn collective(&mut self, site: &str) -> Collective {
        let (count, dtype) = (Some(self.count()), self.dtype());
        let redop = Some(REDOPS[self.rng.usize(0..3)]);
        let root = Some(self.rng.u32(0..64));
        let plain = |op| Collective { op, count, dtype, redop: None, root: None, site: site.to_owned() };
        match self.rng.u8(0..10) {
            0 => Collective { count: None, ..plain("barrier") },
            1 => Collective { root, ..plain("broadcast") },
            2 => Collective { root, redop, ..plain("reduce") },
            3 => plain("all_gather"),
            4 => Collective { redop, ..plain("reduce_scatter") },
            5 => Collective { root, ..plain("gather") },
            6 => Collective { root, ..plain("scatter") },
            7 => plain("all_to_all"),
            _ => Collective { redop, ..plain("all_reduce") },
        }
    }

    fn count(&mut self) -> u64 {
        match self.rng.u8(0..8) {
            0 => 0,
            1 => 1,
            _ => 1 << self.rng.u8(1..24),
        }
    }

    fn dtype(&mut self) -> &'static str {
        DTYPES[self.rng.usize(0..DTYPES.len())]
    }
}
