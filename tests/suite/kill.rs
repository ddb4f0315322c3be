//! SIGKILL at random moments: of the job, of the recorder, of a recorder that somebody follows. What was made is in the
//! trace, what was in it stays, and nothing torn is shown as a call.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rankdiff_tests::examples::{Flavour, cpuccl, slot};
use rankdiff_tests::job_log::{JobLog, Line};
use rankdiff_tests::process::{self, Running, children, find_program, send, wait_until};
use rankdiff_tests::random::Random;
use rankdiff_tests::recorder::{LIMIT, Place, record};
use rankdiff_tests::{is_privileged, repetitions, report};
use rankdiff_trace::{Call, CallFlags, FollowState, JobDir, JobFollower, Life, ProcessKey, ProcessTrace, Record};
use rustix::process::Signal;

const RANKS: u32 = 4;
/// Repetitions in CI.
const USUAL: u32 = 10;

fn plain_job(program: &Path) -> Vec<String> {
    let arguments = ["plain", "--ranks", &RANKS.to_string(), "--iters", "1000000"].map(str::to_owned);
    std::iter::once(program.display().to_string()).chain(arguments).collect()
}

/// Streams of a trace, and what could not be read of them.
fn traces(dir: &Path) -> (Vec<ProcessTrace>, Vec<String>) {
    let job = JobDir::open(dir).expect("a trace");
    let mut problems: Vec<String> = job.problems().iter().map(ToString::to_string).collect();
    let mut traces = Vec::new();
    for stream in job.streams() {
        let outcome = stream.read();
        problems.extend(outcome.problems.iter().map(ToString::to_string));
        traces.push(outcome.trace);
    }
    (traces, problems)
}

/// The collectives that a job logs, in the order in which they were made.
fn collectives<'c>(calls: impl IntoIterator<Item = &'c Call>) -> Vec<&'c Call> {
    let own = |call: &&Call| call.op.is_collective() && !call.flags.contains(CallFlags::NESTED);
    let mut found: Vec<&Call> = calls.into_iter().filter(own).collect();
    found.sort_by_key(|call| (call.thread, call.thread_seq));
    found
}

/// Checks that these calls are the first of those that were logged, each with what was passed; gives their number.
fn prefix_of_log(rank: u32, calls: &[&Call], log: &[&Line]) -> usize {
    assert!(calls.len() <= log.len(), "rank {rank}: {} calls in the trace, {} were made", calls.len(), log.len());
    for (at, (call, line)) in calls.iter().zip(log).enumerate() {
        let recorded = (call.op.name(), call.count);
        assert_eq!(recorded, (line.op().expect("a collective"), line.count), "rank {rank}, its collective {at}");
        assert_eq!(call.seq, Some(at as u64), "rank {rank}, its collective {at}");
    }
    calls.len()
}

fn own_lines(log: &JobLog, rank: u32) -> Vec<&Line> {
    log.rank(rank).iter().filter(|line| line.is_collective()).collect()
}

fn losses(trace: &ProcessTrace) -> u64 {
    trace.gaps.iter().filter_map(|gap| gap.events).sum()
}

/// Waits until rank 0 of a job has logged some calls.
fn wait_for_calls(place: &Place) {
    wait_until("the job's calls", Duration::from_secs(60), || {
        let text = fs::read_to_string(place.logs().join("rank-0.log")).ok()?;
        (text.lines().count() >= 100).then_some(())
    });
}

#[test]
fn every_call_of_a_killed_job_is_in_the_trace_repeated() {
    let test = "kill_job";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(USUAL);
    let mut made = 0;
    for _ in 0..rounds {
        let _slot = slot();
        let place = Place::new();
        let mut running = process::start(&mut place.record(&[], &plain_job(&program)));
        wait_for_calls(&place);
        let launcher = wait_until("the launcher", LIMIT, || {
            children(running.pid()).into_iter().find_map(|child| find_program(child, "nccl_job.dynamic"))
        });
        let ranks = children(launcher);
        thread::sleep(Duration::from_micros(u64::from(random.within(0..300_000))));
        // One after the other without a pause, in any order: none can tell another's end from its own.
        let first = random.within(0..RANKS) as usize;
        for at in 0..ranks.len() {
            send(ranks[(first + at) % ranks.len()], Signal::KILL);
        }
        send(launcher, Signal::KILL);
        let ended = running.wait(LIMIT).expect("the recorder ends with its job");

        let log = JobLog::read(&place.logs());
        let (traces, problems) = traces(&place.trace());
        assert!(problems.is_empty(), "{problems:?}\n{}", ended.stderr);
        assert_eq!(traces.len(), RANKS as usize, "{}", ended.stderr);
        for trace in &traces {
            let rank = trace.ranks.last().expect("its rank is known").rank;
            assert_eq!((losses(trace), trace.closed), (0, true), "rank {rank}: {:?}", trace.gaps);
            let lines = own_lines(&log, rank);
            let calls = prefix_of_log(rank, &collectives(&trace.calls), &lines);
            // Each call is logged before it is made: the last one need not have been.
            assert!(calls + 1 >= lines.len(), "rank {rank}: {calls} calls of {} are in the trace", lines.len());
            let killed = |life: &Life| matches!(life, Life::Signaled { signal: 9, .. });
            assert!(trace.states.iter().any(|state| killed(&state.life)), "rank {rank}: {:?}", trace.states);
            made += calls;
        }
    }
    report(&format!(
        "job killed with SIGKILL at {rounds} random moments: all {made} calls that it made are in the trace"
    ));
}

/// Follows a directory on a thread of its own until it is told to stop and nothing is left to take.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

/// What a watcher saw.
#[derive(Debug, Default)]
struct Watched {
    /// Calls by stream, in the order in which they came.
    calls: BTreeMap<(ProcessKey, u64), Vec<Call>>,
    states: BTreeMap<(ProcessKey, u64), FollowState>,
    /// How long after its entry each call that came while the recorder wrote was seen, ns.
    delays: Vec<u64>,
    problems: Vec<String>,
}

/// After so many looks without news a writer that still seems to be there will not come back.
const MOST_QUIET: u32 = 1000;

/// CLOCK_MONOTONIC, which is the clock of recorded times.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Watcher {
    fn start(dir: &Path) -> Watcher {
        let stop = Arc::new(AtomicBool::new(false));
        let (dir, told) = (dir.to_owned(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut seen = Watched::default();
            while !dir.is_dir() && !told.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            let mut follower = JobFollower::new(&dir);
            let mut quiet_rounds = 0;
            loop {
                // Whatever was there when it was told to stop is taken by the round after.
                let stopping = told.load(Ordering::Relaxed);
                let news = follower.poll().expect("the trace's directory");
                let now = monotonic();
                let quiet = news.is_empty();
                for one in news {
                    let calls = seen.calls.entry((one.key, one.session)).or_default();
                    seen.problems.extend(one.batch.problems.iter().map(ToString::to_string));
                    for record in one.batch.records {
                        if let Record::Call(call) = record {
                            if !stopping {
                                seen.delays.push(now.saturating_sub(call.enter));
                            }
                            calls.push(call);
                        }
                    }
                }
                // The follower looks only now and then whether writers are still there.
                let ended = || follower.states().all(|(_, _, state)| state != FollowState::Open);
                quiet_rounds = if stopping && quiet { quiet_rounds + 1 } else { 0 };
                if quiet_rounds > 0 && ended() || quiet_rounds > MOST_QUIET {
                    break;
                }
                if quiet {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            let states = follower.states().map(|(key, session, state)| ((key.clone(), session), state));
            seen.states = states.collect();
            seen.problems.extend(follower.problems().iter().map(ToString::to_string));
            seen
        });
        Watcher { stop, thread }
    }

    fn finish(self) -> Watched {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the follower does not fail")
    }
}

/// What identifies a call and everything of it that is known at its entry.
fn essence(call: &Call) -> impl PartialEq + std::fmt::Debug + use<> {
    (call.thread, call.thread_seq, call.op, call.seq, call.count, call.enter)
}

/// The middle, and all but one of a hundred, of some times in ms.
fn delays(mut ns: Vec<u64>) -> String {
    ns.sort_unstable();
    let of = |share: usize| ns.get((ns.len().max(1) - 1) * share / 100).copied().unwrap_or(0) as f64 / 1e6;
    format!("{:.1} ms (median), {:.1} ms (99 %), {:.1} ms (most)", of(50), of(99), of(100))
}

/// Kills the recorder, then what is left of its job.
fn kill(running: &mut Running) {
    running.signal(Signal::KILL);
    assert!(running.wait_for_first(LIMIT).is_some(), "it was killed");
}

#[test]
fn what_a_killed_recorder_had_committed_stays_repeated() {
    let test = "kill_recorder_tail";
    let (true, Some(program)) = (is_privileged(test), Flavour::Dynamic.build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(USUAL);
    let (mut waits, mut kept) = (Vec::new(), 0);
    for _ in 0..rounds {
        let _slot = slot();
        let place = Place::new();
        let mut running = process::start(&mut place.record(&[], &plain_job(&program)));
        let watcher = Watcher::start(&place.trace());
        wait_for_calls(&place);
        thread::sleep(Duration::from_micros(u64::from(random.within(0..1_000_000))));
        let made_before = JobLog::read(&place.logs());
        thread::sleep(Duration::from_millis(500));
        kill(&mut running);
        let seen = watcher.finish();
        drop(running);

        let log = JobLog::read(&place.logs());
        let (traces, problems) = traces(&place.trace());
        assert_eq!((traces.len(), seen.calls.len()), (RANKS as usize, RANKS as usize), "{problems:?}");
        for trace in &traces {
            let rank = trace.ranks.last().expect("its rank is known").rank;
            assert!(!trace.closed, "rank {rank}: nobody closed it");
            assert_eq!(losses(trace), 0, "rank {rank}: {:?}", trace.gaps);
            // Read afterwards: exactly the first calls of the job, and no other.
            let calls = collectives(&trace.calls);
            let known = prefix_of_log(rank, &calls, &own_lines(&log, rank));
            let promised = own_lines(&made_before, rank).len();
            assert!(known >= promised, "rank {rank}: {known} calls are in the trace, {promised} were made long before");
            kept += known;
            // Whoever looked while it was written saw the same, and nothing has gone since.
            let live = seen.calls.iter().find(|((key, _), _)| *key == trace.key).map_or(&[][..], |(_, calls)| calls);
            let live: Vec<_> = live.iter().map(essence).collect();
            let after: Vec<_> = trace.calls.iter().map(essence).collect();
            assert_eq!(live, after, "rank {rank}");
        }
        assert!(seen.states.values().all(|state| *state == FollowState::Gone), "{:?}", seen.states);
        waits.extend(seen.delays);
    }
    report(&format!(
        "recorder killed with SIGKILL at {rounds} random moments: {kept} calls kept, none torn; seen by a follower after {}",
        delays(waits)
    ));
}

/// Starts processes that call at once and without a pause, each a rank of its own with a log of its own.
fn crowd(place: &Place, program: &Path, processes: u32, calls: u32) -> Vec<String> {
    let script = format!(
        "for rank in $(seq 0 {}); do mkdir -p {logs}/$rank; RANKDIFF_JOB_LOG={logs}/$rank RANK=$rank \
         WORLD_SIZE={processes} {} {} --iters {calls} & done; wait",
        processes - 1,
        program.display(),
        cpuccl().display(),
        logs = place.logs().display(),
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// Calls that each process makes when the job is recorded again.
const AGAIN: u32 = 2_000;

/// Checks that a follower saw every call of a stream once and in order: those that a reader finds afterwards.
fn saw_everything(seen: &Watched, traces: &[ProcessTrace]) -> usize {
    let mut all = 0;
    for trace in traces {
        let live = seen.calls.iter().filter(|((key, _), _)| *key == trace.key).map(|(_, calls)| calls);
        let live: Vec<&Call> = live.flatten().collect();
        assert!(
            live.windows(2).all(|pair| pair[0].thread_seq < pair[1].thread_seq),
            "process {}: a call came twice, or too late",
            trace.key.pid
        );
        let (live, after): (Vec<_>, Vec<_>) =
            (live.into_iter().map(essence).collect(), trace.calls.iter().map(essence).collect());
        assert_eq!(live.len(), after.len(), "process {}: seen and recorded calls", trace.key.pid);
        assert!(live == after, "process {}: other calls were seen than recorded", trace.key.pid);
        all += after.len();
    }
    all
}

#[test]
fn a_follower_sees_every_call_once_whatever_happens_to_the_recorder_repeated() {
    let test = "follow";
    let (true, Some(program)) = (is_privileged(test), Flavour::Calls.build(test)) else { return };
    let _library = Flavour::Dynamic.build(test);
    let mut random = Random::new(test);
    let rounds = repetitions(2);
    let (mut all, mut waits) = (0, Vec::new());
    for _ in 0..rounds {
        let _slot = slot();
        let place = Place::new();
        let library = cpuccl().display().to_string();
        let recording = |join: bool, calls: u32| {
            let flags: &[&str] = &["--library", &library, "--join"];
            let flags = if join { flags } else { flags.split_last().expect("flags").1 };
            place.record(flags, &crowd(&place, &program, 8, calls))
        };
        // At full speed, to the end.
        let mut running = process::start(&mut recording(false, 1_000_000));
        let watcher = Watcher::start(&place.trace());
        wait_until("streams of all", LIMIT, || {
            let entries = fs::read_dir(place.trace()).ok()?.flatten();
            let segments = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "rdt"));
            (segments.count() == 8).then_some(())
        });
        thread::sleep(Duration::from_micros(u64::from(random.within(0..1_500_000))));
        kill(&mut running);
        // What it started goes on unrecorded; it need not be waited for.
        drop(running);
        let begun = Instant::now();
        // Another recording of the same job: the follower notices by itself.
        let ended = record(&mut recording(true, AGAIN));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        wait_until("the follower's next look", LIMIT, || (begun.elapsed() > Duration::from_secs(1)).then_some(()));
        let seen = watcher.finish();
        assert!(seen.problems.is_empty(), "{:?}", seen.problems);

        let (traces, problems) = traces(&place.trace());
        let (closed, killed): (Vec<&ProcessTrace>, Vec<&ProcessTrace>) = traces.iter().partition(|trace| trace.closed);
        assert_eq!((closed.len(), killed.len()), (8, 8), "{problems:?}");
        all += saw_everything(&seen, &traces);
        for trace in closed {
            let own = trace.calls.iter().filter(|call| !call.flags.contains(CallFlags::NESTED)).count();
            assert_eq!(own, AGAIN as usize, "process {}: {:?}", trace.key.pid, trace.gaps);
        }
        let ends = |state: FollowState| seen.states.values().filter(|other| **other == state).count();
        assert_eq!((ends(FollowState::Closed), ends(FollowState::Gone)), (8, 8), "{:?}", seen.states);
        waits.extend(seen.delays);
    }
    report(&format!(
        "followed 8 ranks at full speed through {rounds} killed recorders: {all} calls, each once; seen after {}",
        delays(waits)
    ));
}
