//! JSON Lines: every record, every field, so that `rankdiff import` gives an equal trace (docs/export.md).

use std::io::{BufWriter, Write};
use std::path::Path;

use rankdiff_trace::{BlockReader, ClockSnapshot, ProcessTrace, Record};

use super::{Export, ExportError, Exporter, Shape, Surveyed, Target, create};
use crate::jsonl::{self, End, Process};

/// The descriptor.
#[derive(Debug)]
pub(super) struct Jsonl;

impl Exporter for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn summary(&self) -> &'static str {
        "JSON Lines, one record a line, lossless; `rankdiff import` reads it back"
    }

    fn shapes(&self) -> &'static [Shape] {
        &[Shape::File, Shape::Directory]
    }

    fn suffix(&self) -> &'static str {
        ".jsonl"
    }

    fn start<'a>(&self, job: &'a Surveyed, target: Target<'a>) -> Result<Box<dyn Export + 'a>, ExportError> {
        let mut lines = Lines { job, out: None, dir: None, line: Vec::new() };
        match target {
            Target::File(out) => lines.begin(Box::new(BufWriter::with_capacity(1 << 20, out)))?,
            Target::Directory(dir) => lines.dir = Some(dir),
        }
        Ok(Box::new(lines))
    }
}

struct Lines<'a> {
    job: &'a Surveyed,
    out: Option<Box<dyn Write + 'a>>,
    /// Each process gets a file here.
    dir: Option<&'a Path>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Begins a file: what it is, and what is known of the job.
    fn begin(&mut self, out: Box<dyn Write + 'a>) -> Result<(), ExportError> {
        self.out = Some(out);
        jsonl::put_header(&mut self.line).map_err(encode)?;
        for info in &self.job.job.infos {
            jsonl::put_job(&mut self.line, info).map_err(encode)?;
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), ExportError> {
        if let Some(out) = &mut self.out {
            out.write_all(&self.line)?;
        }
        self.line.clear();
        Ok(())
    }

    fn put(&mut self, record: &Record) -> Result<(), ExportError> {
        if !jsonl::put_record(&mut self.line, record).map_err(encode)? {
            return Err(ExportError::Encode("a record has no line in this version of the format".to_owned()));
        }
        self.send()
    }

    fn all<T: Clone>(&mut self, list: &[T], record: impl Fn(T) -> Record) -> Result<(), ExportError> {
        list.iter().try_for_each(|one| self.put(&record(one.clone())))
    }
}

impl Export for Lines<'_> {
    fn process(&mut self, at: usize, trace: &ProcessTrace) -> Result<(), ExportError> {
        if let Some(dir) = self.dir {
            let key = &trace.key;
            let host: String = key
                .host
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
                .collect();
            // The number keeps recordings of one process apart, and hosts that differ in what is replaced here.
            let name = format!("{at:05}-{host}-{}-{}.jsonl", key.pid, key.start_time);
            let file = create(dir, &name)?;
            self.begin(Box::new(BufWriter::with_capacity(1 << 20, file)))?;
        }
        let files = self.job.job.streams.get(at);
        // Without a readable header there would be no stream.
        let header = files.and_then(|files| Some(BlockReader::open(files.segments.first()?).ok()?.header().clone()));
        let (job_id, clock) =
            header.map_or_else(|| (String::new(), ClockSnapshot::default()), |header| (header.job_id, header.clock));
        let process = Process {
            host: trace.key.host.clone(),
            pid: trace.key.pid,
            start_time: trace.key.start_time,
            session: files.map_or(0, |files| files.session),
            job_id,
            clock: clock.into(),
        };
        jsonl::put_process(&mut self.line, &process).map_err(encode)?;
        self.all(&trace.ranks, Record::Rank)?;
        self.all(&trace.attributes, Record::Attribute)?;
        self.all(&trace.clocks, Record::Clock)?;
        self.all(&trace.types, Record::Type)?;
        self.all(&trace.sites, Record::Site)?;
        self.all(&trace.labels, |(id, text)| Record::Label(id, text))?;
        self.all(&trace.comms, Record::Comm)?;
        self.all(&trace.steps, Record::Step)?;
        self.all(&trace.calls, Record::Call)?;
        self.all(&trace.gaps, Record::Gap)?;
        self.all(&trace.threads, Record::Thread)?;
        self.all(&trace.logs, Record::Log)?;
        self.all(&trace.states, Record::State)?;
        let end = End { closed: trace.closed, calls: trace.calls.len() as u64 };
        jsonl::put_end(&mut self.line, &end).map_err(encode)?;
        self.send()?;
        if self.dir.is_some()
            && let Some(mut out) = self.out.take()
        {
            out.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        Ok(())
    }
}

fn encode(error: serde_json::Error) -> ExportError {
    ExportError::Encode(error.to_string())
}
