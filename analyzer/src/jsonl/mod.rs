//! The line format (docs/export.md): what each line of a JSON Lines file holds, in both directions.
//!
//! One object a line, told apart by `kind`. A record becomes a line and the line becomes an equal record; what is absent,
//! empty or zero is left out. Numbers of 64 bits are written as JSON numbers, whole; identities of 128 bits as text.
//!
//! Not here: files. `export::jsonl` writes lines, `input::jsonl` reads them.

mod bounded;
mod call;
mod definition;
mod evidence;
mod names;

use std::borrow::Cow;

use rankdiff_trace::{CallFlags, ClockSnapshot, JobInfo, ProcessKey, Record};
use serde::{Deserialize, Serialize};

use call::{CallLine, ReturnLine};
use definition::{CommLine, LabelLine, RankLine, SiteLine, TypeLine};
use evidence::{AttributeLine, ClockLine, GapLine, LogLineLine, StateLine, StepLine, ThreadLine};

/// Name of the format, in the first line of every file.
pub(crate) const FORMAT: &str = "rankdiff-jsonl";
/// Version that is written. A reader refuses another major number.
pub(crate) const VERSION: &str = "1.0";
/// Major number that is read.
pub(crate) const MAJOR: u32 = 1;

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header<'a> {
    /// [`FORMAT`].
    #[serde(borrow)]
    pub(crate) format: Cow<'a, str>,
    /// [`VERSION`] of the writer.
    #[serde(borrow)]
    pub(crate) version: Cow<'a, str>,
    /// Who wrote it.
    #[serde(borrow, default)]
    pub(crate) writer: Cow<'a, str>,
}

/// Begins the records of one recording of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    /// Tells two recordings of one process apart.
    #[serde(default)]
    pub(crate) session: u64,
    #[serde(default)]
    pub(crate) job_id: String,
    /// Clocks at the start of the recording.
    #[serde(default)]
    pub(crate) clock: Clock,
}

impl Process {
    pub(crate) fn key(&self) -> ProcessKey {
        ProcessKey { host: self.host.clone(), pid: self.pid, start_time: self.start_time }
    }
}

/// Clocks of one moment, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) monotonic: u64,
    #[serde(default)]
    pub(crate) boottime: u64,
    #[serde(default)]
    pub(crate) realtime: u64,
}

impl From<ClockSnapshot> for Clock {
    fn from(clock: ClockSnapshot) -> Clock {
        Clock { monotonic: clock.monotonic, boottime: clock.boottime, realtime: clock.realtime }
    }
}

impl From<Clock> for ClockSnapshot {
    fn from(clock: Clock) -> ClockSnapshot {
        ClockSnapshot { monotonic: clock.monotonic, boottime: clock.boottime, realtime: clock.realtime }
    }
}

/// Ends the records of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct End {
    /// The recorder closed the recording (no: it was killed, or still wrote).
    #[serde(default)]
    pub(crate) closed: bool,
    /// Calls in it, so that lines which somebody removed are missed.
    #[serde(default)]
    pub(crate) calls: u64,
}

/// What a line holds, as it is written.
#[derive(Serialize)]
struct Tagged<'a, T> {
    kind: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// The kind of a line that is read.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// A line that was read.
#[derive(Debug)]
pub(crate) enum Line {
    Header {
        version: String,
    },
    Job(Box<JobInfo>),
    Process(Process),
    Record(Box<Record>),
    /// A call with an operation, type, reduction or flag that this build does not know.
    UnknownCall,
    End(End),
    /// Of a kind, or with a name in it, that this build does not know.
    Unknown,
}

/// A record cannot be taken.
#[derive(Debug)]
enum Refused {
    /// It has a name that a newer writer may know.
    Newer,
    /// It means nothing.
    Wrong(String),
}

/// Names of a call's flags.
pub(crate) fn flag_names(flags: CallFlags) -> Vec<Cow<'static, str>> {
    names::flags(flags)
}

fn put<T: Serialize>(out: &mut Vec<u8>, kind: &str, body: &T) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *out, &Tagged { kind, body })?;
    out.push(b'\n');
    Ok(())
}

/// Appends the first line of a file.
pub(crate) fn put_header(out: &mut Vec<u8>) -> serde_json::Result<()> {
    let writer = concat!("rankdiff ", env!("CARGO_PKG_VERSION"));
    put(out, "header", &Header { format: FORMAT.into(), version: VERSION.into(), writer: writer.into() })
}

/// Appends the line of a host's description of the job.
pub(crate) fn put_job(out: &mut Vec<u8>, info: &JobInfo) -> serde_json::Result<()> {
    put(out, "job", info)
}

/// Appends the line that begins a process.
pub(crate) fn put_process(out: &mut Vec<u8>, process: &Process) -> serde_json::Result<()> {
    put(out, "process", process)
}

/// Appends the line that ends a process.
pub(crate) fn put_end(out: &mut Vec<u8>, end: &End) -> serde_json::Result<()> {
    put(out, "end", end)
}

/// Appends the line of a record; `false`, and nothing appended, if the format has no line for it.
pub(crate) fn put_record(out: &mut Vec<u8>, record: &Record) -> serde_json::Result<bool> {
    match record {
        Record::Rank(def) => put(out, "rank", &RankLine::from(def))?,
        Record::Comm(def) => put(out, "comm", &CommLine::from(def))?,
        Record::Type(def) => put(out, "type", &TypeLine::from(def))?,
        Record::Site(def) => put(out, "site", &SiteLine::from(def))?,
        Record::Label(id, text) => put(out, "label", &LabelLine { id: *id, text: text.as_str().into() })?,
        Record::Call(call) => put(out, "call", &CallLine::from(call))?,
        Record::Return(entry) => put(out, "return", &ReturnLine::from(entry))?,
        Record::Clock(clock) => put(out, "clock", &ClockLine::from(clock))?,
        Record::Gap(gap) => put(out, "gap", &GapLine::from(gap))?,
        Record::State(state) => put(out, "state", &StateLine::from(state))?,
        Record::Thread(thread) => put(out, "thread", &ThreadLine::from(thread))?,
        Record::Log(line) => put(out, "log", &LogLineLine { at_ns: line.at, text: line.text.as_str().into() })?,
        Record::Attribute(pair) => put(out, "attribute", &AttributeLine::from(pair))?,
        Record::Step(mark) => put(out, "step", &StepLine::from(mark))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a line. The error says what is wrong with it, without file and line.
pub(crate) fn parse(line: &[u8]) -> Result<Line, String> {
    let Kind { kind } = serde_json::from_slice(line).map_err(|error| said(&error, "a line"))?;
    let record = match &*kind {
        "header" => {
            let header: Header<'_> = body(line, &kind)?;
            if header.format != FORMAT {
                return Err(format!("its header says `{}`, not `{FORMAT}`", header.format));
            }
            return Ok(Line::Header { version: header.version.into_owned() });
        }
        "job" => return Ok(Line::Job(Box::new(body(line, &kind)?))),
        "process" => return body(line, &kind).map(Line::Process),
        "end" => return body(line, &kind).map(Line::End),
        "call" => {
            let call: CallLine<'_> = body(line, &kind)?;
            match call.record() {
                Err(Refused::Newer) => return Ok(Line::UnknownCall),
                other => other,
            }
        }
        "rank" => body::<RankLine<'_>>(line, &kind)?.record(),
        "comm" => body::<CommLine<'_>>(line, &kind)?.record(),
        "type" => body::<TypeLine<'_>>(line, &kind)?.record(),
        "site" => body::<SiteLine<'_>>(line, &kind)?.record(),
        "label" => body::<LabelLine<'_>>(line, &kind)?.record(),
        "return" => body::<ReturnLine>(line, &kind)?.record(),
        "clock" => body::<ClockLine>(line, &kind)?.record(),
        "gap" => body::<GapLine<'_>>(line, &kind)?.record(),
        "state" => body::<StateLine<'_>>(line, &kind)?.record(),
        "thread" => body::<ThreadLine<'_>>(line, &kind)?.record(),
        "log" => body::<LogLineLine<'_>>(line, &kind)?.record(),
        "attribute" => body::<AttributeLine<'_>>(line, &kind)?.record(),
        "step" => body::<StepLine>(line, &kind)?.record(),
        _ => return Ok(Line::Unknown),
    };
    match record {
        Ok(record) => Ok(Line::Record(Box::new(record))),
        Err(Refused::Newer) => Ok(Line::Unknown),
        Err(Refused::Wrong(what)) => Err(format!("{kind}: {what}")),
    }
}

fn body<'a, T: Deserialize<'a>>(line: &'a [u8], kind: &str) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| said(&error, kind))
}

/// What the parser says, without its own 'line 1': it is given single lines.
fn said(error: &serde_json::Error, what: &str) -> String {
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())).unwrap_or(&text);
    if error.is_syntax() || error.is_eof() {
        format!("{what} is no JSON object of this format: {text} at column {}", error.column())
    } else {
        format!("{what}: {text}")
    }
}

#[cfg(test)]
mod tests;
