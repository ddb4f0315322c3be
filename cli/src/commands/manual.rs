//! `rankdiff completions` and `rankdiff man`: made from the definition of the command line.

use std::io::Write as _;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell, _output: &Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rankdiff", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(0)
}

/// Prints the manual page, or writes all pages.
pub(crate) fn pages(dir: Option<&Path>, output: &Output) -> Result<u8, Failure> {
    match dir {
        None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?,
        Some(dir) => {
            let at = |error: std::io::Error| Failure::message(USAGE, format_args!("{}: {error}", dir.display()));
            std::fs::create_dir_all(dir).map_err(at)?;
            clap_mangen::generate_to(Cli::command(), dir).map_err(at)?;
            output.say(format_args!("manual pages written to {}", dir.display()));
        }
    }
    Ok(0)
}
