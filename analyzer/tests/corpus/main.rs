//! The corpus: scenario files with their right answers, through the whole analyzer.

mod built;
mod made_up;
mod queues;
mod skewed;
mod verdict;
mod wildcards;

use std::path::{Path, PathBuf};

use rankdiff_analyzer::checks::CHECKS;
use rankdiff_analyzer::finding::Class;
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::testgen::Scenario;
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::load;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(name)).expect("the corpus is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no scenario files in {name}");
    files
}

fn answer(scenario: &Scenario) -> Report {
    analyze(to_traces(scenario).expect("a scenario of the corpus is sound"), &Options::default())
}

/// Compares every document of a folder with its verdict.
fn judge(name: &str) {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for path in files(name) {
        let text = std::fs::read_to_string(&path).expect("readable");
        let verdicts = verdict::load(&text);
        let scenarios = load(&path).expect("a scenario file of the corpus is sound");
        assert_eq!(scenarios.len(), verdicts.len(), "{}", path.display());
        for (scenario, (id, verdict)) in scenarios.iter().zip(&verdicts) {
            assert_eq!(scenario.id(), id);
            let found = verdict::compare(verdict, &answer(scenario));
            wrong.extend(found.into_iter().map(|what| format!("{id}: {what}")));
            judged += 1;
        }
    }
    assert!(judged > 0);
    assert!(wrong.is_empty(), "{} of {judged} documents:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn known_incidents_get_their_right_answers() {
    judge("cases");
}

#[test]
fn every_check_gets_its_scenarios_right() {
    judge("checks");
}

/// Who waits for whom, and what became of it: variations that no check has to itself. Some of them the checker of the
/// language does not follow (calls queued behind one that hangs, posted receives, threads), so they stand apart.
#[test]
fn waits_get_their_right_answers() {
    judge("waits");
}

/// A check without a scenario that it finds, or without a near miss that stays silent, is not tested.
#[test]
fn every_check_has_a_scenario_and_a_near_miss() {
    for check in CHECKS {
        let path = folder("checks").join(format!("{}.yaml", check.meta.name));
        let scenarios = load(&path).unwrap_or_else(|error| panic!("{}: {error}", check.meta.name));
        let reports: Vec<Report> = scenarios.iter().map(answer).collect();
        let finds = |report: &&Report| report.findings.iter().any(|finding| finding.code == check.meta.code);
        assert!(reports.iter().any(|report| finds(&report)), "{} finds nothing", check.meta.name);
        assert!(
            reports.iter().any(|report| !finds(&report) && report.class == Class::Clean),
            "{} has no near miss",
            check.meta.name
        );
    }
}

/// The order of the input files is no information.
#[test]
fn the_order_of_traces_changes_nothing() {
    for path in files("cases") {
        for scenario in &load(&path).expect("sound") {
            let traces = to_traces(scenario).expect("sound");
            let mut backward = traces.clone();
            backward.reverse();
            let options = Options::default();
            assert_eq!(analyze(traces, &options), analyze(backward, &options), "{}", scenario.id());
        }
    }
}

/// Whatever is cut off a healthy job's records, it stays healthy.
#[test]
fn a_healthy_job_cut_anywhere_stays_clean() {
    use rankdiff_trace::{Life, ProcessState};
    for path in files("cases") {
        for scenario in &load(&path).expect("sound") {
            let whole = to_traces(scenario).expect("sound");
            if analyze(whole.clone(), &Options::default()).class != Class::Clean || scenario.id().contains("H6") {
                continue;
            }
            for share in 1..20 {
                let mut cut = whole.clone();
                for (rank, trace) in cut.iter_mut().enumerate() {
                    // Ranks are looked at a few ms apart.
                    let last = trace.calls.last().map_or(0, |call| call.enter);
                    let at = last / 20 * share + (rank as u64 * 7 % 5) * 3_000_000;
                    trace.calls.retain(|call| call.enter <= at);
                    for call in &mut trace.calls {
                        if call.exit.is_some_and(|exit| exit > at) {
                            call.exit = None;
                            call.result = None;
                        }
                        if matches!(call.completion, rankdiff_trace::Completion::At(end) if end > at) {
                            call.completion = rankdiff_trace::Completion::Unknown;
                        }
                    }
                    trace.clocks.retain(|clock| clock.monotonic <= at);
                    trace.states = vec![ProcessState { at, life: Life::Alive }];
                    trace.threads.clear();
                }
                let report = analyze(cut, &Options::default());
                assert_eq!(report.class, Class::Clean, "{} cut at {share}/20: {}", scenario.id(), report.summary);
            }
        }
    }
}
