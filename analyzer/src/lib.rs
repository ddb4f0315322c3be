//! Aligns per-rank streams of collective calls and names the first divergence.
//!
//! Deterministic and portable: the same input bytes give the same report bytes, and no privilege is needed.
//!
//! Data flow: traces -> `stream` (a stream per rank, one clock) -> `comms` (communicators joined) -> `index` and `rebase`
//! (positions) -> `align` (compared position by position) -> `diverge` with `shift`, `permute`, `merged`, `steps`, `logical`
//! (what a difference means) · `messages`, `creation` · `waits` (who waits for whom), with `queues` (what devices
//! have queued) where the job is `quiet`, and `unjoined` (communicators nobody can compare) · `state`, `deaths`, `lateness` (what became
//! of ranks) -> [`checks`] (findings) -> `verdict` (the decision list) -> [`finding::Report`] -> [`render`].

mod align;
pub mod checks;
mod common;
mod comms;
mod coverage;
mod creation;
mod deaths;
mod diverge;
pub mod finding;
mod index;
mod lateness;
mod logical;
mod merged;
mod messages;
pub mod options;
mod permute;
mod queues;
mod quiet;
mod rebase;
pub mod render;
mod rendezvous;
mod shift;
mod state;
mod steps;
mod stream;
mod tables;
#[cfg(test)]
mod testing;
mod titles;
mod unjoined;
mod vectors;
mod verdict;
mod waits;
mod words;

use rankdiff_trace::ProcessTrace;

pub use finding::Report;
pub use options::Options;

/// Analyzes the traces of a job.
pub fn analyze(traces: Vec<ProcessTrace>, options: &Options) -> Report {
    let attempts = stream::attempts(&traces);
    let reports = attempts
        .iter()
        .map(|attempt| {
            let alignment = align::Alignment::build(attempt, options);
            let findings = verdict::decide(&alignment, checks::run(&alignment));
            let coverage = coverage::of(&alignment);
            (attempt.number, verdict::report(&alignment, findings, coverage))
        })
        .collect();
    verdict::merge(reports).unwrap_or_else(|| Report {
        class: finding::Class::Clean,
        confidence: finding::Confidence::Low,
        summary: "no traces".to_owned(),
        findings: Vec::new(),
        coverage: finding::Coverage::default(),
    })
}
