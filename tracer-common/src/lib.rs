//! What the eBPF programs and the tracer share: probe descriptions, map keys and values, ring-buffer records.
//!
//! Plain integers in `repr(C)` structs without implicit padding, so that both sides agree byte by byte. No collective
//! library is known here: a probe says which registers and stack slots to read, user space knows what they mean.

#![no_std]

pub mod event;
pub mod map;
pub mod probe;
pub mod program;
pub mod python;

/// Version of everything in this crate; the object carries it and the loader refuses another.
pub const ABI_VERSION: u32 = 2;

/// Section of the object that holds [`ABI_VERSION`] as four little-endian bytes.
pub const ABI_SECTION: &str = ".rankdiff.abi";
