//! Small readers of /proc. Everything may vanish or be refused at any time: each answer is an option or an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most bytes read of one /proc file, so that a hostile environment or command line takes no memory.
const MAX_FILE: u64 = 4 << 20;

/// Reads a /proc file, at most 4 MiB of it.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fields of /proc/PID/stat after the command name, from `state` (field 3) on.
pub fn stat_fields(path: impl AsRef<Path>) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&read(path).ok()?).into_owned();
    // The command name may hold blanks and parentheses: fields begin after the last ')'.
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Start time of a process in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    stat_fields(format!("/proc/{pid}/stat"))?.get(19)?.parse().ok()
}

/// The parent's process id.
pub fn parent(pid: u32) -> Option<u32> {
    stat_fields(format!("/proc/{pid}/stat"))?.get(1)?.parse().ok()
}

/// The executable's path as the process sees it.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    let mut threads: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    threads
}

/// The host's name.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
