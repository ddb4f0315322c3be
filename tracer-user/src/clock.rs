//! The clocks of one moment.

use rankdiff_trace::ClockSnapshot;
use rustix::time::{ClockId, clock_gettime};

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Reads monotonic, boot and real time one after the other; they are less than a microsecond apart.
pub fn snapshot() -> ClockSnapshot {
    ClockSnapshot {
        monotonic: now(ClockId::Monotonic),
        boottime: now(ClockId::Boottime),
        realtime: now(ClockId::Realtime),
    }
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
