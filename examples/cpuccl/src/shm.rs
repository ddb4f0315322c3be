//! The shared mapping of one communicator: start-up, doorbells, channels.
//!
//! Layout: a header page, one doorbell and one split slot per rank, then two times `n` ring channels (from rank `i` to `i + 1`; one for small calls, one for large) and `n * n` channels for
//! sends and receives (from `i` to `j`). The file is sparse: a channel that is never used costs no memory.
//!
//! Nobody checks whether a peer lives. A process that died simply never posts again.

use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::{mem, ptr, thread};

use crate::types::{Error, Result, UniqueId, fail};

/// Bytes that one step moves at most.
pub const CHUNK: usize = 32 * 1024;
/// Steps that a sender may be ahead of its receiver. What fits is buffered: a small send returns without a receiver, a large one does not.
pub const SLOTS: u32 = 4;
/// Upper bound on the ranks of a communicator; the mapping grows with the square.
pub const MAX_RANKS: usize = 256;

/// Yields before a thread sleeps. With more ranks than cores a yield is what lets the peer run.
const YIELDS: u32 = 8;

#[repr(C, align(4096))]
struct Header {
    /// Ranks that have mapped the file.
    arrived: AtomicU32,
    /// Bumped whenever a rank fills its split slot.
    split_bell: AtomicU32,
}

#[repr(C, align(64))]
struct Doorbell {
    /// Bumped by peers after each post and each release that concerns this rank, and by this rank to stop itself.
    rung: AtomicU32,
    /// Not 0 while the rank's worker sleeps on `rung`.
    asleep: AtomicU32,
}

/// Colour and key of one rank's splits. Two entries, used in turn: a rank can start split `g + 2` only after all have read those of `g`.
#[repr(C, align(64))]
struct SplitSlot {
    generation: AtomicU32,
    entries: [[AtomicI32; 2]; 2],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ChannelControl {
    posted: AtomicU32,
    pad: [u32; 15],
    taken: AtomicU32,
}

const CHANNEL_BYTES: usize = mem::size_of::<ChannelControl>().next_multiple_of(4096) + SLOTS as usize * CHUNK;

/// One communicator's mapping, as seen by one rank.
#[derive(Debug)]
pub struct Shared {
    base: *mut u8,
    len: usize,
    ranks: usize,
}

// SAFETY: the mapping is plain memory that lives until drop; what is shared in it is accessed through atomics, and channel data only
// by the single producer or consumer that the atomics designate.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A one-way channel of [`SLOTS`] chunks with one producer and one consumer.
#[derive(Clone, Copy, Debug)]
pub struct Channel<'a> {
    control: &'a ChannelControl,
    data: *mut u8,
}

impl Shared {
    /// Maps the communicator that `id` names and waits, without limit, until `ranks` processes have done so.
    pub fn open(id: &UniqueId, ranks: usize) -> Result<Self> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            return fail(
                Error::InvalidArgument,
                &format!("a communicator of {ranks} ranks; 1 to {MAX_RANKS} are possible"),
            );
        }
        let path = shared_path(id);
        let shared = Self::map(&path, ranks)
            .or_else(|error| fail(Error::System, &format!("cannot map {}: {error}", path.display())))?;
        let arrived = &shared.header().arrived;
        let mut seen = arrived.fetch_add(1, Ordering::SeqCst) + 1;
        if seen as usize >= ranks {
            // All have mapped it: without a name it vanishes with the last process, however that ends.
            let _ = fs::remove_file(&path);
            futex_wake(arrived);
        }
        while (seen as usize) < ranks {
            futex_wait(arrived, seen);
            seen = arrived.load(Ordering::SeqCst);
        }
        Ok(shared)
    }

    fn map(path: &Path, ranks: usize) -> std::io::Result<Self> {
        let len = channel_offset(ranks, 2 * ranks + ranks * ranks);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        grow(&file, len)?;
        // SAFETY: a fresh shared mapping of an open file at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), len, ranks })
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping starts with a header and is page-aligned; a new file is all zero, which is a valid header.
        unsafe { &*self.base.cast() }
    }

    fn doorbell(&self, rank: usize) -> &Doorbell {
        assert!(rank < self.ranks);
        // SAFETY: doorbells follow the header; the offset is inside the mapping and aligned, zero is a valid value.
        unsafe { &*self.base.add(mem::size_of::<Header>() + rank * mem::size_of::<Doorbell>()).cast() }
    }

    fn split_slot(&self, rank: usize) -> &SplitSlot {
        assert!(rank < self.ranks);
        let offset = mem::size_of::<Header>() + self.ranks * mem::size_of::<Doorbell>();
        // SAFETY: split slots follow the doorbells; the offset is inside the mapping and aligned, zero is a valid value.
        unsafe { &*self.base.add(offset + rank * mem::size_of::<SplitSlot>()).cast() }
    }

    fn channel(&self, index: usize) -> Channel<'_> {
        assert!(index < 2 * self.ranks + self.ranks * self.ranks);
        // SAFETY: `index` is below the number of channels the mapping was sized for; offsets are page-aligned and zero is a valid control.
        unsafe {
            let start = self.base.add(channel_offset(self.ranks, index));
            Channel { control: &*start.cast(), data: start.add(CHANNEL_BYTES - SLOTS as usize * CHUNK) }
        }
    }

    /// The ring channel from `rank` to the next rank. Small calls have one of their own, as NCCL's low-latency protocol has buffers
    /// of its own: a rank that is in a small call waits for ever for one that is in a large call.
    pub fn ring(&self, rank: usize, small: bool) -> Channel<'_> {
        assert!(rank < self.ranks);
        self.channel(if small { self.ranks + rank } else { rank })
    }

    /// The channel that carries `from`'s sends to `to`.
    pub fn pair(&self, from: usize, to: usize) -> Channel<'_> {
        assert!(from < self.ranks && to < self.ranks);
        self.channel(2 * self.ranks + from * self.ranks + to)
    }

    /// Tells `rank` that a channel of its changed.
    pub fn ring_bell(&self, rank: usize) {
        let bell = self.doorbell(rank);
        // Both sides are sequentially consistent: either this sees `asleep`, or the sleeper's kernel check sees the new `rung`.
        bell.rung.fetch_add(1, Ordering::SeqCst);
        if bell.asleep.load(Ordering::SeqCst) != 0 {
            futex_wake(&bell.rung);
        }
    }

    /// The state of `rank`'s doorbell, to be read before looking at the channels and given to [`Self::wait_bell`] after.
    pub fn bell(&self, rank: usize) -> u32 {
        self.doorbell(rank).rung.load(Ordering::SeqCst)
    }

    /// Waits until `rank`'s doorbell is no longer at `seen`; may return early.
    pub fn wait_bell(&self, rank: usize, seen: u32) {
        let bell = self.doorbell(rank);
        for _ in 0..YIELDS {
            if bell.rung.load(Ordering::Acquire) != seen {
                return;
            }
            thread::yield_now();
        }
        bell.asleep.store(1, Ordering::SeqCst);
        futex_wait(&bell.rung, seen);
        bell.asleep.store(0, Ordering::SeqCst);
    }

    /// Publishes this rank's colour and key for its `generation`-th split (counted from 1) and waits, without limit, for all others.
    /// Returns what each rank published.
    pub fn exchange_split(&self, rank: usize, generation: u32, colour: i32, key: i32) -> Vec<(i32, i32)> {
        let entry = generation as usize % 2;
        let own = self.split_slot(rank);
        own.entries[entry][0].store(colour, Ordering::Relaxed);
        own.entries[entry][1].store(key, Ordering::Relaxed);
        own.generation.store(generation, Ordering::SeqCst);
        let bell = &self.header().split_bell;
        bell.fetch_add(1, Ordering::SeqCst);
        futex_wake(bell);
        (0..self.ranks)
            .map(|peer| {
                let slot = self.split_slot(peer);
                loop {
                    let seen = bell.load(Ordering::SeqCst);
                    if slot.generation.load(Ordering::SeqCst) >= generation {
                        break;
                    }
                    futex_wait(bell, seen);
                }
                (slot.entries[entry][0].load(Ordering::Relaxed), slot.entries[entry][1].load(Ordering::Relaxed))
            })
            .collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

impl Channel<'_> {
    /// The free slot that the producer may fill, if there is one.
    pub fn free_slot(&self) -> Option<*mut u8> {
        let posted = self.control.posted.load(Ordering::Relaxed);
        let ahead = posted.wrapping_sub(self.control.taken.load(Ordering::Acquire));
        (ahead < SLOTS).then(|| self.slot(posted))
    }

    /// The oldest filled slot, if there is one.
    pub fn full_slot(&self) -> Option<*const u8> {
        let taken = self.control.taken.load(Ordering::Relaxed);
        let behind = self.control.posted.load(Ordering::Acquire).wrapping_sub(taken);
        (behind > 0).then(|| self.slot(taken).cast_const())
    }

    /// Hands the slot of [`Self::free_slot`] to the consumer.
    pub fn post(&self) {
        self.control.posted.fetch_add(1, Ordering::Release);
    }

    /// Gives the slot of [`Self::full_slot`] back to the producer.
    pub fn release(&self) {
        self.control.taken.fetch_add(1, Ordering::Release);
    }

    fn slot(&self, position: u32) -> *mut u8 {
        // SAFETY: the remainder is below SLOTS, so the slot lies inside the channel's data.
        unsafe { self.data.add((position % SLOTS) as usize * CHUNK) }
    }
}

fn channel_offset(ranks: usize, index: usize) -> usize {
    let fixed = mem::size_of::<Header>() + ranks * (mem::size_of::<Doorbell>() + mem::size_of::<SplitSlot>());
    fixed.next_multiple_of(4096) + index * CHANNEL_BYTES
}

/// Removes the file of a communicator whose ranks were ended before all of them had arrived. Otherwise the last to arrive
/// has removed it.
pub fn remove_left_over(id: &UniqueId) {
    let _ = fs::remove_file(shared_path(id));
}

/// Where the communicator's file lies. Part of the id is enough: it is random.
fn shared_path(id: &UniqueId) -> PathBuf {
    let folder = Path::new("/dev/shm");
    let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
    let name: String = id.internal[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("cpuccl-{name}"))
}

/// Makes the file at least `len` bytes long. A write cannot shrink it, so a rank with another idea of `ranks` hurts nobody's mapping; the byte
/// is the end of the last channel, which carries nothing before all have arrived.
fn grow(file: &File, len: usize) -> std::io::Result<()> {
    file.write_all_at(&[0], len as u64 - 1)
}

fn futex_wait(word: &AtomicU32, seen: u32) {
    // SAFETY: FUTEX_WAIT on a live, aligned word, without a time-out. Any failure (changed word, signal) only means to look again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, ptr::null::<libc::timespec>()) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE only uses the address of a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id of this process's own: the names of two test runs must not meet.
    fn id(tag: u8) -> UniqueId {
        let mut internal = [tag; 128];
        internal[..4].copy_from_slice(&std::process::id().to_le_bytes());
        UniqueId { internal }
    }

    #[test]
    fn a_channel_holds_its_slots_in_order() -> Result<()> {
        let shared = Shared::open(&id(7), 1)?;
        let channel = shared.pair(0, 0);
        for value in 0..SLOTS as u8 {
            let slot = channel.free_slot().expect("a fresh channel has room");
            // SAFETY: the slot is ours until it is posted.
            unsafe { *slot = value };
            channel.post();
        }
        assert!(channel.free_slot().is_none());
        for value in 0..SLOTS as u8 {
            let slot = channel.full_slot().expect("it was posted");
            // SAFETY: the slot is ours until it is released.
            assert_eq!(unsafe { *slot }, value);
            channel.release();
        }
        assert!(channel.full_slot().is_none());
        Ok(())
    }

    #[test]
    fn the_name_is_gone_once_all_have_mapped_it() -> Result<()> {
        let id = id(9);
        let _shared = Shared::open(&id, 1)?;
        assert!(!shared_path(&id).exists());
        Ok(())
    }
}
