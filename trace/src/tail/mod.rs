//! The live tail: records that are not in a block yet, in a file that outlives the process that writes it.
//!
//! Data flow: [`crate::StreamWriter`] -> `rows` (a record to bytes) -> `writer` (rows of fixed size in a ring, a commit
//! counter behind them, through `map`, a shared mapping of a preallocated file) -> the page cache -> [`reader`] (pread,
//! checks, rows to records). `layout` has the bytes of the header page and of a row, `owner` says who writes.
//!
//! A row is in the tail as soon as [`crate::StreamWriter::write`] returns, and stays there until its record stands in a
//! block of a segment; the blocks say which rows they hold ([`crate::BlockKind::TAIL_ROWS`]), so that tail and segments
//! together give every record once, whenever the writer was killed. docs/format.md, 'Live tail', is normative.
//!
//! Not here: locks (there is one writer, and readers check what they read), syncing to the device (the tail outlives
//! processes, not machines), following a stream ([`crate::follow`]).

pub(crate) mod layout;
#[cfg(unix)]
mod map;
#[cfg(not(unix))]
#[path = "map_none.rs"]
mod map;
mod owner;
pub mod reader;
pub(crate) mod rows;
pub mod snapshot;
pub(crate) mod writer;

pub use layout::Seal;
pub use owner::{Presence, WriterIdentity};
pub use reader::{Tail, TailHeader, TailState};
pub use rows::RowChain;
pub use snapshot::{TailPart, TailSnapshot};

/// How a live tail is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailOptions {
    /// Rows of 128 bytes in the ring (16 to 2^24). A call takes one or two; what does not fit between two blocks makes
    /// smaller blocks.
    pub rows: u32,
}

impl Default for TailOptions {
    /// One mebibyte: room for the calls of a whole block.
    fn default() -> TailOptions {
        TailOptions { rows: 8192 }
    }
}
