//! The same job told in another way: ranks and groups with other names, other sizes, other times, other order of files.
//! What a report says of it has to change in the names alone.

use std::collections::BTreeMap;

use rankdiff_analyzer::Report;
use rankdiff_analyzer::finding::{Finding, Severity, Side};
use rankdiff_trace::{Call, CommIdentity, Completion, DType, ProcessTrace, RankSet};

/// What a report says, without words: comparable between two ways of telling a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Essence {
    /// Class of the verdict, and how sure it is.
    pub verdict: (&'static str, &'static str),
    /// What each finding says, in an order that means nothing.
    pub findings: Vec<Said>,
    /// Calls seen, and ranks that were not.
    pub coverage: (u64, RankSet, RankSet),
}

/// What one finding says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Said {
    /// Code, severity, class, confidence and argument.
    pub what: (&'static str, &'static str, &'static str, &'static str, Option<&'static str>),
    /// Members and library of the communicator.
    pub group: Option<(RankSet, String)>,
    /// First divergence and first visible mismatch.
    pub positions: (Option<u64>, Option<u64>),
    /// Ranks of each side and the operation that they called.
    pub sides: Vec<(RankSet, Option<String>)>,
    /// Suspects, waiting, direct and transitive victims, stalled, late, failed, missing callers, collateral exits.
    pub ranks: [RankSet; 9],
    /// The cycle of waits, from its lowest rank on.
    pub cycle: Vec<u32>,
}

impl Essence {
    /// What a report says, where each rank is called by another number.
    pub fn of(report: &Report, rank: &dyn Fn(u32) -> u32) -> Essence {
        let set = |ranks: &RankSet| ranks.iter().map(rank).collect::<RankSet>();
        let mut findings: Vec<Said> = report.findings.iter().map(|finding| said(finding, rank)).collect();
        findings.sort_unstable();
        let coverage = &report.coverage;
        Essence {
            verdict: (report.class.name(), report.confidence.name()),
            findings,
            coverage: (coverage.calls, set(&coverage.missing), set(&coverage.truncated)),
        }
    }
}

fn said(finding: &Finding, rank: &dyn Fn(u32) -> u32) -> Said {
    let set = |ranks: &RankSet| ranks.iter().map(rank).collect::<RankSet>();
    let side = |side: &Side| (set(&side.ranks), side.call.as_ref().map(|call| call.op.clone()));
    let mut sides: Vec<_> = finding.sides.iter().map(side).collect();
    sides.sort_unstable();
    let mut cycle: Vec<u32> = finding.cycle.iter().map(|&one| rank(one)).collect();
    let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap_or(0);
    cycle.rotate_left(lowest);
    Said {
        what: (finding.code, finding.severity.name(), finding.class.name(), finding.confidence.name(), finding.what),
        group: finding.group.as_ref().map(|group| (set(&group.ranks), group.library.clone())),
        // Of calls to which a rank came equally late, rounding says which a note names.
        positions: match finding.severity {
            Severity::Note => (None, None),
            _ => (finding.first_divergence, finding.first_visible),
        },
        sides,
        ranks: [
            set(&finding.suspects),
            set(&finding.waiting),
            set(&finding.direct_victims),
            set(&finding.transitive_victims),
            set(&finding.stalled),
            set(&finding.late),
            set(&finding.failed),
            set(&finding.missing_callers),
            set(&finding.collateral_exits),
        ],
        cycle,
    }
}

/// Ranks by other numbers: `numbers[rank]` is the new one.
pub fn permute(traces: &mut [ProcessTrace], numbers: &[u32]) {
    let number = |rank: u32| numbers.get(rank as usize).copied().unwrap_or(rank);
    for trace in traces {
        trace.ranks.iter_mut().for_each(|def| def.rank = number(def.rank));
        trace.attributes.iter_mut().for_each(|attribute| attribute.rank = attribute.rank.map(number));
        trace.calls.iter_mut().for_each(|call| call.rank = call.rank.map(number));
        for def in &mut trace.comms {
            def.members.iter_mut().for_each(|member| *member = number(*member));
            def.owner = def.owner.map(number);
        }
    }
}

/// Groups by other names, and so with other identities.
pub fn rename_groups(traces: &mut [ProcessTrace], name: &dyn Fn(&str) -> String) {
    for def in traces.iter_mut().flat_map(|trace| &mut trace.comms) {
        def.name = name(&def.name);
        def.identity = CommIdentity::root(&def.library, def.name.as_bytes());
    }
}

/// So many times as many elements everywhere; nothing and one element stay, since they mean something of their own.
pub fn scale_counts(traces: &mut [ProcessTrace], by: u64) {
    for call in traces.iter_mut().flat_map(|trace| &mut trace.calls) {
        let vectors = !call.sends.is_empty() || !call.recvs.is_empty();
        if vectors {
            call.sends.iter_mut().chain(&mut call.recvs).for_each(|part| *part *= by);
            call.count.iter_mut().for_each(|count| *count *= by);
        } else {
            // One element of a derived type is several of a basic one.
            let derived = matches!(call.dtype, DType::Derived(_));
            call.count.iter_mut().filter(|count| **count > 1 || derived).for_each(|count| *count *= by);
        }
    }
}

/// Every time so many times as long after the start of the clocks, and then all of them later.
pub fn stretch(traces: &mut [ProcessTrace], by: u64, later: u64) {
    let moved = |time: u64| if time == 0 || time == u64::MAX { time } else { time * by + later };
    for trace in traces {
        trace.calls.iter_mut().for_each(|call| stretch_call(call, &moved));
        for clock in &mut trace.clocks {
            let before = clock.monotonic;
            clock.monotonic = clock.monotonic * by + later;
            clock.boottime = clock.boottime + clock.monotonic - before;
            clock.realtime = clock.realtime + clock.monotonic - before;
        }
        for gap in &mut trace.gaps {
            (gap.after, gap.before) = (moved(gap.after), moved(gap.before));
        }
        trace.states.iter_mut().for_each(|state| state.at = moved(state.at));
        trace.logs.iter_mut().for_each(|line| line.at = moved(line.at));
        trace.steps.iter_mut().for_each(|step| step.at = moved(step.at));
        for thread in &mut trace.threads {
            thread.at = moved(thread.at);
            thread.since_ms = thread.since_ms.map(|since| since * by + later / 1_000_000);
            thread.cpu_ms = thread.cpu_ms.map(|cpu| cpu * by);
            thread.each_ms = thread.each_ms.map(|each| each * by);
        }
    }
}

fn stretch_call(call: &mut Call, moved: &dyn Fn(u64) -> u64) {
    call.enter = moved(call.enter);
    call.exit = call.exit.map(moved);
    if let Completion::At(at) = call.completion {
        call.completion = Completion::At(moved(at));
    }
}

/// Of several circles that are as long any may be told: where they begin at one time, nothing but a number chooses.
fn forget_equal_cycles(a: &mut Said, b: &mut Said) {
    let as_long = (a.what, &a.group, a.cycle.len()) == (b.what, &b.group, b.cycle.len());
    if as_long && a.cycle != b.cycle && a.ranks[1] == b.ranks[1] {
        for said in [a, b] {
            said.cycle.clear();
            said.ranks[3] = RankSet::new();
            if said.group.is_none() {
                // The sides are the calls of the circle.
                said.sides.clear();
            }
        }
    }
}

/// How often each finding is in one list and not in the other: what two ways of telling a job disagree on.
pub fn differences(one: &Essence, other: &Essence) -> String {
    let (mut one, mut other) = (one.clone(), other.clone());
    for (a, b) in one.findings.iter_mut().zip(&mut other.findings) {
        forget_equal_cycles(a, b);
    }
    if one == other {
        return String::new();
    }
    let mut count: BTreeMap<&Said, i64> = BTreeMap::new();
    one.findings.iter().for_each(|said| *count.entry(said).or_default() += 1);
    other.findings.iter().for_each(|said| *count.entry(said).or_default() -= 1);
    let differing: Vec<String> = count
        .into_iter()
        .filter(|&(_, balance)| balance != 0)
        .map(|(said, balance)| format!("{} {said:?}", if balance > 0 { "only before:" } else { "only after:" }))
        .collect();
    format!(
        "{:?} {:?} became {:?} {:?}\n{}",
        one.verdict,
        one.coverage,
        other.verdict,
        other.coverage,
        differing.join("\n")
    )
}
