//! Drafts and private directories are gone when the program is ended: by Ctrl-C, by SIGTERM, with its terminal.
//!
//! Not here: `record` and `demo`, which answer signals themselves, and what has its final name already.

use std::io;
use std::mem::{self, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libc::{c_int, sigset_t};

/// What is removed. Whoever makes or renames a draft holds it meanwhile, so that none is missed.
static DRAFTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// What ends a program from outside.
const ENDING: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
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

/// From here on a signal that ends the program removes the drafts first; the exit code is then 128 + its number. To be
/// called before other threads run: they inherit that the signals wait for the thread that takes them.
pub(crate) fn watch() {
    let Some(signals) = taken() else { return };
    mask(libc::SIG_BLOCK, &signals);
    let watcher = thread::Builder::new().name("drafts".to_owned()).spawn(move || await_end(&signals));
    if watcher.is_err() {
        // Drafts may stay then, but the program can be ended.
        mask(libc::SIG_UNBLOCK, &signals);
    }
}

/// Those that end the program; what its parent had ignored (`nohup`) stays so.
fn taken() -> Option<sigset_t> {
    let mut signals = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the set is one to write to.
    unsafe { libc::sigemptyset(signals.as_mut_ptr()) };
    // SAFETY: it was just emptied, which cannot fail.
    let mut signals = unsafe { signals.assume_init() };
    let mut some = false;
    for signal in ENDING {
        // SAFETY: all zero is a valid action: the default one.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: nothing is set, and the action is one to write to.
        let told = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
        if told == 0 && action.sa_sigaction != libc::SIG_IGN {
            // SAFETY: the set is initialized.
            unsafe { libc::sigaddset(&raw mut signals, signal) };
            some = true;
        }
    }
    some.then_some(signals)
}

fn mask(how: c_int, signals: &sigset_t) {
    // SAFETY: the set is initialized; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(how, signals, ptr::null_mut()) };
}

fn await_end(signals: &sigset_t) {
    let mut signal: c_int = 0;
    // SAFETY: the set is initialized, and blocked in every thread.
    if unsafe { libc::sigwait(signals, &raw mut signal) } != 0 {
        return;
    }
    // Who asks twice does not want to wait for the removal.
    mask(libc::SIG_UNBLOCK, signals);
    // Held to the end: nothing is made or renamed any more.
    let drafts = drafts();
    for path in &*drafts {
        remove(path);
    }
    std::process::exit(128 + signal);
}

/// Removes a file, or a directory with all that is in it. Its maker still runs, and may put files into it meanwhile.
fn remove(path: &Path) {
    for _ in 0..TRIES {
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
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

    use super::{Draft, drafts, remove};

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
