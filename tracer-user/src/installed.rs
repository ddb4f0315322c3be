//! Collective libraries installed on this machine, for people who ask what would be recorded.
//!
//! Looks where the loader looks by default and in LD_LIBRARY_PATH. A job may bring its own libraries from elsewhere:
//! those are found when it starts (`predict`) or loads them.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::maps::FileKey;
use crate::predict::is_named_like_one;

/// Folders that loaders search by default on the usual distributions, and where MPI packages put theirs.
const FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/openmpi/lib",
    "/lib64",
    "/usr/lib64",
    "/usr/lib64/mpich/lib",
    "/usr/lib64/openmpi/lib",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/opt/rocm/lib",
    "/opt/maca/lib",
];

fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    own.into_iter().chain(FOLDERS.iter().map(PathBuf::from))
}

/// Files that are named like a collective library, each once, in the order in which the loader would find them.
pub fn libraries() -> Vec<PathBuf> {
    let mut seen = FxHashSet::default();
    let mut found = Vec::new();
    for folder in folders() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_named_like_one))
            .map(|entry| entry.path())
            .collect();
        names.sort();
        for path in names {
            if FileKey::of(&path).is_ok_and(|key| seen.insert(key)) {
                found.push(path);
            }
        }
    }
    found
}

/// The library that the loader would take for this name, with or without a version (`libnccl.so.2`, `libnccl.so`).
pub fn find(name: &str) -> Option<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let starts =
        |path: &Path| path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name));
    folders()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .or_else(|| libraries().into_iter().find(|path| starts(path)))
}

#[cfg(test)]
mod tests {
    use super::{find, is_named_like_one};

    #[test]
    fn names_are_those_of_the_registry() {
        assert!(is_named_like_one("libmpi.so.40"));
        assert!(is_named_like_one("libnccl.so.2"));
        assert!(!is_named_like_one("libm.so.6"));
    }

    #[test]
    fn a_path_is_no_name() {
        assert_eq!(find("../libm.so.6"), None);
        assert_eq!(find(""), None);
        assert!(find("libc.so.6").is_some());
    }
}
