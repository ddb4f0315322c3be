//! Segments whose checksums are right and whose numbers are absurd.

use std::path::Path;

use super::StreamFiles;
use crate::block::{BlockHeader, BlockKind, EXPIRED};
use crate::evidence::{ClockSnapshot, GapCause};
use crate::header::SegmentHeader;
use crate::outline::{SharedMembers, StreamOutline};
use crate::stream::ProcessKey;

/// A block of calls that were dropped: it is whole without a payload.
fn dropped(count: u32, calls_before: u64) -> Vec<u8> {
    let header = BlockHeader {
        kind: BlockKind::CALLS,
        flags: EXPIRED,
        stored: 0,
        raw: 0,
        count,
        table: 0,
        first_time: 0,
        last_time: 0,
        calls_before,
        body_crc: crc32fast::hash(&[]),
    };
    let mut bytes = Vec::new();
    header.encode(&[], &mut bytes);
    bytes
}

fn stream(dir: &Path, segments: &[Vec<u8>]) -> StreamFiles {
    let key = ProcessKey { host: "h".to_owned(), pid: 1, start_time: 1 };
    let mut files = StreamFiles { key: key.clone(), session: 1, segments: Vec::new(), tail: None };
    for (ordinal, blocks) in (1..).zip(segments) {
        let header = SegmentHeader {
            minor: 0,
            job_id: "j".to_owned(),
            key: key.clone(),
            session: 1,
            ordinal,
            clock: ClockSnapshot::default(),
        };
        let path = dir.join(format!("h-1-1.{ordinal:04}.rdt"));
        std::fs::write(&path, [header.encode(), blocks.clone()].concat()).expect("written");
        files.segments.push(path);
    }
    files
}

#[test]
fn counts_of_calls_stop_at_the_largest_number() {
    let dir = tempfile::tempdir().expect("directory");
    // Each segment begins with any count: only within a segment counts go on from block to block.
    let segments = [dropped(3, 0), dropped(5, u64::MAX - 5), dropped(7, 0), dropped(9, 7)];
    let files = stream(dir.path(), &segments);
    let outcome = files.read();
    assert!(outcome.trace.calls.is_empty());
    assert!(outcome.trace.gaps.iter().any(|gap| gap.cause == GapCause::Expired), "{:?}", outcome.trace.gaps);
    let outline = StreamOutline::read(&files, &SharedMembers::default());
    assert_eq!(outline.calls, 3 + 5 + 7 + 9);
    assert!(outline.has_dropped_calls() && outline.decodable_calls() == 0);
}
