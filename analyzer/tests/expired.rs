//! Traces whose older calls were dropped: what is left is judged as before, and what is gone is never taken for missing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rankdiff_analyzer::finding::{Class, Severity};
use rankdiff_analyzer::render::ExitPolicy;
use rankdiff_analyzer::{Options, Report, analyze, analyze_outlines};
use rankdiff_trace::testgen::grid::{Change, Grid, GridSpec, Plant};
use rankdiff_trace::{
    ClockSnapshot, GapCause, JobDir, Keep, Record, Retention, StreamWriter, TraceDir, WriterOptions, read_outlines,
};

const CALLS: u64 = 3000;

/// Writes a job, and keeps of each rank the calls of the last so many ns; `0` keeps all.
fn write(dir: &Path, plant: Option<Plant>, keep: impl Fn(u32) -> u64) {
    let spec = GridSpec { tensor: 2, data: 2, pipeline: 1, calls: CALLS, plant, ..GridSpec::default() };
    let grid = Grid::new(spec).expect("a shape");
    for rank in 0..4 {
        let opened = Arc::new(TraceDir::open(dir).expect("open").with_retention());
        let options = WriterOptions { block_calls: 64, ..WriterOptions::default() };
        let clock = ClockSnapshot { realtime: u64::from(rank) + 1, ..ClockSnapshot::default() };
        let mut writer = StreamWriter::create_in(&opened, &grid.key(rank), clock, &options).expect("create");
        let mut calls = 0;
        grid.records(rank, &mut |record| {
            calls += u64::from(matches!(record, Record::Call(_)));
            writer.write(record)?;
            if calls % 250 == 249 { writer.flush().and_then(|()| writer.rotate(clock)) } else { Ok(()) }
        })
        .expect("written");
        writer.close().expect("closed");
        if keep(rank) > 0 {
            let mut retention = Retention::new(Keep::Window(Duration::from_nanos(keep(rank))));
            retention.enforce(&opened).expect("rewritten");
            assert!(retention.dropped().calls > 200, "rank {rank}: {:?}", retention.dropped());
        }
    }
}

/// How long the job's calls take, ns.
fn length() -> u64 {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path(), None, |_| 0);
    let times = |calls: &[rankdiff_trace::Call]| calls.last().map_or(0, |last| last.enter - calls[0].enter);
    JobDir::open(dir.path())
        .expect("open")
        .streams()
        .iter()
        .map(|stream| times(&stream.read().trace.calls))
        .max()
        .unwrap_or(0)
}

fn whole(dir: &Path) -> Report {
    let job = JobDir::open(dir).expect("open");
    let traces: Vec<_> = job
        .streams()
        .iter()
        .map(|stream| {
            let outcome = stream.read();
            assert_eq!(outcome.problems, []);
            outcome.trace
        })
        .collect();
    analyze(traces, &Options::default())
}

fn by_digests(dir: &Path) -> Report {
    let job = JobDir::open(dir).expect("open");
    analyze_outlines(read_outlines(job.streams()), &Options::default())
}

/// Findings that would fail a job.
fn grave(report: &Report) -> Vec<String> {
    let grave = report.findings.iter().filter(|finding| finding.severity != Severity::Note);
    grave.map(|finding| format!("{} {:?}", finding.code, finding.first_visible)).collect()
}

/// The same window for all, and another one for every rank.
fn windows(length: u64) -> [Box<dyn Fn(u32) -> u64>; 2] {
    [Box::new(move |_| length / 2), Box::new(move |rank| length / (2 + u64::from(rank)))]
}

#[test]
fn a_healthy_job_stays_clean_whatever_was_dropped() {
    for keep in windows(length()) {
        let dir = tempfile::tempdir().expect("directory");
        write(dir.path(), None, keep);
        for report in [whole(dir.path()), by_digests(dir.path())] {
            assert_eq!(grave(&report), Vec::<String>::new(), "{}", report.summary);
            assert_eq!(report.class, Class::Clean, "{}", report.summary);
            let gaps: Vec<&str> = report.coverage.gaps.iter().map(|gap| gap.text.as_str()).collect();
            assert!(!gaps.is_empty() && gaps.iter().all(|gap| gap.contains("dropped by --keep")), "{gaps:?}");
        }
    }
}

#[test]
fn a_change_in_the_window_is_found_where_it_is() {
    let length = length();
    for change in [Change::Op, Change::Count, Change::Missing, Change::Extra] {
        let plant = Plant { change, rank: 2, call: CALLS * 9 / 10 };
        let full = tempfile::tempdir().expect("directory");
        write(full.path(), Some(plant), |_| 0);
        let expected = whole(full.path());
        assert!(!grave(&expected).is_empty(), "{change:?}: {}", expected.summary);
        for keep in windows(length) {
            let dir = tempfile::tempdir().expect("directory");
            write(dir.path(), Some(plant), keep);
            let found = whole(dir.path());
            let of = |report: &Report| {
                let first = report.findings.first();
                first.map(|first| {
                    (
                        report.class,
                        first.group.clone().map(|group| group.name),
                        first.first_divergence,
                        first.first_visible,
                        first.suspects.clone(),
                    )
                })
            };
            assert_eq!(of(&found), of(&expected), "{change:?}\n{}\n{}", found.summary, expected.summary);
        }
    }
}

#[test]
fn a_change_before_the_window_is_found_by_digests_or_not_claimed() {
    let length = length();
    for change in [Change::Op, Change::Count] {
        let plant = Plant { change, rank: 2, call: 100 };
        let dir = tempfile::tempdir().expect("directory");
        write(dir.path(), Some(plant), |_| length / 2);
        let job = JobDir::open(dir.path()).expect("open");
        let trace = job.streams()[0].read().trace;
        assert!(
            trace.gaps.iter().any(|gap| gap.cause == GapCause::Expired && gap.events.is_some_and(|calls| calls > 100))
        );
        for report in [whole(dir.path()), by_digests(dir.path())] {
            // Nothing else may be blamed: the calls that are left agree.
            let blamed = report.findings.iter().filter(|finding| finding.severity != Severity::Note);
            assert!(
                blamed.clone().all(|finding| finding.suspects.is_empty() || finding.suspects.contains(2)),
                "{}",
                report.summary
            );
        }
    }
}

#[test]
fn digests_that_differ_where_calls_were_dropped_are_told_of_a_small_job_as_well() {
    let plant = Plant { change: Change::Op, rank: 2, call: 100 };
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path(), Some(plant), |_| length() / 2);
    let differ = |report: &Report| {
        report.coverage.gaps.iter().any(|gap| gap.text.contains("digests differ") && gap.text.contains("--keep"))
    };
    let report = by_digests(dir.path());
    assert!(differ(&report), "{:?}", report.coverage.gaps);
    assert!(report.summary.starts_with("cannot tell"), "{}", report.summary);
    assert_eq!(ExitPolicy { strict: true, ..ExitPolicy::default() }.code(&report), 3);
    // Where all agree, nothing is said of what was dropped.
    let healthy = tempfile::tempdir().expect("directory");
    write(healthy.path(), None, |_| length() / 2);
    let report = by_digests(healthy.path());
    assert!(!differ(&report), "{:?}", report.coverage.gaps);
    assert_eq!(ExitPolicy::default().code(&report), 0);
    assert!(report.summary.starts_with("no divergence"), "{}", report.summary);
}
