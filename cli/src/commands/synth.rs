//! `rankdiff synth`: a scenario file to a trace directory, through the recorder's own writer.

use rankdiff_trace::testgen::{emit, scenario};

use crate::args::Synth;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Synth, output: &Output) -> Result<u8, Failure> {
    let scenarios = scenario::load(&args.file).map_err(|error| Failure::new(USAGE, error))?;
    if scenarios.is_empty() {
        return Err(Failure::message(USAGE, format_args!("{} holds no scenario", args.file.display())));
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::run;
    use crate::args::{Cli, Synth};
    use crate::failure::USAGE;
    use crate::output::Output;

    #[test]
    fn a_file_without_a_scenario_is_said_so() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("none.yaml");
        std::fs::write(&file, "# nothing yet\n").expect("writable");
        let output = Output::new(&Cli::parse_from(["rankdiff", "doctor"]));
        for case in [None, Some("a".to_owned())] {
            let args = Synth { file: file.clone(), case, output: dir.path().join("out") };
            let failure = run(&args, &output).expect_err("there is nothing to write");
            assert_eq!(failure.code(), USAGE);
            assert_eq!(failure.error().to_string(), format!("{} holds no scenario", file.display()));
        }
    }
}
