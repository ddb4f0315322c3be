//! Which step a call belongs to, by the marks that the program or its profiler set.
//!
//! Not here: steps that nobody marked (`steps` finds those by the period of the stream).

use rankdiff_trace::{Call, ProcessTrace, StepMark};
use rustc_hash::FxHashMap;

/// Step marks of a process, walked along with its calls.
pub(crate) struct StepMarks {
    marks: Vec<StepMark>,
    next: usize,
    /// Ordinal of the last call of each thread; none are kept where calls were left out on purpose.
    last: Option<FxHashMap<u32, u64>>,
    /// Calls were lost since the last mark, and perhaps a mark with them.
    in_doubt: bool,
}

impl StepMarks {
    pub(crate) fn of(trace: &ProcessTrace) -> StepMarks {
        let mut marks = trace.steps.clone();
        marks.sort_by_key(|mark| (mark.at, mark.first_thread_seq));
        let last = (!trace.has_elided()).then(FxHashMap::default);
        StepMarks { marks, next: 0, last, in_doubt: false }
    }

    /// The step that a call certainly belongs to: a thread beside the one that sets the marks may be ahead of it or behind,
    /// on each rank by another distance.
    pub(crate) fn certain(&mut self, call: &Call) -> Option<u64> {
        let step = self.of_call(call)?;
        let mark = self.marks.get(self.next.checked_sub(1)?)?;
        (mark.thread == call.thread || mark.thread == 0).then_some(step)
    }

    /// The step that a call belongs to. Calls must come in order of entry.
    pub(crate) fn of_call(&mut self, call: &Call) -> Option<u64> {
        let before = self.last.as_mut().and_then(|last| last.insert(call.thread, call.thread_seq));
        self.in_doubt |= before.is_some_and(|before| call.thread_seq > before.saturating_add(1));
        while let Some(mark) = self.marks.get(self.next) {
            // On the mark's own thread the order is known; elsewhere only the times are.
            let begun = if mark.thread == call.thread && mark.thread != 0 {
                mark.first_thread_seq <= call.thread_seq
            } else {
                mark.at <= call.enter
            };
            if !begun {
                break;
            }
            self.next += 1;
            self.in_doubt = false;
        }
        if self.in_doubt {
            return None;
        }
        self.marks.get(self.next.checked_sub(1)?).map(|mark| mark.step)
    }
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Call, ProcessTrace, StepMark};

    use super::StepMarks;

    #[test]
    fn behind_lost_calls_the_step_is_not_known_until_the_next_mark() {
        let mark = |at, step| StepMark { at, thread: 1, first_thread_seq: at, step };
        let trace = ProcessTrace { steps: vec![mark(0, 7), mark(2, 8), mark(8, 10)], ..ProcessTrace::default() };
        let call = |seq| Call { thread: 1, thread_seq: seq, enter: seq, ..Call::default() };
        let mut marks = StepMarks::of(&trace);
        let steps: Vec<Option<u64>> = [0, 1, 2, 3, 6, 7, 8, 9].map(|seq| marks.of_call(&call(seq))).to_vec();
        assert_eq!(steps, [Some(7), Some(7), Some(8), Some(8), None, None, Some(10), Some(10)]);
    }

    #[test]
    fn another_threads_calls_are_in_a_step_by_time_alone() {
        let mark = |at, step| StepMark { at, thread: 1, first_thread_seq: at, step };
        let trace = ProcessTrace { steps: vec![mark(0, 7), mark(2, 8)], ..ProcessTrace::default() };
        let call = |thread| Call { thread, enter: 1, thread_seq: 1, ..Call::default() };
        assert_eq!((StepMarks::of(&trace).of_call(&call(2)), StepMarks::of(&trace).certain(&call(2))), (Some(7), None));
        assert_eq!(StepMarks::of(&trace).certain(&call(1)), Some(7));
    }
}
