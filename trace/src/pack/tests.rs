//! There and back, live traces, and what somebody else might send.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Limits, PackOptions, Packed, Unpacked, is_pack, pack, unpack};
use crate::call::{Call, Frame, FrameKind, SiteDef, SiteRef};
use crate::comm::{CommDef, CommRef, RankDef};
use crate::directory::TraceDir;
use crate::evidence::{Attribute, ClockSnapshot, EndedBy, Life, LogLine, ProcessState, ThreadState};
use crate::job::{JobDir, JobInfo, write_job_info};
use crate::op::Op;
use crate::stream::{ProcessKey, ProcessTrace, Record};
use crate::tail::TailOptions;
use crate::writer::{StreamWriter, WriterOptions};

/// A word that must not be in what is given away.
const SECRET: &str = "topsecret";

fn records(pid: u32) -> Vec<Record> {
    let frame = |file: &str| Frame {
        kind: FrameKind::Python,
        function: "train".to_owned(),
        file: format!("/data/{SECRET}/{file}"),
        line: 7,
        module: format!("/opt/{SECRET}/lib.so"),
        ..Frame::default()
    };
    let mut records = vec![
        Record::Rank(RankDef { rank: pid, ..RankDef::default() }),
        Record::Comm(CommDef {
            id: CommRef(1),
            name: "dp".to_owned(),
            desc: format!("/{SECRET}/x"),
            ..CommDef::default()
        }),
        Record::Site(SiteDef { id: SiteRef(1), frames: vec![frame("a.py"), frame("b.py")] }),
        Record::Label(1, "weights".to_owned()),
        Record::Attribute(Attribute {
            key: "host".to_owned(),
            value: format!("{SECRET}-{pid}"),
            ..Attribute::default()
        }),
        Record::Attribute(Attribute { key: "USER".to_owned(), value: SECRET.to_owned(), ..Attribute::default() }),
        Record::Attribute(Attribute { key: "local_rank".to_owned(), value: "3".to_owned(), ..Attribute::default() }),
        Record::Log(LogLine { at: 5, text: format!("watchdog timeout in {SECRET}") }),
        Record::Thread(ThreadState {
            name: "main".to_owned(),
            device: "/dev/accel0".to_owned(),
            python: format!("main (/data/{SECRET}/a.py:7)>train"),
            native: format!("/opt/{SECRET}/lib.so"),
            ..ThreadState::default()
        }),
        Record::Thread(ThreadState { device: format!("/data/{SECRET}/x"), tid: 9, ..ThreadState::default() }),
        Record::State(ProcessState {
            life: Life::Signaled { signal: 9, by: EndedBy::Process(7, "srun".to_owned()) },
            at: 9,
        }),
    ];
    records.extend((0..100).map(|seq| {
        Record::Call(Call {
            op: Op::AllReduce,
            comm: CommRef(1),
            seq: Some(seq),
            site: SiteRef(1),
            enter: seq * 10,
            thread: 1,
            thread_seq: seq,
            ..Call::default()
        })
    }));
    records
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey { host: format!("{SECRET}-{pid}"), pid, start_time: 9 }
}

/// A trace of two hosts, each with several segments.
fn write(dir: &Path) {
    for pid in 0..2 {
        let options = WriterOptions {
            job_id: SECRET.to_owned(),
            block_calls: 10,
            segment_bytes: 1200,
            ..WriterOptions::default()
        };
        let mut writer = StreamWriter::create(dir, &key(pid), ClockSnapshot::default(), &options).expect("create");
        records(pid).into_iter().for_each(|record| writer.write(record).expect("write"));
        writer.close().expect("close");
        let info = JobInfo {
            host: key(pid).host,
            job_id: SECRET.to_owned(),
            command: vec![format!("/usr/{SECRET}/python"), SECRET.to_owned()],
            boot_id: SECRET.to_owned(),
            launch: SECRET.to_owned(),
            ..JobInfo::default()
        };
        write_job_info(dir, &info).expect("write");
    }
    fs::write(dir.join("notes.txt"), SECRET).expect("not of the trace");
}

fn read(dir: &Path) -> Vec<ProcessTrace> {
    let job = JobDir::open(dir).expect("a trace");
    assert_eq!(job.problems(), []);
    job.streams()
        .iter()
        .map(|stream| {
            let outcome = stream.read();
            assert_eq!(outcome.problems, []);
            outcome.trace
        })
        .collect()
}

fn packed(dir: &Path, redact: bool) -> (Packed, Vec<u8>) {
    let mut bytes = Vec::new();
    let packed = pack(dir, PackOptions { redact }, &mut bytes).expect("packed");
    (packed, bytes)
}

/// Unpacks into a new directory.
fn unpacked(bytes: &[u8], limits: Limits) -> (tempfile::TempDir, Result<Unpacked, String>) {
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("x.rdpack");
    fs::write(&file, bytes).expect("write");
    assert!(is_pack(&file));
    let into = place.path().join("out");
    let opened = TraceDir::create(&into, None).expect("create");
    let result = unpack(&file, &opened, limits).map_err(|error| error.to_string());
    (place, result)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("list")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    names
}

#[test]
fn there_and_back_is_the_same_and_twice_the_same_bytes() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let (what, bytes) = packed(dir.path(), false);
    assert_eq!(what.problems, Vec::<String>::new());
    assert_eq!(bytes, packed(dir.path(), false).1);
    let (place, result) = unpacked(&bytes, Limits::default());
    let result = result.expect("unpacked");
    assert_eq!((result.files, result.bytes, result.redacted), (what.files, what.bytes, false));
    let out = place.path().join("out");
    let mut expected = names(dir.path());
    expected.retain(|name| name != "notes.txt");
    assert!(expected.len() > 6, "several segments: {expected:?}");
    assert_eq!(names(&out), expected);
    for name in expected {
        assert_eq!(fs::read(out.join(&name)).expect("read"), fs::read(dir.path().join(&name)).expect("read"), "{name}");
    }
}

#[test]
fn nothing_secret_is_left_and_everything_else_is() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let (what, bytes) = packed(dir.path(), true);
    assert_eq!(what.problems, Vec::<String>::new());
    assert_eq!(bytes, packed(dir.path(), true).1);
    let (place, result) = unpacked(&bytes, Limits::default());
    assert!(result.expect("unpacked").redacted);
    let out = place.path().join("out");
    for name in names(&out) {
        assert!(!name.contains(SECRET), "{name}");
        // The decoded text as well: blocks are compressed.
        let raw = String::from_utf8_lossy(&fs::read(out.join(&name)).expect("read")).into_owned();
        assert!(!raw.contains(SECRET), "{name}");
    }
    let (before, after) = (read(dir.path()), read(&out));
    assert!(!format!("{after:?}").contains(SECRET), "{after:#?}");
    let job = JobDir::open(&out).expect("a trace");
    assert!(!format!("{:?}", job.infos()).contains(SECRET));
    assert!(job.infos().iter().all(|info| info.redacted && info.command == ["python", "…"]));
    assert_eq!(job.infos()[0].boot_id, job.infos()[1].boot_id, "clocks of one boot stay known as one");
    for ((one, two), host) in before.iter().zip(&after).zip(["node0", "node1"]) {
        assert_eq!(two.key, ProcessKey { host: host.to_owned(), ..one.key.clone() });
        assert_eq!((&one.calls, &one.ranks, one.closed), (&two.calls, &two.ranks, two.closed));
        assert_eq!(one.states, two.states, "launchers keep their names");
        let values: Vec<&str> = two.attributes.iter().map(|attribute| attribute.value.as_str()).collect();
        assert_eq!(values, [host, "value1", "3"]);
        assert_eq!(two.logs[0].text, format!("log line of {} bytes (says: watchdog, timeout)", one.logs[0].text.len()));
        assert_eq!(two.threads[0].python, "main (a.py:7)>train");
        assert_eq!((two.threads[0].device.as_str(), two.threads[1].device.as_str()), ("/dev/accel0", "/redacted"));
        let files: Vec<&str> = two.sites[0].frames.iter().map(|frame| frame.file.as_str()).collect();
        assert_eq!(files, ["dir1/a.py", "dir1/b.py"]);
    }
    // Digests are those of the original, block for block.
    let digests = |dir: &Path| -> Vec<_> {
        let mut found = Vec::new();
        for stream in JobDir::open(dir).expect("a trace").streams() {
            for segment in &stream.segments {
                let mut reader = crate::BlockReader::open(segment).expect("a segment");
                while let Some(block) = reader.next_block().expect("whole") {
                    found.push((block.header().kind, block.header().count, block.digests().clone()));
                }
            }
        }
        found
    };
    assert_eq!(digests(dir.path()), digests(&out));
}

#[test]
fn a_live_trace_is_packed_as_far_as_it_is() {
    let dir = tempfile::tempdir().expect("directory");
    let opened = Arc::new(TraceDir::open(dir.path()).expect("open"));
    let options = WriterOptions { block_calls: 30, tail: Some(TailOptions::default()), ..WriterOptions::default() };
    let mut writer = StreamWriter::create_in(&opened, &key(1), ClockSnapshot::default(), &options).expect("create");
    records(1).into_iter().for_each(|record| writer.write(record).expect("write"));
    // A block that is being written just now.
    let segment = dir.path().join(format!("{SECRET}-1-1-9.0001.rdt"));
    let torn = fs::read(&segment).expect("the segment");
    let whole = read(dir.path());
    assert_eq!(whole[0].calls.len(), 100, "blocks and tail together");
    let mut file = fs::OpenOptions::new().append(true).open(&segment).expect("open");
    std::io::Write::write_all(&mut file, &torn[torn.len() / 2..torn.len() / 2 + 100]).expect("write");
    for redact in [false, true] {
        let (_, bytes) = packed(dir.path(), redact);
        let (place, result) = unpacked(&bytes, Limits::default());
        result.expect("unpacked");
        let out = place.path().join("out");
        let after = JobDir::open(&out).expect("a trace").streams()[0].read().trace;
        assert_eq!(after.calls, whole[0].calls, "redacted: {redact}");
        assert!(!after.closed);
        assert_eq!(names(&out).iter().any(|name| name.ends_with(".tail")), !redact);
        assert_eq!(format!("{after:?}").contains(SECRET), !redact);
    }
    drop(writer);
}

/// A pack of these entries, made by hand.
fn made(manifest: &str, entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let first = ("rankdiff-pack.json", tar::EntryType::Regular, manifest.as_bytes());
    for (name, kind, data) in std::iter::once(&first).chain(entries) {
        let mut header = tar::Header::new_ustar();
        // Names that the library would refuse to write.
        let field = &mut header.as_mut_bytes()[..100];
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(data.len() as u64);
        if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
            header.set_link_name("/etc/passwd").expect("fits");
        }
        header.set_cksum();
        archive.append(&header, *data).expect("in memory");
    }
    zstd::encode_all(archive.into_inner().expect("in memory").as_slice(), 3).expect("in memory")
}

fn manifest(files: u64, bytes: u64) -> String {
    format!("{{\"rankdiff_pack\": 1, \"format_version\": \"0.1\", \"files\": {files}, \"bytes\": {bytes}}}")
}

#[test]
fn what_could_do_harm_is_refused_and_nothing_of_it_is_left() {
    use tar::EntryType as Type;
    let good: (&str, Type, &[u8]) = ("a-1-1.0001.rdt", Type::Regular, b"abc");
    let long = vec![0_u8; 5000];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (made(&manifest(9, 9999), &[good, ("../x.rdt", Type::Regular, b"")]), "no name of a trace's file"),
        (made(&manifest(9, 9999), &[good, ("/etc/x.rdt", Type::Regular, b"")]), "no name of a trace's file"),
        (made(&manifest(9, 9999), &[good, ("d/x.rdt", Type::Regular, b"")]), "no name of a trace's file"),
        (made(&manifest(9, 9999), &[good, ("x.sh", Type::Regular, b"")]), "no name of a trace's file"),
        (made(&manifest(9, 9999), &[good, (".x.rdt", Type::Regular, b"")]), "no name of a trace's file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::Symlink, b"")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::Link, b"")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::Directory, b"")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::Char, b"")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::Fifo, b"")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::GNULongName, b"c.rdt")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, ("b.rdt", Type::XHeader, b"20 path=../../x.rdt\n")]), "no plain file"),
        (made(&manifest(9, 9999), &[good, good]), "comes twice, or out of order"),
        (made(&manifest(9, 9999), &[("b.rdt", Type::Regular, b""), good]), "comes twice, or out of order"),
        (made(&manifest(1, 9999), &[good, ("b.rdt", Type::Regular, b"")]), "more than it announces"),
        (made(&manifest(9, 10), &[good, ("b.rdt", Type::Regular, &long)]), "more than it announces"),
        (made(&manifest(u64::MAX, 10), &[good]), "files, more than"),
        (made("{\"rankdiff_pack\": 2}", &[good]), "version 2; this build unpacks version 1"),
        (made("{}", &[good]), "a pack of version 0"),
        (made("x", &[good]), "no pack of a trace"),
        (zstd::encode_all(&b"hello"[..], 3).expect("in memory"), "damaged, or no pack"),
        (zstd::encode_all(&vec![0; 4096][..], 3).expect("in memory"), "it is empty"),
        (b"plain text".to_vec(), "damaged, or no pack"),
        (Vec::new(), "damaged, or no pack"),
    ];
    for (bytes, words) in cases {
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("x.rdpack");
        fs::write(&file, &bytes).expect("write");
        let into = TraceDir::create(&place.path().join("out"), None).expect("create");
        let error = unpack(&file, &into, Limits::default()).map_err(|error| error.to_string());
        let error = match error {
            Ok(unpacked) => panic!("{words}: {unpacked:?}"),
            Err(error) => error,
        };
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(names(&place.path().join("out")), Vec::<String>::new(), "{words}");
        assert_eq!(names(place.path()), ["out", "x.rdpack"], "{words}");
    }
}

#[test]
fn bombs_are_refused_before_they_are_written() {
    let zeroes = vec![0_u8; 8 << 20];
    let bytes = made(&manifest(9, u64::MAX), &[("a.rdt", tar::EntryType::Regular, &zeroes)]);
    assert!(bytes.len() < 10_000);
    let small = Limits { bytes: 1 << 20, ratio: None };
    let error = unpacked(&bytes, small).1.expect_err("too much");
    assert!(error.contains("more than the 1048576 bytes") && error.contains("--max-size"), "{error}");
    assert_eq!(unpacked(&bytes, Limits { bytes: 9 << 20, ratio: None }).1.expect("allowed").bytes, 8 << 20);
    // The default lets a small pack grow, but not by any factor.
    let free = usize::try_from(Limits::FREE).expect("fits");
    let bytes = made(&manifest(9, u64::MAX), &[("a.rdt", tar::EntryType::Regular, &vec![0_u8; free + 1])]);
    let error = unpacked(&bytes, Limits::default()).1.expect_err("too much");
    assert!(error.contains("more than the 268435456 bytes"), "{error}");
}

#[test]
fn files_that_are_there_are_never_written_over() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let (_, bytes) = packed(dir.path(), false);
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("x.rdpack");
    fs::write(&file, &bytes).expect("write");
    let out = place.path().join("out");
    fs::create_dir(&out).expect("create");
    let mine = out.join(names(dir.path()).into_iter().find(|name| name.ends_with(".0002.rdt")).expect("a segment"));
    fs::write(&mine, "mine").expect("write");
    let error = unpack(&file, &TraceDir::open(&out).expect("open"), Limits::default()).expect_err("there").to_string();
    assert!(error.contains("cannot be created"), "{error}");
    assert_eq!(fs::read_to_string(&mine).expect("still there"), "mine");
    assert_eq!(names(&out).len(), 1, "what was unpacked is gone again");
}

#[test]
fn every_prefix_and_many_flips_of_a_pack_are_errors_or_the_same() {
    let dir = tempfile::tempdir().expect("directory");
    write(dir.path());
    let (what, bytes) = packed(dir.path(), false);
    let place = tempfile::tempdir().expect("directory");
    let attempt = |number: usize, bytes: &[u8]| -> Result<Unpacked, String> {
        let file: PathBuf = place.path().join(format!("{number}.rdpack"));
        fs::write(&file, bytes).expect("write");
        let into = TraceDir::create(&place.path().join(number.to_string()), None).expect("create");
        unpack(&file, &into, Limits::default()).map_err(|error| error.to_string())
    };
    for (number, length) in (0..bytes.len()).step_by(97).enumerate() {
        assert!(attempt(number, &bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
    for (number, at) in (0..bytes.len()).step_by(61).enumerate() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x20;
        // The frame has a checksum over its content.
        let result = attempt(100_000 + number, &flipped);
        assert!(result.as_ref().is_ok_and(|unpacked| unpacked.bytes == what.bytes) || result.is_err(), "byte {at}");
    }
}
