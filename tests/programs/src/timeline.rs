//! When a program's calls are entered and complete, if nobody looks and nothing is missed: what a recorder sees of it is
//! chosen from this.

use rankdiff_trace::Completion;
use rankdiff_trace::testgen::Scenario;
use rankdiff_trace::testgen::schedule::Schedule;

/// The calls of every rank, true times in ns.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// By rank: entry and completion of its calls.
    calls: Vec<Vec<(u64, Option<u64>)>>,
}

impl Timeline {
    /// The timeline of a scenario whose ranks outlive all calls.
    ///
    /// # Panics
    /// If the scenario gives times that cannot be; those made here give none.
    pub fn of(scenario: &Scenario) -> Timeline {
        let schedule = Schedule::of(scenario).unwrap_or_else(|error| panic!("{error}"));
        let calls_of = |rank: u32| {
            let number = schedule.program(rank).map_or(0, |program| program.calls.len());
            let fates = (0..number).filter_map(|index| schedule.fate(rank, index));
            let ends = fates.map(|fate| match fate.completion {
                Completion::At(at) => (fate.enter, Some(at)),
                // What is recorded into a graph is over at once.
                Completion::Unknown => (fate.enter, fate.exit),
                Completion::Pending => (fate.enter, None),
            });
            ends.collect()
        };
        Timeline { calls: (0..scenario.world).map(calls_of).collect() }
    }

    /// Calls of a rank.
    pub fn calls(&self, rank: u32) -> u64 {
        self.calls.get(rank as usize).map_or(0, |calls| calls.len() as u64)
    }

    /// Calls of all ranks.
    pub fn total(&self) -> u64 {
        self.calls.iter().map(|calls| calls.len() as u64).sum()
    }

    /// The earliest call that never completes: entry, rank and index.
    pub fn first_open(&self) -> Option<(u64, u32, usize)> {
        let open = (0_u32..).zip(&self.calls).filter_map(|(rank, calls)| {
            let index = calls.iter().position(|call| call.1.is_none())?;
            Some((calls.get(index)?.0, rank, index))
        });
        open.min()
    }

    /// When the last call of a rank is complete.
    pub fn end_of(&self, rank: u32) -> u64 {
        let calls = self.calls.get(rank as usize).map_or(&[][..], Vec::as_slice);
        calls.iter().map(|&(enter, end)| end.unwrap_or(enter)).max().unwrap_or(0)
    }

    /// When the last call of the job is complete.
    pub fn end(&self) -> u64 {
        (0..self.calls.len() as u32).map(|rank| self.end_of(rank)).max().unwrap_or(0)
    }

    /// How long the oldest call waits that is not complete at a time.
    pub fn oldest_open(&self, at: u64) -> u64 {
        let open = |&&(enter, end): &&(u64, Option<u64>)| enter <= at && end.is_none_or(|end| end > at);
        self.calls.iter().flatten().filter(open).map(|&(enter, _)| at - enter).max().unwrap_or(0)
    }

    /// Whether a rank has a call at a time that is not complete.
    pub fn is_inside(&self, rank: u32, at: u64) -> bool {
        let calls = self.calls.get(rank as usize).map_or(&[][..], Vec::as_slice);
        calls.iter().any(|&(enter, end)| enter <= at && end.is_none_or(|end| end > at))
    }
}
