//! Under sudo the job runs as the user who called it, and the trace belongs to that user.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tokio::process::Command;

/// The user behind sudo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    name: std::ffi::CString,
}

impl Caller {
    /// The caller by sudo's variables; `None` if this is not root or nobody called.
    pub fn from_environment() -> Option<Caller> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let name = std::ffi::CString::new(std::env::var_os("SUDO_USER")?.as_bytes()).ok()?;
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        (uid != 0).then_some(Caller { uid, gid, name })
    }

    /// Makes the command run as the caller, with the caller's groups.
    pub fn become_in(&self, command: &mut Command) {
        let Caller { uid, gid, name } = self.clone();
        let become_caller = move || {
            // SAFETY: `name` is a C string that lives as long as the closure.
            let done = unsafe {
                libc::initgroups(name.as_ptr(), gid) == 0 && libc::setgid(gid) == 0 && libc::setuid(uid) == 0
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec only system calls are made; initgroups reads the group file, and no other
        // thread of the recorder holds a lock of the C library's while it does.
        unsafe {
            command.pre_exec(become_caller);
        }
    }

    /// Gives a file, or a directory and the files in it, to the caller. Follows no symbolic link.
    pub fn take_over(&self, path: &Path) {
        let give = |path: &Path| {
            if let Err(error) = std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid)) {
                tracing::warn!("{} still belongs to root: {error}", path.display());
            }
        };
        give(path);
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let is_ours =
                entry.file_name().as_bytes().ends_with(b".rdt") || entry.file_name().as_bytes().starts_with(b"job.");
            if is_ours {
                give(&entry.path());
            }
        }
    }
}
