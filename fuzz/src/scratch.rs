//! Folders in memory for targets that read files.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder of this process, emptied for every input.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder; in memory where the system has such.
    pub fn empty() -> Scratch {
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("rankdiff-fuzz-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the input's files");
        Scratch(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
