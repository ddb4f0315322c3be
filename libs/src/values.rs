//! Reads the raw values of one call by their roles, at the width that the function's description gives them.
//!
//! What cannot be read is `None`, and asking for it with one of the `need_*` methods marks the whole call unreadable.
//! Nothing here knows what a value means.

use crate::decode::RawCall;
use crate::spec::{Arg, Function, Pass, Role};

/// First argument index that x86-64 passes on the stack. (aarch64 has two more registers; there this is too careful, and
/// only after a failed stack read.)
const FIRST_STACK_INDEX: u8 = 6;

/// The values of one call.
pub(crate) struct Values<'a> {
    function: &'a Function,
    raw: &'a RawCall<'a>,
    handle_bytes: u8,
    /// A value that was needed could not be had.
    pub(crate) unreadable: bool,
}

impl<'a> Values<'a> {
    /// The values of a call of this function, with handles of this width.
    pub(crate) fn new(function: &'a Function, raw: &'a RawCall<'a>, handle_bytes: u8) -> Values<'a> {
        Values { function, raw, handle_bytes, unreadable: false }
    }

    /// Whether the function has an argument of this role.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.function.arg(role).is_some()
    }

    /// The argument's value at its width: integers sign-extended, handles cut to the library's width.
    pub(crate) fn get(&self, role: Role) -> Option<u64> {
        let slot = self.function.slot(role)?;
        self.at(slot)
    }

    fn at(&self, slot: usize) -> Option<u64> {
        let arg = self.function.args.get(slot)?;
        if self.raw.stack_unreadable && arg.index >= FIRST_STACK_INDEX {
            return None;
        }
        let value = *self.raw.args.get(slot)?;
        Some(match arg.pass {
            Pass::I32 => i64::from(value as i32) as u64,
            Pass::U32 => value & u64::from(u32::MAX),
            Pass::Handle if self.handle_bytes == 4 => value & u64::from(u32::MAX),
            _ => value,
        })
    }

    /// The values of all arguments with this role, in order; `None` if one could not be read.
    pub(crate) fn all(&self, role: Role) -> Option<Vec<u64>> {
        let slots = self.function.args.iter().enumerate().filter(|(_, arg)| arg.role == role);
        slots.map(|(slot, _)| self.at(slot)).collect()
    }

    /// The value, which belongs to what the call says.
    pub(crate) fn need(&mut self, role: Role) -> Option<u64> {
        let value = self.get(role);
        self.unreadable |= value.is_none() && self.has(role);
        value
    }

    /// The value as a signed number.
    pub(crate) fn need_signed(&mut self, role: Role) -> Option<i64> {
        self.need(role).map(|value| value as i64)
    }

    /// The value as a number of elements: a negative one says nothing.
    pub(crate) fn need_count(&mut self, role: Role) -> Option<u64> {
        let signed = self.function.arg(role).is_some_and(|arg| matches!(arg.pass, Pass::I32 | Pass::I64));
        let value = self.need(role)?;
        if signed && (value as i64) < 0 {
            self.unreadable = true;
            return None;
        }
        Some(value)
    }

    /// The value as a rank: a negative one says nothing.
    pub(crate) fn need_rank(&mut self, role: Role) -> Option<u32> {
        let value = self.need_signed(role)?;
        let rank = u32::try_from(value).ok();
        self.unreadable |= rank.is_none();
        rank
    }

    /// The memory that was recorded for the argument; empty if nothing was.
    pub(crate) fn region(&self, role: Role) -> &'a [u8] {
        let Some(index) = self.function.regions().position(|arg| arg.role == role) else { return &[] };
        self.raw.regions.get(index).copied().unwrap_or(&[])
    }

    /// The first `len` entries of an array argument; `None` if it was not recorded that far.
    pub(crate) fn array(&self, role: Role, len: usize) -> Option<Vec<u64>> {
        let width = self.element_bytes(self.function.arg(role)?)?;
        let bytes = self.region(role).get(..len.checked_mul(width)?)?;
        Some(bytes.chunks_exact(width).map(little_endian).collect())
    }

    /// The entries of an array argument as far as they were recorded, `len` at most.
    pub(crate) fn array_prefix(&self, role: Role, len: usize) -> Vec<u64> {
        let Some(width) = self.function.arg(role).and_then(|arg| self.element_bytes(arg)) else { return Vec::new() };
        self.region(role).chunks_exact(width).take(len).map(little_endian).collect()
    }

    fn element_bytes(&self, arg: &Arg) -> Option<usize> {
        match arg.pass {
            Pass::Array32 => Some(4),
            Pass::Array64 => Some(8),
            Pass::HandleArray | Pass::HandleIn => Some(usize::from(self.handle_bytes)),
            _ => None,
        }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::Op;

    use super::Values;
    use crate::decode::RawCall;
    use crate::spec::{Arg, Function, Pass, Role, Traits};

    const FUNCTION: Function = Function {
        symbol: "f",
        op: Op::Gather,
        args: &[
            Arg { role: Role::Count, index: 0, pass: Pass::I32 },
            Arg { role: Role::Comm, index: 7, pass: Pass::Handle },
            Arg { role: Role::SendCounts, index: 1, pass: Pass::Array32 },
            Arg { role: Role::RecvCounts, index: 2, pass: Pass::Array64 },
        ],
        traits: Traits::NONE,
    };

    fn raw<'a>(args: &'a [u64], regions: [&'a [u8]; 2]) -> RawCall<'a> {
        RawCall { args, regions, stack_unreadable: false }
    }

    #[test]
    fn widths_come_from_the_description() {
        let args = [0xdead_beef_ffff_ffff, 0xffff_ffff_4400_0000, 0, 0];
        let call = raw(&args, [&[], &[]]);
        let mut values = Values::new(&FUNCTION, &call, 4);
        assert_eq!(values.get(Role::Count), Some(u64::MAX), "an int is sign-extended from its low half");
        assert_eq!(values.get(Role::Comm), Some(0x4400_0000));
        assert!(!values.unreadable);
        assert_eq!(values.need_count(Role::Count), None);
        assert!(values.unreadable, "a negative count says nothing");
    }

    #[test]
    fn arrays_are_given_whole_or_not_at_all() {
        let four = [1, 0, 0, 0, 2, 0, 0, 0, 3];
        let eight = [7, 0, 0, 0, 0, 0, 0, 0];
        let call = raw(&[0; 4], [&four, &eight]);
        let values = Values::new(&FUNCTION, &call, 4);
        assert_eq!(values.array(Role::SendCounts, 2), Some(vec![1, 2]));
        assert_eq!(values.array(Role::SendCounts, 3), None, "the third is cut");
        assert_eq!(values.array(Role::RecvCounts, 1), Some(vec![7]));
        assert_eq!(values.array_prefix(Role::SendCounts, 100), vec![1, 2]);
        assert_eq!(values.array(Role::SendCounts, usize::MAX), None);
    }

    #[test]
    fn what_lies_on_an_unreadable_stack_is_not_taken() {
        let call = RawCall { args: &[5, 6, 0, 0], regions: [&[], &[]], stack_unreadable: true };
        let mut values = Values::new(&FUNCTION, &call, 8);
        assert_eq!(values.need(Role::Count), Some(5));
        assert!(!values.unreadable);
        assert_eq!(values.need(Role::Comm), None);
        assert!(values.unreadable);
        assert_eq!(values.need(Role::Tag), None, "a role that the function has not is no missing value");
    }

    #[test]
    fn too_few_values_are_missing_values() {
        let call = raw(&[1], [&[], &[]]);
        assert_eq!(Values::new(&FUNCTION, &call, 8).get(Role::Comm), None);
    }
}
