//! Grid jobs as traces: in memory, or a directory through the real writer, several ranks at a time.

use std::convert::Infallible;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::spec::{Grid, GridError};
use crate::job::write_job_info;
use crate::rankset::RankSet;
use crate::stream::{ProcessTrace, Record};
use crate::testgen::emit::{self, EmitError, MAX_IN_MEMORY};
use crate::writer::{StreamWriter, Summary, WriterOptions};

/// How a job's files are written.
#[derive(Debug, Clone, Default)]
pub struct GridFiles {
    /// How each stream is written. An empty job id is replaced by one that the seed gives.
    pub options: WriterOptions,
    /// A new segment begins after every so many calls of a rank.
    pub segment_calls: Option<u64>,
    /// Ranks whose stream is not closed, as if its recorder still wrote or was killed.
    pub open: RankSet,
    /// Threads that write; 0: one for each processor.
    pub threads: usize,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Streams.
    pub streams: u64,
    /// What they hold.
    pub total: Summary,
}

impl Written {
    fn add(&mut self, one: Summary) {
        let total = &mut self.total;
        self.streams += 1;
        total.calls += one.calls;
        total.records += one.records;
        total.blocks += one.blocks;
        total.segments += one.segments;
        total.bytes += one.bytes;
        total.lost_calls += one.lost_calls;
        total.lost_records += one.lost_records;
        total.clipped += one.clipped;
    }
}

impl Grid {
    /// The rank's stream in memory, as it would be read back.
    pub fn trace(&self, rank: u32) -> ProcessTrace {
        let mut trace = ProcessTrace { key: self.key(rank), closed: true, ..ProcessTrace::default() };
        let Ok(()) = self.records::<Infallible>(rank, &mut |record| {
            emit::add(&mut trace, record);
            Ok(())
        });
        trace
    }

    /// All streams in memory, by rank.
    pub fn traces(&self) -> Result<Vec<ProcessTrace>, GridError> {
        let calls = self.spec().calls.saturating_mul(u64::from(self.world()));
        if calls > MAX_IN_MEMORY {
            return Err(GridError::TooLarge { calls, most: MAX_IN_MEMORY });
        }
        Ok((0..self.world()).map(|rank| self.trace(rank)).collect())
    }

    /// Writes the job's trace into `dir`, which is made if it is not there and may hold no trace.
    pub fn write(&self, dir: &Path, files: &GridFiles) -> Result<Written, EmitError> {
        emit::make_dir(dir)?;
        let job_id = self.options(files).job_id;
        for rank in (0..self.world()).step_by(self.spec().per_node as usize) {
            write_job_info(dir, &emit::job_info(&self.host(rank), &job_id, self.world()))?;
        }
        let threads = match files.threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            threads => threads,
        };
        let next = AtomicU32::new(0);
        let done = Mutex::new(Ok(Written::default()));
        std::thread::scope(|scope| {
            for _ in 0..threads.min(self.world() as usize) {
                scope.spawn(|| {
                    loop {
                        let rank = next.fetch_add(1, Ordering::Relaxed);
                        if rank >= self.world() {
                            break;
                        }
                        let written = self.write_stream(rank, dir, files);
                        // A thread that panicked ends the whole, whatever was added.
                        let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        match (&mut *done, written) {
                            (Ok(total), Ok(summary)) => total.add(summary),
                            (Ok(_), Err(error)) => *done = Err(error),
                            (Err(_), _) => break,
                        }
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn options(&self, files: &GridFiles) -> WriterOptions {
        let mut options = files.options.clone();
        if options.job_id.is_empty() {
            options.job_id = format!("grid-{}", self.spec().seed);
        }
        options
    }

    /// Writes one rank's stream into a directory that is there.
    pub fn write_stream(&self, rank: u32, dir: &Path, files: &GridFiles) -> Result<Summary, EmitError> {
        let mut writer = StreamWriter::create(dir, &self.key(rank), self.clock(rank), &self.options(files))?;
        let every = files.segment_calls.unwrap_or(u64::MAX).max(1);
        let mut calls = 0_u64;
        self.records(rank, &mut |record| {
            let call = match &record {
                Record::Call(call) => Some(call.enter),
                _ => None,
            };
            if let Some(enter) = call {
                if calls > 0 && calls.is_multiple_of(every) {
                    writer.rotate(super::calls::clocks(enter))?;
                }
                calls += 1;
            }
            writer.write(record)
        })?;
        if files.open.contains(rank) {
            writer.flush()?;
            return Ok(writer.summary());
        }
        Ok(writer.close()?)
    }
}
