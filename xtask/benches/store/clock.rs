//! CPU time of this thread, which other programs on the machine do not lengthen.

use std::time::Duration;

/// CPU time that this thread has used.
pub(crate) fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; the clock exists since Linux 2.6.12.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has a clock of a thread's CPU time");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// What `work` gives, and the CPU seconds that it took on this thread.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begin = cpu();
    let made = work();
    (made, (cpu() - begin).as_secs_f64())
}
