//! Streams: the order of work across communicators, and what the caller can wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::types::{Error, Result, fail};

/// Set once, when queued work has ended.
#[derive(Debug, Default)]
pub struct Event {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    /// Marks the work as ended.
    pub fn set(&self) {
        *lock(&self.set) = true;
        self.changed.notify_all();
    }

    /// Whether the work has ended.
    pub fn is_set(&self) -> bool {
        *lock(&self.set)
    }

    /// Waits, without limit, for the end.
    pub fn wait(&self) {
        let mut set = lock(&self.set);
        while !*set {
            set = self.changed.wait(set).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end or until `given_up` is set, which nobody announces: a short period is the price of an abort only.
    pub fn wait_unless(&self, given_up: &AtomicBool) {
        let mut set = lock(&self.set);
        while !*set && !given_up.load(Ordering::SeqCst) {
            set = self.changed.wait_timeout(set, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A `cpucclStream_t`.
#[derive(Debug)]
pub struct Stream {
    magic: u64,
    /// Ends of the latest work; new work waits for all of them.
    tail: Mutex<Vec<Arc<Event>>>,
}

const MAGIC: u64 = 0x6370_7563_636c_7374;

static DEFAULT: LazyLock<Arc<Stream>> = LazyLock::new(|| Arc::new(Stream::new()));

impl Stream {
    /// An idle stream.
    pub const fn new() -> Self {
        Self { magic: MAGIC, tail: Mutex::new(Vec::new()) }
    }

    /// The stream of a C handle; null is the process's default stream.
    ///
    /// # Safety
    /// `handle` is null or came from `cpucclStreamCreate` and was not destroyed.
    pub unsafe fn from_handle(handle: *const Self) -> Result<Arc<Self>> {
        if handle.is_null() {
            return Ok(Arc::clone(&DEFAULT));
        }
        // SAFETY: as promised by the caller; the magic number catches the most common broken promise.
        unsafe {
            if (*handle).magic != MAGIC {
                return fail(Error::InvalidArgument, "not a stream");
            }
            Arc::increment_strong_count(handle);
            Ok(Arc::from_raw(handle))
        }
    }

    /// Ends of the latest work.
    pub fn tail(&self) -> Vec<Arc<Event>> {
        lock(&self.tail).clone()
    }

    /// Makes `ends` the latest work. They follow whatever was there before.
    pub fn advance(&self, ends: Vec<Arc<Event>>) {
        *lock(&self.tail) = ends;
    }

    /// Waits, without limit, for all work queued so far.
    pub fn synchronize(&self) {
        for end in self.tail() {
            end.wait();
        }
    }

    /// Whether all work queued so far has ended.
    pub fn is_idle(&self) -> bool {
        lock(&self.tail).iter().all(|end| end.is_set())
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

/// Locks although another thread panicked: what these locks guard is valid at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
