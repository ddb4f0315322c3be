//! Opens a file to read it, if it is a regular one: a pipe or a device could make the reader wait for ever.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file, following links; anything else is an error of kind `InvalidInput`.
#[cfg(any(feature = "testgen", feature = "pack"))]
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at before, since opening a device may have effects, and after, since the name may lead elsewhere by then.
    check(&fs::metadata(path)?)?;
    open(path, 0)
}

/// Opens a regular file of a trace: a symbolic link is an error as well. Whoever made the trace could let one lead to any
/// file that the reader may read, and have its bytes shown in a message.
pub(crate) fn open_of_trace(path: &Path) -> io::Result<File> {
    check(&fs::symlink_metadata(path)?)?;
    #[cfg(unix)]
    let flags = libc::O_NOFOLLOW;
    #[cfg(not(unix))]
    let flags = 0;
    open(path, flags)
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe would wait for its other end. Regular files take no notice of it.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags);
    }
    #[cfg(not(unix))]
    let _ = flags;
    let file = options.open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(found: &fs::Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let what = if found.is_symlink() { " but a symbolic link, which is not followed here" } else { "" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is not a regular file{what}")))
}
