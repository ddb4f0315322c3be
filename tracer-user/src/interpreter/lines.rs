//! From an instruction to its source line: the three forms of line tables that CPython 3.9 to 3.14 have.
//!
//! A table is bytes of a foreign process: anything may be in it. What is not understood has no line.

/// Form of a line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineFormat {
    /// 3.9: pairs of a step in bytes and a signed step in lines (`co_lnotab`).
    Lnotab,
    /// 3.10: the same, but each pair is a range of its own, which may have no line (`co_linetable`, PEP 626).
    Linetable,
    /// From 3.11: entries of variable length with lines and columns (`co_linetable`, PEP 657).
    Locations,
}

/// The line of the instruction at a byte offset from the first; `None` if it has none.
pub fn line_of(format: LineFormat, table: &[u8], first_line: u32, offset: i64) -> Option<u32> {
    let line = match format {
        LineFormat::Lnotab => lnotab(table, i64::from(first_line), offset),
        LineFormat::Linetable => linetable(table, i64::from(first_line), offset)?,
        LineFormat::Locations => locations(table, i64::from(first_line), offset)?,
    };
    u32::try_from(line).ok().filter(|&line| line > 0)
}

fn lnotab(table: &[u8], first_line: i64, offset: i64) -> i64 {
    let (mut line, mut at) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        let &[step, lines] = pair else { break };
        at += i64::from(step);
        if at > offset {
            break;
        }
        line += i64::from(lines as i8);
    }
    line
}

fn linetable(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    /// Instead of a step in lines: the range has no line.
    const NO_LINE: i8 = -128;
    if offset < 0 {
        // Before the first instruction: the function was entered and nothing more.
        return Some(first_line);
    }
    let (mut line, mut at) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        let &[step, lines] = pair else { break };
        let lines = lines as i8;
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        let end = at + i64::from(step);
        if (at..end).contains(&offset) {
            return (lines != NO_LINE).then_some(line);
        }
        at = end;
    }
    None
}

fn locations(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    /// Bytes of a code unit.
    const UNIT: i64 = 2;
    let (mut line, mut at) = (first_line, 0);
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None; // not the beginning of an entry
        }
        let units = i64::from(head & 7) + 1;
        let (step, has_line) = match head >> 3 & 15 {
            15 => (0, false),
            13 | 14 => (signed(&mut bytes)?, true),
            kind @ 10..=12 => (i64::from(kind) - 10, true),
            _ => (0, true),
        };
        // Columns.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        line = line.checked_add(step)?;
        let end = at + units * UNIT;
        if (at..end).contains(&offset) {
            return has_line.then_some(line);
        }
        at = end;
    }
    None
}

/// A number of six bits a byte, the lowest first, its own lowest bit the sign.
fn signed(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> Option<i64> {
    let mut value: u64 = 0;
    // 32-bit numbers: more bytes are none.
    for shift in (0..36).step_by(6) {
        let byte = bytes.next_if(|byte| byte & 0x80 == 0)?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            let size = (value >> 1) as i64;
            return Some(if value & 1 != 0 { -size } else { size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LineFormat, line_of};

    #[test]
    fn each_form_is_read() {
        // Two instructions of line 10, then two of line 12, then one of line 11.
        let lnotab = [4, 2, 4, 0xff];
        let lines = |format, table: &[u8], offsets: &[i64]| -> Vec<Option<u32>> {
            offsets.iter().map(|&offset| line_of(format, table, 10, offset)).collect()
        };
        let some = |lines: &[u32]| lines.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(lines(LineFormat::Lnotab, &lnotab, &[-1, 0, 2, 4, 6, 8]), some(&[10, 10, 10, 12, 12, 11]));
        let linetable = [4, 0, 4, 2, 2, 0x80, 2, 0xff];
        let found = lines(LineFormat::Linetable, &linetable, &[-2, 0, 2, 4, 6, 8, 10, 12]);
        assert_eq!(found[..5], some(&[10, 10, 10, 12, 12]));
        assert_eq!(found[5..], [None, Some(11), None]);
        // One line delta 0 (kind 10) of two units, kind 13 with +2, no line, then a short form.
        let locations =
            [0x80 | 10 << 3 | 1, 0, 0, 0x80 | 13 << 3 | 1, 4, 0x80 | 15 << 3, 0x80 | 13 << 3, 3, 0x80 | 3 << 3, 7];
        let found = lines(LineFormat::Locations, &locations, &[-2, 0, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(found[0], None);
        assert_eq!(found[1..5], some(&[10, 10, 12, 12]));
        assert_eq!(found[5..], [None, Some(11), Some(11), None]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            table in proptest::collection::vec(any::<u8>(), 0..200),
            first in any::<u32>(),
            offset in any::<i64>(),
        ) {
            for format in [LineFormat::Lnotab, LineFormat::Linetable, LineFormat::Locations] {
                let _ = line_of(format, &table, first, offset);
            }
        }
    }
}
