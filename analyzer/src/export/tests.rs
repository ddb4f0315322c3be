//! What is exported as JSON Lines and imported again reads as the same traces.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use proptest::prelude::{ProptestConfig, proptest};
use rankdiff_trace::testgen::generate::{Job as MadeUp, JobSpec};
use rankdiff_trace::testgen::{emit, scenario};
use rankdiff_trace::{JobDir, ProcessTrace};

use super::{EXPORTERS, Job, Progress, Shape, Surveyed, Target, exporter_named};
use crate::input::{Stored, importer_of, store};

fn traces(dir: &Path) -> Vec<ProcessTrace> {
    let job = JobDir::open(dir).expect("a trace directory");
    job.streams().iter().map(|files| files.read().trace).collect()
}

fn job(dir: &Path) -> Surveyed {
    let found = JobDir::open(dir).expect("a trace directory");
    Surveyed::of(Job { infos: found.infos().to_vec(), streams: found.streams().to_vec() })
}

fn export(dir: &Path, format: &str, target: Target<'_>) -> Progress {
    let exporter = exporter_named(format).expect("a format");
    job(dir).export(exporter, target, &|_| true, &mut |_| {}).expect("exported").0
}

fn import(file: &Path, dir: &Path, stored: &mut Stored) {
    let source = BufReader::new(File::open(file).expect("exported"));
    let importer = importer_of(&std::fs::read(file).expect("exported")).expect("its own format");
    let mut input = importer.open(file, Box::new(source)).expect("its own format");
    store(&mut *input, dir, stored).expect("imported");
}

/// Exports and imports a directory in one file and in one file per process; traces stay the same.
fn comes_back(dir: &Path) {
    let before = traces(dir);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let one = folder.path().join("one.jsonl");
    let out = File::create(&one).expect("own folder");
    let done = export(dir, "jsonl", Target::File(Box::new(out)));
    assert_eq!(done.processes, before.len());
    let many = folder.path().join("many");
    std::fs::create_dir(&many).expect("own folder");
    export(dir, "jsonl", Target::Directory(&many));
    let mut files: Vec<_> = std::fs::read_dir(&many).expect("own folder").flatten().map(|entry| entry.path()).collect();
    files.sort();
    assert_eq!(files.len(), before.len());
    for (name, files) in [("from-one", vec![one]), ("from-many", files)] {
        let back = folder.path().join(name);
        std::fs::create_dir(&back).expect("own folder");
        let mut stored = Stored::default();
        files.iter().for_each(|file| import(file, &back, &mut stored));
        assert_eq!(stored.remarks, Vec::<String>::new());
        assert_eq!(stored.calls, before.iter().map(|trace| trace.calls.len() as u64).sum::<u64>());
        let after = traces(&back);
        assert_eq!(after.len(), before.len());
        for (after, before) in after.iter().zip(&before) {
            assert_eq!(after, before, "{name}");
        }
        let infos = |dir: &Path| JobDir::open(dir).expect("a trace directory").infos().to_vec();
        assert_eq!(infos(&back), infos(dir));
    }
}

#[test]
fn every_scenario_of_the_corpus_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/cases");
    let mut documents = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is in the repository") {
        let path = entry.expect("readable").path();
        for scenario in scenario::load(&path).expect("a valid file") {
            let dir = tempfile::tempdir().expect("a temporary folder");
            emit::write(&scenario, dir.path()).expect("possible");
            comes_back(dir.path());
            documents += 1;
        }
    }
    assert!(documents >= 27, "{documents} documents");
}

#[test]
fn a_torn_trace_comes_back_as_it_was_read() {
    let text = "id: T\nworld: 3\ngroups: {world: [0, 1, 2]}\nstreams:\n  \"0-2\":\n    - repeat: 50\n      mark: step\n      \
                do: [all_reduce 4 type:cell:2xf32 @world a.py:3:f arg=w, broadcast 1 f32 @world g root=2 error=NOPE]\n\
                truncated: {\"0\": 5, \"1\": 455}\nlost: {\"2\": [{after_call: 3, events: 5}, {after_call: 98, events: 9}]}\n\
                evidence: {\"1\": {log: [gone], log_t: 470}}\nend: {\"1\": {signal: 9, t: 460, by: oom_killer}}";
    let scenario = &scenario::parse("torn.yaml", text).expect("valid")[0];
    let dir = tempfile::tempdir().expect("a temporary folder");
    emit::write(scenario, dir.path()).expect("possible");
    let found = traces(dir.path());
    assert!(found.iter().any(|trace| !trace.closed) && found.iter().any(|trace| !trace.gaps.is_empty()));
    comes_back(dir.path());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn made_up_jobs_come_back(seed in 0_u64..1_000_000) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        MadeUp::new(JobSpec::small(seed), None).expect("a sane shape").write(dir.path()).expect("written");
        comes_back(dir.path());
    }
}

#[test]
fn exporters_have_unique_names_and_refuse_what_they_cannot_be_written_to() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    MadeUp::new(JobSpec::small(1), None).expect("a sane shape").write(dir.path()).expect("written");
    let job = job(dir.path());
    let mut names: Vec<&str> = EXPORTERS.iter().map(|exporter| exporter.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EXPORTERS.len());
    for exporter in EXPORTERS {
        assert!(!exporter.shapes().is_empty() && !exporter.summary().ends_with('.'), "{}", exporter.name());
        let out = tempfile::tempdir().expect("a temporary folder");
        for shape in [Shape::File, Shape::Directory] {
            let target = match shape {
                Shape::File => Target::File(Box::new(std::io::sink())),
                Shape::Directory => Target::Directory(out.path()),
            };
            assert_eq!(exporter.start(&job, target).is_ok(), exporter.shapes().contains(&shape), "{}", exporter.name());
        }
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    MadeUp::new(JobSpec::small(7), None).expect("a sane shape").write(dir.path()).expect("written");
    for format in ["jsonl", "perfetto"] {
        let write = || {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            export(dir.path(), format, Target::File(Box::new(file.reopen().expect("open"))));
            std::fs::read(file.path()).expect("written")
        };
        let bytes = write();
        assert!(bytes.len() > 1000 && bytes == write(), "{format}");
    }
}
