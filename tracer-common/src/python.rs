//! Python call stacks: what the programs must know of a process's interpreter, and the records that they send.
//!
//! An event carries the key of its thread's Python stack; the stack of a key and the code objects in it travel once.
//! Only where things lie is known here. Which version has them where, and what an instruction's line is, is for user space.

use crate::event::Header;

/// Names of the maps.
pub mod name {
    /// Hash: tgid -> [`PythonConfig`](super::PythonConfig). A child gets its parent's entry; another program run, or the
    /// end of a process, removes it.
    pub const PYTHON: &str = "PYTHON";
    /// LRU hash: keys of stacks that are in the ring already.
    pub const STACKS: &str = "STACKS";
    /// LRU hash: code objects that are in the ring already, by a hash of process, address and stamp.
    pub const CODES: &str = "CODES";
}

/// Python processes at one time.
pub const MAX_PYTHON: u32 = 16 * 1024;
/// Keys of stacks that are remembered.
pub const MAX_STACKS: u32 = 64 * 1024;
/// Code objects that are remembered.
pub const MAX_CODES: u32 = 64 * 1024;
/// Interpreter frames that are walked, frames of the interpreter's own included, innermost first.
pub const MAX_FRAMES: usize = 40;
/// Interpreters of a process that are looked at.
pub const MAX_INTERPRETERS: usize = 4;
/// Thread states of an interpreter that are looked at.
pub const MAX_STATES: u32 = 128;
/// Words of scratch memory of a thread.
pub const SCRATCH: usize = 32;
/// Words that are read of a thread state, from its beginning.
pub const STATE_WORDS: usize = 24;
/// Words that are read of a frame, from [`PythonConfig::frame_base`].
pub const FRAME_WORDS: usize = 11;
/// Words that are read of a code object, from [`PythonConfig::code_stamp`].
pub const STAMP_WORDS: usize = 12;
/// Bytes of a file name that travel: the last ones.
pub const FILE_BYTES: usize = 512;
/// Bytes of a function's name that travel: the first ones.
pub const NAME_BYTES: usize = 256;
/// Bytes of a line table that travel: the first ones.
pub const TABLE_BYTES: usize = 4096;
/// An offset that there is none of.
pub const NONE: u32 = u32::MAX;

/// How a stack was found ([`Stack::status`]).
pub mod status {
    /// The calling thread's own frames.
    pub const OWN: u32 = 1;
    /// The calling thread has no Python state: the frames are those of the main thread at that moment.
    pub const CONTEXT: u32 = 1 << 1;
    /// There are more frames than are walked.
    pub const CUT: u32 = 1 << 2;
    /// A frame could not be read: those around it are missing.
    pub const UNREADABLE: u32 = 1 << 3;
    /// There are more threads than are looked at.
    pub const MANY_THREADS: u32 = 1 << 4;
}

/// Where things lie in a process's interpreter. Words are counted in 8 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PythonConfig {
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// Offset in it: the first interpreter.
    pub interpreters_head: u32,
    /// Offset in it: the main thread's id; [`NONE`]: not known.
    pub main_thread: u32,
    /// Offset in an interpreter: the next one.
    pub interpreter_next: u32,
    /// Offset in an interpreter: its first thread state.
    pub threads_head: u32,
    /// Word of a thread state: the one before it.
    pub thread_prev: u32,
    /// Word of a thread state: the next one.
    pub thread_next: u32,
    /// Word of a thread state: its interpreter.
    pub thread_interpreter: u32,
    /// Word of a thread state: the thread's `pthread_self`.
    pub thread_id: u32,
    /// Word of a thread state: the innermost frame, or what points to it.
    pub thread_frame: u32,
    /// Offset of the innermost frame in what the thread state points to; [`NONE`]: it is the frame itself.
    pub cframe_current: u32,
    /// Offset of the part of a frame that is read.
    pub frame_base: u32,
    /// Word of that part: the code object.
    pub frame_code: u32,
    /// Word: the frame around this one.
    pub frame_previous: u32,
    /// Word: the instruction.
    pub frame_instruction: u32,
    /// Bytes of the instruction's place: 4 or 8.
    pub instruction_bytes: u32,
    /// Byte of that part that says whose the frame is; from 3 on it is the interpreter's own. [`NONE`]: there is none.
    pub frame_owner: u32,
    /// Offset in a code object of a 32-bit number that no other code object of the process ever has; [`NONE`]: it has
    /// none, and [`code_stamp`](PythonConfig::code_stamp) tells two apart.
    pub code_version: u32,
    /// Offset of the part of a code object that tells it from another one at the same address. Its first word holds the
    /// flags, the others do not change.
    pub code_stamp: u32,
    /// Bit of the flag that functions have and a module's or `exec`'s code has not, in the first of those words.
    pub function_flag: u32,
    /// Offset in a code object: file name.
    pub code_file: u32,
    /// Offset: (qualified) name.
    pub code_name: u32,
    /// Offset: line table, a bytes object.
    pub code_lines: u32,
    /// Offset: first line.
    pub code_first_line: u32,
    /// Bytes before the characters of a string of ASCII only.
    pub string_ascii: u32,
    /// Bytes before the characters of any other string.
    pub string_compact: u32,
    /// Another number for each program that a process runs: what is known of one is not known of the next.
    pub generation: u32,
}

/// One frame of a stack.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackFrame {
    /// Address of the code object; 0: a frame of the interpreter's own.
    pub code: u64,
    /// Where in it: an address or an index, as the version has it.
    pub instruction: u64,
    /// Tells the code object from others that had the address.
    pub stamp: u64,
}

/// The Python stack of a key.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack {
    /// Header; no call of its own.
    pub header: Header,
    /// The key.
    pub key: u64,
    /// [`status`] flags.
    pub status: u32,
    /// Frames.
    pub count: u32,
    /// The thread's name, zero-padded.
    pub thread: [u8; 16],
    /// Frames, innermost first; zero beyond `count`.
    pub frames: [StackFrame; MAX_FRAMES],
}

/// A code object. What could not be read has an error, and is zero or rubbish.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Header; no call of its own.
    pub header: Header,
    /// Address.
    pub address: u64,
    /// Tells it from others that had the address.
    pub stamp: u64,
    /// Address of the bytes of the line table.
    pub table_address: u64,
    /// Size of the line table.
    pub table_bytes: u64,
    /// Characters of the file name.
    pub file_length: u64,
    /// Characters of the name.
    pub name_length: u64,
    /// State bits of the file name (bytes a character, ASCII or not), as CPython has them.
    pub file_state: u32,
    /// The same of the name.
    pub name_state: u32,
    /// First line.
    pub first_line: u32,
    /// Not 0: the line table could not be read.
    pub table_error: u32,
    /// Not 0: the file name could not be read.
    pub file_error: u32,
    /// Not 0: the name could not be read.
    pub name_error: u32,
    /// Characters of the file name: the last ones if it is longer.
    pub file: [u8; FILE_BYTES],
    /// Characters of the name: the first ones if it is longer.
    pub name: [u8; NAME_BYTES],
    /// The line table, its first part if it is longer.
    pub table: [u8; TABLE_BYTES],
}

const _: () = {
    assert!(size_of::<PythonConfig>() == 112);
    assert!(size_of::<StackFrame>() == 24);
    assert!(size_of::<Stack>() == 64 + MAX_FRAMES * 24);
    assert!(size_of::<Code>() == 32 + 6 * 8 + 6 * 4 + FILE_BYTES + NAME_BYTES + TABLE_BYTES);
    assert!(STATE_WORDS <= SCRATCH && FRAME_WORDS <= SCRATCH && STAMP_WORDS <= SCRATCH && SCRATCH.is_power_of_two());
};

// SAFETY: repr(C), integers only, no padding (size asserted above).
#[cfg(feature = "user")]
unsafe impl aya::Pod for PythonConfig {}
