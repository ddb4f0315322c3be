//! What recording costs: `cargo xtask bench [probes] [python] [loss]`.
//!
//! Ratios are what to look at: everything that is compared is measured side by side in one run.

mod loss;
mod probes;
mod programs;
mod python;
#[path = "../shared/table.rs"]
mod table;

use std::env;
use std::path::PathBuf;

use anyhow::{Result, ensure};

/// What can be measured.
const PARTS: &[&str] = &["probes", "python", "loss"];

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| *argument != "--quick").collect();
    for part in &wanted {
        ensure!(PARTS.contains(part), "no part '{part}'; there are: {}", PARTS.join(", "));
    }
    let wants = |part: &str| wanted.is_empty() || wanted.contains(&part);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench");
    let programs = programs::Programs::build(&folder)?;
    let scale = if quick { 20 } else { 1 };
    if wants("probes") {
        let size = probes::Size { rounds: if quick { 3 } else { 15 }, calls: 20_000 / scale };
        show("cost of a call", &probes::run(&programs, size)?);
    }
    if wants("python") {
        let size = probes::Size { rounds: if quick { 3 } else { 15 }, calls: 20_000 / scale };
        show("cost of a Python stack", &python::run(&programs, size)?);
    }
    if wants("loss") {
        show("eight callers at full speed", &loss::run(&programs, &folder, 100_000 / scale)?);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the results")]
fn show(title: &str, table: &table::Table) {
    println!("\n### {title}\n\n{table}");
}
