//! How processes end: signals sent to them, their last threads, and ranks that never made a call.

use rankdiff_common::event::{Signal, TaskEnd};
use rankdiff_trace::{EndedBy, Life};

use super::Session;
use crate::process::Process;
use crate::procfs;

impl Session {
    pub(super) fn signalled(&mut self, signal: &Signal) {
        const SI_KERNEL: i32 = 0x80;
        let receiver = signal.header.tgid;
        let Some(process) = self.processes.get(&receiver) else { return };
        let command = signal.command.split(|&byte| byte == 0).next().unwrap_or_default();
        let command = String::from_utf8_lossy(command).into_owned();
        let by = if signal.sender == receiver {
            EndedBy::Itself
        } else if signal.code > 0 {
            // The kernel's own: a fault is the process's doing, a SIGKILL may have several reasons.
            if signal.code == SI_KERNEL && signal.signal == libc::SIGKILL as u32 {
                EndedBy::Unknown
            } else {
                EndedBy::Itself
            }
        } else if signal.sender == std::process::id() {
            EndedBy::User
        } else if self.is_ancestor(signal.sender, process) {
            EndedBy::Launcher
        } else {
            EndedBy::Process(signal.sender, command)
        };
        if let Some(process) = self.processes.get_mut(&receiver) {
            process.signal = Some((signal.signal as i32, by));
        }
    }

    fn is_ancestor(&self, pid: u32, process: &Process) -> bool {
        let mut at = process.parent;
        // Bounded: a chain of parents cannot be longer than the number of processes.
        for _ in 0..=self.processes.len() {
            if at == pid {
                return at != 0;
            }
            match self.processes.get(&at) {
                Some(next) => at = next.parent,
                None => return false,
            }
        }
        false
    }

    pub(super) fn task_ended(&mut self, end: &TaskEnd) {
        let pid = end.header.tgid;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.has_stream() {
            process.end_thread(end.header.tid, end.calls, end.header.time);
        }
        let last = match end.last {
            0 => false,
            1 => true,
            _ => procfs::threads(pid).is_empty(),
        };
        if !last {
            return;
        }
        process.ended = true;
        let life = match end.status {
            u32::MAX => None,
            status if status & 0x7f == 0 => Some(Life::Exited((status >> 8 & 0xff) as i32)),
            status => {
                let signal = (status & 0x7f) as i32;
                let by =
                    process.signal.take().filter(|(sent, _)| *sent == signal).map_or(EndedBy::Unknown, |(_, by)| by);
                Some(Life::Signaled { signal, by })
            }
        };
        self.begin_silent(pid);
        let missing = self.attacher.thread_calls(pid);
        if let Some(process) = self.processes.get_mut(&pid)
            && process.has_stream()
        {
            for (tid, calls) in missing {
                process.end_thread(tid, calls, end.header.time);
            }
            process.move_calls(true);
            if let Some(life) = life {
                process.state(end.header.time, life, Vec::new());
            }
            process.flush();
        } else {
            self.processes.remove(&pid);
        }
        self.attacher.forget_process(pid);
    }

    /// Gives a process that made no call a stream of its own if it is the one that plays its rank: a rank that never came
    /// is part of the answer.
    pub(super) fn begin_silent(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid).filter(|process| process.is_candidate()) else { return };
        let same = |other: &Process| match (other.rank(), process.rank()) {
            (Some(one), Some(two)) => (one.rank, one.attempt) == (two.rank, two.attempt),
            _ => false,
        };
        // Helpers that a rank starts (data loaders, compilers) inherit its environment and its libraries.
        let parent = self.processes.get(&process.parent);
        let is_helper = parent.is_some_and(|parent| !parent.ended && parent.has_library && same(parent));
        let taken = self.processes.values().any(|other| other.pid != pid && other.has_stream() && same(other));
        if !is_helper
            && !taken
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.begin(&self.options.streams);
        }
    }
}
