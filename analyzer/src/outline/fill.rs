//! Traces with the calls that were decoded, those of the frontiers, and what is known of all others.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rankdiff_trace::{
    Call, CommRef, Completion, Elided, ElidedChain, Problem, ProcessTrace, Record, Return, StreamOutline,
};
use rustc_hash::FxHashMap;

use super::Facts;
use super::agree::made;
use super::plan::{Group, Plan};

/// The outline's trace, with its frontier as the only calls and what is known of the others.
pub(super) fn shell(outline: &mut StreamOutline) -> ProcessTrace {
    let mut trace = std::mem::take(&mut outline.trace);
    // Behind an old frontier, what it shows as open may long have returned.
    if outline.is_open_ended() {
        trace.calls.clear();
    }
    for record in std::mem::take(&mut outline.tail) {
        match record {
            Record::Call(call) => {
                let last = call.exit.unwrap_or(call.enter).max(call.enter);
                outline.calls += 1;
                outline.times = (outline.times.0.min(call.enter), outline.times.1.max(last));
                trace.calls.push(call);
            }
            Record::Return(entry) => returned(&mut trace.calls, &entry),
            _ => {}
        }
    }
    let mut chains: Vec<ElidedChain> = outline
        .chains
        .iter()
        .map(|(comm, points)| ElidedChain { comm: *comm, made: made(points), class: None })
        .collect();
    chains.sort_unstable_by_key(|chain| chain.comm);
    trace.elided = Some(Arc::new(Elided { calls: outline.calls, times: outline.times, chains }));
    // The plan looks at where ranks stand.
    outline.trace.calls.clone_from(&trace.calls);
    trace
}

/// Puts a return into its call, if that is known.
fn returned(calls: &mut [Call], entry: &Return) {
    let is_it = |call: &&mut Call| (call.thread, call.thread_seq) == (entry.thread, entry.thread_seq);
    if let Some(call) = calls.iter_mut().rev().find(is_it) {
        (call.exit, call.result) = (Some(entry.exit), Some(entry.result));
        if entry.made != CommRef::NONE {
            call.made = entry.made;
        }
        if entry.completion != Completion::Unknown {
            call.completion = entry.completion;
        }
    }
}

/// Decodes what was planned, and says what is equal to what.
pub(super) fn traces(
    shells: Vec<ProcessTrace>,
    outlines: &[StreamOutline],
    groups: &[Group],
    plan: &Plan,
) -> (Vec<ProcessTrace>, Facts) {
    let mut facts =
        Facts { open: plan.open.clone(), differs: plan.differs.clone(), unproven: plan.unproven, ..Facts::default() };
    let of_calls = |outline: &StreamOutline| outline.blocks.iter().filter(|block| block.holds_calls()).count() as u64;
    // Those that were dropped are not there to be decoded.
    let readable = |outline: &StreamOutline| {
        outline.blocks.iter().filter(|block| block.holds_calls() && !block.header().is_expired()).count() as u64
    };
    facts.blocks = (plan.wanted.iter().map(|wanted| wanted.len() as u64).sum(), outlines.iter().map(readable).sum());
    let mut classes: FxHashMap<(usize, CommRef), u32> = FxHashMap::default();
    for group in groups {
        for (number, class) in group.classes.list.iter().enumerate().filter(|(_, class)| class.whole) {
            for member in class.members.iter().filter_map(|&at| group.members.get(at)) {
                classes.insert((member.stream, member.comm), number as u32);
            }
        }
    }
    let mut decoded = decode(outlines, plan);
    let mut traces = shells;
    for (at, (trace, outline)) in traces.iter_mut().zip(outlines).enumerate() {
        if let Some(elided) = &mut trace.elided {
            let elided = Arc::make_mut(elided);
            for chain in &mut elided.chains {
                chain.class = classes.get(&(at, chain.comm)).copied();
            }
        }
        let Some((calls, problems)) = decoded.get_mut(at).and_then(Option::take) else { continue };
        facts.open.extend(problems.iter().map(ToString::to_string));
        join(trace, calls);
        // Everything was decoded: there is nothing to be known beyond it.
        let missing = outline.calls.saturating_sub(trace.calls.len() as u64);
        if missing == 0 || plan.wanted.get(at).map_or(0, |wanted| wanted.len() as u64) == of_calls(outline) {
            let calls = trace.calls.len() as u64;
            if let Some(elided) = &mut trace.elided {
                Arc::make_mut(elided).calls = calls;
            }
        }
    }
    (traces, facts)
}

/// What tells a call from all others of its stream, where its source numbers them.
fn identity(call: &Call) -> (u32, u64, u64) {
    (call.thread, call.thread_seq, call.enter)
}

/// Puts decoded calls into a trace, in the order of the file as far as it is known. A frontier repeats calls.
fn join(trace: &mut ProcessTrace, mut calls: Vec<Call>) {
    let there: FxHashMap<(u32, u64, u64), usize> =
        calls.iter().enumerate().map(|(at, call)| (identity(call), at)).collect();
    for call in std::mem::take(&mut trace.calls) {
        match there.get(&identity(&call)).and_then(|&at| calls.get_mut(at)) {
            // A return that was written long after its call is in the frontier's copy.
            Some(held) if held.exit.is_none() => {
                (held.exit, held.result, held.made) = (call.exit, call.result, call.made);
                held.completion = call.completion;
            }
            Some(_) => {}
            None => calls.push(call),
        }
    }
    calls.sort_by_key(|call| call.enter);
    trace.calls = calls;
}

type Decoded = Vec<Option<(Vec<Call>, Vec<Problem>)>>;

/// Decodes the wanted blocks, several streams at a time.
fn decode(outlines: &[StreamOutline], plan: &Plan) -> Decoded {
    let work: Vec<usize> =
        (0..outlines.len()).filter(|&at| plan.wanted.get(at).is_some_and(|w| !w.is_empty())).collect();
    let found: Mutex<Decoded> = Mutex::new((0..outlines.len()).map(|_| None).collect());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&at) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (Some(outline), Some(wanted)) = (outlines.get(at), plan.wanted.get(at)) else { continue };
                    let wanted: Vec<usize> = wanted.iter().copied().collect();
                    let calls = outline.decode(&wanted);
                    // A thread that panicked ends the whole, whatever was found.
                    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if let Some(slot) = found.get_mut(at) {
                        *slot = Some(calls);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
