//! The calls of one training step: two micro-batches forward and backward through sequence-parallel layers, activations
//! along the pipeline, sharded gradients over the data group, and four calls over the world.

use super::spec::{Change, STEP_CALLS};
use crate::datatype::{Basic, RedOp, Reduction};
use crate::op::Op;
use crate::testgen::layout::{FAULT_SITE, GroupKind, JobSpec};

/// Micro-batches of a step.
const MICRO_BATCHES: u64 = 2;
/// Layers of a stage: an all-gather and a reduce-scatter each.
const LAYERS: u64 = 7;
/// Gradient buckets: a reduce-scatter and an all-gather each.
const BUCKETS: u64 = 12;
/// The layer whose reduce-scatter is an all_to_all_v in jobs with vectors.
const ROUTED: u64 = 3;

/// One call of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) op: Op,
    pub(super) kind: GroupKind,
    /// Elements; 0 for a barrier and for what has vectors.
    pub(super) count: u64,
    /// `None` for a barrier.
    pub(super) dtype: Option<Basic>,
    pub(super) redop: RedOp,
    /// In the group's ranks.
    pub(super) root: Option<u32>,
    /// Whether it has split vectors.
    pub(super) vector: bool,
    /// Elements more than planned to the first member.
    pub(super) extra_split: u64,
    /// Index into the sites of made-up jobs.
    pub(super) site: u32,
    /// 0: the main thread, 1: the one that runs the backward sweep.
    pub(super) thread: usize,
    /// Made by the planted change alone, between two planned calls.
    pub(super) between: bool,
}

impl Turn {
    fn new(op: Op, kind: GroupKind, count: u64, dtype: Basic, site: u32, thread: usize) -> Turn {
        let redop = if op.has_reduction() { RedOp::Predefined(Reduction::Sum) } else { RedOp::None };
        let (dtype, vector) = ((op != Op::Barrier).then_some(dtype), op == Op::AllToAllV);
        Turn { op, kind, count, dtype, redop, root: None, vector, extra_split: 0, site, thread, between: false }
    }

    /// This call, changed. What leaves it out or moves it is not done here.
    pub(super) fn changed(self, change: Change) -> Turn {
        match change {
            Change::Op => {
                let op = if self.op == Op::AllGather { Op::AllReduce } else { Op::AllGather };
                let dtype = self.dtype.unwrap_or(Basic::F32);
                Turn::new(op, self.kind, self.count.max(1), dtype, self.site, self.thread)
            }
            Change::Extra => {
                let extra = Turn::new(Op::AllGather, self.kind, 17, Basic::I64, FAULT_SITE, self.thread);
                Turn { between: true, ..extra }
            }
            Change::Count => Turn { count: self.count + 1, ..self },
            Change::Dtype => {
                let other = if self.dtype == Some(Basic::F32) { Basic::Bf16 } else { Basic::F32 };
                Turn { dtype: Some(other), ..self }
            }
            Change::Split => Turn { extra_split: 1, ..self },
            Change::Missing | Change::Order => self,
        }
    }

    /// Whether members' calls complete together in a library that blocks: wrong counts and types go unnoticed.
    pub(super) fn completes_with(&self, other: &Turn) -> bool {
        (self.op, self.root) == (other.op, other.root)
    }
}

/// The step. Neighbouring calls of each group differ in what their digests see.
pub(super) fn template(shape: &JobSpec, vectors: bool) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(STEP_CALLS as usize);
    let mut broadcasts = 0_u32;
    turns.push(Turn { root: Some(0), ..Turn::new(Op::Broadcast, GroupKind::World, 4, Basic::I64, 0, 0) });
    for (backward, [pipe_site, layer_site]) in [(false, [2, 0]), (true, [5, 4])] {
        let thread = usize::from(backward);
        let mut pipe = |turns: &mut Vec<Turn>| {
            // Each stage in turn, and another size each time.
            let (root, count) = (Some(broadcasts % shape.pipeline.max(1)), 4096 * (1 + u64::from(broadcasts)));
            broadcasts += 1;
            let turn = Turn::new(Op::Broadcast, GroupKind::Pipeline, count, Basic::Bf16, pipe_site, thread);
            turns.push(Turn { root, ..turn });
        };
        for _ in 0..MICRO_BATCHES {
            pipe(&mut turns);
            for layer in 0..LAYERS {
                let (kind, count) = (GroupKind::Tensor, 8192 << (layer % 3));
                turns.push(Turn::new(Op::AllGather, kind, count, Basic::Bf16, layer_site, thread));
                turns.push(if vectors && !backward && layer == ROUTED {
                    Turn::new(Op::AllToAllV, kind, 0, Basic::Bf16, 1, thread)
                } else {
                    Turn::new(Op::ReduceScatter, kind, count, Basic::Bf16, layer_site, thread)
                });
            }
            turns.push(Turn::new(Op::AllReduce, GroupKind::Tensor, 2048, Basic::F32, layer_site, thread));
            pipe(&mut turns);
        }
    }
    for bucket in 0..BUCKETS {
        let count = (1 << (16 + bucket % 5)) + 128 * bucket;
        turns.push(Turn::new(Op::ReduceScatter, GroupKind::Data, count, Basic::F32, 7, 0));
    }
    turns.push(Turn::new(Op::AllReduce, GroupKind::World, 1, Basic::F32, 8, 0));
    for bucket in 0..BUCKETS {
        let count = (1 << (16 + bucket % 5)) + 128 * bucket;
        turns.push(Turn::new(Op::AllGather, GroupKind::Data, count, Basic::Bf16, 7, 0));
    }
    turns.push(Turn::new(Op::AllReduce, GroupKind::World, 2, Basic::F32, 10, 0));
    turns.push(Turn::new(Op::Barrier, GroupKind::World, 0, Basic::F32, 9, 0));
    turns
}

#[cfg(test)]
mod tests {
    use super::{STEP_CALLS, template};
    use crate::testgen::layout::{GroupKind, JobSpec};

    #[test]
    fn a_step_has_its_calls_and_no_two_neighbours_are_equal() {
        for vectors in [false, true] {
            let turns = template(&JobSpec::default(), vectors);
            assert_eq!(turns.len() as u64, STEP_CALLS);
            let counts = GroupKind::ALL.map(|kind| turns.iter().filter(|turn| turn.kind == kind).count());
            assert_eq!(counts, [4, 60, 24, 8]);
            assert_eq!(turns.iter().filter(|turn| turn.vector).count(), if vectors { 2 } else { 0 });
            for kind in GroupKind::ALL {
                let line: Vec<_> = turns.iter().filter(|turn| turn.kind == kind).collect();
                for (one, next) in line.iter().zip(line.iter().cycle().skip(1)) {
                    assert_ne!(
                        (one.op, one.count, one.dtype, one.root),
                        (next.op, next.count, next.dtype, next.root),
                        "{kind:?}"
                    );
                }
            }
        }
    }
}
