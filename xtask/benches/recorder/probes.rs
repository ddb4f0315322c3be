//! What a call costs under each kind of probe: one caller a variant, all on one processor, their batches interleaved so
//! that a change of the machine's speed hits all alike.

use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::UProbeScope;
use rankdiff_common::{probe::flag, program};
use rankdiff_tracer::attach::{Attacher, LoadOptions};
use rankdiff_tracer::points::{PlanOptions, plan};
use rankdiff_tracer::prologue::ExitPoint;

use crate::programs::{Caller, Programs};
use crate::table::Table;

/// The function that is called.
const FUNCTION: &str = "ncclAllReduce";
/// The committed object.
const OBJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tracer-user/ebpf/rankdiff.bpf.o");

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Batches of each variant.
    pub(crate) rounds: usize,
    /// Calls in a batch.
    pub(crate) calls: u64,
}

/// Measures all variants.
pub(crate) fn run(programs: &Programs, size: Size) -> Result<Table> {
    let processor = thread::available_parallelism()?.get() - 1;
    let start = |variant: &str, interposed| -> Result<Caller> {
        programs.start(&programs.library(variant), interposed, processor)
    };
    let mut empty = start("empty", false)?;
    let _empty = attach_empty(&programs.library("empty"), empty.pid())?;

    let mut attacher = Attacher::load(&LoadOptions::default())?;
    let mut entry = start("entry", false)?;
    let mut both = start("both", false)?;
    attach_recorder(&mut attacher, &programs.library("entry"), false)?;
    attach_recorder(&mut attacher, &programs.library("both"), true)?;
    attacher.watch(entry.pid())?;
    attacher.watch(both.pid())?;
    let drain = Drain::start(&mut attacher)?;

    let bpftrace = Bpftrace::start(&programs.library("bpftrace"))?;
    let mut none = start("none", false)?;
    let mut counted = start("bpftrace", false)?;
    let mut interposed = start("interposed", true)?;

    let mut variants = [
        ("no probe", &mut none, Vec::new()),
        ("LD_PRELOAD, 128-byte record", &mut interposed, Vec::new()),
        ("empty entry probe", &mut empty, Vec::new()),
        ("bpftrace, count()", &mut counted, Vec::new()),
        ("rankdiff, entry", &mut entry, Vec::new()),
        ("rankdiff, entry and return", &mut both, Vec::new()),
    ];
    for _ in 0..size.rounds {
        for (_, caller, times) in &mut variants {
            times.push(caller.batch(size.calls)?);
        }
    }
    let base = variants.iter().find(|(name, ..)| *name == "empty entry probe").map(|(.., times)| median(times));
    let base = base.context("nothing was measured")?;
    let mut table = Table::new(&["variant", "ns a call", "lowest", "highest", "to the empty probe"]);
    for (name, _, times) in &variants {
        let middle = median(times);
        table.row(&[
            (*name).to_owned(),
            format!("{middle:.0}"),
            format!("{:.0}", times.iter().copied().fold(f64::INFINITY, f64::min)),
            format!("{:.0}", times.iter().copied().fold(0.0, f64::max)),
            format!("{:.2}", middle / base),
        ]);
    }
    drop(variants);
    let made = size.rounds as u64 * (size.calls + size.calls / 10);
    let events = drain.finish();
    let lost: u64 = attacher.lost().iter().sum();
    // Entry events of both callers and the returns of one; anything else would mean that the wrong thing was timed.
    ensure!(events + lost >= 3 * made, "{events} events and {lost} lost from {} calls", 2 * made);
    let counted = bpftrace.finish()?;
    ensure!(counted == made, "bpftrace counted {counted} of {made} calls");
    table.note(&format!(
        "{} batches of {} calls each, interleaved; CPU time of the calling thread; medians; {lost} of {} events lost",
        size.rounds,
        size.calls,
        events + lost
    ));
    Ok(table)
}

pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The empty program, which the recorder never attaches; so this loads an object of its own.
fn attach_empty(library: &Path, pid: u32) -> Result<Ebpf> {
    let object = std::fs::read(OBJECT).with_context(|| format!("cannot read {OBJECT}"))?;
    let mut ebpf = Ebpf::load(&object)?;
    let found = ebpf.program_mut(program::EMPTY).with_context(|| format!("the object has no {}", program::EMPTY))?;
    let empty: &mut UProbe = found.try_into()?;
    empty.load()?;
    let scope = UProbeScope::OneProcess(NonZeroU32::new(pid).context("no process has number 0")?);
    empty.attach(FUNCTION, library, scope)?;
    Ok(ebpf)
}

/// The recorder's own probes, with a return probe or without.
pub(crate) fn attach_recorder(attacher: &mut Attacher, library: &Path, with_return: bool) -> Result<()> {
    let mut plan = plan(library, &PlanOptions::default())?.context("the library has nothing to probe")?;
    for probe in &mut plan.probes {
        ensure!(probe.entry.delta == 0, "{FUNCTION} begins with an instruction that is not emulated");
        probe.exit = with_return.then_some(ExitPoint { delta: 0, cost: probe.entry.cost });
        if with_return {
            probe.desc.flags |= flag::RETURNS;
        }
    }
    let summary = attacher.attach(&plan)?;
    ensure!(summary.attached == 1, "{} probes attached instead of 1: {:?}", summary.attached, summary.failed);
    Ok(())
}

/// Empties the ring, as a recorder would.
pub(crate) struct Drain {
    stop: Arc<AtomicBool>,
    events: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn start(attacher: &mut Attacher) -> Result<Drain> {
        let mut ring = attacher.take_rings()?.calls;
        let stop = Arc::new(AtomicBool::new(false));
        let events = Arc::new(AtomicU64::new(0));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&events));
        let work = move || {
            loop {
                let last = stopped.load(Ordering::Acquire);
                while ring.next().is_some() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                if last {
                    return;
                }
                thread::sleep(Duration::from_millis(2));
            }
        };
        let thread = thread::Builder::new().spawn(work).context("cannot start a thread")?;
        Ok(Drain { stop, events, thread: Some(thread) })
    }

    /// Takes what is left; the number of records.
    pub(crate) fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It has no way to fail but a panic, which it prints itself.
            let _ = thread.join();
        }
        self.events.load(Ordering::Relaxed)
    }
}

/// bpftrace counting the calls.
struct Bpftrace {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Bpftrace {
    fn start(library: &Path) -> Result<Bpftrace> {
        let script = format!(
            "uprobe:{}:{FUNCTION} {{ @calls = count(); }} BEGIN {{ printf(\"ready\\n\"); }}",
            library.display()
        );
        let mut child = Command::new("bpftrace")
            .args(["-B", "line", "-e", &script])
            .stdout(Stdio::piped())
            .spawn()
            .context("no bpftrace: run cargo xtask setup")?;
        let mut output = BufReader::new(child.stdout.take().context("bpftrace has no output")?);
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            ensure!(output.read_line(&mut line)? > 0, "bpftrace ended before it was ready");
        }
        Ok(Bpftrace { child, output })
    }

    /// Ends it; the number of calls that it counted.
    fn finish(mut self) -> Result<u64> {
        let pid = libc::pid_t::try_from(self.child.id())?;
        // SAFETY: a signal to our own child, which was not waited for.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.child.wait()?;
        let count = text.lines().find_map(|line| line.strip_prefix("@calls:"));
        count.with_context(|| format!("bpftrace printed no count but: {text}"))?.trim().parse().context("no number")
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // After an error nobody ended it yet; what it says then no longer matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
