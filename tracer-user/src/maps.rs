//! What a process has mapped: `/proc/PID/maps`, and how a mapped file can be opened from here.
//!
//! Not here: what the files contain (`elf`), which of them are libraries to probe (`points`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What names a file whatever its path: probes are attached per inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Device, in the kernel's `major:minor` packed as `stat` gives it.
    pub dev: u64,
    /// Inode.
    pub inode: u64,
}

impl FileKey {
    /// The key of the file at `path`.
    pub fn of(path: &Path) -> io::Result<FileKey> {
        let meta = fs::metadata(path)?;
        Ok(FileKey { dev: meta.dev(), inode: meta.ino() })
    }
}

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// The file; `None` for anonymous memory and the kernel's own areas.
    pub key: Option<FileKey>,
    /// Path as the process's mount name space has it, without the mark of a deleted file; `[heap]` and the like for
    /// the kernel's areas, empty if there is none.
    pub path: PathBuf,
    /// Whether it may be executed.
    pub executable: bool,
    /// The file has no name any more.
    pub deleted: bool,
}

impl Mapping {
    /// Whether it maps a file.
    pub fn is_file(&self) -> bool {
        self.key.is_some()
    }

    /// Whether the address is inside.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Offset in the file of an address inside.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        if !self.contains(address) {
            return None;
        }
        (address - self.start).checked_add(self.file_offset)
    }
}

/// Mark that the kernel puts behind the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// The mappings of a process, in address order.
///
/// The kernel names the device of a file on btrfs and overlayfs otherwise than `stat` does; where an executable mapping's
/// file can be opened, its key is the one of `stat`, so that equal files have equal keys whichever way they were found.
pub fn read_maps(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    let mut maps = parse_maps(&text);
    let mut last: Option<(PathBuf, FileKey, FileKey)> = None;
    for mapping in &mut maps {
        let Some(key) = mapping.key else { continue };
        match &last {
            Some((path, printed, real)) if *path == mapping.path && *printed == key => mapping.key = Some(*real),
            _ => {
                let real = FileKey::of(&openable_path(pid, mapping)).unwrap_or(key);
                // Another file may have taken the name since: the inode says whether it is the one that is mapped.
                let real = if real.inode == key.inode { real } else { key };
                last = Some((mapping.path.clone(), key, real));
                mapping.key = Some(real);
            }
        }
    }
    Ok(maps)
}

/// Reads the text of a `maps` file; lines that are none are left out.
pub fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// A path by which the mapped file can be opened from this process's mount name space.
///
/// The path below `/proc/PID/root` for a file that has a name, its entry in `map_files` (which takes CAP_SYS_ADMIN or
/// CAP_CHECKPOINT_RESTORE) for one that has none.
pub fn openable_path(pid: u32, mapping: &Mapping) -> PathBuf {
    if mapping.deleted {
        return PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    }
    let mut path = PathBuf::from(format!("/proc/{pid}/root"));
    path.push(mapping.path.strip_prefix("/").unwrap_or(&mapping.path));
    path
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = field(line)?;
    let (mode, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, rest) = field(rest)?;
    let path = rest.trim_ascii_start();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let (start, end) = (hex(start)?, hex(end)?);
    if end < start {
        return None;
    }
    let inode: u64 = inode.parse().ok()?;
    let dev = make_dev(hex(major)?, hex(minor)?);
    let (path, deleted) = match path.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (path, false),
    };
    Some(Mapping {
        start,
        end,
        file_offset: hex(offset)?,
        key: (inode != 0).then_some(FileKey { dev, inode }),
        path: unescape(path),
        executable: mode.as_bytes().get(2) == Some(&b'x'),
        deleted,
    })
}

/// The text up to the next blank, and what follows it.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let text = std::str::from_utf8(line.get(..end)?).ok()?;
    if text.is_empty() {
        return None;
    }
    Some((text, line.get(end + 1..).unwrap_or_default()))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// `makedev` of glibc: how `stat` packs a device number.
fn make_dev(major: u64, minor: u64) -> u64 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32)
}

/// The kernel writes a newline in a path as `\012`, and nothing else so.
fn unescape(path: &[u8]) -> PathBuf {
    if !path.contains(&b'\\') {
        return PathBuf::from(OsStr::from_bytes(path));
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(tail) => {
                out.push(b'\n');
                rest = tail;
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::{FileKey, openable_path, parse_maps, read_maps};

    const TEXT: &[u8] = b"\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:01 12345                      /usr/bin/cat
55d0c0a02000-55d0c0a07000 r-xp 00002000 fe:01 12345                      /usr/bin/cat
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 r-xp 0001f000 103:02 99 /opt/my libs/lib nccl.so.2 (deleted)
7f0000002000-7f0000003000 rw-p 00000000 00:00 0 
7f0000003000-7f0000004000 r-xp 00000000 00:01 7                          /a\\012b
garbage
7f0000005000-7f0000004000 r-xp 00000000 00:01 7                          /backwards
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]";

    #[test]
    fn reads_files_anonymous_memory_and_deleted_names_with_spaces() {
        let maps = parse_maps(TEXT);
        assert_eq!(maps.len(), 7);
        assert_eq!(maps[0].key, Some(FileKey { dev: 0xfe01, inode: 12345 }));
        assert!(!maps[0].executable && maps[1].executable);
        assert_eq!(maps[1].offset_of(0x55d0_c0a0_2010), Some(0x2010));
        assert_eq!(maps[1].offset_of(0x55d0_c0a0_7000), None);
        assert_eq!((maps[2].key, maps[2].path.as_path()), (None, Path::new("[heap]")));
        assert_eq!(maps[3].path, PathBuf::from("/opt/my libs/lib nccl.so.2"));
        assert!(maps[3].deleted);
        assert_eq!(maps[3].key.map(|key| key.dev), Some(0x10302));
        assert_eq!(maps[4].path, PathBuf::new());
        assert_eq!(maps[5].path, PathBuf::from("/a\nb"));
        assert_eq!(maps[6].start, 0xffff_ffff_ff60_0000);
    }

    #[test]
    fn a_deleted_file_is_opened_by_its_mapping() {
        let maps = parse_maps(TEXT);
        assert_eq!(openable_path(7, &maps[0]), PathBuf::from("/proc/7/root/usr/bin/cat"));
        assert_eq!(openable_path(7, &maps[3]), PathBuf::from("/proc/7/map_files/7f0000000000-7f0000001000"));
    }

    #[test]
    fn the_own_executable_has_the_key_of_stat() {
        let maps = read_maps(std::process::id()).expect("own maps");
        let exe = FileKey::of(Path::new("/proc/self/exe")).expect("own executable");
        assert!(maps.iter().any(|mapping| mapping.key == Some(exe) && mapping.executable));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_maps(&bytes);
        }

        #[test]
        fn damaged_lines_are_read_without_panic(at in 0..TEXT.len(), byte in any::<u8>()) {
            let mut text = TEXT.to_vec();
            text[at] = byte;
            prop_assert!(parse_maps(&text).len() <= 10);
        }
    }
}
