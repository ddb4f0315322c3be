//! `rankdiff demo`: its verdict follows the fault, is silent without one, and is shown where recording is not possible.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rankdiff_tests::examples::slot;
use rankdiff_tests::process::{self, Ended, wait_until};
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{LIMIT, Place, Verdict, rankdiff};
use rankdiff_tests::{binary, is_privileged, repetitions, report, skipped};

/// Calls of one micro-step.
const STEP: u32 = 4;

fn demo(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = rankdiff();
    command.arg("demo").args(arguments).arg("-o").arg(place.trace());
    place.prepare(&mut command);
    process::run(&mut command, LIMIT)
}

fn check_diverged(ended: &Ended, place: &Place, rank: u32, step: u32) {
    assert_eq!(ended.code, 1, "{}\n{}", ended.stdout, ended.stderr);
    let verdict = Verdict::of(&place.trace(), &["--stall-after", "1s"]);
    let context = format!("rank {rank}, step {step}:\n{verdict}");
    let finding = verdict.first();
    assert!(["code_divergence", "parameter_mismatch"].contains(&verdict.class()), "{context}");
    assert_eq!(finding["first_divergence"], STEP * step, "{context}");
    assert_eq!(finding["suspects"], rank.to_string(), "{context}");
    for text in [&ended.stdout, &verdict.text] {
        for word in ["validate", "gen_backward", &format!("call {}", STEP * step)] {
            assert!(text.contains(word), "{word} is missing: {text}\n{context}");
        }
    }
}

#[test]
fn the_demo_names_the_rank_that_is_a_step_behind() {
    if !is_privileged("demo") {
        return;
    }
    let _slot = slot();
    let place = Place::new();
    let ended = demo(&place, &[]);
    check_diverged(&ended, &place, 6, 20);
}

#[test]
fn the_demos_verdict_follows_its_fault_repeated() {
    let test = "demo_fault";
    if !is_privileged(test) {
        return;
    }
    let mut random = Random::new(test);
    let rounds = repetitions(2);
    for _ in 0..rounds {
        let _slot = slot();
        let (rank, step) = (random.within(0..8), random.within(3..30));
        let place = Place::new();
        let ended = demo(&place, &["--fault-rank", &rank.to_string(), "--fault-step", &step.to_string()]);
        check_diverged(&ended, &place, rank, step);
    }
    report(&format!("demo: {rounds} of {rounds} verdicts follow the fault"));
}

#[test]
fn the_healthy_demo_ends_without_a_finding() {
    if !is_privileged("healthy_demo") {
        return;
    }
    let _slot = slot();
    for story in ["diverge", "stall"] {
        let place = Place::new();
        let ended = demo(&place, &[story, "--healthy"]);
        assert_eq!(ended.code, 0, "{story}: {}\n{}", ended.stdout, ended.stderr);
        let verdict = place.analyze(&[]);
        assert!(verdict.class() == "clean" && verdict.grave().is_empty(), "{story}: {verdict}");
    }
}

#[test]
fn the_stalled_demo_names_the_driver_call() {
    if !is_privileged("demo_stall") {
        return;
    }
    let _slot = slot();
    let place = Place::new();
    let shared = || std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let before: Vec<_> = shared().collect();
    let ended = demo(&place, &["stall"]);
    // Its ranks are ended before all of them have joined. Others use the folder at the same time, for a moment.
    wait_until("the removal of what the demo shared", LIMIT, || {
        shared().all(|name| before.contains(&name)).then_some(())
    });
    for word in ["4-7", "ioctl", "/dev/ptmx"] {
        assert!(ended.stdout.contains(word), "{word} is missing: {}\n{}", ended.stdout, ended.stderr);
    }
    let verdict = place.analyze(&["--stall-after", "700ms"]);
    assert_eq!((verdict.class(), verdict.code), ("driver_stall", 1), "{verdict}");
    assert_eq!(verdict.first()["stalled_ranks"], "4-7", "{verdict}");
}

#[test]
fn without_privileges_the_demo_shows_what_it_would_show() {
    let test = "unprivileged_demo";
    if !is_privileged(test) {
        return;
    }
    if !rankdiff_tests::examples::on_path("setpriv") {
        skipped(test, "there is no setpriv");
        return;
    }
    let place = Place::new();
    // The checkout may not be readable for others.
    let copy = place.path().join("rankdiff");
    std::fs::copy(binary(), &copy).expect("room for a copy");
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).expect("own folder");
    for (story, words) in [("diverge", ["validate", "rank 6"]), ("stall", ["ioctl", "4-7"])] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&copy).args(["demo", story]);
        let ended = process::run(command.current_dir("/").env("NO_COLOR", "1"), LIMIT);
        assert_eq!(ended.code, 1, "{story}: {}\n{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("not possible"), "it must say that nothing was recorded: {}", ended.stderr);
        for word in words {
            assert!(ended.stdout.contains(word), "{story}: {word} is missing: {}", ended.stdout);
        }
    }
}
