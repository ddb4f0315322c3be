//! Finds libraries as the dynamic linker of glibc does: RPATH, LD_LIBRARY_PATH, RUNPATH, its cache, the default folders.
//!
//! Not here: audit libraries, LD_CONFIG variants, musl's own rules (its folders are among the defaults).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::elf::{ElfError, ElfInfo};
use crate::predict::value;

/// Where libraries are when nothing else says so.
const DEFAULT_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
const CACHE: &str = "/etc/ld.so.cache";
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The old part of the cache that may stand before the new one.
const OLD_CACHE_MAGIC: &[u8] = b"ld.so-1.7.0\0";
/// Largest cache that is read.
const MAX_CACHE: u64 = 64 << 20;
/// `flags` of an entry for 64-bit x86 libraries: ELF of libc 6, x86-64.
const CACHE_X86_64: u32 = 0x0303;

/// What an ELF file needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Libraries, found.
    pub(crate) found: Vec<PathBuf>,
    /// Names of libraries that were not.
    pub(crate) missing: Vec<String>,
    /// Its dynamic linker.
    pub(crate) interpreter: Option<PathBuf>,
    /// RPATH folders for the libraries that its libraries need.
    pub(crate) rpath: Vec<PathBuf>,
}

/// The dynamic linker's view for one environment.
#[derive(Debug)]
pub(crate) struct Loader {
    env: Vec<(OsString, OsString)>,
    library_path: Vec<PathBuf>,
    cache: FxHashMap<String, Vec<PathBuf>>,
}

impl Loader {
    pub(crate) fn new(env: &[(OsString, OsString)]) -> Loader {
        let library_path = value(env, "LD_LIBRARY_PATH")
            .map(|list| list.as_bytes().split(|byte| matches!(byte, b':' | b';')).map(folder).collect())
            .unwrap_or_default();
        let cache = match fs::metadata(CACHE) {
            Ok(meta) if meta.len() <= MAX_CACHE => fs::read(CACHE).map(|bytes| parse_cache(&bytes)).unwrap_or_default(),
            _ => FxHashMap::default(),
        };
        Loader { env: env.to_vec(), library_path, cache }
    }

    pub(crate) fn env(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    /// Libraries that are loaded into every program.
    pub(crate) fn preloads(&self) -> Vec<PathBuf> {
        let list = value(&self.env, "LD_PRELOAD").map(|list| list.as_bytes().to_vec()).unwrap_or_default();
        list.split(|byte| matches!(byte, b':' | b' '))
            .filter(|name| !name.is_empty())
            .filter_map(|name| {
                let name = String::from_utf8_lossy(name);
                if name.contains('/') { Some(PathBuf::from(&*name)) } else { self.find(&name, &[], &[]) }
            })
            .filter(|path| path.is_file())
            .collect()
    }

    /// What a file needs; `inherited`: RPATH folders of the files that need it.
    pub(crate) fn needs(&self, path: &Path, inherited: &[PathBuf]) -> Result<Needs, ElfError> {
        let elf = ElfInfo::read_needs(path)?;
        let origin = fs::canonicalize(path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
        let folders = |list: &[String]| -> Vec<PathBuf> { list.iter().map(|folder| expand(folder, &origin)).collect() };
        let runpath = folders(elf.runpath());
        // A file with a RUNPATH takes no notice of any RPATH; the others look in their own, then in their users'.
        let mut rpath = if runpath.is_empty() { folders(elf.rpath()) } else { Vec::new() };
        rpath.extend_from_slice(inherited);
        let own: &[PathBuf] = if runpath.is_empty() { &rpath } else { &[] };
        let mut needs =
            Needs { interpreter: elf.interpreter().map(Path::to_owned), rpath: rpath.clone(), ..Needs::default() };
        for name in elf.needed() {
            let found = if name.contains('/') {
                Some(expand(name, &origin)).filter(|path| path.is_file())
            } else {
                self.find(name, own, &runpath)
            };
            match found {
                Some(path) => needs.found.push(path),
                None => needs.missing.push(name.clone()),
            }
        }
        Ok(needs)
    }

    fn find(&self, name: &str, rpath: &[PathBuf], runpath: &[PathBuf]) -> Option<PathBuf> {
        let listed = rpath.iter().chain(&self.library_path).chain(runpath).map(|folder| folder.join(name));
        let cached = self.cache.get(name).into_iter().flatten().cloned();
        let default = DEFAULT_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        listed.chain(cached).chain(default).find(|path| path.is_file())
    }
}

/// A folder of a search list; an empty one is the current folder.
fn folder(text: &[u8]) -> PathBuf {
    if text.is_empty() { PathBuf::from(".") } else { PathBuf::from(std::ffi::OsStr::from_bytes(text)) }
}

/// Puts in the names that the dynamic linker knows.
fn expand(text: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    let replaced = text
        .replace("${ORIGIN}", &origin)
        .replace("$ORIGIN", &origin)
        .replace("${LIB}", "lib/x86_64-linux-gnu")
        .replace("$LIB", "lib/x86_64-linux-gnu")
        .replace("${PLATFORM}", "x86_64")
        .replace("$PLATFORM", "x86_64");
    PathBuf::from(replaced)
}

/// Library names and their files, from the dynamic linker's cache.
fn parse_cache(bytes: &[u8]) -> FxHashMap<String, Vec<PathBuf>> {
    let mut libraries: FxHashMap<String, Vec<PathBuf>> = FxHashMap::default();
    let Some(base) = new_cache(bytes) else { return libraries };
    let Some(cache) = bytes.get(base..) else { return libraries };
    let Some(count) = word(cache, 20) else { return libraries };
    // Header: 20 bytes magic and version, count, length of strings, flags, unused; then entries of 24 bytes.
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let text = |at: u32| -> Option<&str> {
        let rest = cache.get(at as usize..)?;
        let end = rest.iter().take(4096).position(|&byte| byte == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    };
    for entry in cache.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY).take(count as usize) {
        let (Some(flags), Some(key), Some(file)) = (word(entry, 0), word(entry, 4), word(entry, 8)) else { continue };
        if flags & 0xffff != CACHE_X86_64 {
            continue;
        }
        if let (Some(name), Some(file)) = (text(key), text(file)) {
            libraries.entry(name.to_owned()).or_default().push(PathBuf::from(file));
        }
    }
    libraries
}

/// Where the new form of the cache begins.
fn new_cache(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(CACHE_MAGIC) {
        return Some(0);
    }
    if !bytes.starts_with(OLD_CACHE_MAGIC) {
        return None;
    }
    // Old entries of 12 bytes stand before it; it begins on the next multiple of 8.
    let entries = word(bytes, 12)? as usize;
    let base = entries.checked_mul(12)?.checked_add(16)?.checked_next_multiple_of(8)?;
    bytes.get(base..)?.starts_with(CACHE_MAGIC).then_some(base)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use proptest::prelude::*;

    use super::{CACHE, CACHE_MAGIC, CACHE_X86_64, Loader, expand, parse_cache};

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let start = 48 + 24 * entries.len();
        for (flags, name, file) in entries {
            table.extend_from_slice(&flags.to_le_bytes());
            for text in [name, file] {
                table.extend_from_slice(&((start + strings.len()) as u32).to_le_bytes());
                strings.extend_from_slice(text.as_bytes());
                strings.push(0);
            }
            table.extend_from_slice(&[0; 12]);
        }
        let mut bytes = CACHE_MAGIC.to_vec();
        bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        bytes.resize(48, 0);
        bytes.extend_from_slice(&table);
        bytes.extend_from_slice(&strings);
        bytes
    }

    #[test]
    fn the_cache_gives_the_files_of_this_machine() {
        let bytes = cache(&[(CACHE_X86_64, "liba.so.1", "/opt/liba.so.1"), (0x0003, "liba.so.1", "/opt32/liba.so.1")]);
        assert_eq!(parse_cache(&bytes).get("liba.so.1"), Some(&vec![PathBuf::from("/opt/liba.so.1")]));
        // Behind the old form.
        let mut old = b"ld.so-1.7.0\0".to_vec();
        old.extend_from_slice(&1_u32.to_le_bytes());
        old.extend_from_slice(&[0; 12]);
        old.resize(32, 0);
        old.extend_from_slice(&bytes);
        assert_eq!(parse_cache(&old).len(), 1);
        assert!(parse_cache(b"ld.so-1.7.0\0").is_empty());
    }

    #[test]
    fn this_machines_cache_knows_its_c_library() {
        let Ok(bytes) = fs::read(CACHE) else {
            crate::skip::skipped(format_args!("no {CACHE}"));
            return;
        };
        assert!(parse_cache(&bytes).contains_key("libc.so.6"));
    }

    #[test]
    fn origin_is_replaced_in_both_forms() {
        assert_eq!(expand("$ORIGIN/../lib", Path::new("/a/b")), PathBuf::from("/a/b/../lib"));
        assert_eq!(expand("${ORIGIN}/x", Path::new("/a")), PathBuf::from("/a/x"));
    }

    /// Builds `libNAME.so` in a folder; false if there is no compiler.
    fn library(folder: &Path, name: &str, args: &[&str]) -> bool {
        let source = folder.join(format!("{name}.c"));
        fs::create_dir_all(folder).expect("writable");
        fs::write(&source, format!("int f_{name}(void) {{ return 1; }}\n")).expect("writable");
        let out = folder.join(format!("lib{name}.so"));
        Command::new("gcc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&out, &source])
            .args(args)
            .status()
            .is_ok_and(|status| status.success())
    }

    #[test]
    fn rpath_is_inherited_and_runpath_is_not() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let into_b = format!("-L{}", b.display());
        if !library(&b, "leaf", &[]) {
            crate::skip::skipped(format_args!("no gcc"));
            return;
        }
        assert!(library(
            &a,
            "run",
            &[&into_b, "-Wl,--no-as-needed", "-lleaf", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../b"]
        ));
        assert!(library(
            &a,
            "old",
            &[&into_b, "-Wl,--no-as-needed", "-lleaf", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../b"]
        ));
        assert!(library(&a, "none", &[&into_b, "-Wl,--no-as-needed", "-lleaf"]));
        let loader = Loader::new(&[]);
        let leaf = |name: &str, inherited: &[PathBuf]| {
            let needs = loader.needs(&a.join(format!("lib{name}.so")), inherited).expect("readable");
            (needs.found.iter().any(|path| path.ends_with("libleaf.so")), needs.rpath)
        };
        assert_eq!(leaf("run", &[]), (true, Vec::new()));
        let (found, rpath) = leaf("old", &[]);
        assert!(found && rpath.len() == 1, "{rpath:?}");
        assert!(!leaf("none", &[]).0);
        assert!(leaf("none", &rpath).0);
        let path: OsString = format!("/nowhere:{}", b.display()).into();
        let loader = Loader::new(&[("LD_LIBRARY_PATH".into(), path)]);
        assert!(loader.needs(&a.join("libnone.so"), &[]).expect("readable").missing.is_empty());
    }

    proptest! {
        #[test]
        fn a_damaged_cache_is_read_without_panic(cut in 0..200_usize, at in 0..200_usize, byte in any::<u8>()) {
            let mut bytes = cache(&[(CACHE_X86_64, "liba.so.1", "/opt/liba.so.1"), (CACHE_X86_64, "libb.so", "/b")]);
            bytes.truncate(cut.max(1));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            parse_cache(&bytes);
        }
    }
}
