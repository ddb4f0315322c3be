//! Programs as scenario documents.
//!
//! What depends on the rank or the group alone (thread, device stream, label, another line of the same call) is added to
//! every line where the document is written, so that whoever puts other calls into a stream need not know of it.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::program::{Collective, Event, Group, Program};

impl Program {
    /// The document of the scenario; `end` tells how the ranks ended.
    pub fn document(&self, id: &str, end: &str) -> String {
        let all: Vec<Vec<String>> = (0..self.world).map(|rank| self.stream(rank)).collect();
        self.document_of(id, end, &all)
    }

    /// The document with these lines for each rank.
    pub fn document_of(&self, id: &str, end: &str, streams: &[Vec<String>]) -> String {
        let mut text =
            format!("id: {id}\nworld: {}\nstep_ms: {}\nblocking: {}\n", self.world, self.step_ms, self.blocking);
        text.push_str("groups:\n");
        for group in &self.groups {
            let _ = writeln!(text, "  {}: {}", group.name, described(group));
        }
        for line in &self.blind {
            let _ = writeln!(text, "{line}");
        }
        text.push_str("streams:\n");
        for (rank, stream) in streams.iter().enumerate() {
            let _ = writeln!(text, "  \"{rank}\":{}", if stream.is_empty() { " []" } else { "" });
            for line in stream {
                for line in self.styled(rank as u32, line) {
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
        let _ = writeln!(text, "end: {end}\nverdict: {{class: clean}}");
        text
    }

    /// What a rank executes.
    pub fn stream(&self, rank: u32) -> Vec<String> {
        let mut lines = self.lines(rank, &self.prologue, "");
        let body = self.lines(rank, &self.body, "    ");
        if !body.is_empty() && self.rounds > 0 {
            lines.push(format!("- repeat: {}", self.rounds));
            if self.style.marked {
                lines.push("  mark: step".to_owned());
            }
            lines.push("  do:".to_owned());
            lines.extend(body);
        }
        lines.extend(self.lines(rank, &self.epilogue, ""));
        lines
    }

    /// Lines of one rank for some events.
    pub fn lines(&self, rank: u32, events: &[Event], indent: &str) -> Vec<String> {
        events.iter().flat_map(|event| self.calls(rank, event)).map(|call| format!("{indent}{call}")).collect()
    }

    /// The steps of one rank for one event.
    pub fn calls(&self, rank: u32, event: &Event) -> Vec<String> {
        let place = |group: usize| self.groups[group].ranks.iter().position(|&member| member == rank);
        let name = |group: usize| &self.groups[group].name;
        match event {
            Event::Collective { group, call } if place(*group).is_some() => vec![collective(name(*group), call)],
            Event::Captured { group, call } if place(*group).is_some() => {
                vec![format!("{} captured", collective(name(*group), call))]
            }
            Event::Splits { group, dtype, site, matrix } => {
                let Some(me) = place(*group) else { return Vec::new() };
                let sends = &matrix[me];
                let recvs: Vec<u64> = matrix.iter().map(|row| row[me]).collect();
                let sum: u64 = sends.iter().sum();
                vec![format!(
                    "- all_to_all {sum} {dtype} @{} {site} splits={} recv_splits={}",
                    name(*group),
                    list(sends),
                    list(&recvs)
                )]
            }
            Event::Uneven { group, op, dtype, root, site, counts } => {
                let Some(me) = place(*group) else { return Vec::new() };
                let root = root.map_or_else(String::new, |root| format!(" root={root}"));
                vec![format!("- {op} {} {dtype} @{} {site}{root}", counts[me], name(*group))]
            }
            Event::Message { group, from, to, count, dtype, tag, site } => {
                if rank == *from {
                    vec![format!("- send {count} {dtype} @{} {site} peer={to} tag={tag}", name(*group))]
                } else if rank == *to {
                    vec![format!("- recv {count} {dtype} @{} {site} peer={from} tag={tag}", name(*group))]
                } else {
                    Vec::new()
                }
            }
            Event::Ring { group, count, dtype, site } => {
                let Some(me) = place(*group) else { return Vec::new() };
                let ranks = &self.groups[*group].ranks;
                let next = ranks[(me + 1) % ranks.len()];
                let before = ranks[(me + ranks.len() - 1) % ranks.len()];
                let shape = format!("{count} {dtype} @{} {site}", name(*group));
                self.posted(vec![format!("{shape} peer={next}")], vec![format!("{shape} peer={before}")], None)
            }
            Event::Exchange { group, pairs, count, dtype, tag, site, order } => {
                let shape = format!("{count} {dtype} @{} {site}", name(*group));
                let ends = |mine: fn(&(u32, u32)) -> u32, theirs: fn(&(u32, u32)) -> u32| -> Vec<String> {
                    let own = pairs.iter().filter(|pair| mine(pair) == rank);
                    own.map(|pair| format!("{shape} peer={} tag={tag}", theirs(pair))).collect()
                };
                let sends = ends(|pair| pair.0, |pair| pair.1);
                let recvs = ends(|pair| pair.1, |pair| pair.0);
                self.posted(sends, recvs, Some(order.wrapping_add(u64::from(rank))))
            }
            Event::Create { by: "init", on, site, .. } if place(*on).is_some() => {
                vec![format!("- comm_init - - @{} {site}", name(*on))]
            }
            Event::Create { by: "dup", on, site, .. } if place(*on).is_some() => {
                vec![format!("- comm_dup - - @{} {site}", name(*on))]
            }
            Event::Create { on, colors, site, .. } if place(*on).is_some() => {
                let color = colors.get(&rank).map_or_else(|| "none".to_owned(), i64::to_string);
                vec![format!("- comm_split - - @{} {site} color={color} key={rank}", name(*on))]
            }
            Event::Free { group, site } if place(*group).is_some() => {
                vec![format!("- comm_free - - @{} {site}", name(*group))]
            }
            Event::Pause { rank: who, ms } if *who == rank => vec![format!("- sleep_ms: {ms}")],
            Event::Collective { .. }
            | Event::Captured { .. }
            | Event::Create { .. }
            | Event::Free { .. }
            | Event::Pause { .. } => Vec::new(),
        }
    }

    /// Sends and receives of which none is waited for before all are posted.
    fn posted(&self, sends: Vec<String>, recvs: Vec<String>, order: Option<u64>) -> Vec<String> {
        if self.blocking {
            let sends = sends.into_iter().map(|send| format!("- isend {send}"));
            return sends.chain(recvs.into_iter().map(|recv| format!("- recv {recv}"))).collect();
        }
        let sends = sends.into_iter().map(|send| format!("\"send {send}\""));
        let mut calls: Vec<String> = sends.chain(recvs.into_iter().map(|recv| format!("\"recv {recv}\""))).collect();
        if let Some(order) = order {
            // No two of them have one peer and direction, and inside a batch nothing else has an order.
            Rng::with_seed(order).shuffle(&mut calls);
        }
        if calls.is_empty() { Vec::new() } else { vec![format!("- {{group_call: [{}]}}", calls.join(", "))] }
    }

    /// A line as this rank writes it.
    fn styled(&self, rank: u32, line: &str) -> Vec<String> {
        let Some(at) = line.find("- ").filter(|_| line.contains(" @")) else { return vec![line.to_owned()] };
        let (indent, step) = line.split_at(at + 2);
        if step.starts_with('{') {
            // Every other part of a batch's line is a call.
            let parts = step
                .split('"')
                .enumerate()
                .map(|(index, part)| if index % 2 == 1 { self.styled_call(rank, part) } else { part.to_owned() });
            return vec![format!("{indent}{}", parts.collect::<Vec<_>>().join("\""))];
        }
        let call = self.styled_call(rank, step);
        let shows_below = self.style.two_levels && self.group_of(step).is_some_and(|group| shows_below(group, step));
        let below = shows_below.then(|| format!("{indent}{call} level=nccl"));
        std::iter::once(format!("{indent}{call}")).chain(below).collect()
    }

    fn group_of(&self, call: &str) -> Option<&Group> {
        let name = call.split(' ').find_map(|word| word.strip_prefix('@'))?;
        self.groups.iter().find(|group| group.name == name)
    }

    fn styled_call(&self, rank: u32, call: &str) -> String {
        let mut words: Vec<String> = call.split(' ').map(str::to_owned).collect();
        let Some(at) = words.iter().position(|word| word.starts_with('@')) else { return call.to_owned() };
        let Some(site) = words.get(at + 1).cloned() else { return call.to_owned() };
        if let Some(label) = self.style.labels.get(&site) {
            words.push(format!("arg={label}"));
        }
        if self.style.derived.contains(&site)
            && rank % 2 == 1
            && let Some(blocks) = words.get(1).and_then(|count| count.parse::<u64>().ok()).filter(|n| n % 4 == 0)
        {
            words[1] = (blocks / 4).to_string();
            words[2] = format!("type:block:4x{}", words[2]);
        }
        let other = self.style.elsewhere.iter().find(|(from, ranks, _)| *from == site && ranks.contains(&rank));
        if let Some((_, _, other)) = other {
            words[at + 1].clone_from(other);
        }
        if let Some(group) = self.group_of(call) {
            if !group.thread.is_empty() {
                words.push(format!("thread={}", group.thread));
            }
            if group.stream > 0 {
                words.push(format!("stream={}", group.stream));
            }
        }
        words.join(" ")
    }
}

/// Whether a call of a framework's group shows again below: messages and graphs are left out of it.
fn shows_below(group: &Group, step: &str) -> bool {
    let collective = !["send", "recv", "comm_", "isend", "irecv"].iter().any(|op| step.starts_with(op));
    group.level.is_none() && collective && !step.contains(" captured")
}

fn described(group: &Group) -> String {
    let ranks: Vec<String> = group.ranks.iter().map(u32::to_string).collect();
    let mut text = format!("{{ranks: [{}]", ranks.join(","));
    if let Some(level) = group.level {
        let _ = write!(text, ", level: {level}");
    }
    if let Some(made) = &group.made {
        let _ = write!(text, ", created_by: {}", made.by);
        if let Some(parent) = &made.parent {
            let _ = write!(text, ", parent: {parent}");
        }
        if let Some(color) = made.color {
            let _ = write!(text, ", color: {color}");
        }
    }
    text.push('}');
    text
}

/// A collective as a step.
pub fn collective(group: &str, call: &Collective) -> String {
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
