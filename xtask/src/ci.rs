//! Everything that must hold before a change goes in: one step after the other, the first failure ends it and says how
//! to run that step alone.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{corpus, dist, docs, ebpf, fuzz, process, setup};

/// One step.
struct Step {
    /// Its name on the command line.
    name: &'static str,
    /// What holds when it succeeds.
    what: &'static str,
    run: fn(&Path) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "setup", what: "everything that the steps need is installed", run: setup::run },
    Step { name: "fmt", what: "the sources are formatted", run: fmt },
    Step { name: "clippy", what: "no lint fires", run: clippy },
    Step { name: "doc", what: "the documentation builds without warnings", run: doc },
    Step {
        name: "ebpf",
        what: "the committed eBPF object is what its source gives",
        run: |root| ebpf::run(root, true),
    },
    Step { name: "docs", what: "the generated pages are current", run: |root| docs::run(root, true) },
    Step { name: "dist", what: "the static binary builds and needs nothing", run: dist::build },
    Step { name: "test", what: "all tests pass, those with eBPF included", run: test },
    Step { name: "fuzz", what: "a minute of inputs that nobody wrote breaks no reader", run: fuzz::in_ci },
    Step { name: "corpus", what: "every scenario gets its right answer from the static binary", run: corpus::run },
];

/// Names of the steps, for the command line.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the steps of these names, or all of them.
pub(crate) fn run(root: &Path, only: &[String]) -> Result<()> {
    let mut times = Vec::new();
    for step in STEPS.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name)) {
        process::say(&format!("\n=== {}: {}", step.name, step.what));
        let start = Instant::now();
        (step.run)(root).with_context(|| {
            format!("CI step `{}` failed; to run it alone: cargo xtask ci --only {}", step.name, step.name)
        })?;
        let taken = start.elapsed();
        process::say(&format!("=== {}: ok ({:.1} s)", step.name, taken.as_secs_f64()));
        times.push((step.name, taken));
    }
    process::say(&summary(&times));
    Ok(())
}

fn summary(times: &[(&str, Duration)]) -> String {
    let total: Duration = times.iter().map(|(_, taken)| *taken).sum();
    let mut text = format!("\nall {} steps passed in {:.0} s:", times.len(), total.as_secs_f64());
    for (name, taken) in times {
        // Writing to a string does not fail.
        let _ = write!(text, " {name} {:.0}", taken.as_secs_f64());
    }
    text
}

fn fmt(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args(["fmt", "--all", "--check"]))
}

/// The eBPF crate is no default member: its code exists only for another target, and the `ebpf` step builds that.
fn clippy(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args([
        "clippy",
        "--locked",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))
}

fn doc(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args(["doc", "--locked", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// The tests over the real binary take the one that is shipped, and may not skip what needs privileges.
fn test(root: &Path) -> Result<()> {
    ensure!(process::is_root(), "the tests with eBPF need root: run this step as root");
    let binary = dist::binary(root);
    ensure!(binary.is_file(), "{} is missing: run the `dist` step first", binary.display());
    let mut command = process::cargo(root);
    command
        .args(["test", "--locked", "--all-features"])
        .env("RANKDIFF_BIN", &binary)
        .env("RANKDIFF_NCCL", setup::nccl_library(root))
        .env("RANKDIFF_REQUIRE_PRIVILEGED", "1")
        .env("RUST_BACKTRACE", "1");
    process::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::{names, summary};
    use std::collections::HashSet;
    use std::time::Duration;

    #[test]
    fn steps_have_names_of_their_own() {
        let names = names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn the_summary_adds_up() {
        let times = [("a", Duration::from_secs(2)), ("b", Duration::from_secs(3))];
        assert_eq!(summary(&times), "\nall 2 steps passed in 5 s: a 2 b 3");
    }
}
