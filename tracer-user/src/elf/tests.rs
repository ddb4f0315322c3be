//! Real files, cut and damaged files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;

use super::{ElfError, ElfInfo, FunctionSymbol, Segment};
use crate::maps::read_maps;

/// Compiles C; `None` if there is no compiler.
fn build(folder: &Path, name: &str, text: &str, args: &[&str]) -> Option<PathBuf> {
    let source = folder.join(format!("{name}.c"));
    let out = folder.join(name);
    fs::write(&source, text).expect("writable");
    let status = Command::new("gcc").arg("-o").arg(&out).arg(&source).args(args).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(out);
    }
    crate::skip::skipped(format_args!("no gcc"));
    None
}

const LIBRARY: &str = "\
    int table[4] = {1, 2, 3, 4};\n\
    static __attribute__((noinline)) int hidden(int a) { return a + table[1]; }\n\
    int one(int a) { return hidden(a) * 2; }\n\
    int two(int a) { return one(a) + 1; }\n\
    int alias(int) __attribute__((alias(\"two\")));\n";

#[test]
fn functions_lie_where_the_file_has_them() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(path) =
        build(dir.path(), "libx.so", LIBRARY, &["-shared", "-fPIC", "-O1", "-Wl,-soname,libx.so.1,--no-as-needed"])
    else {
        return;
    };
    let elf = ElfInfo::read(&path).expect("just built");
    assert_eq!(elf.soname(), Some("libx.so.1"));
    assert!(elf.needed().iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed());
    assert!(!elf.is_stripped() && !elf.is_fixed_executable());
    assert!(elf.defines("one") && elf.defines("hidden") && !elf.defines("three") && !elf.defines("table"));
    let two = elf.function("two").expect("defined");
    let alias = elf.function("alias").expect("defined");
    assert!(two.dynamic && two.size > 0);
    assert_eq!((two.offset, two.address), (alias.offset, alias.address));
    assert!(!elf.function("hidden").expect("defined").dynamic);
    let names: Vec<&str> = elf.function_at(two.offset + two.size - 1).into_iter().map(|at| &*at.name).collect();
    assert_eq!(names, ["alias"], "the first of the names at that place");
    assert_eq!(elf.function_at(two.offset + two.size + 0x10_0000), None);
    assert_eq!(elf.offset_of(two.address), Some(two.offset));
    assert_eq!(elf.address_of(two.offset), Some(two.address));
    assert_eq!(elf.offset_of(u64::MAX), None);
    let table = elf.data_address("table").expect("defined");
    assert_eq!(elf.data_at(table), Some("table"));
    assert_eq!(elf.data_at(table + 1), None);
}

#[test]
fn a_stripped_library_keeps_its_dynamic_symbols() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(path) = build(dir.path(), "libx.so", LIBRARY, &["-shared", "-fPIC", "-s"]) else { return };
    let elf = ElfInfo::read(&path).expect("just built");
    assert!(elf.is_stripped() && elf.defines("one") && !elf.defines("hidden"));
}

#[test]
fn an_executable_has_its_own_copy_of_a_librarys_variable() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(library) = build(dir.path(), "libx.so", LIBRARY, &["-shared", "-fPIC"]) else { return };
    let text = "extern int table[4]; int one(int); int main(void) { return one(table[2]); }";
    let library = library.to_str().expect("text");
    let path = build(dir.path(), "program", text, &["-no-pie", "-fno-pie", library]).expect("built above");
    let elf = ElfInfo::read(&path).expect("just built");
    assert!(elf.is_fixed_executable());
    assert!(elf.interpreter().is_some_and(|path| path.to_string_lossy().contains("ld-")));
    let copy = elf.data_address("table").expect("a COPY relocation makes one");
    assert_eq!(elf.data_at(copy), Some("table"));
    assert!(!elf.defines("one"), "it only uses it");
    assert!(elf.defines("main"));
}

#[test]
fn the_load_bias_leads_to_the_functions_of_this_process() {
    let address = libc::getppid as *const () as usize as u64;
    let maps = read_maps(std::process::id()).expect("own maps");
    let mapping = maps.iter().find(|mapping| mapping.contains(address)).expect("the C library is mapped");
    let elf = ElfInfo::read(&mapping.path).expect("the C library");
    let bias = elf.load_bias(mapping).expect("a loaded segment");
    assert_eq!(elf.function("getppid").map(|function| function.address.wrapping_add(bias)), Some(address));
    assert!(!elf.build_id().is_empty());
    for other in maps.iter().filter(|other| other.path == mapping.path) {
        assert_eq!(elf.load_bias(other), Some(bias), "{other:?}");
    }
}

#[test]
fn what_is_no_elf_file_is_said_so() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("x");
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n"] {
        fs::write(&path, bytes).expect("writable");
        assert!(matches!(ElfInfo::read(&path), Err(ElfError::NotElf { .. })), "{bytes:?}");
    }
    assert!(matches!(ElfInfo::read(dir.path()), Err(ElfError::NotElf { .. })), "a folder");
    assert!(matches!(ElfInfo::read(&dir.path().join("none")), Err(ElfError::Io { .. })));
    let mut foreign = sample().to_vec();
    foreign[18] = 183; // e_machine: aarch64
    fs::write(&path, &foreign).expect("writable");
    let error = ElfInfo::read(&path).expect_err("another machine").to_string();
    assert!(error.contains("aarch64"), "{error}");
    foreign[4] = 1;
    fs::write(&path, &foreign).expect("writable");
    let error = ElfInfo::read(&path).expect_err("32-bit").to_string();
    assert!(error.contains("32-bit"), "{error}");
}

/// A small real file: gcc's library, or this machine's `ls`.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("temporary folder");
        let built = build(dir.path(), "libx.so", LIBRARY, &["-shared", "-fPIC", "-nostdlib"]);
        fs::read(built.unwrap_or_else(|| "/bin/ls".into())).expect("readable")
    })
}

/// Reads a damaged file and asks it everything.
fn exercise(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    fs::write(file.path(), bytes).expect("writable");
    let Ok(elf) = ElfInfo::read_with(file.path(), &|name| name.len() < 100) else { return };
    for function in elf.functions() {
        assert!(elf.functions_named(&function.name).any(|other| other == function));
        elf.function_at(function.offset);
        elf.function_at(function.offset.wrapping_add(function.size));
    }
    for at in [0, 1, 0x1000, u64::MAX / 2, u64::MAX] {
        elf.address_of(at);
        elf.offset_of(at);
        elf.data_at(at);
        elf.function_at(at);
    }
}

#[test]
fn every_cut_of_a_file_is_read_or_refused() {
    for cut in (0..sample().len()).step_by(97) {
        exercise(&sample()[..cut]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_headers_are_read_or_refused(
        changes in proptest::collection::vec((0..800_usize, any::<u8>()), 1..8),
    ) {
        let mut bytes = sample().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        exercise(&bytes);
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u64>()), 1..16),
    ) {
        let mut bytes = sample().to_vec();
        let words = bytes.len() / 8;
        for (at, word) in changes {
            let at = at.index(words) * 8;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        exercise(&bytes);
    }
}

/// A program header may say anything: a segment that would reach past the end of all addresses holds what lies behind
/// its start, and nothing before.
#[test]
fn a_segment_without_end_holds_nothing_before_its_start() {
    let segment = |address, offset, file_size| Segment { address, offset, file_size, executable: true };
    let elf = ElfInfo { segments: vec![segment(0x4000, 0x3000, u64::MAX)], ..ElfInfo::default() };
    assert_eq!((elf.offset_of(0x3fff), elf.address_of(0x2fff)), (None, None));
    assert_eq!((elf.offset_of(0), elf.address_of(0)), (None, None));
    assert_eq!((elf.offset_of(0x4001), elf.address_of(0x3001)), (Some(0x3001), Some(0x4001)));
    // Its last bytes would have addresses past the end.
    assert_eq!(elf.address_of(u64::MAX), None);
    let high = ElfInfo { segments: vec![segment(8, u64::MAX - 1, u64::MAX)], ..ElfInfo::default() };
    assert_eq!((high.offset_of(9), high.offset_of(10), high.offset_of(7)), (Some(u64::MAX), None, None));
    // A good segment behind it is found.
    let both =
        ElfInfo { segments: vec![segment(u64::MAX, 0, u64::MAX), segment(0x1000, 0, 0x100)], ..ElfInfo::default() };
    assert_eq!((both.offset_of(0x1010), both.address_of(0x10)), (Some(0x10), Some(0x1010)));
    let unsized_function =
        FunctionSymbol { name: "f".into(), address: 8, offset: u64::MAX - 1, size: 0, dynamic: true };
    let with_function = ElfInfo { functions: vec![unsized_function], ..high };
    assert_eq!(with_function.function_at(3), None);
    assert!(with_function.function_at(u64::MAX).is_some());
}
