//! MPI: MPICH and its family (Intel MPI, MVAPICH), Open MPI, and the standard ABI.
//!
//! Data flow: [`functions`] says where arguments are; [`decoder`] gives each call to [`significance`] (what of its
//! arguments counts on this member) or [`creation`] (new communicators); [`handles`] turns handles into names that are
//! equal in every process, [`types`] follows derived types from their constructors, [`topology`] grids, [`groups`]
//! groups, and [`persistent`] keeps what a request stands for until it is started.
//!
//! Deliberately not here:
//! - Point-to-point: its rate is an order of magnitude above that of collectives, and it has no place in the comparison
//!   of collective streams. Waits are here, since a non-blocking collective hangs in one.
//! - File and window operations after the open: their handle is no communicator. The collectives that an MPI library
//!   makes inside them on a communicator of its own show as calls of that communicator.
//! - Fortran entry points: they end in the C functions.

mod creation;
mod decoder;
mod functions;
mod groups;
mod handles;
mod persistent;
mod significance;
mod topology;
mod types;

use rankdiff_trace::{Level, Semantics};

use crate::spec::{Abi, Defines, Library, no_fields, nothing_to_inspect};

/// MPI, whichever implementation: the markers are what only the library itself defines (a profiling tool defines `MPI_X`
/// too, never `PMPI_X`).
pub(crate) static MPI: Library = Library {
    name: "mpi",
    file_patterns: &["libmpi.so*", "libmpich.so*", "libmpi_abi.so*", "libpmpi.so*"],
    marker_symbols: &["PMPI_Init"],
    alias_prefixes: &["P"],
    level: Level::Library,
    semantics: Semantics(Semantics::BLOCKING.0 | Semantics::NONBLOCKING_DISTINCT.0 | Semantics::SENDS_MAY_BUFFER.0),
    functions: &functions::FUNCTIONS,
    abi,
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |abi| Box::new(decoder::MpiDecoder::new(abi)),
};

/// Open MPI's handles are addresses of its globals; MPICH's family defines the function that `MPI_DUP_FN` stands for in
/// its header; what has neither speaks the standard ABI.
fn abi(defines: Defines<'_>) -> Abi {
    if defines("ompi_mpi_comm_world") {
        handles::OPEN_MPI
    } else if defines("MPIR_Dup_fn") {
        handles::MPICH
    } else {
        handles::STANDARD
    }
}

#[cfg(test)]
mod tests;
