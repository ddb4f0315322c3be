//! Follows every stream of a directory, those that begin later as well: another process, or the same one recorded again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Batch, FollowState, Follower};
use crate::error::{Problem, ReadError};
use crate::job::{FileKind, list};
use crate::reader::BlockReader;
use crate::stream::ProcessKey;
use crate::stream_files::{StreamFiles, unreadable};

/// A directory that changed so lately may change again without a later time of change.
const COARSE: Duration = Duration::from_secs(2);
/// A segment that cannot be read so often is one that cannot be read.
const TRIES: u32 = 100;

/// What is new in one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBatch {
    /// Number of the stream among those of the follower, in the order in which they were noticed.
    pub stream: usize,
    /// Whose it is.
    pub key: ProcessKey,
    /// Which recording it is.
    pub session: u64,
    /// What is new.
    pub batch: Batch,
}

/// Follows the streams of a job's directory.
#[derive(Debug)]
pub struct JobFollower {
    dir: PathBuf,
    /// When the directory had changed at the last look, and whether nothing can have come since without a later time.
    looked: Option<SystemTime>,
    /// Segments whose stream is known.
    known: BTreeSet<String>,
    /// Segments that could not be read, and how often that was tried.
    unread: BTreeMap<String, u32>,
    problems: Vec<Problem>,
    streams: Vec<Follower>,
    by_key: BTreeMap<(ProcessKey, u64), usize>,
}

impl JobFollower {
    /// Follows a directory, which may hold nothing yet.
    pub fn new(dir: &Path) -> JobFollower {
        JobFollower {
            dir: dir.to_owned(),
            looked: None,
            known: BTreeSet::new(),
            unread: BTreeMap::new(),
            problems: Vec::new(),
            streams: Vec::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// Takes what is new in every stream; streams without news are left out. An error is the directory's own.
    pub fn poll(&mut self) -> Result<Vec<StreamBatch>, ReadError> {
        self.look()?;
        let mut news = Vec::new();
        for (stream, follower) in self.streams.iter_mut().enumerate() {
            let before = follower.state();
            if before != FollowState::Open {
                continue;
            }
            let batch = follower.poll();
            let nothing = batch.records.is_empty() && batch.problems.is_empty() && !batch.more;
            if !nothing || batch.state != before {
                let (key, session) = (follower.key().clone(), follower.session());
                news.push(StreamBatch { stream, key, session, batch });
            }
        }
        Ok(news)
    }

    /// How every stream stands, in the order in which they were noticed.
    pub fn states(&self) -> impl Iterator<Item = (&ProcessKey, u64, FollowState)> {
        self.streams.iter().map(|follower| (follower.key(), follower.session(), follower.state()))
    }

    /// Segments that could not be read at all.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Notices new streams.
    fn look(&mut self) -> Result<(), ReadError> {
        let failed = |source| ReadError::Io { path: self.dir.clone(), source };
        let changed = std::fs::metadata(&self.dir).and_then(|found| found.modified()).map_err(failed)?;
        if self.looked == Some(changed) {
            return Ok(());
        }
        // Taken before the names: what comes during the look is found by the next one.
        let settled = SystemTime::now().duration_since(changed).is_ok_and(|since| since >= COARSE);
        let mut all_read = true;
        for (kind, name) in list(&self.dir)? {
            if kind != FileKind::Segment || self.known.contains(&name) {
                continue;
            }
            let path = self.dir.join(&name);
            // A segment that was just created may have no header yet.
            let reader = match BlockReader::open(&path) {
                Ok(reader) => reader,
                Err(error) => {
                    let tries = self.unread.entry(name.clone()).or_default();
                    *tries += 1;
                    if *tries < TRIES {
                        all_read = false;
                    } else {
                        self.problems.push(unreadable(&path, &error));
                        self.known.insert(name);
                    }
                    continue;
                }
            };
            let header = reader.header();
            let (key, session) = (header.key.clone(), header.session);
            self.known.insert(name);
            let stream = self.streams.len();
            self.by_key.entry((key.clone(), session)).or_insert_with(|| {
                let files = StreamFiles { key, session, segments: vec![path], tail: None };
                self.streams.push(Follower::new(&files));
                stream
            });
        }
        self.looked = (settled && all_read).then_some(changed);
        Ok(())
    }
}
