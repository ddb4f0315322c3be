//! Lanes: slices of one track must lie inside or behind one another, and calls of a communicator may overlap. So each
//! communicator gets as many lanes as it has overlapping calls; viewers draw tracks of one name as one.

use rankdiff_trace::{Call, CallFlags, ProcessTrace};
use rustc_hash::FxHashMap;

/// How a call is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    /// From its entry to its return, on this lane.
    Whole(usize),
    /// From its entry on: it had not returned.
    Open(usize),
    /// At its entry: its return was not recorded, or no lane is left.
    Instant,
}

/// Most lanes of a communicator.
const MOST: usize = 64;

/// How each call of a process is drawn, by its index; `order`: indices in the order of entries.
pub(super) fn assign(trace: &ProcessTrace, order: &[usize], group: impl Fn(&Call) -> (u32, u32)) -> Vec<Drawn> {
    let open = open_calls(trace, order);
    let mut drawn = vec![Drawn::Instant; trace.calls.len()];
    // By rank and communicator: when each lane is free again; `None`: never.
    let mut lanes: FxHashMap<(u32, u32), Vec<Option<u64>>> = FxHashMap::default();
    for &at in order {
        let (Some(call), Some(slot)) = (trace.calls.get(at), drawn.get_mut(at)) else { continue };
        let until = match call.exit {
            Some(exit) => Some(exit.max(call.enter)),
            None if open.get(at).copied().unwrap_or(false) => None,
            None => continue,
        };
        let lanes = lanes.entry(group(call)).or_default();
        let free = lanes.iter().position(|busy| busy.is_some_and(|busy| busy <= call.enter));
        let lane = match free {
            Some(lane) => lane,
            None if lanes.len() < MOST => {
                lanes.push(Some(0));
                lanes.len() - 1
            }
            None => continue,
        };
        if let Some(busy) = lanes.get_mut(lane) {
            *busy = until;
        }
        *slot = if until.is_some() { Drawn::Whole(lane) } else { Drawn::Open(lane) };
    }
    drawn
}

/// Calls that a thread was inside of when it was last seen: its last one, and those around it (of a higher level). Any
/// other call without a return lost it, or its function's returns are not recorded.
fn open_calls(trace: &ProcessTrace, order: &[usize]) -> Vec<bool> {
    let levels: FxHashMap<_, _> = trace.comms.iter().map(|def| (def.id, def.level as u8)).collect();
    let mut open = vec![false; trace.calls.len()];
    let mut innermost: FxHashMap<u32, u8> = FxHashMap::default();
    for &at in order.iter().rev() {
        let (Some(call), Some(slot)) = (trace.calls.get(at), open.get_mut(at)) else { continue };
        let level = levels.get(&call.comm).copied().unwrap_or(2);
        let depth = if call.flags.contains(CallFlags::NESTED) { level.saturating_add(8) } else { level };
        let reached = innermost.entry(call.thread).or_insert(u8::MAX);
        if depth < *reached {
            *slot = call.exit.is_none();
            *reached = depth;
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Call, ProcessTrace};

    use super::{Drawn, assign};

    fn drawn(calls: &[(u64, Option<u64>, u32)]) -> Vec<Drawn> {
        let call = |&(enter, exit, thread): &(u64, Option<u64>, u32)| Call { enter, exit, thread, ..Call::default() };
        let trace = ProcessTrace { calls: calls.iter().map(call).collect(), ..ProcessTrace::default() };
        let order: Vec<usize> = (0..calls.len()).collect();
        assign(&trace, &order, |call| (0, call.comm.0))
    }

    #[test]
    fn calls_that_overlap_get_lanes_of_their_own() {
        let found = drawn(&[(0, Some(10), 1), (5, Some(15), 2), (10, Some(12), 1), (11, None, 3), (20, Some(21), 1)]);
        assert_eq!(found, [Drawn::Whole(0), Drawn::Whole(1), Drawn::Whole(0), Drawn::Open(2), Drawn::Whole(0),]);
    }

    #[test]
    fn only_the_last_call_of_a_thread_is_open() {
        assert_eq!(drawn(&[(0, None, 1), (5, None, 1)]), [Drawn::Instant, Drawn::Open(0)]);
    }

    #[test]
    fn lanes_are_bounded() {
        let many: Vec<(u64, Option<u64>, u32)> = (0..200).map(|thread| (0, None, thread)).collect();
        let found = drawn(&many);
        assert_eq!(found.iter().filter(|drawn| matches!(drawn, Drawn::Open(_))).count(), super::MOST);
    }
}
