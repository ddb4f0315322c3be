//! What the tests over the real binary share: where things are, what may be skipped, how often to repeat.
//!
//! Variables: `RANKDIFF_BIN` the binary under test (built when it is not given), `RANKDIFF_REQUIRE_PRIVILEGED=1` a test
//! that would be skipped for want of privileges fails instead, `RANKDIFF_LONG=N` repetitions of `cargo xtask long`.

pub mod examples;
pub mod job_log;
pub mod process;
pub mod random;
pub mod recorder;
mod shared_memory;
pub mod torch;

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo builds.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Cargo, in the checkout.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The binary under test.
///
/// # Panics
/// If it has to be built and does not build.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = env::var_os("RANKDIFF_BIN") {
            return root().join(given);
        }
        let built = cargo().args(["build", "--quiet", "--package", "rankdiff"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the binary under test does not build");
        target_dir().join("debug").join("rankdiff")
    })
}

/// Whether probes can be placed here. If not, the test ends early, unless it may not.
///
/// # Panics
/// If privileges are required (`RANKDIFF_REQUIRE_PRIVILEGED=1`) and missing.
pub fn is_privileged(test: &str) -> bool {
    let privileged = rustix::process::geteuid().is_root();
    if !privileged {
        skipped(test, "it needs root");
    }
    privileged
}

/// Says that a test is not run, and why.
///
/// # Panics
/// If no test may be skipped (`RANKDIFF_REQUIRE_PRIVILEGED=1`, as in CI).
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skipped(test: &str, why: &str) {
    let required = env::var_os("RANKDIFF_REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(!required, "{test} may not be skipped: {why}");
    eprintln!("SKIPPED {test}: {why}");
}

/// How often a test with `repeated` in its name does what it does: `usual` in CI, as told in a long run.
///
/// # Panics
/// If `RANKDIFF_LONG` is no number.
pub fn repetitions(usual: u32) -> u32 {
    match env::var("RANKDIFF_LONG") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RANKDIFF_LONG is no number: {text}")),
        Err(_) => usual,
    }
}

/// Reports what a repeated test saw, once all its repetitions passed; `cargo xtask long` keeps the line.
pub fn report(text: &str) {
    if env::var_os("RANKDIFF_LONG").is_some() {
        // Straight to the stream: the test runner would catch what is printed the usual way.
        let line = format!("long-run: {text}\n");
        // Who does not listen misses nothing that the test's result does not say.
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
}
