//! Under sudo the job runs as the user who called it, and the trace belongs to that user.

use rankdiff_trace::Owner;
use std::os::unix::ffi::OsStrExt as _;
use tokio::process::Command;

/// The user behind sudo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    /// Name, for the groups that it is in.
    name: Option<std::ffi::CString>,
}

impl Caller {
    /// The caller by sudo's variables; `None` if this is not root or nobody called.
    pub fn from_environment() -> Option<Caller> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let name = std::env::var_os("SUDO_USER").and_then(|name| std::ffi::CString::new(name.as_bytes()).ok());
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        (uid != 0).then_some(Caller { uid, gid, name })
    }

    /// Makes the command run as the caller, with the caller's groups.
    pub fn become_in(&self, command: &mut Command) {
        let Caller { uid, gid, name } = self.clone();
        let become_caller = move || {
            let grouped = match &name {
                // SAFETY: `name` is a C string that lives as long as the closure.
                Some(name) => unsafe { libc::initgroups(name.as_ptr(), gid) },
                // SAFETY: one group is at the address, and that many are said to be there.
                None => unsafe { libc::setgroups(1, &raw const gid) },
            };
            // SAFETY: these take numbers only.
            let done = grouped == 0 && unsafe { libc::setgid(gid) == 0 && libc::setuid(uid) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec only system calls are made; initgroups reads the group file, and no other
        // thread of the recorder holds a lock of the C library's while it does.
        unsafe {
            command.pre_exec(become_caller);
        }
    }

    /// Who files and directories that are created for the caller are given to.
    pub fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid }
    }
}
