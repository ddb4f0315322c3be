//! Files that jobs leave in shared memory when they are killed.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

const FOLDER: &str = "/dev/shm";
/// Beginnings of their names.
const PREFIXES: &[&str] = &["cpuccl-", "vader_segment."];
/// A younger file may be about to be mapped.
const AGE: Duration = Duration::from_secs(1);

/// Removes those that were made since then and that no process has mapped any more.
pub(crate) fn remove_since(since: SystemTime) {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let made_meanwhile = |path: &Path| {
        let made = fs::metadata(path).and_then(|data| data.modified());
        made.is_ok_and(|made| made >= since && made.elapsed().is_ok_and(|age| age >= AGE))
    };
    let mut left: Vec<_> = entries
        .filter(|entry| PREFIXES.iter().any(|prefix| entry.file_name().to_string_lossy().starts_with(prefix)))
        .map(|entry| entry.path())
        .filter(|path| made_meanwhile(path))
        .collect();
    if left.is_empty() {
        return;
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Ok(maps) = fs::read_to_string(process.path().join("maps")) {
            left.retain(|path| !path.to_str().is_some_and(|path| maps.contains(path)));
        }
    }
    for path in left {
        // Somebody else may have been quicker.
        let _ = fs::remove_file(path);
    }
}
