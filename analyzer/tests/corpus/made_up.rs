//! Made-up jobs of many shapes: healthy ones stay silent, a planted fault is found where it was planted.

use rankdiff_analyzer::finding::Class;
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::testgen::generate::{Fault, FaultKind, GroupKind, Job, JobSpec, Truth};
use rankdiff_trace::{Completion, Gap, GapCause, Life, ProcessState, ProcessTrace};

fn traces(job: &Job) -> Vec<ProcessTrace> {
    (0..job.spec().world()).map(|rank| job.trace(rank)).collect()
}

/// A number from a seed.
fn pick(seed: u64, salt: u64, below: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 32)) % below.max(1)
}

#[test]
fn healthy_jobs_are_silent() {
    for seed in 0..200 {
        let Ok(job) = Job::new(JobSpec::small(seed), None) else { continue };
        let report = analyze(traces(&job), &Options::default());
        assert_eq!(report.class, Class::Clean, "seed {seed} {:?}: {}", job.spec(), report.summary);
    }
}

#[test]
fn planted_faults_are_found() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for seed in 0..150 {
        for kind in FaultKind::ALL {
            let spec = JobSpec::small(seed);
            let rank = pick(seed, 1, u64::from(spec.world())) as u32;
            let groups = [GroupKind::World, GroupKind::Tensor, GroupKind::Data];
            let group = groups[pick(seed, 2, 3) as usize];
            let Ok(healthy) = Job::new(spec.clone(), None) else { continue };
            let position = pick(seed, 3, healthy.positions(group, rank));
            let Ok(job) = Job::new(spec, Some(Fault { kind, rank, group, position })) else { continue };
            tried += 1;
            let report = analyze(traces(&job), &Options::default());
            if kind == FaultKind::Missing && is_told_otherwise(&report, rank) {
                continue;
            }
            let found = contradictions(job.truth(), &report);
            if !found.is_empty() {
                wrong.push(format!(
                    "seed {seed} {kind:?} {group:?} {position} rank {rank}: {found:?}; {}",
                    report.summary
                ));
            }
        }
    }
    assert!(tried > 500, "{tried} jobs");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A call that blocking ranks leave out can look like another order (a circle of waits with that rank in it), the last call
/// of all like leaving early, and the first of all like another argument, where nobody got to the call that follows it at the
/// same line: nothing that was recorded tells them apart.
fn is_told_otherwise(report: &Report, rank: u32) -> bool {
    let Some(finding) = report.findings.first() else { return false };
    match report.class {
        Class::OrderInversion | Class::P2pDeadlock => finding.cycle.contains(&rank),
        Class::ParameterMismatch => finding.first_visible == Some(0) && finding.sides.len() == 2,
        Class::UnevenInputs => finding.sides.iter().any(|side| side.call.is_none() && side.ranks.contains(rank)),
        _ => false,
    }
}

fn contradictions(truth: &Truth, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    if report.class.name() != truth.class {
        return vec![format!("class {}, expected {}", report.class.name(), truth.class)];
    }
    let Some(finding) = report.findings.first().filter(|_| report.class != Class::Clean) else { return wrong };
    if finding.what != truth.what {
        wrong.push(format!("what {:?}, expected {:?}", finding.what, truth.what));
    }
    let group = finding.group.as_ref().map_or("", |group| group.name.as_str());
    // A rank that is gone is missed first wherever its next call would have been.
    if truth.class == "uneven_inputs" {
        return wrong;
    }
    if group != truth.group {
        wrong.push(format!("group {group}, expected {}", truth.group));
    } else if finding.first_visible != truth.first_visible {
        wrong.push(format!("visible {:?}, expected {:?}", finding.first_visible, truth.first_visible));
    }
    if let (Some(got), Some((low, high))) = (finding.first_divergence, truth.first_divergence)
        && !(low..=high).contains(&got)
        && group == truth.group
    {
        wrong.push(format!("divergence {got}, expected {low}..={high}"));
    }
    if finding.suspects != truth.suspects {
        wrong.push(format!("suspects '{}', expected '{}'", finding.suspects, truth.suspects));
    }
    if !truth.failed.is_empty() && finding.failed != truth.failed {
        wrong.push(format!("failed '{}', expected '{}'", finding.failed, truth.failed));
    }
    wrong
}

/// What a recorder can do to the record of a healthy job.
#[derive(Debug, Clone, Copy)]
enum Harm {
    /// Ranks are looked at some ms apart while the job runs.
    Snapshot,
    /// The recorder was killed: nothing is known of the end.
    RecorderKilled,
    /// Calls in the middle are lost.
    Lost,
    /// One rank is recorded late.
    Late,
    /// Ranks have no file.
    Missing,
}

fn harmed(whole: &[ProcessTrace], harm: Harm, seed: u64) -> Vec<ProcessTrace> {
    let last = whole.iter().filter_map(|trace| trace.calls.last()).map(|call| call.enter).max().unwrap_or(0);
    let middle = last / 10 * (1 + pick(seed, 10, 9));
    let mut traces = whole.to_vec();
    let victim = pick(seed, 11, traces.len() as u64) as usize;
    match harm {
        Harm::Snapshot | Harm::RecorderKilled => {
            for (at, trace) in traces.iter_mut().enumerate() {
                let apart = pick(seed, 100 + at as u64, 5_000_000_000);
                cut(trace, middle + apart);
                trace.states.clear();
                trace.clocks.retain(|clock| clock.monotonic <= middle + apart);
                if matches!(harm, Harm::Snapshot) {
                    trace.states.push(ProcessState { at: middle + apart, life: Life::Alive });
                } else {
                    trace.closed = false;
                }
            }
        }
        Harm::Lost => {
            for trace in traces.iter_mut().skip(victim).take(2) {
                lose(trace, pick(seed, 12, trace.calls.len() as u64) as usize, 1 + pick(seed, 13, 60) as usize);
            }
        }
        Harm::Late => {
            if let Some(trace) = traces.get_mut(victim) {
                trace.calls.retain(|call| call.enter >= middle);
                trace.calls.iter_mut().for_each(|call| call.seq = None);
                trace.gaps.push(Gap { cause: GapCause::LateAttach, before: middle, ..Gap::default() });
            }
        }
        Harm::Missing => {
            traces.remove(victim);
        }
    }
    traces
}

/// Cuts a record at a time.
fn cut(trace: &mut ProcessTrace, at: u64) {
    trace.calls.retain(|call| call.enter <= at);
    for call in &mut trace.calls {
        if call.exit.is_some_and(|exit| exit > at) {
            call.exit = None;
            call.result = None;
        }
        if matches!(call.completion, Completion::At(end) if end > at) {
            call.completion = Completion::Unknown;
        }
    }
}

/// Takes calls out and says so.
fn lose(trace: &mut ProcessTrace, from: usize, count: usize) {
    let to = (from + count).min(trace.calls.len());
    let after = from.checked_sub(1).and_then(|at| trace.calls.get(at)).map_or(0, |call| call.enter);
    let before = trace.calls.get(to).map_or(u64::MAX, |call| call.enter);
    trace.calls.drain(from..to);
    let events = Some((to - from) as u64);
    trace.gaps.push(Gap { cause: GapCause::RingFull, events, after, before, ..Gap::default() });
}

#[test]
fn harmed_records_of_healthy_jobs_are_silent() {
    let mut wrong = Vec::new();
    for seed in 0..150 {
        let Ok(job) = Job::new(JobSpec::small(seed), None) else { continue };
        let whole = traces(&job);
        for harm in [Harm::Snapshot, Harm::RecorderKilled, Harm::Lost, Harm::Late, Harm::Missing] {
            let report = analyze(harmed(&whole, harm, seed), &Options::default());
            if report.class != Class::Clean {
                wrong.push(format!("seed {seed} {harm:?} {:?}: {}", job.spec(), report.summary));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
