//! Opens a file to read it, if it is a regular one: a pipe or a device could make the reader wait for ever.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file, following links; anything else is an error of kind `InvalidInput`.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at before, since opening a device may have effects, and after, since the name may lead elsewhere by then.
    check(&fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe would wait for its other end. Regular files take no notice of it.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(found: &fs::Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}
