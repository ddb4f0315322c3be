//! One watched process: what it is, and its stream in the trace.
//!
//! The stream's file is created at the first record worth keeping, so that launchers and shells leave none.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rankdiff_trace::writer::{StreamWriter, Summary, WriterOptions};
use rankdiff_trace::{
    Attribute, ClockSnapshot, CommDef, CommRef, EndedBy, Gap, Life, ProcessKey, ProcessState, RankDef, RankSource,
    Record, ThreadState, TraceDir,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_sites::CallSites;
use crate::clock;
use crate::elf::ElfInfo;
use crate::identify::{self, Environment};
use crate::image::Image;
use crate::interpreter::Stacks;
use crate::maps::FileKey;
use crate::procfs;
use crate::thread::Thread;
use crate::{calls::Calls, communicators::Communicators};

/// How streams are written.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// The job's directory.
    pub dir: Arc<TraceDir>,
    /// Host name for the file names.
    pub host: String,
    /// Options of the writer.
    pub writer: WriterOptions,
    /// Name space of world communicators: equal on all processes of the job.
    pub job: String,
    /// Why a stream has no live tail, in words; the first one's, since all of a recording have the same reason.
    pub no_tail: Arc<OnceLock<String>>,
}

/// Where a stream stands.
#[derive(Debug)]
enum Stream {
    /// Nothing was written yet.
    Unborn,
    /// Open.
    Open(Box<StreamWriter>),
    /// Closed with this summary, or it could not be created.
    Closed(Summary),
}

/// One process.
#[derive(Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The process that made it; 0 if not known.
    pub parent: u32,
    key: ProcessKey,
    environment: Environment,
    /// Rank by the environment.
    named: Option<RankDef>,
    /// Rank as written.
    rank: Option<RankDef>,
    stream: Stream,
    /// Messages about records that could not be written, each once.
    complaints: FxHashSet<String>,
    /// Threads by id.
    pub threads: FxHashMap<u32, Thread>,
    /// Its program's memory image.
    pub image: Image,
    /// Its communicators.
    pub communicators: Communicators,
    /// What its calls are made of.
    pub calls: Calls,
    /// Where its calls were made.
    pub sites: CallSites,
    /// Its Python stacks.
    pub stacks: Stacks,
    /// Whether a collective library is mapped: it is a candidate for a rank even without a call.
    pub has_library: bool,
    /// Last fatal signal sent to it.
    pub signal: Option<(i32, EndedBy)>,
    /// Whether its end was seen.
    pub ended: bool,
    /// A gap that was noted before the stream began.
    early_gap: Option<Gap>,
    /// When the oldest record that is in no block yet was written.
    unsealed: Option<Instant>,
    /// Something was written since the clocks were noted.
    active: bool,
}

impl Process {
    /// A process that was just seen; `now` stands for its start if it is gone already (ns of the monotonic clock).
    pub fn new(pid: u32, parent: u32, host: &str, now: u64) -> Process {
        let start_time = procfs::start_time(pid).unwrap_or_else(|| clock::start_time_at(now));
        let mut process = Process {
            pid,
            parent,
            key: ProcessKey { host: host.to_owned(), pid, start_time },
            environment: Environment::new(),
            named: None,
            rank: None,
            stream: Stream::Unborn,
            complaints: FxHashSet::default(),
            threads: FxHashMap::default(),
            image: Image::default(),
            communicators: Communicators::default(),
            calls: Calls::default(),
            sites: CallSites::default(),
            stacks: Stacks::default(),
            has_library: false,
            signal: None,
            ended: false,
            early_gap: None,
            unsealed: None,
            active: false,
        };
        process.read_environment();
        process
    }

    fn read_environment(&mut self) {
        // Gone, ended and not yet reaped (then it reads as empty), or not ours: what was known stays.
        if let Ok(bytes) = procfs::read(format!("/proc/{}/environ", self.pid))
            && !bytes.is_empty()
        {
            self.environment = identify::parse_environment(&bytes);
            self.named = identify::rank_from(&self.environment);
        }
    }

    /// Takes over from the parent what a fork copies: memory image, environment, mapped libraries.
    pub fn inherit(&mut self, parent: &Process) {
        self.image = parent.image.clone();
        if self.environment.is_empty() {
            self.environment = parent.environment.clone();
            self.named = parent.named;
        }
        self.has_library = parent.has_library;
    }

    /// The process has run another program since this time.
    pub fn exec(&mut self, time: u64) {
        self.read_environment();
        self.image = Image::default();
        self.communicators.clear();
        self.calls.clear();
        self.sites.clear();
        self.stacks.exec(time);
        self.threads.clear();
        self.has_library = false;
    }

    /// Whether it still exists, for when the record of its end may be lost. Its number alone may be another's by now.
    pub fn is_there(&self) -> bool {
        procfs::start_time(self.pid) == Some(self.key.start_time)
    }

    /// The rank it plays, as far as known.
    pub fn rank(&self) -> Option<&RankDef> {
        self.rank.as_ref().or(self.named.as_ref())
    }

    /// The job's id by the environment.
    pub fn job_id(&self) -> Option<&str> {
        identify::job_id_from(&self.environment)
    }

    /// Whether it may be a rank that has made no call yet: it has a rank by its environment and a library to call.
    pub fn is_candidate(&self) -> bool {
        !self.has_stream() && self.has_library && self.named.is_some()
    }

    /// Whether it has a stream.
    pub fn has_stream(&self) -> bool {
        !matches!(self.stream, Stream::Unborn)
    }

    /// What was written of it.
    pub fn summary(&self) -> Summary {
        match &self.stream {
            Stream::Unborn => Summary::default(),
            Stream::Open(writer) => writer.summary(),
            Stream::Closed(summary) => *summary,
        }
    }

    /// Opens the stream if it is not open.
    pub fn begin(&mut self, options: &StreamOptions) {
        if self.has_stream() {
            return;
        }
        // The record of its exec may be lost in a full ring; then the environment known so far is its parent's.
        self.read_environment();
        let clock = clock::snapshot();
        match StreamWriter::create_in(&options.dir, &self.key, clock, &options.writer) {
            Ok(writer) => {
                if let Some(problem) = writer.tail_problem() {
                    options.no_tail.get_or_init(|| problem.to_string());
                }
                self.stream = Stream::Open(Box::new(writer));
            }
            Err(error) => {
                self.complain(error.to_string());
                self.stream = Stream::Closed(Summary::default());
                return;
            }
        }
        self.write(Record::Clock(clock));
        if let Some(rank) = self.named {
            self.rank = Some(rank);
            self.write(Record::Rank(rank));
            if let Some(local) = rank.local_rank {
                self.attribute("local_rank", local.to_string());
            }
        }
        self.attribute("host", options.host.clone());
        if let Some(gap) = self.early_gap.take() {
            self.write(Record::Gap(gap));
        }
    }

    fn attribute(&mut self, key: &str, value: String) {
        self.write(Record::Attribute(Attribute { rank: None, key: key.to_owned(), value }));
    }

    /// Writes a record; failures are counted by the writer and said once.
    pub fn write(&mut self, record: Record) {
        if self.unsealed.is_none() {
            self.unsealed = Some(Instant::now());
        }
        self.active = true;
        if let Stream::Open(writer) = &mut self.stream
            && let Err(error) = writer.write(record)
        {
            self.complain(error.to_string());
        }
    }

    fn complain(&mut self, message: String) {
        // The numbers in a message differ each time; its beginning tells the kind.
        let kind: String = message.chars().take_while(|c| *c != ';').collect();
        if self.complaints.insert(kind) {
            tracing::error!("process {}: {message}", self.pid);
        }
    }

    /// Whether anything could not be written.
    pub fn complained(&self) -> bool {
        !self.complaints.is_empty()
    }

    /// A communicator's creation says which rank this process plays, if its environment does not.
    pub fn learn_rank(&mut self, def: &CommDef) {
        let of_job = def.parent == CommRef::NONE && def.size.is_some_and(|size| size > 1);
        if self.rank.is_some() || !of_job {
            return;
        }
        if let (Some(rank), Some(world)) = (def.my_rank, def.size) {
            let rank = RankDef { rank, world: Some(world), source: RankSource::Library, ..RankDef::default() };
            self.rank = Some(rank);
            self.write(Record::Rank(rank));
        }
    }

    /// Moves calls into the stream: complete ones, or with `all` those that have not returned as well.
    pub fn move_calls(&mut self, all: bool) {
        let mut tids: Vec<u32> =
            self.threads.iter().filter(|(_, thread)| thread.is_dirty()).map(|(tid, _)| *tid).collect();
        tids.sort_unstable();
        for tid in tids {
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            let calls: Vec<_> = if all { thread.take_all() } else { thread.take_complete().collect() };
            for call in calls {
                self.write(Record::Call(call));
            }
        }
    }

    /// Seals what has waited for so long, so that other nodes see it. What comes slowly is not cut into tiny blocks.
    pub fn seal(&mut self, after: Duration) {
        if self.unsealed.is_some_and(|since| since.elapsed() >= after) {
            self.flush();
        }
    }

    /// Seals what is buffered.
    pub fn flush(&mut self) {
        self.move_calls(true);
        if self.unsealed.take().is_none() {
            return;
        }
        if let Stream::Open(writer) = &mut self.stream
            && let Err(error) = writer.flush()
        {
            self.complain(error.to_string());
        }
    }

    /// Ends a thread that entered `calls` calls in all: those that were not seen are lost.
    pub fn end_thread(&mut self, tid: u32, calls: u64, time: u64) {
        if calls == 0 || calls == u64::MAX {
            return;
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread::new(tid, 0));
        if let Some(gap) = thread.gap_up_to(calls, time) {
            self.write(Record::Gap(gap));
        }
    }

    /// Writes a gap.
    pub fn gap(&mut self, gap: Gap) {
        self.write(Record::Gap(gap));
    }

    /// Notes that calls may have been made before a library's probes were there; written once the process has a stream.
    pub fn unprobed(&mut self, gap: Gap) {
        if self.has_stream() {
            self.write(Record::Gap(gap));
        } else {
            self.early_gap = Some(gap);
        }
    }

    /// Writes how it stood.
    pub fn state(&mut self, at: u64, life: Life, threads: Vec<ThreadState>) {
        self.write(Record::State(ProcessState { at, life }));
        for thread in threads {
            self.write(Record::Thread(thread));
        }
    }

    /// Notes the clocks of one moment if anything was written since the last time. Everything before that moment must
    /// have been taken.
    pub fn note_clocks(&mut self, clock: ClockSnapshot) {
        self.move_calls(true);
        if self.has_stream() && std::mem::take(&mut self.active) {
            self.write(Record::Clock(clock));
            self.active = false;
        }
    }

    /// Whether a thread of it is inside a recorded call.
    pub fn is_inside(&self) -> bool {
        self.threads.values().any(Thread::is_inside)
    }

    /// Closes the stream.
    pub fn close(&mut self) {
        self.move_calls(true);
        let stream = std::mem::replace(&mut self.stream, Stream::Unborn);
        if let Stream::Open(writer) = stream {
            let summary = writer.summary();
            self.stream = match writer.close() {
                Ok(summary) => Stream::Closed(summary),
                Err(error) => {
                    self.complain(error.to_string());
                    Stream::Closed(summary)
                }
            };
        } else {
            self.stream = stream;
        }
    }

    /// Reads the memory map again and notes which known objects it has.
    pub fn refresh_image(&mut self, known: &FxHashMap<FileKey, Arc<ElfInfo>>) {
        self.image.refresh(self.pid, known);
    }

    /// The executable, for messages.
    pub fn program(&self) -> String {
        procfs::executable(self.pid)
            .as_deref()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}
