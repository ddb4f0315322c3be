//! `rankdiff explain`: what a code means.

use std::io::Write as _;

use rankdiff_analyzer::checks::{CHECKS, explain};

use crate::args::Explain;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Explain, _output: &Output) -> Result<u8, Failure> {
    let mut out = anstream::stdout().lock();
    match &args.code {
        None => {
            for check in CHECKS {
                let meta = check.meta;
                writeln!(out, "{}  {:<24} {}", meta.code, meta.name, meta.summary)?;
            }
        }
        Some(code) => {
            let text = explain(code).ok_or_else(|| {
                Failure::message(
                    USAGE,
                    format_args!("no check has the code or name `{code}`; `rankdiff explain` lists them"),
                )
            })?;
            writeln!(out, "{text}")?;
        }
    }
    Ok(0)
}
