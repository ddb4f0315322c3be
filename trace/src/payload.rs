//! What each kind of row says, field by field. The order of fields is the format (docs/format.md, 'Rows').

use crate::block::BlockKind;
use crate::call::{Call, Frame, FrameKind, Return, SiteDef, SiteRef};
use crate::columns::{decode_calls, decode_returns};
use crate::comm::{CommDef, CommIdentity, CommRef, Level, Provenance, RankDef, RankSource, Semantics};
use crate::datatype::{Basic, TypeDef};
use crate::evidence::{
    Attribute, ClockSnapshot, EndedBy, Gap, GapCause, Life, LogLine, ProcessState, StepMark, ThreadState,
};
use crate::limits;
use crate::rows::{RowReader, RowWriter};
use crate::wire::Malformed;

/// How a segment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SegmentEnd {
    /// The recording is over; otherwise the next segment goes on.
    pub last: bool,
    /// Calls of the recording up to here.
    pub calls: u64,
    /// Calls of the recording that could not be written.
    pub lost_calls: u64,
}

/// The blocks behind it hold the records of these rows of the live tail, all of them and no others (but repeated ones).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TailRows {
    /// The first row.
    pub first: u64,
    /// How many.
    pub rows: u64,
    /// Blocks that hold them.
    pub blocks: u64,
}

impl TailRows {
    /// The first row that is not among them.
    pub fn upto(&self) -> u64 {
        self.first.saturating_add(self.rows)
    }
}

/// The records of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoded {
    /// Ranks.
    Ranks(Vec<RankDef>),
    /// Communicators.
    Comms(Vec<CommDef>),
    /// Derived types.
    Types(Vec<TypeDef>),
    /// Call sites.
    Sites(Vec<SiteDef>),
    /// Labels.
    Labels(Vec<(u32, String)>),
    /// Calls.
    Calls(Vec<Call>),
    /// Returns.
    Returns(Vec<Return>),
    /// Clock snapshots.
    Clocks(Vec<ClockSnapshot>),
    /// Gaps.
    Gaps(Vec<Gap>),
    /// Process states.
    States(Vec<ProcessState>),
    /// Thread states.
    Threads(Vec<ThreadState>),
    /// Log lines.
    Logs(Vec<LogLine>),
    /// Attributes.
    Attributes(Vec<Attribute>),
    /// Step marks.
    Steps(Vec<StepMark>),
    /// Calls that stand in blocks before: the last ones of each communicator.
    Frontier(Vec<Call>),
    /// Which rows of the live tail the next blocks hold.
    TailRows(TailRows),
    /// End of the segment.
    End(SegmentEnd),
    /// The payload was dropped by retention; the block's header tells how many records it held.
    Expired,
    /// A kind that this build does not know.
    Unknown,
}

/// A record that is written as a row.
pub(crate) trait Row: Sized {
    /// Appends the fields to the current row.
    fn put(&self, row: &mut RowWriter);
    /// Reads the fields of the current row.
    fn get(row: &mut RowReader<'_>) -> Result<Self, Malformed>;
}

/// Decodes a payload. Also gives how many values were left out or read as a default because a newer writer wrote them.
pub(crate) fn decode(kind: BlockKind, count: usize, payload: &[u8]) -> Result<(Decoded, u64), Malformed> {
    fn rows<T: Row>(count: usize, payload: &[u8], wrap: fn(Vec<T>) -> Decoded) -> Result<(Decoded, u64), Malformed> {
        let mut reader = RowReader::new(payload)?;
        // Every row takes a byte at least.
        let mut records = Vec::with_capacity(count.min(payload.len()));
        for _ in 0..count {
            reader.begin()?;
            records.push(T::get(&mut reader)?);
        }
        if reader.is_done() { Ok((wrap(records), reader.unknown)) } else { Err(Malformed("more rows than its count")) }
    }
    fn calls(
        count: usize,
        payload: &[u8],
        wrap: fn(Vec<crate::call::Call>) -> Decoded,
    ) -> Result<(Decoded, u64), Malformed> {
        let mut calls = Vec::new();
        decode_calls(payload, count, &mut calls).map(|skipped| (wrap(calls), skipped))
    }
    match kind {
        BlockKind::RANKS => rows(count, payload, Decoded::Ranks),
        BlockKind::COMMS => rows(count, payload, Decoded::Comms),
        BlockKind::TYPES => rows(count, payload, Decoded::Types),
        BlockKind::SITES => rows(count, payload, Decoded::Sites),
        BlockKind::LABELS => rows(count, payload, Decoded::Labels),
        BlockKind::CALLS => calls(count, payload, Decoded::Calls),
        BlockKind::FRONTIER => calls(count, payload, Decoded::Frontier),
        BlockKind::RETURNS => decode_returns(payload, count).map(|returns| (Decoded::Returns(returns), 0)),
        BlockKind::CLOCKS => rows(count, payload, Decoded::Clocks),
        BlockKind::GAPS => rows(count, payload, Decoded::Gaps),
        BlockKind::STATES => rows(count, payload, Decoded::States),
        BlockKind::THREADS => rows(count, payload, Decoded::Threads),
        BlockKind::LOGS => rows(count, payload, Decoded::Logs),
        BlockKind::ATTRIBUTES => rows(count, payload, Decoded::Attributes),
        BlockKind::STEPS => rows(count, payload, Decoded::Steps),
        BlockKind::TAIL_ROWS => {
            rows(count, payload, |all: Vec<TailRows>| Decoded::TailRows(all.first().copied().unwrap_or_default()))
        }
        BlockKind::SEGMENT_END => {
            rows(count, payload, |ends: Vec<SegmentEnd>| Decoded::End(ends.first().copied().unwrap_or_default()))
        }
        _ => Ok((Decoded::Unknown, 0)),
    }
}

impl Row for RankDef {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.rank);
        row.optional(self.world.map(u64::from));
        row.optional(self.local_rank.map(u64::from));
        row.u32(self.attempt);
        row.u32(self.source as u32);
    }

    fn get(row: &mut RowReader<'_>) -> Result<RankDef, Malformed> {
        Ok(RankDef {
            rank: row.u32()?,
            world: row.optional32()?,
            local_rank: row.optional32()?,
            attempt: row.u32()?,
            source: row.code(RankSource::from_code)?,
        })
    }
}

impl Row for CommDef {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.id.0);
        row.u128(self.identity.0);
        row.u32(self.provenance as u32);
        row.string(&self.name);
        row.string(&self.desc);
        row.string(&self.library);
        row.u32(self.level as u32);
        row.u32(self.semantics.0);
        row.optional(self.size.map(u64::from));
        row.optional(self.my_rank.map(u64::from));
        row.u64(self.members.len() as u64);
        // Consecutive members are zeroes: the first one's foreseen value is 0, every other one's is the next rank.
        let mut next = 0_i64;
        for &member in &self.members {
            row.i64(i64::from(member) - next);
            next = i64::from(member) + 1;
        }
        row.optional(self.owner.map(u64::from));
        row.u32(self.parent.0);
        row.u64(self.ordinal);
        row.optional(self.color.map(crate::wire::zigzag));
        row.optional(self.key.map(crate::wire::zigzag));
        row.u32(u32::from(self.inter));
    }

    fn get(row: &mut RowReader<'_>) -> Result<CommDef, Malformed> {
        let mut def = CommDef {
            id: CommRef(row.u32()?),
            identity: CommIdentity(row.u128()?),
            provenance: row.code(Provenance::from_code)?,
            name: row.string()?,
            desc: row.string()?,
            library: row.string()?,
            level: row.code(Level::from_code)?,
            semantics: Semantics(row.u32()?),
            size: row.optional32()?,
            my_rank: row.optional32()?,
            ..CommDef::default()
        };
        let length = row.length(limits::MAX_MEMBERS)?;
        def.members.reserve_exact(length);
        let mut next = 0_i64;
        for _ in 0..length {
            let member = row.i64()?.wrapping_add(next);
            def.members.push(u32::try_from(member).map_err(|_| Malformed("a member's rank over 32 bits"))?);
            next = member + 1;
        }
        def.owner = row.optional32()?;
        def.parent = CommRef(row.u32()?);
        def.ordinal = row.u64()?;
        def.color = row.optional()?.map(crate::wire::unzigzag);
        def.key = row.optional()?.map(crate::wire::unzigzag);
        def.inter = row.u64()? != 0;
        Ok(def)
    }
}

impl Row for TypeDef {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.id);
        row.string(&self.name);
        row.optional(self.size);
        // A part of a type signature would be a wrong one: too long is written as unknown.
        let runs = if self.runs.len() <= limits::MAX_RUNS { self.runs.as_slice() } else { &[] };
        row.clipped += u64::from(runs.len() < self.runs.len());
        row.u64(runs.len() as u64);
        for &(basic, times) in runs {
            row.u32(u32::from(basic.code()));
            row.u64(times);
        }
    }

    fn get(row: &mut RowReader<'_>) -> Result<TypeDef, Malformed> {
        let mut def = TypeDef { id: row.u32()?, name: row.string()?, size: row.optional()?, runs: Vec::new() };
        let length = row.length(limits::MAX_RUNS)?;
        def.runs.reserve_exact(length);
        let mut known = true;
        for _ in 0..length {
            let (code, times) = (row.u64()?, row.u64()?);
            match u8::try_from(code).ok().and_then(Basic::from_code) {
                Some(basic) => def.runs.push((basic, times)),
                None => known = false,
            }
        }
        if !known {
            // A newer writer's basic type: the signature is not known, rather than known wrongly.
            row.unknown += 1;
            def.runs = Vec::new();
        }
        Ok(def)
    }
}

impl Row for SiteDef {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.id.0);
        // The innermost frames tell sites apart; the outermost ones are alike everywhere.
        let from = self.frames.len().saturating_sub(limits::MAX_FRAMES);
        let frames = self.frames.get(from..).unwrap_or(&[]);
        row.clipped += u64::from(from > 0);
        row.u64(frames.len() as u64);
        for frame in frames {
            row.u32(frame.kind as u32);
            row.string(&frame.function);
            row.string(&frame.file);
            row.u32(frame.line);
            row.string(&frame.module);
            row.string(&frame.build_id);
            row.u64(frame.offset);
        }
    }

    fn get(row: &mut RowReader<'_>) -> Result<SiteDef, Malformed> {
        let id = SiteRef(row.u32()?);
        let length = row.length(limits::MAX_FRAMES)?;
        let mut frames = Vec::with_capacity(length);
        for _ in 0..length {
            frames.push(Frame {
                kind: row.code(FrameKind::from_code)?,
                function: row.string()?,
                file: row.string()?,
                line: row.u32()?,
                module: row.string()?,
                build_id: row.string()?,
                offset: row.u64()?,
            });
        }
        Ok(SiteDef { id, frames })
    }
}

impl Row for (u32, String) {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.0);
        row.string(&self.1);
    }

    fn get(row: &mut RowReader<'_>) -> Result<(u32, String), Malformed> {
        Ok((row.u32()?, row.string()?))
    }
}

impl Row for ClockSnapshot {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.monotonic);
        row.u64(self.boottime);
        row.u64(self.realtime);
    }

    fn get(row: &mut RowReader<'_>) -> Result<ClockSnapshot, Malformed> {
        Ok(ClockSnapshot { monotonic: row.u64()?, boottime: row.u64()?, realtime: row.u64()? })
    }
}

impl Row for Gap {
    fn put(&self, row: &mut RowWriter) {
        row.u32(self.cause as u32);
        row.u32(self.thread);
        row.u64(self.first_thread_seq);
        row.optional(self.events);
        row.u64(self.after);
        row.u64(self.before);
    }

    fn get(row: &mut RowReader<'_>) -> Result<Gap, Malformed> {
        Ok(Gap {
            cause: row.code(GapCause::from_code)?,
            thread: row.u32()?,
            first_thread_seq: row.u64()?,
            events: row.optional()?,
            after: row.u64()?,
            before: row.u64()?,
        })
    }
}

const EXITED: u32 = 1;
const SIGNALED: u32 = 2;
const WAITING: u32 = 3;
const RUNNING: u32 = 4;
const BLOCKED: u32 = 5;
const STOPPED: u32 = 6;
const ALIVE: u32 = 7;

impl Row for ProcessState {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.at);
        match &self.life {
            Life::Exited(code) => {
                row.u32(EXITED);
                row.i64(i64::from(*code));
            }
            Life::Signaled { signal, by } => {
                row.u32(SIGNALED);
                row.i64(i64::from(*signal));
                let (code, pid, name) = match by {
                    EndedBy::Unknown => (0, 0, ""),
                    EndedBy::OomKiller => (1, 0, ""),
                    EndedBy::Watchdog => (2, 0, ""),
                    EndedBy::Launcher => (3, 0, ""),
                    EndedBy::User => (4, 0, ""),
                    EndedBy::Itself => (5, 0, ""),
                    EndedBy::Process(pid, name) => (6, *pid, name.as_str()),
                };
                row.u32(code);
                row.u32(pid);
                row.string(name);
            }
            Life::Waiting => row.u32(WAITING),
            Life::Running => row.u32(RUNNING),
            Life::Blocked => row.u32(BLOCKED),
            Life::Stopped => row.u32(STOPPED),
            Life::Alive => row.u32(ALIVE),
        }
    }

    fn get(row: &mut RowReader<'_>) -> Result<ProcessState, Malformed> {
        let at = row.u64()?;
        let life = match row.u32()? {
            EXITED => Life::Exited(row.i32()?),
            SIGNALED => {
                let signal = row.i32()?;
                let (code, pid, name) = (row.u64()?, row.u32()?, row.string()?);
                let by = match code {
                    0 => EndedBy::Unknown,
                    1 => EndedBy::OomKiller,
                    2 => EndedBy::Watchdog,
                    3 => EndedBy::Launcher,
                    4 => EndedBy::User,
                    5 => EndedBy::Itself,
                    6 => EndedBy::Process(pid, name),
                    _ => {
                        row.unknown += 1;
                        EndedBy::Unknown
                    }
                };
                Life::Signaled { signal, by }
            }
            WAITING => Life::Waiting,
            RUNNING => Life::Running,
            BLOCKED => Life::Blocked,
            STOPPED => Life::Stopped,
            ALIVE => Life::Alive,
            _ => {
                row.unknown += 1;
                Life::default()
            }
        };
        Ok(ProcessState { at, life })
    }
}

impl Row for ThreadState {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.at);
        row.u32(self.tid);
        row.string(&self.name);
        row.string(&self.state);
        row.string(&self.syscall);
        row.string(&self.device);
        row.optional(self.request);
        row.string(&self.result);
        row.optional(self.each_ms);
        row.optional(self.times);
        row.optional(self.since_ms);
        row.optional(self.cpu_ms);
        row.string(&self.wchan);
        row.string(&self.python);
        row.string(&self.native);
        row.string(&self.io);
        row.optional(self.children);
    }

    fn get(row: &mut RowReader<'_>) -> Result<ThreadState, Malformed> {
        Ok(ThreadState {
            at: row.u64()?,
            tid: row.u32()?,
            name: row.string()?,
            state: row.string()?,
            syscall: row.string()?,
            device: row.string()?,
            request: row.optional()?,
            result: row.string()?,
            each_ms: row.optional()?,
            times: row.optional()?,
            since_ms: row.optional()?,
            cpu_ms: row.optional()?,
            wchan: row.string()?,
            python: row.string()?,
            native: row.string()?,
            io: row.string()?,
            children: row.optional()?,
        })
    }
}

impl Row for LogLine {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.at);
        row.string(&self.text);
    }

    fn get(row: &mut RowReader<'_>) -> Result<LogLine, Malformed> {
        Ok(LogLine { at: row.u64()?, text: row.string()? })
    }
}

impl Row for Attribute {
    fn put(&self, row: &mut RowWriter) {
        row.optional(self.rank.map(u64::from));
        row.string(&self.key);
        row.string(&self.value);
    }

    fn get(row: &mut RowReader<'_>) -> Result<Attribute, Malformed> {
        Ok(Attribute { rank: row.optional32()?, key: row.string()?, value: row.string()? })
    }
}

impl Row for StepMark {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.at);
        row.u32(self.thread);
        row.u64(self.first_thread_seq);
        row.u64(self.step);
    }

    fn get(row: &mut RowReader<'_>) -> Result<StepMark, Malformed> {
        Ok(StepMark { at: row.u64()?, thread: row.u32()?, first_thread_seq: row.u64()?, step: row.u64()? })
    }
}

impl Row for TailRows {
    fn put(&self, row: &mut RowWriter) {
        row.u64(self.first);
        row.u64(self.rows);
        row.u64(self.blocks);
    }

    fn get(row: &mut RowReader<'_>) -> Result<TailRows, Malformed> {
        let rows = TailRows { first: row.u64()?, rows: row.u64()?, blocks: row.u64()? };
        if rows.blocks > limits::MAX_WRITE {
            return Err(Malformed("more blocks than one write has"));
        }
        Ok(rows)
    }
}

impl Row for SegmentEnd {
    fn put(&self, row: &mut RowWriter) {
        row.u32(u32::from(self.last));
        row.u64(self.calls);
        row.u64(self.lost_calls);
    }

    fn get(row: &mut RowReader<'_>) -> Result<SegmentEnd, Malformed> {
        Ok(SegmentEnd { last: row.u64()? != 0, calls: row.u64()?, lost_calls: row.u64()? })
    }
}
