//! The first inputs: the sample of the format, as it is written and without compression.
//!
//! A target writes them when it starts, into the folder that `RANKDIFF_SEEDS` names; libFuzzer reads its corpus after.

use std::fs;
use std::path::Path;

use rankdiff_trace::{JobInfo, StreamWriter, TailOptions, WriterOptions, write_job_info};

use crate::checksums::unpacked;
use crate::sample;
use crate::scratch::Scratch;

/// Names the folder.
const FOLDER: &str = "RANKDIFF_SEEDS";

/// Writes the inputs that `make` gives, if somebody asks for them.
pub fn write(make: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    for (number, seed) in make().into_iter().enumerate() {
        fs::write(Path::new(&folder).join(format!("seed-{number:02}")), seed).expect("a seed is written");
    }
}

/// The segments of the sample, cut into blocks and segments in different ways, each twice: as written, and unpacked.
pub fn segments() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (block_calls, segment_bytes) in [(4096, 64 << 20), (64, 1500), (8, 400)] {
        for segment in job(block_calls, segment_bytes).into_iter().map(|file| file.1).take(6) {
            seeds.push(unpacked(&segment));
            seeds.push(segment);
        }
    }
    seeds
}

/// The files of the sample's job, by name.
pub fn job(block_calls: usize, segment_bytes: u64) -> Vec<(String, Vec<u8>)> {
    let scratch = Scratch::empty();
    write_job(scratch.path(), &WriterOptions { block_calls, segment_bytes, ..WriterOptions::default() });
    files_of(&scratch)
}

/// Writes the sample's job into a folder.
pub fn write_sample(folder: &Path) {
    write_job(folder, &WriterOptions::default());
}

fn write_job(folder: &Path, options: &WriterOptions) {
    for rank in 0..sample::RANKS {
        let mut writer = StreamWriter::create(folder, &sample::key(rank), sample::clock(1), options)
            .expect("an empty folder takes a stream");
        for record in sample::records(rank) {
            writer.write(record).expect("the sample is below every limit");
        }
        if rank == 0 {
            writer.close().expect("written");
        } else {
            writer.flush().expect("written");
        }
        let host = sample::key(rank).host;
        let info = JobInfo { host, command: vec!["train".to_owned()], world: Some(2), ..JobInfo::default() };
        write_job_info(folder, &info).expect("written");
    }
}

/// A segment with its tail, as a writer leaves them that is killed: inputs of the target of that name.
pub fn tails() -> Vec<Vec<u8>> {
    let records = sample::records(0);
    let (calls, rest) = records.split_at(records.len() / 2);
    let mut seeds = Vec::new();
    for (block_calls, rows, skipped) in [(4096, 64, calls.len() - 20), (8, 16, calls.len() - 30), (4096, 32, 0)] {
        let scratch = Scratch::empty();
        let tail = Some(TailOptions { rows });
        let options = WriterOptions { block_calls, tail, ..WriterOptions::default() };
        let mut writer = StreamWriter::create(scratch.path(), &sample::key(0), sample::clock(1), &options)
            .expect("an empty folder takes a stream");
        let some = if skipped == 0 { &rest[rest.len() - 30..] } else { &calls[skipped..] };
        for record in some {
            writer.write(record.clone()).expect("the sample is below every limit");
        }
        std::mem::forget(writer);
        let files = files_of(&scratch);
        let of = |ending: &str| {
            let found = files.iter().find(|file| file.0.ends_with(ending));
            found.map(|file| file.1.clone()).expect("the writer made it")
        };
        for segment in [of(".rdt"), unpacked(&of(".rdt"))] {
            let mut seed = vec![3];
            seed.extend_from_slice(&(segment.len() as u16).to_le_bytes());
            seed.extend_from_slice(&segment);
            seed.extend_from_slice(&of(".tail"));
            seeds.push(seed);
        }
    }
    seeds
}

fn files_of(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(scratch.path())
        .expect("it was just made")
        .filter_map(Result::ok)
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("read")))
        .collect();
    files.sort();
    files
}

/// Bytes that look like none: for targets that make records of them.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(length)
    .collect()
}
