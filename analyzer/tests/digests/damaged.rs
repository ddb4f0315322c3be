//! Records that are not whole: nothing is found in a healthy job, whatever is missing of them.

use rankdiff_analyzer::finding::Class;
use rankdiff_trace::RankSet;
use rankdiff_trace::testgen::grid::{Grid, GridFiles, GridSpec, LateAttach, Lost};

use super::{by_digests, files};

fn spec() -> GridSpec {
    GridSpec { tensor: 4, data: 2, pipeline: 2, calls: 2500, ..GridSpec::default() }
}

fn report(spec: GridSpec, files: &GridFiles) -> rankdiff_analyzer::Report {
    let dir = tempfile::tempdir().expect("temporary directory");
    Grid::new(spec).expect("a shape").write(dir.path(), files).expect("written");
    by_digests(dir.path(), 30)
}

#[test]
fn lost_and_late_calls_are_no_difference() {
    for positions in [true, false] {
        let late = vec![LateAttach { rank: 3, first: 700, positions }];
        let found = report(GridSpec { late, ..spec() }, &files());
        assert_eq!(found.class, Class::Clean, "{}", found.summary);
        assert!(found.coverage.compared < 1.0, "{:?}", found.coverage);
    }
    let lost = vec![Lost { rank: 5, first: 300, calls: 40 }, Lost { rank: 9, first: 2000, calls: 1 }];
    let found = report(GridSpec { lost, ..spec() }, &files());
    assert_eq!(found.class, Class::Clean, "{}", found.summary);
    assert!(found.coverage.gaps.iter().any(|gap| gap.text.contains("calls lost")), "{:?}", found.coverage.gaps);
}

#[test]
fn streams_without_an_end_are_read_as_far_as_they_go() {
    for blocking in [false, true] {
        let open: RankSet = [1, 2, 7].into_iter().collect();
        let found = report(GridSpec { blocking, ..spec() }, &GridFiles { open, ..files() });
        assert_eq!(found.class, Class::Clean, "{}", found.summary);
    }
}
