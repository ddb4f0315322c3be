//! One machine's clock: its times on the job's clock, and how far they may be off.

use super::ASSUMED;
use super::bounds::{Interval, SHORTEST};
use super::domains::Domain;
use super::moments::LATEST;

/// An offset in the middle of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knot {
    /// ns of this clock, sleep included.
    pub(super) at: i64,
    pub(super) offset: i64,
    /// Where the true offset lies.
    pub(super) within: Interval,
}

/// The clock of one machine, and how it relates to the job's.
#[derive(Debug, Default)]
pub(crate) struct HostClock {
    pub(super) domain: Domain,
    /// Ascending; empty for a reference clock.
    pub(super) knots: Vec<Knot>,
    /// The offset to the reference clock is the same at all knots.
    pub(super) constant: Option<i64>,
    /// What is added to times of the reference clock, ns.
    pub(super) base: i64,
    /// Clocks of one number are joined by calls.
    pub(super) component: usize,
    /// How far times of other clocks may be off at most at the ends of their records, ns, an assumption about wall clocks
    /// included where nothing else joins them.
    pub(super) apart: i64,
    /// ns in which clocks drift apart by 1 ns at most; 0 for a reference clock.
    pub(super) slowness: i64,
    /// Its times compare with other clocks' at all.
    pub(super) joined: bool,
    /// The latest time of its records, ns.
    pub(super) end: u64,
}

impl HostClock {
    /// A time of this clock on the job's clock, ns.
    pub(crate) fn time(&self, ns: u64) -> i64 {
        let awake = self.awake(ns);
        awake.saturating_add(self.offset(awake)).saturating_add(self.base)
    }

    fn awake(&self, ns: u64) -> i64 {
        let ns = signed(ns);
        ns.saturating_add(self.domain.slept(ns))
    }

    /// Offset to the reference clock.
    fn offset(&self, at: i64) -> i64 {
        if let Some(offset) = self.constant {
            return offset;
        }
        match self.around(at) {
            [Some(a), Some(b)] => {
                let (passed, whole) = (i128::from(at) - i128::from(a.at), i128::from(b.at) - i128::from(a.at));
                let step = (i128::from(b.offset) - i128::from(a.offset)) * passed / whole.max(1);
                a.offset.saturating_add(i64::try_from(step).unwrap_or(0))
            }
            [Some(only), None] | [None, Some(only)] => only.offset,
            [None, None] => 0,
        }
    }

    /// The knots before and after a time.
    fn around(&self, at: i64) -> [Option<&Knot>; 2] {
        let next = self.knots.partition_point(|knot| knot.at <= at);
        [next.checked_sub(1).and_then(|before| self.knots.get(before)), self.knots.get(next)]
    }

    /// How far a time of this clock may be off on its reference clock, ns.
    pub(super) fn own_doubt(&self, ns: u64) -> i64 {
        let at = self.awake(ns);
        let offset = self.offset(at);
        let of_knot = |knot: &Knot| {
            let drifted = at.saturating_sub(knot.at).saturating_abs().checked_div(self.slowness).unwrap_or(0);
            knot.doubt_of(offset).saturating_add(drifted)
        };
        let known = self.around(at).into_iter().flatten().map(of_knot).min().unwrap_or(0);
        known.saturating_add(self.domain.unclear(signed(ns)))
    }

    /// How far the difference between this time and one near the end of another clock's record may be off at most, ns.
    /// 0 if there is no other clock.
    pub(crate) fn doubt(&self, ns: u64) -> i64 {
        self.own_doubt(ns).saturating_add(self.apart)
    }

    /// How far the difference of two times may be off at most, ns: 0 on one clock.
    pub(crate) fn doubt_between(&self, ns: u64, other: &HostClock, other_ns: u64) -> i64 {
        if std::ptr::eq(self, other) {
            return 0;
        }
        let both = self.own_doubt(ns).saturating_add(other.own_doubt(other_ns));
        both.saturating_add(self.assumed(other))
    }

    /// The same near the ends of both records.
    pub(crate) fn doubt_at_end(&self, other: &HostClock) -> i64 {
        self.doubt_between(self.end, other, other.end)
    }

    /// How far any of its times from the first moment to the last may be off on its reference clock, ns.
    pub(super) fn widest(&self) -> i64 {
        let mut widest = 0;
        for (at, knot) in self.knots.iter().enumerate() {
            let beside = [at.checked_sub(1), Some(at + 1)].map(|beside| self.knots.get(beside?));
            // Half way to the next knot this one's bounds hold but for the drift, and the offset is between both.
            let half = beside.into_iter().flatten().map(|next| (next.at - knot.at).saturating_abs() / 2).max();
            let drifted = half.unwrap_or(SHORTEST / 2).checked_div(self.slowness).unwrap_or(0);
            let there = beside.into_iter().flatten().map(|next| knot.offset.midpoint(next.offset));
            let doubt = there.chain([knot.offset]).map(|offset| knot.doubt_of(offset)).max().unwrap_or(0);
            widest = widest.max(doubt.saturating_add(drifted).saturating_add(1));
        }
        widest
    }

    /// What has to be assumed of the wall clocks to compare the two.
    fn assumed(&self, other: &HostClock) -> i64 {
        match self.component == other.component {
            true => 0,
            false if self.joined && other.joined => ASSUMED,
            false => LATEST,
        }
    }

    /// Whether calls prove how the two compare, or they are one: nothing has to be assumed of wall clocks.
    pub(crate) fn is_proven_with(&self, other: &HostClock) -> bool {
        std::ptr::eq(self, other) || self.component == other.component
    }

    /// Whether its times compare with other clocks' at all.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }
}

impl Knot {
    /// How far an offset may be from the true one here.
    fn doubt_of(&self, offset: i64) -> i64 {
        self.within.high.saturating_sub(offset).max(offset.saturating_sub(self.within.low))
    }
}

/// As a signed number, so small that an offset can be added.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX).min(i64::MAX / 2)
}
