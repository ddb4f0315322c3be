//! `rankdiff synth`: a scenario file, or a large job of a given shape, to a trace directory, through the recorder's own
//! writer.

use std::path::Path;

use rankdiff_trace::testgen::grid::{Grid, GridFiles, GridSpec};
use rankdiff_trace::testgen::{emit, scenario};

use crate::args::Synth;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Synth, output: &Output) -> Result<u8, Failure> {
    match (&args.grid, &args.file) {
        (Some(shape), _) => grid(args, shape, output),
        (None, Some(file)) => described(args, file, output),
        (None, None) => Err(Failure::message(USAGE, "give a scenario file or --grid")),
    }
}

fn described(args: &Synth, file: &Path, output: &Output) -> Result<u8, Failure> {
    let scenarios = scenario::load(file).map_err(|error| Failure::new(USAGE, error))?;
    if scenarios.is_empty() {
        return Err(Failure::message(USAGE, format_args!("{} holds no scenario", file.display())));
    }
    let ids = || scenarios.iter().map(scenario::Scenario::id).collect::<Vec<_>>().join(", ");
    let chosen = match (&args.case, scenarios.as_slice()) {
        (None, [only]) => only,
        (None, _) => {
            return Err(Failure::message(
                USAGE,
                format_args!("{} holds several scenarios; choose one with --case: {}", file.display(), ids()),
            ));
        }
        (Some(id), all) => all.iter().find(|scenario| scenario.id() == id).ok_or_else(|| {
            Failure::message(USAGE, format_args!("no scenario `{id}` in {}; it has: {}", file.display(), ids()))
        })?,
    };
    emit::write(chosen, &args.output).map_err(|error| Failure::new(USAGE, error))?;
    output.say(format_args!("{} written to {}", chosen.id(), args.output.display()));
    Ok(0)
}

fn grid(args: &Synth, shape: &GridSpec, output: &Output) -> Result<u8, Failure> {
    let Synth { calls, plant, blocking, vectors, seed, .. } = *args;
    let spec = GridSpec { calls, plant, blocking, vectors, seed, ..shape.clone() };
    let grid = Grid::new(spec).map_err(|error| Failure::new(USAGE, error))?;
    let written = grid.write(&args.output, &GridFiles::default()).map_err(|error| Failure::new(USAGE, error))?;
    let (ranks, made, to) = (grid.world(), written.total.calls, args.output.display());
    output.say(format_args!("{ranks} ranks, {made} calls, {:.1} MB written to {to}", written.total.bytes as f64 / 1e6));
    if let Some(planted) = grid.planted() {
        let (change, rank) = (planted.plant.change.name(), planted.plant.rank);
        let stops = if grid.hangs() { "; the job stops there" } else { "" };
        output.say(format_args!("planted: {change}, rank {rank}, {} #{}{stops}", planted.name, planted.position));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rankdiff_trace::JobDir;

    use super::run;
    use crate::args::{Cli, Command};
    use crate::failure::{Failure, USAGE};
    use crate::output::Output;

    fn synth(words: &[&str]) -> Result<u8, Failure> {
        let output = Output::new(&Cli::parse_from(["rankdiff", "--quiet", "doctor"]));
        let parsed = Cli::parse_from(["rankdiff", "synth"].iter().chain(words));
        let Command::Synth(args) = parsed.command else { panic!("synth was typed") };
        run(&args, &output)
    }

    #[test]
    fn a_file_without_a_scenario_is_said_so() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("none.yaml");
        std::fs::write(&file, "# nothing yet\n").expect("writable");
        let (file, out) = (file.display().to_string(), dir.path().join("out").display().to_string());
        for case in [&[][..], &["--case", "a"]] {
            let words = [&[file.as_str(), "-o", &out], case].concat();
            let failure = synth(&words).expect_err("there is nothing to write");
            assert_eq!(failure.code(), USAGE);
            assert_eq!(failure.error().to_string(), format!("{file} holds no scenario"));
        }
    }

    #[test]
    fn a_grid_is_written_with_its_change_or_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let out = dir.path().join("out").display().to_string();
        let shape = ["--grid", "tp=2,dp=2", "--calls", "200", "-o", &out];
        let failure = synth(&[&shape[..], &["--plant", "op@200:rank=1"]].concat()).expect_err("no such call");
        assert_eq!(failure.code(), USAGE);
        let failure = synth(&[&shape[..], &["--plant", "op@5:rank=77"]].concat()).expect_err("no such rank");
        assert!(failure.error().to_string().starts_with("there is no rank 77"), "{}", failure.error());
        assert!(!dir.path().join("out").exists());
        assert_eq!(synth(&[&shape[..], &["--plant", "missing@150:rank=1"]].concat()).expect("made"), 0);
        let job = JobDir::open(&dir.path().join("out")).expect("a trace");
        let calls: Vec<usize> = job.streams().iter().map(|stream| stream.read().trace.calls.len()).collect();
        assert_eq!(calls, [200, 199, 200, 200]);
        synth(&shape).expect_err("the directory holds a trace");
    }

    #[test]
    fn a_grid_and_a_file_are_not_both_given() {
        for words in
            [&["a.yaml", "--grid", "tp=2", "-o", "x"][..], &["-o", "x"], &["a.yaml", "--calls", "3", "-o", "x"]]
        {
            assert!(Cli::try_parse_from(["rankdiff", "synth"].iter().chain(words)).is_err(), "{words:?}");
        }
    }
}
