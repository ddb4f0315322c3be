//! The sample of the trace format: checks that it reads as it should, or writes the one of this version to be committed.
//!
//! What is in it, and what every later version must make of it, is in `trace/tests/format_sample.rs`.

use std::path::Path;

use anyhow::{Result, ensure};
use rankdiff_trace::{FORMAT_MAJOR, FORMAT_MINOR};

use crate::process;

/// Where samples are, one folder for each version.
const FOLDER: &str = "tests/corpus/format";

/// Runs the tests; `write`: the one that makes the sample keeps it.
pub(crate) fn run(root: &Path, write: bool) -> Result<()> {
    let mut test = process::cargo(root);
    test.args(["test", "--locked", "--package", "rankdiff-trace", "--test", "format_sample"]);
    let target = root.join(FOLDER).join(format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"));
    if write {
        ensure!(
            !target.exists(),
            "{} is there: a version's sample never changes. A change of the format needs a new version",
            target.display()
        );
        test.env("RANKDIFF_WRITE_SAMPLE", &target).arg("the_sample_of_this_version");
    }
    process::run(&mut test)?;
    if write {
        // It must read as well where it lies.
        run(root, false)?;
        process::say(&format!("wrote {}: commit it", target.display()));
    }
    Ok(())
}
