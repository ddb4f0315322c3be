//! Drafts and private directories are gone when the program is ended: by Ctrl-C, by SIGTERM, with its terminal.
//!
//! Not here: `record` and `demo`, which answer signals themselves, and what has its final name already.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// What is removed. Whoever makes or renames a draft holds it meanwhile, so that none is missed.
static DRAFTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// What ends a program from outside.
const ENDING: [c_int; 3] = [SIGHUP, SIGINT, SIGTERM];
/// Tries to remove a directory that files are still being made in.
const TRIES: u32 = 100;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// A file or directory that is gone at the end, unless it is kept.
#[derive(Debug)]
pub(crate) struct Draft<T> {
    // In this order: it is listed until it is gone.
    inner: T,
    listed: Listed,
}

/// What is written under its own name from the start: a name that nobody else can have, or a place that is looked up
/// once.
#[derive(Debug)]
pub(crate) struct Named<T> {
    path: PathBuf,
    /// What is written.
    pub(crate) inner: T,
}

impl<T> Named<T> {
    /// Something and its path.
    pub(crate) fn new(path: &Path, inner: T) -> Named<T> {
        Named { path: path.to_owned(), inner }
    }
}

impl<T> AsRef<Path> for Named<T> {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// An entry of the list.
#[derive(Debug)]
struct Listed(PathBuf);

impl<T: AsRef<Path>> Draft<T> {
    /// Makes one.
    pub(crate) fn make(make: impl FnOnce() -> io::Result<T>) -> io::Result<Draft<T>> {
        let mut drafts = drafts();
        let inner = make()?;
        let path = inner.as_ref().to_owned();
        drafts.push(path.clone());
        Ok(Draft { inner, listed: Listed(path) })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.inner.as_ref()
    }

    /// It itself.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Gives it its name, with nobody ending the program in between.
    pub(crate) fn keep<R>(self, rename: impl FnOnce(T) -> R) -> R {
        let Draft { inner, listed } = self;
        let held = drafts();
        let renamed = rename(inner);
        drop(held);
        drop(listed);
        renamed
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        drafts().retain(|path| *path != self.0);
    }
}

fn drafts() -> MutexGuard<'static, Vec<PathBuf>> {
    // The list is whole after every step.
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on a signal that ends the program removes the drafts first; the exit code is then 128 + its number.
pub(crate) fn watch() {
    let ending = taken();
    let asked = Arc::new(AtomicBool::new(false));
    for &signal in &ending {
        // Who asks twice does not want to wait for the removal. Without these drafts may stay, and the program ends.
        if flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked)).is_err()
            || flag::register(signal, Arc::clone(&asked)).is_err()
        {
            return;
        }
    }
    let Ok(mut signals) = Signals::new(&ending) else { return };
    let watcher = thread::Builder::new().name("drafts".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    });
    if watcher.is_err() {
        asked.store(true, Ordering::Relaxed);
    }
}

/// Those that end the program; what its parent had ignored (`nohup`) stays so.
fn taken() -> Vec<c_int> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    ENDING.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// The signals that a process ignores: bit n - 1 for signal n (proc_pid_status(5), `SigIgn`).
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn end(signal: c_int) -> ! {
    // Held to the end: nothing is made or renamed any more.
    let drafts = drafts();
    for path in &*drafts {
        remove(path);
    }
    std::process::exit(128 + signal)
}

/// Removes a file, or a directory with all that is in it. Its maker still runs, and may put files into it meanwhile.
fn remove(path: &Path) {
    for _ in 0..TRIES {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Draft, drafts, ignored, remove};

    #[test]
    fn drafts_are_listed_until_they_are_gone_or_kept() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let listed = |path: &std::path::Path| drafts().iter().any(|draft| draft == path);
        let make = || Draft::make(|| tempfile::tempdir_in(folder.path())).expect("own folder");
        let (dropped, kept) = (make(), make());
        let paths = [dropped.path().to_owned(), kept.path().to_owned()];
        assert!(paths.iter().all(|path| listed(path)));
        drop(dropped);
        let place = folder.path().join("place");
        kept.keep(|dir| fs::rename(dir.keep(), &place)).expect("nothing is there");
        assert!(!paths.iter().any(|path| listed(path) || path.exists()));
        assert!(place.is_dir());
    }

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored("Name:\trankdiff\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n"), 0x1001);
        assert_eq!(ignored("Name:\trankdiff\n"), 0, "none that is known");
    }

    #[test]
    fn files_and_full_directories_are_removed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (file, dir) = (folder.path().join("file"), folder.path().join("dir"));
        fs::write(&file, "1").expect("own folder");
        fs::create_dir(&dir).expect("own folder");
        fs::write(dir.join("a"), "1").expect("own folder");
        for path in [&file, &dir, &folder.path().join("gone")] {
            remove(path);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }
}
