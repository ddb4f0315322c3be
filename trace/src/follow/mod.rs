//! Follows a stream while it is written: its blocks and its live tail as one stream of records, each exactly once.
//!
//! Data flow: [`Follower::poll`] takes rows from the tail as they are committed; where they were overwritten before they
//! were read, it takes the blocks that hold them (`sealed`), and drops from them what it has shown already (`shown`).
//! [`JobFollower`] does so for every stream of a directory and notices new ones.
//!
//! Order: records of one kind come in the order in which they were written, and a definition before what refers to it.
//! A return that came while its call waited for its block is a record of its own if it is seen in the tail, and part of
//! the call if only the block is seen; either way the call returns once.
//!
//! Not here: threads, waiting and clocks (the caller polls when it likes), joining returns to calls, judgement.

mod job;
mod sealed;
mod shown;

pub use job::{JobFollower, StreamBatch};

use crate::block::BlockKind;
use crate::error::Problem;
use crate::evidence::{Gap, GapCause};
use crate::flushes::Item;
use crate::payload::TailRows;
use crate::reader::Block;
use crate::stream::{ProcessKey, Record};
use crate::stream_files::StreamFiles;
use crate::tail::layout::{STATE_CLOSED, STATE_LEFT};
use crate::tail::reader::Miss;
use crate::tail::rows::into_records;
use crate::tail::{Presence, Tail, TailState};

use sealed::{Found, Sealed};
use shown::Shown;

/// Records of one poll after which it returns, so that the caller's memory is bounded (one block may go over it).
const ENOUGH: usize = 8192;
/// A tail whose header is not there after so many polls will not get one.
const TAIL_TRIES: u32 = 4096;
/// The writer's process is looked for each time so many polls found nothing new.
const LOOK_EVERY: u32 = 16;

/// How a stream stands for who follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FollowState {
    /// More may come. Where the writer cannot be seen from here (another node or container), or the stream has no live
    /// tail, that is all that can be known of a writer that was killed.
    #[default]
    Open,
    /// The recording is over: the stream was closed.
    Closed,
    /// The writer ended without closing the stream.
    Left,
    /// The writer's process is gone: it was killed.
    Gone,
}

/// What a poll gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// New records.
    pub records: Vec<Record>,
    /// What could not be read, each once.
    pub problems: Vec<Problem>,
    /// There is more to take at once.
    pub more: bool,
    /// How the stream stands. After any other than [`FollowState::Open`], no poll gives anything more.
    pub state: FollowState,
}

/// Follows one stream.
#[derive(Debug)]
pub struct Follower {
    sealed: Sealed,
    tail: Option<Tail>,
    /// The tail cannot be read, or is not wanted any more.
    tail_done: bool,
    seen: TailState,
    /// Rows below this were shown.
    row: u64,
    shown: Shown,
    /// Latest entry of a call that was shown.
    last_enter: u64,
    /// Polls without news.
    idle: u32,
    /// How the writer ended; what it left is still being read.
    ending: Option<FollowState>,
    state: FollowState,
}

impl Follower {
    /// Follows a stream from its beginning.
    pub fn new(files: &StreamFiles) -> Follower {
        Follower {
            sealed: Sealed::new(files),
            tail: None,
            tail_done: false,
            seen: TailState::default(),
            row: 0,
            shown: Shown::default(),
            last_enter: 0,
            idle: 0,
            ending: None,
            state: FollowState::Open,
        }
    }

    /// Whose stream it is.
    pub fn key(&self) -> &ProcessKey {
        self.sealed.key()
    }

    /// Which recording it is.
    pub fn session(&self) -> u64 {
        self.sealed.session()
    }

    /// How the stream stands.
    pub fn state(&self) -> FollowState {
        self.state
    }

    /// Takes what is new. Where nothing is, that costs one read of the tail's header page.
    pub fn poll(&mut self) -> Batch {
        let mut batch = Batch { state: self.state, ..Batch::default() };
        if self.state != FollowState::Open {
            return batch;
        }
        self.find_tail(&mut batch);
        match self.tail.take() {
            Some(tail) => self.poll_tail(tail, &mut batch),
            None => {
                self.catch_up(&mut batch);
                if self.sealed.is_closed() && !batch.more {
                    self.state = FollowState::Closed;
                } else if let (Some(ending), false) = (self.ending, batch.more) {
                    self.finish(ending, &mut batch);
                }
            }
        }
        batch.state = self.state;
        batch
    }

    /// A tail is made right after its first segment: it may come into sight later.
    fn find_tail(&mut self, batch: &mut Batch) {
        if self.tail.is_some() || self.tail_done {
            return;
        }
        let Some(path) = self.sealed.tail_path() else { return };
        match Tail::open(&path) {
            Ok(tail) if tail.header().key == *self.key() && tail.header().session == self.session() => {
                self.tail = Some(tail);
            }
            Ok(_) => self.tail_done = true,
            Err(error) if error.is_not_found() => {}
            // Its header may not be written yet: room for it is taken first, which may last on a busy disk.
            Err(_) if self.idle < TAIL_TRIES => self.idle += 1,
            Err(error) => {
                self.tail_done = true;
                batch.problems.push(crate::stream_files::unreadable(&path, &error));
            }
        }
    }

    fn poll_tail(&mut self, mut tail: Tail, batch: &mut Batch) {
        let state = match tail.state() {
            Ok(state) => state,
            Err(problem) => return self.without_tail(problem, batch),
        };
        if state == self.seen && self.row >= state.committed {
            return self.nothing_new(tail, state, batch);
        }
        if state != self.seen {
            self.idle = 0;
        }
        self.seen = state;
        if let Some(seal) = state.seal.filter(|seal| seal.rows <= self.row) {
            // Everything up to there was shown: blocks are looked at behind it only.
            self.shown.drop_below(seal.rows);
            self.sealed.go_on_at(seal);
        }
        while self.row < state.committed {
            if batch.records.len() >= ENOUGH {
                batch.more = true;
                break;
            }
            let before = self.row;
            match tail.record(self.row, state.committed) {
                Ok(found) if !found.elsewhere => {
                    self.row = found.next;
                    self.shown.note(&found);
                    if let Some(record) = found.record {
                        self.show(*record, batch);
                    }
                }
                Ok(_) | Err(Miss::Overwritten) => {
                    self.catch_up(batch);
                    if self.row == before && !batch.more && !self.pass_over(&tail, batch) {
                        break;
                    }
                }
                Err(Miss::Damaged(problem)) => return self.without_tail(problem, batch),
            }
        }
        if self.row < state.committed && batch.records.is_empty() {
            return self.nothing_new(tail, state, batch);
        }
        if self.row >= state.committed && state.state != 0 {
            let ending = if state.state == STATE_CLOSED { FollowState::Closed } else { FollowState::Left };
            self.finish(ending, batch);
        } else {
            self.tail = Some(tail);
        }
    }

    /// The record at the next row is neither in the tail nor in a block that was read. Passes over it if it will not come
    /// any more; false: it may.
    fn pass_over(&mut self, tail: &Tail, batch: &mut Batch) -> bool {
        let before = self.row;
        let Ok(state) = tail.state() else { return false };
        if state.sealed > before {
            // Blocks stand in the file before their rows count as sealed: what is in none now could not be written.
            self.catch_up(batch);
            if self.row == before && !batch.more {
                self.row = state.sealed;
                self.shown.clear();
            }
            return true;
        }
        // Its writer was about to write the block and is gone.
        self.row += u64::from(self.ending.is_some());
        self.row > before
    }

    /// The tail has nothing new: is its writer still there?
    fn nothing_new(&mut self, tail: Tail, state: TailState, batch: &mut Batch) {
        self.idle = self.idle.saturating_add(1);
        if let Some(ending) = self.ending {
            return self.finish(ending, batch);
        }
        if matches!(state.state, STATE_CLOSED | STATE_LEFT) {
            let ending = if state.state == STATE_CLOSED { FollowState::Closed } else { FollowState::Left };
            return self.finish(ending, batch);
        }
        if self.idle.is_multiple_of(LOOK_EVERY) && tail.header().writer.presence() == Presence::Gone {
            // What it wrote between the last look at the tail and its end is found by the next poll.
            self.ending = Some(FollowState::Gone);
            batch.more = true;
        }
        self.tail = Some(tail);
    }

    /// The tail cannot be read: the blocks are.
    fn without_tail(&mut self, problem: Problem, batch: &mut Batch) {
        batch.problems.push(problem);
        self.tail_done = true;
        self.catch_up(batch);
    }

    /// Takes what the blocks have to the end, and ends.
    fn finish(&mut self, ending: FollowState, batch: &mut Batch) {
        self.tail_done = true;
        self.ending = Some(ending);
        self.catch_up(batch);
        if batch.more {
            return;
        }
        if let Some((rows, blocks)) = self.sealed.unfinished()
            && rows.upto() > self.row
        {
            self.flush(rows, &blocks, batch);
        }
        self.state = if self.sealed.is_closed() { FollowState::Closed } else { ending };
    }

    /// Takes blocks from the segments.
    fn catch_up(&mut self, batch: &mut Batch) {
        loop {
            if batch.records.len() >= ENOUGH {
                batch.more = true;
                return;
            }
            match self.sealed.next() {
                Found::Item(Item::Flush(rows, blocks)) => self.flush(rows, &blocks, batch),
                Found::Item(Item::Block(block)) => self.block(&block, 0, batch),
                Found::Hole(problem) => {
                    batch.problems.push(problem);
                    let gap = Gap { cause: GapCause::Torn, after: self.last_enter, before: u64::MAX, ..Gap::default() };
                    batch.records.push(Record::Gap(gap));
                }
                Found::Nothing => return,
            }
        }
    }

    /// Takes the blocks of one write, but for what was shown from the tail.
    fn flush(&mut self, rows: TailRows, blocks: &[Block], batch: &mut Batch) {
        if rows.upto() <= self.row {
            return;
        }
        let counts = self.shown.counts_from(rows.first);
        for block in blocks {
            let skip = counts.get(&block.header().kind).copied().unwrap_or(0);
            self.block(block, skip, batch);
        }
        self.row = rows.upto();
        self.shown.clear();
    }

    fn block(&mut self, block: &Block, skip: usize, batch: &mut Batch) {
        let header = block.header();
        if header.is_expired() {
            if header.kind == BlockKind::CALLS {
                let gap = Gap {
                    cause: GapCause::Expired,
                    events: Some(u64::from(header.count).saturating_sub(skip as u64)),
                    after: self.last_enter,
                    before: header.last_time.saturating_add(1),
                    ..Gap::default()
                };
                batch.records.push(Record::Gap(gap));
            }
            return;
        }
        if header.kind == BlockKind::FRONTIER || (header.is_repeated() && !self.sealed.wants_repeated()) {
            return;
        }
        match self.sealed.decode(block) {
            Ok(decoded) => {
                for (index, record) in into_records(decoded).into_iter().enumerate() {
                    if index >= skip {
                        self.show(record, batch);
                    } else if let Some(entry) = self.shown.return_of(&record) {
                        batch.records.push(Record::Return(entry));
                    }
                }
            }
            Err(problem) => {
                batch.problems.push(problem);
                let gap = Gap { cause: GapCause::Torn, after: self.last_enter, before: u64::MAX, ..Gap::default() };
                batch.records.push(Record::Gap(gap));
            }
        }
    }

    fn show(&mut self, record: Record, batch: &mut Batch) {
        if let Record::Call(call) = &record {
            self.last_enter = self.last_enter.max(call.enter);
        }
        batch.records.push(record);
    }
}
