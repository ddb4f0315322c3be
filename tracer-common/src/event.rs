//! Records in the ring buffer. Each begins with a [`Header`]; its `kind` says which record it is and so its size.

use crate::probe::{LONG_REGION, MAX_ARGS, MAX_REGIONS, SHORT_REGION};

/// Kinds of records.
pub mod kind {
    /// [`Enter`](super::Enter).
    pub const ENTER: u8 = 1;
    /// [`EnterShort`](super::EnterShort).
    pub const ENTER_SHORT: u8 = 2;
    /// [`EnterLong`](super::EnterLong).
    pub const ENTER_LONG: u8 = 3;
    /// [`Exit`](super::Exit).
    pub const EXIT: u8 = 4;
    /// [`Fork`](super::Fork).
    pub const FORK: u8 = 5;
    /// [`Header`](super::Header) alone: the process runs another program from now on. `thread_seq`: calls that the
    /// thread entered before; its count starts again.
    pub const EXEC: u8 = 6;
    /// [`TaskEnd`](super::TaskEnd).
    pub const TASK_END: u8 = 7;
    /// [`Header`](super::Header) alone: the dynamic linker changed the list of loaded objects.
    pub const LINK_MAP: u8 = 8;
    /// [`Signal`](super::Signal).
    pub const SIGNAL: u8 = 9;
    /// [`Exit`](super::Exit) whose `out` was read at the end of a batch, for the creation with that `thread_seq`.
    pub const OUT: u8 = 10;
    /// [`Stack`](crate::python::Stack): comes before the first call that has its key.
    pub const STACK: u8 = 11;
    /// [`Code`](crate::python::Code): comes before the first call whose stack has it.
    pub const CODE: u8 = 12;
}

/// Flags of entry and return records.
pub mod flag {
    /// Made below another recorded call of the thread.
    pub const NESTED: u8 = 1;
    /// Inside a batch.
    pub const GROUPED: u8 = 1 << 1;
    /// The handle of the communicator could not be read; `comm` is 0 and there is no sequence number.
    pub const COMM_UNREADABLE: u8 = 1 << 2;
    /// `comm_seq` is not known (no counter applies, the call is nested, or the counters' map was full).
    pub const NO_SEQ: u8 = 1 << 3;
    /// A stack argument could not be read; the stack slots of `args` are 0.
    pub const STACK_UNREADABLE: u8 = 1 << 4;
    /// Memory region 0 could not be read, or only its first part (long regions: `region_bytes`).
    pub const REGION0_CUT: u8 = 1 << 5;
    /// The same for region 1.
    pub const REGION1_CUT: u8 = 1 << 6;
    /// The out handle could not be read.
    pub const OUT_UNREADABLE: u8 = 1 << 7;
}

/// Start of every record.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// [`kind`].
    pub kind: u8,
    /// [`flag`]s.
    pub flags: u8,
    /// Index of the probe description; 0 where none applies.
    pub probe: u16,
    /// Processor.
    pub cpu: u32,
    /// Process, as the kernel's first pid namespace numbers it (so everywhere in these records and map keys).
    pub tgid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// Ordinal of the call on its thread, from 0; `u64::MAX`: not counted.
    pub thread_seq: u64,
}

/// Entry of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enter {
    /// Header.
    pub header: Header,
    /// Handle of the communicator; 0 if none.
    pub comm: u64,
    /// Value of the call's counter before it.
    pub comm_seq: u64,
    /// Generation of the handle.
    pub generation: u32,
    /// Number of the batch on its thread, 0 if in none.
    pub group: u32,
    /// Return address: the call site; 0: not known.
    pub return_address: u64,
    /// Key of the thread's Python stack; 0: the process has no interpreter that is known.
    pub stack: u64,
    /// Values, in the order of the description.
    pub args: [u64; MAX_ARGS],
}

/// Entry of a call with exactly one memory region, a short one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnterShort {
    /// Entry.
    pub enter: Enter,
    /// The region (the description has one).
    pub region: [u8; SHORT_REGION],
}

/// Entry of a call with a long memory region, or with two regions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnterLong {
    /// Entry.
    pub enter: Enter,
    /// Bytes read of each region.
    pub region_bytes: [u32; MAX_REGIONS],
    /// The regions; zero behind the bytes that were read.
    pub regions: [[u8; LONG_REGION]; MAX_REGIONS],
}

/// Return of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    /// Header; `thread_seq` is the call's.
    pub header: Header,
    /// Result register.
    pub result: u64,
    /// The new communicator's handle; 0 if none, or if it waits for the end of the batch.
    pub out: u64,
    /// Generation of the new handle (of a nested call, which registers none: the one that the handle has).
    pub generation: u32,
    /// Zero.
    pub reserved: u32,
}

/// A watched process made another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fork {
    /// Header; the parent.
    pub header: Header,
    /// The child's process id.
    pub child: u32,
    /// Zero.
    pub reserved: u32,
}

/// A thread of a watched process ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskEnd {
    /// Header.
    pub header: Header,
    /// Calls that the thread entered, lost ones included.
    pub calls: u64,
    /// Wait status as in `wait(2)`; `u32::MAX`: not known.
    pub status: u32,
    /// 1 if it was the process's last thread, 0 if not, 2 if the kernel does not say. Kernels before 6.16 may say 1
    /// twice where two threads end at once.
    pub last: u32,
}

/// A signal that kills unless it is handled was sent to a watched process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signal {
    /// Header; the receiver's tgid (or tid), the sender's below.
    pub header: Header,
    /// Signal number.
    pub signal: u32,
    /// `si_code`; below or equal 0: sent by a process.
    pub code: i32,
    /// Sender's process id; 0: the kernel, or not known.
    pub sender: u32,
    /// Zero.
    pub reserved: u32,
    /// Sender's command name, zero-padded.
    pub command: [u8; 16],
}

const _: () = {
    assert!(size_of::<Header>() == 32);
    assert!(size_of::<Enter>() == 136);
    assert!(size_of::<EnterShort>() == 264);
    assert!(size_of::<EnterLong>() == 136 + 8 + 1024);
    assert!(size_of::<Exit>() == 56);
    assert!(size_of::<Fork>() == 40);
    assert!(size_of::<TaskEnd>() == 48);
    assert!(size_of::<Signal>() == 64);
};
