//! The clocks of one moment.

use rankdiff_trace::ClockSnapshot;
use rustix::time::{ClockId, clock_gettime};

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// One reading: the clocks between two looks at the monotonic one, ns.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: u64,
    boottime: u64,
    realtime: u64,
    after: u64,
}

/// Readings of which the best is taken: whoever is interrupted in all of them is interrupted all the time.
const TRIES: usize = 5;

/// Monotonic, boot and real time of one moment, as nearly as a process that may be interrupted can tell: of several
/// readings the one that took the shortest time, usually a fraction of a microsecond.
pub fn snapshot() -> ClockSnapshot {
    let read = |_| Reading {
        before: now(ClockId::Monotonic),
        boottime: now(ClockId::Boottime),
        realtime: now(ClockId::Realtime),
        after: now(ClockId::Monotonic),
    };
    best((0..TRIES).map(read))
}

fn best(readings: impl Iterator<Item = Reading>) -> ClockSnapshot {
    let shortest = readings.min_by_key(|reading| reading.after.saturating_sub(reading.before));
    shortest.map_or_else(ClockSnapshot::default, |reading| {
        let monotonic = reading.before.midpoint(reading.after);
        // On a machine that never slept both are one clock, read a moment apart.
        ClockSnapshot { monotonic, boottime: reading.boottime.max(monotonic), realtime: reading.realtime }
    })
}

/// CLOCK_MONOTONIC in ns: the clock of the events.
pub fn monotonic() -> u64 {
    now(ClockId::Monotonic)
}

/// The start time that a process born at this moment has in /proc: clock ticks since boot.
///
/// `monotonic`: ns of CLOCK_MONOTONIC. A tick is 10 ms (USER_HZ is 100 on every supported architecture).
pub fn start_time_at(monotonic: u64) -> u64 {
    let asleep = now(ClockId::Boottime).saturating_sub(now(ClockId::Monotonic));
    (monotonic + asleep) / 10_000_000
}

/// Clocks are noted in the streams so often while there are calls, ns.
const EVERY: u64 = 10_000_000_000;

/// When the clocks are to be noted in the streams. What a stream says of a moment may be read as 'what is not here by then
/// had not happened', so a snapshot waits until everything before it was taken from the rings.
#[derive(Debug, Default)]
pub struct Notes {
    /// Everything before this time was taken, ns of the monotonic clock.
    drained: u64,
    waiting: Option<ClockSnapshot>,
    /// When the clocks were last read, ns of the monotonic clock.
    read: u64,
}

impl Notes {
    /// Everything before this time (ns of the monotonic clock) was taken from the rings.
    pub fn drained(&mut self, until: u64) {
        self.drained = until;
    }

    /// A snapshot to be noted now.
    pub fn due(&mut self) -> Option<ClockSnapshot> {
        self.due_at(monotonic(), snapshot)
    }

    fn due_at(&mut self, now: u64, read: impl FnOnce() -> ClockSnapshot) -> Option<ClockSnapshot> {
        let due = self.waiting.take_if(|waiting| waiting.monotonic < self.drained);
        if self.waiting.is_none() && now.saturating_sub(self.read) >= EVERY {
            self.waiting = Some(read());
            self.read = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::ClockSnapshot;

    use super::{EVERY, Notes, Reading, best, monotonic, snapshot};

    #[test]
    fn the_reading_that_nothing_interrupted_is_taken() {
        let reading = |before, after| Reading { before, boottime: before + 1_000, realtime: 5_000 + before, after };
        let taken = best([reading(100, 900), reading(1_000, 1_020), reading(2_000, 2_600)].into_iter());
        assert_eq!((taken.monotonic, taken.boottime, taken.realtime), (1_010, 2_000, 6_000));
    }

    #[test]
    fn boot_time_is_never_behind_the_clock_that_stands_still() {
        let taken = best([Reading { before: 10, boottime: 11, realtime: 7, after: 30 }].into_iter());
        assert_eq!((taken.monotonic, taken.boottime), (20, 20));
    }

    #[test]
    fn clocks_are_noted_once_what_was_before_is_in_the_streams() {
        let at = |monotonic| move || ClockSnapshot { monotonic, ..ClockSnapshot::default() };
        let mut notes = Notes::default();
        notes.drained(EVERY - 1);
        assert_eq!(notes.due_at(EVERY - 1, at(1)), None, "it is too early");
        assert_eq!(notes.due_at(EVERY, at(EVERY)), None, "what was before may still be in a ring");
        notes.drained(EVERY);
        assert_eq!(notes.due_at(EVERY + 5, at(2)), None);
        notes.drained(EVERY + 1);
        assert_eq!(notes.due_at(EVERY + 9, at(3)).map(|clock| clock.monotonic), Some(EVERY));
        assert_eq!(notes.due_at(EVERY + 10, at(4)), None, "each is noted once");
    }

    #[test]
    fn a_snapshot_lies_between_two_looks_at_the_clock() {
        let before = monotonic();
        let taken = snapshot();
        assert!((before..=monotonic()).contains(&taken.monotonic), "{taken:?} is not from now on {before}");
        assert!(taken.boottime >= taken.monotonic && taken.realtime > 1_600_000_000_000_000_000, "{taken:?}");
    }
}
