//! Where every rank of a blocking job ends up after the planted change: each stands in its first call that cannot
//! complete.
//!
//! Played through from the step of the change, one step more at most: every communicator has two kinds of calls in a
//! step, so members that are one call apart meet different calls before it is over.

use super::spec::{Grid, STEP_CALLS};
use super::template::Turn;
use crate::testgen::layout::GroupKind;

/// How far a rank came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stop {
    /// Calls that it entered.
    pub(super) entered: u64,
    /// Whether the last of them never completed.
    pub(super) pending: bool,
}

/// The call that a group's members are at. They cannot be at two: each is in one call at a time, and leaves it with all
/// others.
#[derive(Clone, Default)]
struct Meeting {
    first: Option<Turn>,
    differs: bool,
    waiting: Vec<u32>,
}

/// Plays the job from the step of the change. Empty if everybody gets through.
pub(super) fn play(grid: &Grid, change: u64) -> Vec<Stop> {
    let begin = change / STEP_CALLS * STEP_CALLS;
    let end = begin + 3 * STEP_CALLS;
    let world = grid.world();
    let shape = grid.shape();
    let mut stops = vec![Stop { entered: begin, pending: false }; world as usize];
    // By kind and lowest member.
    let mut meetings: Vec<Vec<Meeting>> = GroupKind::ALL.map(|_| vec![Meeting::default(); world as usize]).into();
    let mut ready: Vec<u32> = (0..world).rev().collect();
    while let Some(rank) = ready.pop() {
        let stop = &mut stops[rank as usize];
        stop.pending = false;
        if stop.entered >= end.min(grid.program_len(rank)) {
            continue;
        }
        let (_, turn) = grid.program(rank, stop.entered);
        stop.entered += 1;
        stop.pending = true;
        let meeting = &mut meetings[turn.kind as usize][shape.lowest(turn.kind, rank) as usize];
        meeting.differs |= !meeting.first.get_or_insert(turn).completes_with(&turn);
        meeting.waiting.push(rank);
        if !meeting.differs && meeting.waiting.len() == shape.size(turn.kind) as usize {
            meeting.first = None;
            ready.append(&mut meeting.waiting);
        }
    }
    if stops.iter().any(|stop| stop.pending) { stops } else { Vec::new() }
}
