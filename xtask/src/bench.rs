//! Builds and runs the benches of recording. They are a bench target of this package, so that everything else here builds
//! without the recorder.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::process;
use crate::results::{self, Origin};

/// Measures these parts, or all; with `save`, keeps the results.
pub(crate) fn run(root: &Path, parts: &[String], quick: bool, save: bool) -> Result<()> {
    ensure!(process::is_root(), "the benches place probes: run them as root");
    let origin = Origin::now(root)?;
    let mut command = process::cargo(root);
    command.args(["bench", "--locked", "--quiet", "--package", "xtask", "--bench", "recorder", "--"]).args(parts);
    if quick {
        command.arg("--quick");
    }
    let start = Instant::now();
    let tables = process::watched(&mut command)?;
    if save {
        let command = ["cargo xtask bench"].into_iter().chain(parts.iter().map(String::as_str)).collect::<Vec<_>>();
        results::add(root, &origin, &command.join(" "), start.elapsed(), &tables)?;
    }
    Ok(())
}
