//! Whether a recorder may write into a directory that holds a trace already.
//!
//! The nodes of a job record into one directory at once, so a trace that is there is no reason to refuse. But two runs in
//! one directory would be read as one job, each rank twice: what is not known to be the same run is refused, before the
//! job is started.
//!
//! Not here: what a launcher's variables are called; the recorder reads them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::ReadError;
use crate::job::{FileKind, list};
use crate::job_info::{JobInfo, read_job_info};
use crate::limits;

/// Recorders of one run that have no name for it begin within this time of each other.
const TOGETHER: Duration = Duration::from_secs(600);

/// The directory holds something else than this run's trace.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The trace of another job, or of another run of it.
    #[error(
        "{dir} holds the trace of another run: {what}. Give a directory of its own, remove the old one, or say --join \
         if both are parts of one job"
    )]
    OtherRun {
        /// The directory.
        dir: PathBuf,
        /// How the two differ.
        what: String,
    },
    /// Segments of which nothing is known.
    #[error(
        "{dir} holds a trace that does not say which job it is of (no job.*.json). Give a directory of its own, or say \
         --join if both are parts of one job"
    )]
    Nameless {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
}

/// Checks that what is in the directory, if anything, is of the run that `own` describes.
pub fn admit(dir: &Path, own: &JobInfo) -> Result<(), Refusal> {
    let files = list(dir)?;
    // A recorder that wrote no stream, as of a command that could not be run, left nothing to be mixed up with.
    if files.iter().all(|(kind, _)| *kind == FileKind::Info) {
        return Ok(());
    }
    let infos = files.iter().filter(|(kind, _)| *kind == FileKind::Info).take(limits::MAX_NAMED);
    // Unreadable: its recorder begins just now, or was killed as it began. The others tell.
    let infos: Vec<JobInfo> = infos.filter_map(|(_, name)| read_job_info(&dir.join(name)).ok()).collect();
    if let Some(what) = infos.iter().find_map(|info| difference(info, own)) {
        return Err(Refusal::OtherRun { dir: dir.to_owned(), what });
    }
    if infos.is_empty() {
        return Err(Refusal::Nameless { dir: dir.to_owned() });
    }
    Ok(())
}

/// Why a trace is not of the run that begins now; `None` if it may well be.
fn difference(there: &JobInfo, own: &JobInfo) -> Option<String> {
    let program = |info: &JobInfo| {
        let word = info.command.first().map(String::as_str).unwrap_or_default();
        word.rsplit('/').next().unwrap_or_default().to_owned()
    };
    if there.job_id != own.job_id {
        return Some(format!("it is of job `{}`, this is job `{}`", there.job_id, own.job_id));
    }
    if !there.launch.is_empty() && !own.launch.is_empty() {
        let same = there.launch == own.launch;
        return (!same).then(|| format!("its launcher calls it `{}`, this one is `{}`", there.launch, own.launch));
    }
    // Without a name for the run: parts of one begin together, and none has ended when another begins.
    if program(there) != program(own) {
        return Some(format!("it is of `{}`, this is `{}`", program(there), program(own)));
    }
    if there.end_realtime.is_some() {
        return Some(format!("the recording of `{}` on {} has ended", program(there), there.host));
    }
    let apart = Duration::from_nanos(own.start_realtime.abs_diff(there.start_realtime));
    (apart > TOGETHER).then(|| {
        format!("the recording of `{}` on {} began {} minutes ago", program(there), there.host, apart.as_secs() / 60)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TOGETHER, admit};
    use crate::job_info::{JobInfo, write_job_info};

    fn info() -> JobInfo {
        JobInfo {
            host: "n0".to_owned(),
            job_id: "trace".to_owned(),
            command: vec!["/usr/bin/mpirun".to_owned(), "-n".to_owned(), "4".to_owned()],
            start_realtime: 1_000_000_000_000_000,
            ..JobInfo::default()
        }
    }

    fn launched(launch: &str) -> JobInfo {
        JobInfo { launch: launch.to_owned(), ..info() }
    }

    /// What is said to a recorder that finds this in its directory.
    fn said(there: &JobInfo, own: &JobInfo) -> Option<String> {
        let dir = tempfile::tempdir().expect("directory");
        write_job_info(dir.path(), there).expect("write");
        admit(dir.path(), own).expect("without a stream there is nothing to be mixed up with");
        std::fs::write(dir.path().join("n0-1-1.0001.rdt"), "").expect("write");
        admit(dir.path(), own).err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn parts_of_one_run_join_whatever_their_hosts() {
        let other = |info: JobInfo| JobInfo { host: "n1".to_owned(), ..info };
        for own in [info(), other(info())] {
            assert_eq!(said(&info(), &own), None);
        }
        assert_eq!(said(&launched("a.0"), &other(launched("a.0"))), None);
        // The run has a name: then neither times nor commands matter.
        let late = JobInfo { start_realtime: u64::MAX, command: vec!["x".to_owned()], ..launched("a.0") };
        assert_eq!(said(&JobInfo { end_realtime: Some(5), ..launched("a.0") }, &late), None);
        // One node's launcher gave a name, the other's did not.
        assert_eq!(said(&launched("a.0"), &other(info())), None);
        let spelled = JobInfo { command: vec!["mpirun".to_owned(), "-n".to_owned(), "8".to_owned()], ..info() };
        assert_eq!(said(&info(), &spelled), None, "ranks may be started with different arguments");
    }

    #[test]
    fn another_run_is_refused_and_the_difference_named() {
        let later = info().start_realtime + TOGETHER.as_nanos() as u64 + 1;
        for (there, own, words) in [
            (info(), JobInfo { job_id: "other".to_owned(), ..info() }, "of job `trace`, this is job `other`"),
            (launched("a.0"), launched("a.1"), "calls it `a.0`, this one is `a.1`"),
            (info(), JobInfo { command: vec!["python".to_owned()], ..info() }, "of `mpirun`, this is `python`"),
            (JobInfo { end_realtime: Some(1), ..info() }, info(), "`mpirun` on n0 has ended"),
            (info(), JobInfo { start_realtime: later, ..info() }, "began 10 minutes ago"),
        ] {
            let text = said(&there, &own).expect("refused");
            assert!(text.contains(words) && text.contains("--join"), "{text}");
        }
        assert_eq!(TOGETHER, Duration::from_secs(600), "the text above says ten minutes");
    }

    #[test]
    fn what_is_no_trace_is_no_reason_to_refuse_and_a_nameless_one_is() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("notes.txt"), "mine").expect("write");
        std::fs::write(dir.path().join("job.n0.json"), "").expect("a recorder that begins just now");
        admit(dir.path(), &info()).expect("nothing of another run");
        std::fs::write(dir.path().join("n0-1-1.0001.rdt"), "").expect("write");
        let text = admit(dir.path(), &info()).expect_err("of what job?").to_string();
        assert!(text.contains("does not say which job"), "{text}");
        assert!(admit(&dir.path().join("nothing"), &info()).is_err());
    }
}
