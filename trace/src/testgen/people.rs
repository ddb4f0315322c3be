//! The parts of a scenario that speak of ranks rather than of calls: rank sets, ends, evidence, attributes.

use super::call::ns;
use super::error::Fault;
use super::yaml::{Node, Value};
use crate::evidence::{EndedBy, ThreadState};
use crate::rankset::RankSet;

/// How a rank ended, or stood when the recorder looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndState {
    /// Alive, inside a call.
    Waiting,
    /// Alive, on a CPU.
    Running,
    /// Alive, in the kernel.
    Blocked,
    /// Alive, stopped.
    Stopped,
    /// Ended by itself.
    Exited {
        /// Exit code.
        code: i32,
        /// When, ns; `None`: right after its last call.
        t: Option<u64>,
    },
    /// Ended by a signal.
    Signaled {
        /// Signal number.
        signal: i32,
        /// When, ns; `None`: right after its last call.
        t: Option<u64>,
        /// Who sent it.
        by: EndedBy,
    },
}

/// What is known of a rank beside its calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Its threads; `at` and `tid` are still to be set, `since_ms` is a true time.
    pub threads: Vec<ThreadState>,
    /// Lines of its log.
    pub log: Vec<String>,
    /// When they were written, ns.
    pub log_t: Option<u64>,
}

/// Most entries of a list that one rank may have (threads, log lines, gaps, attributes): ranks share the text, so a short
/// one could stand for very much.
pub(super) const MAX_LIST: usize = 256;

/// A time or duration in ms, as ns.
pub(super) fn time(node: &Node, what: &str) -> Result<u64, Fault> {
    ns(node.number(what)?).ok_or_else(|| node.fault(format!("{what}: no time in ms")))
}

/// A clock offset in ms, as ns; it may be negative.
pub(super) fn offset(node: &Node) -> Result<i64, Fault> {
    let ms = node.number("clock_offset_ms")?;
    let size = ns(ms.abs()).and_then(|size| i64::try_from(size).ok());
    let size = size.ok_or_else(|| node.fault("clock_offset_ms: too large"))?;
    Ok(if ms < 0.0 { -size } else { size })
}

/// Every key of a mapping is one of these.
pub(super) fn known_keys(node: &Node, keys: &[&str], what: &str) -> Result<(), Fault> {
    match node.map(what)?.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
        Some((key, value)) => Err(Fault::new(value.line, format!("no key of {what}"), key)),
        None => Ok(()),
    }
}

/// A rank set in text, or a list of ranks.
pub(super) fn ranks(node: &Node, world: u32, what: &str) -> Result<RankSet, Fault> {
    let text = match &node.value {
        Value::List(items) => {
            let items: Result<Vec<&str>, Fault> = items.iter().map(|item| item.text(what)).collect();
            items?.join(",")
        }
        _ if node.is_null() => String::new(),
        _ => node.text(what)?.to_owned(),
    };
    rank_set(&text, node.line, world, what)
}

fn rank_set(text: &str, line: usize, world: u32, what: &str) -> Result<RankSet, Fault> {
    let ranks: RankSet =
        text.parse().map_err(|_| Fault::new(line, format!("{what}: not a rank set such as 0-3,8"), text))?;
    match ranks.iter().last() {
        Some(rank) if rank >= world => {
            Err(Fault::new(line, format!("{what}: rank {rank} in a world of {world}"), text))
        }
        _ => Ok(ranks),
    }
}

/// A key that is a rank set; every rank at most once in `seen`.
pub(super) fn rank_key(key: &str, line: usize, world: u32, what: &str, seen: &mut RankSet) -> Result<RankSet, Fault> {
    let ranks = rank_set(key, line, world, what)?;
    if ranks.is_empty() {
        return Err(Fault::new(line, format!("{what}: a key without ranks"), key));
    }
    let twice = ranks.iter().find(|&rank| !seen.insert(rank));
    match twice {
        Some(rank) => Err(Fault::new(line, format!("{what}: rank {rank} is given twice"), key)),
        None => Ok(ranks),
    }
}

/// Takes a rank, its index in its set, the set, and the set's value.
pub(super) type ReadRank<'a> = &'a mut dyn FnMut(u32, usize, &RankSet, &Node) -> Result<(), Fault>;

/// Calls `read` with each rank of a mapping from rank sets, its index in its set, the set, and the set's value.
pub(super) fn by_rank(node: &Node, world: u32, what: &str, read: ReadRank<'_>) -> Result<(), Fault> {
    let mut seen = RankSet::new();
    for (key, value) in node.map(what)? {
        let ranks = rank_key(key, value.line, world, what, &mut seen)?;
        for (index, rank) in ranks.iter().enumerate() {
            read(rank, index, &ranks, value)?;
        }
    }
    Ok(())
}

/// How a rank ended.
pub(super) fn end(node: &Node) -> Result<EndState, Fault> {
    if let Value::Scalar { text, .. } = &node.value {
        return match text.as_str() {
            "alive_waiting" => Ok(EndState::Waiting),
            "alive_running" => Ok(EndState::Running),
            "alive_blocked" => Ok(EndState::Blocked),
            "alive_stopped" => Ok(EndState::Stopped),
            _ => Err(node.fault("end: alive_waiting, alive_running, alive_blocked, alive_stopped, exited or signal")),
        };
    }
    known_keys(node, &["exited", "signal", "t", "by"], "end")?;
    let entries = node.map("end")?;
    let find = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, node)| node.as_ref());
    let t = find("t").map(|t| time(t, "end t")).transpose()?;
    let by = find("by").map_or(Ok(EndedBy::Unknown), ended_by)?;
    let code = |node: &Node, what: &str| {
        i32::try_from(node.integer(what)?).map_err(|_| node.fault(format!("{what}: out of range")))
    };
    match (find("exited"), find("signal")) {
        (Some(exited), None) => Ok(EndState::Exited { code: code(exited, "exited")?, t }),
        (None, Some(signal)) => Ok(EndState::Signaled { signal: code(signal, "signal")?, t, by }),
        _ => Err(Fault::new(node.line, "end: either exited or signal is expected", "")),
    }
}

fn ended_by(node: &Node) -> Result<EndedBy, Fault> {
    match node.text("by")? {
        "oom_killer" => Ok(EndedBy::OomKiller),
        "watchdog" => Ok(EndedBy::Watchdog),
        "launcher" => Ok(EndedBy::Launcher),
        "user" => Ok(EndedBy::User),
        "itself" => Ok(EndedBy::Itself),
        "unknown" => Ok(EndedBy::Unknown),
        _ => Err(node.fault("by: oom_killer, watchdog, launcher, user, itself or unknown")),
    }
}

/// Threads and log lines.
pub(super) fn evidence(node: &Node) -> Result<Evidence, Fault> {
    let mut evidence = Evidence::default();
    for (key, value) in node.map("evidence")? {
        match key.as_str() {
            "threads" => {
                let threads = value.list("threads")?.iter().map(|node| thread(node));
                evidence.threads = threads.collect::<Result<_, _>>()?;
            }
            "log" => {
                let lines = value.list("log")?.iter().map(|line| line.text("log").map(str::to_owned));
                evidence.log = lines.collect::<Result<_, _>>()?;
            }
            "log_t" => evidence.log_t = Some(time(value, "log_t")?),
            _ => return Err(Fault::new(value.line, "no key of evidence", key)),
        }
    }
    if evidence.threads.len().max(evidence.log.len()) > MAX_LIST {
        return Err(node.fault(format!("evidence: more than {MAX_LIST} threads or lines")));
    }
    Ok(evidence)
}

fn thread(node: &Node) -> Result<ThreadState, Fault> {
    let mut thread = ThreadState::default();
    for (key, value) in node.map("a thread")? {
        let text = || value.text(key).map(str::to_owned);
        let ms = || value.number(key).and_then(|ms| ns(ms).ok_or_else(|| value.fault(format!("{key}: no time in ms"))));
        let whole_ms = || ms().map(|time| Some((time + 500_000) / 1_000_000));
        match key.as_str() {
            "name" => thread.name = text()?,
            "state" => thread.state = state(value)?,
            "syscall" => thread.syscall = text()?,
            "device" => thread.device = text()?,
            "request" => thread.request = Some(value.unsigned(key)?),
            "result" => thread.result = text()?,
            "each_ms" => thread.each_ms = whole_ms()?,
            "times" => thread.times = Some(value.unsigned(key)?),
            "since_ms" => thread.since_ms = whole_ms()?,
            "cpu_ms" => thread.cpu_ms = whole_ms()?,
            "wchan" => thread.wchan = text()?,
            "python" => thread.python = text()?,
            "native" => thread.native = text()?,
            "io" => thread.io = text()?,
            "children" => thread.children = Some(value.unsigned(key)?),
            _ => return Err(Fault::new(value.line, "no key of a thread", key)),
        }
    }
    Ok(thread)
}

fn state(node: &Node) -> Result<String, Fault> {
    match node.text("state")? {
        state @ ("blocked" | "running" | "sleeping" | "disk_sleep" | "stopped" | "zombie") => Ok(state.to_owned()),
        _ => Err(node.fault("state: blocked, running, sleeping, disk_sleep, stopped or zombie")),
    }
}

/// The attributes of the rank that is at `index` of `ranks`: a list gives one value per rank.
pub(super) fn attributes(node: &Node, index: usize, ranks: &RankSet) -> Result<Vec<(String, String)>, Fault> {
    let mut attributes = Vec::new();
    let entries = node.map("rank_info")?;
    if entries.len() > MAX_LIST {
        return Err(node.fault(format!("rank_info: more than {MAX_LIST} attributes")));
    }
    for (key, value) in entries {
        let one = match &value.value {
            Value::List(items) if items.len() == ranks.len() => items.get(index).map(AsRef::as_ref),
            Value::List(items) => {
                let problem = format!("rank_info {key}: {} values for {} ranks", items.len(), ranks.len());
                return Err(Fault::new(value.line, problem, &ranks.to_string()));
            }
            _ => Some(value.as_ref()),
        };
        let one = one.ok_or_else(|| value.fault("rank_info: no value"))?;
        attributes.push((key.clone(), one.text(key)?.to_owned()));
    }
    Ok(attributes)
}
