//! A code object as the eBPF program copied it: names and line table. Every length is the traced process's own and is
//! checked against what came.

use rankdiff_common::python::{self, FILE_BYTES, NAME_BYTES};

use super::layout::Layout;
use super::lines::line_of;

/// Longest line table that is completed from the process's memory.
const MAX_TABLE: u64 = 1 << 20;

/// A code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Source file as the program names it; empty if it could not be read, its end behind a `…` if it is too long.
    pub file: String,
    /// Function; empty if it could not be read.
    pub function: String,
    first_line: u32,
    /// `None`: could not be read, or is longer than what came and the process is gone.
    table: Option<Box<[u8]>>,
}

impl Code {
    /// The code object of a record. `memory` reads the rest of a line table that is longer than the record, if the
    /// process still has it.
    pub fn of(record: &python::Code, memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Code {
        let file = (record.file_error == 0).then(|| tail(record.file_length, record.file_state, &record.file));
        let name = (record.name_error == 0).then(|| start(record.name_length, record.name_state, &record.name));
        Code {
            file: file.unwrap_or_default(),
            function: name.unwrap_or_default(),
            first_line: record.first_line,
            table: whole_table(record, memory).map(Vec::into_boxed_slice),
        }
    }

    /// The line of an instruction, as a frame has it; `address`: the code object's.
    pub fn line(&self, layout: &Layout, address: u64, instruction: u64) -> Option<u32> {
        let offset = match layout.minor {
            // An index in bytes, in units of two bytes, an address.
            9 => i64::from(instruction as u32 as i32),
            10 => i64::from(instruction as u32 as i32) * 2,
            _ => instruction.wrapping_sub(address.wrapping_add(u64::from(layout.instructions))) as i64,
        };
        line_of(layout.lines, self.table.as_deref()?, self.first_line, offset)
    }

    /// Bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        size_of::<Code>() + self.file.len() + self.function.len() + self.table.as_ref().map_or(0, |table| table.len())
    }
}

fn whole_table(record: &python::Code, memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    if record.table_error != 0 || record.table_bytes > MAX_TABLE {
        return None;
    }
    let size = usize::try_from(record.table_bytes).ok()?;
    if let Some(table) = record.table.get(..size) {
        return Some(table.to_vec());
    }
    // The code object may be gone by now, and its memory another's: what came first must still be there.
    memory(record.table_address, size).filter(|table| table.starts_with(&record.table))
}

/// Bytes a character, from the state bits of a string; `None` if it is of a kind that is not understood.
fn width(state: u32) -> Option<usize> {
    let is_compact = state >> 5 & 1 != 0;
    if !is_compact {
        return None;
    }
    match state >> 2 & 7 {
        1 => Some(1),
        2 => Some(2),
        4 => Some(4),
        _ => None,
    }
}

/// The end of a string, or all of it.
fn tail(length: u64, state: u32, copied: &[u8; FILE_BYTES]) -> String {
    let Some((bytes, width)) = size(length, state) else { return String::new() };
    let shown = copied.get(..bytes.min(FILE_BYTES)).unwrap_or_default();
    let text = decode(shown, width);
    if bytes > FILE_BYTES { format!("…{text}") } else { text }
}

/// The beginning of a string, or all of it.
fn start(length: u64, state: u32, copied: &[u8; NAME_BYTES]) -> String {
    let Some((bytes, width)) = size(length, state) else { return String::new() };
    let shown = copied.get(..bytes.min(NAME_BYTES)).unwrap_or_default();
    let text = decode(shown, width);
    if bytes > NAME_BYTES { format!("{text}…") } else { text }
}

/// Bytes of a string and of a character; `None` if it is none.
fn size(length: u64, state: u32) -> Option<(usize, usize)> {
    let width = width(state)?;
    Some((usize::try_from(length).ok()?.checked_mul(width)?, width))
}

fn decode(bytes: &[u8], width: usize) -> String {
    let one = |bytes: &[u8]| {
        let mut number = [0; 4];
        number[..width].copy_from_slice(bytes);
        // Half of a pair, as file names that are no UTF-8 have: shown as unknown.
        char::from_u32(u32::from_le_bytes(number)).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    bytes.chunks_exact(width).map(one).collect()
}

#[cfg(test)]
mod tests {
    use rankdiff_common::event::Header;
    use rankdiff_common::python::{self, FILE_BYTES, NAME_BYTES, TABLE_BYTES};

    use super::Code;

    /// State bits of a string of so many bytes a character.
    const fn wide(bytes: u32) -> u32 {
        bytes << 2 | 1 << 5
    }

    fn record(file: &[u8], file_length: u64, file_state: u32) -> python::Code {
        let mut bytes = [0; FILE_BYTES];
        bytes[..file.len()].copy_from_slice(file);
        python::Code {
            header: Header::default(),
            address: 0x1000,
            stamp: 1,
            table_address: 0x2000,
            table_bytes: 4,
            file_length,
            name_length: 1000,
            file_state,
            name_state: wide(1),
            first_line: 7,
            table_error: 0,
            file_error: 0,
            name_error: 0,
            file: bytes,
            name: [b'f'; NAME_BYTES],
            table: [1; TABLE_BYTES],
        }
    }

    fn file(file: &[u8], length: u64, state: u32) -> String {
        Code::of(&record(file, length, state), &|_, _| None).file
    }

    #[test]
    fn strings_of_all_widths_are_read() {
        assert_eq!(file(b"caf\xe9.py", 7, wide(1)), "café.py");
        assert_eq!(file(b"\x1f\x04x\0", 2, wide(2)), "\u{41f}x");
        assert_eq!(file(b"\x00\xf6\x01\x00", 1, wide(4)), "\u{1f600}");
        assert_eq!(file(b"\x00\xd8", 1, wide(2)), "\u{fffd}", "half of a pair");
    }

    #[test]
    fn what_is_cut_or_unreadable_says_so() {
        let code = Code::of(&record(&[b'x'; FILE_BYTES], 600, wide(1)), &|_, _| None);
        assert!(code.file.starts_with("…x") && code.function.ends_with("f…"), "{code:?}");
        assert_eq!(file(b"x", u64::MAX, wide(4)), "", "too long to be one");
        assert_eq!(file(b"x", 1, 1 << 2), "", "not compact");
        assert_eq!(file(b"x", 1, wide(3)), "", "no such width");
        let unread = python::Code { file_error: 14, ..record(b"x", 1, wide(1)) };
        assert_eq!(Code::of(&unread, &|_, _| None).file, "");
    }

    #[test]
    fn a_long_table_is_completed_only_if_its_beginning_is_still_there() {
        let long = python::Code { table_bytes: TABLE_BYTES as u64 + 2, ..record(b"x", 1, wide(1)) };
        let with = |first: u8| {
            let mut memory = vec![1; TABLE_BYTES + 2];
            memory[0] = first;
            Code::of(&long, &|_, size| memory.get(..size).map(<[u8]>::to_vec)).table
        };
        assert_eq!(with(1).map(|table| table.len()), Some(TABLE_BYTES + 2));
        assert_eq!(with(9), None);
        for bytes in [u64::MAX, 1 << 30] {
            let endless = python::Code { table_bytes: bytes, ..long };
            assert_eq!(Code::of(&endless, &|_, _| Some(vec![1; TABLE_BYTES + 2])).table, None);
        }
    }
}
