//! Jobs over torch.distributed: every fault gets the verdict that is written beside the jobs, every healthy twin none, and
//! the recorded calls are those that the job noted itself.
//!
//! DDP makes calls of its own that a Python program cannot note (parameters and buffers that are broadcast, shapes that are
//! compared): there the noted calls must be among the recorded ones, in their order; elsewhere they are all.

use std::path::Path;

use rankdiff_tests::examples::slot;
use rankdiff_tests::job_log::{JobLog, Line};
use rankdiff_tests::process::Ended;
use rankdiff_tests::recorder::{Place, Verdict, record};
use rankdiff_tests::torch::{Torch, job, verdicts};
use rankdiff_tests::{is_privileged, repetitions, report};
use serde_json::Value;

use crate::jobs::{all_well, ranks};

/// Time for a job that ends by itself; torch gives up on a rank much earlier.
const ENDS: &str = "100s";
/// Time for a job that must still hang when it is looked at. Importing torch is most of it.
const HANGS: &str = "25s";
/// Seconds after which torch gives up in such a job.
const TORCH_WAITS: &str = "90";

/// One recorded job.
struct Seen {
    place: Place,
    ended: Ended,
    verdict: Verdict,
    log: JobLog,
    calls: Vec<Value>,
    complaints: Vec<String>,
}

impl Seen {
    fn of(command: &[String], timeout: &str) -> Seen {
        let place = Place::new();
        let ended = record(&mut place.record(&["--stall-after", "2s", "--timeout", timeout], command));
        let verdict = place.analyze(&["--stall-after", "2s"]);
        let log = JobLog::read(&place.logs());
        let calls = place.calls();
        Seen { place, ended, verdict, log, calls, complaints: Vec::new() }
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.complaints.push(what());
        }
    }

    /// The recorded calls of a rank, in its thread's order.
    fn calls_of(&self, rank: u32) -> Vec<&Value> {
        self.calls.iter().filter(|call| call["rank"] == rank).collect()
    }

    /// The recorded call for each noted one; `None` where there is none.
    fn found(&self, rank: u32) -> Vec<Option<&Value>> {
        let mut recorded = self.calls_of(rank).into_iter();
        self.log.rank(rank).iter().map(|line| recorded.find(|call| is_call(call, line))).collect()
    }

    /// Compares the recorded calls with the noted ones.
    fn check_calls(&mut self, has_ddp: bool, ranks: usize) {
        let mut complaints = Vec::new();
        for &rank in self.log.0.keys() {
            let (noted, recorded) = (self.log.rank(rank).len(), self.calls_of(rank).len());
            let missing = self.found(rank).iter().position(Option::is_none);
            if let Some(line) = missing {
                complaints.push(format!("rank {rank}: call {line} was not recorded: {:?}", self.log.rank(rank)[line]));
            }
            if !has_ddp && noted != recorded {
                complaints.push(format!("rank {rank}: {recorded} calls are recorded, {noted} were noted"));
            }
        }
        if self.log.0.len() != ranks {
            complaints.push(format!("{} ranks kept a log", self.log.0.len()));
        }
        self.complaints.append(&mut complaints);
    }

    fn complaint(&self, title: &str) -> Option<String> {
        if self.complaints.is_empty() {
            return None;
        }
        let (kept, list) = (self.place.keep(), self.complaints.join("\n  "));
        let (verdict, stderr) = (&self.verdict, &self.ended.stderr);
        Some(format!("== {title}\n  {list}\n  trace kept: {}\n{verdict}\n{stderr}", kept.display()))
    }
}

/// Whether a recorded call is the noted one.
fn is_call(call: &Value, line: &Line) -> bool {
    let text = |key: &str| call[key].as_str().map(str::to_owned);
    let partner = if call["peer"].is_null() { &call["root"] } else { &call["peer"] };
    text("op").as_deref() == line.op()
        && call["count"].as_u64() == line.count
        && text("dtype") == line.dtype
        && text("redop") == line.redop
        && partner.as_i64() == line.root
}

/// Where the logs say that the first divergence is: the position of a recorded call that a rank noted.
fn position(seen: &Seen, expected: &Value) -> Option<u64> {
    let number = |key: &str| expected[key].as_u64();
    let rank = number("rank")? as u32;
    let line = match number("line") {
        Some(line) => line as usize,
        None => {
            let other = number("other")? as u32;
            let pairs = seen.log.rank(rank).iter().zip(seen.log.rank(other));
            pairs.into_iter().position(|(own, others)| own.signature() != others.signature())?
        }
    };
    seen.found(rank).get(line).copied().flatten()?["seq"].as_u64()
}

fn faulty(python: &Path, name: &str, expected: &Value) -> Option<String> {
    let hangs = expected["hangs"] == true;
    let more: &[&str] = if hangs { &["--timeout", TORCH_WAITS] } else { &[] };
    let mut seen = Seen::of(&job(python, name, more), if hangs { HANGS } else { ENDS });

    let code = seen.ended.code;
    let right = if hangs { code == 124 } else { (code == 0) == (expected["silent"] == true) };
    seen.check(right, || format!("exit code {code}"));
    let class = seen.verdict.class().to_owned();
    let classes = expected["classes"].as_array().cloned().unwrap_or_default();
    seen.check(classes.iter().any(|right| *right == class.as_str()), || format!("class {class}"));
    let first = seen.verdict.first().clone();
    if let Some(what) = expected["what"].as_str() {
        seen.check(first["what"] == what, || format!("what {}", first["what"]));
    }
    if let Some(suspects) = expected["suspects"].as_str() {
        seen.check(first["suspects"] == suspects, || format!("suspects {}", first["suspects"]));
    }
    if let Some(sides) = expected["sides"].as_array() {
        let of = |side: &Value| ranks(side.as_str().unwrap_or_default());
        let found: Vec<_> = first["sides"].as_array().into_iter().flatten().map(|side| of(&side["ranks"])).collect();
        let all = found.len() == sides.len() && sides.iter().all(|side| found.contains(&of(side)));
        seen.check(all, || format!("sides {found:?}"));
    }
    if expected["divergence"].is_object() {
        let right = position(&seen, &expected["divergence"]);
        seen.check(right.is_some(), || "the job's own logs do not tell the place".to_owned());
        seen.check(first["first_divergence"].as_u64() == right, || {
            format!("first divergence {}, by the logs {right:?}", first["first_divergence"])
        });
    }
    if let Some(rank) = expected["circle"].as_u64() {
        let circle = first["cycle"].as_array().cloned().unwrap_or_default();
        seen.check(circle.iter().any(|member| member.as_u64() == Some(rank)), || format!("circle {circle:?}"));
    }
    seen.check_calls(expected["ddp"] == true, ranks_of(name));
    seen.complaint(name)
}

fn healthy(python: &Path, name: &str, expected: &Value) -> Option<String> {
    if name.contains(' ') && !name.ends_with(" root") {
        return None; // the same job without its fault, whichever that is
    }
    let mut seen = Seen::of(&job(python, name, &["--clean"]), ENDS);
    let code = seen.ended.code;
    seen.check(code == 0, || format!("exit code {code}"));
    let (class, grave) = (seen.verdict.class().to_owned(), seen.verdict.grave().join(" "));
    seen.check(class == "clean" && grave.is_empty(), || format!("class {class}, findings {grave}"));
    seen.check_calls(expected["ddp"] == true, ranks_of(name));
    let comms: std::collections::BTreeSet<&str> =
        seen.calls.iter().filter_map(|call| call["comm_id"].as_str()).collect();
    let groups = if name == "subgroup_order" { 3 } else { 1 };
    let count = comms.len();
    seen.check(count == groups, || format!("{count} process groups instead of {groups}"));
    seen.complaint(&format!("{name} --clean"))
}

/// Ranks of a job, unless told otherwise.
fn ranks_of(name: &str) -> usize {
    if name == "gan_divergence" { 8 } else { 4 }
}

/// Runs all jobs with one release of torch.
fn all_jobs(torch: Torch, test: &str, one: fn(&Path, &str, &Value) -> Option<String>) {
    if !is_privileged(test) {
        return;
    }
    let Some(python) = torch.find(test) else { return };
    let verdicts = verdicts();
    let rounds = repetitions(1);
    let mut complaints = Vec::new();
    for (name, expected) in (0..rounds).flat_map(|_| &verdicts) {
        let _slot = slot();
        complaints.extend(one(&python, name, expected));
    }
    let jobs = rounds as usize * verdicts.len();
    all_well(&complaints, jobs);
    report(&format!("{test}: {jobs} jobs, all as they must be"));
}

#[test]
fn faults_over_debians_torch_are_found_repeated() {
    all_jobs(Torch::Debian, "torch_debian_faults", faulty);
}

#[test]
fn nothing_is_said_of_healthy_jobs_over_debians_torch_repeated() {
    all_jobs(Torch::Debian, "torch_debian_healthy", healthy);
}

#[test]
fn faults_over_the_wheels_torch_are_found_repeated() {
    all_jobs(Torch::Wheel, "torch_wheel_faults", faulty);
}

#[test]
fn nothing_is_said_of_healthy_jobs_over_the_wheels_torch_repeated() {
    all_jobs(Torch::Wheel, "torch_wheel_healthy", healthy);
}

/// A process group whose other rank never comes throws in its constructor, which the program catches.
#[test]
fn an_exception_passes_a_recorded_method() {
    let test = "torch_exception";
    if !is_privileged(test) {
        return;
    }
    let Some(python) = Torch::Debian.find(test) else { return };
    let program = "\
import datetime
import torch.distributed as dist
wait = datetime.timedelta(seconds=1)
store = dist.TCPStore('127.0.0.1', 0, 1, True, timeout=wait)
try:
    dist.ProcessGroupGloo(store, 0, 2, wait)
except RuntimeError:
    print('caught')
";
    let _slot = slot();
    let place = Place::new();
    let words = [python.display().to_string(), "-c".to_owned(), program.to_owned()];
    let ended = record(&mut place.record(&[], &words));
    assert_eq!((ended.code, ended.stdout.trim()), (0, "caught"), "{}", ended.stderr);
}
