//! Random healthy programs: what happens in a round, on which groups, and how often.

use fastrand::Rng;

use crate::pipeline;
use crate::program::{Collective, Event, Group, Program, Style};
use crate::shape::{kind, shape};

const DTYPES: [&str; 6] = ["f32", "bf16", "f16", "i64", "f64", "u8"];
const REDOPS: [&str; 3] = ["sum", "max", "min"];

impl Program {
    /// A program of about `calls` calls per rank on up to 64 ranks.
    pub fn random(rng: &mut Rng, calls: u64) -> Program {
        Program::of_size(rng, calls, 64)
    }

    /// A program of about `calls` calls per rank on up to `most` ranks.
    pub fn of_size(rng: &mut Rng, calls: u64, most: u32) -> Program {
        let blocking = rng.bool();
        let shape = shape(rng, most, blocking);
        let mut made = Maker { rng, groups: &shape.groups, blocking, sites: 0 };
        let few = |rng: &mut Rng, most: usize| if calls == 0 { 0 } else { rng.usize(0..most) };
        let prologue_length = few(made.rng, 4);
        let mut prologue = if calls == 0 { Vec::new() } else { shape.creations };
        prologue.extend(made.events(prologue_length));
        let body_length = if calls == 0 { 0 } else { made.rng.usize(1..14) };
        let body = made.events(body_length);
        let epilogue_length = few(made.rng, 4);
        let mut epilogue = made.events(epilogue_length);
        epilogue.extend(if calls == 0 { Vec::new() } else { shape.frees });
        let mut program = Program {
            world: shape.world,
            blocking,
            step_ms: rng.u64(1..50),
            groups: shape.groups,
            prologue,
            body,
            rounds: 1,
            epilogue,
            blind: Vec::new(),
            style: Style::default(),
        };
        let most_calls = (0..program.world).map(|rank| program.calls_of(rank, &program.body)).max().unwrap_or(0);
        program.rounds = (calls / most_calls.max(1)).max(1);
        program
    }

    /// Calls that a rank makes for some events, at one level.
    fn calls_of(&self, rank: u32, events: &[Event]) -> u64 {
        // The calls of a batch stand in quotes.
        let in_line = |line: &String| (line.matches('"').count() as u64 / 2).max(1);
        self.lines(rank, events, "").iter().map(in_line).sum()
    }

    /// Shortens the program to at most about so many calls of all ranks.
    pub fn shorten(&mut self, most: u64) {
        let round: u64 = (0..self.world).map(|rank| self.calls_of(rank, &self.body)).sum();
        // Each member's vectors name all members; so many elements weigh about as much as a call.
        let elements = self.body.iter().filter_map(|event| match event {
            Event::Splits { matrix, .. } => Some(2 * (matrix.len() * matrix.len()) as u64),
            _ => None,
        });
        let weight = round + elements.sum::<u64>() / 8;
        let levels = if self.style.two_levels { 2 } else { 1 };
        self.rounds = self.rounds.min((most / (weight * levels).max(1)).max(1));
    }

    /// Gives the program what differs from rank to rank, or from level to level, and means nothing.
    pub fn restyle(&mut self, rng: &mut Rng) {
        let mut style =
            Style { two_levels: !self.blocking && rng.u8(0..6) == 0, marked: rng.u8(0..4) == 0, ..Style::default() };
        let named = rng.bool();
        for event in self.prologue.iter().chain(&self.body).chain(&self.epilogue) {
            let Event::Collective { group, call } = event else { continue };
            let group = &self.groups[*group];
            if named && rng.bool() {
                style.labels.insert(call.site.clone(), format!("module.weight{}", style.labels.len()));
            }
            let is_mpi = self.blocking && group.level.is_none();
            let movable = matches!(call.op, "broadcast" | "all_gather" | "gather" | "scatter");
            if is_mpi && movable && !style.derived.contains(&call.site) && rng.u8(0..4) == 0 {
                style.derived.push(call.site.clone());
            }
            let told = style.elsewhere.iter().any(|(site, ..)| *site == call.site);
            if !told && group.ranks.len() > 1 && rng.u8(0..12) == 0 {
                // Its own branch of the same call: a rank that also logs, a stage that also scales.
                let ranks = if rng.bool() { vec![0] } else { (0..self.world).filter(|rank| rank % 2 == 1).collect() };
                style.elsewhere.push((call.site.clone(), ranks, format!("{}_on_some", call.site)));
            }
        }
        self.style = style;
    }
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
        let before = events.len();
        while events.len() < before + number {
            let Some(world) = self.groups.iter().position(|group| group.name == "world") else { break };
            // Parallel groups of one kind do the same thing at the same place, as real programs do.
            let chosen = if self.rng.u8(0..3) == 0 { world } else { self.rng.usize(0..self.groups.len()) };
            let chosen_kind = kind(&self.groups[chosen].name);
            let alike: Vec<usize> =
                (0..self.groups.len()).filter(|&at| kind(&self.groups[at].name) == chosen_kind).collect();
            self.sites += 1;
            let site = format!(
                "train.py:{}:{}>layer{}",
                10 + self.sites,
                ["step", "forward", "loss"][self.rng.usize(0..3)],
                self.sites
            );
            match self.rng.u8(0..18) {
                0 => {
                    let rank = self.rng.u32(0..self.groups[world].ranks.len() as u32);
                    events.push(Event::Pause { rank, ms: self.rng.u64(1..400) });
                }
                1 => self.messages(&alike, &site, &mut events),
                2 => {
                    let (count, dtype) = (self.count(), self.dtype());
                    for group in alike.into_iter().filter(|&group| self.groups[group].ranks.len() > 1) {
                        events.push(Event::Ring { group, count, dtype, site: site.clone() });
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
                4 | 5 => self.objects(&alike, &site, &mut events),
                6 => self.uneven(&alike, &site, &mut events),
                7 | 8 => self.pipeline(&alike, &site, &mut events),
                9 => self.exchange(&alike, &site, &mut events),
                10 if !self.blocking && self.rng.u8(0..4) == 0 => {
                    let call = Collective { root: None, ..self.plain("all_reduce", &site) };
                    events.extend(alike.into_iter().map(|group| Event::Captured { group, call: call.clone() }));
                }
                _ => {
                    let template = self.collective(&site, self.groups[chosen].level);
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

    /// An object: its length, then its bytes.
    fn objects(&mut self, alike: &[usize], site: &str, events: &mut Vec<Event>) {
        let (op, name) =
            if self.rng.bool() { ("broadcast", "broadcast_object_list") } else { ("all_gather", "all_gather_object") };
        for &group in alike {
            let root = (op == "broadcast").then(|| self.groups[group].ranks[0]);
            for (count, dtype) in [(1, "i64"), (self.rng.u64(40..900), "u8")] {
                let site = format!("{site}>{name}");
                let call = Collective { op, count: Some(count), dtype, redop: None, root, site };
                events.push(Event::Collective { group, call });
            }
        }
    }

    /// Each member has its own number of elements.
    fn uneven(&mut self, alike: &[usize], site: &str, events: &mut Vec<Event>) {
        let op = ["all_gather_v", "gather_v", "scatter_v"][self.rng.usize(0..3)];
        let dtype = self.dtype();
        for &group in alike {
            let members = &self.groups[group].ranks;
            let counts: Vec<u64> = members.iter().map(|_| self.rng.u64(0..500)).collect();
            let root = (op != "all_gather_v").then(|| members[self.rng.usize(0..members.len())]);
            events.push(Event::Uneven { group, op, dtype, root, site: site.to_owned(), counts });
        }
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

    /// One step of pipelines of two to four stages.
    fn pipeline(&mut self, alike: &[usize], site: &str, events: &mut Vec<Event>) {
        let (count, dtype) = (self.count(), self.dtype());
        let (micro_batches, chunks, tags) = (self.rng.u32(1..5), self.rng.u32(1..3), self.rng.bool());
        let order = self.rng.u64(..);
        for &group in alike {
            let ranks = self.groups[group].ranks.clone();
            if !(2..=4).contains(&ranks.len()) {
                continue;
            }
            let passed = pipeline::messages(&mut Rng::with_seed(order), &ranks, micro_batches, chunks);
            events.extend(passed.into_iter().map(|one| {
                let direction = if one.forward { "forward" } else { "backward" };
                let tag = if tags { i64::from(one.micro_batch) } else { 0 };
                let site = format!("{site}>{direction}_chunk{}", one.chunk);
                Event::Message { group, from: one.from, to: one.to, count, dtype, tag, site }
            }));
        }
    }

    /// Messages between some members that are all posted before any is waited for.
    fn exchange(&mut self, alike: &[usize], site: &str, events: &mut Vec<Event>) {
        let (count, dtype, tag) = (self.count(), self.dtype(), self.rng.i64(0..3));
        for &group in alike {
            let members = &self.groups[group].ranks;
            if members.len() < 2 {
                continue;
            }
            let mut pairs: Vec<(u32, u32)> = Vec::new();
            for _ in 0..self.rng.usize(1..2 * members.len()) {
                let pair = (members[self.rng.usize(0..members.len())], members[self.rng.usize(0..members.len())]);
                if pair.0 != pair.1 && !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
            let order = self.rng.u64(..);
            events.push(Event::Exchange { group, pairs, count, dtype, tag, site: site.to_owned(), order });
        }
    }

    fn plain(&mut self, op: &'static str, site: &str) -> Collective {
        let redop = op.ends_with("reduce").then_some("sum");
        Collective { op, count: Some(self.count()), dtype: self.dtype(), redop, root: None, site: site.to_owned() }
    }

    /// The root is a place among the members.
    fn collective(&mut self, site: &str, level: Option<&str>) -> Collective {
        let (count, dtype) = (Some(self.count()), self.dtype());
        let redop = Some(REDOPS[self.rng.usize(0..3)]);
        let root = Some(self.rng.u32(0..64));
        let plain = |op| Collective { op, count, dtype, redop: None, root: None, site: site.to_owned() };
        let is_mpi = self.blocking && level.is_none();
        match self.rng.u8(0..14) {
            0 => Collective { count: None, ..plain("barrier") },
            1 => Collective { root, ..plain("broadcast") },
            2 => Collective { root, redop, ..plain("reduce") },
            3 => plain("all_gather"),
            4 => Collective { redop, ..plain("reduce_scatter") },
            5 => Collective { root, ..plain("gather") },
            6 => Collective { root, ..plain("scatter") },
            7 => plain("all_to_all"),
            8 if is_mpi => Collective { redop, ..plain("scan") },
            9 if is_mpi => Collective { redop, ..plain("iall_reduce") },
            10 if is_mpi => Collective { root, ..plain("ibroadcast") },
            11 if is_mpi => Collective { count: None, ..plain("ibarrier") },
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
