//! Calls of a real MPI job, recorded by the program that is shipped.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rankdiff_trace::{JobDir, ProcessTrace, Record};

use crate::forms::Source;

/// Processes of the job: they wait by asking again and again, so each needs a processor.
const RANKS: &str = "2";
/// After so long what was recorded is enough.
const LIMIT: &str = "60s";
/// What the job needs.
const PROGRAMS: &[&str] = &["make", "mpicc.mpich", "mpiexec.hydra"];

/// The job's calls, or why there are none.
pub(crate) enum Job {
    /// It could not be recorded here.
    Skipped(String),
    /// The stream of rank 0, and what the recording as a whole took.
    Recorded { source: Source, as_recorded: String },
}

/// Records a job of so many steps.
pub(crate) fn job(folder: &Path, steps: u32) -> Result<Job> {
    // SAFETY: it has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(Job::Skipped("recording needs root".to_owned()));
    }
    let missing: Vec<&str> = PROGRAMS.iter().copied().filter(|name| !on_path(name)).collect();
    if !missing.is_empty() {
        return Ok(Job::Skipped(format!("no {}; `cargo xtask setup` installs them", missing.join(", "))));
    }
    let Some(rankdiff) = env::var_os("RANKDIFF_BIN") else {
        return Ok(Job::Skipped("no program to record with; `cargo xtask bench` builds one".to_owned()));
    };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let built = folder.join("examples");
    let out = format!("OUT={}", built.display());
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(examples).args([out.as_str(), "mpich"]).stdout(Stdio::null());
    ensure!(make.status().context("cannot start make")?.success(), "make -C examples {out} mpich failed");
    let dir = folder.join("recorded");
    let steps = steps.to_string();
    let status = Command::new(rankdiff)
        .args(["--quiet", "record", "--timeout", LIMIT, "-o"])
        .arg(&dir)
        .args(["--", "mpiexec.hydra", "-n", RANKS])
        .arg(built.join("mpi_job.mpich"))
        .args(["plain", "--iters", &steps])
        .stdout(Stdio::null())
        .status()
        .context("cannot start the recording")?;
    // 124: the time was up.
    ensure!(matches!(status.code(), Some(0 | 124)), "recording an MPI job failed ({status})");
    let recorded = read(&dir)?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    Ok(recorded)
}

fn read(dir: &Path) -> Result<Job> {
    let job = JobDir::open(dir)?;
    let mut calls = 0;
    let mut largest = ProcessTrace::default();
    for stream in job.streams() {
        let outcome = stream.read();
        ensure!(outcome.problems.is_empty(), "{:?}", outcome.problems);
        calls += outcome.trace.calls.len() as u64;
        if outcome.trace.calls.len() > largest.calls.len() {
            largest = outcome.trace;
        }
    }
    ensure!(calls > 0, "no call was recorded");
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if Path::new(&entry.file_name()).extension().is_some_and(|extension| extension == "rdt") {
            bytes += entry.metadata()?.len();
        }
    }
    let as_recorded = format!(
        "As recorded, {} processes, definitions and evidence included: {calls} calls, {:.2} bytes each; the table has the \
         calls of one of them",
        job.streams().len(),
        bytes as f64 / calls as f64,
    );
    Ok(Job::Recorded { source: source(largest), as_recorded })
}

fn source(trace: ProcessTrace) -> Source {
    let ProcessTrace { ranks, comms, types, sites, calls, .. } = trace;
    let mut definitions: Vec<Record> = ranks.into_iter().map(Record::Rank).collect();
    definitions.extend(types.into_iter().map(Record::Type));
    definitions.extend(comms.into_iter().map(Record::Comm));
    definitions.extend(sites.into_iter().map(Record::Site));
    Source { definitions, calls }
}

fn on_path(name: &str) -> bool {
    let found = |folder: PathBuf| folder.join(name).is_file();
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(found))
}
