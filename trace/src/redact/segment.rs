//! One segment, block by block: what holds no text is copied with its digests, the rest is written anew.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use super::{Redactor, text};
use crate::block::BlockKind;
use crate::call::{Frame, SiteDef};
use crate::comm::CommDef;
use crate::digest::Digests;
use crate::error::{Problem, ProblemKind};
use crate::evidence::{Attribute, EndedBy, Life, LogLine, ProcessState, ThreadState};
use crate::flushes::{Flushes, Item};
use crate::header::SegmentHeader;
use crate::payload::Decoded;
use crate::queues::{Encoder, Queues};
use crate::reader::{Block, BlockReader};
use crate::regular::open_of_trace;
use crate::stream::Record;
use crate::stream_files::StreamFiles;
use crate::tail::TailSnapshot;

/// Compression level of what is written anew.
const LEVEL: i32 = 3;

/// A segment could not be redacted.
#[derive(Debug, thiserror::Error)]
#[error("cannot redact {path}: {source}")]
pub struct RedactError {
    path: PathBuf,
    source: io::Error,
}

/// Writes a segment anew under this header.
pub(super) fn redact(
    redactor: &mut Redactor,
    reader: BlockReader<File>,
    header: &SegmentHeader,
    stream: Option<&StreamFiles>,
) -> Result<Vec<u8>, RedactError> {
    let path = reader.path().to_owned();
    let failed = |source| RedactError { path: path.clone(), source };
    // Before the blocks: what is sealed in between is in both, and told apart by the blocks' notes.
    let mut tail = match stream.and_then(TailSnapshot::read) {
        Some(Ok(tail)) => Some(tail),
        Some(Err(problem)) => {
            redactor.problems.push(problem.to_string());
            None
        }
        None => None,
    };
    let raw = open_of_trace(&path).map_err(failed)?;
    let encoder = Encoder::new(LEVEL).map_err(failed)?;
    let ordinal = reader.header().ordinal;
    let mut copy = Copy { redactor, reader, raw, encoder, out: header.encode(), calls: 0, dropped: 0 };
    let mut rows = stream.map_or(0, earlier_rows);
    let mut flushes = Flushes::default();
    let problem = loop {
        match flushes.next(&mut copy.reader) {
            Ok(Some(Item::Block(block))) => copy.block(&block).map_err(failed)?,
            Ok(Some(Item::Flush(held, blocks))) => {
                rows = rows.max(held.upto());
                for block in &blocks {
                    copy.block(block).map_err(failed)?;
                }
            }
            Ok(None) => break None,
            Err(problem) => break Some(problem),
        }
    };
    let torn = problem.as_ref().is_none_or(|problem| problem.kind == ProblemKind::TornTail);
    let in_tail = torn && tail.as_mut().is_some_and(|tail| tail.holds(rows));
    if !in_tail {
        if let Some((held, blocks)) = flushes.unfinished() {
            rows = rows.max(held.upto());
            for block in &blocks {
                copy.block(block).map_err(failed)?;
            }
        }
        copy.redactor.problems.extend(problem.map(|problem| problem.to_string()));
    }
    if let Some(tail) = tail {
        let part = tail.behind(rows, ordinal);
        copy.redactor.problems.extend(part.problems.iter().map(Problem::to_string));
        if !part.hole {
            copy.records(part.records);
        }
    }
    if copy.dropped > 0 {
        let dropped = copy.dropped;
        let text =
            format!("{}: {dropped} blocks of a newer writer are left out: what they hold is not known", path.display());
        copy.redactor.problems.push(text);
    }
    Ok(copy.out)
}

/// Rows of the tail that are in blocks of segments before the last one.
fn earlier_rows(stream: &StreamFiles) -> u64 {
    let mut rows = 0;
    let earlier = stream.segments.split_last().map_or(&[][..], |(_, earlier)| earlier);
    // The latest one that has a note tells.
    for path in earlier.iter().rev() {
        let Ok(mut reader) = BlockReader::open(path) else { continue };
        let mut flushes = Flushes::default();
        while let Ok(Some(item)) = flushes.next(&mut reader) {
            if let Item::Flush(held, _) = item {
                rows = rows.max(held.upto());
            }
        }
        if rows > 0 {
            break;
        }
    }
    rows
}

/// A segment that is being copied.
struct Copy<'a> {
    redactor: &'a mut Redactor,
    reader: BlockReader<File>,
    /// The same file, read by offset.
    raw: File,
    encoder: Encoder,
    out: Vec<u8>,
    /// Calls of the recording up to here.
    calls: u64,
    /// Blocks of unknown kinds.
    dropped: u64,
}

impl Copy<'_> {
    fn block(&mut self, block: &Block) -> io::Result<()> {
        let header = *block.header();
        self.calls = header.calls_before;
        if header.kind == BlockKind::CALLS {
            self.calls = self.calls.saturating_add(u64::from(header.count));
        }
        match header.kind {
            BlockKind::COMMS
            | BlockKind::SITES
            | BlockKind::LABELS
            | BlockKind::STATES
            | BlockKind::THREADS
            | BlockKind::LOGS
            | BlockKind::ATTRIBUTES => {
                let decoded =
                    block.decode(&mut self.reader).map_err(|problem| io::Error::other(problem.to_string()))?;
                self.encoder.calls_before = header.calls_before;
                self.encoder.repeated = header.is_repeated();
                self.decoded(decoded);
                self.encoder.repeated = false;
            }
            // Notes of rows of a tail that does not come along.
            BlockKind::TAIL_ROWS => {}
            kind if kind.is_known() => self.verbatim(block)?,
            _ => self.dropped += 1,
        }
        Ok(())
    }

    fn verbatim(&mut self, block: &Block) -> io::Result<()> {
        let length = block.length();
        self.raw.seek(SeekFrom::Start(block.offset()))?;
        let copied = (&mut self.raw).take(length).read_to_end(&mut self.out)?;
        if copied as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Writes records with texts in them.
    fn decoded(&mut self, decoded: Decoded) {
        let redactor = &mut *self.redactor;
        let mut queues = Queues::default();
        match decoded {
            Decoded::Comms(defs) => queues.comms = defs.into_iter().map(comm).collect(),
            Decoded::Sites(defs) => queues.sites = defs.into_iter().map(|def| site(redactor, def)).collect(),
            Decoded::Labels(labels) => {
                queues.labels = labels.into_iter().map(|(id, label)| (id, text::stack(&label))).collect();
            }
            Decoded::States(states) => queues.states = states.into_iter().map(state).collect(),
            Decoded::Threads(threads) => queues.threads = threads.into_iter().map(thread).collect(),
            Decoded::Logs(lines) => queues.logs = lines.into_iter().map(log).collect(),
            Decoded::Attributes(list) => {
                queues.attributes = list.into_iter().map(|one| attribute(redactor, one)).collect();
            }
            // No other kind comes here.
            _ => {}
        }
        self.encoder.queues(&queues, &Digests::default(), &mut self.out);
    }

    /// Writes what only the tail held. Without digests: they prove nothing, and a stream that was not closed is decoded
    /// at its end anyway.
    fn records(&mut self, records: Vec<Record>) {
        let redactor = &mut *self.redactor;
        let mut queues = Queues::default();
        for record in records {
            match record {
                Record::Rank(def) => queues.ranks.push(def),
                Record::Comm(def) => queues.comms.push(comm(def)),
                Record::Type(def) => queues.types.push(def),
                Record::Site(def) => queues.sites.push(site(redactor, def)),
                Record::Label(id, label) => queues.labels.push((id, text::stack(&label))),
                Record::Call(call) => queues.calls.push(call),
                Record::Return(entry) => queues.returns.push(entry),
                Record::Clock(clock) => queues.clocks.push(clock),
                Record::Gap(gap) => queues.gaps.push(gap),
                Record::State(one) => queues.states.push(state(one)),
                Record::Thread(one) => queues.threads.push(thread(one)),
                Record::Log(line) => queues.logs.push(log(line)),
                Record::Attribute(one) => queues.attributes.push(attribute(redactor, one)),
                Record::Step(step) => queues.steps.push(step),
            }
        }
        self.encoder.calls_before = self.calls;
        self.encoder.queues(&queues, &Digests::default(), &mut self.out);
    }
}

fn comm(mut def: CommDef) -> CommDef {
    def.name = text::stack(&def.name);
    def.desc = text::stack(&def.desc);
    def
}

fn site(redactor: &mut Redactor, mut def: SiteDef) -> SiteDef {
    for frame in &mut def.frames {
        let Frame { function, file, module, .. } = frame;
        *function = text::stack(function);
        *file = text::path(&mut redactor.folders, file);
        *module = text::path(&mut redactor.folders, module);
    }
    def
}

fn state(mut state: ProcessState) -> ProcessState {
    if let Life::Signaled { by: EndedBy::Process(_, name), .. } = &mut state.life {
        *name = text::stack(name);
    }
    state
}

fn thread(mut thread: ThreadState) -> ThreadState {
    thread.device = text::device(&thread.device);
    for field in [&mut thread.name, &mut thread.python, &mut thread.native, &mut thread.io, &mut thread.result] {
        *field = text::stack(field);
    }
    thread
}

fn log(mut line: LogLine) -> LogLine {
    line.text = text::log_line(&line.text);
    line
}

fn attribute(redactor: &mut Redactor, mut attribute: Attribute) -> Attribute {
    attribute.value = match redactor.hosts.get(&attribute.value) {
        Some(host) => host.clone(),
        None => text::value(&mut redactor.values, &attribute.key, &attribute.value),
    };
    attribute.key = text::key(&attribute.key);
    attribute
}
