//! `rankdiff synth`: a scenario file to a trace directory, through the recorder's own writer.

use rankdiff_trace::testgen::{emit, scenario};

use crate::args::Synth;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Synth, output: &Output) -> Result<u8, Failure> {
    let scenarios = scenario::load(&args.file).map_err(|error| Failure::new(USAGE, error))?;
    let ids = || scenarios.iter().map(scenario::Scenario::id).collect::<Vec<_>>().join(", ");
    let chosen = match (&args.case, scenarios.as_slice()) {
        (None, [only]) => only,
        (None, _) => {
            return Err(Failure::message(
                USAGE,
                format_args!("{} holds several scenarios; choose one with --case: {}", args.file.display(), ids()),
            ));
        }
        (Some(id), all) => all.iter().find(|scenario| scenario.id() == id).ok_or_else(|| {
            Failure::message(USAGE, format_args!("no scenario `{id}` in {}; it has: {}", args.file.display(), ids()))
        })?,
    };
    emit::write(chosen, &args.output).map_err(|error| Failure::new(USAGE, error))?;
    output.say(format_args!("{} written to {}", chosen.id(), args.output.display()));
    Ok(0)
}
