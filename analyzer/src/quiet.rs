//! Whether the whole job stands still: ranks are alive, and for longer than the limit none of them has made a call.
//!
//! Standing still is no fault by itself: a job that computes, saves or waits for work is quiet too. What else has to be
//! known to say more is the checks' part.

use rankdiff_trace::{Call, Completion, Life, RankSet};

use crate::align::Alignment;
use crate::state::{Activity, RankState};
use crate::stream::RankStream;

/// A job in which no rank makes a call any more.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Ranks that are alive; of a job of which no rank is, those that were ended.
    pub(crate) live: RankSet,
    /// How long nobody has made a call when it was last looked at, ns.
    pub(crate) by: i64,
    /// Nobody was seen to do anything else: no rank uses the CPU, does I/O, sits in a driver or is stopped.
    pub(crate) idle: bool,
    /// Every live rank's main thread was seen asleep, and for longer than the limit where it is known for how long.
    pub(crate) asleep: bool,
    /// Every live rank rests, and the job has never been quiet for half as long before.
    pub(crate) rests: bool,
}

pub(crate) fn find(alignment: &Alignment<'_>) -> Option<Quiet> {
    let mut live: Vec<&RankState<'_>> = alignment.states.iter().filter(|state| !state.is_gone()).collect();
    if live.is_empty() {
        // Somebody ended them all: they stood still if each did until its end.
        live = alignment.states.iter().filter(|state| state.failed() && state.finalized.is_none()).collect();
    }
    let calls = alignment.attempt.streams.iter().flat_map(|stream| {
        stream.calls.iter().map(|call| stream.time(call.exit.unwrap_or(call.enter).max(call.enter)))
    });
    let elided = alignment.attempt.streams.iter().filter_map(|stream| {
        let known = stream.trace.elided.as_ref().filter(|known| known.calls > 0)?;
        Some(stream.time(known.times.1))
    });
    let last = calls.chain(elided).max()?;
    let by = live.iter().map(|state| state.horizon).min()?.saturating_sub(last);
    if by < alignment.limit {
        return None;
    }
    let activities: Vec<Activity> = live.iter().map(|state| state.activity(alignment.limit).0).collect();
    let is_idle = |(state, activity): (&&RankState<'_>, &Activity)| match activity {
        Activity::Asleep => true,
        Activity::Unknown => !matches!(state.life, Some(Life::Running | Life::Stopped)),
        Activity::Driver | Activity::Working | Activity::Stopped => false,
    };
    let pause = alignment.attempt.streams.iter().map(longest_pause).max().unwrap_or(0);
    let rests = by >= pause.saturating_mul(2) && live.iter().all(|state| state.rests(alignment.limit));
    Some(Quiet {
        rests,
        live: live.iter().map(|state| state.rank).collect(),
        by,
        idle: live.iter().zip(&activities).all(is_idle),
        asleep: live
            .iter()
            .zip(&activities)
            .all(|(state, activity)| *activity == Activity::Asleep && sleeps_long(state, alignment.limit)),
    })
}

/// The longest time that a rank was seen to make no call, ns.
fn longest_pause(stream: &RankStream<'_>) -> i64 {
    let end = |call: &Call| match call.completion {
        Completion::At(at) => at,
        _ => call.exit.unwrap_or(call.enter),
    };
    let next_to = |pair: &&[&Call]| match pair {
        // Where not every call was decoded, only neighbours tell.
        [a, b] => !stream.trace.has_elided() || a.thread == b.thread && a.thread_seq + 1 == b.thread_seq,
        _ => false,
    };
    let pauses = stream.calls.windows(2).filter(next_to).map(|pair| match pair {
        [a, b] => b.enter.saturating_sub(end(a).max(a.enter)),
        _ => 0,
    });
    i64::try_from(pauses.max().unwrap_or(0)).unwrap_or(i64::MAX)
}

/// Whether the main thread has not moved for that long, as far as it is known.
fn sleeps_long(state: &RankState<'_>, limit: i64) -> bool {
    let main = state.threads.iter().filter(|thread| thread.name == "main" || state.threads.len() == 1);
    main.filter_map(|thread| Some(thread.at.saturating_sub(thread.since_ms?.saturating_mul(1_000_000))))
        .all(|since| i64::try_from(since).unwrap_or(i64::MAX) >= limit)
}
