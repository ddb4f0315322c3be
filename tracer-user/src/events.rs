//! Ring-buffer records as typed events. Bytes of another size or kind than the ABI says are refused, never guessed.

use std::mem::MaybeUninit;

use rankdiff_common::event::{Enter, EnterLong, EnterShort, Exit, Fork, Header, Signal, TaskEnd, kind};
use rankdiff_common::python::{Code, Stack};

/// One record.
#[derive(Debug, Clone)]
pub enum Event {
    /// Entry of a call, with what memory was recorded.
    Enter(Box<Entry>),
    /// Return of a call.
    Exit(Exit),
    /// Out handle read at the end of a batch.
    Out(Exit),
    /// New process.
    Fork(Fork),
    /// New program.
    Exec(Header),
    /// End of a thread.
    TaskEnd(TaskEnd),
    /// The dynamic linker changed its list.
    LinkMap(Header),
    /// A signal.
    Signal(Signal),
    /// The Python stack of a key.
    Stack(Box<Stack>),
    /// A Python code object.
    Code(Box<Code>),
}

impl Event {
    /// When it happened: CLOCK_MONOTONIC, ns.
    pub fn time(&self) -> u64 {
        match self {
            Event::Enter(entry) => entry.enter.header.time,
            Event::Exit(exit) | Event::Out(exit) => exit.header.time,
            Event::Fork(fork) => fork.header.time,
            Event::Exec(header) | Event::LinkMap(header) => header.time,
            Event::TaskEnd(end) => end.header.time,
            Event::Signal(signal) => signal.header.time,
            Event::Stack(stack) => stack.header.time,
            Event::Code(code) => code.header.time,
        }
    }
}

/// Entry of a call with its memory regions.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The fixed part.
    pub enter: Enter,
    /// The regions, as far as they could be read.
    pub regions: [Vec<u8>; 2],
}

/// A record that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Unknown kind.
    #[error("a ring-buffer record of unknown kind: {0}")]
    Kind(u8),
    /// Wrong size for its kind.
    #[error("a ring-buffer record of kind {kind} has {found} bytes instead of {expected}")]
    Size {
        /// Its kind.
        kind: u8,
        /// Its size.
        found: usize,
        /// The ABI's size.
        expected: usize,
    },
}

/// Types that are valid for every bit pattern.
///
/// # Safety
/// `repr(C)`, integers and arrays of them only, no padding.
unsafe trait Plain: Copy {}
// SAFETY: rankdiff-common asserts that these and those below hold integers only and have no padding.
unsafe impl Plain for Enter {}
// SAFETY: as above.
unsafe impl Plain for EnterShort {}
// SAFETY: as above.
unsafe impl Plain for EnterLong {}
// SAFETY: as above.
unsafe impl Plain for Exit {}
// SAFETY: as above.
unsafe impl Plain for Fork {}
// SAFETY: as above.
unsafe impl Plain for Header {}
// SAFETY: as above.
unsafe impl Plain for Signal {}
// SAFETY: as above.
unsafe impl Plain for TaskEnd {}
// SAFETY: as above.
unsafe impl Plain for Stack {}
// SAFETY: as above.
unsafe impl Plain for Code {}

fn read<T: Plain>(kind: u8, bytes: &[u8]) -> Result<T, EventError> {
    let expected = size_of::<T>();
    if bytes.len() != expected {
        return Err(EventError::Size { kind, found: bytes.len(), expected });
    }
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: both are `expected` bytes and do not overlap; `T: Plain` is valid for every bit pattern.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), expected);
        Ok(value.assume_init())
    }
}

/// The event that these bytes are.
pub fn parse(bytes: &[u8]) -> Result<Event, EventError> {
    let kind = bytes.first().copied().unwrap_or(0);
    Ok(match kind {
        kind::ENTER => {
            let enter = read::<Enter>(kind, bytes)?;
            Event::Enter(Box::new(Entry { enter, regions: [Vec::new(), Vec::new()] }))
        }
        kind::ENTER_SHORT => {
            let EnterShort { enter, region } = read(kind, bytes)?;
            let cut = enter.header.flags & rankdiff_common::event::flag::REGION0_CUT != 0;
            let region = if cut { Vec::new() } else { region.to_vec() };
            Event::Enter(Box::new(Entry { enter, regions: [region, Vec::new()] }))
        }
        kind::ENTER_LONG => {
            let EnterLong { enter, region_bytes, regions } = read(kind, bytes)?;
            let part = |index: usize| {
                let length = (region_bytes[index] as usize).min(regions[index].len());
                regions[index][..length].to_vec()
            };
            Event::Enter(Box::new(Entry { enter, regions: [part(0), part(1)] }))
        }
        kind::EXIT => Event::Exit(read(kind, bytes)?),
        kind::OUT => Event::Out(read(kind, bytes)?),
        kind::FORK => Event::Fork(read(kind, bytes)?),
        kind::EXEC => Event::Exec(read(kind, bytes)?),
        kind::TASK_END => Event::TaskEnd(read(kind, bytes)?),
        kind::LINK_MAP => Event::LinkMap(read(kind, bytes)?),
        kind::SIGNAL => Event::Signal(read(kind, bytes)?),
        kind::STACK => Event::Stack(Box::new(read(kind, bytes)?)),
        kind::CODE => Event::Code(Box::new(read(kind, bytes)?)),
        other => return Err(EventError::Kind(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, EventError, parse};
    use rankdiff_common::event::{Enter, kind};

    #[test]
    fn refuses_other_kinds_and_sizes() {
        assert_eq!(parse(&[]).expect_err("empty"), EventError::Kind(0));
        assert_eq!(parse(&[99, 0]).expect_err("kind"), EventError::Kind(99));
        assert!(matches!(parse(&[kind::ENTER; 12]).expect_err("size"), EventError::Size { found: 12, .. }));
    }

    #[test]
    fn reads_an_entry() {
        let mut bytes = [0_u8; size_of::<Enter>()];
        bytes[0] = kind::ENTER;
        bytes[8..12].copy_from_slice(&77_u32.to_le_bytes());
        bytes[128..].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        let Event::Enter(entry) = parse(&bytes).expect("an entry") else { panic!("not an entry") };
        assert_eq!(entry.enter.header.tgid, 77);
        assert_eq!(entry.enter.args[7], 1 << 40);
    }
}
