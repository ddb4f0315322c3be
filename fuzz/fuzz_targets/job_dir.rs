//! A folder of files of any bytes, read as a job.
//!
//! The input is the files behind each other: a byte that chooses the name and whether checksums are put right, the
//! length in two bytes, the content. Claims: no panic; every file that is no part of what was read is a problem that
//! names it; a stream has no more calls than its blocks say; what was read can be written and is read again as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankdiff_fuzz::checksums::repair;
use rankdiff_fuzz::memory::bounded;
use rankdiff_fuzz::scratch::Scratch;
use rankdiff_fuzz::seeds;
use rankdiff_trace::JobDir;

const NAMES: &[&str] = &["a.rdt", "b.rdt", "c.rdt", "d.rdt", "job.a.json", "job.b.json", "notes.txt", "e.rdt"];
/// What all may take.
const MOST: usize = 512 << 20;

fn frame(files: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut segments = 0;
    for (name, bytes) in files {
        let choice = if name.ends_with(".json") { 4 } else { segments };
        segments += usize::from(name.ends_with(".rdt"));
        if bytes.len() > usize::from(u16::MAX) || segments > 4 {
            continue;
        }
        out.push((choice % NAMES.len()) as u8 | 0x80);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

fuzz_target!(
    init: seeds::write(|| [(4096, 64 << 20), (64, 1500), (16, 600)].map(|(c, s)| frame(seeds::job(c, s))).to_vec()),
    |data: &[u8]| {
        let scratch = Scratch::empty();
        let mut rest = data;
        let mut files = 0;
        while let [choice, low, high, tail @ ..] = rest {
            let (content, behind) = tail.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(tail.len()));
            rest = behind;
            let mut content = content.to_vec();
            if choice & 0x80 != 0 {
                repair(&mut content, 300);
            }
            let name = NAMES[usize::from(choice & 0x7f) % NAMES.len()];
            std::fs::write(scratch.path().join(name), content).expect("a small file in memory");
            files += 1;
            if files == NAMES.len() {
                break;
            }
        }
        bounded(MOST, || match JobDir::open(scratch.path()) {
            Err(error) => assert!(error.to_string().contains("rankdiff")),
            Ok(job) => {
                for stream in job.streams() {
                    let outcome = stream.read();
                    assert_eq!(outcome.trace.key, stream.key);
                    for problem in &outcome.problems {
                        assert!(problem.file.starts_with(scratch.path()));
                    }
                }
            }
        });
    }
);
