//! The primitive encodings of payloads: LEB128 varints, zigzag, and a cursor that never reads past its bytes.

/// The bytes are not what the format says. Carries what was being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Where each byte of eight says that more follow.
const MORE: u64 = 0x8080_8080_8080_8080;
/// A varint below this takes at most eight bytes, which are worked on as one number.
const WORD: u64 = 1 << 56;

/// Appends a varint: seven bits a byte, low bits first, the top bit says that more follow.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if value < WORD {
        // All eight bytes at once, then back to those that count: no loop whose length nobody can foresee.
        let length = (70 - value.leading_zeros() as usize) / 7;
        let more = MORE & ((1 << (8 * (length - 1))) - 1);
        out.extend_from_slice(&(spread(value) | more).to_le_bytes());
        out.truncate(out.len() + length - 8);
    } else {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
}

/// Seven bits to each byte.
#[inline]
fn spread(value: u64) -> u64 {
    let value = (value & 0x0000_0000_0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let value = (value & 0x0000_3fff_0000_3fff) | ((value & 0x0fff_c000_0fff_c000) << 2);
    (value & 0x007f_007f_007f_007f) | ((value & 0x3f80_3f80_3f80_3f80) << 1)
}

/// The inverse of [`spread`]; top bits of bytes are left out.
#[inline]
fn gather(word: u64) -> u64 {
    let word = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x3fff_0000_3fff_0000) >> 2);
    (word & 0x0000_0000_0fff_ffff) | ((word & 0x0fff_ffff_0000_0000) >> 4)
}

/// Small magnitudes of either sign as small numbers.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The difference of two numbers as a varint's value; wraps, so that any pair has one.
#[inline]
pub(crate) fn delta(value: u64, base: u64) -> u64 {
    zigzag(value.wrapping_sub(base) as i64)
}

/// The inverse of [`delta`].
#[inline]
pub(crate) fn undelta(coded: u64, base: u64) -> u64 {
    base.wrapping_add(unzigzag(coded) as u64)
}

/// Reads from a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.bytes.split_at_checked(length).ok_or(Malformed(what))?;
        self.bytes = tail;
        Ok(head)
    }

    /// The next bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(Malformed(what))?;
        self.bytes = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A varint of at most 64 bits.
    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        if let Some((&byte, rest)) = self.bytes.split_first()
            && byte < 0x80
        {
            self.bytes = rest;
            return Ok(u64::from(byte));
        }
        if let Some(eight) = self.bytes.first_chunk::<8>() {
            let word = u64::from_le_bytes(*eight);
            let ends = !word & MORE;
            let length = ends.trailing_zeros() as usize / 8 + 1;
            // Of the byte that ends it and those before; of all eight none ends it, and the number is longer.
            if let Some(rest) = self.bytes.get(length..).filter(|_| ends != 0) {
                self.bytes = rest;
                return Ok(gather(word & (u64::MAX >> (64 - 8 * length))));
            }
        }
        self.varint_by_bytes(what)
    }

    /// The same for what is longer than eight bytes, and at the end of the bytes.
    #[cold]
    fn varint_by_bytes(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for (index, &byte) in self.bytes.iter().enumerate() {
            let part = u64::from(byte & 0x7f);
            let shift = 7 * index as u32;
            if shift >= 64 || (part << shift) >> shift != part {
                return Err(Malformed(what));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                self.bytes = self.bytes.get(index + 1..).unwrap_or(&[]);
                return Ok(value);
            }
        }
        Err(Malformed(what))
    }

    /// A varint that must fit 32 bits.
    pub(crate) fn varint32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        u32::try_from(self.varint(what)?).map_err(|_| Malformed(what))
    }

    /// A number of things that take at least one byte each: never more than there are bytes, nor than `limit`.
    pub(crate) fn length(&mut self, limit: usize, what: &'static str) -> Result<usize, Malformed> {
        let length = self.varint(what)?;
        match usize::try_from(length) {
            Ok(length) if length <= limit && length <= self.remaining() => Ok(length),
            _ => Err(Malformed(what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cursor, Malformed, delta, put_varint, undelta, unzigzag, zigzag};

    proptest! {
        #[test]
        fn numbers_round_trip(value: u64, base: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert!(bytes.len() <= 10);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varint("v"), Ok(value));
            prop_assert!(cursor.is_empty());
            prop_assert_eq!(undelta(delta(value, base), base), value);
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }

        /// Numbers of every length, in front of whatever follows.
        #[test]
        fn numbers_are_read_to_their_end_and_no_further(value: u64, shift in 0_u32..64, rest in any::<[u8; 9]>()) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len() as u32, (70 - value.leading_zeros().min(63)) / 7);
            for tail in 0..=rest.len() {
                let long = [bytes.as_slice(), &rest[..tail]].concat();
                let (mut cursor, mut slow) = (Cursor::new(&long), Cursor::new(&long));
                prop_assert_eq!(cursor.varint("v"), Ok(value));
                prop_assert_eq!(cursor.remaining(), tail);
                prop_assert_eq!(slow.varint_by_bytes("v"), Ok(value));
                prop_assert_eq!(slow.remaining(), tail);
            }
        }

        #[test]
        fn words_and_bytes_say_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let (mut fast, mut slow) = (Cursor::new(&bytes), Cursor::new(&bytes));
            prop_assert_eq!(fast.varint("v"), slow.varint_by_bytes("v"));
            prop_assert_eq!(fast.remaining(), slow.remaining());
        }

        #[test]
        fn any_bytes_give_a_number_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut cursor = Cursor::new(&bytes);
            let before = cursor.remaining();
            if cursor.varint("v").is_ok() {
                prop_assert!(cursor.remaining() < before);
            }
        }
    }

    #[test]
    fn refuses_more_than_64_bits_and_unbounded_lengths() {
        assert_eq!(Cursor::new(&[0xff; 11]).varint("v"), Err(Malformed("v")));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint("v"),
            Err(Malformed("v"))
        );
        assert_eq!(Cursor::new(&[5, 0, 0]).length(100, "n"), Err(Malformed("n")), "longer than what remains");
        assert_eq!(Cursor::new(&[3, 0, 0, 0]).length(2, "n"), Err(Malformed("n")), "over the limit");
    }
}
