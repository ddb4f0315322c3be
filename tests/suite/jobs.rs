//! Example jobs with one known fault, and what must be said of each: drawn at random, recorded, analyzed, compared with
//! the job's own log.

use std::collections::BTreeSet;

use rankdiff_tests::job_log::JobLog;
use rankdiff_tests::process::Ended;
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{Place, Verdict, record};

use crate::values;

/// Steps of a job.
const STEPS: u32 = 12;

/// One fault.
pub(crate) struct Case {
    /// Its name among the job's cases.
    pub(crate) name: &'static str,
    /// Classes that are right.
    pub(crate) classes: &'static [&'static str],
    /// What differs, for parameter mismatches.
    pub(crate) what: Option<&'static str>,
    /// Where the first divergence lies.
    pub(crate) at: At,
    /// How the faulty rank is named.
    pub(crate) who: Who,
    /// Exit codes of the job; 124 for a hang that the recorder ended.
    pub(crate) codes: &'static [i32],
}

/// Where the first divergence lies.
#[derive(Clone, Copy)]
pub(crate) enum At {
    /// Where the logs of the faulty rank and of another one first differ.
    Difference,
    /// At the call of this function that the faulty step makes, one a step.
    EachStep(&'static str),
    /// Where the faulty rank's calls on the world communicator end; nowhere if nobody was there to wait for it.
    End,
    /// In no single place.
    Nowhere,
}

/// How the faulty rank is named.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    /// A side of its own against all others, and the suspect.
    OddOneOut,
    /// Suspect, or among the failed.
    Blamed,
    /// Among those that failed.
    Failed,
    /// In a circle of waiting ranks.
    InCircle,
    /// In the circle of all ranks.
    AllInCircle,
    /// One of two that a message goes wrong between.
    Party,
    /// As the one that did not call a creation.
    MissingCaller,
}

/// Time for a job that was too slow.
const PATIENT: &str = "40s";

/// A job as it was drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    pub(crate) ranks: u32,
    pub(crate) rank: u32,
    pub(crate) step: u32,
    pub(crate) seed: u32,
}

impl Drawn {
    pub(crate) fn new(random: &mut Random, ranks: std::ops::Range<u32>) -> Drawn {
        let ranks = random.within(ranks);
        Drawn {
            ranks,
            rank: random.within(0..ranks),
            step: random.within(1..STEPS - 1),
            seed: random.within(1..1 << 30),
        }
    }

    /// The job's arguments, but for the number of ranks.
    pub(crate) fn arguments(&self, case: &str) -> Vec<String> {
        let numbers = [("--rank", self.rank), ("--at", self.step), ("--seed", self.seed), ("--iters", STEPS)];
        let numbers = numbers.iter().flat_map(|(flag, number)| [(*flag).to_owned(), number.to_string()]);
        [case.to_owned()].into_iter().chain(numbers).collect()
    }
}

/// What was recorded, and what is wrong with it.
struct Seen<'a> {
    title: String,
    ended: &'a Ended,
    verdict: &'a Verdict,
    complaints: Vec<String>,
}

impl Seen<'_> {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.complaints.push(what());
        }
    }
}

/// Records a job with a fault and compares what is said of it; returns what is wrong.
pub(crate) fn check_faulty(case: &Case, drawn: Drawn, timeout: &str, job: &[String]) -> Option<String> {
    let (place, ended) = recorded(case, drawn, timeout, job);
    let verdict = place.analyze(&["--stall-after", "2s"]);
    let title = format!("{} {drawn:?}: {}", case.name, job.join(" "));
    let mut seen = Seen { title, ended: &ended, verdict: &verdict, complaints: Vec::new() };

    seen.check(case.codes.contains(&ended.code), || format!("exit code {}, expected {:?}", ended.code, case.codes));
    let told = ended.stderr.contains("--timeout has passed");
    seen.check(told == (ended.code == 124), || "code 124 and the message about the time do not go together".to_owned());
    seen.check(verdict.code == 1, || format!("analyze ended with {}", verdict.code));
    seen.check(case.classes.contains(&verdict.class()), || {
        format!("class {}, expected {:?}", verdict.class(), case.classes)
    });
    if let Some(what) = case.what {
        seen.check(verdict.text_of("what") == what, || format!("what {}, expected {what}", verdict.first()["what"]));
    }
    check_position(&mut seen, case.at, drawn, &JobLog::read(&place.logs()));
    check_rank(&mut seen, case.who, drawn);
    complaint(&seen.title, &seen.complaints, &verdict, &ended, &place)
}

/// Records a job. On a loaded machine it may be ended before it came to its fault: then it gets more time once.
fn recorded(case: &Case, drawn: Drawn, timeout: &str, job: &[String]) -> (Place, Ended) {
    let attempt = |timeout: &str| {
        let place = Place::new();
        let ended = record(&mut place.record(&["--stall-after", "2s", "--timeout", timeout], job));
        (place, ended)
    };
    let (place, ended) = attempt(timeout);
    let log = JobLog::read(&place.logs());
    let other = (drawn.rank + 1) % drawn.ranks;
    let before_its_fault =
        || matches!(case.at, At::Difference) && log.first_difference(drawn.rank, other, "world").is_none();
    let too_soon = ended.code == 124 && (!case.codes.contains(&124) || before_its_fault());
    if too_soon { attempt(PATIENT) } else { (place, ended) }
}

/// The message about what is wrong, if anything is. The trace is kept then.
fn complaint(title: &str, complaints: &[String], verdict: &Verdict, ended: &Ended, place: &Place) -> Option<String> {
    if complaints.is_empty() {
        return None;
    }
    let kept = place.keep();
    let list = complaints.join("\n  ");
    Some(format!("== {title}\n  {list}\n  trace kept: {}\n{verdict}\n{}", kept.display(), ended.stderr))
}

/// Fails with all complaints, if there are any.
pub(crate) fn all_well(complaints: &[String], jobs: usize) {
    assert!(complaints.is_empty(), "{} of {jobs} jobs:\n{}", complaints.len(), complaints.join("\n"));
}

fn check_position(seen: &mut Seen<'_>, at: At, drawn: Drawn, log: &JobLog) {
    let found = seen.verdict.first()["first_divergence"].as_u64();
    let other = (drawn.rank + 1) % drawn.ranks;
    match at {
        At::Difference => {
            let expected = log.first_difference(drawn.rank, other, "world");
            assert!(expected.is_some(), "{}: the job's own logs do not differ", seen.title);
            seen.check(found == expected, || format!("first divergence {found:?}, by the logs {expected:?}"));
        }
        At::EachStep(function) => {
            let expected = log.position_of(drawn.rank, "world", function, drawn.step);
            assert!(expected.is_some(), "{}: the job's own log has no such {function}", seen.title);
            seen.check(found == expected, || format!("first divergence {found:?}, by the logs {expected:?}"));
        }
        At::End => {
            let end = log.collectives(drawn.rank, "world").len() as u64;
            // The launcher may have ended the others before they came so far.
            let waited = log.collectives(other, "world").len() as u64 > end;
            let hung = seen.ended.code == 124;
            let right = found == Some(end) || (found.is_none() && !(waited && hung));
            seen.check(right, || format!("first divergence {found:?}, by the logs {end}"));
        }
        At::Nowhere => {}
    }
}

fn check_rank(seen: &mut Seen<'_>, who: Who, drawn: Drawn) {
    let finding = seen.verdict.first();
    let rank = BTreeSet::from([drawn.rank]);
    let set = |key: &str| ranks(finding[key].as_str().unwrap_or_default());
    let named = || {
        let keys = ["suspects", "waiting", "failed_ranks", "missing_callers", "cycle"];
        keys.map(|key| format!("{key} {}", finding[key])).join(", ")
    };
    let circle: BTreeSet<u32> = finding["cycle"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rank| rank.as_u64())
        .map(|rank| rank as u32)
        .collect();
    let sides: Vec<BTreeSet<u32>> = finding["sides"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|side| ranks(side["ranks"].as_str().unwrap_or_default()))
        .collect();
    let right = match who {
        Who::OddOneOut => {
            let others: BTreeSet<u32> = sides.iter().filter(|side| **side != rank).flatten().copied().collect();
            let expected: BTreeSet<u32> = (0..drawn.ranks).filter(|other| *other != drawn.rank).collect();
            set("suspects") == rank && sides.contains(&rank) && others == expected
        }
        Who::Blamed => set("suspects") == rank || set("failed_ranks") == rank,
        Who::Failed => set("failed_ranks") == rank,
        Who::InCircle => circle.contains(&drawn.rank),
        Who::AllInCircle => circle == (0..drawn.ranks).collect(),
        Who::Party => sides.iter().any(|side| side.contains(&drawn.rank)) || circle.contains(&drawn.rank),
        Who::MissingCaller => set("missing_callers") == rank,
    };
    seen.check(right, || format!("rank {} is not named as it should be: {}, sides {sides:?}", drawn.rank, named()));
}

/// Records a job without a fault: its calls must be those of its log, and nothing may be said of it. Returns what is wrong.
pub(crate) fn check_healthy(job: &[String]) -> Option<String> {
    let place = Place::new();
    let ended = record(&mut place.record(&["--timeout", "60s"], job));
    let verdict = place.analyze(&[]);
    let mut complaints = Vec::new();
    if ended.code != 0 {
        complaints.push(format!("the job ended with {}", ended.code));
    }
    if verdict.class() != "clean" || verdict.code != 0 || !verdict.grave().is_empty() {
        complaints.push(format!("class {}, findings {:?}", verdict.class(), verdict.grave()));
    }
    complaints.extend(values::compare(&place.calls(), &JobLog::read(&place.logs())));
    complaint(&job.join(" "), &complaints, &verdict, &ended, &place)
}

/// Ranks of a compressed set ('0-3,8').
pub(crate) fn ranks(text: &str) -> BTreeSet<u32> {
    let number = |word: &str| word.parse::<u32>().unwrap_or_else(|_| panic!("no rank set: {text}"));
    text.split(',')
        .filter(|part| !part.is_empty())
        .flat_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            number(first)..=number(last)
        })
        .collect()
}

#[test]
fn rank_sets_are_read() {
    assert_eq!(ranks("0-2,5"), BTreeSet::from([0, 1, 2, 5]));
    assert_eq!(ranks(""), BTreeSet::new());
}
