//! Where a trace goes and what becomes of it: whose the files are, what is kept, who may write into one directory, and
//! what is given away.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rankdiff_tests::examples::{Flavour, slot};
use rankdiff_tests::process::{self, Ended};
use rankdiff_tests::recorder::{LIMIT, Place, Verdict, calls, rankdiff, record, run};
use rankdiff_tests::{binary, is_privileged, root};
use serde_json::Value;

const NOBODY: u32 = 65534;

/// A healthy job of two ranks.
fn job(program: &Path, iterations: u32) -> Vec<String> {
    let iterations = iterations.to_string();
    let words = [&program.display().to_string(), "plain", "--ranks", "2", "--iters", &iterations];
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `rankdiff record` into a directory.
fn recorder(place: &Place, dir: &Path, flags: &[&str], job: &[String]) -> Command {
    let mut command = rankdiff();
    command.arg("record").args(flags).arg("--no-verdict").arg("-o").arg(dir).arg("--").args(job);
    place.prepare(&mut command);
    command.env_remove("RANKDIFF_JOB_LOG");
    command
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn info(trace: &Path) -> Value {
    let shown = run(["show", "--info", "--format", "json", &trace.display().to_string()]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown.stdout))
}

fn says(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[test]
fn old_calls_are_dropped_and_the_job_stays_clean() {
    let test = "keep";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    let place = Place::new();
    let ended =
        record(&mut recorder(&place, &place.trace(), &["--keep", "1s", "--ring", "64"], &job(&program, 30_000)));
    says(&ended, 0, &["older calls were dropped by --keep"]);
    let info = info(&place.trace());
    let (made, dropped) = (info["calls"].as_u64().expect("calls"), info["calls_dropped"].as_u64().expect("dropped"));
    assert!(dropped > 0 && dropped < made, "{dropped} of {made} calls were dropped");
    assert_eq!(info["gaps"]["expired"]["calls"], dropped, "{info:#}");
    assert_eq!(calls(&place.trace()).len() as u64, made - dropped);
    let verdict = place.analyze(&[]);
    assert!(verdict.code == 0 && verdict.grave().is_empty(), "{verdict}");
    assert!(verdict.text.contains("dropped by --keep"), "{verdict}");
}

#[test]
fn the_disk_is_never_filled_further_than_allowed() {
    let test = "max_disk";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    for keep in [&[][..], &["--keep", "1MiB"]] {
        let place = Place::new();
        let flags = [&["--max-disk", "1MiB", "--ring", "64"], keep].concat();
        let ended = record(&mut recorder(&place, &place.trace(), &flags, &job(&program, 60_000)));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let bytes: u64 = names(&place.trace())
            .iter()
            .map(|name| fs::metadata(place.trace().join(name)).expect("a file").len())
            .sum();
        assert!(bytes <= 1 << 20, "{bytes} bytes: {:?}", names(&place.trace()));
        let info = info(&place.trace());
        let verdict = place.analyze(&[]);
        assert!(verdict.code == 0, "calls that were not written are not missing\n{verdict}");
        if keep.is_empty() {
            says(&ended, 0, &["--max-disk", "not recorded"]);
            assert!(info["gaps"]["disk_full"]["calls"].as_u64() > Some(0), "{info:#}");
            assert!(verdict.text.contains("--max-disk"), "{verdict}");
        } else {
            assert!(info["gaps"]["expired"]["calls"].as_u64() > Some(0), "{info:#}");
        }
    }
}

#[test]
fn several_recorders_write_into_one_directory() {
    let test = "one_directory";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    let place = Place::new();
    // Two of one host name, one of another.
    let mut commands = vec![recorder(&place, &place.trace(), &[], &job(&program, 300))];
    commands.push(recorder(&place, &place.trace(), &[], &job(&program, 300)));
    let mut other = Command::new("unshare");
    let script = "echo othernode > /proc/sys/kernel/hostname && exec \"$@\"";
    other.args(["--uts", "sh", "-c", script, "sh"]).arg(binary()).args(["record", "--no-verdict", "-o"]);
    other.arg(place.trace()).arg("--").args(job(&program, 300));
    place.prepare(&mut other);
    other.env_remove("RANKDIFF_JOB_LOG");
    commands.push(other);
    let mut running: Vec<_> = commands.iter_mut().map(process::start).collect();
    for one in &mut running {
        let ended = one.wait(LIMIT).expect("it ends");
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    let infos: Vec<String> = names(&place.trace()).into_iter().filter(|name| name.starts_with("job.")).collect();
    assert_eq!(infos.len(), 3, "{infos:?}");
    assert!(infos.contains(&"job.othernode.json".to_owned()), "{infos:?}");
    assert!(infos.iter().any(|name| name.ends_with(".2.json")), "{infos:?}");
    let info = info(&place.trace());
    assert_eq!(info["recorders"].as_array().map(Vec::len), Some(3), "{info:#}");
    assert_eq!(info["processes"].as_array().map(Vec::len), Some(6), "{info:#}");
    assert_eq!(info["hosts"].as_array().map(Vec::len), Some(2), "{info:#}");
    assert_eq!(info["job_ids"], serde_json::json!(["trace"]));
    let each = calls(&place.trace()).len() / 3;
    assert!(each >= 600, "{each} calls of a recorder");
}

#[test]
fn another_run_does_not_write_into_a_trace_unless_told_to() {
    let test = "other_run";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    let place = Place::new();
    let again = |flags: &[&str]| record(&mut recorder(&place, &place.trace(), flags, &job(&program, 10)));
    says(&again(&[]), 0, &[]);
    let before = names(&place.trace());
    says(&again(&[]), 125, &["holds the trace of another run", "has ended", "--join"]);
    assert_eq!(names(&place.trace()), before);
    says(&again(&["--join"]), 0, &[]);
    assert_eq!(names(&place.trace()).len(), 2 * before.len());
}

#[test]
fn files_are_the_callers_from_the_beginning_and_traps_are_not_followed() {
    let test = "ownership";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    let place = Place::new();
    let home = place.path().join("home");
    let system = place.path().join("system");
    for dir in [&home, &system] {
        fs::create_dir(dir).expect("a folder");
    }
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    for dir in [place.path(), &home] {
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("root may");
    }
    let sudo = |command: &mut Command| {
        command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string()).env("SUDO_USER", "nobody");
    };
    let trace = home.join("deep/trace");
    // What the job itself finds there while it is recorded: nothing of anybody else's.
    let script = format!("find {} ! -user {NOBODY} -exec echo UNOWNED {{}} \\; >&2; echo LOOKED >&2", home.display());
    let mut command = recorder(&place, &trace, &["--keep", "1s"], &["sh", "-c", &script].map(str::to_owned));
    sudo(&mut command);
    let ended = record(&mut command);
    says(&ended, 0, &["LOOKED"]);
    assert!(!ended.stderr.contains("UNOWNED"), "{}", ended.stderr);
    let mut command = recorder(&place, &trace, &["--keep", "1s", "--join"], &job(&program, 20_000));
    sudo(&mut command);
    says(&record(&mut command), 0, &[]);
    let owned = names(&trace);
    assert!(owned.len() > 3, "{owned:?}");
    for path in owned.iter().map(|name| trace.join(name)).chain([trace.clone(), home.join("deep")]) {
        let found = fs::symlink_metadata(&path).expect("it is there");
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{}", path.display());
        assert_eq!(found.mode() & 0o77, 0, "{}", path.display());
    }
    // The user lets a name lead into a folder of root's.
    symlink(&system, home.join("trap")).expect("a link");
    for dir in [home.join("trap"), home.join("trap/trace")] {
        let mut command = recorder(&place, &dir, &[], &job(&program, 10));
        sudo(&mut command);
        says(&record(&mut command), 125, &["symbolic link"]);
    }
    assert_eq!(names(&system), Vec::<String>::new());
}

/// A trace that somebody made to do harm: nothing of it may be followed, waited for or believed.
#[test]
fn a_hostile_directory_is_read_in_bounds() {
    let place = Place::new();
    let trace = place.trace();
    let made = run(["synth", "--grid", "tp=2,pp=1,dp=1", "--calls", "200", "-o", &trace.display().to_string()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let secret = place.path().join("secret");
    fs::write(&secret, "root:$6$topsecret").expect("a file");
    symlink(&secret, trace.join("x.rdt")).expect("a link");
    symlink(&secret, trace.join("job.x.json")).expect("a link");
    symlink("/dev/zero", trace.join("zero.rdt")).expect("a link");
    symlink("/dev/zero", trace.join("zero.tail")).expect("a link");
    fs::create_dir(trace.join("folder.rdt")).expect("a folder");
    for name in ["pipe.rdt", "pipe.tail", "job.pipe.json"] {
        let made = Command::new("mkfifo").arg(trace.join(name)).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is there");
    }
    for name in ["sparse.rdt", "sparse.tail", "job.sparse.json"] {
        fs::File::create(trace.join(name)).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    }
    let path = trace.display().to_string();
    let packed = place.path().join("x.rdpack").display().to_string();
    let commands: [&[&str]; 5] = [
        &["analyze", &path],
        &["show", &path],
        &["show", "--info", &path],
        &["show", "--info", "--format", "json", &path],
        &["pack", "--redact", &path, "-o", &packed],
    ];
    for arguments in commands {
        let ended = process::run(rankdiff().args(arguments), Duration::from_secs(60));
        assert_eq!(ended.code, 0, "{arguments:?}: {}\n{}", ended.stdout, ended.stderr);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!all.contains("topsecret") && !all.contains("root:"), "{arguments:?}: {all}");
        assert!(all.contains("pipe.rdt") || all.contains("\"problems\""), "{arguments:?}: {all}");
    }
}

/// Documents of the corpus: file and id.
fn cases() -> Vec<(PathBuf, String)> {
    let folder = root().join("tests/corpus/cases");
    let mut found = Vec::new();
    for name in names(&folder) {
        let text = fs::read_to_string(folder.join(&name)).expect("a corpus file");
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        found.extend(ids.map(|id| (folder.join(&name), id.trim().to_owned())));
    }
    assert!(found.len() > 20, "{} documents", found.len());
    found
}

/// What a verdict is about, without what things are called.
fn essence(verdict: &Verdict) -> Value {
    let findings = verdict.json["findings"].as_array().cloned().unwrap_or_default();
    let kept = [
        "code",
        "severity",
        "first_divergence",
        "first_visible",
        "suspects",
        "waiting",
        "missing",
        "failed",
        "stalled",
        "late",
        "what",
    ];
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            kept.iter().map(|key| ((*key).to_owned(), finding[*key].clone())).collect::<serde_json::Map<_, _>>().into()
        })
        .collect();
    serde_json::json!({ "code": verdict.code, "class": verdict.class(), "findings": findings })
}

#[test]
fn a_redacted_pack_gives_the_same_verdict() {
    let place = Place::new();
    for (number, (file, id)) in cases().into_iter().enumerate() {
        let trace = place.path().join(format!("trace-{number}"));
        let made = process::run(rankdiff().arg("synth").arg(&file).args(["--case", &id, "-o"]).arg(&trace), LIMIT);
        assert_eq!(made.code, 0, "{id}: {}", made.stderr);
        let packed = place.path().join(format!("{number}.rdpack"));
        let made = process::run(rankdiff().arg("pack").arg(&trace).arg("--redact").arg("-o").arg(&packed), LIMIT);
        assert_eq!(made.code, 0, "{id}: {}", made.stderr);
        let (before, after) = (Verdict::of(&trace, &[]), Verdict::of(&packed, &[]));
        assert_eq!(essence(&before), essence(&after), "{id}\n{before}\n{after}");
        let bytes = fs::read(&packed).expect("a pack");
        assert!(!bytes.is_empty());
    }
}

#[test]
fn packs_go_there_and_back() {
    let place = Place::new();
    let trace = place.trace();
    let made = run(["synth", "--grid", "tp=2,pp=1,dp=2", "--calls", "500", "-o", &trace.display().to_string()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let packed = place.path().join("x.rdpack");
    let pack = |more: &[&str]| process::run(rankdiff().arg("pack").args(more).current_dir(place.path()), LIMIT);
    says(&pack(&["trace", "-o", "x.rdpack"]), 0, &["x.rdpack"]);
    // Nothing is written over, in either direction.
    says(&pack(&["trace", "-o", "x.rdpack"]), 2, &["not written over"]);
    says(&pack(&["--unpack", "x.rdpack", "-o", "trace"]), 2, &["is not empty"]);
    says(&pack(&["--unpack", "x.rdpack"]), 0, &["rankdiff analyze x"]);
    assert_eq!(names(&place.path().join("x")), names(&trace));
    for name in names(&trace) {
        let (one, two) = (trace.join(&name), place.path().join("x").join(&name));
        assert_eq!(fs::read(one).expect("a file"), fs::read(two).expect("a file"), "{name}");
    }
    assert_eq!(calls(&packed), calls(&trace));
    assert_eq!(info(&packed)["calls"], 2000);
    assert_eq!(fs::metadata(&packed).expect("a pack").mode() & 0o777, 0o600);
    // Cut off, and no pack at all.
    let bytes = fs::read(&packed).expect("a pack");
    fs::write(place.path().join("whole.rdpack"), &bytes).expect("a file");
    fs::write(&packed, &bytes[..bytes.len() / 2]).expect("a file");
    let analyzed = run(["analyze", &packed.display().to_string()]);
    assert_eq!(analyzed.code, 2, "{}", analyzed.stdout);
    assert!(analyzed.stderr.contains("x.rdpack"), "{}", analyzed.stderr);
    says(&pack(&["--unpack", "trace", "-o", "y"]), 2, &["cannot be read"]);
    says(&pack(&["--unpack", "x.rdpack", "-o", "z"]), 2, &["damaged"]);
    says(&pack(&["--unpack", "whole.rdpack", "-o", "z", "--max-size", "1k"]), 2, &["1024 bytes", "announces"]);
    assert!(!place.path().join("z").exists(), "nothing of it is left");
    says(&pack(&["whole.rdpack", "-o", "again"]), 2, &["whole.rdpack is a pack already"]);
    says(&pack(&["nonexist"]), 2, &["cannot read nonexist"]);
    says(&pack(&["--unpack", "nonexist"]), 2, &["cannot read nonexist"]);
    // Into a pipe: the same bytes, and no file of that name.
    let script = format!("{} pack trace -o - | cmp - whole.rdpack", binary().display());
    says(&process::run(Command::new("sh").args(["-c", &script]).current_dir(place.path()), LIMIT), 0, &["files"]);
    assert!(!place.path().join("-").exists());
}

#[test]
fn what_cannot_be_kept_is_said_before_anything_is_started() {
    for (flags, words) in [
        (["--keep", "30"], "say what it counts"),
        (["--keep", "5 parsecs"], "expected a time (30m, 2h) or a size"),
        (["--keep", "1ms"], "at least 1s"),
        (["--max-disk", "many"], "expected a number with a unit"),
        (["--max-disk", "1k"], "at least 1MiB"),
    ] {
        let ended = process::run(rankdiff().arg("record").args(flags).args(["--", "true"]), LIMIT);
        says(&ended, 2, &[words]);
    }
}
