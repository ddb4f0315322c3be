//! Aligns per-rank streams of collective calls and names the first divergence.
//!
//! Deterministic and portable: the same input bytes give the same report bytes, and no privilege is needed.
//!
//! Data flow: traces -> `stream` with `clocks` (a stream per rank, one clock) -> `comms` (communicators joined) -> `index` and `rebase`
//! (positions) -> `align` (compared position by position) -> `diverge` with `shift`, `permute`, `merged`, `steps`, `logical`
//! (what a difference means) · `messages` with `wildcards`, `creation` · `waits` (who waits for whom) and their `circles`, with
//! `stuck` (calls in which nobody is missing), `queues` (what devices have queued) where the job is `quiet`, and `unjoined`
//! (communicators nobody can compare) · `state`, `deaths`, `lateness` (what became of ranks) -> [`checks`] (findings) -> `verdict` (the decision list) -> [`finding::Report`] -> [`render`].
//!
//! `standing` reads the alignment too: where ranks stand, without a verdict.
//!
//! Large jobs come as outlines: `outline` decides by digests what is decoded, and fills traces with it; `elision` is how what
//! was not decoded stands where members are compared.
//!
//! Beside that: [`input`] turns other formats into traces and [`export`] traces into other formats; `jsonl` is what a line
//! of both is.

mod align;
mod awaited;
pub mod checks;
mod circles;
mod clocks;
mod common;
mod comms;
mod coverage;
mod creation;
mod deaths;
mod diverge;
mod elision;
pub mod export;
pub mod finding;
mod index;
pub mod input;
mod jsonl;
mod lateness;
mod logical;
mod merged;
mod messages;
mod met;
mod misdirected;
mod objects;
pub mod options;
mod outline;
mod permute;
mod queues;
mod quiet;
mod rebase;
pub mod render;
mod rendezvous;
mod shift;
pub mod standing;
mod state;
mod step_marks;
mod steps;
mod stream;
mod stuck;
mod tables;
#[cfg(test)]
mod testing;
mod titles;
mod unjoined;
mod vectors;
mod verdict;
mod waits;
mod wildcards;
mod window;
mod words;

use rankdiff_trace::{ProcessTrace, StreamOutline};

pub use finding::Report;
pub use options::Options;
pub use standing::{Query, Standing, standing, standing_of_outlines};

/// Analyzes the traces of a job.
pub fn analyze(traces: Vec<ProcessTrace>, options: &Options) -> Report {
    report_of(&traces, options, None)
}

/// Analyzes a job by the digests of its streams and decodes only what they leave in question.
///
/// Memory and time grow with ranks, communicators and what surrounds a difference, not with calls. What digests do not
/// hold (call sites, labels, times of calls that agree) is not seen; the report's coverage says so.
pub fn analyze_outlines(outlines: Vec<StreamOutline>, options: &Options) -> Report {
    outline::analyze(outlines, options)
}

fn report_of(traces: &[ProcessTrace], options: &Options, facts: Option<&outline::Facts>) -> Report {
    let attempts = stream::attempts(traces, &options.boots);
    let reports = attempts
        .iter()
        .map(|attempt| {
            let alignment = align::Alignment::build(attempt, options, facts);
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
