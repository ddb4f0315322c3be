//! The file of a segment: created exclusively, grown by whole blocks only.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::TraceDir;
use crate::limits;
use crate::retain::{FileIdentity, SealedSegment};
use crate::stream::ProcessKey;

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
    dir: Arc<TraceDir>,
    name: String,
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

/// Name of the live tail of a recording whose first segment has this number: nobody else's segment has it.
pub(crate) fn tail_name(key: &ProcessKey, number: u32) -> String {
    let host = file_name_of_host(&key.host);
    format!("{host}-{}-{}.{number:04}.tail", key.pid, key.start_time)
}

/// A host's name as a part of a file name.
pub(crate) fn file_name_of_host(host: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = host.chars().take(128).map(safe).collect();
    if name.trim_start_matches('.').is_empty() { "host".to_owned() } else { name }
}

impl SegmentFile {
    /// Creates the first free segment of a stream from `number` on, with these first bytes. Gives its number.
    pub(crate) fn create(
        dir: &Arc<TraceDir>,
        key: &ProcessKey,
        number: u32,
        head: &[u8],
    ) -> Result<(SegmentFile, u32), Failure> {
        let mut number = number;
        loop {
            let name = segment_name(key, number);
            let path = dir.path_of(&name);
            match dir.create_file(&name) {
                Ok(file) => {
                    let dir = Arc::clone(dir);
                    let mut segment = SegmentFile { file, dir, name, path: path.clone(), length: 0, broken: false };
                    return match segment.append(head) {
                        Ok(()) => Ok((segment, number)),
                        Err(source) => {
                            // Without its header it would only puzzle readers.
                            let _ = segment.dir.remove(&segment.name);
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
        self.dir.claim(bytes.len() as u64)?;
        let result = self.file.write_all(bytes);
        match result {
            Ok(()) => self.length += bytes.len() as u64,
            Err(_) => {
                let undone = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
                self.broken = undone.is_err();
                self.dir.release(bytes.len() as u64);
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

    /// Tells the directory that it has its end block: nothing is appended from now on.
    pub(crate) fn sealed(&self, last_time: u64) {
        // Without its identity it could be mistaken for another file: then it is left alone.
        if let Ok(identity) = FileIdentity::of(&self.file) {
            self.dir.sealed(SealedSegment { name: self.name.clone(), identity, bytes: self.length, last_time });
        }
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
        let opened = std::sync::Arc::new(crate::directory::TraceDir::open(dir.path()).expect("it is there"));
        let (segment, number) = SegmentFile::create(&opened, &key(), 1, b"head").expect("third name is free");
        assert_eq!(number, 3);
        assert!(!target.exists());
        assert_eq!(std::fs::read(segment.path()).expect("read"), b"head");
        let mode = std::fs::metadata(segment.path()).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
