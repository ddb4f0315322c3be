//! Big made-up training jobs: tensor x pipeline x data parallel ranks that all make the same calls over four
//! communicators, healthy or with one planted change, made fast enough for benches (10,240 ranks x 10,000 calls).
//!
//! Data flow: [`spec`] (shape, change, what the recorder missed) -> `template` (the 96 calls of a step) -> `stops` (where
//! every rank ends up if the change stops a blocking job) -> [`calls`] (one rank's calls, made one by one) -> [`mod@write`]
//! (traces in memory, or a directory through the real writer on several threads). `text` reads shapes and changes as
//! they are typed.
//!
//! Every call's time and noise follow from (seed, rank, place in the program) alone, so any part of any stream can be
//! made without the rest. Two neighbouring calls of one communicator always differ, so that a missing, extra or swapped
//! call has one place only.
//!
//! Deliberately not here: realism of faults. [`super::generate`] makes small jobs with send and receive, with every kind
//! of fault and the right verdict on it; this makes large ones whose only purpose is their size.

pub mod calls;
pub mod spec;
mod stops;
mod template;
mod text;
pub mod write;

#[cfg(test)]
mod tests;

pub use super::layout::GroupKind;
pub use calls::Calls;
pub use spec::{Border, Change, Grid, GridError, GridSpec, LateAttach, Lost, Plant, Planted, STEP_CALLS};
pub use write::{GridFiles, Written};
