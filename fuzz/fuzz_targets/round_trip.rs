//! Arbitrary records, written and read.
//!
//! Claims: however they are cut into blocks and segments, and whenever the writer flushes or rotates, the reader gives
//! exactly these records, with returns in their calls and the latest of each definition.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use rankdiff_fuzz::records::records;
use rankdiff_fuzz::scratch::Scratch;
use rankdiff_fuzz::{expected, seeds};
use rankdiff_trace::{ClockSnapshot, JobDir, ProcessKey, StreamWriter, WriterOptions};

fuzz_target!(
    init: seeds::write(|| vec![seeds::noise(300), seeds::noise(1000), seeds::noise(4000)]),
    |data: &[u8]| {
        let mut u = Unstructured::new(data);
        let choices: [u8; 4] = u.arbitrary().unwrap_or_default();
        let Ok(records) = records(&mut u, 300) else { return };
        let scratch = Scratch::empty();
        let options = WriterOptions {
            block_calls: usize::from(choices[0]) + 1,
            segment_bytes: 1 << (choices[1] % 20),
            ..WriterOptions::default()
        };
        let key = ProcessKey { host: "n0".to_owned(), pid: 7, start_time: 9 };
        let clock = ClockSnapshot { monotonic: 1, boottime: 2, realtime: 3 };
        let mut writer = StreamWriter::create(scratch.path(), &key, clock, &options).expect("an empty folder");
        for (index, record) in records.iter().enumerate() {
            writer.write(record.clone()).expect("below every limit");
            if choices[2] > 0 && index % usize::from(choices[2]) == usize::from(choices[2]) - 1 {
                writer.flush().expect("there is room");
            }
            if choices[3] > 0 && index % usize::from(choices[3]) == usize::from(choices[3]) - 1 {
                writer.rotate(clock).expect("there is room");
            }
        }
        let summary = writer.close().expect("there is room");
        let job = JobDir::open(scratch.path()).expect("it was written");
        assert!(job.problems().is_empty() && job.streams().len() == 1);
        let outcome = job.streams()[0].read();
        assert_eq!(outcome.problems, []);
        assert_eq!(outcome.trace, expected(key, &records, true));
        assert_eq!(summary.calls, outcome.trace.calls.len() as u64);
        assert_eq!(summary.segments, job.streams()[0].segments.len() as u64);
    }
);
