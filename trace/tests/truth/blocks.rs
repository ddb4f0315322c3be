//! Whole blocks that are missing, repeated or in another place, and segments likewise: every checksum is right.

use rankdiff_trace::{BlockKind, BlockReader, GapCause, JobDir, ProblemKind};

use crate::truth::{Stream, blocks_of};

fn kinds_of(path: &std::path::Path) -> Vec<BlockKind> {
    let mut reader = BlockReader::open(path).expect("open");
    let mut kinds = Vec::new();
    while let Some(block) = reader.next_block().expect("whole") {
        kinds.push(block.header().kind);
    }
    kinds
}

#[test]
fn a_block_of_calls_that_is_missing_is_named() {
    let stream = Stream::sample(32, 4000, true);
    let mut removed = 0;
    for (place, bytes) in stream.segments.iter().enumerate() {
        let path = &stream.paths()[place];
        for (block, kind) in blocks_of(path).into_iter().zip(kinds_of(path)) {
            let mut left = bytes.clone();
            left.drain(block);
            let outcome = stream.with(place, &left);
            if kind == BlockKind::CALLS {
                removed += 1;
                assert!(!outcome.problems.is_empty());
                assert!(outcome.trace.gaps.iter().any(|gap| gap.cause == GapCause::Torn));
            }
        }
    }
    assert!(removed > 10);
}

#[test]
fn a_repeated_block_is_read_once() {
    let stream = Stream::sample(64, 4000, true);
    for (place, bytes) in stream.segments.iter().enumerate() {
        let path = &stream.paths()[place];
        let blocks = blocks_of(path);
        for (block, kind) in blocks.iter().zip(kinds_of(path)) {
            if kind != BlockKind::CALLS {
                continue;
            }
            // Behind itself, and behind every later block.
            for later in blocks.iter().filter(|later| later.end >= block.end && later.end < bytes.len()) {
                let mut more = bytes[..later.end].to_vec();
                more.extend_from_slice(&bytes[block.clone()]);
                more.extend_from_slice(&bytes[later.end..]);
                let outcome = stream.with(place, &more);
                assert_eq!(outcome.problems[0].kind, ProblemKind::Damaged);
            }
        }
    }
}

#[test]
fn swapped_blocks_are_not_another_order_of_calls() {
    let stream = Stream::sample(64, 4000, true);
    for (place, bytes) in stream.segments.iter().enumerate() {
        let path = &stream.paths()[place];
        let (blocks, kinds) = (blocks_of(path), kinds_of(path));
        // What stands first in a later segment says how many calls were before it; nothing else does.
        for (first, one) in blocks.iter().enumerate().skip(usize::from(place > 0)) {
            for (second, other) in blocks.iter().enumerate().skip(first + 1) {
                let mut swapped = bytes[..one.start].to_vec();
                swapped.extend_from_slice(&bytes[other.clone()]);
                swapped.extend_from_slice(&bytes[one.end..other.start]);
                swapped.extend_from_slice(&bytes[one.clone()]);
                swapped.extend_from_slice(&bytes[other.end..]);
                let outcome = stream.with(place, &swapped);
                if kinds[first] == BlockKind::CALLS && kinds[second] == BlockKind::CALLS {
                    assert!(!outcome.problems.is_empty(), "blocks {first} and {second} of segment {place}");
                }
            }
        }
    }
}

#[test]
fn a_segment_that_is_there_twice_is_read_once() {
    let stream = Stream::sample(64, 4000, true);
    for path in stream.paths() {
        let copy = stream.dir().join("copy.rdt");
        std::fs::copy(path, &copy).expect("copy");
        let job = JobDir::open(stream.dir()).expect("open");
        let outcome = job.streams()[0].read();
        assert_eq!(stream.read_of(&outcome), stream.written());
        let [problem] = outcome.problems.as_slice() else { panic!("{:?}", outcome.problems) };
        assert!(problem.to_string().contains("which was read before"), "{problem}");
        std::fs::remove_file(copy).expect("remove");
    }
}

#[test]
fn any_missing_segments_leave_the_others() {
    let stream = Stream::sample(64, 4000, true);
    let count = stream.segments.len();
    for missing in 1..(1_u32 << count) - 1 {
        let lacks = |place: usize| missing & (1 << place) != 0;
        for (place, path) in stream.paths().iter().enumerate().filter(|(place, _)| lacks(*place)) {
            std::fs::remove_file(path).unwrap_or_else(|error| panic!("segment {place}: {error}"));
        }
        let outcome = JobDir::open(stream.dir()).expect("some are there").streams()[0].read();
        for (place, (found, written)) in stream.read_of(&outcome).into_iter().zip(stream.written()).enumerate() {
            assert_eq!(found, if lacks(place) { 0 } else { written }, "segment {place} of {missing:b}");
        }
        // Only the end of a stream can be missing unseen: nothing says that there was more.
        let inner = (0..count).rev().skip_while(|&place| lacks(place)).any(lacks);
        assert_eq!(inner, !outcome.problems.is_empty(), "{missing:b}: {:?}", outcome.problems);
        assert!(!lacks(count - 1) || !outcome.trace.closed);
        for (path, bytes) in stream.paths().iter().zip(&stream.segments) {
            std::fs::write(path, bytes).expect("write");
        }
    }
}
