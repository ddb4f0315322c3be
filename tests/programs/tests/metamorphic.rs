//! One job told in several ways, healthy or with a fault: the reports say the same of it.

use std::collections::BTreeMap;
use std::thread;

use fastrand::Rng;
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_programs::faults::{FAULTS, case};
use rankdiff_programs::files::{Scratch, by_digests, decoded, write};
use rankdiff_programs::healthy::job;
use rankdiff_programs::shape::kind;
use rankdiff_programs::variants::{Essence, differences, permute, rename_groups, scale_counts, stretch};
use rankdiff_programs::{seed, times};
use rankdiff_trace::ProcessTrace;
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;

/// Most calls of all ranks of a healthy program.
const MOST: u64 = 4_000;

/// A job as its records, with the text that it is from.
struct Told {
    document: String,
    traces: Vec<ProcessTrace>,
    /// Digests hold all that its verdict needs.
    by_signatures: bool,
}

fn told(rng: &mut Rng, number: u64) -> Told {
    let id = format!("M{number}");
    if number.is_multiple_of(2) {
        let job = job(rng, &id, MOST);
        return Told { document: job.kept(), traces: job.traces(), by_signatures: true };
    }
    let fault = FAULTS[(number / 2) as usize % FAULTS.len()];
    let document = format!("# {fault:?}\n{}", case(rng, fault, &id).document);
    let scenarios = parse("random.yaml", &document).expect("made here");
    let traces = to_traces(&scenarios[0]).expect("made here");
    // Where equal signatures hide what differs, call sites tell, and digests have none of them.
    let hidden = ["Hidden", "OtherSite", "Missing", "Extra", "Repeated", "Moved", "Swapped"];
    let by_signatures = !hidden.iter().any(|name| format!("{fault:?}").contains(name));
    Told { document, traces, by_signatures }
}

fn plain(traces: Vec<ProcessTrace>) -> Report {
    analyze(traces, &Options::default())
}

fn same(rank: u32) -> u32 {
    rank
}

#[test]
fn a_job_told_in_another_way_gets_the_same_answer() {
    let seed = seed();
    eprintln!("RANKDIFF_TEST_SEED={seed}");
    let mut told_otherwise: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for number in 0..times(80) {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let told = told(&mut rng, number);
        let report = plain(told.traces.clone());
        let mut wrong = Vec::new();
        for (name, text) in ways(&mut rng, &told, &report, number) {
            *told_otherwise.entry(name).or_default() += 1;
            if !text.is_empty() {
                wrong.push(format!("{name}: {text}"));
            }
        }
        if !wrong.is_empty() {
            let kept = std::env::temp_dir().join(format!("rankdiff-metamorphic-{seed}-{number}.yaml"));
            std::fs::write(&kept, &told.document).expect("the temporary directory takes it");
            failures.push(format!("{}: {}", kept.display(), wrong.join("\n")));
        }
    }
    eprintln!("{told_otherwise:?}");
    // Of several circles, or waits that began at one time, the one that is told still depends on the order of ranks in about
    // one of 200 jobs.
    let by_order = |failure: &String| failure.contains(".yaml: ranks permuted: ");
    if failures.iter().filter(|failure| by_order(failure)).count() as u64 <= 2 + times(80) / 100 {
        failures.retain(|failure| !by_order(failure));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
}

/// Every other way of telling the job, and what is then said otherwise.
fn ways(rng: &mut Rng, told: &Told, report: &Report, number: u64) -> Vec<(&'static str, String)> {
    let before = Essence::of(report, &same);
    let compare = |report: &Report| differences(&before, &Essence::of(report, &same));
    let changed = |change: &mut dyn FnMut(&mut Vec<ProcessTrace>)| {
        let mut traces = told.traces.clone();
        change(&mut traces);
        plain(traces)
    };
    let mut ways = Vec::new();

    let world = told.traces.iter().flat_map(|trace| &trace.ranks).filter_map(|def| def.world).max().unwrap_or(0);
    let mut numbers: Vec<u32> = (0..world).collect();
    rng.shuffle(&mut numbers);
    let permuted = changed(&mut |traces| permute(traces, &numbers));
    let back = |rank: u32| numbers.iter().position(|&number| number == rank).map_or(rank, |at| at as u32);
    ways.push(("ranks permuted", differences(&before, &Essence::of(&permuted, &back))));

    let salt = rng.u64(..);
    // Parallel groups of one kind keep one name for it: that they are alike is something that the names say.
    let other = |name: &str| {
        let number = name.split_once('_').map_or("", |(_, number)| number);
        format!("g{:x}_{number}", hash(kind(name), salt))
    };
    let renamed = changed(&mut |traces| rename_groups(traces, &other));
    ways.push(("groups renamed", compare(&renamed)));

    let scaled = changed(&mut |traces| scale_counts(traces, 3));
    ways.push(("counts scaled", compare(&scaled)));

    let mut traces = told.traces.clone();
    stretch(&mut traces, 1, 3_600_000_000_000);
    ways.push(("times shifted", compare(&plain(traces))));
    let mut traces = told.traces.clone();
    stretch(&mut traces, 2, 0);
    let patient = Options { stall_after: Options::default().stall_after * 2, ..Options::default() };
    ways.push(("times stretched", compare(&analyze(traces, &patient))));

    let shuffled = changed(&mut |traces| rng.shuffle(traces));
    ways.push(("files in another order", difference(report, &shuffled)));

    let threads: Vec<Report> = thread::scope(|scope| {
        let running: Vec<_> = (0..2).map(|_| scope.spawn(|| plain(told.traces.clone()))).collect();
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let odd = threads.iter().find(|other| *other != report);
    ways.push(("several threads", odd.map_or_else(String::new, |other| difference(report, other))));

    if number % 8 < 2 {
        let scratch = Scratch::new(&format!("metamorphic-{number}"));
        write(&told.traces, scratch.path());
        ways.push(("through files", compare(&decoded(scratch.path()))));
        let by_digests = by_digests(scratch.path(), None);
        ways.push(("by digests", core(report, &by_digests, told.by_signatures)));
    }
    ways
}

fn difference(one: &Report, other: &Report) -> String {
    if one == other { String::new() } else { format!("{} became {}", one.summary, other.summary) }
}

/// What both modes of decoding must agree on: class, communicator, positions and suspects of the verdict.
fn core(one: &Report, other: &Report, by_signatures: bool) -> String {
    let core = |report: &Report| {
        let first = report.findings.first();
        let group = first.and_then(|finding| finding.group.as_ref()).map(|group| group.ranks.to_string());
        let place = first.map(|finding| (finding.first_divergence, finding.first_visible));
        (report.class, group, place, first.map(|finding| finding.suspects.to_string()))
    };
    let is_same = core(one) == core(other);
    if is_same || !by_signatures { String::new() } else { format!("{} became {}", one.summary, other.summary) }
}

fn hash(text: &str, salt: u64) -> u64 {
    text.bytes().fold(salt, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
