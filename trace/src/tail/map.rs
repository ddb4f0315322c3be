//! A preallocated file in a shared mapping, written through the mapping only.
//!
//! Every byte has its place on the device before the file is mapped, so that a disk that fills up later does not end the
//! process with SIGBUS. File systems that look for another place at each write (copy on write) cannot promise that; there
//! no mapping is made. What remains: who cuts the file short while it is written ends the writer; the file's mode (0600)
//! leaves that to its owner.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{PAGE, ROW};

/// The mapping of a tail's file.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    length: usize,
    rows: usize,
    file: File,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is bound to a thread.
unsafe impl Send for Map {}
// SAFETY: writing takes `&mut self`, and nothing is read back.
unsafe impl Sync for Map {}

impl Map {
    /// Fills a new, empty file to its whole length and maps it.
    pub(crate) fn create(file: File, rows: u32) -> io::Result<Map> {
        let length = PAGE + rows as usize * ROW;
        reserve::check(&file)?;
        reserve::fill(&file, length as u64)?;
        // SAFETY: a new mapping at a place that the system chooses, of a file that is open for reading and writing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Map { base, length, rows: rows as usize, file })
    }

    /// Rows of the ring.
    pub(crate) fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// Whether it is the mapping of this file.
    pub(crate) fn is_of(&self, file: &File) -> bool {
        use std::os::unix::fs::MetadataExt;
        let ids = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
        matches!((ids(&self.file), ids(file)), (Ok(own), Ok(other)) if own == other)
    }

    /// Writes a row into its place in the ring.
    #[inline]
    pub(crate) fn put_row(&mut self, ordinal: u64, row: &[u8; ROW]) {
        let place = (ordinal % self.rows as u64) as usize;
        // SAFETY: `place` is below `rows`, and the mapping holds a page and `rows` rows; nobody else writes into it.
        unsafe {
            let to = self.base.as_ptr().add(PAGE + place * ROW);
            std::ptr::copy_nonoverlapping(row.as_ptr(), to, ROW);
        }
    }

    /// Writes bytes of the header page.
    pub(crate) fn put_head(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE, "inside the header page");
        // SAFETY: the range lies in the header page, as was just checked.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len());
        }
    }

    /// Stores a counter of the header page; everything that was written before is visible to who sees it.
    #[inline]
    pub(crate) fn publish(&self, offset: usize, value: u64) {
        assert!(offset + 8 <= PAGE && offset.is_multiple_of(8), "a counter in the header page");
        // SAFETY: the place lies in the header page and is aligned (the mapping begins at a page); it is only ever
        // written as a whole, through this function.
        let counter = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast::<u64>()) };
        counter.store(value.to_le(), Ordering::Release);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing refers to it any more.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.length);
        }
    }
}

/// Room on the device.
mod reserve {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    /// Magic numbers of statfs(2) for file systems that write every page to a new place.
    #[cfg(target_os = "linux")]
    const COPY_ON_WRITE: [(i64, &str); 3] = [(0x9123_683e, "btrfs"), (0x2fc1_2fc1, "zfs"), (0xca45_1a4e, "bcachefs")];

    /// Whether room that is taken once stays taken.
    #[cfg(target_os = "linux")]
    pub(super) fn check(file: &File) -> io::Result<()> {
        let found = rustix::fs::fstatfs(file)?.f_type as i64 & 0xffff_ffff;
        match COPY_ON_WRITE.iter().find(|(magic, _)| *magic == found) {
            Some((_, name)) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{name} gives a page a new place at each write, so that room cannot be reserved"),
            )),
            None => Ok(()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn check(_: &File) -> io::Result<()> {
        Ok(())
    }

    /// Takes the room for so many bytes.
    pub(super) fn fill(file: &File, length: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        // Zeroes take the same room.
        let zeroes = [0; 64 << 10];
        let mut at = 0;
        while at < length {
            let part = (length - at).min(zeroes.len() as u64);
            file.write_all_at(zeroes.get(..part as usize).unwrap_or(&zeroes), at)?;
            at += part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::Map;
    use crate::tail::layout::{COMMITTED_AT, PAGE, ROW};

    #[test]
    fn what_is_written_is_in_the_file_at_once() {
        let file = tempfile::tempfile().expect("a file");
        let mut map = Map::create(file.try_clone().expect("a second handle"), 16).expect("map");
        assert_eq!(file.metadata().expect("metadata").len(), (PAGE + 16 * ROW) as u64);
        map.put_row(17, &[7; ROW]);
        map.publish(COMMITTED_AT, 18);
        let mut row = [0; ROW];
        file.read_exact_at(&mut row, (PAGE + ROW) as u64).expect("read");
        assert_eq!(row, [7; ROW]);
        let mut count = [0; 8];
        file.read_exact_at(&mut count, COMMITTED_AT as u64).expect("read");
        assert_eq!(u64::from_le_bytes(count), 18);
    }
}
