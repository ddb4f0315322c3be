//! A recording: events from the ring to the streams of the processes they belong to.

mod ends;
mod python;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use rankdiff_common::event::Header;
use rankdiff_common::map::lost;
use rankdiff_trace::{Gap, GapCause, Life, Record};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attach::{AttachError, Attacher, LoadOptions, Rings};
use crate::calls::Shared;
use crate::clock;
use crate::elf::ElfInfo;
use crate::events::{Event, EventError, parse};
use crate::interpreter::{self, Interpreter};
use crate::maps::{self, FileKey};
use crate::planner::{Found, Planner, Request, inspect};
use crate::points::PlanOptions;
use crate::process::{Process, StreamOptions};
use crate::procfs;
use crate::sites::Resolver;
use crate::snapshot::{self, Observer};

/// Most events taken in one drain, so that timers and signals are served under any load.
const DRAIN_LIMIT: usize = 200_000;
/// Calls wait so long for the records about processes before them, ns.
const FRESH: u64 = 2_000_000;
/// Records about processes wait so long for the calls before them, ns.
const SETTLED: u64 = 20_000_000;
/// How long the end of a recording waits for the names of call sites.
const NAMES_WAIT: Duration = Duration::from_secs(5);

/// A recording cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel or the system refuses the probes.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A worker thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// How to record.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// How streams are written.
    pub streams: StreamOptions,
    /// Size of the ring and the like.
    pub load: LoadOptions,
    /// What is probed.
    pub plan: PlanOptions,
}

/// What was attached.
#[derive(Debug, Clone, Default)]
pub struct Attached {
    /// Files with probes, each with its number of probe points.
    pub files: Vec<(PathBuf, usize)>,
    /// Files or functions that could not be probed, and why.
    pub problems: Vec<String>,
}

/// What a recording saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Streams written.
    pub streams: usize,
    /// Calls written.
    pub calls: u64,
    /// Calls known to be lost in the ring.
    pub lost: u64,
    /// Calls that could not be written.
    pub unwritten: u64,
    /// Ring records that were not understood.
    pub bad_records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Watched processes seen.
    pub processes: usize,
    /// Whether a record could not be written.
    pub write_failed: bool,
}

/// A recording.
pub struct Session {
    options: SessionOptions,
    attacher: Attacher,
    rings: Rings,
    /// Records about processes that wait for the calls before them.
    waiting: VecDeque<Event>,
    /// The next call, too fresh to be taken.
    held: Option<Event>,
    planner: Planner,
    resolver: Option<Resolver>,
    objects: FxHashMap<FileKey, Arc<ElfInfo>>,
    libraries: FxHashSet<FileKey>,
    interpreters: FxHashMap<FileKey, Arc<Interpreter>>,
    asked: FxHashSet<FileKey>,
    processes: FxHashMap<u32, Process>,
    finished: Totals,
    /// Processes whose maps are to be looked at.
    to_scan: FxHashSet<u32>,
    /// Processes whose calls were taken in this drain.
    touched: FxHashSet<u32>,
    /// Attached since the last look.
    news: Attached,
    bad_records: u64,
    events: u64,
    last_call: Option<Instant>,
    observer: Observer,
    clocks: clock::Notes,
    /// Events are passed over from now on.
    stopped: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("events", &self.events)
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Loads the programs; nothing is watched yet.
    pub fn start(options: SessionOptions) -> Result<Session, SessionError> {
        let mut attacher = Attacher::load(&options.load)?;
        let rings = attacher.take_rings()?;
        let planner = Planner::start(options.plan.clone()).map_err(SessionError::Thread)?;
        let resolver = Resolver::start().map_err(SessionError::Thread)?;
        Ok(Session {
            options,
            attacher,
            rings,
            waiting: VecDeque::new(),
            held: None,
            planner,
            resolver: Some(resolver),
            objects: FxHashMap::default(),
            libraries: FxHashSet::default(),
            interpreters: FxHashMap::default(),
            asked: FxHashSet::default(),
            processes: FxHashMap::default(),
            finished: Totals::default(),
            to_scan: FxHashSet::default(),
            touched: FxHashSet::default(),
            news: Attached::default(),
            bad_records: 0,
            events: 0,
            last_call: None,
            observer: Observer::default(),
            clocks: clock::Notes::default(),
            stopped: false,
        })
    }

    /// Probes files before the job starts.
    pub fn attach_files(&mut self, files: &[PathBuf]) -> Attached {
        for path in files {
            let Ok(key) = FileKey::of(path) else { continue };
            if self.asked.insert(key) {
                let request = Request { key, open: path.clone(), shown: path.clone(), symbols: true };
                let found = inspect(request, &self.options.plan);
                self.take_found(found);
            }
        }
        std::mem::take(&mut self.news)
    }

    /// Watches a process and what it starts.
    pub fn watch(&mut self, pid: u32) -> Result<(), AttachError> {
        self.attacher.watch(pid)
    }

    /// Ends watching a process; what it has started stays watched.
    pub fn unwatch(&mut self, pid: u32) -> Result<(), AttachError> {
        self.attacher.unwatch(pid)
    }

    /// What was attached since the last time, for messages.
    pub fn take_news(&mut self) -> Attached {
        std::mem::take(&mut self.news)
    }

    /// When the last call was seen.
    pub fn last_call(&self) -> Option<Instant> {
        self.last_call
    }

    /// Ring records taken so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Processes that are watched, alive and not `except`.
    pub fn alive(&self, except: u32) -> Vec<u32> {
        let mut alive: Vec<u32> = self
            .processes
            .values()
            .filter(|process| !process.ended && process.pid != except && process.is_there())
            .map(|process| process.pid)
            .collect();
        alive.sort_unstable();
        alive
    }

    /// Whether some process is inside a recorded call that has not returned.
    pub fn is_inside(&self) -> bool {
        self.processes.values().any(|process| !process.ended && process.is_inside())
    }

    /// Takes what is in the rings; returns the number of records.
    ///
    /// Two rings, one order: a record about a process is taken before the calls that come after it in time (a child must be
    /// known before it calls) and after those that come before it (a thread's end says how many calls it made).
    pub fn drain(&mut self) -> usize {
        let now = clock::monotonic();
        self.drain_up_to(now.saturating_sub(FRESH), now.saturating_sub(SETTLED))
    }

    /// Takes everything that is in the rings.
    fn drain_all(&mut self) {
        while self.drain_up_to(u64::MAX, u64::MAX) > 0 {}
    }

    /// Takes calls before `fresh`: records about processes before that moment are in their ring by now. Takes records about
    /// processes before `settled`: all calls before that moment have been taken by then.
    fn drain_up_to(&mut self, fresh: u64, settled: u64) -> usize {
        let settled_by = settled.min(clock::monotonic());
        let mut taken = 0;
        while let Some(event) = next_event(&mut self.rings.processes) {
            taken += 1;
            if let Some(event) = self.understood(event) {
                self.waiting.push_back(event);
            }
        }
        let mut calls = 0;
        while calls < DRAIN_LIMIT {
            let event = match self.held.take() {
                Some(event) => event,
                None => {
                    let Some(event) = next_event(&mut self.rings.calls) else { break };
                    calls += 1;
                    let Some(event) = self.understood(event) else { continue };
                    event
                }
            };
            if event.time() >= fresh {
                self.held = Some(event);
                break;
            }
            self.take_waiting(event.time());
            self.take(event);
        }
        // A record of a call may still be being written by its processor; after a moment it is certain to be there.
        if calls < DRAIN_LIMIT {
            self.take_waiting(settled);
            self.clocks.drained(settled_by);
        }
        // Calls that have not returned are in the stream as well, so that its tail tells where each rank is.
        for pid in self.touched.drain() {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.move_calls(true);
            }
        }
        self.events += (taken + calls) as u64;
        taken + calls
    }

    fn understood(&mut self, event: Result<Event, EventError>) -> Option<Event> {
        match event {
            Ok(_) if self.stopped => None,
            Ok(event) => Some(event),
            Err(error) => {
                if self.bad_records == 0 {
                    tracing::error!("{error}; it is left out");
                }
                self.bad_records += 1;
                None
            }
        }
    }

    /// Takes the records about processes that come before this time.
    fn take_waiting(&mut self, time: u64) {
        while self.waiting.front().is_some_and(|event| event.time() < time) {
            if let Some(event) = self.waiting.pop_front() {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Enter(entry) => {
                self.last_call = Some(Instant::now());
                let header = entry.enter.header;
                self.touched.insert(header.tgid);
                self.prepare(header.tgid);
                self.with_probe(&header, |process, probe, shared| process.enter(*entry, probe, shared));
            }
            Event::Exit(exit) => {
                self.last_call = Some(Instant::now());
                self.with_probe(&exit.header, |process, probe, shared| process.exit(&exit, probe, shared));
            }
            Event::Out(out) => {
                self.with_probe(&out.header, |process, probe, shared| process.out(&out, probe, shared));
            }
            Event::Fork(fork) => self.forked(fork.header.tgid, fork.child, fork.header.time),
            Event::Exec(header) => {
                if self.process(header.tgid).has_stream() {
                    // Handles of the old program mean nothing in the new one; the kernel has dropped the threads itself.
                    self.attacher.forget_process(header.tgid);
                }
                self.process(header.tgid).exec(header.time);
                self.to_scan.insert(header.tgid);
            }
            Event::LinkMap(header) => {
                self.to_scan.insert(header.tgid);
            }
            Event::Signal(signal) => self.signalled(&signal),
            Event::Stack(stack) => self.stack(&stack),
            Event::Code(code) => self.code(&code),
            Event::TaskEnd(end) => self.task_ended(&end),
        }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        let host = &self.options.streams.host;
        self.processes
            .entry(pid)
            .or_insert_with(|| Process::new(pid, procfs::parent(pid).unwrap_or(0), host, clock::monotonic()))
    }

    fn with_probe(
        &mut self,
        header: &Header,
        act: impl FnOnce(&mut Process, &crate::attach::AttachedProbe, &mut Shared<'_>),
    ) {
        self.process(header.tgid);
        let (Some(process), Some(probe)) = (self.processes.get_mut(&header.tgid), self.attacher.probe(header.probe))
        else {
            self.bad_records += 1;
            return;
        };
        let mut shared =
            Shared { options: &self.options.streams, objects: &self.objects, resolver: self.resolver.as_mut() };
        act(process, probe, &mut shared);
    }

    /// Before a process's first call is decoded, its executable's symbols must be known: handles may be addresses there.
    fn prepare(&mut self, pid: u32) {
        if self.process(pid).image.mappings().is_empty() {
            self.scan(pid, true);
        }
    }

    fn forked(&mut self, parent: u32, child: u32, time: u64) {
        if let Some(old) = self.processes.remove(&child) {
            self.retire(old);
        }
        let mut process = Process::new(child, parent, &self.options.streams.host, time);
        if let Some(parent) = self.processes.get(&parent) {
            process.inherit(parent);
        }
        self.processes.insert(child, process);
        self.inherit_interpreter(parent, child);
    }

    /// Looks at what is mapped in a process; files that were not seen before are probed.
    fn scan(&mut self, pid: u32, at_once: bool) {
        let since = clock::monotonic();
        let Ok(mappings) = maps::read_maps(pid) else { return };
        let executable = mappings.iter().find_map(|mapping| mapping.key);
        let mut has_library = false;
        let mut unseen = Vec::new();
        for mapping in mappings.iter().filter(|mapping| mapping.executable || mapping.key == executable) {
            let Some(key) = mapping.key else { continue };
            has_library |= self.libraries.contains(&key);
            if self.asked.insert(key) {
                unseen.push(Request {
                    key,
                    open: maps::openable_path(pid, mapping),
                    shown: mapping.path.clone(),
                    symbols: Some(key) == executable || interpreter::is_shared_interpreter(&mapping.path),
                });
            }
        }
        for request in unseen {
            // Symbols that decoding needs are read now; the rest may take its time.
            if at_once || request.symbols {
                let found = inspect(request, &self.options.plan);
                self.take_found(found);
            } else {
                self.planner.ask(request);
            }
        }
        let objects = &self.objects;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.has_library |= has_library;
            process.refresh_image(objects);
        }
        self.find_interpreter(pid, &mappings, since);
    }

    fn take_found(&mut self, found: Found) {
        let Found { request, plan, elf, interpreter, error } = found;
        if let Some(error) = error {
            tracing::debug!("{error}");
        }
        if let Some(elf) = elf {
            self.objects.insert(request.key, elf);
        }
        if let Some(interpreter) = interpreter {
            self.take_interpreter(&request, interpreter);
        }
        let Some(plan) = plan else { return };
        self.news.problems.extend(plan.notes.iter().map(|note| format!("{}: {note}", request.shown.display())));
        if plan.link_map.is_some()
            && let Err(error) = self.attacher.attach_link_map(&request.open)
        {
            self.news.problems.push(format!("{}: {error}", request.shown.display()));
        }
        if plan.probes.is_empty() {
            return;
        }
        self.libraries.insert(request.key);
        match self.attacher.attach(&plan) {
            Ok(summary) => {
                self.news.problems.extend(summary.failed);
                self.news.files.push((request.shown, summary.attached));
            }
            Err(error) => self.news.problems.push(format!("{}: {error}", request.shown.display())),
        }
        self.mark_unprobed(request.key);
    }

    /// Processes that had the file mapped before its probes were attached may have made calls that nobody saw.
    fn mark_unprobed(&mut self, key: FileKey) {
        let now = clock::monotonic();
        let objects = &self.objects;
        for process in self.processes.values_mut().filter(|process| !process.ended) {
            if process.image.mappings().iter().any(|mapping| mapping.key == Some(key)) {
                process.has_library = true;
                process.refresh_image(objects);
                process.unprobed(Gap { cause: GapCause::Unprobed, before: now, ..Gap::default() });
            }
        }
    }

    /// Work beside the events: new files, new names, complete calls.
    pub fn tick(&mut self) {
        let to_scan: Vec<u32> = self.to_scan.drain().collect();
        for pid in to_scan {
            self.scan(pid, false);
        }
        for found in self.planner.found() {
            self.take_found(found);
        }
        for answer in self.resolver.as_mut().map(Resolver::answers).unwrap_or_default() {
            if let Some(process) = self.processes.get_mut(&answer.process) {
                process.named(answer);
            }
        }
    }

    /// Seals what was written so long ago.
    pub fn seal(&mut self, after: Duration) {
        let clocks = self.clocks.due();
        for process in self.processes.values_mut() {
            if let Some(clocks) = clocks.filter(|_| !process.ended) {
                process.note_clocks(clocks);
            }
            process.seal(after);
        }
    }

    /// Puts everything that is known into the files.
    pub fn flush(&mut self) {
        for process in self.processes.values_mut() {
            process.flush();
        }
    }

    /// Notes what the ranks' main threads are doing while nothing is called, for a later snapshot.
    pub fn observe(&mut self) {
        let now = clock::monotonic();
        for process in self.processes.values().filter(|process| !process.ended) {
            if process.has_stream() || process.is_candidate() {
                self.observer.observe(process.pid, now);
            }
        }
    }

    /// Looks at every rank once and writes what it is doing.
    pub fn snapshot(&mut self) {
        self.drain_all();
        let mut pids: Vec<u32> =
            self.processes.values().filter(|process| !process.ended).map(|process| process.pid).collect();
        pids.sort_unstable();
        for &pid in &pids {
            self.begin_silent(pid);
        }
        let now = clock::monotonic();
        for pid in pids {
            let Some(process) = self.processes.get_mut(&pid).filter(|process| process.has_stream()) else { continue };
            if let Some(mut look) = snapshot::look(pid, now) {
                self.observer.complete(pid, &mut look);
                process.move_calls(true);
                let life = if process.is_inside() { Life::Waiting } else { look.life };
                process.state(now, life, look.threads);
            }
        }
        self.flush();
    }

    /// Watches nothing from now on: what happens next is not part of the recording.
    pub fn stop(&mut self) {
        self.drain_all();
        for pid in self.alive(0) {
            // It may be gone by now; then there is nothing to end. Threads that made a call go on to be recorded by the
            // kernel: their events are passed over.
            let _ = self.attacher.unwatch(pid);
        }
        self.stopped = true;
        self.flush();
    }

    /// Ends the recording: what is still in the ring, the losses, the names, the files.
    pub fn finish(mut self) -> Totals {
        self.drain_all();
        self.tick();
        let now = clock::monotonic();
        let lost = self.attacher.lost();
        for process in self.processes.values_mut().filter(|process| process.has_stream() && !process.ended) {
            for (tid, calls) in self.attacher.thread_calls(process.pid) {
                process.end_thread(tid, calls, now);
            }
        }
        let uncounted = lost[lost::THREAD as usize];
        if uncounted > 0 {
            // Nobody knows whose they were: every stream must be read with that in mind.
            let gap = Gap { cause: GapCause::Unknown, before: u64::MAX, ..Gap::default() };
            self.processes.values_mut().filter(|process| process.has_stream()).for_each(|process| process.gap(gap));
        }
        if let Some(resolver) = self.resolver.take() {
            for answer in resolver.finish(Instant::now() + NAMES_WAIT) {
                if let Some(process) = self.processes.get_mut(&answer.process) {
                    process.named(answer);
                }
            }
        }
        self.close()
    }

    fn close(mut self) -> Totals {
        let mut processes: Vec<Process> = std::mem::take(&mut self.processes).into_values().collect();
        processes.sort_by_key(|process| process.pid);
        for process in processes {
            self.retire(process);
        }
        let mut totals = self.finished;
        totals.bad_records = self.bad_records;
        totals
    }

    fn retire(&mut self, mut process: Process) {
        let had_stream = process.has_stream();
        if had_stream {
            process.write(Record::Clock(clock::snapshot()));
        }
        process.close();
        let summary = process.summary();
        self.finished.processes += 1;
        self.finished.streams += usize::from(had_stream);
        self.finished.calls += summary.calls;
        self.finished.unwritten += summary.lost_calls;
        self.finished.bytes += summary.bytes;
        self.finished.lost += process.threads.values().map(|thread| thread.lost).sum::<u64>();
        self.finished.write_failed |= process.complained();
    }

    /// Whether there is no room for more calls under the limit for the disk.
    pub fn is_full(&self) -> bool {
        self.options.streams.dir.is_full()
    }

    /// The job's directory.
    pub fn dir(&self) -> &Path {
        self.options.streams.dir.path()
    }
}

/// The next record of a ring, copied so that its room is free again.
fn next_event(ring: &mut RingBuf<MapData>) -> Option<Result<Event, EventError>> {
    ring.next().map(|item| parse(&item))
}
