//! `rankdiff doctor`: what recording needs, what is there, what mends the rest.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use rankdiff_tracer::installed;
use rankdiff_tracer::{points, privilege};

use crate::failure::Failure;
use crate::output::Output;

const OK: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WEAK: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// Runs the command. Exit code 1 if recording is not possible.
pub(crate) fn run(_output: &Output) -> Result<u8, Failure> {
    let mut out = anstream::stdout().lock();
    let requirements = privilege::check();
    for requirement in &requirements {
        let (style, mark) = match (requirement.ok, requirement.required) {
            (true, _) => (OK, "ok     "),
            (false, true) => (BAD, "missing"),
            (false, false) => (WEAK, "limited"),
        };
        writeln!(out, "{style}{mark}{style:#}  {:<22} {}", requirement.name, requirement.detail)?;
        if !requirement.ok && !requirement.fix.is_empty() {
            writeln!(out, "         {HINT}{}{HINT:#}", requirement.fix)?;
        }
    }
    writeln!(out)?;
    let files = installed::libraries();
    let options = points::PlanOptions::default();
    for path in &files {
        match points::plan(path, &options) {
            Ok(Some(plan)) if !plan.probes.is_empty() => {
                let names: Vec<&str> = plan.libraries.iter().map(|library| library.name).collect();
                let count = plan.probes.len();
                writeln!(out, "library  {:<22} {count} probe points in {}", names.join(", "), path.display())?;
            }
            Ok(Some(plan)) => {
                for note in &plan.notes {
                    writeln!(out, "library  {:<22} {note}", path.display())?;
                }
            }
            Ok(None) => {}
            Err(error) => writeln!(out, "library  {error}")?,
        }
    }
    if files.is_empty() {
        writeln!(out, "library  none found where the loader looks; libraries of a job are found when it starts")?;
    }
    let able = requirements.iter().all(|requirement| requirement.ok || !requirement.required);
    writeln!(out)?;
    if able {
        writeln!(out, "recording works here: try `rankdiff demo`")?;
    } else {
        writeln!(out, "recording does not work here yet; `analyze`, `show` and `synth` work without any of this")?;
    }
    Ok(u8::from(!able))
}
