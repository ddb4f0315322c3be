//! Reading memory of the traced process and of the kernel, counting in memory that several processors share, and
//! indices that the verifier believes.

use core::arch::asm;
use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_user};

/// Fills `into` from the process's memory. False if any byte of it cannot be read without a page fault; then it is zero.
#[inline(always)]
pub(crate) fn read_user_into<T>(into: *mut T, address: u64) -> bool {
    // SAFETY: `into` is writable for the size of T; the kernel checks the address.
    unsafe { bpf_probe_read_user(into.cast(), size_of::<T>() as u32, address as *const _) == 0 }
}

/// A word of the process's memory; 0 if it cannot be read. For the verifier this is one state where the other form is
/// two, which counts where it is done many times.
#[inline(always)]
pub(crate) fn read_user_or_zero(address: u64) -> u64 {
    let mut value = 0;
    read_user_into(&raw mut value, address);
    value
}

/// A value of the process's memory.
#[inline(always)]
pub(crate) fn read_user<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    read_user_into(&raw mut value, address).then_some(value)
}

/// A value of the kernel's memory.
#[inline(always)]
pub(crate) fn read_kernel<T: Copy + Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: `value` is writable for its size; the kernel checks the address.
    let failed = unsafe { bpf_probe_read_kernel((&raw mut value).cast(), size_of::<T>() as u32, address as *const _) };
    (failed == 0).then_some(value)
}

/// Adds to a counter and gives its value before.
///
/// # Safety
///
/// `counter` points into a map value.
#[inline(always)]
pub(crate) unsafe fn fetch_add(counter: *mut u64, amount: u64) -> u64 {
    // SAFETY: aligned, as all counters in map values are; valid by the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, amount) }
}

/// `index & MASK`, computed where the verifier sees it: the compiler would drop a mask that it proves needless, or keep
/// the bound in one register and use another.
#[inline(always)]
pub(crate) fn masked<const MASK: u64>(index: usize) -> usize {
    let mut index = index as u64;
    // SAFETY: arithmetic only.
    unsafe { asm!("{0} &= {1}", inout(reg) index, const MASK, options(pure, nomem, nostack)) };
    index as usize
}
