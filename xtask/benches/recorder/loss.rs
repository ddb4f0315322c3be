//! Eight callers as fast as they can on whatever processors there are: how many calls a second the recorder takes, and
//! how many it loses (and says so) when its ring is too small for them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rankdiff_tracer::attach::LoadOptions;
use rankdiff_tracer::place::Storage;
use rankdiff_tracer::points::PlanOptions;
use rankdiff_tracer::record::{RecordOptions, Watcher, record};
use rankdiff_tracer::session::Attached;

use crate::programs::Programs;
use crate::table::Table;

/// Callers at one time.
const RANKS: u64 = 8;
/// The small ring.
const SMALL: u32 = 1 << 20;

/// Records `calls` calls of each caller, with each ring.
pub(crate) fn run(programs: &Programs, folder: &Path, calls: u64) -> Result<Table> {
    let mut table = Table::new(&[
        "ring",
        "calls",
        "recorded",
        "lost and counted",
        "unaccounted for",
        "calls a second",
        "bytes a call",
    ]);
    for ring_bytes in [LoadOptions::default().ring_bytes, SMALL] {
        let dir = folder.join(format!("loss-{ring_bytes}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        let command =
            [programs.caller().into_os_string(), "-".into(), RANKS.to_string().into(), calls.to_string().into()];
        let options = RecordOptions {
            command: command.to_vec(),
            environment: vec![("LD_PRELOAD".into(), programs.library("loss").into_os_string())],
            dir: dir.clone(),
            storage: Storage::default(),
            timeout: Some(Duration::from_secs(300)),
            stall_after: Duration::from_secs(300),
            end_on_stall: false,
            load: LoadOptions { ring_bytes },
            plan: PlanOptions::default(),
            files: vec![programs.library("loss")],
        };
        let start = Instant::now();
        let recorded = record(&options, &mut Silent)?;
        let taken = start.elapsed().as_secs_f64();
        ensure!(recorded.status.is_some_and(|status| status.success()), "the callers failed: {recorded:?}");
        let totals = recorded.totals;
        let made = RANKS * calls;
        let missing = made.saturating_sub(totals.calls + totals.lost);
        table.row(&[
            format!("{} MiB", ring_bytes >> 20),
            made.to_string(),
            totals.calls.to_string(),
            format!("{} ({:.1} %)", totals.lost, 100.0 * totals.lost as f64 / made as f64),
            missing.to_string(),
            format!("{:.0}", made as f64 / taken),
            format!("{:.1}", totals.bytes as f64 / totals.calls.max(1) as f64),
        ]);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    table.note(&format!(
        "{RANKS} callers that do nothing else; the time is that of the whole recording, from loading the programs to the \
         closed files"
    ));
    Ok(table)
}

/// Nobody looks.
struct Silent;

impl Watcher for Silent {
    fn attached(&mut self, _attached: &Attached) {}
    fn news(&mut self, _attached: &Attached) {}
    fn stalled(&mut self, _since: Duration) {}
}
