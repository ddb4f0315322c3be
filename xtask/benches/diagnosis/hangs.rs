//! Very large jobs in one hang: what the verdict on them costs, whether it is right, and how much of a screen it takes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rankdiff_trace::testgen::{emit, scenario};
use serde_json::Value;

use crate::jobs::{self, Hang, Size};
use crate::measure::{self, Taken, median};
use crate::space;
use crate::table::Table;

/// Runs of each command after one that warms the cache.
const RUNS: usize = 3;
/// The goals: wall seconds, bytes resident, lines and columns of a screen.
const GOALS: (f64, u64, usize, usize) = (2.0, 1 << 30, 40, 100);
/// Bytes that a rank's files take at most.
const STREAM: u64 = 64 << 10;

/// Measures every kind of hang.
pub(crate) fn run(rankdiff: &OsStr, folder: &Path, quick: bool) -> Result<Table> {
    let size = if quick { Size { ranks: 256, steps: 5 } } else { Size { ranks: 10_240, steps: 50 } };
    let mut table = Table::new(&[
        "hang",
        "verdict",
        "analyze wall s",
        "CPU s",
        "peak MiB",
        "lines x columns",
        "JSON KiB",
        "dump wall s",
        "peak MiB",
        "lines x columns",
    ]);
    let (needed, free) = (u64::from(size.ranks) * STREAM, space::free(folder)?);
    if needed > free {
        table.note(&format!(
            "SKIPPED: {} MB are needed, {} MB free; --dir names another place",
            needed / 1_000_000,
            free / 1_000_000
        ));
        return Ok(table);
    }
    let mut worst = Screen::default();
    let mut most = (0.0_f64, 0_u64);
    for hang in Hang::ALL {
        let dir = folder.join("hang");
        let document = jobs::hung(size, hang);
        let parsed = scenario::parse("hang.yaml", &document)?;
        emit::write(parsed.first().context("no document")?, &dir)?;
        drop((document, parsed));
        let json = analyze(rankdiff, &dir, "json")?;
        let report: Value = serde_json::from_str(&json.stdout)
            .with_context(|| format!("analyze printed no report and ended with {:?}", json.code))?;
        let class = check(size, hang, &report)?;
        let analysis = middle(|| analyze(rankdiff, &dir, "full"))?;
        let dump = middle(|| measure::run(rankdiff, &["dump".as_ref(), dir.as_os_str()]))?;
        let screens = [Screen::of(&analysis.stdout), Screen::of(&dump.stdout)];
        table.row(&[
            hang.name().to_owned(),
            class,
            format!("{:.2}", analysis.wall),
            format!("{:.2}", analysis.cpu),
            mebibytes(analysis.peak),
            screens[0].to_string(),
            format!("{:.0}", json.stdout.len() as f64 / 1024.0),
            format!("{:.2}", dump.wall),
            mebibytes(dump.peak),
            screens[1].to_string(),
        ]);
        most = (most.0.max(analysis.wall).max(dump.wall), most.1.max(analysis.peak).max(dump.peak));
        worst = screens.into_iter().fold(worst, Screen::or);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    table.note(&format!(
        "{} ranks on {} nodes, about {} calls each, every call blocking; medians of {RUNS} runs with a warm cache; class and \
         suspects, or the cycle, of every verdict were checked",
        size.ranks,
        size.ranks / 8,
        size.calls()
    ));
    table.note(&goals(most, worst));
    Ok(table)
}

fn analyze(rankdiff: &OsStr, dir: &Path, format: &str) -> Result<Taken> {
    let taken = measure::run(rankdiff, &["analyze".as_ref(), "--format".as_ref(), format.as_ref(), dir.as_os_str()])?;
    ensure!(taken.code == Some(1), "a hang was analyzed, and the exit code was {:?}:\n{}", taken.code, taken.stdout);
    Ok(taken)
}

/// The middle one of several runs.
fn middle(run: impl Fn() -> Result<Taken>) -> Result<Taken> {
    run()?;
    let runs = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>>>()?;
    let wall = median(runs.iter().map(|run| run.wall).collect());
    runs.into_iter().find(|run| run.wall.total_cmp(&wall).is_eq()).context("no runs")
}

/// Holds a verdict against what was built into the job; gives its class.
fn check(size: Size, hang: Hang, report: &Value) -> Result<String> {
    let first = report["findings"].get(0).context("nothing was found")?;
    let class = report["verdict"]["class"].as_str().context("a verdict without a class")?;
    let odd = size.odd().to_string();
    let cycle = first["cycle"].as_array().map_or(0, Vec::len);
    let (expected, told) = match hang {
        Hang::Missing => ("code_divergence", first["suspects"] == odd),
        Hang::Dead => ("rank_failed", first["failed_ranks"] == odd),
        Hang::Driver => ("driver_stall", first["stalled_ranks"] == odd),
        Hang::Crossed => ("order_inversion", cycle == 2),
        Hang::Ring => ("order_inversion", cycle == size.ranks as usize / 8),
    };
    if class != expected || !told {
        bail!(
            "{}: expected was {expected}, said was: {class}, {}\n{first:#}",
            hang.name(),
            report["verdict"]["summary"]
        );
    }
    Ok(class.to_owned())
}

/// How much of a screen a text takes.
#[derive(Debug, Clone, Copy, Default)]
struct Screen {
    lines: usize,
    columns: usize,
}

impl Screen {
    fn of(text: &str) -> Screen {
        let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        Screen { lines: text.lines().count(), columns }
    }

    fn or(self, other: Screen) -> Screen {
        Screen { lines: self.lines.max(other.lines), columns: self.columns.max(other.columns) }
    }
}

impl std::fmt::Display for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.lines, self.columns)
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1_048_576.0)
}

/// The goals beside the worst of what was measured.
fn goals((wall, peak): (f64, u64), screen: Screen) -> String {
    let met = |is: bool| if is { "met" } else { "MISSED" };
    format!(
        "Goals: under {} s wall ({wall:.2} s: {}), under {} MiB ({} MiB: {}), one screen of {} x {} ({screen}: {})",
        GOALS.0,
        met(wall < GOALS.0),
        mebibytes(GOALS.1),
        mebibytes(peak),
        met(peak < GOALS.1),
        GOALS.2,
        GOALS.3,
        met(screen.lines <= GOALS.2 && screen.columns <= GOALS.3)
    )
}

/// The program to measure.
pub(crate) fn program() -> Result<OsString> {
    std::env::var_os("RANKDIFF_BIN").context("RANKDIFF_BIN names no program to measure; use cargo xtask bench")
}
