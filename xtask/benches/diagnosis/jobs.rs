//! The jobs that are measured, as scenario documents: large ones that hang, each in another way, and one of a single
//! group with one call that differs.
//!
//! Small random programs with every kind of fault are `rankdiff-programs`; how the analysis grows with the number of
//! calls is measured by `cargo xtask bench growth`. Here the number of ranks matters.

use std::fmt::Write as _;

/// Ranks of a node.
const NODE: u32 = 8;
/// Most ranks of a data parallel group.
const DATA: u32 = 128;

/// Why a job hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hang {
    /// A rank leaves out a call.
    Missing,
    /// A rank was killed.
    Dead,
    /// A rank's driver call is retried for ever.
    Driver,
    /// Half of the ranks make their calls on two communicators in the other order.
    Crossed,
    /// Each node waits for the one before it, all around.
    Ring,
}

impl Hang {
    /// One of each.
    pub(crate) const ALL: [Hang; 5] = [Hang::Missing, Hang::Dead, Hang::Driver, Hang::Crossed, Hang::Ring];

    /// What happens.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Hang::Missing => "a rank lacks a call",
            Hang::Dead => "a rank is dead",
            Hang::Driver => "a rank in a driver call",
            Hang::Crossed => "cycle of two communicators",
            Hang::Ring => "cycle through all nodes",
        }
    }
}

/// A hung job's size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// A multiple of a node's ranks.
    pub(crate) ranks: u32,
    /// Whole steps before the hang.
    pub(crate) steps: u64,
}

impl Size {
    /// The rank at fault, where it is one.
    pub(crate) fn odd(self) -> u32 {
        self.ranks / 2 + 3
    }

    /// Calls of a rank that does not fall behind, about.
    pub(crate) fn calls(self) -> u64 {
        (self.steps + 1) * STEP
    }
}

/// Calls of a step.
const STEP: u64 = 9;
/// Calls of a step before the one that the rank at fault never makes.
const BEFORE: u64 = 3;

/// A job that hangs. Every call blocks, so the ranks stand where their first unmatched call is.
pub(crate) fn hung(size: Size, hang: Hang) -> String {
    let mut text = format!("id: hang\nworld: {}\nstep_ms: 1\nblocking: true\ngroups:\n", size.ranks);
    for (name, desc, ranks) in groups(size.ranks) {
        let _ = writeln!(text, "  {name}: {{ranks: [{}], level: c10d, desc: {desc}}}", list(&ranks));
    }
    text.push_str("rank_info:\n");
    for node in 0..size.ranks / NODE {
        let first = node * NODE;
        let _ = writeln!(text, "  \"{first}-{}\": {{host: n{node}, local_rank: [0,1,2,3,4,5,6,7]}}", first + NODE - 1);
    }
    text.push_str("streams:\n");
    for rank in 0..size.ranks {
        let step = step(size.ranks, rank);
        let _ = writeln!(text, "  \"{rank}\":\n  - repeat: {}\n    do:", size.steps);
        step.iter().for_each(|call| lines(&mut text, "      ", call));
        last(size, hang, rank, step).iter().for_each(|call| lines(&mut text, "  ", call));
    }
    text.push_str(&ending(size, hang));
    text
}

/// A job of one group in which one call of one rank is another operation; nothing behind it completes. Calls return at
/// once.
pub(crate) fn differing(ranks: u32, calls: u64, call: u64, odd: u32) -> String {
    let all = 0..ranks;
    let others: Vec<u32> = all.clone().filter(|rank| *rank != odd).collect();
    let ranges = |ranks: &[u32]| ranks.iter().copied().collect::<rankdiff_trace::RankSet>().to_string();
    let mut text = format!(
        "id: differing\nworld: {ranks}\nblocking: false\ngroups: {{world: {{ranks: [{}], desc: default_pg}}}}\nstreams:\n",
        list(&all.collect::<Vec<_>>())
    );
    for (set, is_odd) in [(ranges(&others), false), (odd.to_string(), true)] {
        let _ = writeln!(text, "  \"{set}\":");
        for at in 0..calls {
            let (op, count, dtype) = match at % 4 {
                _ if is_odd && at == call => ("all_gather", 512, "f32"),
                0 => ("all_reduce", 65_536, "f32"),
                1 => ("all_gather", 8192, "bf16"),
                2 => ("reduce_scatter", 8192, "bf16"),
                _ => ("all_reduce", 4, "f32"),
            };
            let pending = if at < call { "" } else { " pending" };
            let site = format!("train.py:{}:train_step>layers.py:{}:forward", 80 + at % 4, 40 + at % 4);
            let _ = writeln!(text, "  - \"{op} {count} {dtype} @world {site}{pending}\"");
        }
    }
    text
}

/// Name, description and members of every group.
fn groups(ranks: u32) -> Vec<(String, &'static str, Vec<u32>)> {
    let all: Vec<u32> = (0..ranks).collect();
    let nodes = ranks / NODE;
    let mut groups = vec![("world".to_owned(), "default_pg", all.clone()), ("control".to_owned(), "control", all)];
    for node in 0..nodes {
        let own = node * NODE..(node + 1) * NODE;
        let next = (node + 1) % nodes;
        let mut both: Vec<u32> = own.clone().chain(next * NODE..(next + 1) * NODE).collect();
        both.sort_unstable();
        groups.push((format!("tp{node}"), "tensor_parallel", own.collect()));
        groups.push((format!("edge{node}"), "neighbours", both));
    }
    let mut data: Vec<Vec<u32>> = Vec::new();
    for rank in 0..ranks {
        let at = data_group(rank) as usize;
        data.resize(data.len().max(at + 1), Vec::new());
        data[at].push(rank);
    }
    let data = data.into_iter().enumerate().filter(|(_, ranks)| !ranks.is_empty());
    groups.extend(data.map(|(at, ranks)| (format!("dp{at}"), "data_parallel", ranks)));
    groups
}

/// Ranks of one place in their nodes, so many nodes at a time.
fn data_group(rank: u32) -> u32 {
    rank / (NODE * DATA) * NODE + rank % NODE
}

/// The calls of a step, in an order that exists for the whole job.
fn step(ranks: u32, rank: u32) -> Vec<String> {
    let node = rank / NODE;
    let (before, data) = ((node + ranks / NODE - 1) % (ranks / NODE), data_group(rank));
    let edges = [node.min(before), node.max(before)];
    let [first, second] =
        edges.map(|edge| format!("all_reduce 64 f32 @edge{edge} train.py:86:step>halo.py:12:exchange"));
    vec![
        format!("all_gather 8192 bf16 @tp{node} train.py:88:step>layers.py:41:forward"),
        format!("reduce_scatter 8192 bf16 @tp{node} train.py:88:step>layers.py:44:forward"),
        format!("all_reduce 16384 bf16 @tp{node} train.py:91:step>layers.py:77:backward"),
        format!("reduce_scatter 4096 f32 @dp{data} train.py:95:step>optim.py:203:reduce_grads"),
        first,
        second,
        "barrier - - @control train.py:97:step>control.py:9:tick".to_owned(),
        "all_reduce 1 f32 @world train.py:98:step>optim.py:230:grad_norm".to_owned(),
        "barrier - - @world train.py:99:step".to_owned(),
    ]
}

/// A rank's last calls, the fault among them.
fn last(size: Size, hang: Hang, rank: u32, mut step: Vec<String>) -> Vec<String> {
    let odd = rank == size.odd();
    match hang {
        Hang::Missing if odd => {
            step.remove(7);
            step
        }
        Hang::Dead | Hang::Driver if odd => {
            step.truncate(BEFORE as usize);
            step
        }
        Hang::Crossed if rank % 2 == 1 => {
            step.swap(6, 7);
            step
        }
        Hang::Ring if rank < NODE => {
            step.swap(4, 5);
            step
        }
        _ => step,
    }
}

/// How the ranks ended, and what was seen of the one at fault.
fn ending(size: Size, hang: Hang) -> String {
    let (odd, end) = (size.odd(), size.ranks - 1);
    let others = format!("0-{},{}-{end}", odd - 1, odd + 1);
    // A call is entered 1 ms after the one before it has completed, which takes 1 ms.
    let stops = 2 * (size.steps * STEP + BEFORE);
    match hang {
        Hang::Dead => {
            format!("end: {{\"{others}\": alive_waiting, \"{odd}\": {{signal: 9, t: {stops}.5, by: oom_killer}}}}\n")
        }
        Hang::Driver => format!(
            "end: {{\"{others}\": alive_waiting, \"{odd}\": alive_blocked}}\nsnapshot_t: {}\nevidence: {{\"{odd}\": {{threads: \
             [{{name: main, state: blocked, syscall: ioctl, device: /dev/gpu0, request: 0xc0104b05, result: ETIMEDOUT, \
             each_ms: 10240, times: 27, since_ms: {stops}.5, cpu_ms: 300}}]}}}}\n",
            stops + 300_000
        ),
        _ => format!("end: {{\"0-{end}\": alive_waiting}}\n"),
    }
}

fn lines(text: &mut String, indent: &str, call: &str) {
    let _ = writeln!(text, "{indent}- \"{call}\"");
}

fn list(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}
