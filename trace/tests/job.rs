//! A job's directory: what is in it, and what is said of inputs that are none.

use std::path::Path;

use rankdiff_trace::job::CUT;
use rankdiff_trace::{
    ClockSnapshot, FORMAT_MAJOR, FORMAT_MINOR, JobDir, JobInfo, ProblemKind, ProcessKey, StreamWriter, WriterOptions,
    limits, read_job_info, write_job_info,
};

fn write_stream(dir: &Path, host: &str, pid: u32) {
    let key = ProcessKey { host: host.to_owned(), pid, start_time: 9 };
    let writer = StreamWriter::create(dir, &key, ClockSnapshot::default(), &WriterOptions::default()).expect("create");
    writer.close().expect("close");
}

fn info() -> JobInfo {
    JobInfo {
        format_version: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
        recorder_version: "0.1.0".to_owned(),
        host: "n0".to_owned(),
        job_id: "job 7".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        world: Some(8),
        start_realtime: u64::MAX,
        boot_id: "b".to_owned(),
        stall_after_ms: Some(90_000),
        ..JobInfo::default()
    }
}

#[test]
fn streams_come_ordered_with_what_the_hosts_said() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (host, pid) in [("n1", 3), ("n0", 20), ("n0", 3)] {
        write_stream(dir.path(), host, pid);
    }
    write_job_info(dir.path(), &JobInfo::default()).expect("write");
    let path = write_job_info(dir.path(), &info()).expect("write");
    write_job_info(dir.path(), &info()).expect("replace");
    assert_eq!(path.file_name().and_then(|name| name.to_str()), Some("job.n0.json"));
    assert_eq!(read_job_info(&path), Ok(info()));
    let job = JobDir::open(dir.path()).expect("open");
    let keys: Vec<(&str, u32)> =
        job.streams().iter().map(|stream| (stream.key.host.as_str(), stream.key.pid)).collect();
    assert_eq!(keys, [("n0", 3), ("n0", 20), ("n1", 3)]);
    assert_eq!(job.infos(), [JobInfo::default(), info()]);
    assert_eq!(job.problems(), []);
}

#[test]
fn bad_files_beside_good_ones_are_problems_by_name() {
    let dir = tempfile::tempdir().expect("temporary directory");
    write_stream(dir.path(), "n0", 1);
    std::fs::write(dir.path().join("bad.rdt"), "hello").expect("write");
    std::fs::create_dir(dir.path().join("dir.rdt")).expect("create");
    std::fs::write(dir.path().join("job.n0.json"), "{").expect("write");
    std::fs::write(dir.path().join("notes.txt"), "not ours").expect("write");
    let job = JobDir::open(dir.path()).expect("open");
    assert_eq!(job.streams().len(), 1);
    let texts: Vec<String> = job.problems().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    for (text, words) in texts.iter().zip(["begins with \"hello\"", "not a regular file", "not a job's description"]) {
        assert!(text.contains(words), "{text}");
    }
    assert!(job.problems().iter().all(|problem| problem.kind == ProblemKind::Unreadable));
}

#[test]
fn inputs_that_are_no_trace_say_what_to_do() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let text = |path: &Path| JobDir::open(path).expect_err("no trace").to_string();
    let none = text(dir.path());
    assert!(none.contains("holds no trace: no *.rdt file in it; record one with `rankdiff record -o "), "{none}");
    let missing = text(&dir.path().join("nothing"));
    assert!(missing.starts_with("cannot read ") && missing.contains("nothing"), "{missing}");
    let empty = dir.path().join("empty.rdt");
    std::fs::write(&empty, "").expect("write");
    assert!(text(&empty).contains("is empty"), "{}", text(&empty));
    // The only file of a directory: its own message, not 'no file'.
    assert!(text(dir.path()).contains("is empty"), "{}", text(dir.path()));
    let foreign = dir.path().join("x.json");
    std::fs::write(&foreign, "{\"a\": 1}").expect("write");
    assert!(text(&foreign).starts_with("not a rankdiff trace: "), "{}", text(&foreign));
}

#[test]
fn a_job_description_of_a_newer_recorder_is_read_as_far_as_known() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("job.n0.json");
    std::fs::write(&path, "{\"host\": \"n0\", \"something\": [1]}").expect("write");
    assert_eq!(read_job_info(&path), Ok(JobInfo { host: "n0".to_owned(), ..JobInfo::default() }));
    std::fs::write(&path, vec![b' '; 2 << 20]).expect("write");
    assert!(read_job_info(&path).expect_err("too large").to_string().contains("over the limit"));
}

#[test]
fn a_stall_is_written_only_where_the_recorder_ended_the_job_for_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let text = |info: &JobInfo| {
        std::fs::read_to_string(write_job_info(dir.path(), info).expect("write")).expect("just written")
    };
    assert!(text(&info()).contains("\"stall_after_ms\": 90000"), "{}", text(&info()));
    let without = text(&JobInfo { stall_after_ms: None, ..info() });
    assert!(!without.contains("stall_after_ms"), "{without}");
}

#[test]
fn what_is_written_of_any_command_line_can_be_read_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let written = |command: Vec<String>| {
        let path = write_job_info(dir.path(), &JobInfo { command, ..info() }).expect("write");
        read_job_info(&path).expect("below the limit").command
    };
    let bytes = |command: &[String]| command.iter().map(|word| word.len() + 1).sum::<usize>();
    // Exactly as much as fits.
    let full = vec!["python".to_owned(), "x".repeat(limits::MAX_COMMAND - 8)];
    assert_eq!(written(full.clone()), full);
    let long = |word: &str, times: usize| vec!["sh".to_owned(), "-c".to_owned(), word.repeat(times), "end".to_owned()];
    for command in [
        vec!["word".to_owned(); 1 << 20],
        vec![String::new(); 1 << 20],
        vec!["\u{1}".to_owned(); 1 << 20],
        long("x", 4 << 20),
        long("\u{1}", 4 << 20),
        long("ö€", 1 << 20),
    ] {
        let kept = written(command.clone());
        let (last, begin) = kept.split_last().expect("not empty");
        assert_eq!(last, CUT);
        assert!(bytes(begin) <= limits::MAX_COMMAND && bytes(begin) > limits::MAX_COMMAND - 8, "{}", bytes(begin));
        assert!(begin.iter().zip(&command).all(|(kept, whole)| whole.starts_with(kept.as_str())));
    }
}

/// Opening a pipe that nobody writes to would wait for ever.
#[cfg(unix)]
#[test]
fn pipes_and_folders_are_not_read() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let pipe = |name: &str| {
        let path = dir.path().join(name);
        let text = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: the text ends in a zero byte and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
        path
    };
    write_stream(dir.path(), "n0", 1);
    let segment = pipe("pipe.rdt");
    let info = pipe("job.n0.json");
    std::fs::create_dir(dir.path().join("job.n1.json")).expect("create");
    let link = dir.path().join("job.n2.json");
    std::os::unix::fs::symlink(&info, &link).expect("link");
    let job = JobDir::open(dir.path()).expect("the stream is whole");
    assert_eq!((job.streams().len(), job.infos().len(), job.problems().len()), (1, 0, 4));
    for problem in job.problems() {
        assert!(problem.to_string().contains("it is not a regular file"), "{problem}");
    }
    for path in [&segment, &info, &link] {
        let error = JobDir::open(path).expect_err("no trace").to_string();
        assert!(error.contains("it is not a regular file"), "{error}");
    }
    #[cfg(feature = "testgen")]
    {
        let error = rankdiff_trace::testgen::scenario::load(&pipe("scenario.yaml")).expect_err("no file").to_string();
        assert!(error.contains("it is not a regular file"), "{error}");
    }
}
