//! Attaching many probes of one file at once (`uprobe_multi`, Linux 6.6 and newer), which aya 0.14 does not know.
//!
//! A probe that is attached by itself costs two of the kernel's grace periods when it is taken off, one after the other
//! under one lock: with the processors busy, as they are where ranks spin, a few hundred probes then take over a minute.
//! One link for all probes of a file is taken off at once. aya reads the object and makes the maps; here its programs are
//! loaded a second time, for this kind of link.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::generated::bpf_insn;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
/// Most probes of one link.
pub(crate) const MAX_POINTS: usize = 1 << 20;

/// Start of `union bpf_attr` for `BPF_PROG_LOAD`, up to the last field that is set here.
#[repr(C)]
#[derive(Default)]
struct ProgramAttribute {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// `union bpf_attr` for `BPF_LINK_CREATE` with its part for `uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkAttribute {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    /// The union's next 8-byte word begins behind it.
    padding: u32,
}

const _: () = assert!(size_of::<ProgramAttribute>() == 72 && size_of::<LinkAttribute>() == 64);

/// When a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the instruction at the place.
    Entry,
    /// When the function returns that begins at the place.
    Return,
}

/// A place in a file, and the number that the program is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) offset: u64,
    pub(crate) cookie: u64,
}

/// Programs loaded for this kind of link. Dropping it takes them off.
#[derive(Debug)]
pub(crate) struct Multi {
    programs: HashMap<&'static str, OwnedFd>,
    links: Vec<OwnedFd>,
}

impl Multi {
    /// Loads the programs of `names`; they share the maps of `ebpf`, none of which may have been taken yet. An error
    /// if the kernel does not know this kind of link.
    pub(crate) fn load(object: &[u8], ebpf: &Ebpf, names: &[&'static str]) -> io::Result<Multi> {
        let maps: HashMap<&str, RawFd> =
            ebpf.maps().filter_map(|(name, map)| Some((name, data_of(map)?.fd().as_fd().as_raw_fd()))).collect();
        let mut object = aya_obj::Object::parse(object).map_err(io::Error::other)?;
        let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let definitions = std::mem::take(&mut object.maps);
        if let Some(name) = definitions.keys().find(|name| !maps.contains_key(name.as_str())) {
            return Err(io::Error::other(format!("no map {name}")));
        }
        let used = definitions.iter().filter_map(|(name, map)| Some((name.as_str(), *maps.get(name.as_str())?, map)));
        object.relocate_maps(used, &sections).map_err(io::Error::other)?;
        object.relocate_calls(&sections).map_err(io::Error::other)?;

        let mut programs = HashMap::new();
        for &name in names {
            let program = object.programs.get(name).ok_or_else(|| io::Error::other(format!("no program {name}")))?;
            let function = object
                .functions
                .get(&program.function_key())
                .ok_or_else(|| io::Error::other(format!("no code of {name}")))?;
            programs.insert(name, load_program(name, &function.instructions, &program.license)?);
        }
        let multi = Multi { programs, links: Vec::new() };
        multi.probe_kernel(names)?;
        Ok(multi)
    }

    /// Attaches a program to places in a file: all, or none and an error.
    pub(crate) fn attach(&mut self, name: &str, path: &Path, points: &[Point], when: When) -> io::Result<()> {
        if points.is_empty() {
            return Ok(());
        }
        let link = self.link(name, path, points, when)?;
        self.links.push(link);
        Ok(())
    }

    /// Takes off the link that was made last.
    pub(crate) fn detach_last(&mut self) {
        self.links.pop();
    }

    /// A kernel that knows the link finds that the root folder is no file; one that does not, that the request is
    /// invalid.
    fn probe_kernel(&self, names: &[&'static str]) -> io::Result<()> {
        let Some(name) = names.first() else { return Ok(()) };
        match self.link(name, Path::new("/"), &[Point { offset: 0, cookie: 0 }], When::Entry) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other("a folder was probed")),
        }
    }

    fn link(&self, name: &str, path: &Path, points: &[Point], when: When) -> io::Result<OwnedFd> {
        let program = self.programs.get(name).ok_or_else(|| io::Error::other(format!("no program {name}")))?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        let offsets: Vec<u64> = points.iter().map(|point| point.offset).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.cookie).collect();
        let attribute = LinkAttribute {
            prog_fd: program.as_raw_fd() as u32,
            attach_type: BPF_TRACE_UPROBE_MULTI,
            path: path.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            cookies: cookies.as_ptr() as u64,
            cnt: u32::try_from(points.len()).map_err(io::Error::other)?,
            multi_flags: if when == When::Return { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
            ..LinkAttribute::default()
        };
        // SAFETY: path, offsets and cookies live until the call is over, each with as many entries as said.
        unsafe { bpf(BPF_LINK_CREATE, &attribute) }
    }
}

fn load_program(name: &str, instructions: &[bpf_insn], license: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let mut short = [0; 16];
    // The kernel keeps 15 letters and a zero.
    for (place, letter) in short.iter_mut().take(15).zip(name.bytes()) {
        *place = letter;
    }
    let attribute = ProgramAttribute {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        prog_name: short,
        expected_attach_type: BPF_TRACE_UPROBE_MULTI,
        ..ProgramAttribute::default()
    };
    // SAFETY: instructions and licence live until the call is over.
    unsafe { bpf(BPF_PROG_LOAD, &attribute) }
}

/// The bpf system call, for commands that give a descriptor.
///
/// # Safety
///
/// What the attribute points to must be readable as the command reads it.
unsafe fn bpf<A>(command: libc::c_int, attribute: &A) -> io::Result<OwnedFd> {
    // SAFETY: the attribute is readable for its size; the rest is the caller's promise.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), size_of::<A>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The map behind aya's type, for the types that the object has.
fn data_of(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::LruHashMap(data) | Map::PerCpuArray(data) | Map::RingBuf(data) => {
            Some(data)
        }
        _ => None,
    }
}
