//! Streams of arbitrary records that keep the writer's contract: ordinals rise on each thread, returns follow their
//! calls.

use arbitrary::{Arbitrary, Result, Unstructured};
use rankdiff_trace::{
    Attribute, Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, Completion, DType, EndedBy,
    Frame, FrameKind, Gap, GapCause, Level, Life, LogLine, Op, ProcessState, Provenance, RankDef, RankSource, Record,
    RedOp, Reduction, Return, Semantics, SiteDef, SiteRef, StepMark, ThreadState, TypeDef,
};

/// Threads that make calls.
const THREADS: u32 = 4;

/// Reads records out of the bytes until they end.
pub fn records(u: &mut Unstructured<'_>, most: usize) -> Result<Vec<Record>> {
    let mut next = [0_u64; THREADS as usize];
    let mut made: Vec<(u32, u64)> = Vec::new();
    let mut records = Vec::new();
    while !u.is_empty() && records.len() < most {
        match u.int_in_range(0..=7)? {
            0..=3 => {
                let thread = u.int_in_range(0..=THREADS - 1)?;
                let seq = next[thread as usize] + u.int_in_range(0..=2)?;
                next[thread as usize] = seq + 1;
                made.push((thread, seq));
                records.push(Record::Call(call(u, thread, seq)?));
            }
            4 => {
                let back = u.int_in_range(0..=9)?;
                if let Some(&(thread, thread_seq)) = made.iter().rev().nth(back) {
                    records.push(Record::Return(Return {
                        thread,
                        thread_seq,
                        exit: number(u)?,
                        result: i64::arbitrary(u)?,
                        made: CommRef(u32::arbitrary(u)?),
                        completion: completion(u)?,
                    }));
                }
            }
            _ => records.push(other(u)?),
        }
    }
    Ok(records)
}

/// Small numbers mostly, and any.
fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(if u.ratio(3, 4)? { u64::from(u8::arbitrary(u)?) } else { u64::arbitrary(u)? })
}

fn number32(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(if u.ratio(3, 4)? { u32::from(u8::arbitrary(u)?) } else { u32::arbitrary(u)? })
}

fn signed(u: &mut Unstructured<'_>) -> Result<i64> {
    u.arbitrary()
}

fn maybe<T>(u: &mut Unstructured<'_>, value: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if bool::arbitrary(u)? { value(u).map(Some) } else { Ok(None) }
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    let length = usize::from(u8::arbitrary(u)? % 24).min(u.len());
    Ok(String::from_utf8_lossy(u.bytes(length)?).into_owned())
}

fn some<T>(u: &mut Unstructured<'_>, most: u8, item: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| item(u)).collect()
}

/// The value of a code, of those that there are.
fn code<T>(u: &mut Unstructured<'_>, most: u8, from_code: impl Fn(u8) -> Option<T>) -> Result<T> {
    from_code(u.int_in_range(1..=most)?).ok_or(arbitrary::Error::IncorrectFormat)
}

fn completion(u: &mut Unstructured<'_>) -> Result<Completion> {
    Ok(match u.int_in_range(0..=2)? {
        0 => Completion::Unknown,
        1 => Completion::At(number(u)?),
        _ => Completion::Pending,
    })
}

fn call(u: &mut Unstructured<'_>, thread: u32, thread_seq: u64) -> Result<Call> {
    let dtype = match u.int_in_range(0..=3)? {
        0 => DType::None,
        1 => DType::Basic(*u.choose(Basic::ALL)?),
        2 => DType::Derived(number32(u)?),
        _ => DType::Raw(number(u)?),
    };
    let redop = match u.int_in_range(0..=3)? {
        0 => RedOp::None,
        1 => RedOp::Predefined(*u.choose(Reduction::ALL)?),
        2 => RedOp::Dynamic,
        _ => RedOp::Raw(number(u)?),
    };
    Ok(Call {
        op: *u.choose(Op::ALL)?,
        comm: CommRef(u.int_in_range(0..=4)?),
        made: CommRef(number32(u)?),
        seq: maybe(u, number)?,
        flags: CallFlags(u32::arbitrary(u)?),
        count: maybe(u, number)?,
        dtype,
        redop,
        root: maybe(u, number32)?,
        peer: maybe(u, number32)?,
        tag: maybe(u, signed)?,
        sends: some(u, 5, number)?,
        recvs: some(u, 5, number)?,
        thread,
        thread_seq,
        stream: number(u)?,
        group: number32(u)?,
        enter: number(u)?,
        exit: maybe(u, number)?,
        completion: completion(u)?,
        result: maybe(u, signed)?,
        site: SiteRef(number32(u)?),
        label: number32(u)?,
        rank: maybe(u, number32)?,
    })
}

fn comm(u: &mut Unstructured<'_>) -> Result<CommDef> {
    Ok(CommDef {
        id: CommRef(u.int_in_range(1..=4)?),
        identity: CommIdentity(u128::arbitrary(u)?),
        provenance: code(u, 5, Provenance::from_code)?,
        name: text(u)?,
        desc: text(u)?,
        library: text(u)?,
        level: code(u, 3, Level::from_code)?,
        semantics: Semantics(u32::arbitrary(u)?),
        size: maybe(u, number32)?,
        my_rank: maybe(u, number32)?,
        members: some(u, 6, number32)?,
        owner: maybe(u, number32)?,
        parent: CommRef(number32(u)?),
        ordinal: number(u)?,
        color: maybe(u, signed)?,
        key: maybe(u, signed)?,
        inter: bool::arbitrary(u)?,
    })
}

fn frame(u: &mut Unstructured<'_>) -> Result<Frame> {
    Ok(Frame {
        kind: code(u, 3, FrameKind::from_code)?,
        function: text(u)?,
        file: text(u)?,
        line: number32(u)?,
        module: text(u)?,
        build_id: text(u)?,
        offset: number(u)?,
    })
}

fn life(u: &mut Unstructured<'_>) -> Result<Life> {
    Ok(match u.int_in_range(0..=6)? {
        0 => Life::Exited(i32::arbitrary(u)?),
        1 => {
            let by = match u.int_in_range(0..=6)? {
                0 => EndedBy::Unknown,
                1 => EndedBy::OomKiller,
                2 => EndedBy::Watchdog,
                3 => EndedBy::Launcher,
                4 => EndedBy::User,
                5 => EndedBy::Itself,
                _ => EndedBy::Process(number32(u)?, text(u)?),
            };
            Life::Signaled { signal: i32::arbitrary(u)?, by }
        }
        2 => Life::Waiting,
        3 => Life::Running,
        4 => Life::Blocked,
        5 => Life::Stopped,
        _ => Life::Alive,
    })
}

fn thread(u: &mut Unstructured<'_>) -> Result<ThreadState> {
    Ok(ThreadState {
        at: number(u)?,
        tid: number32(u)?,
        name: text(u)?,
        state: text(u)?,
        syscall: text(u)?,
        device: text(u)?,
        request: maybe(u, number)?,
        result: text(u)?,
        each_ms: maybe(u, number)?,
        times: maybe(u, number)?,
        since_ms: maybe(u, number)?,
        cpu_ms: maybe(u, number)?,
        wchan: text(u)?,
        python: text(u)?,
        native: text(u)?,
        io: text(u)?,
        children: maybe(u, number)?,
    })
}

fn other(u: &mut Unstructured<'_>) -> Result<Record> {
    Ok(match u.int_in_range(0..=11)? {
        0 => Record::Rank(RankDef {
            rank: u.int_in_range(0..=3)?,
            world: maybe(u, number32)?,
            local_rank: maybe(u, number32)?,
            attempt: u.int_in_range(0..=1)?,
            source: code(u, 4, RankSource::from_code)?,
        }),
        1 => Record::Comm(comm(u)?),
        2 => Record::Type(TypeDef {
            id: u.int_in_range(1..=3)?,
            name: text(u)?,
            size: maybe(u, number)?,
            runs: some(u, 4, |u| Ok((*u.choose(Basic::ALL)?, number(u)?)))?,
        }),
        3 => Record::Site(SiteDef { id: SiteRef(u.int_in_range(1..=5)?), frames: some(u, 4, frame)? }),
        4 => Record::Label(u.int_in_range(1..=5)?, text(u)?),
        5 => Record::Clock(ClockSnapshot { monotonic: number(u)?, boottime: number(u)?, realtime: number(u)? }),
        6 => Record::Gap(Gap {
            cause: code(u, 7, GapCause::from_code)?,
            thread: number32(u)?,
            first_thread_seq: number(u)?,
            events: maybe(u, number)?,
            after: number(u)?,
            before: number(u)?,
        }),
        7 => Record::State(ProcessState { at: number(u)?, life: life(u)? }),
        8 => Record::Thread(thread(u)?),
        9 => Record::Log(LogLine { at: number(u)?, text: text(u)? }),
        10 => Record::Attribute(Attribute { rank: maybe(u, number32)?, key: text(u)?, value: text(u)? }),
        _ => Record::Step(StepMark {
            at: number(u)?,
            thread: number32(u)?,
            first_thread_seq: number(u)?,
            step: number(u)?,
        }),
    })
}
