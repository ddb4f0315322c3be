//! How `rankdiff analyze` grows, one axis at a time: with ranks, and with calls a rank; on healthy jobs and with one
//! planted change. Then where the change lies does not matter: next to every border of the store.
//!
//! Only the changed rank's files are written again between two runs, since a change changes no other.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rankdiff_trace::testgen::grid::{Border, Change, Grid, GridFiles, GridSpec, GroupKind, Plant, Planted};
use serde_json::Value;

use crate::measure::{self, Taken, median};
use crate::space;
use crate::table::Table;

/// Runs of each job after one that warms the cache.
const RUNS: usize = 3;
/// The goals at [`GOAL`]: blocks decoded of all, wall seconds, bytes resident.
const GOALS: (f64, f64, f64) = (0.005, 2.0, 1_073_741_824.0);
/// The job that the goals are set for: ranks, and calls of each.
const GOAL: (u32, u64) = (10_240, 10_000);

/// A job's size: ranks, and calls of each.
type Size = (u32, u64);

/// Measures both axes and the borders.
pub(crate) fn run(folder: &Path, quick: bool, show: &mut dyn FnMut(&str, &Table)) -> Result<()> {
    let rankdiff =
        env::var_os("RANKDIFF_BIN").context("RANKDIFF_BIN names no program to measure; use cargo xtask bench")?;
    let bench = Bench { rankdiff, dir: folder.join("grid") };
    let ranks: &[Size] = if quick { &[(16, 1000), (64, 1000)] } else { &RANKS };
    let calls: &[Size] = if quick { &[(64, 1000), (64, 5000)] } else { &CALLS };
    let by_ranks = bench.axis(ranks)?;
    show("analyzing by digests: more ranks", &by_ranks.table);
    let by_calls = bench.axis(calls)?;
    show("analyzing by digests: more calls a rank", &by_calls.table);
    if !quick {
        show("analyzing by digests: beyond what was measured", &beyond(&by_ranks, &by_calls));
    }
    let size = if quick { (16, 5000) } else { GOAL };
    show(
        &format!("analyzing by digests: where the change lies, {} ranks x {} calls", size.0, size.1),
        &bench.borders(size)?,
    );
    Ok(())
}

/// More ranks.
const RANKS: [Size; 4] = [(64, 10_000), (512, 10_000), (4096, 10_000), GOAL];
/// More calls.
const CALLS: [Size; 3] = [(64, 10_000), (64, 100_000), (64, 1_000_000)];

/// One axis: its table, and what the analysis of each planted job took.
struct Axis {
    table: Table,
    planted: Vec<(Size, f64, f64)>,
}

struct Bench {
    rankdiff: OsString,
    dir: PathBuf,
}

/// What one analysis did.
struct Analysis {
    taken: Taken,
    report: Value,
}

impl Bench {
    fn axis(&self, sizes: &[Size]) -> Result<Axis> {
        let mut axis = Axis { table: Table::new(HEADS), planted: Vec::new() };
        for &size in sizes {
            let (ranks, calls) = size;
            let (needed, free) = (needed(size), space::free(self.dir.parent().unwrap_or(&self.dir))?);
            if needed > free {
                axis.table.note(&format!(
                    "SKIPPED {ranks} ranks x {calls} calls: they take {} MB, {} MB are free; --dir names another place",
                    needed / 1_000_000,
                    free / 1_000_000
                ));
                continue;
            }
            let spec = GridSpec::of_size(ranks, calls);
            let made = Instant::now();
            let written = Grid::new(spec.clone())?.write(&self.dir, &GridFiles::default())?;
            let made = made.elapsed().as_secs_f64();
            let opens = self.open_all()?;
            let healthy = self.repeat(None)?;
            axis.table.row(&row(size, "healthy", &healthy));
            let plant = Plant { change: Change::Op, rank: ranks / 2 + 3, call: calls / 2 };
            let planted = Grid::new(GridSpec { plant: Some(plant), ..spec.clone() })?;
            self.replant(&planted, &GridFiles::default())?;
            let found = self.repeat(planted.planted())?;
            axis.table.row(&row(size, "planted op", &found));
            axis.planted.push((size, found.taken.wall, found.taken.peak as f64));
            axis.table.note(&format!(
                "{ranks} x {calls}: {} blocks in {} files, {:.1} MB, made in {made:.1} s; opening and closing them all takes \
                 {opens:.2} s",
                written.total.blocks,
                written.total.segments,
                written.total.bytes as f64 / 1e6,
            ));
            if size == GOAL {
                axis.table.note(&goals(&[&healthy, &found]));
            }
            fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        axis.table.note(&format!(
            "Medians of {RUNS} runs with a warm cache, each a process of its own; every verdict was checked"
        ));
        Ok(axis)
    }

    /// Every kind of change next to every border, on the world and on a data parallel group.
    fn borders(&self, size: Size) -> Result<Table> {
        let mut table =
            Table::new(&["place", "found", "blocks decoded, most", "wall s, most", "CPU s, most", "peak MiB, most"]);
        let (needed, free) = (needed(size), space::free(self.dir.parent().unwrap_or(&self.dir))?);
        if needed > free {
            table.note(&format!("SKIPPED: {} MB are needed, {} MB free", needed / 1_000_000, free / 1_000_000));
            return Ok(table);
        }
        let spec = GridSpec::of_size(size.0, size.1);
        let healthy = Grid::new(spec.clone())?;
        healthy.write(&self.dir, &GridFiles::default())?;
        // Warm.
        self.analyze(None)?;
        let files = GridFiles { segment_calls: Some(size.1 / 2), ..GridFiles::default() };
        let mut all: Vec<Analysis> = Vec::new();
        for border in Border::ALL {
            let mut runs = Vec::new();
            for kind in [GroupKind::World, GroupKind::Data] {
                for change in [Change::Op, Change::Count, Change::Missing, Change::Extra] {
                    let Some(call) = healthy.at(kind, border, &files) else { continue };
                    let plant = Plant { change, rank: size.0 / 3, call };
                    // A barrier has no count.
                    let Ok(planted) = Grid::new(GridSpec { plant: Some(plant), ..spec.clone() }) else { continue };
                    let mut files = files.clone();
                    if border == Border::Tail {
                        files.open.insert(plant.rank);
                    }
                    self.replant(&planted, &files)?;
                    runs.push(self.analyze(planted.planted())?);
                }
            }
            table.row(&[
                format!("{border:?}"),
                format!("{0} of {0}", runs.len()),
                most(&runs, |run| 100.0 * share(&run.report), " %"),
                most(&runs, |run| run.taken.wall, ""),
                most(&runs, |run| run.taken.cpu, ""),
                most(&runs, |run| run.taken.peak as f64 / 1_048_576.0, ""),
            ]);
            all.extend(runs);
        }
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))?;
        table.note(
            "Op, count, missing and extra call at each place, on the world and on a data parallel group; the changed rank's \
             stream has two segments, and at the tail it is not closed",
        );
        if size == GOAL {
            table.note(&goals(&all.iter().collect::<Vec<_>>()));
        }
        Ok(table)
    }

    /// The middle one of several runs.
    fn repeat(&self, planted: Option<&Planted>) -> Result<Analysis> {
        self.analyze(planted)?;
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(self.analyze(planted)?);
        }
        let middle = median(runs.iter().map(|run| run.taken.wall).collect());
        runs.into_iter().find(|run| run.taken.wall.total_cmp(&middle).is_eq()).context("no runs")
    }

    /// Analyzes the job and holds the verdict against what was planted.
    fn analyze(&self, planted: Option<&Planted>) -> Result<Analysis> {
        let words = ["analyze", "--decode", "digests", "--format", "json"].map(OsString::from);
        let words: Vec<&std::ffi::OsStr> =
            words.iter().map(OsString::as_os_str).chain([self.dir.as_os_str()]).collect();
        let taken = measure::run(&self.rankdiff, &words)?;
        let report: Value = serde_json::from_str(&taken.stdout)
            .with_context(|| format!("analyze printed no report and ended with {:?}", taken.code))?;
        let findings = report.get("findings").and_then(Value::as_array).context("a report without findings")?;
        match (planted, findings.as_slice()) {
            (None, []) => ensure!(taken.code == Some(0), "nothing found, and exit code {:?}", taken.code),
            (None, _) => bail!("a healthy job: {}", report["verdict"]["summary"]),
            (Some(planted), []) => bail!("{planted:?} was not found"),
            (Some(planted), [first, ..]) => {
                let there = first["group"]["name"] == *planted.name && first["first_divergence"] == planted.position;
                ensure!(
                    there && taken.code == Some(1),
                    "{planted:?} was planted, said was: {}",
                    report["verdict"]["summary"]
                );
            }
        }
        Ok(Analysis { taken, report })
    }

    /// Writes the changed rank's stream in place of the one that is there.
    fn replant(&self, grid: &Grid, files: &GridFiles) -> Result<()> {
        let rank = grid.planted().context("nothing is planted")?.plant.rank;
        let key = grid.key(rank);
        let prefix = format!("{}-{}-", key.host, key.pid);
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        grid.write_stream(rank, &self.dir, files)?;
        Ok(())
    }

    /// Seconds to open and close every file of the trace.
    fn open_all(&self) -> Result<f64> {
        let start = Instant::now();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            drop(File::open(&path).with_context(|| format!("cannot open {}", path.display()))?);
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

const HEADS: &[&str] =
    &["ranks", "calls a rank", "job", "blocks decoded", "of", "%", "MB read", "wall s", "CPU s", "peak MiB"];

fn row((ranks, calls): Size, job: &str, Analysis { taken, report }: &Analysis) -> Vec<String> {
    let count = |pick: fn((f64, f64)) -> f64| decoded(report).map_or("all".to_owned(), |both| pick(both).to_string());
    vec![
        ranks.to_string(),
        calls.to_string(),
        job.to_owned(),
        count(|both| both.0),
        count(|both| both.1),
        format!("{:.3}", 100.0 * share(report)),
        format!("{:.1}", taken.read as f64 / 1e6),
        format!("{:.2}", taken.wall),
        format!("{:.2}", taken.cpu),
        format!("{:.0}", taken.peak as f64 / 1_048_576.0),
    ]
}

/// Blocks of calls that were decoded, and that there are. `None`: everything was decoded, which no report counts.
fn decoded(report: &Value) -> Option<(f64, f64)> {
    let decoding = report.get("coverage")?.get("decoding")?;
    Some((decoding.get("blocks")?.as_f64()?, decoding.get("of")?.as_f64()?))
}

/// The share of the blocks that was decoded.
fn share(report: &Value) -> f64 {
    decoded(report).map_or(1.0, |(some, all)| some / all)
}

/// The largest of a number.
fn most(runs: &[Analysis], number: impl Fn(&Analysis) -> f64, unit: &str) -> String {
    runs.iter().map(number).reduce(f64::max).map_or("-".to_owned(), |most| format!("{most:.2}{unit}"))
}

/// The goals beside the worst of what was measured.
fn goals(all: &[&Analysis]) -> String {
    let worst = |number: &dyn Fn(&Analysis) -> f64| all.iter().map(|one| number(one)).fold(0.0, f64::max);
    let decoded = worst(&|one| share(&one.report));
    let (wall, peak) = (worst(&|one| one.taken.wall), worst(&|one| one.taken.peak as f64));
    let met = |is: bool| if is { "met" } else { "MISSED" };
    format!(
        "Goals: under {} % of blocks decoded ({:.3} %: {}), under {} s wall ({wall:.2} s: {}), under {:.0} MiB ({:.0} MiB: {})",
        100.0 * GOALS.0,
        100.0 * decoded,
        met(decoded < GOALS.0),
        GOALS.1,
        met(wall < GOALS.1),
        GOALS.2 / 1_048_576.0,
        peak / 1_048_576.0,
        met(peak < GOALS.2),
    )
}

/// What larger jobs would take if time and memory went on as between the last two points of each axis. Nothing here was
/// measured.
fn beyond(by_ranks: &Axis, by_calls: &Axis) -> Table {
    let mut table = Table::new(&["EXTRAPOLATED, not measured", "wall s", "peak MiB"]);
    let mut next = |name: &str, axis: &Axis, along: &dyn Fn(Size) -> f64, to: f64| {
        let [.., (before, wall_before, peak_before), (last, wall, peak)] = axis.planted.as_slice() else { return };
        let step = (to - along(*last)) / (along(*last) - along(*before));
        let line = |from: f64, until: f64| until + (until - from) * step;
        table.row(&[
            name.to_owned(),
            format!("{:.1}", line(*wall_before, *wall)),
            format!("{:.0}", line(*peak_before, *peak) / 1_048_576.0),
        ]);
    };
    next("100,000 ranks x 10,000 calls", by_ranks, &|size| f64::from(size.0), 100_000.0);
    next("64 ranks x 10,000,000 calls", by_calls, &|size| size.1 as f64, 10_000_000.0);
    table.note("The straight line through the last two points of each axis");
    table
}

/// Bytes that a job takes at most, its definitions and a file system's whole blocks included.
fn needed((ranks, calls): Size) -> u64 {
    let definitions = 16_384 + u64::from(ranks);
    u64::from(ranks) * (calls * 6 + definitions)
}
