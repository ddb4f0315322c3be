//! What is said of the clocks of several machines: how well they are joined, and what is wrong with them.

use super::{ASSUMED, HostClock, Joined, WORTH_A_WORD};
use crate::finding::ClockJoin;
use crate::words::{counted, duration};

impl Joined {
    pub(super) fn report(&self, calls: u64, distrusted: usize) -> ClockJoin {
        let clocks = self.clocks.len();
        let mut widths: Vec<i64> = self.clocks.iter().map(HostClock::widest).collect();
        widths.sort_unstable_by_key(|&width| std::cmp::Reverse(width));
        let within = widths.iter().take(2).fold(0_i64, |sum, &width| sum.saturating_add(width));
        let one = self.clocks.windows(2).all(|pair| matches!(pair, [a, b] if a.component == b.component));
        let within = u64::try_from(within).ok().filter(|_| one && within < ASSUMED);
        let mut text = Vec::new();
        text.push(match within {
            Some(ns) => {
                format!(
                    "clocks of {clocks} nodes joined to within {} by {}",
                    short(ns),
                    counted(calls, "collective call")
                )
            }
            None if self.clocks.iter().all(|clock| clock.joined) => {
                let why = match self.undecoded && self.contradiction.is_none() {
                    true => "the calls that would prove how far they are apart were not decoded",
                    false => "no calls prove how far they are apart",
                };
                let assumed = short(ASSUMED.unsigned_abs());
                format!("clocks of {clocks} nodes joined by their wall clocks: {why}, {assumed} at most is assumed")
            }
            None => {
                format!("clocks of {clocks} nodes: nothing says how some of them relate; their times are not compared")
            }
        });
        if let Some(by) = self.contradiction {
            text.push(format!(
                "the times of calls contradict one another by {}: a clock was set, or calls of an operation that should wait for all members did not",
                short(by.unsigned_abs())
            ));
        }
        if distrusted > 0 {
            text.push(format!(
                "{} not used: calls ended before other ranks of the same node had entered",
                counted(distrusted as u64, "communicator")
            ));
        }
        if let Some((at, by)) = self.wrong.iter().max_by_key(|wrong| wrong.1) {
            let host = self.clocks.get(*at).map(|clock| clock.domain.host.as_str()).unwrap_or_default();
            text.push(format!(
                "wall clocks of {} are proven wrong and were not used, by {} at least on '{host}'",
                counted(self.wrong.len() as u64, "node"),
                short(by.unsigned_abs())
            ));
        }
        if self.drifting > 0 {
            text.push(format!("clocks of {} drift against the others'", counted(self.drifting as u64, "node")));
        }
        let sleepers = self.clocks.iter().filter(|clock| !clock.domain.sleeps.is_empty()).count() as u64;
        if sleepers > 0 {
            text.push(format!("{} slept during the job", counted(sleepers, "node")));
        }
        let set = self.clocks.iter().max_by_key(|clock| clock.domain.set_by);
        if let Some(clock) = set.filter(|clock| clock.domain.set_by > WORTH_A_WORD) {
            let by = short(clock.domain.set_by.unsigned_abs());
            text.push(format!("the wall clock of '{}' was set by {by} meanwhile", clock.domain.host));
        }
        ClockJoin { clocks, calls, within_ns: within, text }
    }
}

/// ns in the unit that suits them.
pub(crate) fn short(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1_000),
        _ => duration(ns / 1_000_000),
    }
}
