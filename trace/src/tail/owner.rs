//! Who writes a tail, and whether it is still there.
//!
//! A process is known by its id and start time, within one pid name space of one boot of one kernel. From anywhere else
//! (another node, another container) nothing can be said of it, and nothing is guessed.

/// The process that writes a tail. Zeroes stand for 'not known'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WriterIdentity {
    /// Its process id.
    pub pid: u32,
    /// Its start time, clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_time: u64,
    /// Inode of the pid name space in which that is its id.
    pub pid_namespace: u64,
    /// The boot id of its kernel.
    pub boot_id: [u8; 16],
}

/// Whether a writer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// It runs.
    There,
    /// It has ended.
    Gone,
    /// It runs, or ran, where this process cannot see it.
    Unknown,
}

impl WriterIdentity {
    /// This process.
    pub fn own() -> WriterIdentity {
        let pid = std::process::id();
        WriterIdentity {
            pid,
            start_time: system::start_time(pid).unwrap_or(0),
            pid_namespace: system::pid_namespace().unwrap_or(0),
            boot_id: system::boot_id().unwrap_or_default(),
        }
    }

    /// Whether it is still there.
    pub fn presence(&self) -> Presence {
        let known = self.pid != 0 && self.start_time != 0 && self.pid_namespace != 0 && self.boot_id != [0; 16];
        let same_kernel = known && system::boot_id() == Some(self.boot_id);
        if !same_kernel || system::pid_namespace() != Some(self.pid_namespace) {
            return Presence::Unknown;
        }
        // Ended and not yet waited for is ended: it writes nothing more.
        if system::start_time(self.pid) == Some(self.start_time) { Presence::There } else { Presence::Gone }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// Start time of a process that has not ended.
    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name may hold anything, parentheses among it.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        fields.nth(18)?.parse().ok()
    }

    pub(super) fn pid_namespace() -> Option<u64> {
        fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
    }

    pub(super) fn boot_id() -> Option<[u8; 16]> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let mut id = [0; 16];
        if digits.len() != 2 * id.len() {
            return None;
        }
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| (byte << 4) | *digit as u8);
        }
        Some(id)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn start_time(_: u32) -> Option<u64> {
        None
    }

    pub(super) fn pid_namespace() -> Option<u64> {
        None
    }

    pub(super) fn boot_id() -> Option<[u8; 16]> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Presence, WriterIdentity};

    #[test]
    fn knows_the_living_the_dead_and_the_foreign() {
        let own = WriterIdentity::own();
        assert_eq!(own.presence(), Presence::There);
        assert_eq!(WriterIdentity { start_time: own.start_time + 1, ..own }.presence(), Presence::Gone);
        assert_eq!(WriterIdentity { boot_id: [7; 16], ..own }.presence(), Presence::Unknown);
        assert_eq!(WriterIdentity { pid_namespace: 1, ..own }.presence(), Presence::Unknown);
        assert_eq!(WriterIdentity::default().presence(), Presence::Unknown);
    }
}
