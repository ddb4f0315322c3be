//! Payloads of everything but calls: a string table, then one row per record.
//!
//! A row is preceded by its length, so that fields a newer writer appended are skipped. Strings are written once per
//! block and referred to by number; 0 is the empty string.

use std::collections::HashMap;

use crate::header::clip;
use crate::limits;
use crate::wire::{Cursor, Malformed, put_varint, unzigzag, zigzag};

/// Writes rows.
#[derive(Debug, Default)]
pub(crate) struct RowWriter {
    strings: HashMap<String, u64>,
    table: Vec<u8>,
    rows: Vec<u8>,
    row: Vec<u8>,
    /// Strings and lists that were cut to the format's limits.
    pub(crate) clipped: u64,
}

impl RowWriter {
    pub(crate) fn u64(&mut self, value: u64) {
        put_varint(&mut self.row, value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.u64(u64::from(value));
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.u64(zigzag(value));
    }

    /// Sixteen plain bytes, for hashes.
    pub(crate) fn u128(&mut self, value: u128) {
        self.row.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn optional(&mut self, value: Option<u64>) {
        self.u64(u64::from(value.is_some()));
        if let Some(value) = value {
            self.u64(value);
        }
    }

    pub(crate) fn string(&mut self, text: &str) {
        let kept = clip(text, limits::MAX_STRING);
        self.clipped += u64::from(kept.len() < text.len());
        if kept.is_empty() {
            return self.u64(0);
        }
        let id = match self.strings.get(kept) {
            Some(&id) => id,
            None => {
                let id = self.strings.len() as u64 + 1;
                put_varint(&mut self.table, kept.len() as u64);
                self.table.extend_from_slice(kept.as_bytes());
                self.strings.insert(kept.to_owned(), id);
                id
            }
        };
        self.u64(id);
    }

    /// Ends the row.
    pub(crate) fn end(&mut self) {
        put_varint(&mut self.rows, self.row.len() as u64);
        self.rows.append(&mut self.row);
    }

    /// Appends the payload and begins a new one.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        put_varint(out, self.strings.len() as u64);
        out.append(&mut self.table);
        out.append(&mut self.rows);
        self.strings.clear();
    }
}

/// Reads rows.
#[derive(Debug)]
pub(crate) struct RowReader<'a> {
    strings: Vec<&'a str>,
    rows: Cursor<'a>,
    row: Cursor<'a>,
    /// Bytes that resolved strings may still take.
    budget: usize,
    /// Codes that this build does not know and read as a default.
    pub(crate) unknown: u64,
}

impl<'a> RowReader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Result<RowReader<'a>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let count = cursor.length(limits::MAX_RAW, "a string table longer than its payload")?;
        // A reference takes sixteen times the byte that a string at least has; the raw limit bounds both.
        let mut strings = Vec::with_capacity(count);
        for _ in 0..count {
            let length = cursor.length(limits::MAX_STRING, "a string longer than its payload")?;
            let text = std::str::from_utf8(cursor.take(length, "a string")?);
            strings.push(text.map_err(|_| Malformed("a string that is not UTF-8"))?);
        }
        Ok(RowReader { strings, rows: cursor, row: Cursor::new(&[]), budget: limits::MAX_EXPANDED, unknown: 0 })
    }

    /// Moves to the next row.
    pub(crate) fn begin(&mut self) -> Result<(), Malformed> {
        let length = self.rows.length(limits::MAX_RECORD, "a row longer than its payload")?;
        self.row = Cursor::new(self.rows.take(length, "a row")?);
        Ok(())
    }

    /// Whether every row was read.
    pub(crate) fn is_done(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.row.varint("a row that ends too early")
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.row.varint32("a number over 32 bits")
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.u64().map(unzigzag)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        i32::try_from(self.i64()?).map_err(|_| Malformed("a number over 32 bits"))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        self.row.array("a row that ends too early").map(u128::from_le_bytes)
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(if self.u64()? == 0 { None } else { Some(self.u64()?) })
    }

    pub(crate) fn optional32(&mut self) -> Result<Option<u32>, Malformed> {
        Ok(if self.u64()? == 0 { None } else { Some(self.u32()?) })
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let id = self.u64()?;
        if id == 0 {
            return Ok(String::new());
        }
        let index = usize::try_from(id - 1).unwrap_or(usize::MAX);
        let text = self.strings.get(index).ok_or(Malformed("a string that is not in its table"))?;
        self.budget = self.budget.checked_sub(text.len()).ok_or(Malformed("strings over the limit of a block"))?;
        Ok((*text).to_owned())
    }

    /// A number of items that take at least one byte each.
    pub(crate) fn length(&mut self, limit: usize) -> Result<usize, Malformed> {
        self.row.length(limit, "a list longer than its row")
    }

    /// The value of a code; its default where this build does not know it.
    pub(crate) fn code<T: Default>(&mut self, from_code: impl Fn(u8) -> Option<T>) -> Result<T, Malformed> {
        let code = self.u64()?;
        let value = u8::try_from(code).ok().and_then(from_code);
        self.unknown += u64::from(value.is_none());
        Ok(value.unwrap_or_default())
    }
}
