//! Made-up jobs: scenario files (a job in text) and a seeded generator, for tests, benches, demos and questions of the
//! form 'what would you say if'.
//!
//! Data flow: `yaml` (text to nodes, bounded) -> [`scenario`] with [`call`] and [`steps`] (nodes to a typed job) ->
//! [`schedule`] (when each call is entered and completes) -> `records` (one rank's stream) -> [`emit`] (traces in
//! memory, or a trace directory through the real writer). [`generate`] makes jobs of any size from a seed instead,
//! [`grid`] very large ones.
//!
//! Deliberately not here: the right answers. A scenario's `verdict` is skipped while its text is read, so that nothing
//! that is built from a scenario can depend on it.

pub mod call;
pub mod emit;
pub mod error;
pub mod generate;
pub mod grid;
mod groups;
mod hang;
mod layout;
pub mod people;
mod records;
pub mod scenario;
pub mod schedule;
pub mod steps;
mod yaml;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod generate_tests;
#[cfg(test)]
mod round_trip_tests;

pub use emit::EmitError;
pub use error::ScenarioError;
pub use scenario::Scenario;
