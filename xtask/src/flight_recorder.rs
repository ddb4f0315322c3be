//! Fetches the analyzer of PyTorch's Flight Recorder, for the bench that is run beside it.
//!
//! It comes in torch's wheel, of half a gigabyte; its nine modules need nothing else of it. They are kept where things
//! are built, the wheel is not. Nothing of it is shipped, and CI does not need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Tells the bench where the modules are.
pub(crate) const MODULES: &str = "RANKDIFF_FLIGHT_RECORDER";
/// What is fetched.
const WHEEL: &str = "torch==2.15.0";
/// The package in it.
const PACKAGE: &str = "torch/distributed/flight_recorder";
/// Unpacks a package alone: wheel, package, folder.
const UNPACK: &str = "import sys, zipfile\nwheel = zipfile.ZipFile(sys.argv[1])\nwheel.extractall(sys.argv[3], [name for \
                      name in wheel.namelist() if name.startswith(sys.argv[2] + '/')])";

/// The folder to import from, if the modules are there.
pub(crate) fn fetched(root: &Path) -> Option<PathBuf> {
    let folder = process::target_dir(root).join("flight-recorder");
    folder.join(PACKAGE).join("fr_trace.py").is_file().then_some(folder)
}

/// The folder to import from; the modules are fetched if they are not there.
pub(crate) fn fetch(root: &Path) -> Result<PathBuf> {
    if let Some(folder) = fetched(root) {
        return Ok(folder);
    }
    process::say(&format!("fetching {WHEEL} for its analyzer alone (half a gigabyte, which is not kept)"));
    let folder = process::target_dir(root).join("flight-recorder");
    let wheels = folder.join("wheel");
    fs::create_dir_all(&wheels).with_context(|| format!("cannot make {}", wheels.display()))?;
    let unpacked = unpack(&folder, &wheels);
    fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    unpacked.context("there is nothing to compare with: leave the part `flight-recorder` out")?;
    fetched(root).with_context(|| format!("{WHEEL} holds no {PACKAGE}"))
}

fn unpack(folder: &Path, wheels: &Path) -> Result<()> {
    let python = process::python(&["pip", "zipfile"])?;
    let mut download = Command::new(&python);
    // Nothing is built or run: a wheel is an archive.
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", WHEEL, "--dest"]);
    process::run(download.arg(wheels))?;
    let found: Vec<PathBuf> = fs::read_dir(wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(found.len() == 1, "pip left {} files in {}", found.len(), wheels.display());
    process::run(Command::new(&python).args(["-c", UNPACK]).args(&found).arg(PACKAGE).arg(folder))
}
