//! What rankdiff knows of each collective library: symbols, argument roles, enumerations, identity rules.
//!
//! Data and decoders only: no eBPF, no I/O. A new library is one file here and one line in [`registry`].
//!
//! Data flow: [`spec`] describes functions, the tracer records their raw values, [`decode`] is how it asks what they mean.
//! What is deliberately not here: counters and communicator tables (the tracer's), judgement (the analyzer's).

mod c10d;
pub mod decode;
pub mod frameworks;
pub mod gathered;
mod mccl_metax;
mod mccl_mthreads;
mod mpi;
mod nccl;
mod nccl_family;
mod rccl;
pub mod registry;
pub mod spec;
mod values;
