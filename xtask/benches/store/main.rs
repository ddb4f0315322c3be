//! What the trace store costs: `cargo xtask bench [store] [growth] [follow]`.
//!
//! Ratios are what to look at: everything that is compared is measured side by side in one run.

mod clock;
mod follow;
mod forms;
mod growth;
#[path = "../shared/measure.rs"]
mod measure;
mod recorded;
#[path = "../shared/space.rs"]
mod space;
#[path = "../shared/table.rs"]
mod table;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use rankdiff_trace::Record;
use rankdiff_trace::testgen::grid::{Grid, GridSpec};

/// What can be measured.
const PARTS: &[&str] = &["store", "growth", "follow"];

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let mut arguments = env::args_os().skip(1).filter(|argument| argument != "--bench").peekable();
    if arguments.next_if(|argument| argument == measure::WORD).is_some() {
        return measure::child(arguments);
    }
    let mut quick = false;
    let mut folder = env::temp_dir();
    let mut wanted = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--quick") => quick = true,
            Some("--dir") => folder = PathBuf::from(arguments.next().context("--dir needs a folder")?),
            Some(part) if PARTS.contains(&part) => wanted.push(part.to_owned()),
            _ => anyhow::bail!("no part {}; there are: {}", argument.display(), PARTS.join(", ")),
        }
    }
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == part);
    let folder = space::Folder::make(&folder)?;
    if wants("store") {
        store(folder.path(), quick)?;
    }
    if wants("follow") {
        show("a reader behind eight writers", &follow::run(folder.path(), quick)?);
    }
    if wants("growth") {
        growth::run(folder.path(), quick, &mut show)?;
    }
    folder.remove()
}

/// The trace on disk, with made-up and with recorded calls.
fn store(folder: &std::path::Path, quick: bool) -> Result<()> {
    let spec = GridSpec::of_size(64, if quick { 50_000 } else { 1_000_000 });
    let definitions = definitions(&GridSpec { calls: 1, ..spec.clone() })?;
    let calls = Grid::new(spec)?.calls(0).collect();
    show("the trace on disk: a training step of 96 calls", &forms::run(folder, &forms::Source { definitions, calls })?);
    match recorded::job(folder, if quick { 300 } else { 20_000 })? {
        recorded::Job::Skipped(why) => note(&format!("SKIPPED the trace on disk, recorded calls: {why}")),
        recorded::Job::Recorded { source, as_recorded } => {
            let mut table = forms::run(folder, &source)?;
            table.note(&as_recorded);
            show("the trace on disk: a recorded MPI job", &table);
        }
    }
    Ok(())
}

/// What a rank's stream begins with.
fn definitions(spec: &GridSpec) -> Result<Vec<Record>> {
    let mut definitions = Vec::new();
    Grid::new(spec.clone())?.records::<std::convert::Infallible>(0, &mut |record| {
        if matches!(record, Record::Rank(_) | Record::Site(_) | Record::Comm(_)) {
            definitions.push(record);
        }
        Ok(())
    })?;
    ensure!(!definitions.is_empty(), "a rank without definitions");
    Ok(definitions)
}

#[expect(clippy::print_stdout, reason = "the results")]
fn show(title: &str, table: &table::Table) {
    println!("\n### {title}\n\n{table}");
}

#[expect(clippy::print_stdout, reason = "what is missing from the results")]
fn note(text: &str) {
    println!("\n{text}.");
}
