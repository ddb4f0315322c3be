//! What a program takes: wall time, CPU time, the most memory that it had resident.
//!
//! The kernel reports a child's peak as not below that of whoever started it, so this bench starts itself as a small
//! process that starts the program.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// First word of the small process.
pub(crate) const WORD: &str = "--measured";

/// What a program took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Seconds from start to end.
    pub(crate) wall: f64,
    /// CPU seconds, of the program and in the kernel.
    pub(crate) cpu: f64,
    /// Most bytes resident.
    pub(crate) peak: u64,
    /// Bytes that it read, from files or wherever else.
    pub(crate) read: u64,
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) stdout: String,
}

/// Runs a program with nothing on its standard input.
pub(crate) fn run(program: &OsStr, arguments: &[&OsStr]) -> Result<Taken> {
    let own = std::env::current_exe().context("cannot tell what this program is")?;
    let output = Command::new(own).arg(WORD).arg(program).args(arguments).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cannot measure {}", program.display());
    serde_json::from_slice(&output.stdout).context("the measuring process printed something else")
}

/// The small process: runs the program and prints what it took.
pub(crate) fn child(mut words: impl Iterator<Item = OsString>) -> Result<()> {
    let program = words.next().context("nothing to measure")?;
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null());
    let before = bytes_read()?;
    let start = Instant::now();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let wall = start.elapsed().as_secs_f64();
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of ours of the right size.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    ensure!(failed == 0, "no resource usage: {}", std::io::Error::last_os_error());
    // SAFETY: zeroes are a valid value of it, and the call succeeded.
    let usage = unsafe { usage.assume_init() };
    let own = before + output.stdout.len() as u64;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let taken = Taken {
        wall,
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak: usage.ru_maxrss.unsigned_abs() * 1024,
        read: bytes_read()?.saturating_sub(own),
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).context("the program printed something that is no text")?,
    };
    print(&serde_json::to_string(&taken)?);
    Ok(())
}

/// Bytes that this process and the children that it waited for have read.
fn bytes_read() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io").context("the kernel counts no bytes that are read")?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("/proc/self/io without rchar")?;
    line.trim().parse().context("/proc/self/io with a strange rchar")
}

#[expect(clippy::print_stdout, reason = "the result, for the process that asked")]
fn print(line: &str) {
    println!("{line}");
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
