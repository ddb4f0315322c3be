//! Counts what this thread allocates. What zstd takes for itself is not seen: it asks C's allocator, for windows that the
//! format's limits bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread holds, and the most it held since the last [`peak`] began.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that is ending allocates without being counted.
    let _ = HELD.try_with(|held| {
        let now = held.get().0 + bytes;
        held.set((now, held.get().1.max(now)));
    });
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may be there at once.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What `work` gives, and the most memory that it held at once, bytes.
pub(crate) fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(|held| {
        let now = held.get().0;
        held.set((now, now));
        now
    });
    let result = work();
    let most = HELD.with(|held| held.get().1);
    (result, usize::try_from(most - before).unwrap_or(0))
}

#[test]
fn what_is_held_at_once_is_counted() {
    let ((), most) = peak(|| {
        for size in [1000_usize, 70_000, 10] {
            drop(std::hint::black_box(vec![1_u8; size]));
        }
    });
    assert_eq!(most, 70_000);
    assert_eq!(peak(|| ()).1, 0);
}
