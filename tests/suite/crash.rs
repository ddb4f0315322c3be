//! Ends that nobody planned: of the recorder, of a rank, of the disk, of patience. The job never notices the recorder, and
//! what was recorded stays true.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rankdiff_tests::examples::{Flavour, slot};
use rankdiff_tests::job_log::JobLog;
use rankdiff_tests::process::{self, Ended, Running, children, find_program, send, wait_until};
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{LIMIT, Place, record, run};
use rankdiff_tests::{is_privileged, repetitions, report};
use rustix::process::Signal;

const NCCL_JOB: &str = "nccl_job.dynamic";

fn nccl_job(program: &Path, arguments: &[&str]) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(arguments.iter().map(|word| (*word).to_owned())).collect()
}

/// Waits until rank 0 of a job has logged so many calls.
fn wait_for_calls(place: &Place, calls: usize) {
    wait_until("the job's calls", Duration::from_secs(60), || {
        let text = fs::read_to_string(place.logs().join("rank-0.log")).ok()?;
        (text.lines().count() >= calls).then_some(())
    });
}

#[test]
fn the_job_survives_its_recorder_repeated() {
    let test = "kill_recorder";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(2);
    for _ in 0..rounds {
        let _slot = slot();
        let place = Place::new();
        let (ranks, steps) = (4, 16_000);
        let code = place.path().join("code");
        let script =
            format!("{} plain --ranks {ranks} --iters {steps}; echo $? > {}", program.display(), code.display());
        let mut running = process::start(&mut place.record(&[], &["sh", "-c", &script].map(str::to_owned)));
        wait_for_calls(&place, 200);
        thread::sleep(Duration::from_millis(u64::from(random.within(0..500))));
        let logged = || JobLog::read(&place.logs()).0.values().map(Vec::len).sum::<usize>();
        // What was seen is in the files after half a second.
        let promised = logged();
        thread::sleep(Duration::from_millis(800));
        running.signal(Signal::KILL);
        assert!(running.wait_for_first(LIMIT).is_some(), "it was killed");
        assert!(!code.exists(), "the job ended too early for this test");
        let known = place.calls().iter().filter(|call| call["nested"].is_null()).count();
        assert!(known >= promised, "{known} calls are in the files, {promised} were made long before");
        let code =
            wait_until("the job's end", LIMIT, || fs::read_to_string(&code).ok().filter(|text| text.ends_with('\n')));
        assert_eq!(code.trim(), "0", "the job noticed that its recorder was killed");
        wait_until("the job's processes' end", LIMIT, || running.alive().is_empty().then_some(()));

        let log = JobLog::read(&place.logs());
        for rank in 0..ranks {
            let made = log.collectives(rank, "world").len();
            assert_eq!(made, 3 * steps + 2 * (steps / 4), "rank {rank} made {made} calls");
        }
        let info = run(["show", "--info", &place.trace().display().to_string()]);
        assert_eq!(info.stdout.matches("did not close the file").count(), ranks as usize, "{}", info.stdout);
        let verdict = place.analyze(&["--stall-after", "100ms"]);
        assert!(verdict.code == 0, "{known} calls, and a verdict on a healthy job\n{verdict}");
        assert!(matches!(verdict.class(), "clean" | "unknown"), "{verdict}");
        let said = verdict.text.to_lowercase();
        assert!(said.contains("recorder") || said.contains("truncated") || said.contains("torn"), "{verdict}");
    }
    report(&format!("recorder killed with SIGKILL: {rounds} jobs ended with 0, what was recorded is clean"));
}

#[test]
fn a_killed_rank_is_named_repeated() {
    let test = "kill_rank";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(2);
    for _ in 0..rounds {
        let _slot = slot();
        let place = Place::new();
        let victim = random.within(0..4);
        let job = nccl_job(&program, &["plain", "--ranks", "4", "--iters", "1000000"]);
        let mut running = process::start(&mut place.record(&["--timeout", "6s", "--stall-after", "1s"], &job));
        wait_for_calls(&place, 200);
        let launcher = wait_until("the launcher", LIMIT, || {
            children(running.pid()).into_iter().find_map(|child| find_program(child, NCCL_JOB))
        });
        let ranks = children(launcher);
        let pid = *ranks.get(victim as usize).expect("four ranks");
        send(pid, Signal::KILL);
        let ended = running.wait(LIMIT).expect("the recorder ends it");
        assert_eq!(ended.code, 124, "{}", ended.stderr);
        let verdict = place.analyze(&["--stall-after", "1s"]);
        assert_eq!((verdict.class(), verdict.code), ("rank_failed", 1), "{verdict}");
        assert_eq!(verdict.text_of("failed_ranks"), victim.to_string(), "{verdict}");
        assert!(verdict.text.contains("SIGKILL") || verdict.text.contains("signal 9"), "{verdict}");
    }
    report(&format!("rank killed with SIGKILL: {rounds} of {rounds} named"));
}

/// A file system of little room, unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts it; `None` where that is not permitted.
    fn mount(at: &'a Path) -> Option<SmallDisk<'a>> {
        fs::create_dir_all(at).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "rankdiff-test"]).arg(at).status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_said_and_the_job_goes_on() {
    let test = "full_disk";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let _slot = slot();
    let place = Place::new();
    let trace = place.trace();
    let Some(_disk) = SmallDisk::mount(&trace) else {
        rankdiff_tests::skipped(test, "it may not mount a file system");
        return;
    };
    let steps = 3000;
    let job = nccl_job(&program, &["plain", "--ranks", "4", "--iters", &steps.to_string()]);
    let ended = record(&mut place.record(&[], &job));
    assert_eq!(ended.code, 0, "the job noticed that the disk is full: {}", ended.stderr);
    let log = JobLog::read(&place.logs());
    assert_eq!(log.collectives(0, "world").len(), 3 * steps + 2 * (steps / 4));
    let said = ended.stderr.to_lowercase();
    assert!(said.contains("no space left") && said.contains("could not be written"), "{}", ended.stderr);
    // What fitted is read, and what did not is no divergence.
    let verdict = place.analyze(&[]);
    assert_eq!(verdict.code, 0, "a full disk is no fault of the job\n{verdict}");
    assert!(
        verdict.class() != "clean" || verdict.text.contains("written") || verdict.text.contains("lost"),
        "{verdict}"
    );
}

/// Records a shell script that takes its time, sends the recorder a signal, and waits for the end.
fn interrupted(script: &str, signal: Signal) -> (Ended, Running) {
    let place = Place::new();
    let ready = place.path().join("ready");
    // Nothing may hold the script's output once it has ended.
    let script = format!("touch {}; {script}", ready.display());
    let mut running = process::start(&mut place.record(&[], &["sh", "-c", &script].map(str::to_owned)));
    wait_until("the script", LIMIT, || ready.exists().then_some(()));
    // The trap is set before the file is made; the shell needs a moment to wait.
    thread::sleep(Duration::from_millis(100));
    running.signal(signal);
    let ended = running.wait(LIMIT).expect("it ends by the signal");
    (ended, running)
}

#[test]
fn signals_are_passed_to_the_job() {
    if !is_privileged("signals") {
        return;
    }
    let _slot = slot();
    for (signal, name, number) in [(Signal::INT, "INT", 2), (Signal::TERM, "TERM", 15), (Signal::HUP, "HUP", 1)] {
        let (ended, running) = interrupted(&format!("trap 'kill $!; exit 7' {name}; sleep 60 & wait"), signal);
        assert_eq!(ended.code, 7, "{name} did not reach the job: {}", ended.stderr);
        assert!(ended.wall < Duration::from_secs(30), "{name}: it waited for the script");
        drop(running);
        let (ended, _running) = interrupted("exec sleep 60", signal);
        assert_eq!(ended.code, 128 + number, "{name}: {}", ended.stderr);
    }
}
