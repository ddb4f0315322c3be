//! Lost calls: counted for each thread, placed where they are missing, and never the reason for a verdict.

use std::collections::BTreeMap;

use rankdiff_tests::examples::{Flavour, cpuccl, slot};
use rankdiff_tests::recorder::{Place, record, run};
use rankdiff_tests::{is_privileged, report};
use serde_json::Value;

/// Processes that call as fast as they can.
const PROCESSES: usize = 8;

/// What is known of one process.
#[derive(Debug, Default)]
struct Process {
    seen: u64,
    /// Calls that are missing between two that were seen, or before the first.
    missing_between: u64,
    last: Option<u64>,
    /// Calls said to be lost.
    told: u64,
}

fn by_process(calls: &[Value], info: &str) -> BTreeMap<String, Process> {
    let mut processes: BTreeMap<String, Process> = BTreeMap::new();
    for call in calls {
        let process = processes.entry(call["pid"].to_string()).or_default();
        let ordinal = call["thread_seq"].as_u64().expect("every call has its ordinal");
        let expected = process.last.map_or(0, |last| last + 1);
        assert!(ordinal >= expected, "ordinal {ordinal} follows {:?}", process.last);
        process.missing_between += ordinal - expected;
        process.seen += 1;
        process.last = Some(ordinal);
    }
    let mut current = None;
    for line in info.lines() {
        if let Some(gap) = line.trim().strip_prefix("gap: ") {
            let lost: u64 = gap
                .split(' ')
                .next()
                .and_then(|word| word.replace(',', "").parse().ok())
                .unwrap_or_else(|| panic!("{line}"));
            let pid: &String = current.as_ref().expect("a gap stands below its process");
            processes.get_mut(pid).unwrap_or_else(|| panic!("no calls of {pid}")).told += lost;
        } else {
            // rank 3: host:4711 2000 calls (…), …
            let pid = line.split(": ").nth(1).and_then(|rest| rest.split([':', ' ']).nth(1));
            current = pid.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned).or(current);
        }
    }
    processes
}

/// Calls that `nccl_calls` makes with its usual seed: those of its own, and one for each `ncclBcast`, which calls
/// `ncclBroadcast`. It draws the kinds of its calls as `choose` in examples/c/job.c does.
fn calls_of_a_job(iterations: u32) -> u64 {
    const SEED: u64 = 1;
    const BCAST: u64 = 2;
    let kind = |step: u32| {
        let x = SEED.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((u64::from(step) << 16) + 15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % 12
    };
    u64::from(iterations) + (0..iterations).filter(|&step| kind(step) == BCAST).count() as u64
}

/// Starts processes that call at once and without a pause, each a rank of its own.
fn crowd(program: &std::path::Path, iterations: u32) -> Vec<String> {
    let script = format!(
        "for rank in $(seq 0 {}); do RANK=$rank WORLD_SIZE={PROCESSES} {} {} --iters {iterations} & done; wait",
        PROCESSES - 1,
        program.display(),
        cpuccl().display(),
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

#[test]
fn what_overflows_is_counted_and_placed() {
    let test = "overflow";
    let (true, Some(program)) = (is_privileged(test), Flavour::Calls.build(test)) else { return };
    let _library = Flavour::Dynamic.build(test);
    let _slot = slot();
    // The same job with and without losses makes the same calls.
    let iterations = 100_000;
    let place = Place::new();
    let library = cpuccl().display().to_string();
    let mut command = place.record(&["--ring", "1", "--library", &library], &crowd(&program, iterations));
    let ended = record(command.env_remove("RANKDIFF_JOB_LOG"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let info = run(["show", "--info", &place.trace().display().to_string()]);
    let calls = place.calls();
    let processes = by_process(&calls, &info.stdout);
    assert_eq!(processes.len(), PROCESSES, "{}", info.stdout);
    let lost: u64 = processes.values().map(|process| process.told).sum();
    assert!(lost > 0, "a ring of 1 MiB did not overflow: the job tests nothing\n{}", ended.stderr);
    let made = calls_of_a_job(iterations);
    for (pid, process) in &processes {
        assert_eq!(process.seen + process.told, made, "process {pid}: {process:?}\n{}", info.stdout);
        assert!(process.told >= process.missing_between, "process {pid}: more is missing than said: {process:?}");
    }
    assert!(ended.stderr.contains(&format!("{lost} calls were lost")), "{lost} lost:\n{}", ended.stderr);
    // Whatever happens to calls: who the processes were and how they ended is known.
    let of_all = format!("ranks 0-{} of {PROCESSES}", PROCESSES - 1);
    assert!(info.stdout.contains(&of_all), "{}", info.stdout);
    assert_eq!(info.stdout.matches("exited with code 0").count(), PROCESSES, "{}", info.stdout);

    let verdict = place.analyze(&[]);
    assert!(verdict.code == 0, "lost calls are no fault of the job\n{verdict}");
    assert!(verdict.text.to_lowercase().contains("lost"), "the report does not mention the losses\n{verdict}");
    report(&format!(
        "ring of 1 MiB, {PROCESSES} processes: {lost} of {} calls lost, all accounted for",
        made * PROCESSES as u64
    ));
}

#[test]
fn nothing_is_lost_at_a_usual_rate_repeated() {
    let test = "usual_rate";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    for _ in 0..rankdiff_tests::repetitions(1) {
        let _slot = slot();
        let place = Place::new();
        let mut job = vec![program.display().to_string()];
        job.extend(["plain", "--ranks", "4", "--iters", "5000"].map(str::to_owned));
        let mut command = place.record(&[], &job);
        let ended = record(command.env_remove("RANKDIFF_JOB_LOG"));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!ended.stderr.contains("lost"), "{}", ended.stderr);
        let verdict = place.analyze(&[]);
        assert!(verdict.class() == "clean" && verdict.grave().is_empty(), "{verdict}");
        let calls = verdict.json["coverage"]["calls"].as_u64().unwrap_or_default();
        assert!(calls > 4 * 3 * 5000, "{calls} calls\n{verdict}");
        report(&format!("{:.0} calls/s of 4 processes, nothing lost", calls as f64 / ended.wall.as_secs_f64()));
    }
}
