//! One ELF file: its functions and data symbols and where they lie in the file, what it needs to be loaded.
//!
//! Read piece by piece from the open file, never mapped: a file that shrinks meanwhile is an error, not a SIGBUS. Every
//! length is checked against the file and a limit before memory is taken. Not here: debug information, relocations
//! (a COPY relocation's target is an ordinary data symbol of the executable), code (`prologue`).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::read::{ReadCache, ReadRef, StringTable};
use object::{Endianness, SectionIndex};
use rustc_hash::FxHashSet;

use crate::maps::Mapping;

/// The machine that probes can be placed for.
const MACHINE: elf::Machine = elf::EM_X86_64;
/// Largest symbol or string table that is read.
const MAX_SECTION: u64 = 1 << 30;
/// Most bytes of one symbol name; C++ templates reach a few thousand.
const MAX_NAME: usize = 16 << 10;
/// Most bytes of all names kept of one file.
const MAX_NAMES: usize = 256 << 20;
/// A `.symtab` with more entries is kept only as far as [`ElfInfo::read_with`]'s caller asks for its names.
const MAX_STATIC_SYMBOLS: usize = 1 << 16;
/// Most entries of the dynamic section that are looked at.
const MAX_DYNAMIC: usize = 1 << 16;
/// Most bytes of a note segment.
const MAX_NOTES: u64 = 1 << 20;

/// The file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It could not be opened or read.
    #[error("{path}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// It is no ELF file.
    #[error("{path}: not an ELF file")]
    NotElf {
        /// File.
        path: PathBuf,
    },
    /// It is ELF of another machine or word size.
    #[error("{path}: ELF for {found}; only 64-bit x86-64 files are recorded")]
    Foreign {
        /// File.
        path: PathBuf,
        /// What it is for.
        found: String,
    },
    /// It is damaged.
    #[error("{path}: damaged ELF file ({detail}); is it truncated?")]
    Damaged {
        /// File.
        path: PathBuf,
        /// What is wrong and where.
        detail: String,
    },
}

/// A function that the file defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionSymbol {
    /// Name, without its version.
    pub name: Box<str>,
    /// Virtual address as linked.
    pub address: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Bytes; 0 if the symbol does not say.
    pub size: u64,
    /// Whether the dynamic symbol table has it (else only the static one).
    pub dynamic: bool,
}

/// A variable that the file defines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DataSymbol {
    name: Box<str>,
    address: u64,
}

/// A part of the file that is loaded to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

impl Segment {
    /// A distance from its start that the file has bytes for.
    fn within(&self, distance: u64) -> Option<u64> {
        (distance < self.file_size).then_some(distance)
    }
}

/// What one ELF file says about itself.
#[derive(Debug, Clone, Default)]
pub struct ElfInfo {
    /// By offset, then name.
    functions: Vec<FunctionSymbol>,
    /// Indices of `functions` by name.
    by_name: Vec<u32>,
    /// By address, then name.
    data: Vec<DataSymbol>,
    segments: Vec<Segment>,
    needed: Vec<String>,
    soname: Option<String>,
    rpath: Vec<String>,
    runpath: Vec<String>,
    interpreter: Option<PathBuf>,
    build_id: String,
    stripped: bool,
    executable: bool,
}

type Header = FileHeader64<Endianness>;
type Cache<'a> = ReadCache<&'a File>;

impl ElfInfo {
    /// Reads a file. Of a large static symbol table only the dynamic symbols are kept.
    pub fn read(path: &Path) -> Result<ElfInfo, ElfError> {
        ElfInfo::read_with(path, &|_| false)
    }

    /// Reads a file; `keep` says which names of a large static symbol table are kept as well.
    pub fn read_with(path: &Path, keep: &dyn Fn(&str) -> bool) -> Result<ElfInfo, ElfError> {
        ElfInfo::read_open(&open_regular(path)?, path, keep)
    }

    /// Reads a file without its symbols: what it needs, its names.
    pub fn read_needs(path: &Path) -> Result<ElfInfo, ElfError> {
        ElfInfo::read_parts(&open_regular(path)?, path, None)
    }

    /// Reads an open file; `path` is for messages.
    pub fn read_open(file: &File, path: &Path, keep: &dyn Fn(&str) -> bool) -> Result<ElfInfo, ElfError> {
        ElfInfo::read_parts(file, path, Some(keep))
    }

    fn read_parts(file: &File, path: &Path, keep: Option<&dyn Fn(&str) -> bool>) -> Result<ElfInfo, ElfError> {
        let cache = ReadCache::new(file);
        let data = &cache;
        check_ident(data, path)?;
        let damaged = |detail: &str| ElfError::Damaged { path: path.to_owned(), detail: detail.to_owned() };
        let header = Header::parse(data).map_err(|error| damaged(&error.to_string()))?;
        let endian = header.endian().map_err(|error| damaged(&error.to_string()))?;
        let machine = header.e_machine(endian);
        if machine != MACHINE {
            return Err(ElfError::Foreign { path: path.to_owned(), found: machine_name(machine) });
        }
        let headers = header.program_headers(endian, data).map_err(|error| damaged(&error.to_string()))?;

        let mut info = ElfInfo {
            segments: segments(headers, endian),
            executable: header.e_type(endian) == elf::ET_EXEC,
            stripped: true,
            ..ElfInfo::default()
        };
        info.read_segments(headers, endian, data);
        // A file without section headers loads all the same; it only has no symbols for us.
        if let Some(keep) = keep
            && let Ok(sections) = header.sections(endian, data)
        {
            info.read_symbols(&sections, endian, data, keep);
        }
        Ok(info)
    }

    /// Whether it defines a function of this name.
    pub fn defines(&self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// The function of this name; of several versions, the first in the file.
    pub fn function(&self, name: &str) -> Option<&FunctionSymbol> {
        self.functions_named(name).next()
    }

    /// Every function of this name (versions of one symbol at several addresses).
    pub fn functions_named<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a FunctionSymbol> + use<'a, 'n> {
        let from = self.by_name.partition_point(|&index| self.name_of(index) < name);
        self.by_name
            .get(from..)
            .unwrap_or_default()
            .iter()
            .filter_map(|&index| self.functions.get(index as usize))
            .take_while(move |function| &*function.name == name)
    }

    /// The function whose body holds this file offset; one whose size is not known reaches to the next.
    pub fn function_at(&self, offset: u64) -> Option<&FunctionSymbol> {
        let after = self.functions.partition_point(|function| function.offset <= offset);
        let start = self.functions.get(after.checked_sub(1)?)?.offset;
        let first = self.functions.partition_point(|function| function.offset < start);
        let aliases = self.functions.get(first..after)?;
        aliases
            .iter()
            .find(|function| function.size != 0 && offset - function.offset < function.size)
            .or_else(|| aliases.iter().find(|function| function.size == 0 && self.address_of(offset).is_some()))
    }

    /// All functions, by file offset.
    pub fn functions(&self) -> &[FunctionSymbol] {
        &self.functions
    }

    /// The data symbol that begins at this link-time address; of several names, the first in order.
    pub fn data_at(&self, address: u64) -> Option<&str> {
        let at = self.data.partition_point(|symbol| symbol.address < address);
        self.data.get(at).filter(|symbol| symbol.address == address).map(|symbol| &*symbol.name)
    }

    /// Link-time address of the data symbol of this name.
    pub fn data_address(&self, name: &str) -> Option<u64> {
        self.data.iter().find(|symbol| &*symbol.name == name).map(|symbol| symbol.address)
    }

    /// Link-time address of a file offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.address.checked_add(segment.within(offset.checked_sub(segment.offset)?)?))
    }

    /// File offset of a link-time address.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.offset.checked_add(segment.within(address.checked_sub(segment.address)?)?))
    }

    /// What to add to a link-time address for the one in a process that has the file mapped so.
    ///
    /// The mapping begins on a page, its segment may begin behind it; two segments may share the page, so the one with
    /// the mapping's own rights is preferred.
    pub fn load_bias(&self, mapping: &Mapping) -> Option<u64> {
        const PAGE: u64 = 4096;
        let covers = |segment: &&Segment| {
            let first = segment.offset & !(PAGE - 1);
            let end = segment.offset.saturating_add(segment.file_size);
            mapping.file_offset >= first && mapping.file_offset < end
        };
        let candidates = || self.segments.iter().filter(covers);
        let segment =
            candidates().find(|segment| segment.executable == mapping.executable).or_else(|| candidates().next())?;
        let linked = segment.address.wrapping_sub(segment.offset).wrapping_add(mapping.file_offset);
        Some(mapping.start.wrapping_sub(linked))
    }

    /// Libraries that it needs (`DT_NEEDED`), in order.
    pub fn needed(&self) -> &[String] {
        &self.needed
    }

    /// Its own name as a library (`DT_SONAME`).
    pub fn soname(&self) -> Option<&str> {
        self.soname.as_deref()
    }

    /// Folders of `DT_RPATH`.
    pub fn rpath(&self) -> &[String] {
        &self.rpath
    }

    /// Folders of `DT_RUNPATH`.
    pub fn runpath(&self) -> &[String] {
        &self.runpath
    }

    /// The dynamic linker that it asks for (`PT_INTERP`).
    pub fn interpreter(&self) -> Option<&Path> {
        self.interpreter.as_deref()
    }

    /// Build id in hexadecimal; empty if there is none.
    pub fn build_id(&self) -> &str {
        &self.build_id
    }

    /// Whether the static symbol table is missing.
    pub fn is_stripped(&self) -> bool {
        self.stripped
    }

    /// Whether it is linked to fixed addresses.
    pub fn is_fixed_executable(&self) -> bool {
        self.executable
    }

    fn name_of(&self, index: u32) -> &str {
        self.functions.get(index as usize).map_or("", |function| &function.name)
    }

    fn read_segments(&mut self, headers: &[ProgramHeader64<Endianness>], endian: Endianness, data: &Cache<'_>) {
        for header in headers {
            match header.p_type(endian) {
                elf::PT_INTERP => {
                    if let Ok(Some(path)) = header.interpreter(endian, data)
                        && path.len() <= MAX_NAME
                    {
                        self.interpreter = Some(PathBuf::from(OsStr::from_bytes(path)));
                    }
                }
                elf::PT_NOTE if header.p_filesz(endian) <= MAX_NOTES && self.build_id.is_empty() => {
                    self.read_build_id(header, endian, data);
                }
                elf::PT_DYNAMIC if header.p_filesz(endian) <= MAX_SECTION => {
                    self.read_dynamic(header, endian, data);
                }
                _ => {}
            }
        }
    }

    fn read_build_id(&mut self, header: &ProgramHeader64<Endianness>, endian: Endianness, data: &Cache<'_>) {
        let Ok(Some(mut notes)) = header.notes(endian, data) else { return };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                self.build_id = note.desc().iter().take(64).map(|byte| format!("{byte:02x}")).collect();
                return;
            }
        }
    }

    fn read_dynamic(&mut self, header: &ProgramHeader64<Endianness>, endian: Endianness, data: &Cache<'_>) {
        let Ok(Some(entries)) = header.dynamic(endian, data) else { return };
        let entries: Vec<(elf::DynamicTag, u64)> = entries
            .iter()
            .take(MAX_DYNAMIC)
            .map(|entry| (entry.d_tag(endian), entry.d_val(endian)))
            .take_while(|&(tag, _)| tag != elf::DT_NULL)
            .collect();
        let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let (Some(strings), Some(size)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) else { return };
        let Some(strings) = self.offset_of(strings) else { return };
        if size > MAX_SECTION {
            return;
        }
        let Ok(strings) = data.read_bytes_at(strings, size) else { return };
        let text = |at: u64| -> Option<String> {
            let rest = strings.get(usize::try_from(at).ok()?..)?;
            let end = rest.iter().take(MAX_NAME).position(|&byte| byte == 0)?;
            Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
        };
        let folders = |list: Option<String>| -> Vec<String> {
            list.unwrap_or_default().split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect()
        };
        for &(tag, at) in &entries {
            match tag {
                elf::DT_NEEDED => self.needed.extend(text(at)),
                elf::DT_SONAME => self.soname = text(at),
                elf::DT_RPATH => self.rpath = folders(text(at)),
                elf::DT_RUNPATH => self.runpath = folders(text(at)),
                _ => {}
            }
        }
    }

    fn read_symbols<'a>(
        &mut self,
        sections: &SectionTable<'a, Header, &'a Cache<'a>>,
        endian: Endianness,
        data: &'a Cache<'a>,
        keep: &dyn Fn(&str) -> bool,
    ) {
        let mut budget = MAX_NAMES;
        // Dynamic symbols first: what both tables have is kept once.
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let Some((index, section)) = sections.enumerate().find(|(_, section)| section.sh_type(endian) == kind)
            else {
                continue;
            };
            let dynamic = kind == elf::SHT_DYNSYM;
            self.stripped &= dynamic;
            self.read_table(sections, endian, data, (index, section), dynamic, keep, &mut budget);
        }
        self.functions.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
        self.data.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        self.data.dedup();
        let mut by_name: Vec<u32> = (0..u32::try_from(self.functions.len()).unwrap_or(u32::MAX)).collect();
        by_name.sort_by(|&a, &b| (self.name_of(a), a).cmp(&(self.name_of(b), b)));
        self.by_name = by_name;
    }

    #[expect(clippy::too_many_arguments, reason = "one loop's state, used once")]
    fn read_table<'a>(
        &mut self,
        sections: &SectionTable<'a, Header, &'a Cache<'a>>,
        endian: Endianness,
        data: &'a Cache<'a>,
        (index, section): (SectionIndex, &'a elf::SectionHeader64<Endianness>),
        dynamic: bool,
        keep: &dyn Fn(&str) -> bool,
        budget: &mut usize,
    ) {
        if section.sh_size(endian) > MAX_SECTION {
            return;
        }
        let Ok(table) = SymbolTable::parse(endian, data, sections, index, section) else { return };
        let Ok(names) = sections.section(table.string_section()) else { return };
        if names.sh_size(endian) > MAX_SECTION {
            return;
        }
        // One read for all names; the table's own string reader would make one system call for each.
        let Ok(names) = names.data(endian, data) else { return };
        let strings = StringTable::new(names, 0, names.len() as u64);
        let selective = !dynamic && table.len() > MAX_STATIC_SYMBOLS;
        let known: FxHashSet<(u64, Box<str>)> = if dynamic {
            FxHashSet::default()
        } else {
            self.functions.iter().map(|function| (function.address, function.name.clone())).collect()
        };
        for symbol in table.iter() {
            if symbol.is_undefined(endian) || symbol.st_value(endian) == 0 {
                continue;
            }
            let kind = symbol.st_type();
            if !matches!(kind, elf::STT_FUNC | elf::STT_OBJECT) {
                continue;
            }
            let Ok(name) = symbol.name(endian, strings) else { continue };
            if name.is_empty() || name.len() > MAX_NAME {
                continue;
            }
            let name = String::from_utf8_lossy(name);
            // What is no UTF-8 grows when it is replaced.
            if name.len() > *budget || selective && !keep(&name) {
                continue;
            }
            let address = symbol.st_value(endian);
            let name: Box<str> = name.into();
            if kind == elf::STT_OBJECT {
                *budget -= name.len();
                self.data.push(DataSymbol { name, address });
            } else if let Some(offset) = self.offset_of(address)
                && !known.contains(&(address, name.clone()))
            {
                *budget -= name.len();
                self.functions.push(FunctionSymbol { name, address, offset, size: symbol.st_size(endian), dynamic });
            }
        }
    }
}

/// Opens a regular file; a pipe or a device, which could block, is refused.
pub(crate) fn open_regular(path: &Path) -> Result<File, ElfError> {
    let failed = |source| ElfError::Io { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ElfError::NotElf { path: path.to_owned() });
    }
    File::open(path).map_err(failed)
}

fn check_ident(data: &Cache<'_>, path: &Path) -> Result<(), ElfError> {
    let not_elf = || ElfError::NotElf { path: path.to_owned() };
    let ident = data.read_bytes_at(0, 6).map_err(|()| not_elf())?;
    match ident {
        [0x7f, b'E', b'L', b'F', class, order] => {
            let (class, order) = (elf::FileClass(*class), elf::DataEncoding(*order));
            if class == elf::ELFCLASS64 && order == elf::ELFDATA2LSB {
                return Ok(());
            }
            let bits = if class == elf::ELFCLASS32 { "32-bit" } else { "64-bit" };
            let order = if order == elf::ELFDATA2MSB { "big-endian" } else { "little-endian" };
            Err(ElfError::Foreign { path: path.to_owned(), found: format!("a {bits} {order} machine") })
        }
        _ => Err(not_elf()),
    }
}

fn machine_name(machine: elf::Machine) -> String {
    match machine {
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_PPC64 => "ppc64".to_owned(),
        elf::EM_RISCV => "riscv".to_owned(),
        elf::EM_BPF => "bpf".to_owned(),
        other => format!("machine {other}"),
    }
}

fn segments(headers: &[ProgramHeader64<Endianness>], endian: Endianness) -> Vec<Segment> {
    headers
        .iter()
        .filter(|header| header.p_type(endian) == elf::PT_LOAD)
        .map(|header| Segment {
            address: header.p_vaddr(endian),
            offset: header.p_offset(endian),
            file_size: header.p_filesz(endian),
            executable: header.p_flags(endian).contains(elf::PF_X),
        })
        .collect()
}

#[cfg(test)]
mod tests;
