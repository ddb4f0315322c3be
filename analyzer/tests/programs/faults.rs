//! One injected fault a program: right class, right communicator, exact first divergence, right suspects.

use std::collections::BTreeMap;

use fastrand::Rng;
use rankdiff_analyzer::Report;
use rankdiff_trace::RankSet;

use crate::program::{Collective, Event, Program, collective};
use crate::{report, seed, times};

/// What goes wrong at a call of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    OtherOp,
    OtherCount,
    OtherDtype,
    OtherReduction,
    OtherRoot,
    OtherSplits,
    Missing,
    Extra,
    Swapped,
}

const FAULTS: [Fault; 9] = [
    Fault::OtherOp,
    Fault::OtherCount,
    Fault::OtherDtype,
    Fault::OtherReduction,
    Fault::OtherRoot,
    Fault::OtherSplits,
    Fault::Missing,
    Fault::Extra,
    Fault::Swapped,
];

/// What a right verdict says.
#[derive(Debug)]
struct Truth {
    class: &'static str,
    what: Option<&'static str>,
    group: String,
    /// First and last position that explain the streams equally well.
    first: (u64, u64),
    suspect: u32,
    /// The rank is held by its next call.
    blocked: bool,
}

/// A program with a fault: its document and the truth.
struct Case {
    document: String,
    truth: Truth,
}

/// The place of a fault: a collective of a group of three or more.
struct Site<'a> {
    program: &'a Program,
    event: usize,
    /// Events of the body that other steps stand for.
    replaced: usize,
    group: usize,
    rank: u32,
    round: u64,
}

impl Site<'_> {
    /// Position of the call on its group.
    fn position(&self) -> u64 {
        let of = |events: &[Event]| {
            events.iter().filter(|event| event.has_position() && event.group() == Some(self.group)).count() as u64
        };
        let program = self.program;
        of(&program.prologue) + self.round * of(&program.body) + of(&program.body[..self.event])
    }

    /// Calls of the group in a round.
    fn period(&self) -> usize {
        self.program.body.iter().filter(|event| event.has_position() && event.group() == Some(self.group)).count()
    }

    /// Whether the rank makes a collective of another kind behind the call.
    fn goes_on(&self) -> bool {
        let program = self.program;
        let again = if self.round + 1 < program.rounds { &program.body[..] } else { &[] };
        let later = program.body[self.event + 1..].iter().chain(again).chain(&program.epilogue);
        later.filter(|event| event.has_position()).any(|event| {
            event.group().is_some_and(|group| {
                group != self.group && program.groups[group].ranks.len() > 1 && program.is_member(group, self.rank)
            })
        })
    }

    /// The rank's stream with other steps in place of its call.
    fn stream(&self, steps: Vec<String>) -> Vec<String> {
        let (program, rank) = (self.program, self.rank);
        let mut lines = program.lines(rank, &program.prologue, "");
        let mut rounds = |number: u64| {
            let body = program.lines(rank, &program.body, "    ");
            if number > 0 && !body.is_empty() {
                lines.push(format!("- repeat: {number}"));
                lines.push("  do:".to_owned());
                lines.extend(body);
            }
        };
        rounds(self.round);
        let mut rest = program.lines(rank, &program.body[..self.event], "");
        rest.extend(steps);
        rest.extend(program.lines(rank, &program.body[self.event + self.replaced..], ""));
        lines.extend(rest);
        let mut rounds = |number: u64| {
            let body = program.lines(rank, &program.body, "    ");
            if number > 0 && !body.is_empty() {
                lines.push(format!("- repeat: {number}"));
                lines.push("  do:".to_owned());
                lines.extend(body);
            }
        };
        rounds(program.rounds - self.round - 1);
        lines.extend(program.lines(rank, &program.epilogue, ""));
        lines
    }
}

fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let places: Vec<usize> = (0..program.body.len())
        .filter(|&at| {
            let event = &program.body[at];
            let big = event.group().is_some_and(|group| program.groups[group].ranks.len() > 2);
            big && match event {
                Event::Collective { call, .. } => applies(fault, call),
                Event::Splits { .. } => matches!(fault, Fault::OtherSplits | Fault::Missing | Fault::OtherOp),
                _ => false,
            }
        })
        .collect();
    let event = *rng.choice(&places)?;
    if fault == Fault::Swapped && (program.blocking || !is_swappable(&program.body, event)) {
        // A blocked rank shows the first of the two only.
        return None;
    }
    let group = program.body[event].group()?;
    let members = &program.groups[group].ranks;
    let rank = *rng.choice(members)?;
    let replaced = if fault == Fault::Swapped { 2 } else { 1 };
    let site = Site { program, event, replaced, group, rank, round: rng.u64(0..program.rounds) };
    if fault == Fault::Missing && !site.goes_on() {
        // Nothing tells a rank that left its last call out from one that is late.
        return None;
    }
    let own = program.calls(rank, &program.body[event]);
    let name = &program.groups[group].name;
    let position = site.position();
    let mut first = (position, position);
    let mut what = None;
    let steps = match (fault, &program.body[event]) {
        (Fault::Missing, _) => {
            if site.period() == 1 {
                // Nothing tells one round's call from another's.
                first = (0, u64::MAX);
            }
            Vec::new()
        }
        (Fault::Extra, _) => {
            let call = Collective {
                op: "scan",
                count: Some(3),
                dtype: "i32",
                redop: Some("sum"),
                root: None,
                site: "train.py:900:extra>log_metrics".to_owned(),
            };
            let mut steps = vec![collective(name, &call)];
            steps.extend(own);
            steps
        }
        (Fault::Swapped, _) => {
            let mut steps = program.calls(rank, &program.body[event + 1]);
            steps.extend(own);
            steps
        }
        (Fault::OtherSplits, Event::Splits { dtype, site, matrix, .. }) => {
            what = Some("splits");
            let me = members.iter().position(|&member| member == rank)?;
            let mut matrix = matrix.clone();
            let recvs: Vec<u64> = matrix.iter().map(|row| row[me]).collect();
            // One pair that disagrees has no majority.
            for other in 1..3 {
                let target = (me + other) % members.len();
                matrix[me][target] += 1;
            }
            let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let sum: u64 = matrix[me].iter().sum();
            vec![format!(
                "- all_to_all {sum} {dtype} @{name} {site} splits=[{}] recv_splits=[{}]",
                list(&matrix[me]),
                list(&recvs)
            )]
        }
        (Fault::OtherOp, event) => {
            let op = match event {
                Event::Collective { call, .. } if call.op == "all_gather" => "all_to_all",
                _ => "all_gather",
            };
            let call = Collective {
                op,
                count: Some(5),
                dtype: "f32",
                redop: None,
                root: None,
                site: "train.py:901:other>evaluate".to_owned(),
            };
            vec![collective(name, &call)]
        }
        (_, Event::Collective { call, .. }) => {
            let mut call = call.clone();
            match fault {
                Fault::OtherCount => {
                    what = Some("count");
                    call.count = call.count.map(|count| count + 1);
                }
                Fault::OtherDtype => {
                    what = Some("dtype");
                    call.dtype = if call.dtype == "f32" { "f16" } else { "f32" };
                }
                Fault::OtherReduction => {
                    what = Some("redop");
                    call.redop = if call.redop == Some("sum") { Some("max") } else { Some("sum") };
                }
                Fault::OtherRoot => {
                    what = Some("root");
                    let other = members.iter().find(|&&member| Some(member) != call.root)?;
                    call.root = Some(*other);
                }
                _ => return None,
            }
            vec![collective(name, &call)]
        }
        _ => return None,
    };
    let class = match what {
        Some(_) => "parameter_mismatch",
        None if fault == Fault::Swapped => "order_inversion",
        None => "code_divergence",
    };
    let blocked = program.blocking && fault == Fault::Missing;
    let truth = Truth { class, what, group: name.clone(), first, suspect: rank, blocked };
    let streams: Vec<Vec<String>> =
        (0..program.world).map(|r| if r == rank { site.stream(steps.clone()) } else { program.stream(r) }).collect();
    let end = format!("{{\"0-{}\": alive_waiting}}", program.world - 1);
    Some(Case { document: program.document_of(id, &end, &streams), truth })
}

/// Whether an event and the next one are calls of one group that are not alike.
fn is_swappable(body: &[Event], event: usize) -> bool {
    match (&body[event], body.get(event + 1)) {
        (Event::Collective { group: a, call: one }, Some(Event::Collective { group: b, call: other })) => {
            a == b && one.site != other.site && (one.op, one.count) != (other.op, other.count)
        }
        _ => false,
    }
}

fn applies(fault: Fault, call: &Collective) -> bool {
    let has_elements = call.count.is_some_and(|count| count > 0);
    match fault {
        Fault::OtherCount => call.count.is_some(),
        Fault::OtherDtype => has_elements,
        Fault::OtherReduction => call.redop.is_some() && has_elements,
        Fault::OtherRoot => call.root.is_some(),
        Fault::OtherSplits => false,
        Fault::OtherOp | Fault::Extra | Fault::Swapped => true,
        // An object's length and bytes are two calls of one site: which of them is missing, nothing tells.
        Fault::Missing => !call.site.ends_with("broadcast_object_list"),
    }
}

/// What is wrong with a verdict, and whether it names an innocent rank.
fn judge(report: &Report, truth: &Truth) -> (Vec<String>, bool) {
    let mut wrong = Vec::new();
    let Some(finding) = report.findings.first() else { return (vec!["nothing found".to_owned()], false) };
    // A blocked rank shows one call behind the one it left out: whether it would have made that later, nothing tells.
    if truth.blocked && !finding.cycle.is_empty() {
        let told = finding.cycle.contains(&truth.suspect);
        return (if told { wrong } else { vec!["a cycle without the rank".to_owned()] }, false);
    }
    if report.class.name() != truth.class {
        wrong.push(format!("class {}", report.class.name()));
    }
    if truth.what.is_some() && finding.what != truth.what {
        wrong.push(format!("what {:?}", finding.what));
    }
    let group = finding.group.as_ref().map(|group| group.name.clone()).unwrap_or_default();
    if group.split(' ').next() != Some(truth.group.as_str()) && !group.contains(&truth.group) {
        wrong.push(format!("group {group}"));
    }
    let placed = finding.first_divergence.map(|first| (truth.first.0..=truth.first.1).contains(&first));
    // A place that cannot be told may be left open, never guessed.
    let open = truth.first.1 == u64::MAX;
    if placed != Some(true) && !(placed.is_none() && open) {
        wrong.push(format!("first {:?}", finding.first_divergence));
    }
    let right = RankSet::from_iter([truth.suspect]);
    if finding.suspects != right {
        wrong.push(format!("suspects {}", finding.suspects));
    }
    let innocent = report.findings.iter().any(|finding| finding.suspects.iter().any(|rank| rank != truth.suspect));
    (wrong, innocent)
}

#[test]
fn one_fault_gets_its_right_answer() {
    let seed = seed("one_fault_gets_its_right_answer");
    let mut tally: BTreeMap<Fault, (u64, u64, u64)> = BTreeMap::new();
    let mut failures = Vec::new();
    for number in 0..times(360) {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fault = FAULTS[number as usize % FAULTS.len()];
        // Log-uniform, most of them short.
        let calls = 2_f64.powf(rng.f64() * 9.0) as u64;
        let id = format!("F{number}");
        let case = (0..5000).find_map(|_| {
            let program = Program::random(&mut rng, calls);
            inject(&mut rng, &program, fault, &id)
        });
        let case = case.expect("one of so many programs takes the fault");
        let (wrong, innocent) = judge(&report(&case.document), &case.truth);
        let counts = tally.entry(fault).or_default();
        counts.0 += 1;
        counts.1 += u64::from(wrong.is_empty());
        counts.2 += u64::from(innocent);
        if !wrong.is_empty() || innocent {
            let kept = std::env::temp_dir().join(format!("rankdiff-fault-{seed}-{number}.yaml"));
            std::fs::write(&kept, &case.document).expect("the temporary directory takes it");
            failures.push(format!(
                "{} {fault:?} {:?}: {wrong:?}{}",
                kept.display(),
                case.truth,
                if innocent { " INNOCENT" } else { "" }
            ));
        }
    }
    for (fault, (all, right, innocent)) in &tally {
        eprintln!("{fault:?}: {right} of {all} right, {innocent} with a wrong suspect");
    }
    let all: u64 = tally.values().map(|counts| counts.0).sum();
    let right: u64 = tally.values().map(|counts| counts.1).sum();
    let innocent: u64 = tally.values().map(|counts| counts.2).sum();
    assert!(
        innocent == 0 && right * 100 >= all * 97,
        "{right} of {all} right, {innocent} with a wrong suspect:\n{}",
        failures.join("\n")
    );
}
