//! Healthy programs, how they end, and what a recorder may have missed of them.

use std::fmt::Write as _;

use fastrand::Rng;
use rankdiff_analyzer::finding::{Class, Severity};
use rankdiff_analyzer::render::ExitPolicy;
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::ProcessTrace;
use rankdiff_trace::testgen::Scenario;
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;

use crate::lens::Lens;
use crate::program::Program;
use crate::timeline::Timeline;

/// Most calls of a rank.
const MOST_CALLS: f64 = 100_000.0;
/// Waits that a snapshot finds are shorter than this, ns: two thirds of what is a long wait.
const YOUNG: u64 = 20_000_000_000;
/// A second and a millisecond in ns.
const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// A healthy job as a recorder saw it.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its scenario.
    pub document: String,
    /// What was not seen of any call.
    pub lens: Lens,
    /// The record lacks nothing that a verdict needs.
    pub whole: bool,
    /// Calls of all ranks.
    pub calls: u64,
}

impl Job {
    /// What the recorder has of it.
    ///
    /// # Panics
    /// If the document is none of a scenario: it was made here.
    pub fn traces(&self) -> Vec<ProcessTrace> {
        let mut traces = to_traces(&scenario(&self.document)).unwrap_or_else(|error| panic!("{error}"));
        self.lens.apply(&mut traces);
        traces
    }

    /// The analyzer's report on it.
    pub fn report(&self) -> Report {
        analyze(self.traces(), &Options::default())
    }

    /// The document with what the lens hides as a comment, to keep.
    pub fn kept(&self) -> String {
        format!("# {:?}\n{}", self.lens, self.document)
    }
}

fn scenario(document: &str) -> Scenario {
    let scenarios = parse("random.yaml", document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    scenarios.into_iter().next().unwrap_or_else(|| panic!("no document\n{document}"))
}

/// A healthy job of 0 to 100,000 calls a rank, log-uniform, and not more than about `most` calls of all ranks.
///
/// # Panics
/// If the program is not healthy: then it is this generator that is wrong.
pub fn job(rng: &mut Rng, id: &str, most: u64) -> Job {
    let calls = ((MOST_CALLS + 1.0).powf(rng.f64()) as u64 - 1).min(most / 2);
    let ranks = (most / calls.max(1)).clamp(2, 64) as u32;
    let mut program = Program::of_size(rng, calls, ranks);
    program.restyle(rng);
    program.shorten(most);
    let all = format!("0-{}", program.world - 1);
    let timeline = Timeline::of(&scenario(&program.document(id, &format!("{{\"{all}\": {{exited: 0, t: 1e10}}}}"))));
    let open = timeline.first_open();
    assert!(open.is_none(), "a program that hangs (entry, rank, call: {open:?}):\n{}", program.document(id, "{}"));
    let (end, running) = ending(rng, &mut program, &timeline);
    let seen = blindness(rng, &mut program, &timeline);
    let mut lens = Lens::random(rng, program.world);
    lens.closed = running && rng.bool();
    let whole = seen && lens.is_clear() && timeline.total() > 0 && !running;
    Job { document: program.document(id, &end), lens, whole, calls: timeline.total() }
}

/// What a report on a healthy job should not say. `whole`: nothing is missing, so the answer is no guess.
pub fn alarms(report: &Report, whole: bool) -> Vec<String> {
    let loud = report.findings.iter().filter(|finding| finding.severity >= Severity::Warning);
    let mut alarms: Vec<String> = loud.map(|finding| format!("{} {}", finding.code, finding.headline)).collect();
    if report.class != Class::Clean {
        alarms.push(format!("class {}", report.class.name()));
    }
    let strict = ExitPolicy { strict: whole, ..ExitPolicy::default() };
    let code = strict.code(report);
    if code != 0 {
        alarms.push(format!("exit code {code}, {}", report.summary));
    }
    alarms
}

/// How the ranks ended or stood, and whether they still ran.
fn ending(rng: &mut Rng, program: &mut Program, timeline: &Timeline) -> (String, bool) {
    let ends: Vec<u64> = (0..program.world).map(|rank| timeline.end_of(rank)).collect();
    let exits = |rng: &mut Rng, base: &dyn Fn(u32) -> u64, most: u64| -> Vec<u64> {
        (0..program.world).map(|rank| base(rank) + rng.u64(1..most)).collect()
    };
    let choice = rng.u8(0..8);
    if choice < 3
        && let Some(at) = moment(rng, timeline)
    {
        program.blind.push(format!("snapshot_t: {}", ms(at)));
        if rng.u8(0..3) == 0 {
            threads(rng, program, at);
        }
        return (running(rng, program, timeline, at), true);
    }
    if choice == 3 {
        let at = timeline.end() + rng.u64(MILLI..YOUNG);
        program.blind.push(format!("snapshot_t: {}", ms(at)));
        return (running(rng, program, timeline, at), true);
    }
    let times = match choice {
        4 => exits(rng, &|rank| ends[rank as usize], 10 * SECOND),
        _ => exits(rng, &|_| timeline.end(), 2 * SECOND),
    };
    if choice == 5 && rng.bool() {
        // Some have ended, some are about to.
        let first = times.iter().min().copied().unwrap_or(0);
        let last = times.iter().max().copied().unwrap_or(0);
        program.blind.push(format!("snapshot_t: {}", ms(rng.u64(first..=last))));
    }
    let ended: Vec<String> =
        (0_u32..).zip(&times).map(|(rank, &at)| format!("\"{rank}\": {{exited: 0, t: {}}}", ms(at))).collect();
    (format!("{{{}}}", ended.join(", ")), false)
}

/// A moment in the run at which no wait is long.
fn moment(rng: &mut Rng, timeline: &Timeline) -> Option<u64> {
    let end = timeline.end();
    (0..8).map(|_| rng.u64(0..=end)).find(|&at| timeline.oldest_open(at) < YOUNG)
}

/// States of ranks that run: where calls block, those inside one wait.
fn running(rng: &mut Rng, program: &Program, timeline: &Timeline, at: u64) -> String {
    let state = |rank: u32, rng: &mut Rng| {
        let waits = if program.blocking { timeline.is_inside(rank, at) } else { rng.bool() };
        let state = if waits { "alive_waiting" } else { "alive_running" };
        format!("\"{rank}\": {state}")
    };
    let states: Vec<String> = (0..program.world).map(|rank| state(rank, rng)).collect();
    format!("{{{}}}", states.join(", "))
}

/// What the ranks' main threads did when the recorder looked.
fn threads(rng: &mut Rng, program: &mut Program, at: u64) {
    let mut text = "evidence: {".to_owned();
    for rank in 0..program.world {
        let since = ms(at.saturating_sub(rng.u64(0..5 * SECOND)));
        let thread = match rng.u8(0..3) {
            0 => format!("{{name: main, state: running, since_ms: {since}, cpu_ms: 20}}"),
            1 => format!("{{name: main, state: sleeping, syscall: futex, since_ms: {since}}}"),
            _ => format!("{{name: main, state: sleeping, syscall: poll, device: \"socket:[7]\", since_ms: {since}}}"),
        };
        let _ = write!(text, "{}\"{rank}\": {{threads: [{thread}]}}", if rank > 0 { ", " } else { "" });
    }
    text.push('}');
    program.blind.push(text);
}

/// What the recorder missed, often several things, often nothing. Whether it missed nothing.
fn blindness(rng: &mut Rng, program: &mut Program, timeline: &Timeline) -> bool {
    let hosts = hosts(rng, program);
    if rng.bool() || timeline.total() == 0 {
        return true;
    }
    let before = program.blind.len();
    let world = program.world;
    let some = |rng: &mut Rng| -> Vec<u32> {
        match rng.u8(0..4) {
            0 => (0..world).collect(),
            1 => hosts[rng.usize(0..hosts.len())].clone(),
            _ => vec![rng.u32(0..world)],
        }
    };
    let times = |ranks: &[u32], rng: &mut Rng, spread: u64| -> Vec<String> {
        let at = rng.u64(1..=timeline.end());
        ranks.iter().map(|rank| format!("\"{rank}\": {}", ms(at + rng.u64(0..spread)))).collect()
    };
    if rng.u8(0..3) == 0 {
        let ranks = some(rng);
        program.blind.push(format!("attached_at: {{{}}}", times(&ranks, rng, 2 * SECOND).join(", ")));
    }
    if rng.u8(0..3) == 0 {
        let gaps = some(rng).into_iter().filter(|&rank| timeline.calls(rank) > 1).map(|rank| {
            let gap = |rng: &mut Rng| {
                format!("{{after_call: {}, events: {}}}", rng.u64(1..timeline.calls(rank)), rng.u64(1..40))
            };
            let gaps: Vec<String> = (0..rng.usize(1..4)).map(|_| gap(rng)).collect();
            format!("\"{rank}\": [{}]", gaps.join(", "))
        });
        let gaps: Vec<String> = gaps.collect();
        if !gaps.is_empty() {
            program.blind.push(format!("lost: {{{}}}", gaps.join(", ")));
        }
    }
    if rng.u8(0..4) == 0 && world > 2 {
        let mut ranks = some(rng);
        ranks.truncate(world as usize - 1);
        let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
        program.blind.push(format!("missing_files: \"{}\"", ranks.join(",")));
    }
    if rng.u8(0..4) == 0 {
        let ranks = some(rng);
        program.blind.push(format!("truncated: {{{}}}", times(&ranks, rng, SECOND).join(", ")));
    }
    let seen = program.blind.len() == before;
    if rng.u8(0..3) == 0 {
        // Ranks of one host have one clock.
        let offsets = hosts.iter().flat_map(|ranks| {
            let offset = rng.u64(0..100_000) as i64 - 50_000;
            ranks.iter().map(move |rank| format!("\"{rank}\": {offset}")).collect::<Vec<_>>()
        });
        let offsets: Vec<String> = offsets.collect();
        program.blind.push(format!("clock_offset_ms: {{{}}}", offsets.join(", ")));
        return false;
    }
    seen
}

/// The ranks of each host, from one to all.
fn hosts(rng: &mut Rng, program: &mut Program) -> Vec<Vec<u32>> {
    let size = rng.u32(1..=program.world).min(if rng.bool() { 8 } else { 64 });
    let ranks: Vec<u32> = (0..program.world).collect();
    let hosts: Vec<Vec<u32>> = ranks.chunks(size as usize).map(<[u32]>::to_vec).collect();
    let described = hosts.iter().enumerate().flat_map(|(host, ranks)| {
        let one = |(local, rank): (usize, &u32)| format!("\"{rank}\": {{host: n{host}, local_rank: {local}}}");
        ranks.iter().enumerate().map(one).collect::<Vec<_>>()
    });
    let described: Vec<String> = described.collect();
    program.blind.push(format!("rank_info: {{{}}}", described.join(", ")));
    hosts
}

/// A time in ms as a scenario writes it.
fn ms(ns: u64) -> String {
    format!("{}.{:06}", ns / MILLI, ns % MILLI)
}
