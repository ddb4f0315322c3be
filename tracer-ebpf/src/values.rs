//! Values at the entry of a function: from its argument registers and its stack.
//!
//! Reading the stack costs more than all else in an entry program, so it is read once, and no more of it than the
//! description needs.

use rankdiff_common::probe::{MAX_ARGS, MAX_STACK_SLOT, ProbeDesc, SOURCE_STACK, Source};

use crate::memory::{masked, read_user, read_user_into};
use crate::registers::ARGUMENTS;

/// Words from the entry stack pointer on that are read at once if there are stack arguments: the return address and the
/// slots that nearly all functions make do with. Other slots are read one by one.
const WINDOW: usize = 4;
/// Room for the registers, a power of two so that the index can be masked.
const REGISTERS: usize = 8;

/// What a description's sources refer to.
pub(crate) struct Values {
    registers: [u64; REGISTERS],
    /// The return address, and behind it the first stack slots.
    window: [u64; WINDOW],
    /// Stack slots in the window.
    slots: u8,
    stack: u64,
    /// A stack slot could not be read.
    pub(crate) unreadable: bool,
}

impl Values {
    /// Values of a call whose first instruction had the stack pointer `stack`.
    #[inline(always)]
    pub(crate) fn new(desc: &ProbeDesc, arguments: [u64; ARGUMENTS], stack: u64) -> Values {
        let mut registers = [0; REGISTERS];
        for index in 0..ARGUMENTS {
            registers[index] = arguments[index];
        }
        let mut values = Values { registers, window: [0; WINDOW], slots: 0, stack, unreadable: false };
        if has_stack_argument(desc) && read_user_into(&raw mut values.window, stack) {
            values.slots = WINDOW as u8 - 1;
        } else {
            // No stack arguments, or the stack ends inside the window.
            read_user_into(&raw mut values.window[0], stack);
        }
        values
    }

    /// The word at the entry stack pointer.
    #[inline(always)]
    pub(crate) fn return_word(&self) -> u64 {
        self.window[0]
    }

    /// Address of a stack slot.
    #[inline(always)]
    pub(crate) fn slot_address(&self, source: Source) -> Option<u64> {
        let slot = source.wrapping_sub(SOURCE_STACK);
        (slot <= MAX_STACK_SLOT).then(|| self.stack.wrapping_add(8 + 8 * u64::from(slot)))
    }

    /// A value; `None`: there is no such value, or its stack slot could not be read.
    #[inline(always)]
    pub(crate) fn get(&mut self, source: Source) -> Option<u64> {
        if usize::from(source) < ARGUMENTS {
            let index = masked::<{ REGISTERS as u64 - 1 }>(usize::from(source));
            // SAFETY: masked; a bounds check's panic would not pass the verifier.
            return Some(unsafe { *self.registers.get_unchecked(index) });
        }
        let slot = source.wrapping_sub(SOURCE_STACK);
        if slot < self.slots {
            let index = masked::<{ WINDOW as u64 - 1 }>(usize::from(slot) + 1);
            // SAFETY: as above.
            return Some(unsafe { *self.window.get_unchecked(index) });
        }
        let value = read_user(self.slot_address(source)?);
        self.unreadable |= value.is_none();
        value
    }
}

/// Whether an argument lies on the stack: its source is below 64 (so not [`SOURCE_NONE`]) and not below 16.
///
/// All at once, a byte each.
///
/// [`SOURCE_NONE`]: rankdiff_common::probe::SOURCE_NONE
#[inline(always)]
fn has_stack_argument(desc: &ProbeDesc) -> bool {
    const _: () = assert!(MAX_ARGS == 8 && SOURCE_STACK + MAX_STACK_SLOT < 64);
    let sources = u64::from_le_bytes(desc.args);
    (sources >> 4 | sources >> 5) & !(sources >> 6) & 0x0101_0101_0101_0101 != 0
}
