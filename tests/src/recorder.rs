//! The binary under test: recording a job, and reading what it says of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{self, Ended};
use crate::shared_memory;
use crate::{binary, target_dir};

/// Nothing that is tested takes longer than this.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Folders of one recording, removed when dropped.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    made: SystemTime,
}

impl Place {
    /// New folders.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = Place { folder, made: SystemTime::now() };
        std::fs::create_dir(place.logs()).expect("a folder in it");
        place
    }

    /// The folder around all.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the trace goes.
    pub fn trace(&self) -> PathBuf {
        self.path().join("trace")
    }

    /// Where the job's own logs go.
    pub fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }

    /// `rankdiff record` with these flags, for a job that logs into this place. The job's libraries keep their files
    /// here as well.
    pub fn record(&self, flags: &[&str], job: &[String]) -> Command {
        let mut command = rankdiff();
        command.arg("record").args(flags).arg("--no-verdict").arg("-o").arg(self.trace()).arg("--").args(job);
        self.prepare(&mut command);
        command
    }

    /// Sets what a job needs to run here.
    pub fn prepare(&self, command: &mut Command) {
        command
            .env("RANKDIFF_JOB_LOG", self.logs())
            .env("TMPDIR", self.path())
            .env("OMPI_MCA_orte_tmpdir_base", self.path())
            .env("OMPI_MCA_btl_vader_backing_directory", self.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }

    /// The verdict on the trace.
    pub fn analyze(&self, flags: &[&str]) -> Verdict {
        Verdict::of(&self.trace(), flags)
    }

    /// Copies the trace to where it survives, for somebody to look at; returns where.
    pub fn keep(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let kept = target_dir().join("failed-traces").join(format!("{}-{number}", std::process::id()));
        // A trace that cannot be copied must not hide why its test fails.
        let _ = std::fs::create_dir_all(&kept);
        for entry in std::fs::read_dir(self.trace()).into_iter().flatten().flatten() {
            let _ = std::fs::copy(entry.path(), kept.join(entry.file_name()));
        }
        kept
    }

    /// The recorded calls.
    pub fn calls(&self) -> Vec<Value> {
        calls(&self.trace())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        shared_memory::remove_since(self.made);
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

/// The binary under test.
pub fn rankdiff() -> Command {
    let mut command = Command::new(binary());
    command.env_remove("RANKDIFF_LOG").env("NO_COLOR", "1").env("COLUMNS", "120");
    command
}

/// Runs the binary under test with these arguments.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    process::run(rankdiff().args(arguments), LIMIT)
}

/// Records a job to its end and checks that nothing of it is left over.
///
/// # Panics
/// If the recorder does not end, or leaves processes behind.
pub fn record(command: &mut Command) -> Ended {
    let mut running = process::start(command);
    let ended = running.wait(LIMIT).unwrap_or_else(|| panic!("{command:?} has not ended after {LIMIT:?}"));
    let until = Instant::now() + Duration::from_secs(3);
    while !running.alive().is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<String> = running
        .alive()
        .iter()
        .map(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{pid} {}", name.trim())
        })
        .collect();
    assert!(left.is_empty(), "processes of the job are left over: {left:?}\n{}", ended.stderr);
    ended
}

/// The recorded calls of a trace, as `show` prints them.
///
/// # Panics
/// If it prints anything but JSON.
pub fn calls(trace: &Path) -> Vec<Value> {
    let shown = run([OsStr::new("show"), trace.as_os_str(), OsStr::new("--format"), OsStr::new("json-lines")]);
    assert_eq!(shown.code, 0, "show failed: {}", shown.stderr);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    shown.stdout.lines().map(parse).collect()
}

/// What `analyze` says.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Its exit code.
    pub code: i32,
    /// The JSON report.
    pub json: Value,
    /// The report for people.
    pub text: String,
}

impl Verdict {
    /// Analyzes a trace, once for programs and once for people.
    ///
    /// # Panics
    /// If there is no report.
    pub fn of(trace: &Path, flags: &[&str]) -> Verdict {
        let analyze = |format: &str| {
            process::run(rankdiff().arg("analyze").arg(trace).args(flags).args(["--format", format]), LIMIT)
        };
        let (json, full) = (analyze("json"), analyze("full"));
        assert_eq!(json.code, full.code, "the exit code depends on the format");
        let parsed = serde_json::from_str(&json.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}\n{}", json.stdout, json.stderr));
        let verdict = Verdict { code: json.code, json: parsed, text: full.stdout };
        assert_eq!(verdict.json["verdict"]["exit"], verdict.code, "the report says another exit code\n{verdict}");
        verdict
    }

    /// Class of the verdict.
    pub fn class(&self) -> &str {
        self.json["verdict"]["class"].as_str().unwrap_or_default()
    }

    /// The finding that the verdict is made of; `Null` if there is none.
    pub fn first(&self) -> &Value {
        &self.json["findings"][0]
    }

    /// A text of the first finding.
    pub fn text_of(&self, key: &str) -> &str {
        self.first()[key].as_str().unwrap_or_default()
    }

    /// Codes of the findings at warning level or above.
    pub fn grave(&self) -> Vec<&str> {
        let findings = self.json["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        findings
            .iter()
            .filter(|finding| finding["severity"] != "note")
            .filter_map(|finding| finding["code"].as_str())
            .collect()
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {}, class {}", self.code, self.class())?;
        f.write_str(&self.text)
    }
}
