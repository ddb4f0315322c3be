//! Side by side with the analyzer of PyTorch's Flight Recorder (`torchfrtrace`) on the same jobs.
//!
//! Its modules are run as they are, alone: they need nothing else of torch, so what importing torch takes is not in
//! these numbers, though the command pays for it. `cargo xtask bench flight-recorder` fetches them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rankdiff_trace::testgen::grid::{Change, Grid, GridFiles, GridSpec, GroupKind, Plant};
use rankdiff_trace::testgen::{emit, scenario};
use serde_json::Value;

use crate::jobs;
use crate::measure::{self, Taken, median};
use crate::table::Table;

/// Names the folder that Python imports its modules from.
pub(crate) const MODULES: &str = "RANKDIFF_FLIGHT_RECORDER";
/// Its entry point.
const MODULE: &str = "torch.distributed.flight_recorder.fr_trace";
/// What the names of dumps begin with, as in `dumps.py`.
const PREFIX: &str = "nccl_trace_rank_";
/// Turns JSON Lines into dumps.
const DUMPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/diagnosis/dumps.py");
/// Calls of a rank.
const CALLS: u64 = 50;
/// The call that differs.
const CALL: u64 = 40;

/// Who is on which communicators.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// All on one.
    One,
    /// Tensor, pipeline and data parallel groups, and one for all.
    Nested,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::One => "one group",
            Shape::Nested => "nested groups",
        }
    }
}

/// A job that both analyze: where it differs.
struct Job {
    group: String,
    position: u64,
    rank: u32,
}

/// What one command made of a job, once for each round.
struct Side {
    rounds: Vec<Taken>,
}

impl Side {
    fn wall(&self) -> f64 {
        median(self.rounds.iter().map(|taken| taken.wall).collect())
    }

    fn cpu(&self) -> f64 {
        median(self.rounds.iter().map(|taken| taken.cpu).collect())
    }

    fn peak(&self) -> f64 {
        median(self.rounds.iter().map(|taken| taken.peak as f64 / 1_048_576.0).collect())
    }
}

/// Measures all sizes; `None` where its modules are not there.
pub(crate) fn run(rankdiff: &OsStr, folder: &Path, quick: bool) -> Result<Option<Table>> {
    let Some(modules) = std::env::var_os(MODULES).map(PathBuf::from) else { return Ok(None) };
    let sizes: &[u32] = if quick { &[16, 64] } else { &[16, 64, 256, 1024] };
    let rounds = if quick { 1 } else { 5 };
    let mut table = Table::new(&[
        "job",
        "ranks",
        "rankdiff s",
        "CPU s",
        "MiB",
        "Flight Recorder s",
        "CPU s",
        "MiB",
        "time to ours",
        "CPU to ours",
        "memory to ours",
        "whom it names",
    ]);
    for shape in [Shape::One, Shape::Nested] {
        // Ranks, and CPU seconds of both.
        let mut points: Vec<(u32, f64, f64)> = Vec::new();
        for &ranks in sizes {
            let (trace, dumps) = (folder.join("trace"), folder.join("dumps"));
            let job = make(shape, ranks, &trace)?;
            export(rankdiff, &trace, &dumps)?;
            let (mut ours, mut theirs) = (Side { rounds: Vec::new() }, Side { rounds: Vec::new() });
            let mut named = String::new();
            // The first round warms the cache.
            for round in 0..=rounds {
                let one = ours_on(rankdiff, &trace, &job)?;
                let other = theirs_on(&modules, &dumps)?;
                named = names(&other.stdout, &job)?;
                if round > 0 {
                    ours.rounds.push(one);
                    theirs.rounds.push(other);
                }
            }
            points.push((ranks, ours.cpu(), theirs.cpu()));
            table.row(&[
                shape.name().to_owned(),
                ranks.to_string(),
                format!("{:.3}", ours.wall()),
                format!("{:.3}", ours.cpu()),
                format!("{:.0}", ours.peak()),
                format!("{:.3}", theirs.wall()),
                format!("{:.3}", theirs.cpu()),
                format!("{:.0}", theirs.peak()),
                format!("{:.1}", theirs.wall() / ours.wall()),
                format!("{:.1}", theirs.cpu() / ours.cpu()),
                format!("{:.1}", theirs.peak() / ours.peak()),
                named,
            ]);
            for dir in [&trace, &dumps] {
                fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
            }
        }
        if let [.., before, last] = points.as_slice() {
            table.note(&format!(
                "{}: {} x the ranks take {:.1} x our CPU seconds and {:.1} x theirs, from {} to {} ranks",
                shape.name(),
                last.0 / before.0,
                last.1 / before.1,
                last.2 / before.2,
                before.0,
                last.0
            ));
        }
    }
    table.note(&format!(
        "{CALLS} calls a rank, call {CALL} of one rank is another operation; medians of {rounds} rounds in turn, whole \
         processes, files in the page cache. The dumps are made from our trace: same calls, sizes, call sites and times"
    ));
    table.note(
        "Flight Recorder: the analyzer of torch's wheel, its modules alone; `torchfrtrace` imports all of torch first, which \
         is not in these numbers",
    );
    table.note("rankdiff names the one rank that differs in every case, which was checked");
    Ok(Some(table))
}

/// Writes the job's trace.
fn make(shape: Shape, ranks: u32, trace: &Path) -> Result<Job> {
    match shape {
        Shape::One => {
            let rank = ranks / 2 + 1;
            let document = jobs::differing(ranks, CALLS, CALL, rank);
            let parsed = scenario::parse("differing.yaml", &document)?;
            emit::write(parsed.first().context("no document")?, trace)?;
            Ok(Job { group: "world".to_owned(), position: CALL, rank })
        }
        Shape::Nested => {
            let spec = GridSpec::of_size(ranks, CALLS);
            let healthy = Grid::new(spec.clone())?;
            // In the tensor parallel group: of its members most agree.
            let call = (CALL..CALLS).find(|call| healthy.place(*call).0 == GroupKind::Tensor);
            let plant = Plant { change: Change::Op, rank: ranks / 2 + 1, call: call.context("no such call")? };
            let grid = Grid::new(GridSpec { plant: Some(plant), ..spec })?;
            grid.write(trace, &GridFiles::default())?;
            let planted = grid.planted().context("nothing is planted")?;
            Ok(Job { group: planted.name.clone(), position: planted.position, rank: plant.rank })
        }
    }
}

/// Makes the dumps of the trace.
fn export(rankdiff: &OsStr, trace: &Path, dumps: &Path) -> Result<()> {
    let lines = trace.with_extension("jsonl");
    let out = File::create(&lines).with_context(|| format!("cannot make {}", lines.display()))?;
    let exported =
        Command::new(rankdiff).arg("export").arg(trace).args(["--to", "jsonl", "-o", "-"]).stdout(out).status()?;
    ensure!(exported.success(), "rankdiff export ended with {exported}");
    let lines_in = File::open(&lines).with_context(|| format!("cannot open {}", lines.display()))?;
    let made = Command::new("python3").arg(DUMPS).arg(dumps).stdin(lines_in).stdout(Stdio::null()).status();
    let made = made.context("cannot start python3")?;
    ensure!(made.success(), "dumps.py ended with {made}");
    fs::remove_file(&lines).with_context(|| format!("cannot remove {}", lines.display()))
}

/// Our analysis, its verdict checked.
fn ours_on(rankdiff: &OsStr, trace: &Path, job: &Job) -> Result<Taken> {
    let taken = measure::run(rankdiff, &["analyze".as_ref(), "--format".as_ref(), "json".as_ref(), trace.as_os_str()])?;
    let report: Value = serde_json::from_str(&taken.stdout)
        .with_context(|| format!("analyze printed no report and ended with {:?}", taken.code))?;
    let first = &report["findings"][0];
    let right = first["group"]["name"] == *job.group
        && first["first_divergence"] == job.position
        && first["suspects"].as_str().and_then(|rank| rank.parse().ok()) == Some(job.rank);
    ensure!(right, "call {} of {} on rank {} differs, said was: {first:#}", job.position, job.group, job.rank);
    Ok(taken)
}

/// Their analysis; what it prints, it prints as errors.
fn theirs_on(modules: &Path, dumps: &Path) -> Result<Taken> {
    let path = OsString::from_iter([OsStr::new("PYTHONPATH="), modules.as_os_str()]);
    let words: [&OsStr; 9] = [
        "-c".as_ref(),
        "exec env \"$0\" \"$@\" 2>&1".as_ref(),
        &path,
        "python3".as_ref(),
        "-m".as_ref(),
        MODULE.as_ref(),
        "-p".as_ref(),
        PREFIX.as_ref(),
        dumps.as_os_str(),
    ];
    let taken = measure::run("/bin/sh".as_ref(), &words)?;
    ensure!(taken.code == Some(0), "{MODULE} ended with {:?}:\n{}", taken.code, taken.stdout);
    Ok(taken)
}

/// Whom it names for the call that differs; an error if it does not find that.
fn names(printed: &str, job: &Job) -> Result<String> {
    // Its positions count from 1.
    let head = format!("Collective sequence number: {} has errors", job.position + 1);
    let found =
        printed.lines().skip_while(|line| *line != head).skip(1).take_while(|line| !line.starts_with("Collective"));
    let group = format!("group info: {}:", job.group);
    let mut found = found.skip_while(|line| !line.starts_with(&group));
    let errors = found.find_map(|line| line.strip_prefix("error msg: "));
    let errors =
        errors.with_context(|| format!("{MODULE} did not find call {} of {}:\n{printed}", job.position, job.group))?;
    let culprits: Vec<u32> =
        errors.split("Culprit rank ").skip(1).filter_map(|rest| rest.split(';').next()?.trim().parse().ok()).collect();
    Ok(match culprits.as_slice() {
        [one] if *one == job.rank => "the one".to_owned(),
        many if many.contains(&job.rank) => format!("the one among {}", many.len()),
        many => format!("the {} others", many.len()),
    })
}
