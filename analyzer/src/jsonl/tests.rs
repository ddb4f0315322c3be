//! Records become lines and come back, whatever is in them; lines that mean nothing are refused in words.

use rankdiff_trace::{
    Basic, Call, CallFlags, CommDef, CommIdentity, CommRef, Completion, DType, EndedBy, Frame, Gap, GapCause, Life, Op,
    ProcessState, Record, RedOp, Reduction, Return, Semantics, SiteDef, SiteRef, ThreadState, TypeDef,
};

use super::{Line, parse, put_record};

fn back(record: &Record) -> Record {
    let mut line = Vec::new();
    assert!(put_record(&mut line, record).expect("encodes"), "{record:?} has no line");
    assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1, "one record, one line");
    match parse(&line) {
        Ok(Line::Record(record)) => *record,
        other => panic!("{}: {other:?}", String::from_utf8_lossy(&line)),
    }
}

/// Text that a careless format would break on.
const TEXT: &str = "a\n\"b\"\\\u{0}\u{7f}\u{2028}\u{1f600}{}é";

#[test]
fn extreme_values_come_back() {
    let call = Call {
        op: Op::AllToAllV,
        comm: CommRef(u32::MAX),
        made: CommRef(7),
        seq: Some(u64::MAX),
        flags: CallFlags(u32::MAX),
        count: Some((1 << 53) + 1),
        dtype: DType::Raw(u64::MAX),
        redop: RedOp::Raw(u64::MAX - 1),
        root: Some(u32::MAX),
        peer: Some(0),
        tag: Some(i64::MIN),
        sends: vec![0, u64::MAX],
        recvs: vec![1],
        thread: u32::MAX,
        thread_seq: u64::MAX,
        stream: u64::MAX,
        group: u32::MAX,
        enter: u64::MAX,
        exit: Some(0),
        completion: Completion::At(u64::MAX),
        result: Some(i64::MIN),
        site: SiteRef(u32::MAX),
        label: u32::MAX,
        rank: Some(u32::MAX),
    };
    let mut records = vec![Record::Call(call.clone()), Record::Call(Call::default())];
    for dtype in [DType::None, DType::Derived(3), DType::Basic(Basic::F8E4M3)] {
        records.push(Record::Call(Call { dtype, completion: Completion::Pending, ..call.clone() }));
    }
    for redop in [RedOp::None, RedOp::Dynamic, RedOp::Predefined(Reduction::MaxLoc)] {
        records.push(Record::Call(Call { redop, ..call.clone() }));
    }
    records.extend(Op::ALL.iter().map(|&op| Record::Call(Call { op, ..Call::default() })));
    records.push(Record::Return(Return { exit: u64::MAX, result: i64::MIN, made: CommRef(3), ..Return::default() }));
    records.push(Record::Comm(CommDef {
        id: CommRef(1),
        identity: CommIdentity(u128::MAX),
        name: TEXT.to_owned(),
        semantics: Semantics(u32::MAX),
        members: vec![u32::MAX, 0],
        color: Some(i64::MIN),
        key: Some(-1),
        inter: true,
        ..CommDef::default()
    }));
    records.push(Record::Type(TypeDef {
        id: 0,
        name: TEXT.to_owned(),
        size: Some(0),
        runs: vec![(Basic::I8, u64::MAX)],
    }));
    let frame = Frame { function: TEXT.to_owned(), offset: u64::MAX, ..Frame::default() };
    records.push(Record::Site(SiteDef { id: SiteRef(1), frames: vec![frame, Frame::default()] }));
    records.push(Record::Label(0, TEXT.to_owned()));
    for before in [0, 1, u64::MAX] {
        records.push(Record::Gap(Gap { cause: GapCause::DiskFull, events: Some(0), before, ..Gap::default() }));
    }
    let by = [EndedBy::Unknown, EndedBy::OomKiller, EndedBy::User, EndedBy::Process(0, TEXT.to_owned())];
    let lives = by.into_iter().map(|by| Life::Signaled { signal: -1, by });
    let lives =
        lives.chain([Life::Exited(i32::MIN), Life::Waiting, Life::Running, Life::Blocked, Life::Stopped, Life::Alive]);
    records.extend(lives.map(|life| Record::State(ProcessState { at: 0, life })));
    records.push(Record::Thread(ThreadState {
        request: Some(u64::MAX),
        wchan: TEXT.to_owned(),
        ..ThreadState::default()
    }));
    for record in &records {
        assert_eq!(back(record), *record);
    }
}

#[test]
fn what_a_newer_writer_adds_is_told_apart_from_what_is_wrong() {
    let kind = |line: &str| format!("{:?}", parse(line.as_bytes()));
    assert_eq!(kind(r#"{"kind":"weather","sun":true}"#), "Ok(Unknown)");
    assert_eq!(kind(r#"{"kind":"state","at_ns":1,"life":"dreaming"}"#), "Ok(Unknown)");
    let call = r#""thread":1,"thread_seq":2,"enter_ns":3}"#;
    for new in [r#""op":"all_dance""#, r#""op":"barrier","dtype":"f4""#, r#""op":"barrier","flags":["brave"]"#] {
        assert_eq!(kind(&format!("{{\"kind\":\"call\",{new},{call}")), "Ok(UnknownCall)");
    }
    // Fields that are not known are passed over.
    assert!(kind(&format!("{{\"kind\":\"call\",\"op\":\"barrier\",\"mood\":\"good\",{call}")).starts_with("Ok(Record"));
    let refused = |line: &str, word: &str| {
        let said = parse(line.as_bytes()).expect_err(line);
        assert!(said.contains(word) && !said.contains("line 1"), "{line}: {said}");
    };
    refused("{\"kind\":\"call\"", "no JSON object");
    refused("nonsense", "no JSON object");
    refused("{}", "missing field `kind`");
    refused(r#"{"kind":"call","op":"barrier"}"#, "call: missing field `thread`");
    refused(r#"{"kind":"call","op":7}"#, "call: invalid type");
    refused(r#"{"kind":"comm","id":0,"provenance":"created","level":"library"}"#, "`id` is 0");
    refused(r#"{"kind":"comm","id":1,"identity":"xyz","provenance":"created","level":"library"}"#, "not hexadecimal");
    refused(r#"{"kind":"state","at_ns":1,"life":"exited"}"#, "needs `code`");
    refused(r#"{"kind":"header","format":"other","version":"1.0"}"#, "other");
    refused(r#"{"kind":"clock","monotonic":-1}"#, "clock: ");
}

#[test]
fn lists_are_bounded_while_they_are_read() {
    let frames = vec!["{\"kind\":\"text\"}"; rankdiff_trace::limits::MAX_FRAMES + 1].join(",");
    let said = parse(format!("{{\"kind\":\"site\",\"id\":1,\"frames\":[{frames}]}}").as_bytes()).expect_err("too many");
    assert!(said.contains("more than 512 items"), "{said}");
    let splits = vec!["1"; rankdiff_trace::limits::MAX_VECTOR + 1].join(",");
    let line = format!(
        "{{\"kind\":\"call\",\"op\":\"barrier\",\"thread\":1,\"thread_seq\":1,\"enter_ns\":1,\"sends\":[{splits}]}}"
    );
    assert!(parse(line.as_bytes()).expect_err("too many").contains("items"));
    let deep = "[".repeat(10_000);
    assert!(parse(format!("{{\"kind\":\"call\",\"x\":{deep}").as_bytes()).is_err());
}
