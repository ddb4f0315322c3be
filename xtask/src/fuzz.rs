//! Fuzzing: builds the targets in `fuzz/` with a stable Rust, and runs each for some time. A crash fails, and its input
//! is kept.
//!
//! The targets are laid out for cargo-fuzz, which needs a nightly Rust for its address sanitizer. Without it (the
//! readers hold no unsafe code) all that libFuzzer needs is coverage, and the compiler's pass for that takes its
//! options on stable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// Targets in `fuzz/fuzz_targets`, in the order in which they run.
const TARGETS: &[&str] = &["segment", "job_dir", "tail", "round_trip", "import_jsonl"];

/// Seconds that CI gives all targets together.
const IN_CI: u64 = 60;

/// What makes the compiler count which edges ran, and show libFuzzer what is compared.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cforce-frame-pointers",
    "--cfg=fuzzing",
];

/// Bytes of the largest input.
const MAX_LENGTH: u32 = 16 << 10;
/// Seconds after which an input counts as one that hangs.
const HANGS: u32 = 10;

/// The targets' names, for the command line.
pub(crate) fn names() -> Vec<&'static str> {
    TARGETS.to_vec()
}

/// What CI runs: every target for its share of a minute.
pub(crate) fn in_ci(root: &Path) -> Result<()> {
    for_all(root, IN_CI).map(drop)
}

/// Runs every target for its share of so many seconds; gives a line about each.
pub(crate) fn for_all(root: &Path, seconds: u64) -> Result<Vec<String>> {
    run(root, None, seconds / TARGETS.len() as u64)
}

/// Runs one target, or each of them, for so many seconds; gives a line about each.
pub(crate) fn run(root: &Path, target: Option<&str>, seconds: u64) -> Result<Vec<String>> {
    build(root)?;
    let chosen = TARGETS.iter().filter(|name| target.is_none_or(|target| target == **name));
    chosen.map(|name| fuzz(root, name, seconds)).collect()
}

/// Where inputs, logs and programs go.
fn folder(root: &Path) -> PathBuf {
    process::target_dir(root).join("fuzz")
}

fn build(root: &Path) -> Result<()> {
    let mut build = process::cargo(root);
    build
        .args(["build", "--locked", "--release", "--bins", "--manifest-path", "fuzz/Cargo.toml"])
        // With a target named, what is built for the build itself does without the flags.
        .args(["--target", process::TARGET])
        .env("CARGO_TARGET_DIR", folder(root))
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    process::run(&mut build)
}

fn fuzz(root: &Path, name: &str, seconds: u64) -> Result<String> {
    let place = |kind: &str| -> Result<PathBuf> {
        let path = folder(root).join(kind).join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    };
    let (corpus, seeds, artifacts) = (place("corpus")?, place("seeds")?, place("artifacts")?);
    let log = folder(root).join(format!("{name}.log"));
    let program = folder(root).join(process::TARGET).join("release").join(name);
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={MAX_LENGTH}"))
        .arg(format!("-timeout={HANGS}"))
        .args(["-rss_limit_mb=2048", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        // The corpus comes first: what is found goes there.
        .args([&corpus, &seeds])
        .env("RANKDIFF_SEEDS", &seeds);
    let shown = process::shown(&command);
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = command.stderr(output).status().with_context(|| format!("cannot start `{shown}`"))?;
    let printed = String::from_utf8_lossy(&fs::read(&log).context("the log was just written")?).into_owned();
    if !status.success() {
        let from = printed.lines().count().saturating_sub(40);
        let end: Vec<&str> = printed.lines().skip(from).collect();
        bail!("{}\n`{shown}` failed ({status}); its input is kept in {}", end.join("\n"), artifacts.display());
    }
    let Some(Stats { runs, edges, features }) = stats(&printed) else {
        bail!("`{shown}` ended without its numbers: see {}", log.display())
    };
    ensure!(runs > 0, "`{shown}` ran nothing");
    let line =
        format!("fuzz: {name}: {runs} inputs in {seconds} s, {edges} edges, {features} features, nothing failed");
    process::say(&line);
    Ok(line)
}

/// What libFuzzer says at its end.
#[derive(Debug, PartialEq, Eq)]
struct Stats {
    runs: u64,
    edges: u64,
    features: u64,
}

fn stats(printed: &str) -> Option<Stats> {
    let done = printed.lines().rev().find(|line| line.contains("DONE"))?;
    let words: Vec<&str> = done.split_whitespace().collect();
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse().ok()
    };
    let runs = words.first()?.strip_prefix('#')?.parse().ok()?;
    Some(Stats { runs, edges: after("cov:")?, features: after("ft:")? })
}

#[cfg(test)]
mod tests {
    use super::{Stats, TARGETS, stats};

    #[test]
    fn the_closing_line_is_found() {
        let printed =
            "#2\tINITED cov: 6 ft: 6 corp: 1/1b\n#1193\tDONE   cov: 60 ft: 99 corp: 7/1b lim: 4 exec/s: 2\nDone\n";
        assert_eq!(stats(printed), Some(Stats { runs: 1193, edges: 60, features: 99 }));
        assert_eq!(stats("==1== ERROR: libFuzzer: deadly signal\n"), None);
    }

    #[test]
    fn every_target_has_its_file() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the targets are there")
            .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
            .collect();
        let mut named: Vec<&str> = TARGETS.to_vec();
        files.sort();
        named.sort_unstable();
        assert_eq!(files, named);
    }
}
