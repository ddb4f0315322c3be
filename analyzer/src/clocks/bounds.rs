//! What moments prove about the offsets between clocks: for each clock and each window of time, an interval that must hold
//! its offset to the reference clock.
//!
//! A moment lies behind the entry of whoever was waited for and before the end of whoever waited:
//! `enter + offset <= moment <= leave + offset`. Each bound of one clock thus bounds the others, and what is known of a clock
//! in one window holds in the next but for what clocks can drift meanwhile. Bounds are passed on along moments and windows,
//! forwards and backwards, until nothing becomes tighter. Every bound on the way is a true one, so that stopping early is
//! no error; and bounds that contradict one another prove that clocks ran differently, or that a call did not wait.
//!
//! Work grows with moments, times a few rounds.

use super::moments::{LATEST, Moment};

/// Where an offset must lie, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) low: i64,
    pub(super) high: i64,
}

/// Nothing is known below, or above.
pub(super) const OPEN: Interval = Interval { low: -LATEST, high: LATEST };

impl Interval {
    pub(super) fn has_low(self) -> bool {
        self.low > -LATEST
    }

    pub(super) fn has_high(self) -> bool {
        self.high < LATEST
    }

    pub(super) fn middle(self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

/// The clocks that moments connect, with the moments of these alone.
#[derive(Debug)]
pub(super) struct Problem {
    /// Number of clocks.
    pub(super) clocks: usize,
    pub(super) reference: usize,
    pub(super) moments: Vec<Moment>,
}

/// Clocks contradict one another by so much, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction(pub(super) i64);

/// Shortest window, ns.
pub(super) const SHORTEST: i64 = 100_000_000;
/// Most windows, and most pairs of a window and a clock.
const MOST_WINDOWS: usize = 1024;
const MOST_KNOTS: usize = 1 << 20;
/// Most rounds, each once forwards and once backwards.
const ROUNDS: usize = 12;

/// How far clocks can drift apart: ns in `slowness` ns are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) slowness: i64,
}

impl Drift {
    /// The most that two clocks drift apart in this time.
    pub(super) fn over(self, ns: i64) -> i64 {
        ns.saturating_abs() / self.slowness + 1
    }
}

/// Rough offsets, good enough to tell which moments are near in time: the members of a call leave it together. 0 where
/// nothing connects a clock with the reference.
pub(super) fn rough(problem: &Problem) -> Vec<i64> {
    let mut of_clock: Vec<Vec<usize>> = vec![Vec::new(); problem.clocks];
    for (at, moment) in problem.moments.iter().enumerate() {
        for part in &moment.parts {
            if let Some(list) = of_clock.get_mut(part.domain) {
                list.push(at);
            }
        }
    }
    let mut offsets: Vec<Option<i64>> = vec![None; problem.clocks];
    if let Some(first) = offsets.get_mut(problem.reference) {
        *first = Some(0);
    }
    let mut used = vec![false; problem.moments.len()];
    let mut queue = std::collections::VecDeque::from([problem.reference]);
    while let Some(clock) = queue.pop_front() {
        let Some(offset) = offsets.get(clock).copied().flatten() else { continue };
        for &at in of_clock.get(clock).map_or(&[][..], Vec::as_slice) {
            let (Some(moment), Some(used)) = (problem.moments.get(at), used.get_mut(at)) else { continue };
            if std::mem::replace(used, true) {
                continue;
            }
            let when = |domain: usize| {
                let part = moment.parts.iter().find(|part| part.domain == domain)?;
                part.leave.or(part.enter)
            };
            let Some(own) = when(clock) else { continue };
            for part in &moment.parts {
                let Some(theirs) = part.leave.or(part.enter) else { continue };
                if let Some(slot @ None) = offsets.get_mut(part.domain) {
                    *slot = Some(own.saturating_add(offset).saturating_sub(theirs).clamp(-LATEST, LATEST));
                    queue.push_back(part.domain);
                }
            }
        }
    }
    offsets.into_iter().map(|offset| offset.unwrap_or(0)).collect()
}

/// By clock, then window: the window's middle on that clock, and the interval of its offset there, if clocks drift by no
/// more than `drift`.
pub(super) fn solve(
    problem: &Problem,
    rough: &[i64],
    drift: Drift,
) -> Result<Vec<Vec<(i64, Interval)>>, Contradiction> {
    let mut solver = Solver::new(problem, rough, drift);
    for _ in 0..ROUNDS {
        let before = solver.changes;
        solver.sweep(false)?;
        solver.sweep(true)?;
        if solver.changes == before {
            break;
        }
    }
    let windows = solver.windows;
    let knots = solver.known.chunks(windows).zip(rough).map(|(known, rough)| {
        known
            .iter()
            .enumerate()
            .map(|(window, &interval)| (solver.middle(window).saturating_sub(*rough), interval))
            .collect()
    });
    Ok(knots.collect())
}

struct Solver<'p> {
    problem: &'p Problem,
    rough: &'p [i64],
    drift: Drift,
    windows: usize,
    /// Of the reference clock.
    begin: i64,
    length: i64,
    /// Moments by window.
    order: Vec<(usize, usize)>,
    /// By clock, then window.
    known: Vec<Interval>,
    changes: u64,
}

impl<'p> Solver<'p> {
    fn new(problem: &'p Problem, rough: &'p [i64], drift: Drift) -> Solver<'p> {
        let time = |moment: &Moment| {
            let part = moment.parts.first()?;
            Some(part.leave.or(part.enter)?.saturating_add(*rough.get(part.domain)?))
        };
        let times: Vec<i64> = problem.moments.iter().map(|moment| time(moment).unwrap_or(0)).collect();
        let begin = times.iter().copied().min().unwrap_or(0);
        let span = times.iter().copied().max().unwrap_or(0).saturating_sub(begin).min(LATEST);
        let most = (MOST_KNOTS / problem.clocks.max(1)).clamp(1, MOST_WINDOWS);
        let windows = usize::try_from(span / SHORTEST + 1).unwrap_or(most).clamp(1, most);
        let length = span / windows as i64 + 1;
        let mut order: Vec<(usize, usize)> = times
            .iter()
            .enumerate()
            .map(|(at, time)| ((time.saturating_sub(begin) / length) as usize, at))
            .map(|(window, at)| (window.min(windows - 1), at))
            .collect();
        order.sort_by_key(|&(window, at)| (window, times.get(at).copied()));
        let mut known = vec![OPEN; problem.clocks * windows];
        let at = problem.reference * windows;
        if let Some(own) = known.get_mut(at..at + windows) {
            own.fill(Interval { low: 0, high: 0 });
        }
        Solver { problem, rough, drift, windows, begin, length, order, known, changes: 0 }
    }

    /// The middle of a window, on the reference clock.
    fn middle(&self, window: usize) -> i64 {
        self.begin.saturating_add(window as i64 * self.length).saturating_add(self.length / 2)
    }

    fn sweep(&mut self, backwards: bool) -> Result<(), Contradiction> {
        let order = std::mem::take(&mut self.order);
        let result = self.windows_in_turn(&order, backwards);
        self.order = order;
        result
    }

    fn windows_in_turn(&mut self, order: &[(usize, usize)], backwards: bool) -> Result<(), Contradiction> {
        let problem = self.problem;
        let carried = self.drift.over(self.length);
        let mut groups: Vec<&[(usize, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
        if backwards {
            groups.reverse();
        }
        let mut groups = groups.into_iter().peekable();
        for turn in 0..self.windows {
            let window = if backwards { self.windows - 1 - turn } else { turn };
            let before = if backwards { window + 1 } else { window.wrapping_sub(1) };
            if before < self.windows {
                for clock in 0..self.problem.clocks {
                    let Some(&from) = self.known.get(clock * self.windows + before) else { continue };
                    self.tighten(clock, window, from.low.saturating_sub(carried), from.high.saturating_add(carried))?;
                }
            }
            while let Some(group) = groups.next_if(|group| group.first().is_some_and(|first| first.0 == window)) {
                for turn in 0..group.len() {
                    let at = if backwards { group.len() - 1 - turn } else { turn };
                    if let Some(moment) = group.get(at).and_then(|&(_, at)| problem.moments.get(at)) {
                        self.moment(window, moment)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What one moment says of the clocks that share it.
    fn moment(&mut self, window: usize, moment: &Moment) -> Result<(), Contradiction> {
        let (mut low, mut high) = (-LATEST, LATEST);
        for part in &moment.parts {
            let Some(&known) = self.known.get(part.domain * self.windows + window) else { continue };
            if let Some(enter) = part.enter.filter(|_| known.has_low()) {
                let slack = self.slack(part.domain, window, enter);
                low = low.max(enter.saturating_add(known.low).saturating_sub(slack));
            }
            if let Some(leave) = part.leave.filter(|_| known.has_high()) {
                let slack = self.slack(part.domain, window, leave);
                high = high.min(leave.saturating_add(known.high).saturating_add(slack));
            }
        }
        for part in &moment.parts {
            let least = part.leave.filter(|_| low > -LATEST);
            let least = least.map_or(-LATEST, |leave| {
                low.saturating_sub(leave).saturating_sub(self.slack(part.domain, window, leave))
            });
            let most = part.enter.filter(|_| high < LATEST);
            let most = most.map_or(LATEST, |enter| {
                high.saturating_sub(enter).saturating_add(self.slack(part.domain, window, enter))
            });
            self.tighten(part.domain, window, least, most)?;
        }
        Ok(())
    }

    /// What a clock may have drifted between a time on it and the middle of a window.
    fn slack(&self, clock: usize, window: usize, time: i64) -> i64 {
        // The reference clock is what the others drift against.
        if clock == self.problem.reference {
            return 0;
        }
        let middle = self.middle(window).saturating_sub(self.rough.get(clock).copied().unwrap_or(0));
        self.drift.over(time.saturating_sub(middle))
    }

    fn tighten(&mut self, clock: usize, window: usize, low: i64, high: i64) -> Result<(), Contradiction> {
        let Some(known) = self.known.get_mut(clock * self.windows + window) else { return Ok(()) };
        if low > known.low {
            known.low = low;
            self.changes += 1;
        }
        if high < known.high {
            known.high = high;
            self.changes += 1;
        }
        if known.low > known.high { Err(Contradiction(known.low.saturating_sub(known.high))) } else { Ok(()) }
    }
}
