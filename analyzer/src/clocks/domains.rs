//! Clocks that are one: whose host, or whose boot of a kernel, is the same. What each says of itself: how long its machine
//! slept, and how far the wall clock is ahead of it.
//!
//! CLOCK_MONOTONIC stands still while a machine is suspended, CLOCK_BOOTTIME does not; their difference at two moments
//! tells that it slept, and how long.
//!
//! Not here: how clocks of different machines relate (`bounds`).

use std::collections::BTreeMap;

use rankdiff_trace::{ClockSnapshot, ProcessTrace};

use super::moments::LATEST;

/// A machine stood still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleep {
    /// Between these two times, ns of the monotonic clock.
    pub(super) after: i64,
    pub(super) before: i64,
    /// For so long, ns.
    pub(super) length: i64,
    /// This one and those before it, ns.
    pub(super) total: i64,
}

/// One clock: all streams of one kernel's boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Domain {
    /// Host whose name stands for it.
    pub(super) host: String,
    pub(super) sleeps: Vec<Sleep>,
    /// Wall clock minus the monotonic clock, sleep included, ns; the latest known.
    pub(super) wall: Option<i64>,
    /// By how much the wall clock was set meanwhile, ns.
    pub(super) set_by: i64,
}

/// Reading the clocks one after the other takes less than this, ns: a smaller sleep is none.
const READING: i64 = 1_000_000;

impl Domain {
    fn of(host: &str, mut snapshots: Vec<ClockSnapshot>) -> Domain {
        snapshots.sort_unstable_by_key(|clock| (clock.monotonic, clock.boottime, clock.realtime));
        let mut domain = Domain { host: host.to_owned(), ..Domain::default() };
        let mut before: Option<(i64, i64)> = None;
        let mut asleep = 0;
        let mut walls: Option<(i64, i64)> = None;
        for clock in snapshots {
            let (Some(monotonic), Some(realtime)) = (time(clock.monotonic), time(clock.realtime)) else { continue };
            // Nobody noted it: no clock shows less than the one that stands still.
            let suspended = time(clock.boottime).map(|boot| boot - monotonic).filter(|&slept| slept >= 0);
            if let Some(slept) = suspended {
                if let Some((after, known)) = before
                    && slept - known > READING
                {
                    let length = slept - known;
                    asleep = LATEST.min(asleep + length);
                    domain.sleeps.push(Sleep { after, before: monotonic, length, total: asleep });
                }
                before = Some((monotonic, slept));
            }
            if realtime > 0 {
                let wall = realtime - monotonic - asleep;
                let (least, most) = walls.unwrap_or((wall, wall));
                walls = Some((least.min(wall), most.max(wall)));
                domain.wall = Some(wall);
            }
        }
        domain.set_by = walls.map_or(0, |(least, most)| most - least);
        domain
    }

    /// A time with the sleep before it counted; `None` if it lies where it is not known whether the machine had slept yet,
    /// or so far in the future that nobody can have seen it.
    pub(super) fn awake(&self, ns: u64) -> Option<i64> {
        let ns = time(ns)?;
        (self.unclear(ns) == 0).then(|| ns + self.slept(ns))
    }

    /// How long the machine had slept before a time, as far as that is certain.
    pub(super) fn slept(&self, ns: i64) -> i64 {
        let over = self.sleeps.partition_point(|sleep| sleep.before <= ns);
        over.checked_sub(1).and_then(|last| self.sleeps.get(last)).map_or(0, |sleep| sleep.total)
    }

    /// How much sleep there may be of which it is not known whether it lay before a time.
    pub(super) fn unclear(&self, ns: i64) -> i64 {
        let next = self.sleeps.partition_point(|sleep| sleep.before <= ns);
        self.sleeps.get(next).filter(|sleep| sleep.after < ns).map_or(0, |sleep| sleep.length)
    }
}

/// As a signed number, if it is one that a clock can show.
fn time(ns: u64) -> Option<i64> {
    i64::try_from(ns).ok().filter(|&ns| ns < LATEST)
}

/// The clocks of these traces, and for each trace which one is its own. `boots`: boot id by host name.
pub(super) fn of(traces: &[&ProcessTrace], boots: &BTreeMap<String, String>) -> (Vec<Domain>, Vec<usize>) {
    // Two containers of one machine have names of their own and one clock.
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_boot: BTreeMap<&str, usize> = BTreeMap::new();
    let mut snapshots: Vec<(&str, Vec<ClockSnapshot>)> = Vec::new();
    let mut of = Vec::with_capacity(traces.len());
    for trace in traces {
        let host = trace.key.host.as_str();
        let boot = boots.get(host).map(String::as_str).filter(|boot| !boot.is_empty());
        let known = names.get(host).or_else(|| by_boot.get(boot?)).copied();
        let domain = known.unwrap_or_else(|| {
            snapshots.push((host, Vec::new()));
            snapshots.len() - 1
        });
        names.entry(host).or_insert(domain);
        if let Some(boot) = boot {
            by_boot.entry(boot).or_insert(domain);
        }
        if let Some((_, held)) = snapshots.get_mut(domain) {
            held.extend_from_slice(&trace.clocks);
        }
        of.push(domain);
    }
    (snapshots.into_iter().map(|(host, snapshots)| Domain::of(host, snapshots)).collect(), of)
}
