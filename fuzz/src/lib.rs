//! What the fuzz targets share: streams of arbitrary records, files with checksums put right, memory that is counted,
//! and the first inputs.
//!
//! `cargo xtask fuzz` builds the targets with a stable Rust and runs them; with a nightly one, `cargo fuzz run TARGET`
//! does. What a target claims of its input stands in the target. Not here: the inputs that once failed; each is a test
//! of the package that failed.

pub mod checksums;
#[path = "../../trace/tests/common/expected.rs"]
mod expected;
pub mod memory;
pub mod records;
#[path = "../../trace/tests/common/sample.rs"]
mod sample;
pub mod scratch;
pub mod seeds;

use rankdiff_trace::{ProcessKey, ProcessTrace, Record};

/// What reading a stream of these records must give.
pub fn expected(key: ProcessKey, records: &[Record], closed: bool) -> ProcessTrace {
    expected::expected(key, records, closed)
}
