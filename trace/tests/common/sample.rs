//! A small job that says everything a trace can say: every kind of record, every field with a value of its own, every
//! code of every enumeration. Two ranks on two hosts; the same on every run.

use rankdiff_trace::{
    Attribute, Basic, Call, CallFlags, ClockSnapshot, CommDef, CommIdentity, CommRef, Completion, DType, EndedBy,
    Frame, FrameKind, Gap, GapCause, Level, Life, LogLine, Op, OpKind, ProcessKey, ProcessState, Provenance, RankDef,
    RankSource, Record, RedOp, Reduction, Return, Semantics, SiteDef, SiteRef, StepMark, ThreadState, TypeDef,
};

/// Ranks of the job.
pub(crate) const RANKS: u32 = 2;
/// Nanoseconds between two calls.
const STEP: u64 = 1_000_000;
/// CLOCK_REALTIME at CLOCK_MONOTONIC 0.
const WALL: u64 = 1_700_000_000_000_000_000;

const WORLD: CommRef = CommRef(1);
const PART: CommRef = CommRef(2);
const INTER: CommRef = CommRef(3);

/// Whose stream a rank's is.
pub(crate) fn key(rank: u32) -> ProcessKey {
    ProcessKey { host: format!("node-{rank}.example"), pid: 4711 + rank, start_time: 123_456 + u64::from(rank) }
}

/// The clocks of a moment.
pub(crate) fn clock(monotonic: u64) -> ClockSnapshot {
    ClockSnapshot { monotonic, boottime: monotonic + 77, realtime: WALL + monotonic }
}

/// Builds a rank's stream.
struct Script {
    rank: u32,
    records: Vec<Record>,
    time: u64,
    thread_seq: u64,
    /// Next sequence number of collectives, by communicator.
    next: [u64; 4],
}

impl Script {
    /// Adds a call with its times and ordinals filled in.
    fn call(&mut self, call: Call) {
        self.time += STEP + (self.thread_seq % 7) * 1000 + u64::from(self.rank) * 10;
        let call = Call { thread: 4711 + self.rank, thread_seq: self.thread_seq, enter: self.time, ..call };
        self.thread_seq += 1;
        self.records.push(Record::Call(call));
    }

    /// Adds a collective with its place on its communicator.
    fn collective(&mut self, call: Call) {
        let next = &mut self.next[call.comm.0 as usize];
        let seq = *next;
        *next += 1;
        self.call(Call { seq: Some(seq), exit: Some(self.time + STEP + 250_000), result: Some(0), ..call });
    }

    fn other(&mut self, record: Record) {
        self.records.push(record);
    }
}

/// Everything that one rank's recorder would write, in order.
pub(crate) fn records(rank: u32) -> Vec<Record> {
    let mut script = Script { rank, records: Vec::new(), time: 5_000_000_000, thread_seq: 0, next: [0; 4] };
    definitions(&mut script);
    // Enough for a checkpoint.
    for index in 0..300 {
        script.collective(Call {
            op: Op::AllReduce,
            comm: WORLD,
            count: Some(1024 + index % 3),
            dtype: DType::Basic(Basic::F32),
            redop: RedOp::Predefined(Reduction::Sum),
            stream: 0x7f00_0000_1000 + (index % 2) * 0x100,
            site: SiteRef(1 + (index % 2) as u32),
            label: 1,
            ..Call::default()
        });
    }
    every_operation(&mut script);
    every_code(&mut script);
    vectors(&mut script);
    messages(&mut script);
    redefinitions(&mut script);
    evidence(&mut script);
    unreturned(&mut script);
    script.records
}

fn definitions(script: &mut Script) {
    let rank = script.rank;
    let definition = |rank, attempt, source| RankDef { rank, world: Some(RANKS), local_rank: Some(0), attempt, source };
    script.other(Record::Rank(definition(rank, 0, RankSource::Environment)));
    script.other(Record::Rank(definition(rank, 1, RankSource::Library)));
    for (offset, source) in (1..).zip([RankSource::Declared, RankSource::Inferred]) {
        let other = RankDef { rank: rank + 10 * offset, world: None, local_rank: None, attempt: 2, source };
        script.other(Record::Rank(other));
    }
    let world = CommDef {
        id: WORLD,
        identity: CommIdentity::root("samplelib", b"world"),
        provenance: Provenance::Predefined,
        name: "world".to_owned(),
        desc: "every rank".to_owned(),
        library: "samplelib".to_owned(),
        level: Level::Library,
        semantics: Semantics(0x7d),
        size: Some(RANKS),
        my_rank: Some(rank),
        members: (0..RANKS).collect(),
        owner: Some(rank),
        ..CommDef::default()
    };
    let part = CommDef {
        id: PART,
        identity: world.identity.child(0, -3),
        provenance: Provenance::Created,
        name: "part".to_owned(),
        desc: String::new(),
        level: Level::Framework,
        semantics: Semantics::NONBLOCKING_DISTINCT,
        // Before its creation returned, not even this is known.
        size: None,
        my_rank: None,
        members: vec![],
        owner: None,
        parent: WORLD,
        ordinal: 3,
        color: Some(-3),
        key: Some(i64::from(rank) - 9),
        ..world.clone()
    };
    let inter = CommDef {
        id: INTER,
        identity: CommIdentity::UNKNOWN,
        provenance: Provenance::Inferred,
        name: "bridge".to_owned(),
        level: Level::Transport,
        members: vec![7, 3, 4, 5],
        size: Some(4),
        inter: true,
        ..part.clone()
    };
    for comm in [world, part, inter] {
        script.other(Record::Comm(comm));
    }
    for (id, provenance) in [(4, Provenance::Declared), (5, Provenance::Unknown)] {
        script.other(Record::Comm(CommDef { id: CommRef(id), provenance, ..CommDef::default() }));
    }
    let runs = vec![(Basic::F64, 2), (Basic::I32, 1)];
    script.other(Record::Type(TypeDef { id: 1, name: "particle".to_owned(), size: Some(20), runs }));
    script.other(Record::Type(TypeDef { id: 2, name: String::new(), size: Some(8), runs: vec![] }));
    script.other(Record::Type(TypeDef { id: 3, name: "opaque".to_owned(), size: None, runs: vec![] }));
    let frame = |kind, function: &str, line| Frame {
        kind,
        function: function.to_owned(),
        file: "train.py".to_owned(),
        line,
        module: "libsample.so.1".to_owned(),
        build_id: "00ff17".to_owned(),
        offset: 0x1_2345 + u64::from(line),
    };
    let frames = vec![
        frame(FrameKind::Python, "main", 7),
        frame(FrameKind::Text, "step", 0),
        frame(FrameKind::Native, "löss", 30),
    ];
    script.other(Record::Site(SiteDef { id: SiteRef(1), frames }));
    script.other(Record::Site(SiteDef { id: SiteRef(2), frames: vec![] }));
    script.other(Record::Label(1, "model.layer1.weight".to_owned()));
    script.other(Record::Clock(clock(4_999_000_000)));
}

/// Every operation, each with the fields that its kind may have.
fn every_operation(script: &mut Script) {
    for (index, &op) in (0_u32..).zip(Op::ALL) {
        let call = Call {
            op,
            comm: WORLD,
            count: Some(u64::from(index)),
            dtype: DType::Basic(Basic::U8),
            root: Some(index % RANKS),
            redop: RedOp::Predefined(Reduction::Max),
            ..Call::default()
        };
        match op.kind() {
            // Those with vectors come later, with vectors.
            OpKind::Collective => script.collective(call),
            OpKind::PointToPoint => {}
            OpKind::CommCreate => script.call(Call { made: PART, seq: Some(u64::from(index)), tag: Some(-3), ..call }),
            _ => script.call(Call { comm: CommRef::NONE, count: None, dtype: DType::None, root: None, ..call }),
        }
    }
}

/// Every basic type, reduction, flag, and form of a type, a reduction and a completion.
fn every_code(script: &mut Script) {
    let call = Call { op: Op::AllReduce, comm: WORLD, count: Some(3), rank: Some(script.rank), ..Call::default() };
    for &basic in Basic::ALL {
        script.collective(Call { dtype: DType::Basic(basic), redop: RedOp::Dynamic, ..call.clone() });
    }
    for &reduction in Reduction::ALL {
        script.collective(Call { dtype: DType::Derived(1), redop: RedOp::Predefined(reduction), ..call.clone() });
    }
    for bit in 0..14 {
        let flags = CallFlags(1 << bit);
        let counted = !(CallFlags::NESTED.with(CallFlags::CAPTURED)).contains(flags);
        let call = Call { flags, dtype: DType::Derived(2 + bit % 2), redop: RedOp::Raw(u64::MAX - 1), ..call.clone() };
        if counted { script.collective(call) } else { script.call(call) }
    }
    for completion in [Completion::Unknown, Completion::Pending, Completion::At(9_000_000_000)] {
        let flags = CallFlags::NONBLOCKING.with(CallFlags::GROUPED);
        let group = 1 + (script.thread_seq % 3) as u32;
        let raw = DType::Raw(0xffff_8888_0000_1111);
        script.collective(Call { completion, flags, group, dtype: raw, result: Some(-1), ..call.clone() });
    }
    // Without a place; then the chain goes on at the next known one.
    script.call(Call { seq: None, ..call.clone() });
    script.next[1] += 5;
    script.collective(Call { dtype: DType::Basic(Basic::F16), redop: RedOp::Predefined(Reduction::Sum), ..call });
}

/// Vector forms whose matrices agree.
fn vectors(script: &mut Script) {
    let me = u64::from(script.rank);
    let other = 1 - me;
    let call = Call { comm: WORLD, dtype: DType::Basic(Basic::I64), ..Call::default() };
    // m sends to j: 10 m + j + 1.
    let sends = vec![10 * me + 1, 10 * me + 2];
    let recvs = vec![me + 1, 10 + me + 1];
    script.collective(Call { op: Op::AllToAllV, sends: sends.clone(), recvs: recvs.clone(), ..call.clone() });
    script.collective(Call { op: Op::AllToAll, sends: sends.clone(), recvs: recvs.clone(), ..call.clone() });
    script.collective(Call { op: Op::AllGatherV, count: Some(5 + me), recvs: vec![5, 6], ..call.clone() });
    let sum = RedOp::Predefined(Reduction::Sum);
    script.collective(Call { op: Op::ReduceScatterV, redop: sum, sends: vec![3, 0], ..call.clone() });
    script.collective(Call { op: Op::ReduceScatterV, redop: sum, recvs: vec![1, 4], ..call.clone() });
    let at_root = |vector: Vec<u64>, root: u64| if me == root { vector } else { vec![] };
    for root in [0, 1] {
        let call = Call { root: Some(root as u32), count: Some(7 + me), ..call.clone() };
        script.collective(Call { op: Op::GatherV, recvs: at_root(vec![7, 8], root), ..call.clone() });
        script.collective(Call { op: Op::ScatterV, sends: at_root(vec![7, 8], root), ..call });
    }
    let in_place = CallFlags::IN_PLACE;
    let square = vec![2 + other, 2 + other];
    script.collective(Call { op: Op::AllToAllV, flags: in_place, recvs: square, ..call.clone() });
    script.collective(Call { op: Op::AllToAllW, sends: sends.clone(), recvs: recvs.clone(), ..call.clone() });
    script.collective(Call { op: Op::NeighborAllToAllV, comm: INTER, sends, recvs, ..call });
}

/// Messages that pair up, and some that nobody can pair.
fn messages(script: &mut Script) {
    let me = script.rank;
    let call = Call { comm: WORLD, peer: Some(1 - me), dtype: DType::Basic(Basic::F64), ..Call::default() };
    for index in 0..4 {
        let tag = (index >= 2).then_some(-7);
        let call = Call { count: Some(index), tag, seq: Some(index % 2), ..call.clone() };
        script.call(Call { op: Op::Send, ..call.clone() });
        script.call(Call { op: Op::Recv, ..call });
    }
    script.call(Call {
        op: Op::Recv,
        peer: None,
        flags: CallFlags::ANY_SOURCE.with(CallFlags::ANY_TAG),
        ..call.clone()
    });
    script.call(Call { op: Op::Recv, comm: INTER, count: Some(1), seq: Some(0), ..call });
}

/// What became known later takes the place of what was known before.
fn redefinitions(script: &mut Script) {
    let rank = script.rank;
    let name = "part, by its later name".to_owned();
    let comm =
        CommDef { id: PART, name, size: Some(2), my_rank: Some(rank), members: vec![1, 0], ..CommDef::default() };
    script.other(Record::Comm(comm));
    script.other(Record::Label(1, "model.layer2.bias".to_owned()));
    script.other(Record::Type(TypeDef { id: 3, name: "opaque".to_owned(), size: Some(1 << 40), runs: vec![] }));
    script.collective(Call { op: Op::Barrier, comm: PART, ..Call::default() });
}

fn evidence(script: &mut Script) {
    let at = script.time;
    for (index, code) in (0..).zip(1_u8..=u8::MAX) {
        let Some(cause) = GapCause::from_code(code) else { break };
        let events = (index % 2 == 0).then_some(index);
        script.other(Record::Gap(Gap {
            cause,
            thread: 5,
            first_thread_seq: index,
            events,
            after: at,
            before: at + index,
        }));
    }
    let ended = [
        EndedBy::Unknown,
        EndedBy::OomKiller,
        EndedBy::Watchdog,
        EndedBy::Launcher,
        EndedBy::User,
        EndedBy::Itself,
        EndedBy::Process(1, "init".to_owned()),
    ];
    let lives = [Life::Waiting, Life::Running, Life::Blocked, Life::Stopped, Life::Alive, Life::Exited(-2)];
    let signals = ended.into_iter().map(|by| Life::Signaled { signal: 9, by });
    for (offset, life) in (0..).zip(lives.into_iter().chain(signals)) {
        script.other(Record::State(ProcessState { at: at + offset, life }));
    }
    let word = |text: &str| text.to_owned();
    script.other(Record::Thread(ThreadState {
        at,
        tid: 4711,
        name: word("main"),
        state: word("disk_sleep"),
        syscall: word("ioctl"),
        device: word("/dev/sample0"),
        request: Some(0xc020_4641),
        result: word("ETIMEDOUT"),
        each_ms: Some(10),
        times: Some(321),
        since_ms: Some(5000),
        cpu_ms: Some(0),
        wchan: word("wait_for_sample"),
        python: word("main>train>step"),
        native: word("main>sample_all_reduce"),
        io: word("reads shard-0007"),
        children: Some(2),
    }));
    script.other(Record::Thread(ThreadState { at, tid: 4712, ..ThreadState::default() }));
    for (at, text) in [(0, ""), (at, "loss=0.1\tünïcode \u{1f600}"), (u64::MAX, "line\nbreak \"quoted\"")] {
        script.other(Record::Log(LogLine { at, text: word(text) }));
    }
    for rank in [None, Some(0)] {
        script.other(Record::Attribute(Attribute { rank, key: word("stage"), value: word("0") }));
    }
    script.other(Record::Step(StepMark { at, thread: 4711, first_thread_seq: script.thread_seq, step: 17 }));
    script.other(Record::Clock(clock(at)));
}

/// Calls whose returns come later than their blocks, and two that never return.
fn unreturned(script: &mut Script) {
    let call = Call { op: Op::CommSplit, comm: WORLD, tag: Some(1), ..Call::default() };
    let first = script.thread_seq;
    for seq in 40..44 {
        script.call(Call { seq: Some(seq), ..call.clone() });
    }
    // Fills their block, and more.
    for index in 0..80 {
        script.collective(Call {
            op: Op::Broadcast,
            comm: PART,
            root: Some(1),
            count: Some(index),
            dtype: DType::Basic(Basic::Byte),
            ..Call::default()
        });
    }
    let completions = [Completion::Unknown, Completion::Pending, Completion::At(script.time + 99)];
    for (offset, completion) in (0..).zip(completions) {
        let made = if offset == 1 { CommRef::NONE } else { PART };
        script.other(Record::Return(Return {
            thread: 4711 + script.rank,
            thread_seq: first + offset,
            exit: script.time + offset,
            result: -(offset as i64),
            made,
            completion,
        }));
    }
    script.call(Call { op: Op::Barrier, comm: PART, seq: Some(script.next[2]), ..Call::default() });
}
