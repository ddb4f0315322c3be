//! How much is decoded.

use rankdiff_analyzer::finding::{Class, Confidence};
use rankdiff_trace::testgen::grid::GroupKind;
use rankdiff_trace::testgen::grid::{Border, Change, Grid, GridSpec, Plant};

use super::{by_digests, files, whole};

#[test]
fn a_healthy_job_is_clean_without_decoding_a_block() {
    for (vectors, blocking) in [(false, false), (false, true), (true, false), (true, true)] {
        let spec = GridSpec { tensor: 4, data: 2, pipeline: 2, calls: 3000, vectors, blocking, ..GridSpec::default() };
        let dir = tempfile::tempdir().expect("temporary directory");
        Grid::new(spec).expect("a shape").write(dir.path(), &files()).expect("written");
        let (full, digests) = (whole(dir.path()), by_digests(dir.path(), 20));
        assert_eq!((digests.class, digests.confidence), (Class::Clean, Confidence::High), "{digests:?}");
        assert_eq!(digests.findings, []);
        assert_eq!(digests.summary, full.summary);
        assert_eq!((digests.coverage.calls, digests.coverage.compared), (full.coverage.calls, full.coverage.compared));
        let decoding = digests.coverage.decoding.expect("not all was decoded");
        // 3,000 calls in blocks of 128, a new segment after every 1,000.
        assert_eq!((decoding.blocks, decoding.of), (0, 16 * 24));
    }
}

/// With blocks and streams as large as in practice, only those of a few ranks are decoded.
#[test]
fn few_blocks_are_decoded_for_a_planted_change() {
    for (change, border) in [
        (Change::Op, Border::FirstBlock),
        (Change::Count, Border::Checkpoint(0)),
        (Change::Missing, Border::BlockEnd),
        (Change::Extra, Border::SegmentBegin),
        (Change::Op, Border::Tail),
    ] {
        let spec = GridSpec { tensor: 4, data: 8, pipeline: 2, calls: 3000, ..GridSpec::default() };
        let healthy = Grid::new(spec.clone()).expect("a shape");
        let call = healthy.at(GroupKind::Tensor, border, &files()).expect("there is such a call");
        let plant = Some(Plant { change, rank: 41, call });
        let grid = Grid::new(GridSpec { plant, ..spec }).expect("possible");
        let dir = tempfile::tempdir().expect("temporary directory");
        grid.write(dir.path(), &files()).expect("written");
        let found = by_digests(dir.path(), 10);
        let decoding = found.coverage.decoding.as_ref().expect("not all was decoded");
        // The rank that differs (which may have a call and so a block more), and three of the others.
        assert!((2..=4 * 24 + 1).contains(&decoding.blocks), "{decoding:?}");
        assert!(decoding.of >= 64 * 24, "{decoding:?}");
        let first = found.findings.first().expect("a finding");
        assert_eq!(first.suspects.to_string(), "41", "{}", found.summary);
        let planted = grid.planted().expect("planted");
        assert_eq!(first.group.as_ref().map(|group| group.name.as_str()), Some(planted.name.as_str()));
        if change != Change::Missing {
            assert_eq!(first.first_divergence, Some(planted.position), "{}", found.summary);
        }
    }
}
