//! Turns a [`Report`] into bytes: text for people, one line a finding for `grep`, JSON for programs.
//!
//! A renderer reads findings and coverage and nothing behind them; it draws no conclusions of its own. A new format is
//! one file here and one line in [`FORMATS`]. Whether to colour, how wide the terminal is and where the bytes go is the
//! caller's business. The same report and options give the same bytes.
//!
//! Text that came from a trace is untrusted. Every human-readable format passes it through [`escape`], and JSON keeps
//! what a terminal would obey as `\u` escapes.
//!
//! What the formats expect of a finding's words: `headline` reads on after 'CODE NAME on GROUP (n ranks): ' and so names
//! neither code nor group; `detail` and evidence are single lines without a final stop.

mod concise;
mod dump_json;
mod dump_text;
mod exit;
mod full;
mod json;
mod place;
mod screen;
mod sides;
mod text;
mod window;

use std::fmt;
use std::io::{self, Write};

use crate::finding::Report;

pub use crate::words::grouped;
pub use dump_json::{DUMP_SCHEMA_VERSION, dump_json};
pub use dump_text::dump_text;
pub use exit::ExitPolicy;
pub use json::SCHEMA_VERSION;
pub use text::escape;

/// How to render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderOptions {
    /// Whether to colour; every format can be understood without.
    pub color: bool,
    /// Everything, however long: full stacks, all evidence, every finding in full.
    pub verbose: bool,
    /// Columns to lay out for; widths below 40 are taken as 40.
    pub width: usize,
    /// What decides the exit code, which JSON repeats.
    pub exit: ExitPolicy,
}

impl Default for RenderOptions {
    fn default() -> RenderOptions {
        RenderOptions { color: false, verbose: false, width: 100, exit: ExitPolicy::default() }
    }
}

/// An output format.
pub trait Render: fmt::Debug + Sync {
    /// Name as `--format` takes it.
    fn name(&self) -> &'static str;

    /// What it is, in one line for the help text.
    fn summary(&self) -> &'static str;

    /// Whether people read it; the command line adds headings and hints only to such formats.
    fn is_human_readable(&self) -> bool;

    /// Writes the report.
    ///
    /// # Errors
    /// What the writer returns.
    fn render(&self, report: &Report, options: &RenderOptions, out: &mut dyn Write) -> io::Result<()>;
}

/// Every output format, the default first.
pub const FORMATS: &[&dyn Render] = &[&full::Full, &concise::Concise, &json::Json];

/// The format of this name.
pub fn format_named(name: &str) -> Option<&'static dyn Render> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FORMATS, format_named};

    #[test]
    fn formats_have_unique_names_and_a_summary() {
        let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name()).collect();
        assert_eq!(names.len(), FORMATS.len());
        for format in FORMATS {
            assert_eq!(format_named(format.name()).map(|found| found.name()), Some(format.name()));
            assert!(!format.summary().is_empty() && !format.summary().ends_with('.'), "{}", format.name());
        }
        assert!(format_named("FULL").is_none());
    }
}
