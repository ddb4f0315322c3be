//! `rankdiff list-probes`: which functions would be probed, and where.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rankdiff_tracer::installed;
use rankdiff_tracer::maps;
use rankdiff_tracer::points::{self, PlanOptions};

use crate::args::ListProbes;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &ListProbes, _output: &Output) -> Result<u8, Failure> {
    let files = match args.target.parse::<u32>() {
        Ok(pid) => files_of(pid)?,
        Err(_) => vec![file_of(&args.target)?],
    };
    let mut out = anstream::stdout().lock();
    let mut found = false;
    let mut notes = Vec::new();
    for (open, shown) in &files {
        let plan = match points::plan(open, &PlanOptions::default()) {
            Ok(Some(plan)) => plan,
            Ok(None) => continue,
            Err(error) if files.len() == 1 => return Err(Failure::new(USAGE, error)),
            Err(_) => continue,
        };
        notes.extend(plan.notes.iter().map(|note| format!("{}: {note}", shown.display())));
        if plan.probes.is_empty() {
            continue;
        }
        found = true;
        let rows = points::list_probes(&plan);
        let names: BTreeSet<&str> = rows.iter().map(|row| row.library.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        writeln!(out, "{}: {names}, {} functions", shown.display(), rows.len())?;
        let width = rows.iter().map(|row| row.symbol.len()).max().unwrap_or(0);
        writeln!(out, "  {:<width$}  {:>10}  {:<14}  return", "function", "offset", "entry")?;
        for row in &rows {
            let exit = if row.exit.is_empty() { "-" } else { &row.exit };
            writeln!(out, "  {:<width$}  {:>#10x}  {:<14}  {exit}", row.symbol, row.offset, row.entry)?;
        }
    }
    for note in &notes {
        writeln!(out, "note: {note}")?;
    }
    if !found && notes.is_empty() {
        return Err(Failure::message(
            USAGE,
            format_args!(
                "no collective library in {}: none of its functions is known (`rankdiff doctor` lists the libraries \
                 found on this machine)",
                args.target
            ),
        ));
    }
    Ok(0)
}

/// Executable files mapped in a process: how to open them, how to show them.
fn files_of(pid: u32) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let mappings = maps::read_maps(pid).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => format!("no such process: {pid}"),
            std::io::ErrorKind::PermissionDenied => {
                format!("process {pid} belongs to somebody else: run as that user or as root, or with CAP_SYS_PTRACE")
            }
            _ => format!("cannot read the memory map of process {pid}: {error}"),
        };
        Failure::message(USAGE, why)
    })?;
    let mut files: Vec<(PathBuf, PathBuf)> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.executable && mapping.key.is_some()) {
        if !files.iter().any(|(_, shown)| *shown == mapping.path) {
            files.push((maps::openable_path(pid, mapping), mapping.path.clone()));
        }
    }
    Ok(files)
}

fn file_of(name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let path = Path::new(name);
    if path.exists() {
        return Ok((path.to_owned(), path.to_owned()));
    }
    let found = installed::find(name)
        .ok_or_else(|| Failure::message(USAGE, format_args!("no such file, process or library: {name}")))?;
    Ok((found.clone(), found))
}
