//! How good the diagnosis is and what it costs: `cargo xtask bench [diagnosis] [hangs] [flight-recorder]`.
//!
//! Times are compared side by side in one run; answers are counted, and hold on any machine.

mod answers;
mod flight_recorder;
mod hangs;
mod jobs;
#[path = "../shared/measure.rs"]
mod measure;
#[path = "../shared/space.rs"]
mod space;
#[path = "../shared/table.rs"]
mod table;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// What can be measured.
const PARTS: &[&str] = &["diagnosis", "hangs", "flight-recorder"];
/// Programs of each fault, and healthy ones.
const PROGRAMS: (u64, u64) = (300, 2000);
/// The same where it is only to be seen that it runs.
const FEW: (u64, u64) = (10, 100);

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let mut arguments = env::args_os().skip(1).filter(|argument| argument != "--bench").peekable();
    if arguments.next_if(|argument| argument == measure::WORD).is_some() {
        return measure::child(arguments);
    }
    let mut quick = false;
    let mut folder = env::temp_dir();
    let mut programs = None;
    let mut wanted = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64> {
            let text = arguments.next().context("a number is missing")?;
            text.to_str().and_then(|text| text.parse().ok()).context("not a number")
        };
        match argument.to_str() {
            Some("--quick") => quick = true,
            Some("--programs") => programs = Some((number()?, number()?)),
            Some("--dir") => folder = PathBuf::from(arguments.next().context("--dir needs a folder")?),
            Some(part) if PARTS.contains(&part) => wanted.push(part.to_owned()),
            _ => anyhow::bail!("no part {}; there are: {}", argument.display(), PARTS.join(", ")),
        }
    }
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == part);
    if wants("diagnosis") {
        let (faulty, healthy) = programs.unwrap_or(if quick { FEW } else { PROGRAMS });
        let work = answers::Work { seed: rankdiff_programs::seed(), faulty, healthy };
        show("the diagnosis: one fault in a random program", &answers::faults(work)?);
        show("the diagnosis: random healthy programs", &answers::healthy(work)?);
    }
    let folder = space::Folder::make(&folder)?;
    if wants("hangs") {
        show("the diagnosis: very large jobs in one hang", &hangs::run(&hangs::program()?, folder.path(), quick)?);
    }
    if wants("flight-recorder") {
        let title = "the diagnosis: beside the analyzer of PyTorch's Flight Recorder";
        match flight_recorder::run(&hangs::program()?, folder.path(), quick)? {
            Some(table) => show(title, &table),
            None => note("SKIPPED the analyzer of PyTorch's Flight Recorder: name the part to have it fetched"),
        }
    }
    folder.remove()
}

#[expect(clippy::print_stdout, reason = "the results")]
fn show(title: &str, table: &table::Table) {
    println!("\n### {title}\n\n{table}");
}

#[expect(clippy::print_stdout, reason = "what is missing from the results")]
fn note(text: &str) {
    println!("\n{text}.");
}
