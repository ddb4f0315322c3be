//! Files that end too early.

use rankdiff_trace::ProblemKind;

use crate::truth::{Stream, blocks_of};

#[test]
fn every_prefix_of_every_segment() {
    let stream = Stream::short(32, 2500, true);
    let count = stream.segments.len();
    assert!(count >= 3, "only {count} segments");
    for (place, bytes) in stream.segments.iter().enumerate() {
        let whole: Vec<usize> = blocks_of(&stream.paths()[place]).iter().map(|block| block.end).collect();
        let mut most = 0;
        // Every byte of the first; the others differ in what is before and behind them.
        for length in (0..bytes.len()).step_by(if place == 0 { 1 } else { 3 }) {
            let outcome = stream.with(place, &bytes[..length]);
            let read = stream.read_of(&outcome);
            // The others are read whole, whatever this one lacks.
            for (other, (&found, &written)) in read.iter().zip(&stream.written()).enumerate() {
                assert!(other == place || found == written, "segment {place} cut at {length}: {read:?}");
            }
            assert!(read[place] >= most, "a longer prefix gave fewer calls");
            most = read[place];
            let kinds: Vec<ProblemKind> = outcome.problems.iter().map(|problem| problem.kind).collect();
            let first = blocks_of_header(bytes);
            let expected = match length {
                length if length < first => vec![ProblemKind::Unreadable],
                // Between two blocks nothing shows that more was written: the end block is missing.
                length if length == first || whole.contains(&length) => vec![],
                _ => vec![ProblemKind::TornTail],
            };
            // A segment that ends between two blocks is whole in itself; only a later one can tell.
            if place + 1 == count || !expected.is_empty() {
                assert_eq!(kinds, expected, "segment {place} cut at {length}");
            }
            assert!(place + 1 < count || !outcome.trace.closed, "it has no end block");
        }
        assert!(most > 0);
    }
}

fn blocks_of_header(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize
}

#[test]
fn every_prefix_of_a_stream_that_was_not_closed() {
    let stream = Stream::short(64, 64 << 20, false);
    let [bytes] = stream.segments.as_slice() else { panic!("{} segments", stream.segments.len()) };
    for length in 0..bytes.len() {
        let outcome = stream.with(0, &bytes[..length]);
        assert!(outcome.problems.len() <= 1 && !outcome.trace.closed);
    }
}

/// Many more bytes than one can try: the ends of blocks, and around them.
#[test]
fn prefixes_of_a_large_stream() {
    let mut records = crate::sample::records(0);
    let more: Vec<_> = (0..40_000)
        .map(|index: u64| {
            rankdiff_trace::Record::Call(rankdiff_trace::Call {
                thread: 9,
                thread_seq: index,
                seq: Some(10_000 + index),
                comm: rankdiff_trace::CommRef(1),
                enter: 1_000_000 * index + index * index % 977,
                exit: Some(1_000_000 * index + 500 + index * index * index % 9973),
                count: Some(index % 97),
                ..rankdiff_trace::Call::default()
            })
        })
        .collect();
    records.extend(more);
    let options = rankdiff_trace::WriterOptions { segment_bytes: 100_000, ..rankdiff_trace::WriterOptions::default() };
    let stream = Stream::write(&records, &options, true);
    assert!(stream.segments.len() >= 2, "only {} segments", stream.segments.len());
    for (place, bytes) in stream.segments.iter().enumerate() {
        for block in blocks_of(&stream.paths()[place]) {
            let middle = block.start + block.len() / 2;
            for length in [block.start, block.start + 1, block.start + 55, block.start + 56, middle, block.end - 1] {
                stream.with(place, &bytes[..length.min(bytes.len())]);
            }
        }
    }
}
