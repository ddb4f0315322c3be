//! JSON Lines of any bytes, imported.
//!
//! Claims: no panic; what cannot be imported is an error that names the file; what can be is a trace without a problem,
//! and comes back from its own export as it is.

#![no_main]

use std::io::Cursor;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rankdiff_analyzer::export::{Job, Surveyed, Target, exporter_named};
use rankdiff_analyzer::input::{ImportError, Stored, importer_of, store};
use rankdiff_fuzz::memory::bounded;
use rankdiff_fuzz::scratch::Scratch;
use rankdiff_fuzz::seeds;
use rankdiff_trace::{JobDir, ProcessTrace};

/// What all may take: a line's records, and what was read of them.
const MOST: usize = 256 << 20;

/// Imports into a new folder below `scratch`, and reads it. `None` where nothing can be imported.
fn import(bytes: &[u8], scratch: &Path, name: &str) -> Option<(JobDir, Vec<ProcessTrace>)> {
    let folder = scratch.join(name);
    std::fs::create_dir(&folder).expect("a new folder");
    let path = Path::new("x.jsonl");
    let importer = importer_of(bytes)?;
    let refused = |error: &ImportError| assert!(error.to_string().contains("x.jsonl"), "{error}");
    let mut input = importer.open(path, Box::new(Cursor::new(bytes))).map_err(|error| refused(&error)).ok()?;
    store(&mut *input, &folder, &mut Stored::default()).map_err(|error| refused(&error)).ok()?;
    let job = JobDir::open(&folder).ok()?;
    assert!(job.problems().is_empty(), "{:?}", job.problems());
    let mut traces = Vec::new();
    for stream in job.streams() {
        let outcome = stream.read();
        assert_eq!(outcome.problems, []);
        traces.push(outcome.trace);
    }
    Some((job, traces))
}

fn export(job: &JobDir) -> Vec<u8> {
    let mut out = Vec::new();
    let exporter = exporter_named("jsonl").expect("a format that is there");
    let job = Job { infos: job.infos().to_vec(), streams: job.streams().to_vec() };
    Surveyed::of(job)
        .export(exporter, Target::File(Box::new(&mut out)), &|_| true, &mut |_| {})
        .expect("memory takes it");
    out
}

fuzz_target!(
    init: seeds::write(|| {
        let scratch = Scratch::empty();
        seeds::write_sample(scratch.path());
        let whole = export(&JobDir::open(scratch.path()).expect("just written"));
        // A few lines of every kind are a better beginning than all.
        let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
        let every = |step: usize| [lines[..40].concat(), lines[40..].iter().step_by(step).copied().collect::<Vec<_>>().concat()].concat();
        vec![lines[..40].concat(), every(29), every(13)]
    }),
    |data: &[u8]| bounded(MOST, || {
        let scratch = Scratch::empty();
        let Some((job, traces)) = import(data, scratch.path(), "first") else { return };
        let again = export(&job);
        let Some((_, back)) = import(&again, scratch.path(), "second") else {
            panic!("its own export cannot be imported: {}", String::from_utf8_lossy(&again))
        };
        assert_eq!(back, traces);
    })
);
