//! What is written to a directory reads back as what is built in memory.

use std::path::Path;

use super::emit::{EmitError, to_traces, write};
use super::generate::{Job, JobSpec};
use super::scenario::{Scenario, load, parse};
use crate::evidence::GapCause;
use crate::job::JobDir;
use crate::stream::ProcessTrace;

/// Streams of a directory by key, with the number of problems of each.
fn read(dir: &Path) -> Vec<(ProcessTrace, usize)> {
    let job = JobDir::open(dir).expect("a trace directory");
    assert!(job.problems().is_empty(), "{:?}", job.problems());
    let outcomes = job.streams().iter().map(crate::StreamFiles::read);
    outcomes.map(|outcome| (outcome.trace, outcome.problems.len())).collect()
}

fn check(scenario: &Scenario) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("made/here");
    write(scenario, &dir).expect("written");
    let mut expected = to_traces(scenario).expect("possible");
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    let found = read(&dir);
    assert_eq!(found.len(), expected.len());
    for ((found, problems), mut expected) in found.into_iter().zip(expected) {
        let mut found = normal(found);
        if !expected.closed {
            // The gap of a torn file is the reader's finding: it knows the last whole block, not the time of the cut.
            assert!(problems > 0 && found.gaps.iter().any(|gap| gap.cause == GapCause::Torn), "{found:?}");
            found.gaps.retain(|gap| gap.cause != GapCause::Torn);
            expected.gaps.retain(|gap| gap.cause != GapCause::Torn);
        } else {
            assert_eq!(problems, 0);
        }
        assert_eq!(found, normal(expected), "{}", scenario.id());
    }
    assert!(matches!(write(scenario, &dir), Err(EmitError::Occupied { .. })), "two traces in one directory");
    let infos = JobDir::open(&dir).expect("a trace directory").infos().to_vec();
    assert!(!infos.is_empty() && infos.iter().all(|info| info.world == Some(scenario.world)));
}

/// Definitions in the order of their indices: a file may give them in any order before their use.
fn normal(mut trace: ProcessTrace) -> ProcessTrace {
    trace.comms.sort_by_key(|comm| comm.id);
    trace.sites.sort_by_key(|site| site.id);
    trace.types.sort_by_key(|derived| derived.id);
    trace.labels.sort();
    trace
}

#[test]
fn every_document_of_the_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/cases");
    let mut documents = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is in the repository") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            for scenario in load(&path).expect("a valid file") {
                check(&scenario);
                documents += 1;
            }
        }
    }
    assert!(documents >= 27, "{documents} documents");
}

#[test]
fn torn_files_keep_everything_before_the_tear() {
    let text = "id: T\nworld: 3\ngroups: {world: [0, 1, 2]}\nstreams:\n  \"0-2\":\n    - repeat: 50\n      mark: step\n      \
                do: [all_reduce 4 type:cell:2xf32 @world a.py:3:f arg=w, broadcast 1 f32 @world g root=2 error=NOPE]\n\
                truncated: {\"0\": 5, \"1\": 455}\nlost: {\"2\": [{after_call: 3, events: 5}, {after_call: 98, events: 9}]}\n\
                evidence: {\"1\": {log: [gone], log_t: 470}}\nend: {\"1\": {signal: 9, t: 460, by: oom_killer}}";
    let scenario = &parse("torn.yaml", text).expect("valid")[0];
    check(scenario);
    let traces = to_traces(scenario).expect("possible");
    assert_eq!(traces.iter().map(|trace| trace.calls.len()).collect::<Vec<_>>(), [0, 45, 93]);
}

#[test]
fn generated_jobs() {
    let job = Job::new(JobSpec { steps: 60, ..JobSpec::default() }, None).expect("a sane shape");
    let folder = tempfile::tempdir().expect("a temporary folder");
    job.write(folder.path()).expect("written");
    let found = read(folder.path());
    assert_eq!(found.len(), 8);
    for (rank, (found, problems)) in found.into_iter().enumerate() {
        assert_eq!(problems, 0);
        assert_eq!(normal(found), normal(job.trace(rank as u32)));
    }
}
