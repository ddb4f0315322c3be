//! Streams whose content is known, and what may be read of them after damage.

use std::path::{Path, PathBuf};

use rankdiff_trace::{
    BlockReader, Call, Decoded, GapCause, JobDir, ProblemKind, ProcessTrace, ReadOutcome, Record, StreamFiles,
    StreamWriter, WriterOptions,
};

use crate::memory::peak;
use crate::{expected, sample};

/// What messages and bookkeeping may take beside what the whole stream took, bytes.
const SMALL: usize = 64 << 10;

/// A stream on disk with what is in it.
pub(crate) struct Stream {
    dir: tempfile::TempDir,
    files: StreamFiles,
    /// Bytes of each segment, as written.
    pub(crate) segments: Vec<Vec<u8>>,
    /// Calls of each segment, as written: without returns that stand in later blocks.
    calls: Vec<Vec<Call>>,
    /// Calls before each segment.
    begins: Vec<usize>,
    /// Everything, returns joined to their calls.
    whole: ProcessTrace,
    /// Most memory that reading it takes.
    cost: usize,
}

impl Stream {
    /// Writes these records of the sample's first rank.
    pub(crate) fn write(records: &[Record], options: &WriterOptions, closed: bool) -> Stream {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut writer = StreamWriter::create(dir.path(), &sample::key(0), sample::clock(1), options).expect("create");
        for record in records {
            writer.write(record.clone()).expect("write");
        }
        if closed {
            writer.close().expect("close");
        } else {
            writer.flush().expect("flush");
            drop(writer);
        }
        let files = JobDir::open(dir.path()).expect("open").streams()[0].clone();
        let segments: Vec<Vec<u8>> = files.segments.iter().map(|path| std::fs::read(path).expect("read")).collect();
        let calls: Vec<Vec<Call>> = files.segments.iter().map(|path| calls_of(path)).collect();
        let begins = (0..calls.len()).map(|segment| calls[..segment].iter().map(Vec::len).sum()).collect();
        let (outcome, cost) = peak(|| files.read());
        assert_eq!(outcome.problems, []);
        let whole = expected::expected(sample::key(0), records, closed);
        assert_eq!(outcome.trace, whole);
        Stream { dir, files, segments, calls, begins, whole, cost }
    }

    /// The sample in blocks of `block_calls`, in segments of some `segment_bytes`.
    pub(crate) fn sample(block_calls: usize, segment_bytes: u64, closed: bool) -> Stream {
        let options = WriterOptions { block_calls, segment_bytes, ..WriterOptions::default() };
        Stream::write(&sample::records(0), &options, closed)
    }

    /// The same without most of its calls, for tests that read it thousands of times.
    pub(crate) fn short(block_calls: usize, segment_bytes: u64, closed: bool) -> Stream {
        let options = WriterOptions { block_calls, segment_bytes, ..WriterOptions::default() };
        Stream::write(&short_records(), &options, closed)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.files.segments
    }

    /// Reads the stream with other bytes in one of its segments, checks that all is true, and puts the segment back.
    pub(crate) fn with(&self, segment: usize, bytes: &[u8]) -> ReadOutcome {
        let path = &self.files.segments[segment];
        std::fs::write(path, bytes).expect("write");
        let grown = bytes.len().saturating_sub(self.segments[segment].len());
        let outcome = self.read(grown, &self.files.segments[segment..=segment]);
        std::fs::write(path, &self.segments[segment]).expect("write");
        outcome
    }

    /// Reads what is on disk and checks it. `grown`: bytes that are there beside the stream's own; `changed`: the files
    /// that are not as written.
    pub(crate) fn read(&self, grown: usize, changed: &[PathBuf]) -> ReadOutcome {
        let (outcome, most) = peak(|| self.files.read());
        self.check(&outcome);
        let bound = self.cost + self.cost * grown / self.bytes() + grown + SMALL;
        assert!(most <= bound, "reading took {most} bytes, the whole stream {}", self.cost);
        // Headers and digests alone take no more than there is.
        for path in changed {
            let length = std::fs::metadata(path).map_or(0, |found| found.len() as usize);
            let ((), most) = peak(|| skim(path));
            assert!(most <= length + SMALL, "headers of a file of {length} bytes took {most} bytes");
        }
        outcome
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }

    /// How many calls of each segment were read; each a prefix of what was written, in order, with its return or
    /// without.
    pub(crate) fn read_of(&self, outcome: &ReadOutcome) -> Vec<usize> {
        let mut read = vec![0; self.calls.len()];
        let mut segment = 0;
        for found in &outcome.trace.calls {
            let next = (segment..self.calls.len()).find(|&candidate| {
                let from = if candidate == segment { read[candidate] } else { 0 };
                self.calls[candidate].get(from).is_some_and(|call| same(call, found))
            });
            segment = next.unwrap_or_else(|| panic!("a call that was not made there: {found:?}"));
            let written = &self.calls[segment][read[segment]];
            let joined = &self.whole.calls[self.begins[segment] + read[segment]];
            assert!(found == written || found == joined, "{found:?}\nwritten {written:?}\njoined {joined:?}");
            read[segment] += 1;
        }
        read
    }

    fn check(&self, outcome: &ReadOutcome) {
        let read = self.read_of(outcome);
        let missing = read.iter().zip(&self.calls).any(|(&read, calls)| read < calls.len());
        let trace = &outcome.trace;
        // Where calls are missing, nobody may conclude anything from their absence. A stream that ends between two
        // blocks is one whose recorder was killed there, and is not closed.
        let mut before_last = read.iter().zip(&self.calls).rev().skip(1);
        let only_at_end = before_last.all(|(&read, calls)| read == calls.len());
        let ends_early = !trace.closed && (outcome.problems.is_empty() || only_at_end);
        let found = trace.gaps.iter().any(|gap| gap.cause == GapCause::Torn && gap.thread == 0);
        assert!(!missing || ends_early || found, "calls are missing without a gap: {:?}", outcome.problems);
        assert!(!missing || ends_early || !outcome.problems.is_empty(), "calls are missing and nothing says so");
        for problem in &outcome.problems {
            let text = problem.to_string();
            assert!(text.contains(".rdt at byte "), "{text}");
            assert_ne!(problem.kind, ProblemKind::Newer, "{text}");
        }
        // Definitions may be missing or of an earlier state; what is there was written.
        assert!(trace.comms.len() <= self.whole.comms.len() && trace.sites.len() <= self.whole.sites.len());
        assert!(trace.types.len() <= self.whole.types.len() && trace.labels.len() <= self.whole.labels.len());
        assert!(trace.ranks.iter().all(|rank| self.whole.ranks.contains(rank)));
        assert!(trace.states.iter().all(|state| self.whole.states.contains(state)));
        assert!(trace.threads.iter().all(|state| self.whole.threads.contains(state)));
        assert!(trace.logs.iter().all(|line| self.whole.logs.contains(line)));
        assert!(trace.attributes.iter().all(|attribute| self.whole.attributes.contains(attribute)));
        assert!(trace.steps.iter().all(|step| self.whole.steps.contains(step)));
        assert!(trace.clocks.iter().all(|clock| self.whole.clocks.contains(clock)));
    }

    /// Number of calls in each segment.
    pub(crate) fn written(&self) -> Vec<usize> {
        self.calls.iter().map(Vec::len).collect()
    }
}

/// The sample without most calls of one kind.
pub(crate) fn short_records() -> Vec<Record> {
    let mut kept = sample::records(0);
    let mut calls = 0;
    kept.retain(|record| {
        calls += usize::from(matches!(record, Record::Call(_)));
        !matches!(record, Record::Call(_)) || calls > 260
    });
    kept
}

fn same(one: &Call, other: &Call) -> bool {
    (one.thread, one.thread_seq) == (other.thread, other.thread_seq)
}

/// Calls of a segment as its blocks hold them.
fn calls_of(path: &Path) -> Vec<Call> {
    let mut reader = BlockReader::open(path).expect("open");
    let mut calls = Vec::new();
    while let Some(block) = reader.next_block().expect("whole") {
        if let Decoded::Calls(mut decoded) = block.decode(&mut reader).expect("whole") {
            calls.append(&mut decoded);
        }
    }
    calls
}

fn skim(path: &Path) {
    if let Ok(mut reader) = BlockReader::open(path) {
        while let Ok(Some(_)) = reader.next_block() {}
    }
}

/// The blocks of a segment: where each begins and ends.
pub(crate) fn blocks_of(path: &Path) -> Vec<std::ops::Range<usize>> {
    let mut reader = BlockReader::open(path).expect("open");
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().expect("whole") {
        found.push(block.offset() as usize..reader.offset() as usize);
    }
    found
}
