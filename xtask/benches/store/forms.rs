//! Size and speed of calls on disk: the trace, with and without its live tail, beside JSON Lines with the same compressor
//! and a plain copy of memory.
//!
//! Every form gets the same calls in the same batches, made outside of what is measured, as a recorder hands them over
//! while they are warm. Times are CPU time of one thread, files in the page cache; the rounds of all forms are
//! interleaved, and the table shows medians.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Error, Result, ensure};
use rankdiff_trace::tail::TailOptions;
use rankdiff_trace::{
    BlockReader, Call, ClockSnapshot, DType, Decoded, JobDir, Op, ProcessKey, Record, RedOp, StreamWriter,
    WriterOptions,
};
use serde::{Deserialize, Serialize};

use crate::clock::timed;
use crate::measure::median;
use crate::table::Table;

/// Calls that are made and handed over at a time.
const BATCH: usize = 4096;
/// Compression level of all that compress.
const LEVEL: i32 = 1;
/// Rounds.
const ROUNDS: usize = 5;
/// The goals: bytes a call, millions of calls written and read a second.
const GOALS: (f64, f64, f64) = (6.0, 8.0, 8.0);

/// What is written.
pub(crate) struct Source {
    /// Communicators, types and sites.
    pub(crate) definitions: Vec<Record>,
    /// The calls of one process.
    pub(crate) calls: Vec<Call>,
}

/// CPU seconds of one form.
#[derive(Default)]
struct Form {
    written: Vec<f64>,
    read: Vec<f64>,
    bytes: u64,
}

/// Measures all forms with these calls.
pub(crate) fn run(folder: &Path, source: &Source) -> Result<Table> {
    let mut trace = Form::default();
    let mut tail = Form::default();
    let mut whole = Form::default();
    let mut digests = Form::default();
    let mut json = Form::default();
    let mut copy = Form::default();
    for _ in 0..ROUNDS {
        for (form, options) in [(&mut trace, None), (&mut tail, Some(TailOptions::default()))] {
            let dir = fresh(folder)?;
            let (seconds, bytes) = write_trace(&dir, source, options)?;
            form.written.push(seconds);
            form.bytes = bytes;
            if options.is_none() {
                form.read.push(read_blocks(&dir, source)?);
                whole.read.push(read_whole(&dir, source)?);
                digests.read.push(read_digests(&dir, source)?);
            }
        }
        let path = folder.join("calls.jsonl.zst");
        let (seconds, bytes) = write_json(&path, &source.calls)?;
        json.written.push(seconds);
        json.bytes = bytes;
        json.read.push(read_json(&path, source.calls.len())?);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        copy.written.push(copy_calls(&source.calls));
    }
    copy.bytes = (source.calls.len() * size_of::<Call>()) as u64;
    fs::remove_dir_all(folder.join("forms")).context("cannot remove the traces")?;
    let forms = [
        ("rankdiff trace", trace),
        ("the same with a live tail", tail),
        ("the same, whole stream in memory", whole),
        ("the same, digests alone", digests),
        ("JSON Lines, zstd", json),
        ("copy of memory", copy),
    ];
    Ok(table(source.calls.len(), forms))
}

fn table(count: usize, forms: [(&str, Form); 6]) -> Table {
    let rate = |seconds: &[f64]| (!seconds.is_empty()).then(|| count as f64 / median(seconds.to_vec()) / 1e6);
    let each = |bytes: u64| bytes as f64 / count as f64;
    let rates = forms.each_ref().map(|(_, form)| (rate(&form.written), rate(&form.read)));
    let [(Some(written), Some(read)), .., (json_written, json_read), (copied, _)] = rates else {
        return Table::new(&["nothing was measured"]);
    };
    let mut table = Table::new(&["form", "M written/s", "M read/s", "bytes a call"]);
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    for ((name, form), (written, read)) in forms.iter().zip(rates) {
        let bytes = if form.bytes == 0 { "-".to_owned() } else { format!("{:.2}", each(form.bytes)) };
        table.row(&[(*name).to_owned(), cell(written), cell(read), bytes]);
    }
    let ratio = |one: f64, other: Option<f64>| other.map_or(f64::NAN, |other| one / other);
    table.note(&format!(
        "{count} calls, {ROUNDS} rounds of all forms in turn, medians; CPU time of one thread, files in the page cache, zstd \
         level {LEVEL} throughout"
    ));
    table.note(&format!(
        "To JSON Lines: written {:.1} x, read {:.1} x as fast, {:.1} x smaller. To a copy of the {} bytes that a call takes \
         in memory: written at {:.2}, read at {:.2} of its speed",
        ratio(written, json_written),
        ratio(read, json_read),
        each(forms[4].1.bytes) / each(forms[0].1.bytes),
        size_of::<Call>(),
        ratio(written, copied),
        ratio(read, copied),
    ));
    let (bytes_goal, written_goal, read_goal) = GOALS;
    let met = |is: bool| if is { "met" } else { "MISSED" };
    table.note(&format!(
        "Goals: at most {bytes_goal} bytes a call ({}), {written_goal} M written a second ({}), {read_goal} M read a second ({})",
        met(each(forms[0].1.bytes) <= bytes_goal),
        met(written >= written_goal),
        met(read >= read_goal),
    ));
    table
}

/// An empty directory for a trace.
fn fresh(folder: &Path) -> Result<std::path::PathBuf> {
    let dir = folder.join("forms");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

fn write_trace(dir: &Path, source: &Source, tail: Option<TailOptions>) -> Result<(f64, u64)> {
    let options = WriterOptions { job_id: "bench".to_owned(), zstd_level: LEVEL, tail, ..WriterOptions::default() };
    let key = ProcessKey { host: "bench".to_owned(), pid: 4242, start_time: 1 };
    let mut writer = StreamWriter::create(dir, &key, ClockSnapshot::default(), &options)?;
    for record in &source.definitions {
        writer.write(record.clone())?;
    }
    let mut seconds = 0.0;
    let mut batch = Vec::with_capacity(BATCH);
    for calls in source.calls.chunks(BATCH) {
        batch.extend(calls.iter().cloned().map(Record::Call));
        let (done, taken) = timed(|| batch.drain(..).try_for_each(|record| writer.write(record)));
        done?;
        seconds += taken;
    }
    let (summary, taken) = timed(|| writer.close());
    let summary = summary?;
    ensure!(summary.lost_records == 0, "{summary:?}");
    Ok((seconds + taken, summary.bytes))
}

/// Reads the calls block by block, as whatever goes through a stream does.
fn read_blocks(dir: &Path, source: &Source) -> Result<f64> {
    let job = JobDir::open(dir)?;
    let stream = job.streams().first().context("no stream was written")?;
    let (read, seconds) = timed(|| -> Result<u64> {
        let mut read = 0;
        for path in &stream.segments {
            let mut reader = BlockReader::open(path)?;
            while let Some(block) = reader.next_block().map_err(Error::msg)? {
                if let Decoded::Calls(calls) = block.decode(&mut reader).map_err(Error::msg)? {
                    read += calls.len() as u64;
                    black_box(&calls);
                }
            }
        }
        Ok(read)
    });
    ensure!(read? == source.calls.len() as u64, "not all calls were read");
    Ok(seconds)
}

/// Reads the stream into memory and holds it against what was written.
fn read_whole(dir: &Path, source: &Source) -> Result<f64> {
    let job = JobDir::open(dir)?;
    let stream = job.streams().first().context("no stream was written")?;
    let (outcome, seconds) = timed(|| stream.read());
    ensure!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    ensure!(outcome.trace.calls == source.calls, "what was read is not what was written");
    Ok(seconds)
}

/// Reads the digests of all blocks and decodes none.
fn read_digests(dir: &Path, source: &Source) -> Result<f64> {
    let job = JobDir::open(dir)?;
    let stream = job.streams().first().context("no stream was written")?;
    let (ends, seconds) = timed(|| -> Result<u64> {
        let mut ends = 0;
        for path in &stream.segments {
            let mut reader = BlockReader::open(path)?;
            while let Some(block) = reader.next_block().map_err(Error::msg)? {
                ends += block.digests().ends.len() as u64;
            }
        }
        Ok(ends)
    });
    ensure!(ends? > 0 || source.calls.iter().all(|call| call.seq.is_none()), "no digests");
    Ok(seconds)
}

/// A call as a line of JSON.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    op: &'a str,
    comm: u32,
    seq: Option<u64>,
    count: Option<u64>,
    dtype: &'a str,
    redop: &'a str,
    root: Option<u32>,
    thread: u32,
    thread_seq: u64,
    stream: u64,
    enter: u64,
    exit: Option<u64>,
    result: Option<i64>,
    site: u32,
}

impl Line<'_> {
    fn of(call: &Call) -> Line<'_> {
        Line {
            op: call.op.name(),
            comm: call.comm.0,
            seq: call.seq,
            count: call.count,
            dtype: match call.dtype {
                DType::Basic(basic) => basic.name(),
                _ => "-",
            },
            redop: match call.redop {
                RedOp::Predefined(reduction) => reduction.name(),
                _ => "-",
            },
            root: call.root,
            thread: call.thread,
            thread_seq: call.thread_seq,
            stream: call.stream,
            enter: call.enter,
            exit: call.exit,
            result: call.result,
            site: call.site.0,
        }
    }
}

fn write_json(path: &Path, calls: &[Call]) -> Result<(f64, u64)> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 16, zstd::Encoder::new(file, LEVEL)?);
    let mut seconds = 0.0;
    for calls in calls.chunks(BATCH) {
        let (done, taken) = timed(|| {
            calls.iter().try_for_each(|call| {
                serde_json::to_writer(&mut out, &Line::of(call))?;
                out.write_all(b"\n")
            })
        });
        done?;
        seconds += taken;
    }
    let (done, taken) = timed(|| out.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish());
    done?;
    Ok((seconds + taken, fs::metadata(path)?.len()))
}

fn read_json(path: &Path, count: usize) -> Result<f64> {
    let (read, seconds) = timed(|| -> Result<usize> {
        let mut lines = BufReader::with_capacity(1 << 16, zstd::Decoder::new(File::open(path)?)?);
        let (mut text, mut read) = (String::new(), 0);
        while lines.read_line(&mut text)? > 0 {
            let line: Line<'_> = serde_json::from_str(&text)?;
            black_box(Op::from_name(line.op).with_context(|| format!("no operation {}", line.op))?);
            black_box(line);
            text.clear();
            read += 1;
        }
        Ok(read)
    });
    ensure!(read? == count, "not all lines were read");
    Ok(seconds)
}

/// Copies as many bytes as the calls take, into memory that is there already.
fn copy_calls(calls: &[Call]) -> f64 {
    let source = vec![1_u8; size_of_val(calls)];
    let mut target = vec![2_u8; source.len()];
    let ((), seconds) = timed(|| target.copy_from_slice(black_box(&source)));
    black_box(&target);
    seconds
}
