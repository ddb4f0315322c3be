//! One segment of any bytes, block by block, in memory. Odd inputs get their checksums put right first, so that what is
//! behind them is reached.
//!
//! Claims: no panic; blocks lie behind each other and inside the file; every problem names its file and offset; headers
//! and digests take no more memory than the file; what one block's records take is bounded by the format's limits.

#![no_main]

use std::io::Cursor;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rankdiff_fuzz::checksums::repair;
use rankdiff_fuzz::memory::bounded;
use rankdiff_fuzz::seeds;
use rankdiff_trace::{BlockReader, Decoded};

/// Messages and buffers.
const SMALL: usize = 64 << 10;
/// Records of a block; the format allows more, which only takes longer.
const RECORDS: u32 = 600;
/// What the records of a block may take: the elements of vectors are the largest for their bytes.
const DECODED: usize = 64 << 20;

fuzz_target!(
    init: seeds::write(|| seeds::segments().into_iter().map(|seed| [vec![1], seed].concat()).collect()),
    |data: &[u8]| {
        let Some((&first, bytes)) = data.split_first() else { return };
        let mut bytes = bytes.to_vec();
        if first & 1 == 1 {
            repair(&mut bytes, RECORDS);
        }
        let length = bytes.len();
        let path = Path::new("x.rdt");
        let opened = bounded(length + SMALL, || BlockReader::new(path, Cursor::new(&bytes)));
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(error) => return assert!(error.to_string().contains("x.rdt")),
        };
        let mut end = reader.offset();
        loop {
            // Digests are sixteen times as large as their shortest entries.
            match bounded(16 * length + SMALL, || reader.next_block()) {
                Ok(Some(block)) => {
                    assert!(block.offset() == end && reader.offset() > end && reader.offset() <= length as u64);
                    end = reader.offset();
                    let count = block.header().count as usize;
                    match bounded(DECODED, || block.decode(&mut reader)) {
                        Ok(Decoded::Calls(calls)) => assert!(calls.len() <= count),
                        Ok(Decoded::Returns(returns)) => assert_eq!(returns.len(), count),
                        Ok(_) => {}
                        Err(problem) => assert_eq!(problem.offset, block.offset()),
                    }
                }
                Ok(None) => break assert_eq!(end, length as u64),
                Err(problem) => break assert!(problem.offset == end && problem.to_string().contains("x.rdt at byte")),
            }
        }
    }
);
