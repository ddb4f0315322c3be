//! What a call costs on disk, and that its cost does not hide anything.

use rankdiff_trace::{
    Basic, BlockKind, BlockReader, Call, ClockSnapshot, CommDef, CommRef, DType, Op, ProcessKey, Record, RedOp,
    Reduction, SiteRef, StreamFiles, StreamWriter, WriterOptions,
};

const CALLS: u64 = 96 * 1000;

/// A step of 96 calls over four communicators: gathers and reductions of a sharded model, pipeline sends between.
/// Durations have a few thousand ns of noise, waits a few hundred thousand.
fn call(index: u64, seqs: &mut [u64; 5], clock: &mut u64, noise: &mut u64) -> Call {
    let mut random = |range: u64| {
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        *noise % range
    };
    let place = index % 96;
    *clock += 20_000 + random(60_000) + if place == 0 { 5_000_000 + random(400_000) } else { 0 };
    let (op, comm, peer) = match place % 8 {
        0 | 4 => (Op::AllGather, 1, None),
        1 | 5 => (Op::ReduceScatter, 1, None),
        2 => (Op::AllReduce, 2, None),
        3 => (Op::Broadcast, 3, None),
        6 => (Op::Send, 4, Some(1)),
        _ => (Op::AllReduce, 4, None),
    };
    let counter = if op == Op::Send { &mut seqs[0] } else { &mut seqs[comm as usize] };
    let seq = *counter;
    *counter += 1;
    let exit = *clock + 9_000 + random(4_000);
    Call {
        op,
        comm: CommRef(comm),
        seq: Some(seq),
        count: Some(4096 * (1 + place * 37 % 50)),
        dtype: DType::Basic(Basic::Bf16),
        redop: if op.has_reduction() { RedOp::Predefined(Reduction::Sum) } else { RedOp::None },
        root: (op == Op::Broadcast).then_some(0),
        peer,
        thread: if place % 8 == 7 { 78 } else { 77 },
        thread_seq: if place % 8 == 7 { index / 8 } else { index - index / 8 },
        stream: 0x7f00_1234_5000 + u64::from(comm) * 0x100,
        enter: *clock,
        exit: Some(exit),
        result: Some(0),
        site: SiteRef(1 + place as u32 % 11),
        ..Call::default()
    }
}

#[test]
fn a_call_of_a_steady_job_takes_no_more_than_six_bytes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let key = ProcessKey { host: "n0".to_owned(), pid: 7, start_time: 8 };
    let options = WriterOptions::default();
    let mut writer = StreamWriter::create(dir.path(), &key, ClockSnapshot::default(), &options).expect("create");
    for id in 1..=4 {
        let def = CommDef { id: CommRef(id), my_rank: Some(0), size: Some(8), ..CommDef::default() };
        writer.write(Record::Comm(def)).expect("write");
    }
    let (mut seqs, mut clock, mut noise) = ([0; 5], 1 << 50, 0x9e37_79b9_7f4a_7c15);
    let calls: Vec<Call> = (0..CALLS).map(|index| call(index, &mut seqs, &mut clock, &mut noise)).collect();
    for call in &calls {
        writer.write(Record::Call(call.clone())).expect("write");
    }
    let path = writer.path().to_owned();
    let summary = writer.close().expect("close");
    let each = summary.bytes as f64 / CALLS as f64;
    println!("{each:.2} bytes a call");
    assert!(each <= 6.0, "{each:.2} bytes a call");

    // 23 whole blocks and the rest; one of definitions, one of the frontier, one for the end.
    let mut reader = BlockReader::open(&path).expect("header");
    let (mut counts, mut others, mut checkpoints) = (Vec::new(), Vec::new(), 0);
    while let Some(block) = reader.next_block().expect("whole") {
        if block.header().kind == BlockKind::CALLS {
            counts.push(block.header().count);
            checkpoints += block.digests().checkpoints.len() as u64;
            assert_eq!(block.digests().ends.len(), 4);
            assert_eq!(block.digests().p2p.len(), 1);
        } else {
            others.push(block.header().kind);
        }
    }
    assert_eq!(counts.len(), 24);
    assert!(counts[..23].iter().all(|&count| count == 4096), "{counts:?}");
    assert_eq!(counts.iter().map(|&count| u64::from(count)).sum::<u64>(), CALLS);
    assert_eq!(others, [BlockKind::COMMS, BlockKind::FRONTIER, BlockKind::SEGMENT_END]);
    assert_eq!(summary.blocks, 27);
    assert_eq!(checkpoints, seqs[1..].iter().map(|seq| seq / 256).sum::<u64>());

    let outcome = StreamFiles { key, session: 0, segments: vec![path], tail: None }.read();
    assert!(outcome.trace.calls == calls, "the calls are those that were written");
}
