//! Scenario files: YAML documents as typed jobs.
//!
//! Everything that a job's text refers to is checked here, so that what comes after need not fail: ranks are in the
//! world, callers are members of their groups, roots and peers too, and the whole is of bounded size.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{self, CallSpec, LevelName};
use super::error::{Fault, ScenarioError};
use super::people::{self, EndState, Evidence};
use super::steps::{Step, Weight};
use super::yaml::{self, Node, Value};
use crate::rankset::RankSet;
use crate::regular::open_regular;

/// Most ranks of a job.
pub const MAX_WORLD: u32 = 1 << 16;
/// Most calls of a job, all ranks together. Larger jobs come from [`super::generate`].
pub const MAX_CALLS: u64 = 10_000_000;
/// Most members of all groups together.
const MAX_MEMBERS: usize = 1 << 22;
/// Deepest nesting of `repeat`, and longest line of parents of a group.
const MAX_NESTING: usize = 16;

/// A group of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Members, global ranks in the group's order.
    pub ranks: Vec<u32>,
    /// What it is for.
    pub desc: String,
    /// Kind of creation ('split').
    pub created_by: String,
    /// Index of the group it was made from.
    pub parent: Option<usize>,
    /// Colour at the split.
    pub color: Option<i64>,
    /// Level of its calls that name none.
    pub level: LevelName,
}

/// What some ranks do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Which ranks.
    pub ranks: RankSet,
    /// What they do, in order.
    pub steps: Vec<Step>,
}

/// Events that a recorder lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// After the rank's n-th call, from 1.
    pub after_call: u64,
    /// How many.
    pub events: u64,
}

/// A job in text. Times are true times in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The file it is from.
    pub file: String,
    pub(super) id: String,
    /// Number of ranks.
    pub world: u32,
    /// Distance of calls, ns.
    pub step: u64,
    /// Whether calls block their thread.
    pub blocking: bool,
    /// The groups, in the order of the text.
    pub groups: Vec<Group>,
    /// Every different call.
    pub calls: Vec<CallSpec>,
    /// The group of each of [`Scenario::calls`].
    pub call_groups: Vec<usize>,
    /// What the ranks do.
    pub streams: Vec<Stream>,
    /// Ranks without a file.
    pub missing_files: RankSet,
    /// Where a rank's file is torn.
    pub truncated: BTreeMap<u32, u64>,
    /// Lost events by rank, in order.
    pub lost: BTreeMap<u32, Vec<Lost>>,
    /// From when on a rank is recorded.
    pub attached_at: BTreeMap<u32, u64>,
    /// How far a rank's clock is ahead, ns.
    pub clock_offset: BTreeMap<u32, i64>,
    /// When the recorder looked.
    pub snapshot: Option<u64>,
    /// How ranks ended.
    pub ends: BTreeMap<u32, EndState>,
    /// What else is known of ranks.
    pub evidence: BTreeMap<u32, Arc<Evidence>>,
    /// Attributes of ranks.
    pub rank_info: BTreeMap<u32, Vec<(String, String)>>,
}

impl Scenario {
    /// Name of the scenario, unique in its file.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Calls of all streams, those that are never entered included.
    pub fn call_count(&self) -> u64 {
        let calls = |stream: &Stream| Weight::of(&stream.steps, &|_| 0).calls.saturating_mul(stream.ranks.len() as u64);
        self.streams.iter().map(calls).fold(0, u64::saturating_add)
    }
}

/// Reads the scenarios of a file.
pub fn load(path: &Path) -> Result<Vec<Scenario>, ScenarioError> {
    let name = path.display().to_string();
    let failed = |problem: String| Fault::new(0, problem, "").in_document(&name, "");
    let file = open_regular(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let mut bytes = Vec::new();
    let read = file.take(yaml::MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > yaml::MAX_BYTES {
        return Err(failed(format!("larger than {} bytes; write repetitions as repeat:", yaml::MAX_BYTES)));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(format!("not UTF-8 text at byte {}", error.utf8_error().valid_up_to())))?;
    parse(&name, &text)
}

/// Reads the scenarios of a text; `file` is its name for messages.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let documents = yaml::documents(text, "verdict").map_err(|fault| fault.in_document(file, ""))?;
    let mut scenarios: Vec<Scenario> = Vec::with_capacity(documents.len());
    let mut ids = FxHashSet::default();
    for (index, document) in documents.iter().enumerate() {
        let id = match &document.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key == "id").map(|(_, node)| node.shown().to_owned()),
            _ => None,
        };
        let id = id.unwrap_or_else(|| format!("number {}", index + 1));
        let scenario = read_document(file, document).map_err(|fault| fault.in_document(file, &id))?;
        if !ids.insert(scenario.id.clone()) {
            return Err(Fault::new(document.line, "this id is also another document's", &id).in_document(file, &id));
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

/// Keys of a document; `verdict` is skipped before.
const KEYS: &[&str] = &[
    "id",
    "world",
    "step_ms",
    "blocking",
    "groups",
    "streams",
    "missing_files",
    "truncated",
    "lost",
    "attached_at",
    "clock_offset_ms",
    "snapshot_t",
    "end",
    "evidence",
    "rank_info",
];

fn read_document(file: &str, document: &Node) -> Result<Scenario, Fault> {
    let entries: FxHashMap<&str, &Node> =
        document.map("a scenario")?.iter().map(|(key, node)| (key.as_str(), node.as_ref())).collect();
    people::known_keys(document, KEYS, "a scenario")?;
    let need =
        |key: &str| entries.get(key).copied().ok_or_else(|| Fault::new(document.line, "this key is missing", key));
    let id_node = need("id")?;
    let id = id_node.text("id")?;
    if id.is_empty() || !id.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Err(id_node.fault("id: letters, digits, - and _ are expected"));
    }
    let world = need("world")?.unsigned("world")?;
    let Some(world) = u32::try_from(world).ok().filter(|world| (1..=MAX_WORLD).contains(world)) else {
        return Err(need("world")?.fault(format!("world: 1 to {MAX_WORLD} ranks are possible")));
    };
    let blocking = entries.get("blocking").map_or(Ok(false), |node| node.boolean("blocking"))?;
    let groups = read_groups(need("groups")?, world, blocking)?;
    let mut scenario = Scenario {
        file: file.to_owned(),
        id: id.to_owned(),
        world,
        step: entries.get("step_ms").map_or(Ok(10_000_000), |node| people::time(node, "step_ms"))?,
        blocking,
        groups,
        calls: Vec::new(),
        call_groups: Vec::new(),
        streams: Vec::new(),
        missing_files: RankSet::new(),
        truncated: BTreeMap::new(),
        lost: BTreeMap::new(),
        attached_at: BTreeMap::new(),
        clock_offset: BTreeMap::new(),
        snapshot: entries.get("snapshot_t").map(|node| people::time(node, "snapshot_t")).transpose()?,
        ends: BTreeMap::new(),
        evidence: BTreeMap::new(),
        rank_info: BTreeMap::new(),
    };
    if let Some(node) = entries.get("missing_files") {
        scenario.missing_files = people::ranks(node, world, "missing_files")?;
    }
    read_streams(&mut scenario, need("streams")?)?;
    let each = |name: &str, read: people::ReadRank<'_>| {
        entries.get(name).map_or(Ok(()), |node| people::by_rank(node, world, name, read))
    };
    each("truncated", &mut |rank, _, _, node| {
        scenario.truncated.insert(rank, people::time(node, "truncated")?);
        Ok(())
    })?;
    each("attached_at", &mut |rank, _, _, node| {
        scenario.attached_at.insert(rank, people::time(node, "attached_at")?);
        Ok(())
    })?;
    each("clock_offset_ms", &mut |rank, _, _, node| {
        scenario.clock_offset.insert(rank, people::offset(node)?);
        Ok(())
    })?;
    each("lost", &mut |rank, _, _, node| {
        scenario.lost.insert(rank, read_lost(node)?);
        Ok(())
    })?;
    each("end", &mut |rank, _, _, node| {
        scenario.ends.insert(rank, people::end(node)?);
        Ok(())
    })?;
    let mut last: Option<Arc<Evidence>> = None;
    each("evidence", &mut |rank, index, _, node| {
        // One value is shared by all ranks of its set.
        let shared = match last.take() {
            Some(evidence) if index > 0 => evidence,
            _ => Arc::new(people::evidence(node)?),
        };
        scenario.evidence.insert(rank, Arc::clone(&shared));
        last = Some(shared);
        Ok(())
    })?;
    each("rank_info", &mut |rank, index, ranks, node| {
        scenario.rank_info.insert(rank, people::attributes(node, index, ranks)?);
        Ok(())
    })?;
    Ok(scenario)
}

fn read_lost(node: &Node) -> Result<Vec<Lost>, Fault> {
    let mut gaps = Vec::new();
    for gap in node.list("lost")? {
        people::known_keys(gap, &["after_call", "events"], "a gap")?;
        let field = |name: &str| {
            let found = gap.map("a gap")?.iter().find(|(key, _)| key == name);
            found.map_or_else(|| Err(gap.fault(format!("a gap needs {name}"))), |(_, node)| node.unsigned(name))
        };
        gaps.push(Lost { after_call: field("after_call")?, events: field("events")? });
    }
    if gaps.len() > people::MAX_LIST {
        return Err(node.fault(format!("lost: more than {} gaps of one rank", people::MAX_LIST)));
    }
    gaps.sort_by_key(|gap| gap.after_call);
    Ok(gaps)
}

fn read_groups(node: &Node, world: u32, blocking: bool) -> Result<Vec<Group>, Fault> {
    let mut groups: Vec<Group> = Vec::new();
    let mut parents: Vec<(usize, String, usize)> = Vec::new();
    let mut members = 0;
    for (name, node) in node.map("groups")? {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(Fault::new(node.line, "a group's name has letters, digits and _", name));
        }
        let mut group = Group {
            name: name.clone(),
            ranks: Vec::new(),
            desc: String::new(),
            created_by: String::new(),
            parent: None,
            color: None,
            level: if blocking { LevelName::Mpi } else { LevelName::C10d },
        };
        if let Value::Map(entries) = &node.value {
            for (key, node) in entries {
                match key.as_str() {
                    "ranks" => group.ranks = read_members(node, world)?,
                    "desc" => node.text("desc")?.clone_into(&mut group.desc),
                    "created_by" => node.text("created_by")?.clone_into(&mut group.created_by),
                    "parent" => parents.push((groups.len(), node.text("parent")?.to_owned(), node.line)),
                    "color" if node.shown() == "none" => group.color = None,
                    "color" => group.color = Some(node.integer("color")?),
                    "level" => {
                        let level = LevelName::from_name(node.text("level")?);
                        group.level =
                            level.ok_or_else(|| node.fault("level: one of c10d, nccl, gloo, mpi is expected"))?;
                    }
                    _ => return Err(Fault::new(node.line, "no key of a group", key)),
                }
            }
        } else {
            group.ranks = read_members(node, world)?;
        }
        members += group.ranks.len();
        if group.ranks.is_empty() || members > MAX_MEMBERS {
            let problem = if group.ranks.is_empty() {
                "a group without ranks"
            } else {
                "too many members of all groups together"
            };
            return Err(Fault::new(node.line, problem, name));
        }
        groups.push(group);
    }
    let index: FxHashMap<String, usize> =
        groups.iter().enumerate().map(|(index, group)| (group.name.clone(), index)).collect();
    for &(child, ref parent, line) in &parents {
        let found = index.get(parent).copied().filter(|&index| index != child);
        let found = found.ok_or_else(|| Fault::new(line, "parent: no other group of this name", parent))?;
        if let Some(group) = groups.get_mut(child) {
            group.parent = Some(found);
        }
    }
    for &(child, ref parent, line) in &parents {
        let mut above = Some(child);
        for _ in 0..MAX_NESTING {
            above = above.and_then(|index| groups.get(index)).and_then(|group| group.parent);
        }
        if above.is_some() {
            let problem = format!("parent: in a circle, or more than {MAX_NESTING} generations");
            return Err(Fault::new(line, problem, parent));
        }
    }
    Ok(groups)
}

/// Members in the order of a list, or in rising order of a rank set.
fn read_members(node: &Node, world: u32) -> Result<Vec<u32>, Fault> {
    let Value::List(items) = &node.value else {
        return Ok(people::ranks(node, world, "ranks")?.iter().collect());
    };
    let mut seen = RankSet::new();
    let mut ranks = Vec::with_capacity(items.len());
    for item in items {
        let rank = u32::try_from(item.unsigned("ranks")?).ok().filter(|&rank| rank < world);
        let rank = rank.ok_or_else(|| item.fault("ranks: no rank of this world"))?;
        if !seen.insert(rank) {
            return Err(item.fault("ranks: rank given twice"));
        }
        ranks.push(rank);
    }
    Ok(ranks)
}

/// Reads steps and interns their calls.
struct StepReader<'a> {
    scenario: &'a mut Scenario,
    groups: FxHashMap<String, usize>,
    interned: FxHashMap<String, u32>,
    /// Calls of the stream being read, with their lines.
    used: BTreeMap<u32, usize>,
}

fn read_streams(scenario: &mut Scenario, node: &Node) -> Result<(), Fault> {
    let groups = scenario.groups.iter().enumerate().map(|(index, group)| (group.name.clone(), index)).collect();
    let members: Vec<FxHashSet<u32>> =
        scenario.groups.iter().map(|group| group.ranks.iter().copied().collect()).collect();
    let world = scenario.world;
    let mut reader = StepReader { scenario, groups, interned: FxHashMap::default(), used: BTreeMap::new() };
    let mut seen = RankSet::new();
    let mut total = Weight::default();
    for (key, steps_node) in node.map("streams")? {
        let ranks = people::rank_key(key, steps_node.line, world, "streams", &mut seen)?;
        reader.used.clear();
        let steps = reader.steps(steps_node, 0)?;
        let used = std::mem::take(&mut reader.used);
        check_members(reader.scenario, &members, &ranks, &used)?;
        let calls = &reader.scenario.calls;
        let vector = |call: u32| calls.get(call as usize).map_or(0, |spec| spec.splits.len() + spec.recv_splits.len());
        let weight = Weight::of(&steps, &vector);
        total.calls = total.calls.saturating_add(weight.calls.saturating_mul(ranks.len() as u64));
        total.vectors = total.vectors.saturating_add(weight.vectors.saturating_mul(ranks.len() as u64));
        total.work = total.work.saturating_add(weight.work);
        if total.calls > MAX_CALLS || total.work > 2 * MAX_CALLS || total.vectors > 4 * MAX_CALLS {
            let problem = format!("more than {MAX_CALLS} calls of all ranks together, or as many steps or splits");
            return Err(Fault::new(steps_node.line, problem, key));
        }
        reader.scenario.streams.push(Stream { ranks, steps });
    }
    let without: RankSet =
        (0..world).filter(|&rank| !seen.contains(rank) && !reader.scenario.missing_files.contains(rank)).collect();
    if without.is_empty() {
        return Ok(());
    }
    Err(Fault::new(node.line, "ranks without a stream that are not in missing_files", &without.to_string()))
}

/// Callers, roots and peers must be members of the call's group.
fn check_members(
    scenario: &Scenario,
    members: &[FxHashSet<u32>],
    ranks: &RankSet,
    used: &BTreeMap<u32, usize>,
) -> Result<(), Fault> {
    let mut checked = FxHashSet::default();
    for (&call, &line) in used {
        let index = call as usize;
        let (Some(spec), Some(&group)) = (scenario.calls.get(index), scenario.call_groups.get(index)) else { continue };
        let Some(members) = members.get(group) else { continue };
        if checked.insert(group)
            && let Some(outside) = ranks.iter().find(|rank| !members.contains(rank))
        {
            return Err(Fault::new(
                line,
                format!("rank {outside} is no member of the group"),
                &format!("@{}", spec.group),
            ));
        }
        for (key, rank) in [("root", spec.root), ("peer", spec.peer)] {
            if let Some(rank) = rank.filter(|rank| !members.contains(rank)) {
                return Err(Fault::new(
                    line,
                    format!("{key}={rank} is no member of the group"),
                    &format!("@{}", spec.group),
                ));
            }
        }
    }
    Ok(())
}

impl StepReader<'_> {
    fn steps(&mut self, node: &Node, depth: usize) -> Result<Vec<Step>, Fault> {
        if depth > MAX_NESTING {
            return Err(Fault::new(node.line, format!("repeat: nested deeper than {MAX_NESTING}"), ""));
        }
        node.list("steps")?.iter().map(|step| self.step(step, depth)).collect()
    }

    fn step(&mut self, node: &Node, depth: usize) -> Result<Step, Fault> {
        let Value::Map(entries) = &node.value else { return Ok(Step::Call(self.call(node)?)) };
        let find = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, node)| node.as_ref());
        if let Some(times) = find("repeat") {
            people::known_keys(node, &["repeat", "do", "mark", "mark_from"], "a repeat")?;
            let body = find("do").ok_or_else(|| Fault::new(node.line, "a repeat needs do:", ""))?;
            let from = find("mark_from").map_or(Ok(0), |from| from.unsigned("mark_from"))?;
            let mark = find("mark").map(|mark| mark.text("mark").map(|_| from)).transpose()?;
            if mark.is_none() && find("mark_from").is_some() {
                return Err(Fault::new(node.line, "mark_from goes with mark", ""));
            }
            return Ok(Step::Repeat { times: times.unsigned("repeat")?, body: self.steps(body, depth + 1)?, mark });
        }
        if let Some(calls) = find("group_call") {
            people::known_keys(node, &["group_call"], "a group_call")?;
            let calls = calls.list("group_call")?;
            if calls.is_empty() {
                return Err(Fault::new(node.line, "a group_call without calls", ""));
            }
            return Ok(Step::Group(calls.iter().map(|call| self.call(call)).collect::<Result<_, _>>()?));
        }
        people::known_keys(node, &["sleep_ms"], "a step (a call, repeat, group_call or sleep_ms)")?;
        match find("sleep_ms") {
            Some(sleep) => Ok(Step::Sleep(people::time(sleep, "sleep_ms")?)),
            None => Err(Fault::new(node.line, "an empty step", "")),
        }
    }

    fn call(&mut self, node: &Node) -> Result<u32, Fault> {
        let text = node.text("a step")?;
        let call = match self.interned.get(text) {
            Some(&call) => call,
            None => {
                let spec = call::parse(text).map_err(|problem| Fault::new(node.line, problem, text))?;
                let group = self.groups.get(&spec.group).copied();
                let group = group.ok_or_else(|| Fault::new(node.line, format!("no group '{}'", spec.group), text))?;
                let call = self.scenario.calls.len() as u32;
                self.scenario.calls.push(spec);
                self.scenario.call_groups.push(group);
                self.interned.insert(text.to_owned(), call);
                call
            }
        };
        self.used.entry(call).or_insert(node.line);
        Ok(call)
    }
}
