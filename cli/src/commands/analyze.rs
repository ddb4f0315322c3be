//! `rankdiff analyze`: traces to a report.

use std::io::Write as _;

use rankdiff_analyzer::finding::{Report, Severity};
use rankdiff_analyzer::render::{ExitPolicy, RenderOptions, format_named};
use rankdiff_analyzer::{Options, render};

use crate::args::{Analyze, FailOn, Report as ReportArgs};
use crate::failure::{Failure, USAGE};
use crate::load::{Loaded, load};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Analyze, output: &Output) -> Result<u8, Failure> {
    // A format that does not exist is said before anything is read.
    let _ = format_of(&args.report)?;
    let loaded = load(&args.paths, args.decode, output)?;
    let report = report(loaded, &args.report)?;
    print(&report, &args.report, output)
}

/// Analyzes what was read.
pub(crate) fn report(loaded: Loaded, args: &ReportArgs) -> Result<Report, Failure> {
    let options = Options {
        // A job that was ended earlier could not wait any longer.
        stall_after: loaded.ended_after.map_or(args.stall_after, |ended| ended.min(args.stall_after)),
        select: args.select.clone(),
        ignore: args.ignore.clone(),
        expected_world: loaded.world,
        boots: loaded.boots,
        ..Options::default()
    };
    let mut report = if loaded.outlines.is_empty() {
        rankdiff_analyzer::analyze(loaded.traces, &options)
    } else {
        rankdiff_analyzer::analyze_outlines(loaded.outlines, &options)
    };
    // Blocks may have been decoded just now.
    report.coverage.problems.iter_mut().for_each(|problem| *problem = loaded.inputs.shown(problem));
    report.coverage.problems.extend(loaded.problems);
    Ok(report)
}

fn format_of(args: &ReportArgs) -> Result<&'static dyn render::Render, Failure> {
    format_named(&args.format).ok_or_else(|| {
        let names: Vec<&str> = render::FORMATS.iter().map(|format| format.name()).collect();
        Failure::message(USAGE, format_args!("unknown format `{}`; there are: {}", args.format, names.join(", ")))
    })
}

/// Prints a report and returns its exit code.
pub(crate) fn print(report: &Report, args: &ReportArgs, output: &Output) -> Result<u8, Failure> {
    let fail_on = match args.fail_on {
        FailOn::Note => Some(Severity::Note),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Error => Some(Severity::Error),
        FailOn::Never => None,
    };
    let exit = ExitPolicy { fail_on, strict: args.strict };
    let options =
        RenderOptions { color: output.stdout_color(), verbose: output.verbose > 0, width: output.width(), exit };
    let mut out = std::io::stdout().lock();
    format_of(args)?.render(report, &options, &mut out)?;
    out.flush()?;
    Ok(exit.code(report))
}
