//! A bound on what a target allocates: over it, the target fails with the sizes rather than with the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// Counts, and refuses what is over the bound.
#[derive(Debug)]
pub struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);
static LIMIT: AtomicIsize = AtomicIsize::new(isize::MAX);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if held > LIMIT.load(Ordering::Relaxed) {
        // Reporting allocates.
        LIMIT.store(isize::MAX, Ordering::Relaxed);
        panic!("{bytes} more bytes would be {held} in all: over the bound for this input");
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `work` with at most this many bytes more than there are now.
pub fn bounded<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let now = HELD.load(Ordering::Relaxed);
    LIMIT.store(now.saturating_add_unsigned(bytes), Ordering::Relaxed);
    let result = work();
    LIMIT.store(isize::MAX, Ordering::Relaxed);
    result
}
