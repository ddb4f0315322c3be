//! Registers of the traced thread, in terms of the calling convention.
//!
//! The layout of `pt_regs` is that of the processor the object is built for (`CARGO_CFG_BPF_TARGET_ARCH`).

use aya_ebpf::bindings::pt_regs;

/// Integer argument registers that a description can name.
pub(crate) const ARGUMENTS: usize = 6;

/// The integer argument registers, in the calling convention's order.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn arguments(regs: &pt_regs) -> [u64; ARGUMENTS] {
    [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9]
}

/// The stack pointer.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn stack_pointer(regs: &pt_regs) -> u64 {
    regs.rsp
}

/// The stack pointer that the function had at its first instruction, from the registers at its return: `ret` has
/// popped the return address.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn entry_stack_pointer_at_return(regs: &pt_regs) -> u64 {
    regs.rsp.wrapping_sub(8)
}

/// The instruction that the probe is on.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn instruction(regs: &pt_regs) -> u64 {
    regs.rip
}

/// The result register.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn result(regs: &pt_regs) -> u64 {
    regs.rax
}

#[cfg(not(bpf_target_arch = "x86_64"))]
compile_error!("only x86-64 was ever run: the return address in a register needs another call_site.rs");
