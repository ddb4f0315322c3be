//! The eBPF object in the kernel: loads it, attaches probes, reads and writes its maps. The only user of aya but for the
//! ring buffer's reader.
//!
//! Probes are attached to files (inodes), for all processes; the programs drop what comes from a process that is not in
//! `WATCHED`. So a process that maps a known library is recorded from its first call, wherever it comes from. Nothing is
//! pinned: when the tracer ends, in whatever way, the kernel takes everything down and the job goes on.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope};
use aya::programs::{ProgramError, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfLoader, Pod};
use rankdiff_common::map::{
    CommCounters, CommKey, Config, DEFAULT_RING_BYTES, MAX_COMMS, MAX_PEERS, MAX_THREADS, PeerKey, ThreadState, lost,
    name, watch,
};
use rankdiff_common::probe::{Chains, MAX_PROBES, ProbeDesc};
use rankdiff_common::python::{self, PythonConfig};
use rankdiff_libs::spec::{Abi, Function, Library};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::btf;
use crate::elf::{ElfError, ElfInfo};
use crate::limits::{self, DescriptorLimit};
use crate::maps::FileKey;
use crate::multi::{MAX_POINTS, Multi, Point, When};
use crate::object::{OBJECT, ObjectError, check_object};
use crate::points::{FilePlan, PlannedProbe, link_map_hook};
use crate::privilege::{self, Requirement};
use crate::prologue::{EntryPoint, ExitPoint};

/// Smallest ring buffer.
const SMALLEST_RING: u32 = 1 << 16;
/// Largest ring buffer.
const LARGEST_RING: u32 = 1 << 30;

/// Programs of the object.
mod program {
    pub(super) const ENTER: &str = "rankdiff_enter";
    pub(super) const EXIT: &str = "rankdiff_exit";
    pub(super) const LINK_MAP: &str = "rankdiff_link_map";
    /// Programs and the kernel events that they are attached to.
    pub(super) const EVENTS: &[(&str, &str)] = &[
        ("rankdiff_fork", "sched_process_fork"),
        ("rankdiff_exec", "sched_process_exec"),
        ("rankdiff_signal", "signal_generate"),
    ];
    /// The end of a task: the first form that the kernel takes. The second is for kernels that do not say whether it
    /// was the last of its process.
    pub(super) const TASK_END: (&str, &str, &str) =
        ("sched_process_exit", "rankdiff_task_end", "rankdiff_task_end_old");
}

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Size of the ring buffer, rounded up to a power of two.
    pub ring_bytes: u32,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { ring_bytes: DEFAULT_RING_BYTES }
    }
}

/// Loading or attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The system lacks something, or does not let us.
    #[error("cannot record here: {}", list(.0))]
    Missing(Vec<Requirement>),
    /// The built-in eBPF object does not fit this program.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The kernel refused a part of the object.
    #[error("the kernel refused {what}: {detail}")]
    Refused {
        /// Which part.
        what: String,
        /// Why.
        detail: String,
    },
    /// The file is not the one that was planned.
    #[error("{path}: replaced while its probes were being placed; it is looked at again when it is mapped")]
    Replaced {
        /// File.
        path: PathBuf,
    },
    /// The file could not be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// A map is full.
    #[error(
        "no room for process {tgid} among the {} that can be recorded at one time",
        rankdiff_common::map::MAX_WATCHED
    )]
    TooManyProcesses {
        /// Process.
        tgid: u32,
    },
    /// The ring buffer was taken before.
    #[error("the ring buffer is already being read")]
    RingTaken,
}

/// The ring buffers that the kernel fills.
pub struct Rings {
    /// Records of calls, in the order of their entries and returns.
    pub calls: RingBuf<MapData>,
    /// Records about processes, in the order of their times.
    pub processes: RingBuf<MapData>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

/// A probe that is attached.
#[derive(Debug, Clone)]
pub struct AttachedProbe {
    /// Its cookie: the index in `PROBES`, never 0.
    pub index: u16,
    /// Library.
    pub library: &'static Library,
    /// Build of the library.
    pub abi: Abi,
    /// Function.
    pub function: &'static Function,
    /// Symbol that was found.
    pub symbol: String,
    /// File.
    pub key: FileKey,
    /// Path by which the file was opened.
    pub path: PathBuf,
    /// File offset of the function.
    pub offset: u64,
    /// Size of the function; 0 if not known.
    pub size: u64,
    /// Entry probe.
    pub entry: EntryPoint,
    /// Return probe.
    pub exit: Option<ExitPoint>,
    /// What the kernel reads.
    pub desc: ProbeDesc,
}

/// What attaching one file did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachSummary {
    /// Functions attached now.
    pub attached: usize,
    /// Functions that were attached before.
    pub present: usize,
    /// Functions that the kernel refused, and why.
    pub failed: Vec<String>,
}

/// The loaded object and its probes. Dropping it detaches everything; before Linux 6.6 that takes some milliseconds a
/// probe, and more where the processors are busy.
pub struct Attacher {
    ebpf: Ebpf,
    rings: Option<Rings>,
    descriptions: Array<MapData, ProbeDesc>,
    chains: Array<MapData, Chains>,
    watched: HashMap<MapData, u32, u32>,
    threads: HashMap<MapData, u64, ThreadState>,
    comms: HashMap<MapData, CommKey, CommCounters>,
    peers: HashMap<MapData, PeerKey, u64>,
    losses: PerCpuArray<MapData, u64>,
    python: HashMap<MapData, u32, PythonConfig>,
    /// Attaches all probes of a file at once, where the kernel can.
    multi: Option<Multi>,
    /// By cookie, from 1; `None`: refused by the kernel.
    probes: Vec<Option<AttachedProbe>>,
    by_place: FxHashMap<(FileKey, u64), u16>,
    link_maps: FxHashSet<FileKey>,
    limit: DescriptorLimit,
    notes: Vec<String>,
}

impl fmt::Debug for Attacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attacher")
            .field("probes", &self.probes.len())
            .field("at_once", &self.multi.is_some())
            .field("link_maps", &self.link_maps.len())
            .finish_non_exhaustive()
    }
}

impl Attacher {
    /// Loads the object, checks its version and attaches to the kernel's process events.
    pub fn load(options: &LoadOptions) -> Result<Attacher, AttachError> {
        Attacher::load_for(options, true)
    }

    /// The same, but attaches each probe by itself, as on kernels before 6.6: slow to take off.
    pub fn load_one_by_one(options: &LoadOptions) -> Result<Attacher, AttachError> {
        Attacher::load_for(options, false)
    }

    fn load_for(options: &LoadOptions, at_once: bool) -> Result<Attacher, AttachError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(AttachError::Missing(privilege::missing()));
        }
        check_object(OBJECT)?;
        let limit = limits::raise_descriptors();
        let ring = options.ring_bytes.clamp(SMALLEST_RING, LARGEST_RING).next_power_of_two();
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(name::EVENTS, ring)
            .load(OBJECT)
            .map_err(|error| refused("the eBPF object", &error))?;

        // Before the maps are taken out of the object.
        let probes = [program::ENTER, program::EXIT, program::LINK_MAP];
        let multi = if at_once { Multi::load(OBJECT, &ebpf, &probes).ok() } else { None };

        let mut notes = Vec::new();
        let settings = match btf::Types::of_kernel() {
            Ok(types) => btf::config(&types),
            Err(error) => {
                notes.push(format!("{error}; children are not followed, exits and signals are not recorded"));
                Config { abi: rankdiff_common::ABI_VERSION, ..Config::default() }
            }
        };
        let mut config: Array<MapData, Config> = take_map(&mut ebpf, name::CONFIG)?;
        config.set(0, settings, 0).map_err(|error| refused("the settings", &error))?;

        let mut attacher = Attacher {
            multi,
            rings: Some(Rings {
                calls: take_map(&mut ebpf, name::EVENTS)?,
                processes: take_map(&mut ebpf, name::PROCESSES)?,
            }),
            descriptions: take_map(&mut ebpf, name::PROBES)?,
            chains: take_map(&mut ebpf, name::CHAINS)?,
            watched: take_map(&mut ebpf, name::WATCHED)?,
            threads: take_map(&mut ebpf, name::THREADS)?,
            comms: take_map(&mut ebpf, name::COMMS)?,
            peers: take_map(&mut ebpf, name::PEERS)?,
            losses: take_map(&mut ebpf, name::LOST)?,
            python: take_map(&mut ebpf, python::name::PYTHON)?,
            ebpf,
            probes: Vec::new(),
            by_place: FxHashMap::default(),
            link_maps: FxHashSet::default(),
            limit,
            notes,
        };
        if attacher.multi.is_none() {
            for program in probes {
                attacher.uprobe(program)?.load().map_err(|error| refused(program, &error))?;
            }
        }
        attacher.attach_events()?;
        Ok(attacher)
    }

    /// Attaches a file's probes; those that are attached already are left alone.
    pub fn attach(&mut self, plan: &FilePlan) -> Result<AttachSummary, AttachError> {
        let path = explicit(&plan.path);
        if FileKey::of(&path).ok() != Some(plan.key) {
            return Err(AttachError::Replaced { path });
        }
        let mut summary = AttachSummary::default();
        let mut fresh = Vec::new();
        for probe in &plan.probes {
            if self.by_place.contains_key(&(plan.key, probe.offset)) {
                summary.present += 1;
                continue;
            }
            match self.describe(&path, probe) {
                Ok(index) => fresh.push((index, probe)),
                Err(AttachError::Refused { what, detail }) => summary.failed.push(format!("{what}: {detail}")),
                Err(error) => return Err(error),
            }
        }
        let at_once = self.attach_at_once(&path, &fresh);
        for (index, probe) in fresh {
            let attached = if at_once { Ok(()) } else { self.attach_alone(&path, index, probe) };
            match attached {
                Ok(()) => {
                    self.keep(plan.key, &path, index, probe);
                    summary.attached += 1;
                }
                Err(AttachError::Refused { what, detail }) => summary.failed.push(format!("{what}: {detail}")),
                Err(error) => return Err(error),
            }
        }
        if let Some(offset) = plan.link_map {
            self.attach_hook(plan.key, &path, offset)?;
        }
        Ok(summary)
    }

    /// Attaches the hook of the dynamic linker at this path; returns whether it was not attached before.
    pub fn attach_link_map(&mut self, interp: &Path) -> Result<bool, AttachError> {
        let path = explicit(interp);
        let key = FileKey::of(&path).map_err(|source| ElfError::Io { path: path.clone(), source })?;
        if self.link_maps.contains(&key) {
            return Ok(false);
        }
        let elf = ElfInfo::read(&path)?;
        let Some(offset) = link_map_hook(&elf) else {
            return Err(AttachError::Refused {
                what: format!("{}", path.display()),
                detail: "no dynamic linker with _dl_debug_state among its symbols; libraries that a program opens \
                         later are found with a delay"
                    .to_owned(),
            });
        };
        self.attach_hook(key, &path, offset)
    }

    /// Records a process and follows its children.
    pub fn watch(&mut self, tgid: u32) -> Result<(), AttachError> {
        self.watched.insert(tgid, watch::FOLLOW, 0).map_err(|_| AttachError::TooManyProcesses { tgid })
    }

    /// Stops recording a process.
    pub fn unwatch(&mut self, tgid: u32) -> Result<(), AttachError> {
        // It may be gone from the map already: the programs take out what ended.
        let _ = self.watched.remove(&tgid);
        Ok(())
    }

    /// Tells the programs where a process's Python interpreter has its parts.
    pub fn set_python(&mut self, tgid: u32, config: PythonConfig) -> Result<(), AttachError> {
        // What was recorded of an earlier program of that number is not this one's.
        let generation = crate::clock::monotonic() as u32;
        let what = format!("the settings for the Python interpreter of process {tgid}");
        self.python.insert(tgid, PythonConfig { generation, ..config }, 0).map_err(|error| refused(&what, &error))
    }

    /// Whether the programs know a process's interpreter.
    pub fn has_python(&self, tgid: u32) -> bool {
        self.python.get(&tgid, 0).is_ok()
    }

    /// Whether a process is recorded.
    pub fn is_watched(&self, tgid: u32) -> bool {
        self.watched.get(&tgid, 0).is_ok()
    }

    /// Processes that are recorded.
    pub fn watched(&self) -> Vec<u32> {
        self.watched.keys().take(rankdiff_common::map::MAX_WATCHED as usize).filter_map(Result::ok).collect()
    }

    /// The ring buffers; can be taken once.
    pub fn take_rings(&mut self) -> Result<Rings, AttachError> {
        self.rings.take().ok_or(AttachError::RingTaken)
    }

    /// Records lost so far, summed over processors, by [`lost`] index.
    pub fn lost(&self) -> [u64; lost::COUNT as usize] {
        let mut sums = [0_u64; lost::COUNT as usize];
        for (sum, index) in sums.iter_mut().zip(0..) {
            if let Ok(values) = self.losses.get(&index, 0) {
                *sum = values.iter().fold(0, |sum, &value| sum.wrapping_add(value));
            }
        }
        sums
    }

    /// Threads of a process that made calls, and how many each entered.
    pub fn thread_calls(&self, tgid: u32) -> Vec<(u32, u64)> {
        keys(self.threads.keys(), MAX_THREADS, |key| (key >> 32) as u32 == tgid)
            .into_iter()
            .filter_map(|key| Some((key as u32, self.threads.get(&key, 0).ok()?.calls)))
            .collect()
    }

    /// Deletes what the maps hold of a process that is gone.
    pub fn forget_process(&mut self, tgid: u32) {
        self.forget_processes(&FxHashSet::from_iter([tgid]));
    }

    /// Deletes what the maps hold of processes that are gone: one pass over the maps for all of them.
    pub fn forget_processes(&mut self, gone: &FxHashSet<u32>) {
        if gone.is_empty() {
            return;
        }
        // Collected first: a walk that meets a key just deleted begins anew.
        for tgid in gone {
            let _ = self.watched.remove(tgid);
            let _ = self.python.remove(tgid);
        }
        for key in keys(self.threads.keys(), MAX_THREADS, |key| gone.contains(&((key >> 32) as u32))) {
            let _ = self.threads.remove(&key);
        }
        for key in keys(self.comms.keys(), MAX_COMMS, |key| gone.contains(&key.tgid)) {
            let _ = self.comms.remove(&key);
        }
        for key in keys(self.peers.keys(), MAX_PEERS, |key| gone.contains(&key.tgid)) {
            let _ = self.peers.remove(&key);
        }
    }

    /// The probe with this cookie.
    pub fn probe(&self, index: u16) -> Option<&AttachedProbe> {
        self.probes.get(usize::from(index).checked_sub(1)?)?.as_ref()
    }

    /// The probe of the function at this offset of a file.
    pub fn probe_at(&self, key: FileKey, offset: u64) -> Option<&AttachedProbe> {
        self.probe(*self.by_place.get(&(key, offset))?)
    }

    /// All probes, by cookie.
    pub fn probes(&self) -> impl Iterator<Item = &AttachedProbe> {
        self.probes.iter().flatten()
    }

    /// The limit of open files as it was before it was raised; a child that is started gets it back
    /// ([`DescriptorLimit::restore`]).
    pub fn descriptor_limit(&self) -> DescriptorLimit {
        self.limit
    }

    /// Whether all probes of a file are attached at once (Linux 6.6 and newer).
    pub fn attaches_at_once(&self) -> bool {
        self.multi.is_some()
    }

    /// What works only in part, for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn attach_events(&mut self) -> Result<(), AttachError> {
        for &(program, event) in program::EVENTS {
            self.attach_event(program, event)?;
        }
        let (event, new, old) = program::TASK_END;
        if self.attach_event(new, event).is_err() {
            self.attach_event(old, event)?;
        }
        Ok(())
    }

    fn attach_event(&mut self, program: &'static str, event: &str) -> Result<(), AttachError> {
        let loaded: &mut RawTracePoint = self
            .ebpf
            .program_mut(program)
            .ok_or(ObjectError::NoProgram(program))?
            .try_into()
            .map_err(|_| ObjectError::NoProgram(program))?;
        loaded.load().map_err(|error| refused(program, &error))?;
        loaded.attach(event).map_err(|error| refused(&format!("{program} at {event}"), &error))?;
        Ok(())
    }

    fn attach_hook(&mut self, key: FileKey, path: &Path, offset: u64) -> Result<bool, AttachError> {
        if self.link_maps.contains(&key) {
            return Ok(false);
        }
        self.attach_uprobe(program::LINK_MAP, path, Point { offset, cookie: 0 }, When::Entry)?;
        self.link_maps.insert(key);
        Ok(true)
    }

    /// Gives a probe its number and tells the programs what to read there.
    fn describe(&mut self, path: &Path, planned: &PlannedProbe) -> Result<u16, AttachError> {
        let what = || format!("a probe on {} in {}", planned.symbol, path.display());
        // 0 is left free: it stands for 'no probe' in records.
        let index = u32::try_from(self.probes.len() + 1).ok().filter(|&index| index < MAX_PROBES);
        let Some(index) = index.and_then(|index| u16::try_from(index).ok()) else {
            return Err(AttachError::Refused {
                what: what(),
                detail: format!("there are {} already, the most that are kept", self.probes.len()),
            });
        };
        if let Some(chains) = planned.chains {
            self.chains.set(u32::from(index), chains, 0).map_err(|error| refused(&what(), &error))?;
        }
        self.descriptions.set(u32::from(index), planned.desc, 0).map_err(|error| refused(&what(), &error))?;
        self.probes.push(None);
        Ok(index)
    }

    /// Attaches all probes of a file with one link for the entries and one for the returns. False if the kernel has no
    /// such links, or refuses one of the places: they are then attached one by one.
    fn attach_at_once(&mut self, path: &Path, probes: &[(u16, &PlannedProbe)]) -> bool {
        let Some(multi) = &mut self.multi else { return false };
        if probes.len() > MAX_POINTS {
            return false;
        }
        // The return probes first: a call that is entered in between then misses its entry, and a return without an
        // entry says nothing, where an entry without a return would look like a call that hangs.
        let exits: Vec<Point> = probes.iter().filter_map(|&(index, probe)| exit_point(index, probe)).collect();
        let entries: Vec<Point> = probes.iter().map(|&(index, probe)| entry_point(index, probe)).collect();
        if multi.attach(program::EXIT, path, &exits, When::Return).is_err() {
            return false;
        }
        if multi.attach(program::ENTER, path, &entries, When::Entry).is_err() {
            if !exits.is_empty() {
                multi.detach_last();
            }
            return false;
        }
        true
    }

    fn attach_alone(&mut self, path: &Path, index: u16, planned: &PlannedProbe) -> Result<(), AttachError> {
        let exit = match exit_point(index, planned) {
            Some(exit) => Some(self.attach_uprobe(program::EXIT, path, exit, When::Return)?),
            None => None,
        };
        let entry = self.attach_uprobe(program::ENTER, path, entry_point(index, planned), When::Entry);
        if let (Err(_), Some(exit)) = (&entry, exit) {
            match exit {
                Link::Multi => {
                    if let Some(multi) = &mut self.multi {
                        multi.detach_last();
                    }
                }
                Link::Alone(link) => {
                    let _ = self.uprobe(program::EXIT)?.detach(link);
                }
            }
        }
        entry.map(|_| ())
    }

    fn keep(&mut self, key: FileKey, path: &Path, index: u16, planned: &PlannedProbe) {
        self.by_place.insert((key, planned.offset), index);
        if let Some(slot) = self.probes.get_mut(usize::from(index) - 1) {
            *slot = Some(AttachedProbe {
                index,
                library: planned.library,
                abi: planned.abi,
                function: planned.function,
                symbol: planned.symbol.clone(),
                key,
                path: path.to_owned(),
                offset: planned.offset,
                size: planned.size,
                entry: planned.entry,
                exit: planned.exit,
                desc: planned.desc,
            });
        }
    }

    fn attach_uprobe(
        &mut self,
        program: &'static str,
        path: &Path,
        point: Point,
        when: When,
    ) -> Result<Link, AttachError> {
        let what = || format!("a probe at {}+{:#x}", path.display(), point.offset);
        if let Some(multi) = &mut self.multi {
            multi.attach(program, path, &[point], when).map_err(|error| refused(&what(), &error))?;
            return Ok(Link::Multi);
        }
        let at = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(point.offset),
            cookie: Some(point.cookie),
        };
        self.uprobe(program)?
            .attach(at, path, UProbeScope::AllProcesses)
            .map(Link::Alone)
            .map_err(|error| refused(&what(), &error))
    }

    fn uprobe(&mut self, program: &'static str) -> Result<&mut UProbe, AttachError> {
        self.ebpf
            .program_mut(program)
            .ok_or(ObjectError::NoProgram(program))?
            .try_into()
            .map_err(|_: ProgramError| ObjectError::NoProgram(program).into())
    }
}

/// A probe that was attached by itself.
enum Link {
    /// The newest of the links for many.
    Multi,
    /// One of aya's.
    Alone(UProbeLinkId),
}

fn entry_point(index: u16, probe: &PlannedProbe) -> Point {
    Point { offset: probe.offset + probe.entry.delta, cookie: u64::from(index) }
}

fn exit_point(index: u16, probe: &PlannedProbe) -> Option<Point> {
    let exit = probe.exit?;
    Some(Point { offset: probe.offset + exit.delta, cookie: u64::from(index) })
}

/// Takes a map out of the object, as the type that both sides agreed on.
fn take_map<M>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, AttachError>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).ok_or(ObjectError::NoMap { name, detail: "there is none".to_owned() })?;
    M::try_from(map).map_err(|error| ObjectError::NoMap { name, detail: chain(&error) }.into())
}

/// The keys that satisfy a condition. Bounded, since a map that changes meanwhile may show a key again.
fn keys<K: Pod>(
    all: impl Iterator<Item = Result<K, aya::maps::MapError>>,
    most: u32,
    wanted: impl Fn(&K) -> bool,
) -> Vec<K> {
    all.take(2 * most as usize).map_while(Result::ok).filter(|key| wanted(key)).collect()
}

/// A path that aya does not take for the bare name of a library to look for.
fn explicit(path: &Path) -> PathBuf {
    if path.components().count() == 1 && path.is_relative() { Path::new(".").join(path) } else { path.to_owned() }
}

/// The error for the kernel's answer: what is missing on the system where that is the cause.
fn refused(what: &str, error: &(dyn Error + 'static)) -> AttachError {
    let errno = errno(error);
    if matches!(errno, Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) {
        let missing = privilege::missing();
        if !missing.is_empty() {
            return AttachError::Missing(missing);
        }
    }
    if matches!(errno, Some(libc::EMFILE | libc::ENFILE)) {
        return AttachError::Missing(vec![limits::out_of_descriptors()]);
    }
    AttachError::Refused { what: what.to_owned(), detail: chain(error) }
}

/// The system error at the bottom of an error.
fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && let Some(errno) = io.raw_os_error()
        {
            return Some(errno);
        }
        current = error.source();
    }
    None
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        current = cause.source();
    }
    text
}

fn list(missing: &[Requirement]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}
