//! `rankdiff demo`: the founding report's job, run for real on this machine.
//!
//! Eight ranks of this same program train two models over the small collective library that the repository ships
//! (`cpuccl`, host memory only). Nothing is simulated: the ranks hang, eBPF probes see their calls, and the verdict comes
//! from the trace.

pub(crate) mod job;
pub(crate) mod rank;
mod shipped;
mod stall;

use std::ffi::OsString;
use std::time::Duration;

use rankdiff_tracer::attach::LoadOptions;
use rankdiff_tracer::place::Storage;
use rankdiff_tracer::points::PlanOptions;
use rankdiff_tracer::record::RecordOptions;

use crate::args::{Demo, FailOn, Report, Story};
use crate::commands::{analyze, record};
use crate::failure::{Failure, RECORDER};
use crate::load::{Decode, load};
use crate::output::Output;

/// Without a call for so long the demo's job hangs for good: its ranks never compute longer than some milliseconds.
const STALL: Duration = Duration::from_millis(1500);
/// No demo takes longer than this, whatever happens.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the command. The exit code is the report's.
pub(crate) fn run(args: &Demo, output: &Output) -> Result<u8, Failure> {
    if let Err(failure) = record::refuse_without_privilege() {
        output.warn(format_args!("{:#}", failure.error()));
        output.say("\nThis is what the demo shows where recording works (from a trace that comes with rankdiff):\n");
        return shipped::show(args.story, output);
    }
    let dir = args.output.clone().unwrap_or_else(record::default_dir);
    let this = std::env::current_exe().map_err(|error| Failure::new(RECORDER, error))?;
    output.say(introduction(args));
    let id = rank::new_id()?;
    let options = RecordOptions {
        command: command(this.into_os_string(), args),
        environment: vec![(job::ID_VARIABLE.into(), id.clone().into())],
        dir: dir.clone(),
        storage: Storage { named: args.output.is_some(), ..Storage::default() },
        timeout: Some(LIMIT),
        stall_after: STALL,
        end_on_stall: true,
        load: LoadOptions::default(),
        plan: PlanOptions::default(),
        files: Vec::new(),
    };
    let recorded = record::record(&options, output);
    rank::clean_up(&id);
    let recorded = recorded?;
    output.say(format_args!(
        "{} calls of {} processes recorded; the job {}\n",
        recorded.totals.calls,
        recorded.totals.streams,
        if recorded.status.is_some() { "ended by itself" } else { "hung and was ended" },
    ));
    let report = report_options();
    let found = analyze::report(load(std::slice::from_ref(&dir), Decode::Auto, output)?, &report)?;
    let code = analyze::print(&found, &report, output)?;
    output.say("");
    output.hint(format_args!("the trace is kept: {}", dir.display()));
    output.hint(format_args!("  rankdiff analyze {} --format json   the same for programs", dir.display()));
    output.hint(format_args!("  rankdiff show {} --last 3           the last calls of each rank", dir.display()));
    if args.story == Story::Diverge {
        output.hint(
            "  rankdiff demo stall                    the other half of the report: a driver call that never ends",
        );
    }
    output.hint("  rankdiff record -- mpirun -n 4 ./job   a job of your own");
    Ok(code)
}

/// How the demo's traces are judged.
fn report_options() -> Report {
    Report {
        format: "full".to_owned(),
        fail_on: FailOn::Error,
        strict: false,
        stall_after: STALL / 2,
        select: Vec::new(),
        ignore: Vec::new(),
    }
}

fn introduction(args: &Demo) -> String {
    let ranks = args.fault.ranks;
    match args.story {
        Story::Diverge => format!(
            "{ranks} ranks train two models on this machine, 4 gradient all-reduces a micro-step; after {} micro-steps \
             they validate.",
            args.fault.fault_step
        ),
        Story::Stall => format!(
            "{ranks} ranks start up on this machine; before the first barrier each of them talks to its device driver."
        ),
    }
}

fn command(this: OsString, args: &Demo) -> Vec<OsString> {
    let story = match args.story {
        Story::Diverge => "diverge",
        Story::Stall => "stall",
    };
    let mut command = vec![this, "demo-job".into(), "--story".into(), story.into()];
    command.extend(job::fault_arguments(&args.fault).into_iter().map(OsString::from));
    command
}
