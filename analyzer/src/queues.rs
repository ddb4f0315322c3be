//! What a library that returns at once has queued, executed as its devices would: calls of one communicator, and calls
//! on one device stream, run in the order in which they were issued.
//!
//! Only a job that stands still is executed here, and only whole records. What the execution leaves over is who waits for
//! whom behind the host's back. It is lenient: what may finish early does, so that what is left over really cannot run.
//! Sends finish early at first; where nothing is left over then, they wait for their receives.

use std::collections::VecDeque;

use rankdiff_trace::{Call, CallFlags, Level, Op, OpKind, Semantics};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::align::{Alignment, synchronises};
use crate::comms::Comm;
use crate::index::{Base, Progress, takes_position};
use crate::quiet::Quiet;

/// A call at the head of its queues that cannot finish.
#[derive(Debug, Clone)]
pub(crate) struct Stopped<'a> {
    pub(crate) stream: usize,
    pub(crate) rank: u32,
    pub(crate) call: &'a Call,
    pub(crate) comm: usize,
    pub(crate) at: At,
    /// Ranks that have not started their part of it.
    pub(crate) missing: Vec<u32>,
}

/// What a call waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// A collective's position.
    Collective(u64),
    /// A message: source, destination (global ranks), ordinal on their channel from 0.
    Message(u32, u32, u64),
}

/// What is left over.
#[derive(Debug, Default)]
pub(crate) struct Leftover<'a> {
    /// Calls at the heads of queues.
    pub(crate) stopped: Vec<Stopped<'a>>,
    /// It is only left over because sends were made to wait for their receives.
    pub(crate) by_sends: bool,
}

/// Behind the last call of a rank, what it is stuck in cannot lie further than this, ns: hosts queue fast.
const RUN_AHEAD: i64 = 1_000_000_000;
/// Sizes of sends that are found to have been buffered before the search ends.
const ROUNDS: usize = 8;

/// Whether a communicator's calls run on device queues.
pub(crate) fn is_queued(comm: &Comm<'_>) -> bool {
    comm.level == Level::Library
        && comm.semantics.contains(Semantics::GROUP_P2P_UNORDERED)
        && !comm.semantics.contains(Semantics::BLOCKING)
}

/// Executes the job's queues. Nothing is left over where the record does not allow to say.
pub(crate) fn execute<'a>(alignment: &Alignment<'a>, quiet: &Quiet) -> Leftover<'a> {
    if !is_whole(alignment) {
        return Leftover::default();
    }
    let Some(program) = Program::of(alignment) else { return Leftover::default() };
    let stopped = program.run(None);
    if !stopped.is_empty() || !quiet.idle {
        return Leftover { stopped, by_sends: false };
    }
    let mut buffered = 0;
    for _ in 0..ROUNDS {
        let stopped = program.run(Some(buffered));
        let last = |stream: usize| {
            let stream = alignment.attempt.streams.get(stream)?;
            stream.calls.iter().map(|call| stream.time(call.enter)).max()
        };
        let passed = |one: &&Stopped<'a>| {
            let entered = alignment.entered(one.stream, one.call);
            last(one.stream).is_some_and(|last| last.saturating_sub(entered) > RUN_AHEAD)
        };
        // A send that its rank went on from long ago was buffered, and so are smaller ones.
        let proven =
            stopped.iter().filter(passed).filter(|one| one.call.op == Op::Send).map(|one| bytes(one.call)).max();
        match proven {
            Some(size) => buffered = size.saturating_add(1),
            None => return Leftover { stopped, by_sends: true },
        }
    }
    Leftover::default()
}

fn bytes(call: &Call) -> u64 {
    let size = match call.dtype {
        rankdiff_trace::DType::Basic(basic) => basic.size(),
        _ => 1,
    };
    call.count.unwrap_or(0).saturating_mul(size)
}

/// Whether all that was queued is known and can be told apart.
fn is_whole(alignment: &Alignment<'_>) -> bool {
    let streams = &alignment.attempt.streams;
    let gaps = streams.iter().any(|stream| stream.has_gaps() || stream.trace.has_elided());
    let captured = !alignment.index.captured.is_empty();
    // Without its members nobody knows what a queued call waits for.
    let world = alignment.attempt.world;
    let unjoined = alignment.comms.list.iter().any(|comm| is_queued(comm) && comm.is_unjoined(world));
    !gaps && !captured && !unjoined && !alignment.divergences.iter().any(|one| one.open)
}

/// A call in a batch.
struct Item<'a> {
    call: &'a Call,
    comm: usize,
    at: At,
    done: bool,
}

/// Calls that start together: one, or all of a batch.
struct Unit<'a> {
    stream: usize,
    rank: u32,
    items: Vec<Item<'a>>,
    queues: Vec<usize>,
}

/// The units of all ranks, each rank's in order.
struct Program<'a> {
    units: Vec<Unit<'a>>,
    queues: Vec<Vec<usize>>,
    /// Members of each communicator in its own order.
    members: Vec<Vec<u32>>,
}

impl<'a> Program<'a> {
    fn of(alignment: &Alignment<'a>) -> Option<Program<'a>> {
        let mut program = Program {
            units: Vec::new(),
            queues: Vec::new(),
            members: alignment.comms.list.iter().map(|comm| comm.members.clone()).collect(),
        };
        for (at, comm) in alignment.comms.list.iter().enumerate().filter(|(_, comm)| is_queued(comm)) {
            let tracks = alignment.tracks(at);
            let known = tracks.iter().all(|track| track.base == Base::Known && track.blind_after.is_none());
            if !comm.members_known || tracks.len() < comm.members.len() || !known {
                return None;
            }
        }
        for at in 0..alignment.attempt.streams.len() {
            program.add(alignment, at)?;
        }
        (!program.units.is_empty()).then_some(program)
    }

    /// Queues what one rank issued; `None` if an argument that matters is not known.
    fn add(&mut self, alignment: &Alignment<'a>, at: usize) -> Option<()> {
        let stream = alignment.attempt.streams.get(at)?;
        let progress = alignment.index.progress.get(at)?;
        let mut queue_of: FxHashMap<(bool, u64), usize> = FxHashMap::default();
        let mut ordinals: FxHashMap<(usize, u32, bool), u64> = FxHashMap::default();
        let mut positions: FxHashMap<usize, u64> = FxHashMap::default();
        let mut batches: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        for (&call, &progress) in stream.calls.iter().zip(progress) {
            let Some(comm_at) = alignment.comms.of(at, call.comm) else { continue };
            let Some(comm) = alignment.comm(comm_at).filter(|comm| is_queued(comm) && comm.members.len() > 1) else {
                continue;
            };
            if !takes_position(call) || call.result.unwrap_or(0) != 0 {
                continue;
            }
            let place = match call.op.kind() {
                OpKind::Collective => {
                    let next = positions.entry(comm_at).or_default();
                    let pos = call.seq.unwrap_or(*next);
                    *next = pos.saturating_add(1);
                    At::Collective(pos)
                }
                OpKind::PointToPoint => {
                    let peer = comm.global(call.peer?)?;
                    let sends = call.op == Op::Send;
                    let next = ordinals.entry((comm_at, peer, sends)).or_default();
                    let ordinal = *next;
                    *next += 1;
                    let (source, destination) = if sends { (stream.rank, peer) } else { (peer, stream.rank) };
                    At::Message(source, destination, ordinal)
                }
                _ => continue,
            };
            let item = Item { call, comm: comm_at, at: place, done: progress == Progress::Done };
            let grouped = call.flags.contains(CallFlags::GROUPED) && call.group != 0;
            let unit = match batches.get(&(call.thread, call.group)).filter(|_| grouped) {
                Some(&unit) => unit,
                None => {
                    self.units.push(Unit { stream: at, rank: stream.rank, items: Vec::new(), queues: Vec::new() });
                    let unit = self.units.len() - 1;
                    if grouped {
                        batches.insert((call.thread, call.group), unit);
                    }
                    unit
                }
            };
            // Without a handle it is not known which stream the call is on.
            let keys = [Some((false, comm_at as u64)), (call.stream != 0).then_some((true, call.stream))];
            for key in keys.into_iter().flatten() {
                let queue = *queue_of.entry(key).or_insert_with(|| {
                    self.queues.push(Vec::new());
                    self.queues.len() - 1
                });
                let Some(held) = self.units.get_mut(unit) else { continue };
                if !held.queues.contains(&queue) {
                    held.queues.push(queue);
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.push(unit);
                    }
                }
            }
            if let Some(unit) = self.units.get_mut(unit) {
                unit.items.push(item);
            }
        }
        Some(())
    }

    /// Runs everything that can run. `wait`: sends of at least so many bytes wait for their receive.
    fn run(&self, wait: Option<u64>) -> Vec<Stopped<'a>> {
        let mut run = Run {
            program: self,
            wait,
            heads: vec![0; self.queues.len()],
            active: vec![false; self.units.len()],
            finished: vec![false; self.units.len()],
            entered: FxHashMap::default(),
            waiting: FxHashMap::default(),
        };
        let mut work: VecDeque<usize> = self.queues.iter().filter_map(|queue| queue.first().copied()).collect();
        while let Some(unit) = work.pop_front() {
            run.step(unit, &mut work);
        }
        run.leftover()
    }
}

/// What calls meet at: communicator and place.
type Meeting = (usize, At);

struct Run<'p, 'a> {
    program: &'p Program<'a>,
    wait: Option<u64>,
    /// Place in each queue.
    heads: Vec<usize>,
    active: Vec<bool>,
    finished: Vec<bool>,
    entered: FxHashMap<Meeting, Entered>,
    /// Units to look at again when enough have started their calls there.
    waiting: FxHashMap<Meeting, Vec<usize>>,
}

/// Who has started a call.
#[derive(Default)]
struct Entered {
    ranks: Vec<u32>,
    /// The root is among them.
    root: bool,
}

impl<'a> Run<'_, 'a> {
    fn step(&mut self, at: usize, work: &mut VecDeque<usize>) {
        let Some(unit) = self.program.units.get(at) else { return };
        if self.finished.get(at) != Some(&false) {
            return;
        }
        let is_head = |&queue: &usize| {
            let head = self.heads.get(queue).and_then(|&head| self.program.queues.get(queue)?.get(head));
            head == Some(&at)
        };
        if !unit.queues.iter().all(is_head) {
            return;
        }
        if let Some(active) = self.active.get_mut(at)
            && !*active
        {
            *active = true;
            for item in &unit.items {
                let meeting = (item.comm, item.at);
                let members = self.program.members.get(item.comm).map_or(&[][..], Vec::as_slice);
                let is_root = root(item, members) == Some(unit.rank);
                let entered = self.entered.entry(meeting).or_default();
                entered.ranks.push(unit.rank);
                entered.root |= is_root;
                // Whoever waits in a collective waits for all, or for the root.
                let enough = is_root || entered.ranks.len() >= members.len();
                if enough || matches!(item.at, At::Message(..)) {
                    work.extend(self.waiting.remove(&meeting).unwrap_or_default());
                }
            }
        }
        let open: Vec<Meeting> =
            unit.items.iter().filter(|item| !self.finishes(unit.rank, item)).map(|item| (item.comm, item.at)).collect();
        if !open.is_empty() {
            for meeting in open {
                self.waiting.entry(meeting).or_default().push(at);
            }
            return;
        }
        if let Some(finished) = self.finished.get_mut(at) {
            *finished = true;
        }
        for &queue in &unit.queues {
            if let Some(head) = self.heads.get_mut(queue) {
                *head += 1;
                work.extend(self.program.queues.get(queue).and_then(|queue| queue.get(*head)).copied());
            }
        }
    }

    /// Whether a call that has started is finished.
    fn finishes(&self, rank: u32, item: &Item<'_>) -> bool {
        if item.done {
            return true;
        }
        let none = Entered::default();
        let entered = self.entered.get(&(item.comm, item.at)).unwrap_or(&none);
        match item.at {
            At::Message(source, destination, _) => match item.call.op {
                Op::Send => {
                    self.wait.is_none_or(|wait| bytes(item.call) < wait) || entered.ranks.contains(&destination)
                }
                _ => entered.ranks.contains(&source) && (source != destination || entered.ranks.len() > 1),
            },
            At::Collective(_) => {
                let members = self.program.members.get(item.comm).map_or(&[][..], Vec::as_slice);
                let all = entered.ranks.len() >= members.len();
                match (item.call.op, root(item, members)) {
                    (op, _) if synchronises(op) => all,
                    // The root sends and may be done before anybody receives.
                    (Op::Broadcast | Op::Scatter, Some(root)) => root == rank || entered.root,
                    (Op::Reduce | Op::Gather, Some(root)) => root != rank || all,
                    _ => true,
                }
            }
        }
    }

    fn missing(&self, item: &Item<'_>) -> Vec<u32> {
        let members = self.program.members.get(item.comm).map_or(&[][..], Vec::as_slice);
        let entered = self.entered.get(&(item.comm, item.at)).map_or(&[][..], |entered| &entered.ranks);
        let there: FxHashSet<u32> = entered.iter().copied().collect();
        let wanted = match (item.at, item.call.op) {
            (At::Message(source, destination, _), _) => vec![source, destination],
            (_, Op::Broadcast | Op::Scatter) => root(item, members).into_iter().collect(),
            _ => members.to_vec(),
        };
        wanted.into_iter().filter(|rank| !there.contains(rank)).collect()
    }

    fn leftover(&self) -> Vec<Stopped<'a>> {
        let mut stopped = Vec::new();
        for ((unit, &active), &finished) in self.program.units.iter().zip(&self.active).zip(&self.finished) {
            if !active || finished {
                continue;
            }
            let open = unit.items.iter().filter(|item| !self.finishes(unit.rank, item));
            stopped.extend(open.map(|item| Stopped {
                stream: unit.stream,
                rank: unit.rank,
                call: item.call,
                comm: item.comm,
                at: item.at,
                missing: self.missing(item),
            }));
        }
        stopped
    }
}

/// Global rank of a call's root.
fn root(item: &Item<'_>, members: &[u32]) -> Option<u32> {
    item.call.root.and_then(|root| members.get(root as usize).copied())
}
