//! A segment and a live tail of any bytes, read as a stream whose writer was killed, and followed.
//!
//! The input is a byte of choices, the length of the segment in two bytes, the segment, the tail. Claims: no panic;
//! problems name their file; a follower comes to an end; nothing takes more than the rows and blocks can hold.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankdiff_fuzz::checksums::{repair, repair_tail};
use rankdiff_fuzz::memory::bounded;
use rankdiff_fuzz::scratch::Scratch;
use rankdiff_fuzz::seeds;
use rankdiff_trace::{Follower, JobDir};

/// What all may take.
const MOST: usize = 256 << 20;
/// Polls that a follower of a small file may need.
const POLLS: usize = 2000;

fuzz_target!(init: seeds::write(seeds::tails), |data: &[u8]| {
    let [choice, low, high, rest @ ..] = data else { return };
    let (segment, tail) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
    let (mut segment, mut tail) = (segment.to_vec(), tail.to_vec());
    if choice & 1 == 1 {
        repair(&mut segment, 300);
    }
    if choice & 2 == 2 {
        repair_tail(&mut tail);
    }
    let scratch = Scratch::empty();
    std::fs::write(scratch.path().join("n.0001.rdt"), segment).expect("a small file in memory");
    std::fs::write(scratch.path().join("n.0001.tail"), tail).expect("a small file in memory");
    bounded(MOST, || {
        let Ok(job) = JobDir::open(scratch.path()) else { return };
        for stream in job.streams() {
            let outcome = stream.read();
            for problem in &outcome.problems {
                assert!(problem.file.starts_with(scratch.path()));
            }
            let mut follower = Follower::new(stream);
            let mut polls = 0;
            while follower.poll().more {
                polls += 1;
                assert!(polls < POLLS, "more and more of a small file");
            }
        }
    });
});
