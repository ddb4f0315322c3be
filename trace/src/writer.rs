//! Writes the stream of one process incarnation.
//!
//! Records wait in one queue per kind. When a block of calls is full, the queues are large, or on
//! [`StreamWriter::flush`], all queues become blocks and go to the file in one write: definitions, calls, returns, the
//! rest. So definitions stand before what refers to them, and within a kind the order is as written. A write that fails
//! is taken back whole and counted; what follows is never behind a torn block. With a live tail (`tail/`), a record is
//! out of this process's hands as soon as [`StreamWriter::write`] returns.
//!
//! Not here: threads (a writer has one owner), a clock, syncing to the device.

use std::path::Path;
use std::sync::Arc;

use crate::call::{Call, CallFlags};
use crate::definitions::Definitions;
use crate::digest::{DigestState, Digests, Standing};
use crate::directory::TraceDir;
use crate::error::WriteError;
use crate::evidence::{ClockSnapshot, Gap, GapCause};
use crate::frontier::Frontier;
use crate::header::{FORMAT_MINOR, SegmentHeader};
use crate::join::Joiner;
use crate::limits;
use crate::op::OpKind;
use crate::payload::{SegmentEnd, TailRows};
use crate::queues::{Encoder, Queues};
use crate::repeated::Repeated;
use crate::segment::{Failure, SegmentFile, tail_name};
use crate::sizes;
use crate::stream::{ProcessKey, Record};
use crate::tail::TailOptions;
use crate::tail::layout::{STATE_CLOSED, STATE_LEFT};
use crate::tail::writer::{Place, TailWriter};

/// How a stream is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// Identifier of the job; equal on all its processes.
    pub job_id: String,
    /// Calls in a block (1 to 65,536).
    pub block_calls: usize,
    /// A segment is closed before it grows past this many bytes (it holds one write of blocks at least).
    pub segment_bytes: u64,
    /// A segment is closed once the times in it span more than this, ns (of the records' own clock: of calls, returns,
    /// clock snapshots, states and step marks). `None`: by size only.
    pub segment_ns: Option<u64>,
    /// Compression level of zstd.
    pub zstd_level: i32,
    /// Keep what is not in a block yet in a live tail; `None`: a writer that is killed loses it.
    pub tail: Option<TailOptions>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            job_id: String::new(),
            block_calls: 4096,
            segment_bytes: 64 << 20,
            segment_ns: None,
            zstd_level: 1,
            tail: None,
        }
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
    dir: Arc<TraceDir>,
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
    /// Puts returns into waiting calls.
    joiner: Joiner,
    definitions: Definitions,
    repeated: Repeated,
    digests: DigestState,
    /// Where every communicator stands as far as it is in the file.
    standing: Standing,
    /// Its last calls, as far as they are in the file.
    frontier: Frontier,
    /// Calls that could not be written since the last write that could.
    lost: Option<Gap>,
    /// Latest entry of a call in the file.
    last_enter: u64,
    /// Earliest and latest time of what waits.
    times: (u64, u64),
    /// Earliest time in the segment.
    segment_since: Option<u64>,
    /// The request to begin another segment that was last followed.
    rotation: u64,
    tail: Option<TailWriter>,
    /// Why there is no tail although one was asked for.
    tail_problem: Option<std::io::Error>,
    encoder: Encoder,
    out: Vec<u8>,
    /// The note of the tail's rows, and then all blocks of a write.
    noted: Vec<u8>,
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
        let opened = TraceDir::open(dir).map_err(|source| WriteError::from_io("open", dir, (0, 0), source))?;
        StreamWriter::create_in(&Arc::new(opened), key, clock, options)
    }

    /// Creates the first segment of a stream in a directory that several streams share.
    pub fn create_in(
        dir: &Arc<TraceDir>,
        key: &ProcessKey,
        clock: ClockSnapshot,
        options: &WriterOptions,
    ) -> Result<StreamWriter, WriteError> {
        let mut options = options.clone();
        options.block_calls = options.block_calls.clamp(1, limits::MAX_RECORDS);
        let failed = |path: &Path, source| WriteError::from_io("create", path, (0, 0), source);
        let encoder = Encoder::new(options.zstd_level).map_err(|source| failed(dir.path(), source))?;
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
        let (tail, tail_problem) = match options.tail {
            None => (None, None),
            Some(tail) => match TailWriter::create(dir, tail_name(key, number), &header, tail) {
                Ok(tail) => (Some(tail), None),
                Err(source) => {
                    let path = dir.path_of(&tail_name(key, number));
                    let what = format!("cannot create the live tail {}: {source}", path.display());
                    (None, Some(std::io::Error::new(source.kind(), what)))
                }
            },
        };
        Ok(StreamWriter {
            dir: Arc::clone(dir),
            header,
            options,
            segment,
            number,
            head: head.len() as u64,
            ended: false,
            redefine: false,
            queues: Queues::default(),
            joiner: Joiner::default(),
            definitions: Definitions::default(),
            repeated: Repeated::default(),
            digests: DigestState::new(),
            standing: Standing::default(),
            frontier: Frontier::default(),
            lost: None,
            last_enter: 0,
            times: NO_TIMES,
            segment_since: None,
            rotation: dir.rotation(),
            tail,
            tail_problem,
            encoder,
            out: Vec::new(),
            noted: Vec::new(),
            summary: Summary { segments: 1, bytes: head.len() as u64, ..Summary::default() },
        })
    }

    /// Takes a record. It is in the segment once its block is full, or after [`StreamWriter::flush`]; with a live tail,
    /// readers see it from the moment that this returns.
    ///
    /// An error says what was lost; the writer stays usable.
    #[inline]
    pub fn write(&mut self, record: Record) -> Result<(), WriteError> {
        match record {
            Record::Call(call) => self.write_call(call),
            record => self.write_other(record),
        }
    }

    fn write_other(&mut self, record: Record) -> Result<(), WriteError> {
        let (what, size) = sizes::record(&record);
        if size > limits::MAX_RECORD {
            self.summary.lost_records += 1;
            return Err(WriteError::TooLarge { what, size: size as u64, limit: limits::MAX_RECORD as u64 });
        }
        let settled = if self.digests.outdates(&record) { self.flush() } else { Ok(()) };
        let place = self.tail.as_mut().map_or(Place::Rows(0), |tail| tail.place(&record));
        let made_room = settled.and(self.make_room(size, place));
        let joined = self.take(record, size);
        match (&mut self.tail, place) {
            (None, _) => made_room,
            (Some(tail), Place::Rows(_)) => {
                tail.put(joined);
                made_room
            }
            (Some(tail), Place::Elsewhere) => {
                tail.put_elsewhere();
                made_room.and(self.flush())
            }
        }
    }

    /// Nearly every record is a call. It is large, so it moves once, into its queue.
    #[inline]
    fn write_call(&mut self, call: Call) -> Result<(), WriteError> {
        // Vectors that are too long are left out, so that the call itself is kept.
        let cut = call.sends.len().max(call.recvs.len()) > limits::MAX_VECTOR;
        let size = if cut { sizes::PLAIN } else { sizes::call(&call) };
        // The size is a bound for the call's rows as well.
        let place = self.tail.as_ref().map_or(Place::Rows(0), |tail| tail.place_of(size));
        let made_room = self.make_room(size, place);
        self.times = (self.times.0.min(call.enter), self.times.1.max(call.enter));
        self.queues.size += size;
        self.queues.count += 1;
        let index = self.queues.calls.len();
        self.queues.calls.push(call);
        if let Some(call) = self.queues.calls.last_mut() {
            if cut {
                (call.sends, call.recvs) = (Vec::new(), Vec::new());
                call.flags = call.flags.with(CallFlags::VECTORS_CUT);
                self.summary.clipped += 1;
            }
            self.digests.absorb(call);
            match (&mut self.tail, place) {
                (None, _) => {}
                (Some(tail), Place::Rows(_)) => {
                    tail.put_call(call, if in_chain(call) { self.digests.chain_of(call.comm) } else { None });
                }
                (Some(tail), Place::Elsewhere) => tail.put_elsewhere(),
            }
        }
        let full = index + 1 >= self.options.block_calls || place == Place::Elsewhere;
        let flushed = if full { self.flush() } else { Ok(()) };
        made_room.and(flushed)
    }

    /// Writes out what waits if a record of this size would not fit beside it. Where older records are lost, the new
    /// one is kept.
    #[inline]
    fn make_room(&mut self, size: usize, place: Place) -> Result<(), WriteError> {
        let full = self.queues.size + size > limits::SEAL_AT
            || self.queues.count >= limits::MAX_RECORDS
            || self.tail.as_ref().is_some_and(|tail| !tail.has_room(place));
        if full && self.queues.count > 0 { self.flush() } else { Ok(()) }
    }

    /// Queues a record; gives whether it went into a call that waits.
    fn take(&mut self, record: Record, size: usize) -> bool {
        if let Some(time) = time_of(&record) {
            self.times = (self.times.0.min(time), self.times.1.max(time));
        }
        // Most calls return before their block is full.
        if let Record::Return(entry) = &record
            && self.joiner.join(&mut self.queues.calls, entry)
        {
            return true;
        }
        self.queues.size += size;
        self.queues.count += 1;
        match record {
            Record::Call(call) => self.queues.calls.push(call),
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
        false
    }

    /// Writes out everything buffered. After it returns, all of it is in the file (the page cache).
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.flush_all(false)
    }

    fn flush_all(&mut self, closing: bool) -> Result<(), WriteError> {
        if self.queues.count == 0 && self.lost.is_none() {
            return Ok(());
        }
        let mut digests = self.digests.seal_block();
        if self.dir.is_full() {
            if !self.make_do() && !closing {
                self.seal_tail();
                return Ok(());
            }
            digests = Digests::default();
        }
        let result = self.write_queues(&digests);
        self.repeated.advance(&self.queues);
        let (calls, records) = (self.queues.calls.len() as u64, self.queues.count as u64);
        match &result {
            Ok(()) => {
                self.summary.calls += calls;
                self.summary.records += records;
                self.standing.advance(&digests);
                self.frontier.advance(&self.queues.calls, &self.queues.returns, &digests, &self.digests);
                self.summary.clipped += self.encoder.take_clipped();
                self.last_enter = self.queues.calls.iter().map(|call| call.enter).fold(self.last_enter, u64::max);
                if self.times != NO_TIMES {
                    self.segment_since = Some(self.segment_since.map_or(self.times.0, |since| since.min(self.times.0)));
                }
                if let (Some(gap), Some(tail)) = (self.lost, &mut self.tail) {
                    tail.put_last(&Record::Gap(gap));
                }
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
        self.joiner.clear();
        self.times = NO_TIMES;
        // What could not be written is given up in the tail as well: its room is needed for what comes.
        self.seal_tail();
        result
    }

    fn seal_tail(&mut self) {
        if let Some(tail) = &mut self.tail {
            tail.seal(self.header.ordinal, self.segment.length());
        }
    }

    /// Drops the waiting calls, since there is no room for them: what is left is for evidence. Gives whether anything is
    /// left that is worth the room; that calls are missing is said along with it, or at the end.
    fn make_do(&mut self) -> bool {
        let calls = self.queues.calls.len() as u64;
        if calls > 0 {
            self.note_loss(true, calls);
        }
        let returns = self.queues.returns.len() as u64;
        self.queues.calls.clear();
        self.queues.returns.clear();
        self.joiner.clear();
        self.queues.count = self.queues.count.saturating_sub((calls + returns) as usize);
        self.summary.lost_calls += calls;
        self.summary.lost_records += calls + returns;
        if self.queues.count == 0 {
            self.queues.clear();
        }
        self.queues.count > 0
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
            self.encoder.redefine(&self.definitions, &mut self.out);
        }
        self.encoder.queues(&self.queues, digests, &mut self.out);
        if let Some(gap) = &self.lost {
            self.encoder.gap(gap, &mut self.out);
        }
        self.note_rows();
        let grown = self.segment.length() + self.out.len() as u64;
        let asked = std::mem::replace(&mut self.rotation, self.dir.rotation()) != self.dir.rotation();
        let due = asked || grown > self.options.segment_bytes || self.spans_too_long();
        if due && self.segment.length() > self.head {
            let blocks = std::mem::take(&mut self.out);
            let made = self.encoder.blocks;
            self.end_segment(false)?;
            self.next_segment()?;
            self.out = blocks;
            self.encoder.blocks = made;
        }
        self.append()
    }

    /// Puts the note of the tail's rows in front of the blocks that hold them.
    fn note_rows(&mut self) {
        let Some(tail) = &mut self.tail else { return };
        let (first, waiting) = tail.waiting();
        let last = self.lost.map_or(0, |gap| TailWriter::rows_of(&Record::Gap(gap)));
        let rows = TailRows { first, rows: waiting + last, blocks: self.encoder.blocks };
        self.noted.clear();
        let after = std::mem::replace(&mut self.encoder.calls_before, self.summary.calls);
        self.encoder.tail_rows(&rows, &mut self.noted);
        self.encoder.calls_before = after;
        self.noted.append(&mut self.out);
        std::mem::swap(&mut self.noted, &mut self.out);
    }

    /// Whether what waits ends too long after the segment's beginning.
    fn spans_too_long(&self) -> bool {
        let (Some(most), Some(since)) = (self.options.segment_ns, self.segment_since) else { return false };
        self.times != NO_TIMES && self.times.1.saturating_sub(since) >= most
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
        self.next_segment()?;
        self.seal_tail();
        Ok(())
    }

    fn end_segment(&mut self, last: bool) -> Result<(), WriteError> {
        let end = SegmentEnd { last, calls: self.summary.calls, lost_calls: self.summary.lost_calls };
        self.encoder.calls_before = self.summary.calls;
        self.out.clear();
        self.encoder.blocks = 0;
        let (calls, points) = self.frontier.block();
        self.encoder.frontier(&calls, &points, &mut self.out);
        self.encoder.end(&end, &self.standing.digests(), &mut self.out);
        self.append()?;
        self.ended = true;
        self.segment.sealed(self.last_enter);
        Ok(())
    }

    fn next_segment(&mut self) -> Result<(), WriteError> {
        let header = SegmentHeader { ordinal: self.header.ordinal + 1, ..self.header.clone() };
        self.encoder.calls_before = self.summary.calls;
        self.out.clear();
        self.out.extend_from_slice(&header.encode());
        self.encoder.blocks = 0;
        self.encoder.head(&self.definitions, &self.repeated, &mut self.out);
        let created = SegmentFile::create(&self.dir, &header.key, self.number + 1, &self.out);
        let (segment, number) =
            created.map_err(|Failure { path, source }| WriteError::from_io("create", &path, self.waiting(), source))?;
        self.header = header;
        self.segment = segment;
        self.number = number;
        self.head = self.out.len() as u64;
        self.ended = false;
        self.segment_since = None;
        self.summary.segments += 1;
        self.summary.bytes += self.head;
        self.summary.blocks += self.encoder.blocks;
        Ok(())
    }

    /// Writes out everything and marks the stream as closed.
    pub fn close(mut self) -> Result<Summary, WriteError> {
        let flushed = self.flush_all(true);
        if self.ended || self.segment.is_broken() {
            self.next_segment()?;
        }
        let ended = self.end_segment(true);
        flushed.and(ended)?;
        if let Some(mut tail) = self.tail.take() {
            tail.end(STATE_CLOSED);
            tail.remove();
        }
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

    /// The live tail, if there is one.
    pub fn tail_path(&self) -> Option<&Path> {
        self.tail.as_ref().map(TailWriter::path)
    }

    /// Why there is no live tail although [`WriterOptions::tail`] asked for one: the stream is written without it.
    pub fn tail_problem(&self) -> Option<&std::io::Error> {
        self.tail_problem.as_ref()
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
        if let Some(tail) = &mut self.tail {
            tail.end(STATE_LEFT);
        }
    }
}

/// Whether a call moves its communicator's chain.
fn in_chain(call: &Call) -> bool {
    let executed = !call.flags.contains(CallFlags::NESTED) && !call.flags.contains(CallFlags::CAPTURED);
    executed && call.op.kind() == OpKind::Collective
}

/// Nothing that waits has a time.
const NO_TIMES: (u64, u64) = (u64::MAX, 0);

/// When a record that is no call was made, for the span of a segment.
fn time_of(record: &Record) -> Option<u64> {
    match record {
        Record::Return(entry) => Some(entry.exit),
        Record::Clock(clock) => Some(clock.monotonic),
        Record::State(state) => Some(state.at),
        Record::Thread(state) => Some(state.at),
        Record::Step(step) => Some(step.at),
        _ => None,
    }
}
