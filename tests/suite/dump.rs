//! `rankdiff dump`: where ranks stand, of a job that really hangs, of documents, and of what is no trace.

use std::fs;
use std::path::Path;

use rankdiff_tests::examples::slot;
use rankdiff_tests::is_privileged;
use rankdiff_tests::process;
use rankdiff_tests::recorder::{LIMIT, Place, rankdiff, run};
use serde_json::Value;

/// The dump of a trace, as JSON.
fn dumped(trace: &Path, more: &[&str]) -> Value {
    let trace = trace.display().to_string();
    let ended = run([&["dump", &trace, "--format", "json"], more].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("one JSON document")
}

fn text(trace: &Path, more: &[&str]) -> String {
    let trace = trace.display().to_string();
    let ended = run([&["dump", &trace], more].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stdout
}

/// Four ranks of which the last two never arrive.
fn made_up(place: &Place) {
    let scenario = place.path().join("hang.yaml");
    let document = "id: hang\nworld: 4\nblocking: true\ngroups: {world: [0,1,2,3], pair: [0,1]}\n\
                    streams:\n  \"0-1\": [{repeat: 20, do: [all_reduce 8 f32 @world job.c:1:step]}, all_gather 4 f32 @pair job.c:2:pair, barrier - - @world job.c:3:end pending]\n  \
                    \"2-3\": [{repeat: 20, do: [all_reduce 8 f32 @world job.c:1:step]}]\n\
                    end: {\"0-1\": alive_waiting, \"2-3\": alive_running}\nsnapshot_t: 90000\nverdict: {class: straggler}\n";
    fs::write(&scenario, document).expect("own folder");
    let made = run([Path::new("synth"), &scenario, Path::new("-o"), &place.trace()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
}

#[test]
fn a_job_that_hangs_is_dumped_as_it_stands() {
    if !is_privileged("dump") {
        return;
    }
    let _slot = slot();
    let place = Place::new();
    let mut command = rankdiff();
    command.args(["demo", "-o"]).arg(place.trace());
    place.prepare(&mut command);
    let ended = process::run(&mut command, LIMIT);
    assert_eq!(ended.code, 1, "the demo finds its fault\n{}\n{}", ended.stdout, ended.stderr);

    let dump = dumped(&place.trace(), &[]);
    assert_eq!(dump["ranks_seen"], 8, "{dump:#}");
    let chain = &dump["chains"][0];
    assert_eq!((chain["roots"].as_str(), chain["differ"].as_str()), (Some("6"), Some("6")), "{dump:#}");
    assert_eq!(chain["links"][0]["ranks"], "0-5,7", "{dump:#}");
    let of = |ranks: &str| {
        let all = dump["ranks"].as_array().expect("a list");
        all.iter().find(|one| one["ranks"] == ranks).unwrap_or_else(|| panic!("no {ranks} in {dump:#}")).clone()
    };
    let (six, others) = (of("6"), of("0-5,7"));
    assert_eq!((six["inside"].as_bool(), others["inside"].as_bool()), (Some(true), Some(true)), "{dump:#}");
    assert_eq!((&six["call"]["count"], &others["call"]["count"]), (&65_536.into(), &1.into()), "{dump:#}");
    // All have issued the 81st call; who returned from it may have issued more. Completions of this library nobody sees.
    let frontiers = dump["communicators"][0]["frontiers"].as_array().expect("a list");
    assert!(frontiers.iter().all(|one| one["entered"]["least"].as_u64() >= Some(81)), "{dump:#}");
    assert!(frontiers.iter().all(|one| one["completed"].is_null()), "{dump:#}");
    let shown = text(&place.trace(), &[]);
    for words in ["rank 6  made another call", "<- ranks 0-5,7 (7)", "(call 80)", "gen_backward", "validate"] {
        assert!(shown.contains(words), "{words} is missing in\n{shown}");
    }
    assert!(shown.lines().count() <= 36, "{shown}");
}

#[test]
fn ranks_that_do_not_come_are_the_roots() {
    let place = Place::new();
    made_up(&place);
    let dump = dumped(&place.trace(), &[]);
    let chains = dump["chains"].as_array().expect("a list");
    assert_eq!(chains.len(), 1, "{dump:#}");
    assert_eq!(chains[0]["roots"], "2-3", "{dump:#}");
    assert_eq!(chains[0]["links"][0]["ranks"], "0-1", "{dump:#}");
    let outside: Vec<&Value> =
        dump["ranks"].as_array().expect("a list").iter().filter(|one| one["inside"] == false).collect();
    assert_eq!(outside.len(), 1, "{dump:#}");
    assert_eq!((&outside[0]["ranks"], &outside[0]["waited_for"]), (&"2-3".into(), &true.into()), "{dump:#}");
}

#[test]
fn ranks_and_communicators_can_be_asked_for() {
    let place = Place::new();
    made_up(&place);
    let pair = dumped(&place.trace(), &["--comm", "pair"]);
    let names: Vec<&Value> =
        pair["communicators"].as_array().expect("a list").iter().map(|one| &one["group"]["name"]).collect();
    assert_eq!(names, ["pair"]);
    assert_eq!(pair["ranks"].as_array().map(Vec::len), Some(1), "ranks 2 and 3 are no members: {pair:#}");
    let one = dumped(&place.trace(), &["--rank", "3"]);
    assert_eq!(one["ranks"][0]["ranks"], "3", "{one:#}");
    assert_eq!(one["communicators"].as_array().map(Vec::len), Some(1), "rank 3 is no member of the pair: {one:#}");
    let whole = text(&place.trace(), &["--all"]);
    assert!(whole.contains("pair (2 ranks") && whole.contains("world (4 ranks"), "{whole}");
}

#[test]
fn colour_is_as_everywhere() {
    let place = Place::new();
    made_up(&place);
    assert!(!text(&place.trace(), &[]).contains('\x1b'), "a pipe is no terminal");
    assert!(text(&place.trace(), &["--color", "always"]).contains("\x1b["));
    assert!(!dumped(&place.trace(), &["--color", "always"]).to_string().contains('\x1b'));
}

#[test]
fn what_is_no_trace_is_refused() {
    let place = Place::new();
    let nowhere = place.path().join("nowhere").display().to_string();
    let ended = run(["dump", &nowhere]);
    assert_eq!(ended.code, 2, "{}", ended.stdout);
    assert!(ended.stderr.contains("nowhere"), "{}", ended.stderr);
}
