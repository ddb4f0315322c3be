//! The limit of open files: each attached probe takes a descriptor, so the tracer raises its own.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::privilege::Requirement;

/// Most descriptors that are asked for.
const WANTED: u64 = 1 << 17;

/// A limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    soft: Option<u64>,
    hard: Option<u64>,
}

impl DescriptorLimit {
    /// The limit of this process.
    pub fn current() -> DescriptorLimit {
        let limit = getrlimit(Resource::Nofile);
        DescriptorLimit { soft: limit.current, hard: limit.maximum }
    }

    /// Sets it for this process. Only a system call, so it may run between fork and exec: a program must not notice
    /// that it is recorded, and some programs suffer from a high limit.
    pub fn restore(self) -> io::Result<()> {
        Ok(setrlimit(Resource::Nofile, Rlimit { current: self.soft, maximum: self.hard })?)
    }

    /// What a process may open now.
    pub fn soft(self) -> u64 {
        self.soft.unwrap_or(u64::MAX)
    }
}

/// Raises the limit as far as it can be and is useful; returns the one before.
pub fn raise_descriptors() -> DescriptorLimit {
    let before = DescriptorLimit::current();
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let wanted = WANTED.min(most.unwrap_or(WANTED));
    let hard = before.hard.unwrap_or(u64::MAX);
    if before.soft() >= wanted {
        return before;
    }
    // Above the hard limit takes CAP_SYS_RESOURCE; up to it takes nothing.
    let above = DescriptorLimit { soft: Some(wanted), hard: Some(wanted.max(hard)) };
    if above.restore().is_err() {
        let _ = DescriptorLimit { soft: Some(hard.min(wanted)), hard: before.hard }.restore();
    }
    before
}

/// The requirement that is missing when no descriptor is left.
pub(crate) fn out_of_descriptors() -> Requirement {
    let limit = DescriptorLimit::current().soft();
    Requirement {
        name: "open files",
        ok: false,
        required: true,
        detail: format!("all {limit} are in use, and each probe takes one"),
        fix: format!("ulimit -n {WANTED}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{DescriptorLimit, raise_descriptors};

    #[test]
    fn the_limit_is_raised_and_can_be_restored() {
        let before = raise_descriptors();
        let raised = DescriptorLimit::current();
        assert!(raised.soft() >= before.soft());
        before.restore().expect("lowering is always allowed");
        assert_eq!(DescriptorLimit::current(), before);
        raise_descriptors();
    }
}
