//! Records the collective calls of running processes with eBPF: finds libraries, places probes, drains events.

pub mod attach;
pub mod btf;
pub mod describe;
pub mod elf;
pub mod limits;
mod loader;
pub mod maps;
mod multi;
pub mod object;
pub mod points;
pub mod predict;
pub mod privilege;
pub mod prologue;
mod python;

pub use rankdiff_libs::frameworks;

pub mod call_sites;
pub mod caller;
pub mod calls;
pub mod clock;
mod code;
pub mod communicators;
pub mod events;
pub mod identify;
pub mod image;
pub mod installed;
pub mod interpreter;
pub mod place;
pub mod planner;
pub mod process;
pub mod procfs;
pub mod record;
pub mod session;
pub mod sites;
#[cfg(test)]
mod skip;
pub mod snapshot;
pub mod symbols;
pub mod thread;
