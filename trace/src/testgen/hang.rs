//! Where every rank of a made-up job ends up after a fault that stops it.
//!
//! Only the step of the fault and the one after it need to be played through: every step ends with a call over the world,
//! so nobody gets farther.

use rustc_hash::FxHashMap;

use super::layout::{GroupKind, JobSpec, Slot};
use crate::op::{Op, OpKind};

/// How far a rank came in the window of steps that was played through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stop {
    /// Calls that it entered.
    pub(super) entered: usize,
    /// Whether the last of them never completed.
    pub(super) pending: bool,
}

/// The calls that belong together.
#[derive(Default)]
struct Instance {
    entered: u32,
    first: Option<Slot>,
    differs: bool,
    waiting: Vec<usize>,
}

/// An instance's key: group (kind and lowest member), and for messages sender and receiver; then the ordinal.
type Key = (GroupKind, u32, Option<(u32, u32)>, u64);

/// Calls so far of one rank, by group and edge.
type Counters = FxHashMap<(GroupKind, Option<(u32, u32)>), u64>;

/// What play found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Played {
    /// By rank.
    pub(super) stops: Vec<Stop>,
    /// Per group the first position in the window that differs or that not all members entered; counted from the
    /// window's first call.
    pub(super) stuck: Vec<(GroupKind, u32, u64)>,
}

/// Plays the window through: each rank waits for every call to complete before it makes the next.
pub(super) fn play(spec: &JobSpec, programs: &[Vec<Slot>]) -> Played {
    let mut instances: FxHashMap<Key, Instance> = FxHashMap::default();
    let mut counters: Vec<Counters> = vec![FxHashMap::default(); programs.len()];
    let mut stops = vec![Stop::default(); programs.len()];
    let mut ready: Vec<usize> = (0..programs.len()).rev().collect();
    while let Some(rank) = ready.pop() {
        stops[rank].pending = false;
        while let Some(slot) = programs[rank].get(stops[rank].entered) {
            let me = rank as u32;
            let edge = slot.peer.map(|peer| {
                let own = spec.local(GroupKind::Pipeline, me);
                if slot.op == Op::Send { (own, peer) } else { (peer, own) }
            });
            let ordinal = counters[rank].entry((slot.kind, edge)).or_default();
            let lowest = spec.lowest(slot.kind, me);
            let instance = instances.entry((slot.kind, lowest, edge, *ordinal)).or_default();
            *ordinal += 1;
            stops[rank].entered += 1;
            instance.entered += 1;
            match &instance.first {
                None => instance.first = Some(slot.clone()),
                Some(first) => instance.differs |= !matches(first, slot),
            }
            let expected = if edge.is_some() { 2 } else { spec.size(slot.kind) };
            if instance.differs || instance.entered < expected {
                stops[rank].pending = true;
                instance.waiting.push(rank);
                break;
            }
            ready.append(&mut instance.waiting);
        }
    }
    let mut stuck: Vec<(GroupKind, u32, u64)> = Vec::new();
    for (&(kind, lowest, edge, ordinal), instance) in &instances {
        if edge.is_none() && (instance.differs || instance.entered < spec.size(kind)) {
            stuck.push((kind, lowest, ordinal));
        }
    }
    stuck.sort_unstable();
    stuck.dedup_by_key(|stuck| (stuck.0, stuck.1));
    Played { stops, stuck }
}

/// Whether two members' calls may complete together.
fn matches(one: &Slot, other: &Slot) -> bool {
    if one.op.kind() == OpKind::PointToPoint {
        return other.op.kind() == OpKind::PointToPoint;
    }
    one.op == other.op
        && one.dtype == other.dtype
        && one.redop == other.redop
        && one.root == other.root
        && (one.vector || one.count == other.count)
}

#[cfg(test)]
mod tests {
    use super::{Played, play};
    use crate::testgen::layout::{GroupKind, JobSpec, program};

    #[test]
    fn a_healthy_step_runs_through() {
        for seed in 0..50 {
            let spec = JobSpec::small(seed);
            let programs: Vec<_> = (0..spec.world()).map(|rank| program(&spec, spec.place(rank).2)).collect();
            let Played { stops, stuck } = play(&spec, &programs);
            assert!(stuck.is_empty(), "{spec:?}: {stuck:?}");
            for (stop, program) in stops.iter().zip(&programs) {
                assert_eq!((stop.entered, stop.pending), (program.len(), false), "{spec:?}");
            }
        }
    }

    #[test]
    fn one_call_less_stops_everybody() {
        let spec = JobSpec::default();
        let mut programs: Vec<_> = (0..spec.world()).map(|rank| program(&spec, spec.place(rank).2)).collect();
        let norm = programs[3].iter().position(|slot| slot.kind == GroupKind::World).expect("the scalar");
        programs[3].truncate(norm);
        let Played { stops, stuck } = play(&spec, &programs);
        assert_eq!(stuck, [(GroupKind::World, 0, 0)]);
        assert!(stops.iter().enumerate().all(|(rank, stop)| stop.pending != (rank == 3)));
    }
}
