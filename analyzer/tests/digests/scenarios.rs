//! The corpus through files and digests: jobs so small that all of their calls are decoded give the same answer.

use std::path::Path;

use rankdiff_analyzer::{Options, analyze_outlines};
use rankdiff_trace::testgen::emit;
use rankdiff_trace::testgen::scenario::load;
use rankdiff_trace::{JobDir, read_outlines};

use super::{differences, whole};

#[test]
fn every_document_of_the_corpus_gets_the_answer_of_its_whole_trace() {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for folder in ["cases", "checks"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(folder);
        for entry in std::fs::read_dir(folder).expect("the corpus is there") {
            let path = entry.expect("readable").path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            for scenario in load(&path).expect("a scenario file of the corpus is sound") {
                let dir = tempfile::tempdir().expect("temporary directory");
                emit::write(&scenario, dir.path()).expect("written");
                let job = JobDir::open(dir.path()).expect("a trace");
                let digests = analyze_outlines(read_outlines(job.streams()), &Options::default());
                let full = whole(dir.path());
                let mut found = differences(&full, &digests);
                if full.findings.len() != digests.findings.len() || full.confidence != digests.confidence {
                    found.push(format!("{:?}\n  by digests {:?}", full.findings, digests.findings));
                }
                wrong.extend(found.into_iter().map(|what| format!("{}: {what}", scenario.id())));
                judged += 1;
            }
        }
    }
    assert!(judged > 90, "{judged} documents");
    assert!(wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
}
