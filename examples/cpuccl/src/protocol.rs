//! What one rank does for one call: a program of steps over channels.
//!
//! A step takes at most one chunk from the channel behind, combines it with at most one chunk of the rank's own input, and hands the result to
//! the output, to the channel ahead, or both. A rank computes its steps from its own arguments alone and trusts that what arrives is what it
//! expects: chunks carry no length, no type and no name of the call they belong to.

use crate::reduce;
use crate::shm::{CHUNK, Channel, Shared};
use crate::types::{DataType, RedOp};

/// Bytes of the count argument up to which a collective is a small one.
const SMALL: usize = 64;

/// The kinds of programs. `Send` and `Recv` run on a pair's channel, the others on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ring reduce-scatter followed by ring all-gather, in rounds of one chunk per rank.
    AllReduce,
    /// A chain that starts at the root.
    Broadcast {
        /// The source.
        root: usize,
    },
    /// A chain that ends at the root.
    Reduce {
        /// The destination.
        root: usize,
    },
    /// Each rank's block goes once round the ring.
    AllGather,
    /// Each block is summed on its way round the ring and ends at its owner.
    ReduceScatter,
    /// To the peer's channel.
    Send {
        /// The receiver.
        peer: usize,
    },
    /// From the peer's channel.
    Recv {
        /// The sender.
        peer: usize,
    },
}

/// The steps of one call on one rank, as a function of the step's index.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    kind: Kind,
    /// Elements of the call's count argument.
    count: usize,
    /// Elements per chunk.
    chunk: usize,
    /// Whether it runs on the small calls' channels.
    small: bool,
    rank: usize,
    ranks: usize,
}

/// One step; offsets are in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    recv: bool,
    send: bool,
    input: Option<usize>,
    output: Option<usize>,
    len: usize,
    /// The reduction is complete after this step.
    complete: bool,
}

impl Program {
    /// The program of `rank` for a call over `count` elements of `data_type`.
    pub const fn new(kind: Kind, count: usize, data_type: DataType, rank: usize, ranks: usize) -> Self {
        let small = count.saturating_mul(data_type.size()) <= SMALL;
        Self { kind, count, chunk: CHUNK / data_type.size(), small, rank, ranks }
    }

    const fn alone(&self) -> bool {
        self.ranks == 1 && !matches!(self.kind, Kind::Send { .. } | Kind::Recv { .. })
    }

    const fn steps_per_round(&self) -> usize {
        match self.kind {
            _ if self.alone() => 1,
            Kind::AllReduce => 2 * self.ranks - 1,
            Kind::AllGather | Kind::ReduceScatter => self.ranks,
            Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::Send { .. } | Kind::Recv { .. } => 1,
        }
    }

    /// Elements that one round covers.
    const fn round(&self) -> usize {
        match self.kind {
            Kind::AllReduce if !self.alone() => self.chunk * self.ranks,
            _ => self.chunk,
        }
    }

    /// Number of steps; none for a call over nothing.
    pub const fn len(&self) -> usize {
        self.count.div_ceil(self.round()) * self.steps_per_round()
    }

    /// Whether there is nothing to do.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The step at `index`, which is below [`Self::len`].
    pub fn step(&self, index: usize) -> Step {
        let start = index / self.steps_per_round() * self.round();
        let at = index % self.steps_per_round();
        let rest = self.count - start;
        let plain = Step { len: rest.min(self.chunk), ..Step::default() };
        let before = |distance: usize| (self.rank + 2 * self.ranks - distance) % self.ranks;
        let block = |owner: usize| Some(owner * self.count + start);
        let last = self.ranks - 1;
        if self.alone() {
            return Step { input: Some(start), output: Some(start), complete: true, ..plain };
        }
        match self.kind {
            Kind::AllReduce => self.all_reduce_step(start, rest, at),
            Kind::Broadcast { root } => match (self.rank + self.ranks - root) % self.ranks {
                0 => Step { send: true, input: Some(start), output: Some(start), ..plain },
                place => Step { recv: true, send: place < last, output: Some(start), ..plain },
            },
            Kind::Reduce { root } => match (self.rank + 2 * self.ranks - root - 1) % self.ranks {
                0 => Step { send: true, input: Some(start), ..plain },
                place if place < last => Step { recv: true, send: true, input: Some(start), ..plain },
                _ => Step { recv: true, input: Some(start), output: Some(start), complete: true, ..plain },
            },
            Kind::AllGather => match at {
                0 => Step { send: true, input: Some(start), output: block(self.rank), ..plain },
                _ => Step { recv: true, send: at < last, output: block(before(at)), ..plain },
            },
            Kind::ReduceScatter => match at {
                0 => Step { send: true, input: block(before(1)), ..plain },
                _ if at < last => Step { recv: true, send: true, input: block(before(at + 1)), ..plain },
                _ => Step { recv: true, input: block(self.rank), output: Some(start), complete: true, ..plain },
            },
            Kind::Send { .. } => Step { send: true, input: Some(start), ..plain },
            Kind::Recv { .. } => Step { recv: true, output: Some(start), ..plain },
        }
    }

    fn all_reduce_step(&self, start: usize, rest: usize, at: usize) -> Step {
        let last = self.ranks - 1;
        // The last round is cut into equal parts, so that few elements still travel as one small chunk per rank.
        let part = if rest < self.round() { rest.div_ceil(self.ranks) } else { self.chunk };
        let owner = (self.rank + 3 * self.ranks - 1 - at) % self.ranks;
        let skip = (owner * part).min(rest);
        let offset = Some(start + skip);
        let plain = Step { len: part.min(rest - skip), ..Step::default() };
        match at {
            0 => Step { send: true, input: offset, ..plain },
            _ if at < last => Step { recv: true, send: true, input: offset, ..plain },
            _ if at == last => Step { recv: true, send: true, input: offset, output: offset, complete: true, ..plain },
            _ => Step { recv: true, send: at < 2 * last, output: offset, ..plain },
        }
    }
}

/// One program on its way, with the caller's buffers.
#[derive(Debug)]
pub struct Task {
    program: Program,
    next: usize,
    input: *const u8,
    output: *mut u8,
    data_type: DataType,
    reduction: Option<RedOp>,
}

// SAFETY: the caller of the library promises that the buffers stay valid and untouched until the stream has reached the call.
unsafe impl Send for Task {}

impl Task {
    /// A task over the caller's buffers; the one that `kind` does not use may be null.
    pub const fn new(
        program: Program,
        data_type: DataType,
        reduction: Option<RedOp>,
        input: *const u8,
        output: *mut u8,
    ) -> Self {
        Self { program, next: 0, input, output, data_type, reduction }
    }

    /// Which of its rank's queues the task belongs to: tasks of one queue run one after another.
    pub const fn queue(&self) -> Queue {
        match self.program.kind {
            Kind::Send { peer } => Queue::To(peer),
            Kind::Recv { peer } => Queue::From(peer),
            _ => Queue::Ring,
        }
    }

    /// Whether all steps are done.
    pub const fn done(&self) -> bool {
        self.next == self.program.len()
    }

    /// Makes the next step if its channels allow. The task must not be [`Self::done`].
    pub fn advance(&mut self, shared: &Shared) -> bool {
        let (rank, ranks) = (self.program.rank, self.program.ranks);
        let (behind, ahead) = match self.program.kind {
            Kind::Send { peer } => (peer, peer),
            Kind::Recv { peer } => (peer, peer),
            _ => ((rank + ranks - 1) % ranks, (rank + 1) % ranks),
        };
        let (from, to) = match self.program.kind {
            Kind::Send { peer } | Kind::Recv { peer } => (shared.pair(peer, rank), shared.pair(rank, peer)),
            _ => (shared.ring(behind, self.program.small), shared.ring(rank, self.program.small)),
        };
        let step = self.program.step(self.next);
        let Some((full, free)) = slots(step, from, to) else { return false };
        // SAFETY: the slots are ours until posted or released and hold a chunk each, the step's length is at most one chunk, and its
        // offsets lie inside buffers of the size that the call's arguments promise.
        unsafe { self.compute(step, full, free) };
        if step.recv {
            from.release();
            shared.ring_bell(behind);
        }
        if step.send {
            to.post();
            shared.ring_bell(ahead);
        }
        self.next += 1;
        true
    }

    /// # Safety
    /// The slots are those the step asks for, and the step's ranges lie inside the task's buffers.
    unsafe fn compute(&self, step: Step, full: Option<*const u8>, free: Option<*mut u8>) {
        let (size, kind) = (self.data_type.size(), self.data_type);
        // SAFETY: as promised by the caller.
        let input = step.input.map(|offset| unsafe { self.input.add(offset * size) });
        // SAFETY: as promised by the caller.
        let output = step.output.map(|offset| unsafe { self.output.add(offset * size) });
        let Some(target) = free.or(output) else { return };
        // SAFETY: as promised by the caller; output and input may overlap only where they are equal, which each of these allows.
        unsafe {
            match (full, input, self.reduction) {
                (Some(partial), Some(own), Some(op)) => reduce::combine(op, kind, partial, own, target, step.len),
                (None, Some(own), Some(op)) => reduce::prepare(op, kind, own, target, step.len),
                (Some(source), _, _) | (None, Some(source), None) => source.copy_to(target, step.len * size),
                (None, None, _) => {}
            }
            if let (true, Some(op)) = (step.complete, self.reduction) {
                reduce::finish(op, kind, target, step.len, self.program.ranks);
            }
            if let (Some(sent), Some(output)) = (free, output) {
                sent.copy_to(output, step.len * size);
            }
        }
    }
}

/// The queues of a rank; each works through its tasks in order, next to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Collectives.
    Ring,
    /// Sends to a peer.
    To(usize),
    /// Receives from a peer.
    From(usize),
}

/// The slots a step needs, or `None` while one of them is missing.
fn slots(step: Step, from: Channel<'_>, to: Channel<'_>) -> Option<(Option<*const u8>, Option<*mut u8>)> {
    let full = if step.recv { Some(from.full_slot()?) } else { None };
    let free = if step.send { Some(to.free_slot()?) } else { None };
    Some((full, free))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: Kind, count: usize, rank: usize, ranks: usize) -> Program {
        Program::new(kind, count, DataType::F32, rank, ranks)
    }

    #[test]
    fn what_a_rank_sends_is_what_the_next_one_takes() {
        let chunk = CHUNK / 4;
        for ranks in 2..=5 {
            for count in [0, 1, 7, chunk, 3 * chunk + 5, 12 * chunk] {
                for kind in [
                    Kind::AllReduce,
                    Kind::Broadcast { root: 1 },
                    Kind::Reduce { root: 0 },
                    Kind::AllGather,
                    Kind::ReduceScatter,
                ] {
                    for rank in 0..ranks {
                        let lens = |rank, wanted: fn(&Step) -> bool| -> Vec<usize> {
                            let program = program(kind, count, rank, ranks);
                            (0..program.len()).map(|i| program.step(i)).filter(wanted).map(|step| step.len).collect()
                        };
                        assert_eq!(
                            lens(rank, |s| s.send),
                            lens((rank + 1) % ranks, |s| s.recv),
                            "{kind:?} {count} {rank}/{ranks}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_all_reduce_writes_each_element_once() {
        for count in [1, 5, 3 * CHUNK / 4 + 1] {
            let program = program(Kind::AllReduce, count, 1, 3);
            let mut ranges: Vec<_> = (0..program.len())
                .map(|i| program.step(i))
                .filter_map(|step| step.output.map(|offset| (offset, step.len)))
                .filter(|range| range.1 > 0)
                .collect();
            ranges.sort_unstable();
            let mut end = 0;
            for (offset, len) in ranges {
                assert_eq!(offset, end);
                end += len;
            }
            assert_eq!(end, count);
        }
    }
}
