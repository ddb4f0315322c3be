//! The demo without privileges: traces that were recorded by the demo itself and come with the program.

use std::fs;

use crate::args::Story;
use crate::commands::analyze;
use crate::failure::{Failure, RECORDER};
use crate::load::{Decode, load};
use crate::output::Output;

/// A file of a shipped trace.
type Shipped = (&'static str, &'static [u8]);

include!("shipped_files.rs");

/// Shows the analysis of a shipped trace.
pub(crate) fn show(story: Story, output: &Output) -> Result<u8, Failure> {
    let files = match story {
        Story::Diverge => DIVERGE,
        Story::Stall => STALL,
    };
    let failed = |error: std::io::Error| Failure::new(RECORDER, error);
    let dir = tempfile::tempdir().map_err(failed)?;
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).map_err(failed)?;
    }
    let report = super::report_options();
    let found = analyze::report(load(&[dir.path().to_owned()], Decode::Auto, output)?, &report)?;
    analyze::print(&found, &report, output)
}
