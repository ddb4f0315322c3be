//! Arbitrary records, and what a reader must make of them.

pub(crate) mod expected;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rankdiff_trace::{
    Attribute, Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, Completion, DType, EndedBy,
    Frame, FrameKind, Gap, GapCause, Level, Life, LogLine, Op, ProcessKey, ProcessState, ProcessTrace, Provenance,
    RankDef, RankSource, Record, RedOp, Reduction, Return, Semantics, SiteDef, SiteRef, StepMark, ThreadState, TypeDef,
};

pub(crate) fn key() -> ProcessKey {
    ProcessKey { host: "node-1.example".to_owned(), pid: 4711, start_time: 123_456_789 }
}

/// Small numbers, and the ends of the range.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..1000, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(1 << 63)]
}

fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..100, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![1 => Just(String::new()), 3 => "[a-z_./]{1,12}", 1 => any::<String>()]
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![Just(Completion::Unknown), number().prop_map(Completion::At), Just(Completion::Pending)]
}

fn dtype() -> impl Strategy<Value = DType> {
    prop_oneof![
        Just(DType::None),
        select(Basic::ALL).prop_map(DType::Basic),
        number32().prop_map(DType::Derived),
        number().prop_map(DType::Raw),
    ]
}

fn redop() -> impl Strategy<Value = RedOp> {
    prop_oneof![
        Just(RedOp::None),
        select(Reduction::ALL).prop_map(RedOp::Predefined),
        Just(RedOp::Dynamic),
        number().prop_map(RedOp::Raw),
    ]
}

fn vector() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![3 => Just(vec![]), 1 => vec(number(), 0..9)]
}

prop_compose! {
    fn what()(
        op in select(Op::ALL), comm in 0_u32..5, made in number32(), seq in option::of(number()), flags in 0_u32..1 << 14,
        count in option::of(number()), dtype in dtype(), redop in redop(), root in option::of(number32()),
    ) -> Call {
        Call {
            op, comm: CommRef(comm), made: CommRef(made), seq, flags: CallFlags(flags), count, dtype, redop, root,
            ..Call::default()
        }
    }
}

prop_compose! {
    /// `thread_seq` holds the step from the call before on its thread.
    fn call()(
        call in what(), peer in option::of(number32()), tag in option::of(any::<i64>()), sends in vector(),
        recvs in vector(), thread in 1_u32..4, thread_seq in 0_u64..3, stream in number(), group in number32(),
    )(
        call in Just(Call { peer, tag, sends, recvs, thread, thread_seq, stream, group, ..call }),
        enter in number(), exit in option::of(number()), completion in completion(), result in option::of(any::<i64>()),
        site in number32(), label in number32(), rank in option::of(number32()),
    ) -> Call {
        Call { enter, exit, completion, result, site: SiteRef(site), label, rank, ..call }
    }
}

prop_compose! {
    fn comm_def()(
        id in 1_u32..5, identity in any::<u128>(), provenance in 1_u8..6, name in text(), desc in text(), library in text(),
        level in 1_u8..4, semantics in any::<u32>(), size in option::of(number32()), my_rank in option::of(number32()),
    )(
        base in Just(CommDef {
            id: CommRef(id), identity: CommIdentity(identity),
            provenance: Provenance::from_code(provenance).expect("a code"), name, desc, library,
            level: Level::from_code(level).expect("a code"), semantics: Semantics(semantics), size, my_rank,
            ..CommDef::default()
        }),
        members in vec(number32(), 0..6), owner in option::of(number32()), parent in number32(), ordinal in number(),
        color in option::of(any::<i64>()), key in option::of(any::<i64>()), inter in any::<bool>(),
    ) -> CommDef {
        CommDef { members, owner, parent: CommRef(parent), ordinal, color, key, inter, ..base }
    }
}

prop_compose! {
    fn frame()(
        kind in 1_u8..4, function in text(), file in text(), line in number32(), module in text(), build_id in text(),
        offset in number(),
    ) -> Frame {
        Frame { kind: FrameKind::from_code(kind).expect("a code"), function, file, line, module, build_id, offset }
    }
}

fn ended_by() -> impl Strategy<Value = EndedBy> {
    prop_oneof![
        select(vec![
            EndedBy::Unknown,
            EndedBy::OomKiller,
            EndedBy::Watchdog,
            EndedBy::Launcher,
            EndedBy::User,
            EndedBy::Itself
        ]),
        (number32(), text()).prop_map(|(pid, name)| EndedBy::Process(pid, name)),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![
        any::<i32>().prop_map(Life::Exited),
        (any::<i32>(), ended_by()).prop_map(|(signal, by)| Life::Signaled { signal, by }),
        select(vec![Life::Waiting, Life::Running, Life::Blocked, Life::Stopped, Life::Alive]),
    ]
}

prop_compose! {
    fn thread_state()(
        at in number(), tid in number32(), words in vec(text(), 9), numbers in vec(option::of(number()), 6),
    ) -> ThreadState {
        let [name, state, syscall, device, result, wchan, python, native, io] =
            <[String; 9]>::try_from(words).expect("nine");
        let [request, each_ms, times, since_ms, cpu_ms, children] = <[Option<u64>; 6]>::try_from(numbers).expect("six");
        ThreadState {
            at, tid, name, state, syscall, device, request, result, each_ms, times, since_ms, cpu_ms, wchan, python,
            native, io, children,
        }
    }
}

fn other() -> impl Strategy<Value = Record> {
    let rank = (0_u32..4, option::of(number32()), option::of(number32()), 0_u32..2, 1_u8..5).prop_map(
        |(rank, world, local_rank, attempt, source)| RankDef {
            rank,
            world,
            local_rank,
            attempt,
            source: RankSource::from_code(source).expect("a code"),
        },
    );
    let runs = vec((select(Basic::ALL), number()), 0..5);
    let derived = (1_u32..4, text(), option::of(number()), runs).prop_map(|(id, name, size, runs)| TypeDef {
        id,
        name,
        size,
        runs,
    });
    let gap = (1_u8..8, number32(), number(), option::of(number()), number(), number()).prop_map(
        |(cause, thread, first_thread_seq, events, after, before)| Gap {
            cause: GapCause::from_code(cause).expect("a code"),
            thread,
            first_thread_seq,
            events,
            after,
            before,
        },
    );
    prop_oneof![
        rank.prop_map(Record::Rank),
        comm_def().prop_map(Record::Comm),
        derived.prop_map(Record::Type),
        (1_u32..6, vec(frame(), 0..4)).prop_map(|(id, frames)| Record::Site(SiteDef { id: SiteRef(id), frames })),
        (1_u32..6, text()).prop_map(|(id, text)| Record::Label(id, text)),
        (number(), number(), number()).prop_map(|(monotonic, boottime, realtime)| Record::Clock(ClockSnapshot {
            monotonic,
            boottime,
            realtime
        })),
        gap.prop_map(Record::Gap),
        (number(), life()).prop_map(|(at, life)| Record::State(ProcessState { at, life })),
        thread_state().prop_map(Record::Thread),
        (number(), text()).prop_map(|(at, text)| Record::Log(LogLine { at, text })),
        (option::of(number32()), text(), text()).prop_map(|(rank, key, value)| Record::Attribute(Attribute {
            rank,
            key,
            value
        })),
        (number(), number32(), number(), number()).prop_map(|(at, thread, first_thread_seq, step)| Record::Step(
            StepMark { at, thread, first_thread_seq, step }
        )),
    ]
}

#[derive(Debug, Clone)]
enum Draft {
    Call(Box<Call>),
    /// The return of the call that was made this many calls before.
    Return(usize, Return),
    Other(Box<Record>),
}

fn draft() -> impl Strategy<Value = Draft> {
    let returned = (0_usize..6, number(), any::<i64>(), number32(), completion()).prop_map(
        |(back, exit, result, made, completion)| {
            Draft::Return(back, Return { exit, result, made: CommRef(made), completion, ..Return::default() })
        },
    );
    prop_oneof![
        6 => call().prop_map(|call| Draft::Call(Box::new(call))),
        3 => returned,
        3 => other().prop_map(|record| Draft::Other(Box::new(record))),
    ]
}

/// Streams that keep the contract: ordinals rise on each thread, returns follow their calls.
pub(crate) fn records(most: usize) -> impl Strategy<Value = Vec<Record>> {
    vec(draft(), 0..most).prop_map(|drafts| {
        let mut next = [0_u64; 4];
        let mut made: Vec<(u32, u64)> = Vec::new();
        let mut records = Vec::new();
        for draft in drafts {
            match draft {
                Draft::Call(mut call) => {
                    let seq = next[call.thread as usize] + call.thread_seq;
                    next[call.thread as usize] = seq + 1;
                    call.thread_seq = seq;
                    made.push((call.thread, seq));
                    records.push(Record::Call(*call));
                }
                Draft::Return(back, entry) => {
                    if let Some(&(thread, thread_seq)) = made.iter().rev().nth(back) {
                        records.push(Record::Return(Return { thread, thread_seq, ..entry }));
                    }
                }
                Draft::Other(record) => records.push(*record),
            }
        }
        records
    })
}

/// What reading the records of [`records`] must give.
pub(crate) fn expected(records: &[Record], closed: bool) -> ProcessTrace {
    expected::expected(key(), records, closed)
}
