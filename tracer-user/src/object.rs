//! The built-in eBPF object and the check that it fits this program.
//!
//! The object is built from `tracer-ebpf` and committed, so that building the tracer takes no BPF toolchain. It carries
//! the version of the records and maps that both sides share.

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};
use rankdiff_common::ABI_VERSION;

/// The object, aligned as an ELF file has to be for reading in place.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/rankdiff.bpf.o");

/// Section that holds the version, a 32-bit number in little-endian order.
const VERSION_SECTION: &str = ".rankdiff.abi";

/// The object does not fit this program: a fault of the build.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ObjectError {
    /// It is no eBPF object.
    #[error("the built-in eBPF object is damaged ({0}); build it again with: cargo xtask ebpf")]
    Damaged(String),
    /// It was built for other records and maps.
    #[error(
        "the built-in eBPF object has version {found} of the records, this program has {ABI_VERSION}; build it again \
         with: cargo xtask ebpf"
    )]
    Version {
        /// The object's version.
        found: u32,
    },
    /// A program is missing.
    #[error("the built-in eBPF object has no program {0}; build it again with: cargo xtask ebpf")]
    NoProgram(&'static str),
    /// A map is missing or of another kind.
    #[error(
        "the map {name} of the built-in eBPF object does not fit ({detail}); build it again with: cargo xtask ebpf"
    )]
    NoMap {
        /// Name.
        name: &'static str,
        /// What is wrong.
        detail: String,
    },
}

/// Checks that an object has the version of this program.
pub fn check_object(bytes: &[u8]) -> Result<(), ObjectError> {
    let damaged = |error: object::Error| ObjectError::Damaged(error.to_string());
    let file = ElfFile64::<object::LittleEndian>::parse(bytes).map_err(damaged)?;
    let section = file
        .section_by_name(VERSION_SECTION)
        .ok_or_else(|| ObjectError::Damaged(format!("no section {VERSION_SECTION}")))?;
    let data = section.data().map_err(damaged)?;
    let found = <[u8; 4]>::try_from(data)
        .map(u32::from_le_bytes)
        .map_err(|_| ObjectError::Damaged(format!("{} bytes in {VERSION_SECTION}, not 4", data.len())))?;
    if found == ABI_VERSION { Ok(()) } else { Err(ObjectError::Version { found }) }
}
