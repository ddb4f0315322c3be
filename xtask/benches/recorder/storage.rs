//! The trace on disk: how fast calls are written and read on one core and how many bytes each takes, beside JSON Lines
//! with the same compressor and a plain copy of memory.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rankdiff_trace::{
    Basic, Call, ClockSnapshot, CommDef, CommIdentity, CommRef, DType, JobDir, Op, ProcessKey, Record, RedOp,
    Reduction, SiteRef, StreamWriter, WriterOptions,
};
use serde_json::json;

use crate::table::Table;

/// Calls of one training step.
const STEP: u64 = 34;
/// Compression level of all that compress.
const LEVEL: i32 = 1;

/// Measures `count` calls.
pub(crate) fn run(folder: &Path, count: u64) -> Result<Table> {
    let calls = calls(count);
    let mut table = Table::new(&["form", "written a second", "read a second", "bytes a call"]);
    let mut row = |form: &str, written: f64, read: f64, bytes: u64| {
        let rate = |seconds: f64| format!("{:.2} M", count as f64 / seconds / 1e6);
        table.row(&[form.to_owned(), rate(written), rate(read), format!("{:.1}", bytes as f64 / count as f64)]);
    };
    let dir = folder.join("storage");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;

    let (written, bytes) = write_trace(&dir, &calls)?;
    let read = read_trace(&dir, &calls)?;
    row("rankdiff trace", written, read, bytes);

    let path = dir.join("calls.jsonl.zst");
    let (written, bytes) = write_json(&path, &calls)?;
    let read = read_json(&path, count)?;
    row("JSON Lines, zstd", written, read, bytes);

    let start = Instant::now();
    let copy = black_box(black_box(&calls).clone());
    let written = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let sum = copy.iter().fold(0_u64, |sum, call| sum.wrapping_add(call.enter));
    black_box(sum);
    row("copy in memory", written, start.elapsed().as_secs_f64(), count * size_of::<Call>() as u64);
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    table
        .note(&format!("{count} calls of a data-parallel job, {STEP} calls a step; one core; files in the page cache"));
    Ok(table)
}

/// The calls of one rank: gradient buckets of a few sizes, a scalar reduction and a barrier a step, with the jitter that
/// real times have.
fn calls(count: u64) -> Vec<Call> {
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut now = 1_000_000_000_000;
    let mut jitter = move |below: u64| {
        // xorshift: the same times in every run.
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise % below
    };
    (0..count)
        .map(|seq| {
            let place = seq % STEP;
            now += 150_000 + jitter(40_000);
            let barrier = place == STEP - 1;
            let elements = if place == STEP - 2 { 1 } else { 6_553_600 >> (place % 5) };
            Call {
                op: if barrier { Op::Barrier } else { Op::AllReduce },
                comm: CommRef(1),
                seq: Some(seq),
                count: (!barrier).then_some(elements),
                dtype: if barrier { DType::None } else { DType::Basic(Basic::F32) },
                redop: if barrier { RedOp::None } else { RedOp::Predefined(Reduction::Sum) },
                thread: 4242,
                thread_seq: seq,
                stream: 0x7f12_3400_0000,
                enter: now,
                exit: Some(now + 3_000 + jitter(2_000)),
                result: Some(0),
                site: SiteRef(1 + place as u32 / 11),
                ..Call::default()
            }
        })
        .collect()
}

fn write_trace(dir: &Path, calls: &[Call]) -> Result<(f64, u64)> {
    let options = WriterOptions { job_id: "bench".to_owned(), zstd_level: LEVEL, ..WriterOptions::default() };
    let key = ProcessKey { host: "bench".to_owned(), pid: 4242, start_time: 1 };
    let records: Vec<Record> = calls.iter().cloned().map(Record::Call).collect();
    let comm =
        CommDef { id: CommRef(1), identity: CommIdentity::root("bench", b"0"), size: Some(8), ..CommDef::default() };
    let start = Instant::now();
    let mut writer = StreamWriter::create(dir, &key, ClockSnapshot::default(), &options)?;
    writer.write(Record::Comm(comm))?;
    for record in records {
        writer.write(record)?;
    }
    let summary = writer.close()?;
    let taken = start.elapsed().as_secs_f64();
    ensure!(summary.lost_records == 0, "{summary:?}");
    Ok((taken, summary.bytes))
}

fn read_trace(dir: &Path, calls: &[Call]) -> Result<f64> {
    let start = Instant::now();
    let job = JobDir::open(dir)?;
    let stream = job.streams().first().context("no stream was written")?;
    let outcome = stream.read();
    let taken = start.elapsed().as_secs_f64();
    ensure!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    ensure!(outcome.trace.calls == calls, "what was read is not what was written");
    Ok(taken)
}

fn write_json(path: &Path, calls: &[Call]) -> Result<(f64, u64)> {
    let start = Instant::now();
    let file = fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 16, zstd::Encoder::new(file, LEVEL)?);
    for call in calls {
        let line = json!({
            "op": call.op.name(), "comm": call.comm.0, "seq": call.seq, "count": call.count,
            "dtype": format!("{:?}", call.dtype), "redop": format!("{:?}", call.redop), "thread": call.thread,
            "thread_seq": call.thread_seq, "stream": call.stream, "enter": call.enter, "exit": call.exit,
            "result": call.result, "site": call.site.0,
        });
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()?.sync_data()?;
    let taken = start.elapsed().as_secs_f64();
    Ok((taken, fs::metadata(path)?.len()))
}

fn read_json(path: &Path, count: u64) -> Result<f64> {
    let start = Instant::now();
    let mut lines = BufReader::with_capacity(1 << 16, zstd::Decoder::new(fs::File::open(path)?)?);
    let (mut text, mut read) = (String::new(), 0);
    while lines.read_line(&mut text)? > 0 {
        let value: serde_json::Value = serde_json::from_str(&text)?;
        black_box(value);
        text.clear();
        read += 1;
    }
    ensure!(read == count, "{read} lines instead of {count}");
    Ok(start.elapsed().as_secs_f64())
}
