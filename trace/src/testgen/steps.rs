//! What a rank does, in order: steps as a scenario writes them, and flattened to units.
//!
//! A unit is what enters at one moment: a call, or all calls between the start and the end of a batch. How many units a
//! text stands for is counted before anything is flattened, so a huge `repeat` costs nothing.

/// Something that a rank does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A call: index into [`super::Scenario::calls`].
    Call(u32),
    /// Calls of one batch.
    Group(Vec<u32>),
    /// Time without a call, ns.
    Sleep(u64),
    /// The same again.
    Repeat {
        /// How often.
        times: u64,
        /// What.
        body: Vec<Step>,
        /// Number of the first round, where rounds are marked as steps.
        mark: Option<u64>,
    },
}

/// How much a list of steps stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// Calls.
    pub(super) calls: u64,
    /// Elements of their split vectors.
    pub(super) vectors: u64,
    /// Steps and rounds, calls included: what walking them costs.
    pub(super) work: u64,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.calls = self.calls.saturating_add(other.calls);
        self.vectors = self.vectors.saturating_add(other.vectors);
        self.work = self.work.saturating_add(other.work);
    }

    /// Of these steps, where `vector` gives the elements of a call's vectors; numbers too large stay at the largest.
    pub(super) fn of(steps: &[Step], vector: &dyn Fn(u32) -> usize) -> Weight {
        let mut sum = Weight::default();
        for step in steps {
            sum.add(match step {
                Step::Call(call) => Weight { calls: 1, vectors: vector(*call) as u64, work: 1 },
                Step::Group(calls) => Weight {
                    calls: calls.len() as u64,
                    vectors: calls.iter().map(|&call| vector(call) as u64).sum(),
                    work: 1 + calls.len() as u64,
                },
                Step::Sleep(_) => Weight { work: 1, ..Weight::default() },
                Step::Repeat { times, body, .. } => {
                    let round = Weight::of(body, vector);
                    Weight {
                        calls: round.calls.saturating_mul(*times),
                        vectors: round.vectors.saturating_mul(*times),
                        work: round.work.saturating_add(1).saturating_mul(*times).saturating_add(1),
                    }
                }
            });
        }
        sum
    }
}

/// What enters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Index of its first call in [`Program::calls`].
    pub first: u32,
    /// Number of its calls, at least 1.
    pub len: u32,
    /// Whether it is a batch.
    pub grouped: bool,
    /// Sleep before it, ns.
    pub sleep: u64,
}

/// A flattened list of steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Indices into [`super::Scenario::calls`], in order.
    pub calls: Vec<u32>,
    /// The units.
    pub units: Vec<Unit>,
    /// Step marks: (index of the unit that begins the step, number).
    pub marks: Vec<(u32, u64)>,
}

impl Program {
    /// Flattens steps; how much they stand for was found to be within bounds.
    pub fn of(steps: &[Step]) -> Program {
        let mut program = Program::default();
        let mut sleep = 0;
        program.extend(steps, &mut sleep);
        let units = program.units.len() as u32;
        program.marks.retain(|&(unit, _)| unit < units);
        program
    }

    fn extend(&mut self, steps: &[Step], sleep: &mut u64) {
        for step in steps {
            match step {
                Step::Call(call) => self.unit(&[*call], false, sleep),
                Step::Group(calls) => self.unit(calls, true, sleep),
                Step::Sleep(time) => *sleep = sleep.saturating_add(*time),
                Step::Repeat { times, body, mark } => {
                    for round in 0..*times {
                        if let Some(from) = mark {
                            self.marks.push((self.units.len() as u32, from.saturating_add(round)));
                        }
                        self.extend(body, sleep);
                    }
                }
            }
        }
    }

    fn unit(&mut self, calls: &[u32], grouped: bool, sleep: &mut u64) {
        let first = self.calls.len() as u32;
        self.calls.extend_from_slice(calls);
        self.units.push(Unit { first, len: calls.len() as u32, grouped, sleep: std::mem::take(sleep) });
    }
}

#[cfg(test)]
mod tests {
    use super::{Program, Step, Weight};

    #[test]
    fn flattening_keeps_order_sleeps_and_marks() {
        let body = vec![Step::Call(0), Step::Sleep(5), Step::Group(vec![1, 2])];
        let steps = [
            Step::Sleep(7),
            Step::Repeat { times: 2, body, mark: Some(3) },
            Step::Repeat { times: 1, body: vec![], mark: Some(0) },
        ];
        assert_eq!(Weight::of(&steps, &|_| 2), Weight { calls: 6, vectors: 12, work: 1 + (1 + 2 * 6) + 2 });
        let program = Program::of(&steps);
        assert_eq!(program.calls, [0, 1, 2, 0, 1, 2]);
        assert_eq!(
            program.units.iter().map(|unit| (unit.first, unit.sleep)).collect::<Vec<_>>(),
            [(0, 7), (1, 5), (3, 0), (4, 5)]
        );
        assert_eq!(program.marks, [(0, 3), (2, 4)], "a round without calls marks nothing");
    }

    #[test]
    fn huge_repeats_are_counted_not_run() {
        let inner = Step::Repeat { times: u64::MAX, body: vec![Step::Sleep(1)], mark: None };
        let weight = Weight::of(&[Step::Repeat { times: u64::MAX, body: vec![inner], mark: None }], &|_| 0);
        assert_eq!((weight.calls, weight.work), (0, u64::MAX));
    }
}
