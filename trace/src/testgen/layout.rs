//! How a made-up training job is laid out: tensor x pipeline x data parallel groups, and what one pipeline stage calls in
//! one step.
//!
//! Ranks are numbered with the tensor index fastest, then data, then stage. A step is a forward and a backward sweep of
//! micro-batches through the stages, gradient reductions over the data group, one scalar over the world, and now and
//! then a validation. Every slot has its place in time on a grid that all stages share, so that each rank's calls can be
//! made without those of any other.

use crate::datatype::{Basic, RedOp, Reduction};
use crate::op::Op;

/// Shape of a made-up job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Ranks of a tensor-parallel group.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Ranks of a data-parallel group.
    pub data: u32,
    /// Training steps.
    pub steps: u64,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// Layers of a stage.
    pub layers: u32,
    /// Gradient buckets.
    pub buckets: u32,
    /// A validation follows every so many steps; 0: never.
    pub validate_every: u64,
    /// Whether layers route tokens with uneven split vectors.
    pub vectors: bool,
    /// Most ns by which a rank's entry is later than planned.
    pub jitter: u64,
    /// Whether calls block (the message-passing kind) or return at once.
    pub blocking: bool,
    /// Seed of everything that looks random.
    pub seed: u64,
}

impl Default for JobSpec {
    fn default() -> JobSpec {
        JobSpec {
            tensor: 2,
            pipeline: 2,
            data: 2,
            steps: 10,
            micro_batches: 2,
            layers: 2,
            buckets: 3,
            validate_every: 4,
            vectors: true,
            jitter: 200_000,
            blocking: false,
            seed: 1,
        }
    }
}

impl JobSpec {
    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data)
    }

    /// A small job whose shape follows from the seed alone.
    pub fn small(seed: u64) -> JobSpec {
        let pick = |salt: u64, from: u64, below: u64| from + mix(&[seed, salt]) % (below - from);
        let mut spec = JobSpec {
            tensor: pick(1, 1, 4) as u32,
            pipeline: pick(2, 1, 4) as u32,
            data: pick(3, 1, 4) as u32,
            steps: pick(4, 3, 9),
            micro_batches: pick(5, 1, 4) as u32,
            layers: pick(6, 1, 4) as u32,
            buckets: pick(7, 1, 5) as u32,
            validate_every: pick(8, 0, 4),
            vectors: pick(9, 0, 2) == 1,
            jitter: pick(10, 0, 500_000),
            blocking: pick(11, 0, 2) == 1,
            seed,
        };
        if spec.world() < 2 {
            spec.data = 2;
        }
        spec
    }

    /// (tensor index, data index, stage) of a rank.
    pub fn place(&self, rank: u32) -> (u32, u32, u32) {
        (rank % self.tensor, rank / self.tensor % self.data, rank / self.tensor / self.data)
    }

    fn rank(&self, tensor: u32, data: u32, stage: u32) -> u32 {
        (stage * self.data + data) * self.tensor + tensor
    }

    /// Members of the rank's group of this kind, in the group's order.
    pub fn members(&self, kind: GroupKind, rank: u32) -> Vec<u32> {
        let (tensor, data, stage) = self.place(rank);
        match kind {
            GroupKind::World => (0..self.world()).collect(),
            GroupKind::Tensor => (0..self.tensor).map(|tensor| self.rank(tensor, data, stage)).collect(),
            GroupKind::Data => (0..self.data).map(|data| self.rank(tensor, data, stage)).collect(),
            GroupKind::Pipeline => (0..self.pipeline).map(|stage| self.rank(tensor, data, stage)).collect(),
        }
    }

    /// The lowest member of the rank's group of this kind: with the kind, the group's name among all groups.
    pub(super) fn lowest(&self, kind: GroupKind, rank: u32) -> u32 {
        let (tensor, data, stage) = self.place(rank);
        match kind {
            GroupKind::World => 0,
            GroupKind::Tensor => self.rank(0, data, stage),
            GroupKind::Data => self.rank(tensor, 0, stage),
            GroupKind::Pipeline => self.rank(tensor, data, 0),
        }
    }

    /// The rank's place among the members.
    pub fn local(&self, kind: GroupKind, rank: u32) -> u32 {
        let (tensor, data, stage) = self.place(rank);
        match kind {
            GroupKind::World => rank,
            GroupKind::Tensor => tensor,
            GroupKind::Data => data,
            GroupKind::Pipeline => stage,
        }
    }

    /// Number of members.
    pub fn size(&self, kind: GroupKind) -> u32 {
        match kind {
            GroupKind::World => self.world(),
            GroupKind::Tensor => self.tensor,
            GroupKind::Data => self.data,
            GroupKind::Pipeline => self.pipeline,
        }
    }

    /// Name of the rank's group: its kind and the lowest member.
    pub fn name(&self, kind: GroupKind, rank: u32) -> String {
        let lowest = self.lowest(kind, rank);
        match kind {
            GroupKind::World => "world".to_owned(),
            GroupKind::Tensor => format!("tp{lowest}"),
            GroupKind::Data => format!("dp{lowest}"),
            GroupKind::Pipeline => format!("pp{lowest}"),
        }
    }

    /// Whether a step ends with a validation.
    pub(super) fn validates(&self, step: u64) -> bool {
        self.validate_every > 0 && (step + 1).is_multiple_of(self.validate_every)
    }

    /// ns from one step to the next.
    pub(super) fn step_time(&self) -> u64 {
        let units = 2 * (u64::from(self.micro_batches) + u64::from(self.pipeline)) + 4;
        units * self.unit()
    }

    /// ns of one micro-batch on one stage, and of each of the parts after the sweeps.
    fn unit(&self) -> u64 {
        (4 * u64::from(self.layers) + u64::from(self.buckets) + 8) * self.slot()
    }

    /// ns from one call to the next: every member has entered a call before any enters the next.
    fn slot(&self) -> u64 {
        self.jitter + LATENCY + PAUSE
    }
}

/// From a slot's last possible entry to its completion, ns.
pub(super) const LATENCY: u64 = 500_000;
/// From a slot's completion to the next one's first possible entry, ns.
pub(super) const PAUSE: u64 = 100_000;

/// Which of a rank's groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupKind {
    /// All ranks.
    World,
    /// The tensor-parallel group.
    Tensor,
    /// The data-parallel group.
    Data,
    /// The stages of one pipeline: sends and receives.
    Pipeline,
}

impl GroupKind {
    /// Every kind.
    pub const ALL: [GroupKind; 4] = [GroupKind::World, GroupKind::Tensor, GroupKind::Data, GroupKind::Pipeline];
}

/// A call of every step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) op: Op,
    pub(super) kind: GroupKind,
    pub(super) count: u64,
    pub(super) dtype: Basic,
    pub(super) redop: RedOp,
    /// In the group's ranks.
    pub(super) root: Option<u32>,
    /// In the group's ranks.
    pub(super) peer: Option<u32>,
    /// Planned entry in the step, ns.
    pub(super) at: u64,
    /// Completion in the step, ns.
    pub(super) done: u64,
    /// Index into [`SITES`].
    pub(super) site: u32,
    /// Whether it has split vectors.
    pub(super) vector: bool,
    /// Whether only validation steps have it.
    pub(super) validation: bool,
}

/// Call sites: frames outermost first.
pub(super) const SITES: &[&[(&str, &str, u32)]] = &[
    &[("train_step", "train.py", 88), ("forward", "layers.py", 41)],
    &[("train_step", "train.py", 88), ("dispatch", "moe.py", 120)],
    &[("train_step", "train.py", 88), ("send_forward", "pipeline.py", 57)],
    &[("train_step", "train.py", 88), ("recv_forward", "pipeline.py", 34)],
    &[("train_step", "train.py", 91), ("backward", "layers.py", 77)],
    &[("train_step", "train.py", 91), ("send_backward", "pipeline.py", 63)],
    &[("train_step", "train.py", 91), ("recv_backward", "pipeline.py", 45)],
    &[("train_step", "train.py", 95), ("reduce_grads", "optim.py", 203)],
    &[("train_step", "train.py", 97), ("grad_norm", "optim.py", 230)],
    &[("validate", "train.py", 140)],
    &[("validate", "train.py", 152), ("mean_loss", "metrics.py", 18)],
    &[("debug_hook", "hooks.py", 7)],
];

/// The site of a call that only a fault makes.
pub(super) const FAULT_SITE: u32 = 11;

/// What a stage calls in one step, in order.
pub(super) fn program(spec: &JobSpec, stage: u32) -> Vec<Slot> {
    let mut slots = Vec::new();
    let (unit, slot) = (spec.unit(), spec.slot());
    let (stages, micro) = (u64::from(spec.pipeline), u64::from(spec.micro_batches));
    let here = u64::from(stage);
    // A stage begins a little before the one before it begins the next micro-batch, so that a blocking send is over.
    let lag = unit - 3 * slot;
    let activation = 4096 * (u64::from(spec.seed as u8) + 1);
    let mut push = |op: Op, kind: GroupKind, count: u64, dtype: Basic, site: u32, at: u64| -> Option<usize> {
        if spec.size(kind) < 2 {
            return None;
        }
        let redop = if op.has_reduction() { RedOp::Predefined(Reduction::Sum) } else { RedOp::None };
        let done = at + spec.jitter + LATENCY;
        let (vector, validation) = (op == Op::AllToAll, site == 9 || site == 10);
        slots.push(Slot { op, kind, count, dtype, redop, root: None, peer: None, at, done, site, vector, validation });
        Some(slots.len() - 1)
    };
    let mut edges: Vec<(usize, u32, u64)> = Vec::new();
    let pipe = GroupKind::Pipeline;
    for m in 0..micro {
        let start = m * unit + here * lag;
        if stage > 0 {
            edges.extend(push(Op::Recv, pipe, activation, Basic::Bf16, 3, start).map(|at| (at, stage - 1, start)));
        }
        for layer in 0..u64::from(spec.layers) {
            let at = start + (2 * layer + 1) * slot;
            if spec.vectors {
                push(Op::AllToAll, GroupKind::Tensor, 0, Basic::Bf16, 1, at);
            }
            push(Op::AllReduce, GroupKind::Tensor, activation, Basic::Bf16, 0, at + slot);
        }
        if stage + 1 < spec.pipeline {
            // It completes when the next stage has posted its receive, at the start of that stage's part.
            let arrival = start + lag;
            let at = arrival - slot;
            edges.extend(push(Op::Send, pipe, activation, Basic::Bf16, 2, at).map(|at| (at, stage + 1, arrival)));
        }
    }
    let turn = (micro + stages) * unit;
    for m in 0..micro {
        let start = turn + m * unit + (stages - 1 - here) * lag;
        if stage + 1 < spec.pipeline {
            edges.extend(push(Op::Recv, pipe, activation, Basic::Bf16, 6, start).map(|at| (at, stage + 1, start)));
        }
        for layer in 0..u64::from(spec.layers) {
            let at = start + (layer + 1) * slot;
            push(Op::AllReduce, GroupKind::Tensor, activation, Basic::Bf16, 4, at);
        }
        if stage > 0 {
            let arrival = start + lag;
            let at = arrival - slot;
            edges.extend(push(Op::Send, pipe, activation, Basic::Bf16, 5, at).map(|at| (at, stage - 1, arrival)));
        }
    }
    let tail = 2 * turn;
    for bucket in 0..u64::from(spec.buckets) {
        push(Op::AllReduce, GroupKind::Data, 1 << (16 + bucket % 4), Basic::F32, 7, tail + (bucket + 1) * slot);
    }
    push(Op::AllReduce, GroupKind::World, 1, Basic::F32, 8, tail + unit);
    push(Op::Barrier, GroupKind::World, 1, Basic::F32, 9, tail + 2 * unit);
    let loss = push(Op::Reduce, GroupKind::World, 3, Basic::F64, 10, tail + 2 * unit + slot);
    for (index, peer, arrival) in edges {
        if let Some(edge) = slots.get_mut(index) {
            edge.peer = Some(peer);
            edge.done = arrival + spec.jitter + LATENCY;
        }
    }
    if let Some(slot) = loss.and_then(|index| slots.get_mut(index)) {
        slot.root = Some(0);
    }
    slots
}

/// A number that looks random and follows from its parts (splitmix64 over them).
pub(super) fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::{GroupKind, JobSpec, program};

    #[test]
    fn groups_partition_the_world() {
        for seed in 0..50 {
            let spec = JobSpec::small(seed);
            for kind in GroupKind::ALL {
                for rank in 0..spec.world() {
                    let members = spec.members(kind, rank);
                    assert_eq!(members.len(), spec.size(kind) as usize);
                    assert_eq!(members[spec.local(kind, rank) as usize], rank);
                    for &member in &members {
                        assert_eq!(spec.name(kind, member), spec.name(kind, rank), "{spec:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_stage_calls_in_order_of_time_and_ends_within_the_step() {
        for seed in 0..50 {
            let spec = JobSpec::small(seed);
            for stage in 0..spec.pipeline {
                let slots = program(&spec, stage);
                assert!(!slots.is_empty());
                for pair in slots.windows(2) {
                    assert!(pair[0].done < pair[1].at, "{spec:?}");
                }
                assert!(slots.iter().all(|slot| slot.done < spec.step_time()), "{spec:?}");
            }
        }
    }
}
