//! Memory that a probe gathered from behind pointers: where each field lies in it, and reading it.
//!
//! The recorder and the decoders share the placing, so neither keeps a table of its own.

use crate::spec::Field;

/// Bytes at the start that say which fields could be read: bit k stands for field k.
pub const MASK_BYTES: usize = 8;
/// Most bytes of gathered memory, the mask included.
pub const MOST_BYTES: usize = 512;
/// Most fields of one function.
pub const MOST_FIELDS: usize = 16;

/// Where each field lies: one behind the other, each on a multiple of eight. Fields that find no room are left out.
pub fn place(fields: &[Field]) -> Vec<u16> {
    let mut next = MASK_BYTES;
    let mut places = Vec::with_capacity(fields.len());
    for field in fields.iter().take(MOST_FIELDS) {
        let end = next + usize::from(field.bytes);
        if end > MOST_BYTES {
            break;
        }
        // At most 512.
        places.push(next as u16);
        next = end.next_multiple_of(8);
    }
    places
}

/// The fields of one call.
#[derive(Debug)]
pub struct Gathered<'a> {
    fields: Vec<Field>,
    places: Vec<u16>,
    bytes: &'a [u8],
}

impl<'a> Gathered<'a> {
    /// These fields in this memory.
    pub fn new(fields: Vec<Field>, bytes: &'a [u8]) -> Gathered<'a> {
        let places = place(&fields);
        Gathered { fields, places, bytes }
    }

    /// Whether the build's layout has this field.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// The field's bytes; `None`: it has none, or its memory could not be read.
    pub fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        let index = self.fields.iter().position(|field| field.name == name)?;
        let mask = number(self.bytes.get(..MASK_BYTES)?);
        let from = usize::from(*self.places.get(index)?);
        let read = mask >> index & 1 != 0;
        self.bytes.get(from..from + usize::from(self.fields.get(index)?.bytes)).filter(|_| read)
    }

    /// The field as a number of its width, 64 bits at most.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.bytes(name).filter(|bytes| bytes.len() <= 8).map(number)
    }

    /// The field as 64-bit numbers.
    pub fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.bytes(name).map(|bytes| bytes.chunks_exact(8).map(number).collect())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::{Gathered, MOST_BYTES, place};
    use crate::spec::Field;

    fn field(name: &'static str, bytes: u16) -> Field {
        Field { name, index: 0, steps: 0, offsets: [0; 4], bytes }
    }

    #[test]
    fn fields_lie_apart_and_inside() {
        assert_eq!(place(&[field("a", 2), field("b", 9), field("c", 8)]), [8, 16, 32]);
        assert_eq!(place(&[field("a", 500), field("b", 8)]), [8], "no room for the second");
        let full = MOST_BYTES as u16 - 8;
        assert_eq!(place(&[field("a", full)]), [8]);
        assert!(place(&[field("a", full + 1)]).is_empty());
    }

    #[test]
    fn what_was_not_read_is_not_there() {
        let mut memory = [0_u8; 24];
        memory[0] = 0b10;
        memory[8] = 7;
        memory[16..20].copy_from_slice(&[1, 2, 0, 0]);
        let gathered = Gathered::new(vec![field("a", 8), field("b", 4), field("c", 8)], &memory);
        assert_eq!(gathered.number("a"), None);
        assert_eq!(gathered.number("b"), Some(0x201));
        assert_eq!(gathered.number("c"), None, "the memory ends before it");
        assert!(gathered.has("c") && !gathered.has("d"));
        assert_eq!(Gathered::new(vec![field("a", 8)], &[]).number("a"), None);
    }
}
