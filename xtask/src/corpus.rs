//! Runs the scenario files with their right answers against the static binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{dist, process};

/// Scenario files, from the root of the checkout.
const CASES: &str = "tests/corpus/cases";
/// Compares the binary's verdicts with the answers.
const RUNNER: &str = "tests/corpus/tools/run_cases.py";

/// Runs them all.
pub(crate) fn run(root: &Path) -> Result<()> {
    let binary = dist::binary(root);
    ensure!(binary.is_file(), "{} is missing: run cargo xtask dist", binary.display());
    let files = cases(root)?;
    ensure!(!files.is_empty(), "{CASES} holds no scenario file");
    let mut command = Command::new(process::python(&["yaml"])?);
    // Python would otherwise leave its caches in the checkout.
    command.current_dir(root).env("PYTHONDONTWRITEBYTECODE", "1").arg(RUNNER).arg("--bin").arg(binary).args(files);
    process::run(&mut command)
}

fn cases(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(CASES)).with_context(|| format!("cannot list {CASES}"))? {
        let name = entry?.file_name();
        let path = Path::new(CASES).join(name);
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
