//! Blocks as they were written: one by one, or all that one write put behind a note of the tail's rows.
//!
//! A writer with a live tail puts the note in front, so that a reader knows whether the whole write is there: what is
//! cut off is read from the tail instead, and nothing twice.

use std::io::{Read, Seek};

use crate::block::BlockKind;
use crate::error::Problem;
use crate::payload::{Decoded, TailRows};
use crate::reader::{Block, BlockReader};

/// What comes next in a segment.
#[derive(Debug)]
pub(crate) enum Item {
    /// A block of its own.
    Block(Block),
    /// All blocks of one write.
    Flush(TailRows, Vec<Block>),
}

/// Reads the items of one segment.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// A write whose blocks were not all found yet.
    pending: Option<(TailRows, Vec<Block>)>,
}

impl Flushes {
    /// The next item; `None` at the end of the file. After either, or a problem, it may be asked again.
    pub(crate) fn next<R: Read + Seek>(&mut self, reader: &mut BlockReader<R>) -> Result<Option<Item>, Problem> {
        loop {
            if let Some((rows, blocks)) = self.pending.take() {
                if blocks.len() as u64 >= rows.blocks {
                    return Ok(Some(Item::Flush(rows, blocks)));
                }
                self.pending = Some((rows, blocks));
            }
            let Some(block) = reader.next_block()? else { return Ok(None) };
            match &mut self.pending {
                Some((_, blocks)) => blocks.push(block),
                None if block.header().kind == BlockKind::TAIL_ROWS => {
                    if let Decoded::TailRows(rows) = block.decode(reader)? {
                        self.pending = Some((rows, Vec::new()));
                    }
                }
                None => return Ok(Some(Item::Block(block))),
            }
        }
    }

    /// A write that is not there to its end: its rows, and the blocks that are.
    pub(crate) fn unfinished(self) -> Option<(TailRows, Vec<Block>)> {
        self.pending
    }
}
