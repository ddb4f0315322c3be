//! What a grid job is: its shape, the planted change and what the recorder missed.

use super::stops::{self, Stop};
use super::template::{Turn, template};
use crate::comm::CommRef;
use crate::op::Op;
use crate::stream::ProcessKey;
use crate::testgen::layout::{GroupKind, JobSpec};

/// Calls of one training step.
pub const STEP_CALLS: u64 = 96;
/// Most ranks.
const MAX_RANKS: u64 = 1 << 20;
/// Most calls of a rank: times stay far below 2^63 ns.
const MAX_CALLS: u64 = 1 << 40;
/// Most ns of jitter: one second.
const MAX_JITTER: u64 = 1_000_000_000;

/// Shape of a grid job. The default is 2 x 2 x 2 ranks x 1,000 calls, healthy, recorded from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridSpec {
    /// Ranks of a tensor-parallel group.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Ranks of a data-parallel group.
    pub data: u32,
    /// Calls of each rank; a step has [`STEP_CALLS`].
    pub calls: u64,
    /// Ranks of a node.
    pub per_node: u32,
    /// Whether calls block until every member made them; then a change that cannot complete stops the job. Otherwise
    /// calls return at once and every rank makes all of its calls, whatever the others do.
    pub blocking: bool,
    /// Whether two calls of a step route with uneven split vectors (all_to_all_v over the tensor group).
    pub vectors: bool,
    /// Most ns by which a rank's entry is later than planned.
    pub jitter: u64,
    /// Seed of everything that looks random.
    pub seed: u64,
    /// The planted change.
    pub plant: Option<Plant>,
    /// Ranks whose recorder came late, by rank.
    pub late: Vec<LateAttach>,
    /// Calls that were lost from full ring buffers; several of one rank in the order of their calls.
    pub lost: Vec<Lost>,
}

impl Default for GridSpec {
    fn default() -> GridSpec {
        GridSpec {
            tensor: 2,
            pipeline: 2,
            data: 2,
            calls: 1000,
            per_node: 8,
            blocking: false,
            vectors: false,
            jitter: 40_000,
            seed: 1,
            plant: None,
            late: Vec::new(),
            lost: Vec::new(),
        }
    }
}

impl GridSpec {
    /// The job of `ranks` ranks that growth is measured with: groups of up to 8 x 10 ranks, the rest data parallel
    /// (64 = 8 x 2 x 4, 512 = 8 x 4 x 16, 4,096 = 8 x 8 x 64, 10,240 = 8 x 10 x 128).
    pub fn of_size(ranks: u32, calls: u64) -> GridSpec {
        let tensor = if ranks.is_multiple_of(8) { 8 } else { 1 };
        let left = ranks / tensor;
        let wanted = if left >= 1024 { 10 } else { 8_u32.min(left / 4).max(1) };
        let pipeline = (1..=wanted).rev().find(|stages| left.is_multiple_of(*stages)).unwrap_or(1);
        GridSpec { tensor, pipeline, data: left / pipeline, calls, ..GridSpec::default() }
    }
}

/// What the planted change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Another operation.
    Op,
    /// One element more.
    Count,
    /// Another element type.
    Dtype,
    /// The call is left out.
    Missing,
    /// One call more, before it.
    Extra,
    /// The call and the next one on its communicator change places.
    Order,
    /// One element more to the first member in the split vector of an all_to_all_v: no signature shows it.
    Split,
}

impl Change {
    /// One of each.
    pub const ALL: [Change; 7] =
        [Change::Op, Change::Count, Change::Dtype, Change::Missing, Change::Extra, Change::Order, Change::Split];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Change::Op => "op",
            Change::Count => "count",
            Change::Dtype => "dtype",
            Change::Missing => "missing",
            Change::Extra => "extra",
            Change::Order => "order",
            Change::Split => "split",
        }
    }
}

/// A change and its place. [`Grid::index`] finds the call at a position of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plant {
    /// What is changed.
    pub change: Change,
    /// On which rank.
    pub rank: u32,
    /// At which of the rank's calls, from 0.
    pub call: u64,
}

/// The recorder came late to a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LateAttach {
    /// The rank.
    pub rank: u32,
    /// First of its calls that was recorded.
    pub first: u64,
    /// Whether positions are known all the same (the library counts them itself); otherwise the calls have none.
    pub positions: bool,
}

/// Calls of a rank that a full ring buffer lost. Positions behind them stay right: they are counted in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lost {
    /// The rank.
    pub rank: u32,
    /// First of its calls that was lost.
    pub first: u64,
    /// How many.
    pub calls: u64,
}

/// Where the change is: the right answer, apart from the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    /// What was planted.
    pub plant: Plant,
    /// On which of the rank's communicators.
    pub group: GroupKind,
    /// Name of the communicator.
    pub name: String,
    /// The first position on it at which the rank's stream differs from the other members'.
    pub position: u64,
}

/// Places that are near a border of the store, for changes on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Border {
    /// In the middle of the first block.
    FirstBlock,
    /// This far from the first checkpoint: -1 the last call in it, 0 the first behind it, 1 the one after.
    Checkpoint(i64),
    /// The last call on the communicator before the first border between blocks.
    BlockEnd,
    /// The first call on the communicator behind the first border between blocks.
    BlockBegin,
    /// The last call on the communicator in the first segment.
    SegmentEnd,
    /// The first call on the communicator in the second segment.
    SegmentBegin,
    /// The last call but one on the communicator (the last can have no next one to change places with).
    Tail,
}

impl Border {
    /// One of each.
    pub const ALL: [Border; 9] = [
        Border::FirstBlock,
        Border::Checkpoint(-1),
        Border::Checkpoint(0),
        Border::Checkpoint(1),
        Border::BlockEnd,
        Border::BlockBegin,
        Border::SegmentEnd,
        Border::SegmentBegin,
        Border::Tail,
    ];
}

/// A job that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// The shape is of no use.
    #[error("a grid job needs 2 to {MAX_RANKS} ranks with 1 to {MAX_CALLS} calls each, one rank or more on a node")]
    Shape,
    /// There is no such rank.
    #[error("there is no rank {rank} to plant a change on: the job has the ranks 0 to {}", .ranks.saturating_sub(1))]
    Rank {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// There is no such call, or it has nothing that could be changed so.
    #[error(
        "rank {} has no call {} that could be changed by '{}'{hint}; the job has {ranks} ranks x {calls} calls",
        .plant.rank, .plant.call, .plant.change.name()
    )]
    Plant {
        /// What was to be changed where.
        plant: Plant,
        /// What would help, or nothing.
        hint: String,
        /// Ranks of the job.
        ranks: u32,
        /// Calls of each.
        calls: u64,
    },
    /// A shape or change that was typed wrongly.
    #[error("{text}: {what}")]
    Text {
        /// What was typed.
        text: String,
        /// What is wrong and what is right.
        what: String,
    },
    /// Too much for memory.
    #[error("{calls} calls, {most} fit in memory; write them to a directory")]
    TooLarge {
        /// Calls of the job.
        calls: u64,
        /// Most that are held.
        most: u64,
    },
}

/// A grid job.
#[derive(Debug, Clone)]
pub struct Grid {
    spec: GridSpec,
    shape: JobSpec,
    template: Vec<Turn>,
    planted: Option<Planted>,
    stops: Vec<Stop>,
}

impl Grid {
    /// Lays out a job.
    pub fn new(spec: GridSpec) -> Result<Grid, GridError> {
        let world = [spec.tensor, spec.pipeline, spec.data].map(u64::from).into_iter().try_fold(1, u64::checked_mul);
        let calls = (1..=MAX_CALLS).contains(&spec.calls);
        let sane = calls && spec.per_node > 0 && spec.jitter <= MAX_JITTER;
        if !sane || !world.is_some_and(|world| (2..=MAX_RANKS).contains(&world)) {
            return Err(GridError::Shape);
        }
        let shape = JobSpec {
            tensor: spec.tensor,
            pipeline: spec.pipeline,
            data: spec.data,
            seed: spec.seed,
            ..JobSpec::default()
        };
        let template = template(&shape, spec.vectors);
        let mut grid = Grid { spec, shape, template, planted: None, stops: Vec::new() };
        grid.planted = match grid.spec.plant {
            Some(plant) => Some(grid.plant(plant)?),
            None => None,
        };
        if grid.spec.blocking
            && let Some(planted) = &grid.planted
        {
            grid.stops = stops::play(&grid, planted.plant.call);
        }
        Ok(grid)
    }

    /// The job's shape.
    pub fn spec(&self) -> &GridSpec {
        &self.spec
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.shape.world()
    }

    /// The right answer, if a change was planted.
    pub fn planted(&self) -> Option<&Planted> {
        self.planted.as_ref()
    }

    /// Whether the change stops the job.
    pub fn hangs(&self) -> bool {
        !self.stops.is_empty()
    }

    /// Members of the rank's group of this kind, in the group's order.
    pub fn members(&self, kind: GroupKind, rank: u32) -> Vec<u32> {
        self.shape.members(kind, rank)
    }

    /// The communicator of this kind, as every rank numbers it.
    pub fn comm(&self, kind: GroupKind) -> CommRef {
        CommRef(1 + kind as u32)
    }

    /// The key of a rank's process.
    pub fn key(&self, rank: u32) -> ProcessKey {
        ProcessKey { host: self.host(rank), pid: 1000 + rank, start_time: 1 }
    }

    pub(super) fn host(&self, rank: u32) -> String {
        format!("n{}", rank / self.spec.per_node)
    }

    pub(super) fn shape(&self) -> &JobSpec {
        &self.shape
    }

    pub(super) fn stop(&self, rank: u32) -> Option<Stop> {
        self.stops.get(rank as usize).copied()
    }

    /// The healthy call at this place of every rank's program.
    pub(super) fn turn(&self, call: u64) -> &Turn {
        &self.template[(call % STEP_CALLS) as usize]
    }

    /// Calls of a step on a communicator.
    fn in_step(&self, kind: GroupKind, slots: usize) -> u64 {
        self.template.iter().take(slots).filter(|turn| turn.kind == kind).count() as u64
    }

    /// Communicator and position of a call in a healthy job.
    pub fn place(&self, call: u64) -> (GroupKind, u64) {
        let kind = self.turn(call).kind;
        (kind, self.positions(kind, call))
    }

    /// Calls on a communicator among a rank's first `calls`.
    pub fn positions(&self, kind: GroupKind, calls: u64) -> u64 {
        let whole = calls / STEP_CALLS * self.in_step(kind, self.template.len());
        whole + self.in_step(kind, (calls % STEP_CALLS) as usize)
    }

    /// Place in a rank's program of the call at a position of a communicator, in a healthy job.
    pub fn index(&self, kind: GroupKind, position: u64) -> u64 {
        let of_kind = || self.template.iter().enumerate().filter(|(_, turn)| turn.kind == kind);
        let each = of_kind().count() as u64;
        let slot = of_kind().nth((position % each) as usize).map_or(0, |(slot, _)| slot as u64);
        (position / each) * STEP_CALLS + slot
    }

    /// The call on a communicator that is nearest to a border of files written so; `None` if the job is too short to
    /// have it. [`Change::Split`] needs [`Grid::next_vector`] of it.
    pub fn at(&self, kind: GroupKind, border: Border, files: &super::GridFiles) -> Option<u64> {
        let block = files.options.block_calls as u64;
        let position = match border {
            Border::FirstBlock => self.positions(kind, block.min(self.spec.calls)) / 2,
            Border::Checkpoint(beside) => crate::digest::CHECKPOINT_EVERY.checked_add_signed(beside)?,
            Border::BlockEnd => self.positions(kind, block).checked_sub(1)?,
            Border::BlockBegin => self.positions(kind, block),
            Border::SegmentEnd => self.positions(kind, files.segment_calls?).checked_sub(1)?,
            Border::SegmentBegin => self.positions(kind, files.segment_calls?),
            Border::Tail => self.positions(kind, self.spec.calls).checked_sub(2)?,
        };
        let borders = match border {
            Border::BlockEnd | Border::BlockBegin => block,
            Border::SegmentEnd | Border::SegmentBegin => files.segment_calls?,
            _ => 0,
        };
        let call = self.index(kind, position);
        (call < self.spec.calls && borders < self.spec.calls).then_some(call)
    }

    /// The first call at or behind `call` that has split vectors.
    pub fn next_vector(&self, call: u64) -> Option<u64> {
        (call..call.saturating_add(STEP_CALLS)).find(|&call| call < self.spec.calls && self.turn(call).vector)
    }

    fn plant(&self, plant: Plant) -> Result<Planted, GridError> {
        if plant.rank >= self.world() {
            return Err(GridError::Rank { rank: plant.rank, ranks: self.world() });
        }
        let possible = plant.call < self.spec.calls && {
            let turn = self.turn(plant.call);
            match plant.change {
                Change::Op | Change::Missing | Change::Extra => true,
                Change::Count => turn.op != Op::Barrier && !turn.vector,
                Change::Dtype => turn.op != Op::Barrier,
                Change::Order => self.swapped(plant.call) < self.spec.calls,
                Change::Split => turn.vector,
            }
        };
        if !possible {
            let (ranks, calls) = (self.world(), self.spec.calls);
            return Err(GridError::Plant { plant, hint: self.hint(plant), ranks, calls });
        }
        let (group, position) = self.place(plant.call);
        Ok(Planted { plant, group, name: self.shape.name(group, plant.rank), position })
    }

    /// Which call could be changed so instead.
    fn hint(&self, plant: Plant) -> String {
        match plant.change {
            Change::Count | Change::Dtype
                if plant.call < self.spec.calls && self.turn(plant.call).op == Op::Barrier =>
            {
                " (a barrier carries nothing)".to_owned()
            }
            Change::Split if !self.spec.vectors => " (a job without split vectors)".to_owned(),
            Change::Count if plant.call < self.spec.calls && self.turn(plant.call).vector => {
                " (it has split vectors)".to_owned()
            }
            Change::Split => match self.next_vector(plant.call) {
                Some(next) => format!(" (the next with split vectors is {next})"),
                None => String::new(),
            },
            _ => String::new(),
        }
    }

    /// The next call on the communicator of this one.
    fn swapped(&self, call: u64) -> u64 {
        let (kind, position) = self.place(call);
        self.index(kind, position + 1)
    }

    /// Calls of a rank, if nothing stops it.
    pub fn program_len(&self, rank: u32) -> u64 {
        match self.spec.plant {
            Some(Plant { change: Change::Missing, rank: there, .. }) if there == rank => self.spec.calls - 1,
            Some(Plant { change: Change::Extra, rank: there, .. }) if there == rank => self.spec.calls + 1,
            _ => self.spec.calls,
        }
    }

    /// What a rank does at this place of its program, and the place whose planned time it has.
    pub(super) fn program(&self, rank: u32, at: u64) -> (u64, Turn) {
        let plain = |at: u64| (at, *self.turn(at));
        let Some(plant) = self.spec.plant.filter(|plant| plant.rank == rank && at >= plant.call) else {
            return plain(at);
        };
        match plant.change {
            Change::Missing => plain(at + 1),
            Change::Extra if at > plant.call => plain(at - 1),
            Change::Order => {
                let other = self.swapped(plant.call);
                match at {
                    _ if at == plant.call => (at, *self.turn(other)),
                    _ if at == other => (at, *self.turn(plant.call)),
                    _ => plain(at),
                }
            }
            change if at == plant.call => (at, self.turn(at).changed(change)),
            _ => plain(at),
        }
    }
}
