//! A driver that does not answer: a real ioctl on a device node that blocks in the kernel, fails and is tried again.
//!
//! The argument of the call lies in a page that is missing on purpose: the kernel's copy of it waits (userfaultfd) until
//! this program's 'driver' thread supplies it, as a driver waits for its device. The supplied value is no valid argument,
//! so the call fails and the caller tries again, as the drivers do that this was modelled after.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

/// Any device node will do whose ioctl reads an argument; this one is everywhere.
const DEVICE: &str = "/dev/ptmx";
/// A line discipline that does not exist: the call fails once it has its argument.
const NO_SUCH_DISCIPLINE: u32 = 29;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

#[repr(C)]
struct ApiRequest {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterRequest {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct CopyRequest {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls the driver again and again; each call is answered after `each` and fails. Never returns but with an error.
pub(crate) fn retry_for_ever(each: Duration) -> io::Result<()> {
    // SAFETY: sysconf takes no pointers.
    let page = check(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })? as usize;
    let missing = map(page)?;
    let answer = map(page)?;
    // SAFETY: `answer` is a fresh page of at least four bytes, aligned to a page.
    unsafe { answer.cast::<u32>().write(NO_SUCH_DISCIPLINE) };
    let faults = register(missing as u64, page as u64)?;
    let (dst, src) = (missing as u64, answer as u64);
    std::thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || answer_faults(faults, dst, src, page as u64, each))?;
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(DEVICE)?;
    loop {
        // SAFETY: `missing` is a private mapping of one page that nothing else refers to.
        check(i64::from(unsafe { libc::madvise(missing, page, libc::MADV_DONTNEED) }))?;
        // SAFETY: the argument points to a mapped int; the kernel fills the page in through the other thread.
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TIOCSETD, missing) };
    }
}

fn map(page: usize) -> io::Result<*mut libc::c_void> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
}

fn register(start: u64, len: u64) -> io::Result<std::fs::File> {
    // SAFETY: the call takes flags only; the descriptor it returns is ours alone.
    let faults = unsafe {
        let descriptor = check(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC))?;
        std::fs::File::from(OwnedFd::from_raw_fd(descriptor as i32))
    };
    let mut api = ApiRequest { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the request has the layout that UFFDIO_API asks for.
    check(i64::from(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_API, &raw mut api) }))?;
    let mut register = RegisterRequest { start, len, mode: UFFDIO_REGISTER_MODE_MISSING, ioctls: 0 };
    // SAFETY: the request has the layout that UFFDIO_REGISTER asks for; the range is a mapping of ours.
    check(i64::from(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) }))?;
    Ok(faults)
}

/// Supplies the page after `each`, whenever it is asked for.
fn answer_faults(mut faults: std::fs::File, dst: u64, src: u64, len: u64, each: Duration) {
    let mut message = [0_u8; 32];
    while faults.read(&mut message).is_ok() {
        std::thread::sleep(each);
        let mut copy = CopyRequest { dst, src, len, mode: 0, copied: 0 };
        // SAFETY: source and destination are mappings of `len` bytes; the request has UFFDIO_COPY's layout.
        unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_COPY, &raw mut copy) };
    }
}
