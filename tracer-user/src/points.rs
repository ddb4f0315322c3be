//! What to probe in one file: which collective libraries it holds, where their functions are, what to read there.
//!
//! A library is known by the symbols that a file defines, never by the file's name, so copies under any name and static
//! links are found. Not here: attaching (`attach`), which files a process uses (`maps`, `predict`).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankdiff_common::probe::{Chains, ProbeDesc};
use rankdiff_libs::registry::LIBRARIES;
use rankdiff_libs::spec::{Abi, Function, Library};
use rankdiff_trace::Level;
use rustc_hash::FxHashSet;

use crate::code::Code;
use crate::describe;
use crate::elf::{ElfError, ElfInfo, FunctionSymbol, open_regular};
use crate::maps::FileKey;
use crate::privilege::kernel_release;
use crate::prologue::{EntryPoint, ExitPoint, KernelRules, PointCost, locate, takes_probe};

pub use crate::describe::probe_desc;

/// The function that a dynamic linker calls whenever its list of loaded objects changed.
const LINK_MAP_HOOK: &str = "_dl_debug_state";
/// Most code that is read of one function.
const MAX_CODE: u64 = 1 << 16;
/// Code that is read of a function whose symbol tells no size and that no other follows.
const UNSIZED_CODE: u64 = 1 << 10;

/// Most bytes from the first to the last of a framework's methods.
const MOST_OWN_CODE: u64 = 1 << 20;

/// One function to probe.
#[derive(Debug, Clone)]
pub struct PlannedProbe {
    /// Library.
    pub library: &'static Library,
    /// Build of the library.
    pub abi: Abi,
    /// Function.
    pub function: &'static Function,
    /// Symbol that was found (an alias may have been).
    pub symbol: String,
    /// File offset of the function.
    pub offset: u64,
    /// Where the entry probe goes.
    pub entry: EntryPoint,
    /// Where the return probe goes, if the return is recorded.
    pub exit: Option<ExitPoint>,
    /// What the kernel reads.
    pub desc: ProbeDesc,
    /// What it reads behind pointers.
    pub chains: Option<Chains>,
    /// Size of the function; 0 if not known.
    pub size: u64,
}

/// What to probe in one file.
#[derive(Debug, Clone)]
pub struct FilePlan {
    /// Path by which the file is opened.
    pub path: PathBuf,
    /// Which file it is.
    pub key: FileKey,
    /// The file.
    pub elf: Arc<ElfInfo>,
    /// Libraries found in it.
    pub libraries: Vec<&'static Library>,
    /// Probes, by file offset.
    pub probes: Vec<PlannedProbe>,
    /// File offset of `_dl_debug_state` when the file is a dynamic linker.
    pub link_map: Option<u64>,
    /// What the user should know of this file, its name left out.
    pub notes: Vec<String>,
}

/// How to plan.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Libraries to look for.
    pub libraries: &'static [&'static Library],
    /// Probe functions that poll at a high rate as well.
    pub high_rate: bool,
    /// What the kernel can do under a probe.
    pub rules: KernelRules,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        let (major, minor) = kernel_release().unwrap_or((5, 15));
        PlanOptions { libraries: LIBRARIES, high_rate: false, rules: KernelRules::of_release(major, minor) }
    }
}

/// The file cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It could not be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Plans the probes of a file; `None`: it has nothing to probe and nothing to say.
pub fn plan(path: &Path, options: &PlanOptions) -> Result<Option<FilePlan>, PlanError> {
    let failed = |source: io::Error| ElfError::Io { path: path.to_owned(), source };
    let file = open_regular(path)?;
    let meta = file.metadata().map_err(failed)?;
    let wanted = wanted_names(options.libraries);
    let elf = ElfInfo::read_open(&file, path, &|name| wanted.contains(name))?;

    let mut plan = FilePlan {
        path: path.to_owned(),
        key: FileKey { dev: meta.dev(), inode: meta.ino() },
        elf: Arc::new(elf),
        libraries: Vec::new(),
        probes: Vec::new(),
        link_map: None,
        notes: Vec::new(),
    };
    let elf = Arc::clone(&plan.elf);
    plan.link_map = link_map_hook(&elf);
    for &library in options.libraries {
        // Libraries of one family define each other's symbols; the first match names the file.
        if plan.libraries.iter().any(|found| shares_functions(found, library)) {
            continue;
        }
        if !library.marker_symbols.iter().any(|marker| elf.defines(marker)) {
            plan.notes.extend(stripped_note(library, &elf, path));
            continue;
        }
        plan.libraries.push(library);
        let abi = (library.abi)(&|name| elf.defines(name) || elf.data_address(name).is_some());
        let inspected = (library.inspect)(abi, &Code { file: &file, elf: &elf });
        plan.notes.extend(inspected.notes);
        plan.add_library(library, inspected.abi, &file, options);
    }
    plan.mark_own_code();
    plan.probes.sort_by_key(|probe| probe.offset);
    let silent = plan.libraries.is_empty() && plan.link_map.is_none() && plan.notes.is_empty();
    Ok((!silent).then_some(plan))
}

impl FilePlan {
    /// A framework's methods are built from one another, and none of their returns can be probed: a call that comes from
    /// between them is a part of another one. They are one source file's, so they lie together.
    fn mark_own_code(&mut self) {
        let of_frameworks = |probe: &&PlannedProbe| probe.library.level == Level::Framework;
        let starts = self.probes.iter().filter(of_frameworks).map(|probe| probe.offset);
        let ends = self.probes.iter().filter(of_frameworks).map(|probe| probe.offset.saturating_add(probe.size));
        let (Some(from), Some(to)) = (starts.min(), ends.max()) else { return };
        if to.saturating_sub(from) > MOST_OWN_CODE {
            self.notes.push(
                "the methods of its process groups do not lie together; one that is built from others is recorded with them"
                    .to_owned(),
            );
            return;
        }
        for probe in self.probes.iter_mut().filter(|probe| probe.library.level == Level::Framework) {
            // A group that another one makes is a group all the same.
            if probe.function.made_in_place().is_some() {
                continue;
            }
            let entry = probe.offset.saturating_add(probe.entry.delta);
            let distance = |offset: u64| i32::try_from(offset as i64 - entry as i64).unwrap_or(0);
            (probe.desc.own_from, probe.desc.own_to) = (distance(from), distance(to));
        }
    }

    /// Adds the probes of one library: one for each place at which one of its functions lies.
    fn add_library(&mut self, library: &'static Library, abi: Abi, file: &File, options: &PlanOptions) {
        let elf = Arc::clone(&self.elf);
        let mut taken: FxHashSet<u64> = self.probes.iter().map(|probe| probe.offset).collect();
        let names = std::iter::once("").chain(library.alias_prefixes.iter().copied());
        // The plain name of every function first: where two functions share an address, its own name is the better one.
        for prefix in names {
            for function in library.functions {
                if function.traits.high_rate && !options.high_rate {
                    continue;
                }
                for found in elf.functions_named(&format!("{prefix}{}", function.symbol)) {
                    if taken.insert(found.offset) {
                        self.add_function(library, abi, function, found, file, options);
                    }
                }
            }
        }
    }

    fn add_function(
        &mut self,
        library: &'static Library,
        abi: Abi,
        function: &'static Function,
        found: &FunctionSymbol,
        file: &File,
        options: &PlanOptions,
    ) {
        let code = match read_code(file, &self.elf, found) {
            Ok(code) => code,
            Err(error) => {
                self.notes.push(format!(
                    "the code of {} at offset {:#x} could not be read ({error}); its calls are not recorded",
                    found.name, found.offset
                ));
                return;
            }
        };
        let mut desc = describe::probe_desc(library, abi, function);
        let (mut entry, exit) = locate(&code, options.rules);
        if !takes_probe(&code, entry.delta) {
            self.notes.push(format!(
                "{} at offset {:#x} begins with an instruction that takes no probe; its calls are not recorded",
                found.name, found.offset
            ));
            return;
        }
        if describe::has_return(&desc) && !takes_probe(&code, exit.delta) {
            self.notes.push(format!(
                "{} at offset {:#x} begins with an instruction that takes no probe; its returns are not recorded",
                found.name, found.offset
            ));
            describe::drop_return(&mut desc);
        }
        let exit = describe::has_return(&desc).then_some(exit);
        if let Some(exit) = exit
            && exit.cost == PointCost::Stepped
        {
            // That instruction is single-stepped at every call anyway: the entry probe is free there, and the return
            // address is still in place.
            entry = EntryPoint { delta: exit.delta, stack_shift: 0, cost: exit.cost };
        }
        describe::place(&mut desc, &entry, exit.as_ref());
        self.probes.push(PlannedProbe {
            library,
            abi,
            function,
            symbol: found.name.to_string(),
            offset: found.offset,
            entry,
            exit,
            desc,
            chains: describe::chains(library, abi, function),
            size: found.size,
        });
    }
}

/// One probe as the user is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRow {
    /// Library and build ('mpi (openmpi)').
    pub library: String,
    /// Symbol.
    pub symbol: String,
    /// File.
    pub file: PathBuf,
    /// Offset of the function in the file.
    pub offset: u64,
    /// Entry probe: `emulated +4`, `stepped`.
    pub entry: String,
    /// Return probe: the same, `stepped (exit)` where it keeps the function's first instruction; empty if there is none.
    pub exit: String,
}

/// The probes of a plan as rows for people.
pub fn list_probes(plan: &FilePlan) -> Vec<ProbeRow> {
    plan.probes
        .iter()
        .map(|probe| ProbeRow {
            library: format!("{} ({})", probe.library.name, probe.abi.name),
            symbol: probe.symbol.clone(),
            file: plan.path.clone(),
            offset: probe.offset,
            entry: place_text(probe.entry.delta, probe.entry.cost),
            exit: probe.exit.map_or(String::new(), |exit| match exit.cost {
                PointCost::Emulated => place_text(exit.delta, exit.cost),
                PointCost::Stepped => format!("{} (exit)", place_text(exit.delta, exit.cost)),
            }),
        })
        .collect()
}

fn place_text(delta: u64, cost: PointCost) -> String {
    let cost = match cost {
        PointCost::Emulated => "emulated",
        PointCost::Stepped => "stepped",
    };
    if delta == 0 { cost.to_owned() } else { format!("{cost} +{delta}") }
}

/// File offset of the dynamic linker's hook, if the file is one.
pub(crate) fn link_map_hook(elf: &ElfInfo) -> Option<u64> {
    // A program linked statically has the function too, but no list that other code changes.
    let linker =
        elf.interpreter().is_none() && elf.soname().is_some_and(|name| name.starts_with("ld") || name.contains("musl"));
    if !linker {
        return None;
    }
    elf.function(LINK_MAP_HOOK).map(|function| function.offset)
}

/// Whether two libraries have a function of the same name.
fn shares_functions(one: &Library, other: &Library) -> bool {
    let names: FxHashSet<&str> = one.functions.iter().map(|function| function.symbol).collect();
    other.functions.iter().any(|function| names.contains(function.symbol))
}

/// Every name that a large static symbol table is searched for.
fn wanted_names(libraries: &[&'static Library]) -> FxHashSet<String> {
    let mut names: FxHashSet<String> = FxHashSet::default();
    names.insert(LINK_MAP_HOOK.to_owned());
    for library in libraries {
        names.extend(library.marker_symbols.iter().map(|&marker| marker.to_owned()));
        for function in library.functions {
            names.insert(function.symbol.to_owned());
            names.extend(library.alias_prefixes.iter().map(|prefix| format!("{prefix}{}", function.symbol)));
        }
    }
    names
}

/// What to say of a file that has a library's name but none of its symbols.
fn stripped_note(library: &Library, elf: &ElfInfo, path: &Path) -> Option<String> {
    let named = |name: &str| library.file_patterns.iter().any(|pattern| matches_pattern(pattern, name));
    let own = elf.soname().map_or_else(|| path.file_name()?.to_str(), Some)?;
    // A library's companions (language bindings, plugins) carry a similar name and need the library itself.
    let companion = elf.needed().iter().any(|needed| named(needed));
    if !named(own) || companion || !elf.is_stripped() {
        return None;
    }
    Some(format!(
        "has the name of {} but none of its functions among its symbols; its calls cannot be recorded (is it a \
         stripped or partial copy?)",
        library.name
    ))
}

/// Whether a file name matches a pattern in which `*` stands for any text.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        let Some(at) = name.find(piece) else { return false };
        name = name.get(at + piece.len()..).unwrap_or_default();
    }
    true
}

/// The code of a function, as far as it is looked at.
pub(crate) fn read_code(file: &File, elf: &ElfInfo, function: &FunctionSymbol) -> io::Result<Vec<u8>> {
    let next = elf.functions().partition_point(|other| other.offset <= function.offset);
    let gap = elf.functions().get(next).map_or(UNSIZED_CODE, |next| next.offset - function.offset);
    let size = if function.size == 0 { gap.min(UNSIZED_CODE) } else { function.size }.min(MAX_CODE);
    let mut code = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut read = 0;
    while let Some(rest) = code.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, function.offset.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    code.truncate(read);
    Ok(code)
}

#[cfg(test)]
mod tests;
