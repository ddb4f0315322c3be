//! Strings and bytes objects of the interpreter. Whether they are what they seem to be is for user space to judge.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use rankdiff_common::map::ThreadState;
use rankdiff_common::python::PythonConfig;

use super::mix;
use crate::memory::read_user_or_zero;

/// Offset of a bytes object's size, and of a string's length in characters.
const SIZE: u64 = 16;
/// Offset of a string's state bits.
const STATE: u64 = 32;
/// Offset of the bytes in a bytes object.
const BYTES: u64 = 32;
/// Words that are hashed of an object.
const HASHED: usize = 4;

/// A string.
pub(super) struct Text {
    /// Characters.
    pub(super) length: u64,
    /// State bits.
    pub(super) state: u32,
    /// Address of the characters.
    pub(super) data: u64,
    /// Bytes.
    pub(super) bytes: u64,
}

/// Where a string's characters are.
#[inline(always)]
pub(super) fn string(config: &PythonConfig, address: u64) -> Text {
    let length = read_user_or_zero(address.wrapping_add(SIZE));
    let state = read_user_or_zero(address.wrapping_add(STATE)) as u32;
    let (width, ascii) = (u64::from(state >> 2 & 7), u64::from(state >> 6 & 1));
    let (plain, other) = (u64::from(config.string_ascii), u64::from(config.string_compact));
    let before = other.wrapping_sub(other.wrapping_sub(plain).wrapping_mul(ascii));
    Text { length, state, data: address.wrapping_add(before), bytes: length.wrapping_mul(width) }
}

/// Size of a bytes object and the address of its bytes.
#[inline(always)]
pub(super) fn bytes(address: u64) -> (u64, u64) {
    (read_user_or_zero(address.wrapping_add(SIZE)), address.wrapping_add(BYTES))
}

/// Copies so many bytes, at most `MOST`; 0 or an error.
#[inline(always)]
pub(super) fn copy<const MOST: usize>(into: *mut u8, from: u64, size: u64) -> u32 {
    let count = if size > MOST as u64 { MOST as u64 } else { size };
    // SAFETY: writable for MOST bytes, by the caller; the kernel checks the address.
    unsafe { bpf_probe_read_user(into.cast(), count as u32, from as *const _) as u32 }
}

/// Hash of what is in a code object: the size and beginning of its line table, the length and end of its file's name.
#[inline(never)]
pub(super) fn hash_content(thread: &mut ThreadState, config: &PythonConfig, code: u64) -> u64 {
    let (size, data) = bytes(read_user_or_zero(code.wrapping_add(u64::from(config.code_lines))));
    let table = hash(thread, data, size);
    let file = string(config, read_user_or_zero(code.wrapping_add(u64::from(config.code_file))));
    let skipped = file.bytes.saturating_sub(8 * HASHED as u64);
    mix(table, hash(thread, file.data.wrapping_add(skipped), file.bytes))
}

/// Hash of a size and of so many bytes at an address, at most [`HASHED`] words.
#[inline(always)]
fn hash(thread: &mut ThreadState, address: u64, size: u64) -> u64 {
    for index in 0..HASHED {
        thread.scratch[index] = 0;
    }
    copy::<{ 8 * HASHED }>((&raw mut thread.scratch).cast(), address, size);
    let mut hash = size;
    for index in 0..HASHED {
        hash = mix(hash, thread.scratch[index]);
    }
    hash
}
