//! Ten thousand ranks: run by hand, since the job takes gigabytes and minutes to write.
//!
//! `RANKDIFF_GRID=DIR cargo test --release -p rankdiff-analyzer --test digests -- --ignored` writes `DIR/NAME` once.

use std::path::{Path, PathBuf};

use rankdiff_analyzer::finding::Class;
use rankdiff_analyzer::{Options, Report, analyze_outlines};
use rankdiff_trace::testgen::grid::{Border, Change, Grid, GridFiles, GridSpec, GroupKind, Plant};
use rankdiff_trace::{JobDir, read_outlines};

fn job(name: &str, grid: &Grid) -> PathBuf {
    let dir = std::env::var_os("RANKDIFF_GRID").expect("RANKDIFF_GRID names a folder with some gigabytes of room");
    let dir = Path::new(&dir).join(name);
    if !dir.exists() {
        grid.write(&dir, &GridFiles::default()).expect("written");
    }
    dir
}

fn answer(dir: &Path) -> Report {
    let job = JobDir::open(dir).expect("a trace");
    analyze_outlines(read_outlines(job.streams()), &Options::default())
}

#[test]
#[ignore = "writes gigabytes"]
fn a_healthy_job_of_ten_thousand_ranks_is_clean() {
    let grid = Grid::new(GridSpec::of_size(10_240, 10_000)).expect("a shape");
    let report = answer(&job("healthy", &grid));
    assert_eq!(report.class, Class::Clean, "{}", report.summary);
    assert_eq!(report.coverage.decoding.expect("not all was decoded").blocks, 0);
    assert_eq!(report.coverage.calls, 102_400_000);
}

#[test]
#[ignore = "writes gigabytes"]
fn one_changed_call_of_a_hundred_million_is_found() {
    let spec = GridSpec::of_size(10_240, 10_000);
    let healthy = Grid::new(spec.clone()).expect("a shape");
    let call = healthy.at(GroupKind::World, Border::BlockBegin, &GridFiles::default()).expect("a call");
    let grid = Grid::new(GridSpec { plant: Some(Plant { change: Change::Op, rank: 7777, call }), ..spec });
    let grid = grid.expect("possible");
    let report = answer(&job("op", &grid));
    let first = report.findings.first().expect("a finding");
    assert_eq!(first.suspects.to_string(), "7777", "{}", report.summary);
    assert_eq!(first.first_divergence, grid.planted().map(|planted| planted.position));
    let decoding = report.coverage.decoding.as_ref().expect("not all was decoded");
    assert!(decoding.blocks * 200 < decoding.of, "{decoding:?}");
}

#[test]
#[ignore = "writes gigabytes"]
fn a_call_that_one_of_thousands_of_ranks_leaves_out_stops_the_job_and_is_found() {
    let spec = GridSpec { blocking: true, ..GridSpec::of_size(4096, 4000) };
    for (name, kind, rank) in [("hang-tp", GroupKind::Tensor, 2345), ("hang-world", GroupKind::World, 77)] {
        let healthy = Grid::new(spec.clone()).expect("a shape");
        let call = healthy.at(kind, Border::Tail, &GridFiles::default()).expect("a call");
        let plant = Some(Plant { change: Change::Missing, rank, call });
        let grid = Grid::new(GridSpec { plant, ..spec.clone() }).expect("possible");
        assert!(grid.hangs());
        let report = answer(&job(name, &grid));
        let first = report.findings.first().expect("a finding");
        let told = first.suspects.contains(rank) || first.cycle.contains(&rank);
        assert!(told, "{}", report.summary);
        let decoding = report.coverage.decoding.as_ref().expect("not all was decoded");
        assert!(decoding.blocks < 200, "{decoding:?}");
    }
}

#[test]
#[ignore = "writes gigabytes"]
fn one_changed_call_among_a_million_of_each_rank_is_found() {
    let spec = GridSpec::of_size(64, 1_000_000);
    let call = Grid::new(spec.clone()).expect("a shape").index(GroupKind::Tensor, 300_000);
    let plant = Some(Plant { change: Change::Count, rank: 33, call });
    let grid = Grid::new(GridSpec { plant, ..spec }).expect("possible");
    let report = answer(&job("long", &grid));
    let first = report.findings.first().expect("a finding");
    assert_eq!(first.suspects.to_string(), "33", "{}", report.summary);
    assert_eq!(first.first_divergence, grid.planted().map(|planted| planted.position));
    let decoding = report.coverage.decoding.as_ref().expect("not all was decoded");
    assert!(decoding.blocks * 200 < decoding.of, "{decoding:?}");
}
