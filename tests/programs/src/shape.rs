//! Which ranks form groups: nested tensor, pipeline, data and expert groups, uneven ones, groups in another order of ranks,
//! groups of one rank, groups made during the run.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::program::{Event, Group, Made};

/// A job's ranks and groups, and how those are made that are not there from the start.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Number of ranks.
    pub world: u32,
    /// The groups.
    pub groups: Vec<Group>,
    /// Calls that make groups.
    pub creations: Vec<Event>,
    /// Calls that free them.
    pub frees: Vec<Event>,
}

/// What stands before the first `_` of a group's name: parallel groups of one kind do the same things.
pub fn kind(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// A shape of at most `most` ranks.
pub fn shape(rng: &mut Rng, most: u32, blocking: bool) -> Shape {
    let most = most.clamp(2, 64);
    let (tensor, pipeline, data, expert) = loop {
        let (tensor, pipeline, expert) = (rng.u32(1..5), rng.u32(1..5), rng.u32(1..4));
        let data = expert * rng.u32(1..5);
        if (2..=most).contains(&(tensor * pipeline * data)) {
            break (tensor, pipeline, data, expert);
        }
    };
    let world = tensor * pipeline * data;
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for rank in 0..world {
        let (t, p, d) = (rank % tensor, rank / tensor % pipeline, rank / (tensor * pipeline));
        let mut join = |name: String, size: u32| {
            if size > 1 {
                groups.entry(name).or_default().push(rank);
            }
        };
        join(format!("tp_{p}_{d}"), tensor);
        join(format!("pp_{t}_{d}"), pipeline);
        join(format!("dp_{t}_{p}"), data);
        if expert > 1 {
            join(format!("ep_{t}_{p}_{}", d / expert), expert);
            join(format!("edp_{t}_{p}_{}", d % expert), data / expert);
        }
        groups.entry("world".to_owned()).or_default().push(rank);
        if data > 1 && rng.u8(0..4) == 0 {
            // Groups of one rank take no part.
            groups.insert(format!("alone_{rank}"), vec![rank]);
        }
    }
    if world > 2 && rng.bool() {
        uneven(rng, world, &mut groups);
    }
    let mut shape = Shape { world, groups: Vec::new(), creations: Vec::new(), frees: Vec::new() };
    shape.groups = groups.into_iter().map(|(name, ranks)| Group { name, ranks, ..Group::default() }).collect();
    style(rng, &mut shape.groups, blocking);
    make(rng, &mut shape, blocking);
    shape
}

/// Groups of unequal sizes; some ranks may be in none of them.
fn uneven(rng: &mut Rng, world: u32, groups: &mut BTreeMap<String, Vec<u32>>) {
    let number = rng.u32(1..=(world / 2).min(5));
    for rank in 0..world {
        let part = rng.u32(0..number + 1);
        if part < number {
            groups.entry(format!("part_{part}")).or_default().push(rank);
        }
    }
}

/// Levels, threads, device streams and orders of ranks, by kind of group.
fn style(rng: &mut Rng, groups: &mut [Group], blocking: bool) {
    let mut kinds: Vec<String> = groups.iter().map(|group| kind(&group.name).to_owned()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for name in kinds {
        let level = match (blocking, rng.u8(0..6)) {
            (false, 0 | 1) => Some("nccl"),
            (false, 2) => Some("gloo"),
            (true, 0) => Some("gloo"),
            (true, 1) => Some("c10d"),
            _ => None,
        };
        let thread = match rng.u8(0..8) {
            0 => "comm",
            1 => "loader",
            _ => "",
        };
        let stream = if level == Some("nccl") { rng.u32(0..4) } else { 0 };
        let shuffled = rng.u8(0..5) == 0;
        for group in groups.iter_mut().filter(|group| kind(&group.name) == name) {
            group.level = level;
            group.thread = thread;
            group.stream = stream;
            if shuffled {
                rng.shuffle(&mut group.ranks);
            }
        }
    }
}

/// Chooses kinds of groups that are made during the run, and by what.
fn make(rng: &mut Rng, shape: &mut Shape, blocking: bool) {
    let Some(world) = shape.groups.iter().position(|group| group.name == "world") else { return };
    // A split is called on the main thread, and its groups are used where it has returned.
    let on_main = shape.groups[world].thread.is_empty();
    let mut kinds: Vec<String> = shape.groups.iter().map(|group| kind(&group.name).to_owned()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for name in kinds.iter().filter(|name| !["world", "alone"].contains(&name.as_str())) {
        let alike: Vec<usize> = (0..shape.groups.len()).filter(|&at| kind(&shape.groups[at].name) == *name).collect();
        let frees = match rng.u8(0..6) {
            0 if on_main => {
                split(shape, world, &alike, name);
                true
            }
            // Every group of its own, where it is first needed.
            1 if shape.groups[alike[0]].level != Some("gloo") => {
                for &at in &alike {
                    shape.groups[at].made = Some(Made { by: "init", parent: None, color: None });
                    let site = format!("setup.py:40:init_{name}");
                    shape.creations.push(Event::Create { by: "init", on: at, colors: BTreeMap::new(), site });
                }
                true
            }
            _ => false,
        };
        if frees && rng.bool() {
            let free = |&at: &usize| Event::Free { group: at, site: format!("setup.py:90:free_{name}") };
            shape.frees.extend(alike.iter().map(free));
        }
    }
    if on_main && rng.u8(0..6) == 0 {
        let (level, ranks) = (shape.groups[world].level, shape.groups[world].ranks.clone());
        let made = Some(Made { by: "dup", parent: Some("world".to_owned()), color: None });
        shape.groups.push(Group { name: "copy".to_owned(), ranks, level, made, ..Group::default() });
        let site = "setup.py:60:dup".to_owned();
        let on = shape.groups.len() - 1;
        shape.creations.push(Event::Create { by: "dup", on, colors: BTreeMap::new(), site });
        if blocking {
            shape.frees.push(Event::Free { group: on, site: "setup.py:91:free_copy".to_owned() });
        }
    }
}

/// All groups of a kind come from one split of the world.
fn split(shape: &mut Shape, world: usize, alike: &[usize], name: &str) {
    let mut colors = BTreeMap::new();
    let level = shape.groups[world].level;
    // Colours that no other split has, so that the text tells which groups one makes.
    let first = shape.creations.len() as i64 * 1000;
    for (number, &at) in alike.iter().enumerate() {
        let color = first + number as i64;
        let group = &mut shape.groups[at];
        group.made = Some(Made { by: "split", parent: Some("world".to_owned()), color: Some(color) });
        group.level = level;
        group.thread = "";
        colors.extend(group.ranks.iter().map(|&rank| (rank, color)));
    }
    let site = format!("setup.py:30:split_{name}");
    shape.creations.push(Event::Create { by: "split", on: world, colors, site });
}
