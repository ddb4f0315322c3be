//! The eBPF programs of rankdiff, built for `bpfel-unknown-none` by `cargo xtask ebpf`.
//!
//! One generic pair of programs (`enter`, `exit`) serves every probed function: the attach cookie is the index of a
//! description of what to read. No collective library is known here, and nothing is decided here but what cannot be
//! decided later: positions (sequence numbers), nesting and batches, which must survive a lost record.
//!
//! For any other target this is an empty program, so that a build of the whole workspace needs no BPF toolchain.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch, core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "atomic addition has no stable form on this target")
)]

#[cfg(target_arch = "bpf")]
mod call_site;
#[cfg(target_arch = "bpf")]
mod counters;
#[cfg(target_arch = "bpf")]
mod enter;
#[cfg(target_arch = "bpf")]
mod exit;
#[cfg(target_arch = "bpf")]
mod gather;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod memory;
#[cfg(target_arch = "bpf")]
mod output;
#[cfg(target_arch = "bpf")]
mod process;
#[cfg(target_arch = "bpf")]
mod python;
#[cfg(target_arch = "bpf")]
mod regions;
#[cfg(target_arch = "bpf")]
mod registers;
#[cfg(target_arch = "bpf")]
mod signal;
#[cfg(target_arch = "bpf")]
mod thread;
#[cfg(target_arch = "bpf")]
mod values;

/// Version of the records and map values; the loader refuses another.
#[cfg(target_arch = "bpf")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rankdiff.abi")]
static RANKDIFF_ABI: [u8; 4] = rankdiff_common::ABI_VERSION.to_le_bytes();

/// The kernel lends some helpers only to programs under a licence it knows.
#[cfg(target_arch = "bpf")]
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: a program with a path to here does not pass the verifier.
    loop {}
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}
