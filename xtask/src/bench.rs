//! Builds and runs the benches. They are bench targets of this package, so that everything else here builds without the
//! recorder.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::results::{self, Origin};
use crate::{flight_recorder, process};

/// A bench target.
struct Target {
    name: &'static str,
    /// What it can measure.
    parts: &'static [&'static str],
    /// Whether it places probes.
    root: bool,
    /// Whether it runs the program that is shipped.
    program: bool,
}

/// The part that compares with the analyzer of PyTorch's Flight Recorder, which must be fetched.
const FLIGHT_RECORDER: &str = "flight-recorder";

const TARGETS: &[Target] = &[
    Target { name: "recorder", parts: &["probes", "python", "loss"], root: true, program: false },
    Target { name: "store", parts: &["store", "follow", "growth"], root: false, program: true },
    Target { name: "diagnosis", parts: &["diagnosis", "hangs", FLIGHT_RECORDER], root: false, program: true },
];

/// How to measure.
#[derive(Debug, Default)]
pub(crate) struct How {
    /// A part of the work only.
    pub(crate) quick: bool,
    /// Where large traces are made.
    pub(crate) dir: Option<PathBuf>,
    /// Keep the results.
    pub(crate) save: bool,
    /// Random programs with each fault, and healthy ones; as many as usual if it is not said.
    pub(crate) programs: Option<(u64, u64)>,
}

/// Names of all parts, for the command line.
pub(crate) fn parts() -> Vec<&'static str> {
    TARGETS.iter().flat_map(|target| target.parts).copied().collect()
}

/// Measures these parts, or all, and keeps the results if that is wanted.
pub(crate) fn run(root: &Path, parts: &[String], how: &How) -> Result<()> {
    let origin = Origin::now(root)?;
    let start = Instant::now();
    let tables = measure(root, parts, how)?;
    if how.save {
        let command = ["cargo xtask bench"].into_iter().chain(parts.iter().map(String::as_str)).collect::<Vec<_>>();
        results::add(root, &origin, &command.join(" "), start.elapsed(), &tables)?;
    }
    Ok(())
}

/// Measures these parts, or all; gives the tables.
pub(crate) fn measure(root: &Path, parts: &[String], how: &How) -> Result<String> {
    let mut tables = String::new();
    for target in TARGETS {
        let wanted: Vec<&String> = parts.iter().filter(|part| target.parts.contains(&part.as_str())).collect();
        if parts.is_empty() || !wanted.is_empty() {
            tables.push_str(&tables_of(root, target, &wanted, how)?);
        }
    }
    Ok(tables)
}

fn tables_of(root: &Path, target: &Target, parts: &[&String], how: &How) -> Result<String> {
    ensure!(!target.root || process::is_root(), "the benches place probes: run them as root");
    // First, so that what cannot be fetched is known before the other parts have taken their time.
    let modules = match parts.iter().any(|part| *part == FLIGHT_RECORDER) {
        true => Some(flight_recorder::fetch(root)?),
        false => flight_recorder::fetched(root),
    };
    let mut command = process::cargo(root);
    command.args(["bench", "--locked", "--quiet", "--package", "xtask", "--bench", target.name, "--"]).args(parts);
    if target.program {
        command.env("RANKDIFF_BIN", program(root)?);
        if let Some(dir) = &how.dir {
            command.arg("--dir").arg(dir);
        }
    }
    if how.quick {
        command.arg("--quick");
    }
    if target.parts.contains(&FLIGHT_RECORDER) {
        if let Some((faulty, healthy)) = how.programs {
            command.args(["--programs", &faulty.to_string(), &healthy.to_string()]);
        }
        if let Some(modules) = modules {
            command.env(flight_recorder::MODULES, modules);
        }
    }
    process::watched(&mut command)
}

/// The program to measure: the one that is named, or a new one.
fn program(root: &Path) -> Result<OsString> {
    if let Some(named) = env::var_os("RANKDIFF_BIN") {
        return Ok(root.join(named).into_os_string());
    }
    process::run(process::cargo(root).args(["build", "--locked", "--quiet", "--release", "--package", "rankdiff"]))?;
    Ok(process::target_dir(root).join("release").join("rankdiff").into_os_string())
}

#[cfg(test)]
mod tests {
    use super::parts;
    use std::collections::HashSet;

    #[test]
    fn parts_have_names_of_their_own() {
        let parts = parts();
        assert_eq!(parts.iter().collect::<HashSet<_>>().len(), parts.len());
    }
}
