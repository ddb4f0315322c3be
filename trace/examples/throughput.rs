//! How fast calls are written and read, beside copying their memory and beside JSON Lines with zstd.
//!
//! `cargo run --release -p rankdiff-trace --example throughput [CALLS]`; writes to the temporary directory.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use rankdiff_trace::{
    Basic, BlockReader, Call, ClockSnapshot, CommDef, CommRef, DType, Op, ProcessKey, Record, RedOp, Reduction,
    SiteRef, StreamFiles, StreamWriter, TailOptions, WriterOptions,
};

/// A step of 96 calls over four communicators, with noise in every time.
fn calls(number: u64) -> Vec<Call> {
    let (mut noise, mut clock, mut seqs) = (0x9e37_79b9_7f4a_7c15_u64, 1_u64 << 50, [0_u64; 4]);
    let mut random = move |range: u64| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise % range
    };
    (0..number)
        .map(|index| {
            let place = index % 96;
            clock += 20_000 + random(60_000) + if place == 0 { 5_000_000 } else { 0 };
            let comm = (place % 4) as usize;
            let op = [Op::AllGather, Op::ReduceScatter, Op::AllReduce, Op::Broadcast][comm];
            let seq = seqs[comm];
            seqs[comm] += 1;
            Call {
                op,
                comm: CommRef(comm as u32 + 1),
                seq: Some(seq),
                count: Some(4096 * (1 + place * 37 % 50)),
                dtype: DType::Basic(Basic::Bf16),
                redop: if op.has_reduction() { RedOp::Predefined(Reduction::Sum) } else { RedOp::None },
                root: op.has_root().then_some(0),
                thread: 77,
                thread_seq: index,
                stream: 0x7f00_1234_5000 + comm as u64 * 0x100,
                enter: clock,
                exit: Some(clock + 9_000 + random(4_000)),
                result: Some(0),
                site: SiteRef(1 + place as u32 % 11),
                ..Call::default()
            }
        })
        .collect()
}

/// What a hand-written JSON Lines recorder would print of a call.
fn json_line(call: &Call, out: &mut Vec<u8>) -> std::io::Result<()> {
    writeln!(
        out,
        "{{\"op\":\"{}\",\"comm\":{},\"seq\":{},\"count\":{},\"dtype\":\"bf16\",\"redop\":\"{}\",\"root\":{},\
         \"thread\":{},\"thread_seq\":{},\"stream\":{},\"enter\":{},\"exit\":{},\"result\":0,\"site\":{}}}",
        call.op,
        call.comm.0,
        call.seq.unwrap_or(0),
        call.count.unwrap_or(0),
        call.redop,
        call.root.unwrap_or(0),
        call.thread,
        call.thread_seq,
        call.stream,
        call.enter,
        call.exit.unwrap_or(0),
        call.site.0,
    )
}

/// Seconds that this process spent on a CPU, so that a busy machine does not count; wall time where there is no /proc.
fn cpu_seconds(start: Instant) -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = schedstat.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.map_or(start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds as f64 / 1e9)
}

/// Runs a step and prints its rate per core.
fn timed<T>(
    what: &str,
    number: u64,
    run: impl FnOnce() -> Result<(T, u64), Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let start = Instant::now();
    let before = cpu_seconds(start);
    let (result, bytes) = run()?;
    let rate = number as f64 / (cpu_seconds(start) - before) / 1e6;
    println!("{what:<32} {rate:>8.2} M calls/s {:>8.2} bytes/call", bytes as f64 / number as f64);
    Ok(result)
}

fn main() -> Result<(), Box<dyn Error>> {
    let number: u64 = std::env::args().nth(1).map_or(Ok(2_000_000), |text| text.parse())?;
    let calls = calls(number);
    let dir = tempfile::tempdir()?;
    let key = ProcessKey { host: "bench".to_owned(), pid: 1, start_time: 1 };
    let memory = number * size_of::<Call>() as u64;

    timed("copy of the calls in memory", number, || Ok((calls.clone(), memory)))?;
    let records: Vec<Record> = calls.iter().cloned().map(Record::Call).collect();
    timed("rankdiff: write", number, || {
        let mut writer = StreamWriter::create(dir.path(), &key, ClockSnapshot::default(), &WriterOptions::default())?;
        for id in 1..=4 {
            writer.write(Record::Comm(CommDef { id: CommRef(id), my_rank: Some(0), ..CommDef::default() }))?;
        }
        for record in records {
            writer.write(record)?;
        }
        Ok(((), writer.close()?.bytes))
    })?;
    let records: Vec<Record> = calls.iter().cloned().map(Record::Call).collect();
    timed("rankdiff: write with a live tail", number, || {
        let dir = tempfile::tempdir()?;
        let options = WriterOptions { tail: Some(TailOptions::default()), ..WriterOptions::default() };
        let mut writer = StreamWriter::create(dir.path(), &key, ClockSnapshot::default(), &options)?;
        for id in 1..=4 {
            writer.write(Record::Comm(CommDef { id: CommRef(id), my_rank: Some(0), ..CommDef::default() }))?;
        }
        for record in records {
            writer.write(record)?;
        }
        Ok(((), writer.close()?.bytes))
    })?;
    let job = rankdiff_trace::JobDir::open(dir.path())?;
    let stream: &StreamFiles = job.streams().first().ok_or("the stream that was just written is not there")?;
    let outcome = timed("rankdiff: read", number, || Ok((stream.read(), 0)))?;
    if outcome.trace.calls != calls || !outcome.problems.is_empty() {
        return Err("what was read is not what was written".into());
    }
    // Over and over: once is shorter than the clock's tick.
    let rounds = 500;
    let points = timed("rankdiff: read digests only", number * rounds, || {
        let mut points = 0;
        for path in (0..rounds).flat_map(|_| &stream.segments) {
            let mut reader = BlockReader::open(path)?;
            while let Some(block) = reader.next_block().map_err(|problem| problem.to_string())? {
                points += block.digests().checkpoints.len();
            }
        }
        Ok((points, 0))
    })?;
    println!("{:<32} {} checkpoints", "", points / rounds as usize);
    timed("JSON Lines + zstd: write", number, || {
        let (mut text, mut bytes) = (Vec::new(), 0);
        let mut file = std::fs::File::create(dir.path().join("calls.jsonl.zst"))?;
        for block in calls.chunks(4096) {
            text.clear();
            for call in block {
                json_line(call, &mut text)?;
            }
            let packed = zstd::bulk::compress(&text, 1)?;
            bytes += packed.len() as u64;
            file.write_all(&packed)?;
        }
        Ok(((), bytes))
    })?;
    Ok(())
}
