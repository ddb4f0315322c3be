//! What the Python stack of a call costs: the same loop of calls in C, below more and more Python frames.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rankdiff_common::python::PythonConfig;
use rankdiff_tracer::attach::{Attacher, LoadOptions};
use rankdiff_tracer::elf::ElfInfo;
use rankdiff_tracer::interpreter::Interpreter;
use rankdiff_tracer::maps::{openable_path, read_maps};

use crate::probes::{Drain, Size, attach_recorder, median};
use crate::programs::{Caller, Programs};
use crate::table::Table;

/// Python frames of each caller.
const FRAMES: &[u32] = &[3, 9, 17, 32];

/// Measures all depths.
pub(crate) fn run(programs: &Programs, size: Size) -> Result<Table> {
    let processor = thread::available_parallelism()?.get() - 1;
    let python = interpreter()?;
    let mut attacher = Attacher::load(&LoadOptions::default())?;
    attach_recorder(&mut attacher, &programs.library("python"), false)?;
    let drain = Drain::start(&mut attacher)?;
    let mut start = |frames: u32, told: bool| -> Result<Caller> {
        let mut caller = programs.start_python(&python, frames, processor)?;
        // By its first answer the interpreter is up.
        caller.batch(1)?;
        attacher.watch(caller.pid())?;
        if told {
            attacher.set_python(caller.pid(), config(caller.pid())?)?;
        }
        Ok(caller)
    };
    let mut rows = vec![("return address only".to_owned(), 0, start(3, false)?, Vec::new())];
    for &frames in FRAMES {
        rows.push((format!("{frames} Python frames"), frames, start(frames, true)?, Vec::new()));
    }
    for _ in 0..size.rounds {
        for (_, _, caller, times) in &mut rows {
            times.push(caller.batch(size.calls)?);
        }
    }
    let base = rows.first().map(|(.., times)| median(times)).context("nothing was measured")?;
    let mut table = Table::new(&["stack", "ns a call", "over the first", "goal"]);
    for (name, frames, _, times) in &rows {
        let middle = median(times);
        let goal = if *frames == 0 { String::new() } else { format!("{}", 100 + 60 * frames) };
        table.row(&[name.clone(), format!("{middle:.0}"), format!("{:.0}", middle - base), goal]);
    }
    let made = rows.len() as u64 * size.rounds as u64 * (size.calls + size.calls / 10);
    drop(rows);
    let events = drain.finish();
    let lost: u64 = attacher.lost().iter().sum();
    ensure!(events + lost >= made, "{events} events and {lost} lost from {made} calls");
    table.note(&format!(
        "{} batches of {} calls each, interleaved; CPU time of the calling thread; medians; {}",
        size.rounds,
        size.calls,
        python.display()
    ));
    Ok(table)
}

/// The interpreter behind `python3`, which may be a shim.
fn interpreter() -> Result<PathBuf> {
    let script = "import os, sys; print(os.path.realpath(sys.executable))";
    let output = Command::new("python3").args(["-c", script]).output().context("no python3")?;
    ensure!(output.status.success(), "python3 does not run");
    Ok(Path::new(String::from_utf8(output.stdout)?.trim()).to_owned())
}

/// Where a process's interpreter has its parts.
fn config(pid: u32) -> Result<PythonConfig> {
    for mapping in read_maps(pid)?.iter().filter(|mapping| mapping.is_file()) {
        let path = openable_path(pid, mapping);
        let Ok(elf) = ElfInfo::read(&path) else { continue };
        if let Some(found) = Interpreter::find(&elf, &path) {
            return found?.config(&elf, mapping).context("the interpreter is mapped in another way than it is linked");
        }
    }
    anyhow::bail!("process {pid} has no Python interpreter")
}
