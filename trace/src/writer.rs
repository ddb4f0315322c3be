//! Writes the stream of one process incarnation.
//!
//! Records wait in one queue per kind. When a block of calls is full, the queues are large, or on
//! [`StreamWriter::flush`], all queues become blocks and go to the file in one write: definitions, calls, returns, the
//! rest. So definitions stand before what refers to them, and within a kind the order is as written. A write that fails
//! is taken back whole and counted; what follows is never behind a torn block.
//!
//! Not here: the live tail, threads (a writer has one owner), syncing to the device.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::call::{Call, CallFlags};
use crate::definitions::Definitions;
use crate::digest::{DigestState, Digests, Standing};
use crate::error::WriteError;
use crate::evidence::{ClockSnapshot, Gap, GapCause};
use crate::header::{FORMAT_MINOR, SegmentHeader};
use crate::join::join;
use crate::limits;
use crate::payload::SegmentEnd;
use crate::queues::{Encoder, Queues};
use crate::segment::{Failure, SegmentFile};
use crate::sizes;
use crate::stream::{ProcessKey, Record};

/// How a stream is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// Identifier of the job; equal on all its processes.
    pub job_id: String,
    /// Calls in a block (1 to 65,536).
    pub block_calls: usize,
    /// A segment is closed before it grows past this many bytes (it holds one write of blocks at least).
    pub segment_bytes: u64,
    /// Compression level of zstd.
    pub zstd_level: i32,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions { job_id: String::new(), block_calls: 4096, segment_bytes: 64 << 20, zstd_level: 1 }
    }
}

/// What a writer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Calls written.
    pub calls: u64,
    /// Records written, calls included. Returns that were joined to a waiting call, and definitions repeated at the
    /// head of a later segment, are not counted.
    pub records: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Segments written.
    pub segments: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Calls that could not be written.
    pub lost_calls: u64,
    /// Records of every kind that could not be written, calls included.
    pub lost_records: u64,
    /// Strings, stacks and vectors that were cut to the format's limits.
    pub clipped: u64,
}

/// Writes the records of one process incarnation to append-only segments.
#[derive(Debug)]
pub struct StreamWriter {
    dir: PathBuf,
    header: SegmentHeader,
    options: WriterOptions,
    segment: SegmentFile,
    /// Number in the segment's name; differs from its ordinal where an earlier recording of the process is there.
    number: u32,
    /// Length of the segment's header and repeated definitions.
    head: u64,
    /// The segment has its end block: the next write begins another one.
    ended: bool,
    /// A block with definitions was lost: the next write repeats them all.
    redefine: bool,
    queues: Queues,
    /// Waiting calls that have not returned: (thread, ordinal) to the place in the queue.
    open: FxHashMap<(u32, u64), usize>,
    definitions: Definitions,
    digests: DigestState,
    /// Where every communicator stands as far as it is in the file.
    standing: Standing,
    /// Calls that could not be written since the last write that could.
    lost: Option<Gap>,
    /// Latest entry of a call in the file.
    last_enter: u64,
    encoder: Encoder,
    out: Vec<u8>,
    summary: Summary,
}

impl StreamWriter {
    /// Creates the first segment of a stream in `dir`, which must exist.
    pub fn create(
        dir: &Path,
        key: &ProcessKey,
        clock: ClockSnapshot,
        options: &WriterOptions,
    ) -> Result<StreamWriter, WriteError> {
        let mut options = options.clone();
        options.block_calls = options.block_calls.clamp(1, limits::MAX_RECORDS);
        let failed = |path: &Path, source| WriteError::from_io("create", path, (0, 0), source);
        let encoder = Encoder::new(options.zstd_level).map_err(|source| failed(dir, source))?;
        let header = SegmentHeader {
            minor: FORMAT_MINOR,
            job_id: options.job_id.clone(),
            key: key.clone(),
            session: clock.realtime,
            ordinal: 1,
            clock,
        };
        let head = header.encode();
        let (segment, number) =
            SegmentFile::create(dir, key, 1, &head).map_err(|Failure { path, source }| failed(&path, source))?;
        Ok(StreamWriter {
            dir: dir.to_owned(),
            header,
            options,
            segment,
            number,
            head: head.len() as u64,
            ended: false,
            redefine: false,
            queues: Queues::default(),
            open: FxHashMap::default(),
            definitions: Definitions::default(),
            digests: DigestState::new(),
            standing: Standing::default(),
            lost: None,
            last_enter: 0,
            encoder,
            out: Vec::new(),
            summary: Summary { segments: 1, bytes: head.len() as u64, ..Summary::default() },
        })
    }

    /// Takes a record. It is in the file once its block is full, or after [`StreamWriter::flush`].
    ///
    /// An error says what was lost; the writer stays usable.
    pub fn write(&mut self, record: Record) -> Result<(), WriteError> {
        let record = self.fit(record);
        let (what, size) = sizes::record(&record);
        if size > limits::MAX_RECORD {
            // No call is: its vectors fit.
            self.summary.lost_records += 1;
            return Err(WriteError::TooLarge { what, size: size as u64, limit: limits::MAX_RECORD as u64 });
        }
        let full = self.queues.size + size > limits::SEAL_AT || self.queues.count >= limits::MAX_RECORDS;
        // Where older records are lost, this one is kept.
        let made_room = if full && self.queues.count > 0 { self.flush() } else { Ok(()) };
        let taken = self.take(record, size);
        made_room.and(taken)
    }

    /// A vector that is too long is left out and marked, so that the call itself is kept.
    fn fit(&mut self, mut record: Record) -> Record {
        if let Record::Call(call) = &mut record
            && call.sends.len().max(call.recvs.len()) > limits::MAX_VECTOR
        {
            call.sends = Vec::new();
            call.recvs = Vec::new();
            call.flags = call.flags.with(CallFlags::VECTORS_CUT);
            self.summary.clipped += 1;
        }
        record
    }

    fn take(&mut self, record: Record, size: usize) -> Result<(), WriteError> {
        if let Record::Return(entry) = &record {
            // Most calls return before their block is full.
            let place = self.open.get(&(entry.thread, entry.thread_seq));
            if let Some(call) = place.and_then(|&place| self.queues.calls.get_mut(place)) {
                join(call, entry);
                return Ok(());
            }
        }
        self.queues.size += size;
        self.queues.count += 1;
        match record {
            Record::Call(call) => return self.call(call),
            Record::Return(entry) => self.queues.returns.push(entry),
            Record::Rank(def) => {
                self.definitions.rank(def);
                self.queues.ranks.push(def);
            }
            Record::Comm(def) => {
                self.digests.define_comm(&def);
                self.definitions.comm(def.clone());
                self.queues.comms.push(def);
            }
            Record::Type(def) => {
                self.digests.define_type(&def);
                self.definitions.derived(def.clone());
                self.queues.types.push(def);
            }
            Record::Site(def) => {
                self.definitions.site(def.clone());
                self.queues.sites.push(def);
            }
            Record::Label(id, text) => {
                self.definitions.label(id, text.clone());
                self.queues.labels.push((id, text));
            }
            Record::Clock(clock) => {
                self.header.clock = clock;
                self.queues.clocks.push(clock);
            }
            Record::Gap(gap) => self.queues.gaps.push(gap),
            Record::State(state) => self.queues.states.push(state),
            Record::Thread(state) => self.queues.threads.push(state),
            Record::Log(line) => self.queues.logs.push(line),
            Record::Attribute(attribute) => self.queues.attributes.push(attribute),
            Record::Step(step) => self.queues.steps.push(step),
        }
        Ok(())
    }

    fn call(&mut self, call: Call) -> Result<(), WriteError> {
        self.digests.absorb(&call);
        if call.exit.is_none() {
            self.open.insert((call.thread, call.thread_seq), self.queues.calls.len());
        }
        self.queues.calls.push(call);
        if self.queues.calls.len() >= self.options.block_calls { self.flush() } else { Ok(()) }
    }

    /// Writes out everything buffered. After it returns, all of it is in the file (the page cache).
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.queues.count == 0 && self.lost.is_none() {
            return Ok(());
        }
        let digests = self.digests.seal_block();
        let result = self.write_queues(&digests);
        let (calls, records) = (self.queues.calls.len() as u64, self.queues.count as u64);
        match &result {
            Ok(()) => {
                self.summary.calls += calls;
                self.summary.records += records;
                self.standing.advance(&digests);
                self.summary.clipped += self.encoder.take_clipped();
                self.last_enter = self.queues.calls.iter().map(|call| call.enter).fold(self.last_enter, u64::max);
                self.lost = None;
                self.redefine = false;
            }
            Err(error) => {
                self.encoder.take_clipped();
                self.encoder.calls_before = self.summary.calls;
                self.summary.lost_calls += calls;
                self.summary.lost_records += records;
                self.redefine |= self.queues.has_definitions();
                if calls > 0 {
                    self.note_loss(error.is_disk_full(), calls);
                }
            }
        }
        self.queues.clear();
        self.open.clear();
        result
    }

    /// Remembers where calls are missing, for the next write that succeeds.
    fn note_loss(&mut self, disk_full: bool, calls: u64) {
        let before = self.queues.calls.iter().map(|call| call.enter).fold(0, u64::max).saturating_add(1);
        let cause = if disk_full { GapCause::DiskFull } else { GapCause::Unknown };
        let gap = self.lost.get_or_insert(Gap { cause, after: self.last_enter, ..Gap::default() });
        gap.events = Some(gap.events.unwrap_or(0) + calls);
        gap.before = gap.before.max(before);
    }

    fn write_queues(&mut self, digests: &Digests) -> Result<(), WriteError> {
        if self.ended || self.segment.is_broken() {
            self.next_segment()?;
        }
        self.encoder.calls_before = self.summary.calls;
        self.out.clear();
        self.encoder.blocks = 0;
        if self.redefine {
            self.encoder.definitions(&self.definitions, &mut self.out);
        }
        if let Some(gap) = &self.lost {
            self.encoder.gap(gap, &mut self.out);
        }
        self.encoder.queues(&self.queues, digests, &mut self.out);
        let grown = self.segment.length() + self.out.len() as u64;
        if grown > self.options.segment_bytes && self.segment.length() > self.head {
            let blocks = std::mem::take(&mut self.out);
            let made = self.encoder.blocks;
            self.end_segment(false)?;
            self.next_segment()?;
            self.out = blocks;
            self.encoder.blocks = made;
        }
        self.append()
    }

    /// Writes what is in `out`.
    fn append(&mut self) -> Result<(), WriteError> {
        match self.segment.append(&self.out) {
            Ok(()) => {
                self.summary.bytes += self.out.len() as u64;
                self.summary.blocks += self.encoder.blocks;
                Ok(())
            }
            Err(source) => Err(WriteError::from_io("write", self.segment.path(), self.waiting(), source)),
        }
    }

    /// What a failure now loses.
    fn waiting(&self) -> (u64, u64) {
        (self.queues.calls.len() as u64, self.queues.count as u64)
    }

    /// Closes the segment as rotated and begins the next one, with this snapshot in its header.
    pub fn rotate(&mut self, clock: ClockSnapshot) -> Result<(), WriteError> {
        self.flush()?;
        self.header.clock = clock;
        if !self.ended {
            self.end_segment(false)?;
        }
        self.next_segment()
    }

    fn end_segment(&mut self, last: bool) -> Result<(), WriteError> {
        let end = SegmentEnd { last, calls: self.summary.calls, lost_calls: self.summary.lost_calls };
        self.encoder.calls_before = self.summary.calls;
        self.out.clear();
        self.encoder.blocks = 0;
        self.encoder.end(&end, &self.standing.digests(), &mut self.out);
        self.append()?;
        self.ended = true;
        Ok(())
    }

    fn next_segment(&mut self) -> Result<(), WriteError> {
        let header = SegmentHeader { ordinal: self.header.ordinal + 1, ..self.header.clone() };
        self.encoder.calls_before = self.summary.calls;
        self.out.clear();
        self.out.extend_from_slice(&header.encode());
        self.encoder.blocks = 0;
        self.encoder.definitions(&self.definitions, &mut self.out);
        let created = SegmentFile::create(&self.dir, &header.key, self.number + 1, &self.out);
        let (segment, number) =
            created.map_err(|Failure { path, source }| WriteError::from_io("create", &path, self.waiting(), source))?;
        self.header = header;
        self.segment = segment;
        self.number = number;
        self.head = self.out.len() as u64;
        self.ended = false;
        self.summary.segments += 1;
        self.summary.bytes += self.head;
        self.summary.blocks += self.encoder.blocks;
        Ok(())
    }

    /// Writes out everything and marks the stream as closed.
    pub fn close(mut self) -> Result<Summary, WriteError> {
        let flushed = self.flush();
        if self.ended || self.segment.is_broken() {
            self.next_segment()?;
        }
        let ended = self.end_segment(true);
        flushed.and(ended)?;
        Ok(self.summary)
    }

    /// Bytes in the files so far.
    pub fn bytes_written(&self) -> u64 {
        self.summary.bytes
    }

    /// The segment that is being written.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }

    /// What was written and lost so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }
}

impl Drop for StreamWriter {
    /// A writer that is dropped without being closed keeps what it was given, but not the mark that it was closed.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
