//! Which step a call belongs to, by the marks that the program or its profiler set.
//!
//! Not here: steps that nobody marked (`steps` finds those by the period of the stream).

use rankdiff_trace::{Call, ProcessTrace, StepMark};

/// Step marks of a process, walked along with its calls.
pub(crate) struct StepMarks {
    marks: Vec<StepMark>,
    next: usize,
}

impl StepMarks {
    pub(crate) fn of(trace: &ProcessTrace) -> StepMarks {
        let mut marks = trace.steps.clone();
        marks.sort_by_key(|mark| (mark.at, mark.first_thread_seq));
        StepMarks { marks, next: 0 }
    }

    /// The step that a call belongs to. Calls must come in order of entry.
    pub(crate) fn of_call(&mut self, call: &Call) -> Option<u64> {
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
        }
        self.marks.get(self.next.checked_sub(1)?).map(|mark| mark.step)
    }
}
