//! The file of a segment: created exclusively, grown by whole blocks only.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::stream::ProcessKey;

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
    path: PathBuf,
    /// Bytes up to the end of the last whole append.
    length: u64,
    /// A failed append could not be taken back: nothing may follow.
    broken: bool,
}

/// Name of a stream's segment.
pub(crate) fn segment_name(key: &ProcessKey, number: u32) -> String {
    let host = file_name_of_host(&key.host);
    format!("{host}-{}-{}.{number:04}.rdt", key.pid, key.start_time)
}

/// A host's name as a part of a file name.
pub(crate) fn file_name_of_host(host: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = host.chars().take(128).map(safe).collect();
    if name.trim_start_matches('.').is_empty() { "host".to_owned() } else { name }
}

/// Opens a file that did not exist, for this process and user alone; never through a symbolic link.
pub(crate) fn create_exclusive(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path)
}

impl SegmentFile {
    /// Creates the first free segment of a stream from `number` on, with these first bytes. Gives its number.
    pub(crate) fn create(
        dir: &Path,
        key: &ProcessKey,
        number: u32,
        head: &[u8],
    ) -> Result<(SegmentFile, u32), Failure> {
        let mut number = number;
        loop {
            let path = dir.join(segment_name(key, number));
            match create_exclusive(&path) {
                Ok(file) => {
                    let mut segment = SegmentFile { file, path: path.clone(), length: 0, broken: false };
                    return match segment.append(head) {
                        Ok(()) => Ok((segment, number)),
                        Err(source) => {
                            // Without its header it would only puzzle readers.
                            let _ = std::fs::remove_file(&path);
                            Err(Failure { path, source })
                        }
                    };
                }
                // An earlier recording of the same process.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < limits::MAX_SEGMENTS => {
                    number += 1;
                }
                Err(source) => return Err(Failure { path, source }),
            }
        }
    }

    /// Appends whole blocks: all of them, or none where the file system lets them be taken back.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.file.write_all(bytes);
        match result {
            Ok(()) => self.length += bytes.len() as u64,
            Err(_) => {
                let undone = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
                self.broken = undone.is_err();
            }
        }
        result
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}

/// A segment could not be created.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::{SegmentFile, file_name_of_host, segment_name};
    use crate::stream::ProcessKey;

    fn key() -> ProcessKey {
        ProcessKey { host: "n/0".to_owned(), pid: 7, start_time: 99 }
    }

    #[test]
    fn names_hold_no_path() {
        assert_eq!(segment_name(&key(), 1), "n_0-7-99.0001.rdt");
        assert_eq!(file_name_of_host(".."), "host");
        assert_eq!(file_name_of_host(""), "host");
    }

    #[cfg(unix)]
    #[test]
    fn never_writes_over_a_file_nor_through_a_link() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("temporary directory");
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&target, dir.path().join(segment_name(&key(), 1))).expect("link");
        std::fs::write(dir.path().join(segment_name(&key(), 2)), "old").expect("old file");
        let (segment, number) = SegmentFile::create(dir.path(), &key(), 1, b"head").expect("third name is free");
        assert_eq!(number, 3);
        assert!(!target.exists());
        assert_eq!(std::fs::read(segment.path()).expect("read"), b"head");
        let mode = std::fs::metadata(segment.path()).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
