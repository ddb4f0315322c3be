//! Whether the answers are right: random programs with one fault each, and healthy ones, of which nothing is to be said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rankdiff_programs::faults::{FAULTS, Row, measure_each};
use rankdiff_programs::files::{Scratch, by_digests, decoded, write};
use rankdiff_programs::healthy::{Job, alarms, job};

use crate::table::Table;

/// The goal: this share of right answers for every fault.
const RIGHT: f64 = 0.99;
/// Most calls of all ranks of a healthy program.
const MOST_CALLS: u64 = 2_000_000;
/// One healthy program in so many goes through files.
const THROUGH_FILES: u64 = 200;

/// How many programs, and of which seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) seed: u64,
    /// Programs with each fault.
    pub(crate) faulty: u64,
    /// Healthy programs.
    pub(crate) healthy: u64,
}

/// The faults. What did not get its right answer is kept.
pub(crate) fn faults(work: Work) -> Result<Table> {
    let kept = Kept::default();
    let begun = Instant::now();
    let rows = on_all_processors(FAULTS.len(), |at| {
        let fault = FAULTS[at];
        measure_each(work.seed, work.faulty, &[fault], |fault, number, case, verdict| {
            kept.keep(&format!("{fault:?}-{number}"), &case.document, &format!("{verdict:?}"));
        })
    });
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    let mut table = Table::new(&["fault", "programs", "right", "%", "at least, %", "wrong suspect", "unobservable"]);
    for row in &rows {
        table.row(&[
            row.fault.name(),
            row.tried.to_string(),
            row.right.to_string(),
            format!("{:.1}", 100.0 * share(row)),
            format!("{:.1}", 100.0 * row.lower_bound),
            row.innocent.to_string(),
            row.unobservable.to_string(),
        ]);
    }
    let (below, innocent) =
        (rows.iter().filter(|row| share(row) < RIGHT).count(), rows.iter().map(|row| row.innocent).sum::<u64>());
    table.note(&format!(
        "Seed {} (RANKDIFF_TEST_SEED repeats it), {:.0} s. Right: class, communicator, first divergence and suspects; \
         'unknown' is wrong. At least: the lower end of the 95 % interval. Unobservable: the ranks executed the same as \
         without the fault; counted apart",
        work.seed,
        begun.elapsed().as_secs_f64()
    ));
    table.note(&format!(
        "Goals: {} % right for every fault ({below} of {} below: {}), no wrong suspect ({innocent}: {})",
        100.0 * RIGHT,
        rows.len(),
        met(below == 0),
        met(innocent == 0)
    ));
    kept.note(&mut table, "answers that were not right")?;
    Ok(table)
}

fn share(row: &Row) -> f64 {
    row.right as f64 / row.tried.max(1) as f64
}

/// The healthy programs, by the number of calls of all their ranks.
pub(crate) fn healthy(work: Work) -> Result<Table> {
    let kept = Kept::default();
    let begun = Instant::now();
    let counts: Mutex<BTreeMap<u32, Counts>> = Mutex::default();
    on_all_processors(work.healthy as usize, |number| {
        let number = number as u64;
        let mut rng = Rng::with_seed(work.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let job = job(&mut rng, &format!("R{number}"), MOST_CALLS);
        let mut found = alarms(&job.report(), job.whole);
        let filed = number % THROUGH_FILES == 1;
        if filed {
            found.extend(through_files(&job, number));
        }
        if !found.is_empty() {
            kept.keep(&format!("healthy-{number}"), &job.kept(), &format!("{found:?}"));
        }
        let mut counts = counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let counts = counts.entry(job.calls.checked_ilog10().unwrap_or(0)).or_default();
        counts.programs += 1;
        counts.calls += job.calls;
        counts.filed += u64::from(filed);
        counts.alarms += u64::from(!found.is_empty());
    });
    let mut table = Table::new(&["healthy: calls of all ranks", "programs", "through files", "calls", "alarms"]);
    let mut all = Counts::default();
    let row = |table: &mut Table, name: String, counts: &Counts| {
        let numbers = [counts.programs, counts.filed, counts.calls, counts.alarms].map(|number| number.to_string());
        table.row(&[vec![name], numbers.to_vec()].concat());
    };
    for (digits, counts) in counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        row(&mut table, format!("below {}", 10_u64.pow(digits + 1)), &counts);
        all.programs += counts.programs;
        all.calls += counts.calls;
        all.filed += counts.filed;
        all.alarms += counts.alarms;
    }
    row(&mut table, "all".to_owned(), &all);
    table.note(&format!(
        "Seed {}, {:.0} s. An alarm: anything at warning level or above, another class than clean, another exit code than 0",
        work.seed,
        begun.elapsed().as_secs_f64()
    ));
    table.note(&format!("Goals: no alarm ({}: {})", all.alarms, met(all.alarms == 0)));
    kept.note(&mut table, "alarms")?;
    Ok(table)
}

/// Programs of a size.
#[derive(Debug, Default)]
struct Counts {
    programs: u64,
    filed: u64,
    calls: u64,
    alarms: u64,
}

/// What is said of the job when it was written and read back, in both modes of decoding.
fn through_files(job: &Job, number: u64) -> Vec<String> {
    let scratch = Scratch::new(&format!("bench-{number}"));
    write(&job.traces(), scratch.path());
    let mut found = alarms(&decoded(scratch.path()), job.whole);
    found.extend(alarms(&by_digests(scratch.path(), None), job.whole));
    found
}

/// What `work` gives for 0 to `number` - 1, in this order; done on all processors.
fn on_all_processors<T: Send>(number: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= number {
                        break;
                    }
                    let made = work(at);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, made));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, made)| made).collect()
}

fn met(is: bool) -> &'static str {
    if is { "met" } else { "MISSED" }
}

/// Documents of programs that did not get their right answer, to be looked at.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(String, String)>>);

impl Kept {
    /// Most documents that are kept.
    const MOST: usize = 200;

    fn keep(&self, name: &str, document: &str, why: &str) {
        let mut kept = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if kept.len() < Kept::MOST {
            let why = why.replace('\n', " ");
            kept.push((format!("{name}.yaml"), format!("# {why}\n{document}")));
        }
    }

    /// Writes them, and says so below the table.
    fn note(self, table: &mut Table, what: &str) -> Result<()> {
        let mut kept = self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if kept.is_empty() {
            return Ok(());
        }
        kept.sort();
        let folder = Kept::folder();
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, document) in &kept {
            let path = folder.join(name);
            std::fs::write(&path, document).with_context(|| format!("cannot write {}", path.display()))?;
        }
        eprint(&format!("{} {what} are kept in {}", kept.len(), folder.display()));
        table.note(&format!("Of the {what}, {} are kept", kept.len()));
        Ok(())
    }

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("diagnosis")
    }
}

#[expect(clippy::print_stderr, reason = "where to look, which is no result")]
fn eprint(line: &str) {
    eprintln!("{line}");
}
