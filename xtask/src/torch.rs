//! PyTorch's wheel in a folder of its own, for the jobs over torch.distributed: without the CUDA libraries that it would
//! bring along (four fifths of the download), which empty ones stand in for.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// The wheel.
const WHEEL: &str = "torch==2.15.0";
/// What it needs on a CPU.
const NEEDS: &[&str] =
    &["filelock", "typing-extensions>=4.13", "sympy", "networkx", "jinja2", "fsspec", "setuptools>=77", "numpy"];
/// Makes the empty libraries, from the root of the checkout.
const STUBS: &str = "examples/torch/cuda_stubs.py";

/// Makes the folder if it does not work yet.
pub(crate) fn install(root: &Path) -> Result<()> {
    let folder = process::target_dir(root).join("torch");
    let python = folder.join("bin/python");
    let works = || process::succeeds(Command::new(&python).args(["-c", "import torch.distributed"]));
    if works() {
        return Ok(());
    }
    process::say(&format!("setup: fetching {WHEEL} (half a gigabyte)"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    process::run(Command::new(process::python(&["venv", "ensurepip"])?).args(["-m", "venv"]).arg(&folder))?;
    let pip = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]);
        pip
    };
    process::run(pip().args(["--no-deps", WHEEL]))?;
    process::run(pip().args(NEEDS))?;
    let mut stubs = Command::new(&python);
    process::run(stubs.arg(root.join(STUBS)))?;
    ensure!(works(), "{WHEEL} was installed, but cannot be imported");
    Ok(())
}
