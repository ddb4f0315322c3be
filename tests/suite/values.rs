//! Recorded calls against the job's own log, call by call: order on each thread, operation, arguments, communicators, and
//! both sequence numbers.

use std::collections::{BTreeMap, BTreeSet};

use rankdiff_tests::examples::{Flavour, cpuccl, real_nccl, slot};
use rankdiff_tests::job_log::{JobLog, Line};
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{Place, record};
use rankdiff_tests::{is_privileged, repetitions, report, skipped};
use serde_json::Value;

/// C names of types and operators, and how rankdiff names them.
const NAMES: &[(&str, &str)] = &[
    ("MPI_INT", "i32"),
    ("MPI_LONG", "i64"),
    ("MPI_FLOAT", "f32"),
    ("MPI_DOUBLE", "f64"),
    ("ncclInt32", "i32"),
    ("ncclFloat32", "f32"),
    ("ncclFloat64", "f64"),
    ("ncclBfloat16", "bf16"),
    ("MPI_SUM", "sum"),
    ("MPI_MAX", "max"),
    ("MPI_MIN", "min"),
    ("ncclSum", "sum"),
    ("ncclMax", "max"),
    ("ncclAvg", "avg"),
];
/// Types and operators by NCCL's numbers.
const NCCL_TYPES: &[&str] = &["i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"];
const NCCL_OPERATORS: &[&str] = &["sum", "prod", "max", "min", "avg"];

/// Operations that jobs do not log.
const NOT_LOGGED: &[&str] = &["init", "finalize", "abort", "group_start", "group_end", "wait"];

fn text<'a>(call: &'a Value, key: &str) -> &'a str {
    call[key].as_str().unwrap_or_default()
}

fn number(call: &Value, key: &str) -> Option<i64> {
    call[key].as_i64()
}

/// Calls of each thread in the order they were made, threads in the order of their first calls.
fn by_thread<'a>(calls: impl Iterator<Item = &'a Value>) -> Vec<Vec<&'a Value>> {
    let mut threads: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
    for call in calls {
        threads.entry(number(call, "thread").unwrap_or(-1)).or_default().push(call);
    }
    let mut threads: Vec<Vec<&Value>> = threads.into_values().collect();
    threads.sort_by_key(|calls| calls.first().and_then(|call| number(call, "enter_ns")));
    threads
}

/// Compares the recording of a job, none of whose calls are lost, with its log. Returns what differs, some of it if it is
/// much.
pub(crate) fn compare(calls: &[Value], log: &JobLog) -> Vec<String> {
    let mut wrong = sequence_numbers(calls);
    let mut named: BTreeMap<(String, u64), BTreeSet<String>> = BTreeMap::new();
    for (&rank, lines) in &log.0 {
        let of_rank = calls.iter().filter(|call| {
            number(call, "rank") == Some(rank.into())
                && call["nested"].is_null()
                && !NOT_LOGGED.contains(&text(call, "op"))
        });
        let recorded = by_thread(of_rank);
        let mut logged: BTreeMap<u32, Vec<&Line>> = BTreeMap::new();
        for line in lines {
            logged.entry(line.thread).or_default().push(line);
        }
        if recorded.len() != logged.len() {
            wrong.push(format!("rank {rank}: {} threads are recorded, {} made calls", recorded.len(), logged.len()));
        }
        for (calls, lines) in recorded.iter().zip(logged.values()) {
            // How often this thread released a communicator of this name: another one may get the name.
            let mut generations: BTreeMap<&str, u64> = BTreeMap::new();
            if calls.len() != lines.len() {
                wrong.push(format!("rank {rank}: {} calls are recorded, {} were made", calls.len(), lines.len()));
            }
            for (call, line) in calls.iter().zip(lines) {
                wrong.extend(
                    differences(call, line).into_iter().map(|what| format!("rank {rank}: {line:?}: {what}: {call}")),
                );
                let generation = generations.entry(&line.comm).or_default();
                if text(call, "comm") != "-" && line.op() != Some("comm_init") {
                    let id = text(call, "comm_id").to_owned();
                    named.entry((line.comm.clone(), *generation)).or_default().insert(id);
                }
                if line.op() == Some("comm_free") {
                    *generation += 1;
                }
            }
        }
    }
    wrong.extend(communicators(&named));
    wrong.truncate(6);
    wrong
}

/// One name, one identity on all ranks; another name, another identity.
fn communicators(named: &BTreeMap<(String, u64), BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut owners: BTreeMap<&str, &(String, u64)> = BTreeMap::new();
    for (name, ids) in named {
        if ids.len() != 1 {
            wrong.push(format!("communicator {name:?} has the identities {ids:?}"));
        }
        // Communicators that only part of a job makes together have no identity that all can know.
        for id in ids.iter().filter(|id| !id.is_empty()) {
            if let Some(other) = owners.insert(id, name) {
                wrong.push(format!("communicators {name:?} and {other:?} are both {id}"));
            }
        }
    }
    wrong
}

fn differences(call: &Value, line: &Line) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |what: &str, right: bool| {
        if !right {
            wrong.push(what.to_owned());
        }
    };
    // A persistent call was logged under the name of the blocking one.
    let op = text(call, "op");
    check("operation", line.op() == Some(op) || line.op() == op.strip_prefix('i'));
    if matches!(line.op(), Some("comm_init" | "comm_split" | "comm_dup" | "comm_free" | "comm_create")) {
        return wrong;
    }
    let sum = |key: &str| call[key].as_array().map(|vector| vector.iter().filter_map(Value::as_u64).sum());
    // Of a v-form the rank's own side is logged.
    let count = match line.op() {
        Some("all_to_all_v") => sum("sends"),
        _ => call["count"].as_u64(),
    };
    // Roots below zero are the constants of intercommunicators; who has neither data nor the root gives no arguments.
    let is_constant = line.root.is_some_and(|root| root < 0);
    let is_bystander = is_constant && count.is_none() && call["dtype"].is_null();
    check("count", is_bystander || count == line.count);
    check("type", is_bystander || right_name(line.dtype.as_deref(), call["dtype"].as_str(), NCCL_TYPES));
    check("operator", right_name(line.redop.as_deref(), call["redop"].as_str(), NCCL_OPERATORS));
    let key = if matches!(line.op(), Some("send" | "recv")) { "peer" } else { "root" };
    check(key, is_constant || number(call, key) == line.root);
    wrong
}

fn right_name(logged: Option<&str>, shown: Option<&str>, numbered: &[&str]) -> bool {
    let (Some(logged), Some(shown)) = (logged, shown) else { return logged.is_none() && shown.is_none() };
    if let Ok(number) = logged.parse::<usize>() {
        return numbered.get(number).map_or(shown == "dynamic", |name| *name == shown);
    }
    match NAMES.iter().find(|(name, _)| *name == logged) {
        Some((_, name)) => *name == shown,
        // The job's own type or operator: its name is unknown, but it is none of the predefined.
        None => !NAMES.iter().any(|(_, name)| *name == shown),
    }
}

/// The number of a call on its thread only grows; the positions on a communicator are 0, 1, 2, …
fn sequence_numbers(calls: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    let mut next: BTreeMap<(i64, String, String, i64), i64> = BTreeMap::new();
    for call in calls {
        let pid = number(call, "pid").unwrap_or(-1);
        let thread_seq = number(call, "thread_seq").unwrap_or(-1);
        let before = last.insert((pid, number(call, "thread").unwrap_or(-1)), thread_seq);
        // Persistent calls that are started together share a number.
        if before
            .is_some_and(|before| before > thread_seq || (before == thread_seq && !text(call, "op").starts_with('i')))
        {
            wrong.push(format!("thread_seq {thread_seq} follows {before:?}: {call}"));
        }
        let op = text(call, "op");
        let Some(seq) = number(call, "seq").filter(|_| call["nested"].is_null() && text(call, "comm") != "-") else {
            continue;
        };
        let (kind, peer) = match op {
            "send" | "recv" => (op, number(call, "peer").unwrap_or(-1)),
            _ if op.starts_with("comm_") || op.ends_with("_create") => ("creation", -1),
            _ => ("collective", -1),
        };
        let expected = next.entry((pid, text(call, "comm").to_owned(), kind.to_owned(), peer)).or_default();
        if seq != *expected {
            wrong.push(format!("position {seq}, expected {expected}: {call}"));
        }
        *expected = seq + 1;
    }
    wrong
}

/// Random arguments, counts beyond 32 bits included, to a library that refuses every call.
fn check_arguments(test: &str, library: &std::path::Path) {
    let (true, Some(program)) = (is_privileged(test), Flavour::Calls.build(test)) else { return };
    let mut random = Random::new(test);
    let mut calls = 0;
    let mut wide = 0;
    for _ in 0..repetitions(2) {
        let _slot = slot();
        let place = Place::new();
        let seed = random.within(1..1 << 30);
        let mut job: Vec<String> = [&program, library].iter().map(|path| path.display().to_string()).collect();
        job.extend(["--iters", "2000", "--seed", &seed.to_string()].map(str::to_owned));
        // The job opens the library itself, and is through before its probes could be placed then.
        let library = library.display().to_string();
        let mut command = place.record(&["--timeout", "60s", "--library", &library], &job);
        let ended = record(command.env("RANK", "0").env("WORLD_SIZE", "1"));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let recorded = place.calls();
        let log = JobLog::read(&place.logs());
        let wrong = compare(&recorded, &log);
        assert!(wrong.is_empty(), "seed {seed}:\n{}\n{}", wrong.join("\n"), ended.stderr);
        calls += log.rank(0).len();
        wide += recorded
            .iter()
            .filter(|call| call["count"].as_u64().is_some_and(|count| count > u64::from(u32::MAX)))
            .count();
    }
    assert!(calls > 1000 && wide > 100, "{calls} calls, {wide} with a wide count: the job tests nothing");
    report(&format!("{test}: {calls} calls with random arguments decoded, {wide} counts beyond 32 bits"));
}

#[test]
fn arguments_to_a_real_nccl_are_decoded_repeated() {
    match real_nccl() {
        Some(library) => check_arguments("real_nccl", &library),
        None => skipped("real_nccl", "no libnccl: set RANKDIFF_NCCL, or run cargo xtask setup"),
    }
}

#[test]
fn arguments_to_cpuccl_are_decoded_repeated() {
    // Its build brings the library.
    if Flavour::Dynamic.build("cpuccl_arguments").is_some() {
        check_arguments("cpuccl_arguments", &cpuccl());
    }
}
