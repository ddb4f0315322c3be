//! Made-up training jobs with sends and receives and every kind of fault, in blocks of a few calls: by digests the answer
//! is the one of the whole traces.

use std::path::Path;

use rankdiff_analyzer::Report;
use rankdiff_analyzer::finding::Class;
use rankdiff_trace::testgen::generate::{Fault, FaultKind, GroupKind, Job, JobSpec};
use rankdiff_trace::{ClockSnapshot, StreamWriter, WriterOptions};

use super::{by_digests, differences, whole};

fn write(job: &Job, dir: &Path) {
    let options = WriterOptions { block_calls: 16, ..WriterOptions::default() };
    for rank in 0..job.spec().world() {
        let clock = ClockSnapshot { monotonic: 1, boottime: 1, realtime: 1_700_000_000_000_000_000 };
        let mut writer = StreamWriter::create(dir, &job.key(rank), clock, &options).expect("created");
        job.records(rank, &mut |record| writer.write(record)).expect("written");
        writer.close().expect("closed");
    }
}

/// A job long enough that a part of it is left out.
fn spec(seed: u64) -> JobSpec {
    let spec = JobSpec::small(seed);
    JobSpec { steps: 20 + seed % 17, data: spec.data.max(2), ..spec }
}

fn answers(job: &Job) -> (Report, Report) {
    let dir = tempfile::tempdir().expect("temporary directory");
    write(job, dir.path());
    (whole(dir.path()), by_digests(dir.path(), 40))
}

#[test]
fn healthy_jobs_are_silent() {
    for seed in 0..20 {
        let Ok(job) = Job::new(spec(seed), None) else { continue };
        let (full, digests) = answers(&job);
        assert_eq!(full.class, Class::Clean, "seed {seed}");
        assert_eq!(digests.class, Class::Clean, "seed {seed}: {}", digests.summary);
        let blocks = digests.coverage.decoding.map(|decoding| decoding.blocks);
        assert_eq!(blocks, Some(0), "seed {seed}");
    }
}

#[test]
fn faults_are_found_as_in_whole_traces() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for seed in 0..12_u64 {
        for (number, kind) in FaultKind::ALL.into_iter().enumerate() {
            let spec = spec(seed);
            let rank = (seed * 7 + number as u64) as u32 % spec.world();
            let group = [GroupKind::World, GroupKind::Tensor, GroupKind::Data][(seed as usize + number) % 3];
            let Ok(healthy) = Job::new(spec.clone(), None) else { continue };
            let positions = healthy.positions(group, rank);
            let position = (seed * 31 + number as u64 * 17) % positions.max(1);
            let Ok(job) = Job::new(spec, Some(Fault { kind, rank, group, position })) else { continue };
            tried += 1;
            let (full, digests) = answers(&job);
            let found = differences(&full, &digests);
            if !found.is_empty() {
                wrong.push(format!(
                    "seed {seed} {kind:?} {group:?} {position} rank {rank} ({:?}):\n    {}\n    full: {}\n    digests: {}",
                    digests.coverage.decoding.as_ref().map(|decoding| (decoding.blocks, decoding.of)),
                    found.join("\n    "),
                    full.summary,
                    digests.summary
                ));
            }
        }
    }
    assert!(tried > 60, "{tried} jobs");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}
