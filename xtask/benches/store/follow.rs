//! How long a call takes from its write to a reader that follows: eight writers with a live tail and one reader, at full
//! speed and at the pace of a busy job.
//!
//! Each call carries the time just before it was written, on the clock that the reader asks when it gets it. Every call
//! must come once and in order.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rankdiff_trace::follow::{FollowState, JobFollower};
use rankdiff_trace::tail::TailOptions;
use rankdiff_trace::testgen::grid::{Grid, GridSpec};
use rankdiff_trace::{Record, StreamWriter, WriterOptions};

use crate::table::Table;

/// Writers at one time.
const WRITERS: u32 = 8;
/// Calls a second of each writer that is paced.
const PACE: u32 = 5_000;
/// How long the reader waits when there was nothing new.
const REST: Duration = Duration::from_micros(100);
/// How long nothing may come before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures both paces.
pub(crate) fn run(folder: &Path, quick: bool) -> Result<Table> {
    let mut table = Table::new(&["writers", "calls", "M calls/s written", "delay us: half", "99 %", "99.9 %", "most"]);
    let scale: u64 = if quick { 20 } else { 1 };
    for (name, pause, calls) in [
        ("5,000 calls a second each", Some(Duration::from_secs(1) / PACE), 20_000 / scale),
        ("full speed", None, 400_000 / scale),
    ] {
        let dir = folder.join("followed");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let (mut delays, seconds) = measure(&dir, calls, pause)?;
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        delays.sort_unstable();
        let at = |share: f64| {
            let place = (delays.len() as f64 * share) as usize;
            delays.get(place.min(delays.len().saturating_sub(1))).map_or(0.0, |&delay| delay as f64 / 1e3)
        };
        table.row(&[
            name.to_owned(),
            delays.len().to_string(),
            format!("{:.2}", delays.len() as f64 / seconds / 1e6),
            format!("{:.0}", at(0.5)),
            format!("{:.0}", at(0.99)),
            format!("{:.0}", at(0.999)),
            format!("{:.0}", at(1.0)),
        ]);
    }
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    table.note(&format!(
        "{WRITERS} writers and one reader on {processors} processors; every call came once and in order. At full speed the \
         reader falls behind where it has no processor of its own, and the delay is what it has to catch up"
    ));
    Ok(table)
}

/// Delays of all calls in ns, and the seconds that the writers took.
fn measure(dir: &Path, calls: u64, pause: Option<Duration>) -> Result<(Vec<u64>, f64)> {
    let grid = Grid::new(GridSpec { tensor: WRITERS, pipeline: 1, data: 1, calls, ..GridSpec::default() })?;
    let epoch = Instant::now();
    let running = AtomicUsize::new(WRITERS as usize);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|rank| {
                let (grid, running) = (&grid, &running);
                scope.spawn(move || {
                    let done = write(grid, rank, dir, epoch, pause);
                    running.fetch_sub(1, Ordering::Release);
                    done
                })
            })
            .collect();
        let delays = read(dir, calls, epoch, &running);
        let mut seconds = 0.0;
        for writer in writers {
            let taken = writer.join().map_err(|_| anyhow!("a writer panicked"))??;
            seconds = f64::max(seconds, taken);
        }
        Ok((delays?, seconds))
    })
}

fn write(grid: &Grid, rank: u32, dir: &Path, epoch: Instant, pause: Option<Duration>) -> Result<f64> {
    let options =
        WriterOptions { job_id: "bench".to_owned(), tail: Some(TailOptions::default()), ..WriterOptions::default() };
    let mut writer = StreamWriter::create(dir, &grid.key(rank), rankdiff_trace::ClockSnapshot::default(), &options)?;
    let begin = Instant::now();
    let mut next = begin;
    grid.records(rank, &mut |mut record| {
        if let Record::Call(call) = &mut record {
            if let Some(pause) = pause {
                next += pause;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            // Return and entry keep their distance.
            let taken = call.exit.map(|exit| exit - call.enter);
            call.enter = now(epoch);
            call.exit = taken.map(|taken| call.enter + taken);
        }
        writer.write(record)
    })?;
    let summary = writer.close()?;
    ensure!(summary.lost_records == 0, "{summary:?}");
    Ok(begin.elapsed().as_secs_f64())
}

/// ns since the bench began.
fn now(epoch: Instant) -> u64 {
    epoch.elapsed().as_nanos() as u64
}

fn read(dir: &Path, calls: u64, epoch: Instant, running: &AtomicUsize) -> Result<Vec<u64>> {
    let mut follower = JobFollower::new(dir);
    let mut delays = Vec::with_capacity(calls as usize * WRITERS as usize);
    // The next number of each thread of each stream.
    let mut expected = vec![std::collections::BTreeMap::<u32, u64>::new(); WRITERS as usize];
    let mut closed = 0;
    let mut news = Instant::now();
    while closed < WRITERS {
        let batches = follower.poll()?;
        let at = now(epoch);
        if batches.is_empty() {
            let over = running.load(Ordering::Acquire) == 0;
            ensure!(news.elapsed() < PATIENCE, "nothing came any more; writers at work: {}", !over);
            thread::sleep(REST);
            continue;
        }
        news = Instant::now();
        for stream in batches {
            ensure!(stream.batch.problems.is_empty(), "{:?}", stream.batch.problems);
            let next = expected.get_mut(stream.stream).context("more streams than writers")?;
            for record in &stream.batch.records {
                if let Record::Call(call) = record {
                    let next = next.entry(call.thread).or_default();
                    ensure!(
                        call.thread_seq == *next,
                        "call {} of thread {} after {next}",
                        call.thread_seq,
                        call.thread
                    );
                    *next += 1;
                    delays.push(at.saturating_sub(call.enter));
                }
            }
            closed += u32::from(stream.batch.state == FollowState::Closed);
            ensure!(
                matches!(stream.batch.state, FollowState::Open | FollowState::Closed),
                "a stream that was closed is {:?}",
                stream.batch.state
            );
        }
    }
    let made = calls * u64::from(WRITERS);
    ensure!(delays.len() as u64 == made, "{} calls came of {made}", delays.len());
    Ok(delays)
}
