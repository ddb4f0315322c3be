//! `rankdiff dump`: where the ranks of a trace stand, in one shot.

use std::io::{BufWriter, Write as _};

use rankdiff_analyzer::render::{RenderOptions, dump_json, dump_text};
use rankdiff_analyzer::{Options, Query, standing_of_outlines};

use crate::args::{Dump, DumpFormat};
use crate::failure::Failure;
use crate::load::{Decode, load};
use crate::output::Output;

/// Runs the command. What it says is no verdict: it never fails for what ranks do.
pub(crate) fn run(args: &Dump, output: &Output) -> Result<u8, Failure> {
    // Where ranks stand is in the files without decoding their calls.
    let loaded = load(&args.paths, Decode::Digests, output)?;
    let options = Options { expected_world: loaded.world, boots: loaded.boots, ..Options::default() };
    let query = Query { ranks: args.rank.clone(), comm: args.comm.clone(), each: args.all };
    let mut standing = standing_of_outlines(loaded.outlines, &options, &query);
    standing.problems.iter_mut().for_each(|problem| *problem = loaded.inputs.shown(problem));
    standing.problems.extend(loaded.problems);
    let mut out = BufWriter::new(std::io::stdout().lock());
    match args.format {
        DumpFormat::Text => {
            // Whoever asks for something particular wants to see it.
            let verbose = args.all || args.rank.is_some() || args.comm.is_some() || output.verbose > 0;
            let look = RenderOptions {
                color: output.stdout_color(),
                verbose,
                width: output.width(),
                ..RenderOptions::default()
            };
            dump_text(&standing, &look, &mut out)?;
        }
        DumpFormat::Json => dump_json(&standing, &mut out)?,
    }
    out.flush()?;
    Ok(0)
}
