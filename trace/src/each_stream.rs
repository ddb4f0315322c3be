//! Many streams are read at a time, one by each processor.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::StreamFiles;

/// What `read` makes of each stream, in the streams' order whatever thread was faster.
pub fn each_stream<T: Send>(streams: &[StreamFiles], read: impl Fn(&StreamFiles) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(streams.len());
    let found: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(streams.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(files) = streams.get(at) else { break };
                    mine.push((at, read(files)));
                }
                // A thread that panicked ends the whole, whatever was found.
                found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut mine);
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_unstable_by_key(|one| one.0);
    found.into_iter().map(|one| one.1).collect()
}
