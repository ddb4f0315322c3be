//! The directory that a trace is written into: opened once, everything in it reached through that one handle.
//!
//! A recorder is often root and writes into somebody else's directory. So names are looked up relative to the handle,
//! files are created exclusively and never through a symbolic link, and what is created belongs to the owner from its
//! first moment on. A limit on the bytes of all files ([`TraceDir::with_limit`]) is kept here as well, since only the
//! directory knows all of them.
//!
//! Not here: what the files hold, and reading traces (that needs no handle: nothing is written).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::retain::SealedSegment;

/// Who files and directories are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A directory that a trace is written into.
#[derive(Debug)]
pub struct TraceDir {
    path: PathBuf,
    handle: sys::Handle,
    owner: Option<Owner>,
    /// Something that was created here could not be given to its owner.
    not_given: AtomicBool,
    /// Bytes that all files of this recorder may take; `u64::MAX` without a limit.
    limit: u64,
    used: AtomicU64,
    full: AtomicBool,
    /// Segments that have ended, where somebody asks for them.
    sealed: Option<Mutex<Vec<SealedSegment>>>,
    /// How often writers were asked to begin another segment.
    rotation: AtomicU64,
}

impl TraceDir {
    /// Opens a directory that exists.
    pub fn open(path: &Path) -> io::Result<TraceDir> {
        Ok(TraceDir::of(path, sys::Handle::open(path)?, None))
    }

    /// Opens a directory, and makes it and those above it where they are missing (mode 0700, given to `owner`).
    ///
    /// For root, a symbolic link on the way is only followed where root alone can have put it there: a link that
    /// anybody else planted could lead anywhere.
    pub fn create(path: &Path, owner: Option<Owner>) -> io::Result<TraceDir> {
        let (handle, all_given) = sys::Handle::create(path, owner)?;
        let dir = TraceDir::of(path, handle, owner);
        dir.not_given.store(!all_given, Ordering::Relaxed);
        Ok(dir)
    }

    fn of(path: &Path, handle: sys::Handle, owner: Option<Owner>) -> TraceDir {
        TraceDir {
            path: path.to_owned(),
            handle,
            owner,
            not_given: AtomicBool::new(false),
            limit: u64::MAX,
            used: AtomicU64::new(0),
            full: AtomicBool::new(false),
            sealed: None,
            rotation: AtomicU64::new(0),
        }
    }

    /// Gives what is created from here on to somebody.
    #[must_use]
    pub fn with_owner(mut self, owner: Owner) -> TraceDir {
        self.owner = Some(owner);
        self
    }

    /// Never lets the files that are written through this handle take more than so many bytes. What earlier recorders
    /// left in the directory is not counted.
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> TraceDir {
        self.limit = bytes;
        self
    }

    /// Remembers which segments have ended, for [`crate::retain::Retention`], which must then take them.
    #[must_use]
    pub fn with_retention(mut self) -> TraceDir {
        self.sealed = Some(Mutex::default());
        self
    }

    /// A writer has ended a segment.
    pub(crate) fn sealed(&self, segment: SealedSegment) {
        if let Some(sealed) = &self.sealed {
            sealed.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
        }
    }

    /// The segments that have ended since the last time.
    pub(crate) fn take_sealed(&self) -> Vec<SealedSegment> {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.lock().unwrap_or_else(PoisonError::into_inner));
        sealed.map(|mut sealed| std::mem::take(&mut *sealed)).unwrap_or_default()
    }

    /// Asks every writer to begin another segment with its next block.
    pub(crate) fn ask_for_rotation(&self) {
        self.rotation.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was asked for.
    pub(crate) fn rotation(&self) -> u64 {
        self.rotation.load(Ordering::Relaxed)
    }

    /// Its path, for messages and for readers.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a file that did not exist, to read and write, mode 0600, the owner's; never through a symbolic link.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        let file = self.handle.create_file(plain(name)?)?;
        if let Some(owner) = self.owner
            && sys::give(&file, owner).is_err()
        {
            // The trace is worth more than its owner; whoever recorded is told.
            self.not_given.store(true, Ordering::Relaxed);
        }
        Ok(file)
    }

    /// Opens a regular file to read it; a symbolic link, a pipe or a device is an error.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        let file = self.handle.open_file(plain(name)?)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }

    /// Renames a file, over another one of that name if there is one. A symbolic link is replaced, not followed.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.handle.rename(plain(from)?, plain(to)?)
    }

    /// Removes a file. A symbolic link is removed, not followed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.handle.remove(plain(name)?)
    }

    /// Whether all that was created could be given to its owner.
    pub fn is_given(&self) -> bool {
        !self.not_given.load(Ordering::Relaxed)
    }

    /// Takes room for so many bytes, before they are written. An error of kind `StorageFull`: the limit is reached.
    pub fn claim(&self, bytes: u64) -> io::Result<()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::new(io::ErrorKind::StorageFull, "the limit given for the trace is reached")),
        }
    }

    /// Gives room back: bytes that were not written, or are no longer there.
    pub fn release(&self, bytes: u64) {
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(bytes)));
    }

    /// Bytes that the files written through this handle take.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that they may take; `u64::MAX` without a limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether there is no room for more calls. What is left is kept for what says how the job ended. Once it is so it
    /// stays so, unless [`TraceDir::release`] made room: a record that comes and goes would be worth less.
    pub fn is_full(&self) -> bool {
        if self.limit == u64::MAX {
            return false;
        }
        let kept = (self.limit / 8).min(MOST_KEPT);
        let used = self.used();
        let was = self.full.load(Ordering::Relaxed);
        // Twice the room: so that it is not full again after the next block.
        let full = used >= self.limit - if was { (2 * kept).min(self.limit) } else { kept };
        if full != was {
            self.full.store(full, Ordering::Relaxed);
        }
        full
    }
}

/// Room that is kept for evidence and ends when calls are no longer written.
const MOST_KEPT: u64 = 32 << 20;

/// A name that leads nowhere else.
fn plain(name: &str) -> io::Result<&str> {
    let leads_away = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0']);
    if leads_away { Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file name")) } else { Ok(name) }
}

#[cfg(unix)]
mod sys {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Component, Path};

    use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
    use rustix::io::Errno;

    use super::Owner;

    /// A directory on the way is searched, never listed.
    #[cfg(target_os = "linux")]
    const SEARCH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    #[cfg(not(target_os = "linux"))]
    const SEARCH: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    const LIST: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    /// As the kernel's own limit.
    const MOST_LINKS: usize = 40;

    #[derive(Debug)]
    pub(super) struct Handle(OwnedFd);

    pub(super) fn give(file: &File, owner: Owner) -> io::Result<()> {
        Ok(rustix::fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?)
    }

    impl Handle {
        pub(super) fn open(path: &Path) -> io::Result<Handle> {
            Ok(Handle(rustix::fs::open(path, LIST, Mode::empty())?))
        }

        /// Also gives whether everything made on the way could be given to its owner.
        pub(super) fn create(path: &Path, owner: Option<Owner>) -> io::Result<(Handle, bool)> {
            let careful = rustix::process::geteuid().is_root();
            let mut walk = Walk { at: start(path)?, left: Vec::new(), links: 0, careful, owner, all_given: true };
            walk.push(path);
            while let Some(name) = walk.left.pop() {
                walk.step(name)?;
            }
            let listed = rustix::fs::openat(&walk.at, ".", LIST, Mode::empty())?;
            Ok((Handle(listed), walk.all_given))
        }

        pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
            Ok(File::from(rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o600))?))
        }

        pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
            // Opening a pipe would wait for its other end. Regular files take no notice of it.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            Ok(File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
        }

        pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
        }

        pub(super) fn remove(&self, name: &str) -> io::Result<()> {
            Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
        }
    }

    fn start(path: &Path) -> io::Result<OwnedFd> {
        let first = if path.is_absolute() { "/" } else { "." };
        Ok(rustix::fs::openat(CWD, first, SEARCH, Mode::empty())?)
    }

    /// A way from directory to directory.
    struct Walk {
        at: OwnedFd,
        /// Names still to go, the next one last.
        left: Vec<OsString>,
        links: usize,
        /// Links are followed only where root alone can have made them.
        careful: bool,
        owner: Option<Owner>,
        all_given: bool,
    }

    impl Walk {
        fn push(&mut self, path: &Path) {
            for part in path.components().rev() {
                match part {
                    Component::Normal(name) => self.left.push(name.to_owned()),
                    Component::ParentDir => self.left.push("..".into()),
                    Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
                }
            }
        }

        fn step(&mut self, name: OsString) -> io::Result<()> {
            let flags = SEARCH | OFlags::NOFOLLOW;
            match rustix::fs::openat(&self.at, &name, flags, Mode::empty()) {
                Ok(next) => self.at = next,
                Err(Errno::NOENT) => self.make(&name)?,
                // A link, or not a directory at all.
                Err(error @ (Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => self.follow(&name, error)?,
                Err(error) => return Err(error.into()),
            }
            Ok(())
        }

        fn make(&mut self, name: &OsString) -> io::Result<()> {
            let made = match rustix::fs::mkdirat(&self.at, name, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                // Another recorder was faster.
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let next = rustix::fs::openat(&self.at, name, LIST | OFlags::NOFOLLOW, Mode::empty())?;
            if made && let Some(owner) = self.owner {
                // Whoever may rename here could have put another directory in its place: an empty one of our own is
                // all that is ever given away.
                let ours = rustix::fs::fstat(&next)?.st_uid == rustix::process::geteuid().as_raw() && is_empty(&next)?;
                let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
                self.all_given &= ours && rustix::fs::fchown(&next, Some(uid), Some(gid)).is_ok();
            }
            self.at = next;
            Ok(())
        }

        fn follow(&mut self, name: &OsString, error: Errno) -> io::Result<()> {
            let found = rustix::fs::statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                return Err(error.into());
            }
            self.links += 1;
            if self.links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            if self.careful && !self.only_root_writes(found.st_uid)? {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "{} is a symbolic link that somebody else than root may have made; root does not follow it. \
                         Give the path that it leads to",
                        name.to_string_lossy()
                    ),
                ));
            }
            let target = rustix::fs::readlinkat(&self.at, name, Vec::new())?;
            let target = OsString::from_vec(target.as_bytes().to_vec());
            let target = Path::new(&target);
            if target.as_os_str().as_bytes().starts_with(b"/") {
                self.at = start(target)?;
            }
            self.push(target);
            Ok(())
        }

        /// Whether a link of this user in the current directory can only be root's doing.
        fn only_root_writes(&self, link: u32) -> io::Result<bool> {
            let dir = rustix::fs::fstat(&self.at)?;
            let shared = dir.st_mode & 0o022 != 0;
            let sticky = dir.st_mode & 0o1000 != 0;
            Ok(link == 0 && dir.st_uid == 0 && (!shared || sticky))
        }
    }

    fn is_empty(dir: &OwnedFd) -> io::Result<bool> {
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Where there are no handles of directories, names are looked up by path.
#[cfg(not(unix))]
mod sys {
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::path::{Path, PathBuf};

    use super::Owner;

    #[derive(Debug)]
    pub(super) struct Handle(PathBuf);

    pub(super) fn give(_: &File, _: Owner) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Handle {
        pub(super) fn open(path: &Path) -> io::Result<Handle> {
            if fs::metadata(path)?.is_dir() {
                Ok(Handle(path.to_owned()))
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }

        pub(super) fn create(path: &Path, owner: Option<Owner>) -> io::Result<(Handle, bool)> {
            fs::create_dir_all(path)?;
            Ok((Handle::open(path)?, owner.is_none()))
        }

        pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
            OpenOptions::new().read(true).write(true).create_new(true).open(self.0.join(name))
        }

        pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
            File::open(self.0.join(name))
        }

        pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            fs::rename(self.0.join(from), self.0.join(to))
        }

        pub(super) fn remove(&self, name: &str) -> io::Result<()> {
            fs::remove_file(self.0.join(name))
        }
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
