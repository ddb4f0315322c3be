//! The libraries that rankdiff knows, a line each.
//!
//! Order matters where one library's markers are among another's symbols: the first match names a file.

use crate::spec::{Defines, Library};

/// Every library, in the order in which a file is matched against them.
pub static LIBRARIES: &[&Library] = &[
    &crate::rccl::RCCL,
    &crate::nccl::NCCL,
    &crate::mccl_metax::MCCL_METAX,
    &crate::mccl_mthreads::MCCL_MTHREADS,
    &crate::mpi::MPI,
    &crate::c10d::GLOO,
];

/// The library of this name.
pub fn library(name: &str) -> Option<&'static Library> {
    LIBRARIES.iter().copied().find(|library| library.name == name)
}

/// The library that an ELF file is, from the symbols that it defines (given as a lookup).
pub fn identify(defines: Defines<'_>) -> Option<&'static Library> {
    LIBRARIES.iter().copied().find(|library| library.marker_symbols.iter().any(|symbol| defines(symbol)))
}

#[cfg(test)]
mod tests;
