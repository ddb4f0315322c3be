//! Where the files of the benches lie, and whether there is room for them.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A folder of our own that is removed when the bench is over.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one in `parent`.
    pub(crate) fn make(parent: &Path) -> Result<Folder> {
        let path = parent.join(format!("rankdiff-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it, and says if that fails.
    pub(crate) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }
}

impl Drop for Folder {
    /// After a failure: gigabytes are not left lying about.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that are free for us where `path` is.
pub(crate) fn free(path: &Path) -> Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a zero byte, and the pointer is to memory of ours of the right size.
    let failed = unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) };
    if failed != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("cannot look at {}", path.display()));
    }
    // SAFETY: the call succeeded, so it filled all of it.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
