//! One clock for the streams of a job, and how far it may be wrong.
//!
//! Clocks of one boot of one kernel are one clock and agree to the ns. Those of different machines are joined by what the
//! calls prove: nobody leaves a synchronising collective before the last member has entered it. That bounds the offset
//! between any two clocks from both sides; the wall clocks choose only within these bounds, and join what no call connects.
//!
//! Data flow: `domains` (which streams share a clock, what it says of itself) -> `moments` (what calls of several clocks
//! have in common) -> `bounds` (what follows for the offsets) -> `host` (a time on the job's clock, and its
//! doubt), `report` (what is said of them).
//!
//! What is proven rests on one assumption, which no trace can check while it holds: that clocks drift apart by at most
//! 100 us in a second (1 ms where that contradicts the calls). NTP keeps CLOCK_MONOTONIC far within that.
//!
//! Not here: verdicts. Matching never uses time; who compares times of different ranks asks for the doubt.

mod bounds;
mod domains;
mod host;
mod moments;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use rankdiff_trace::ProcessTrace;

use self::bounds::{Contradiction, Drift, Interval, Problem};
use self::domains::Domain;
pub(crate) use self::host::HostClock;
use self::host::Knot;
use self::moments::{LATEST, Moment, Moments};
pub(crate) use self::report::short;
use crate::finding::ClockJoin;
use crate::stream::RankStream;

/// How far wall clocks of one job may be apart unnoticed, ns: an assumption, used where no call joins two clocks.
pub(crate) const ASSUMED: i64 = 250_000_000;

/// A wall clock that is nearer to what calls prove is not worth a word, ns.
const WORTH_A_WORD: i64 = 1_000_000;

/// What the drift of clocks is taken to be at most, in turn; the next where one contradicts the calls.
const DRIFTS: [Drift; 2] = [Drift { slowness: 10_000 }, Drift { slowness: 1_000 }];

/// Gives every stream its clock; what is known of the clocks if there are several. `boots`: boot id by host name.
pub(crate) fn join(streams: &mut [RankStream<'_>], boots: &BTreeMap<String, String>) -> Option<ClockJoin> {
    let traces: Vec<&ProcessTrace> = streams.iter().map(|stream| stream.trace).collect();
    let (domains, of) = domains::of(&traces, boots);
    if domains.len() < 2 {
        // Nobody else's time went on while the machine slept.
        give(streams, &of, vec![HostClock { joined: true, ..HostClock::default() }]);
        return None;
    }
    let ends = ends(streams, &of, domains.len());
    let Moments { list, distrusted } = moments::find(streams, &domains, &of);
    let calls = list.len() as u64;
    let mut joined = Joined::new(domains);
    joined.undecoded = traces.iter().any(|trace| trace.has_elided());
    for (clocks, moments) in components(joined.clocks.len(), list) {
        joined.component(&clocks, moments);
    }
    joined.place();
    joined.compare(&ends);
    let report = joined.report(calls, distrusted);
    give(streams, &of, joined.clocks);
    Some(report)
}

fn give(streams: &mut [RankStream<'_>], of: &[usize], clocks: Vec<HostClock>) {
    let clocks: Vec<Arc<HostClock>> = clocks.into_iter().map(Arc::new).collect();
    for (stream, &domain) in streams.iter_mut().zip(of) {
        if let Some(clock) = clocks.get(domain) {
            stream.clock = Arc::clone(clock);
        }
    }
}

/// The latest time of each clock.
fn ends(streams: &[RankStream<'_>], of: &[usize], clocks: usize) -> Vec<u64> {
    let mut ends = vec![0; clocks];
    for (stream, &domain) in streams.iter().zip(of) {
        let trace = stream.trace;
        let states = trace.states.iter().map(|state| state.at);
        let snapshots = trace.clocks.iter().map(|clock| clock.monotonic);
        let calls = stream.calls.iter().map(|call| call.exit.unwrap_or(call.enter));
        let elided = trace.elided.iter().map(|known| known.times.1);
        if let Some(end) = ends.get_mut(domain) {
            *end = states.chain(snapshots).chain(calls).chain(elided).fold(*end, u64::max);
        }
    }
    ends
}

/// Sets of clocks that moments connect, each with its moments, which then count the set's clocks.
fn components(clocks: usize, list: Vec<Moment>) -> Vec<(Vec<usize>, Vec<Moment>)> {
    let mut parent: Vec<usize> = (0..clocks).collect();
    fn root(parent: &mut [usize], mut at: usize) -> usize {
        while let Some(&up) = parent.get(at).filter(|&&up| up != at) {
            let above = parent.get(up).copied().unwrap_or(up);
            if let Some(slot) = parent.get_mut(at) {
                *slot = above;
            }
            at = above;
        }
        at
    }
    for moment in &list {
        for pair in moment.parts.windows(2) {
            let [a, b] = pair else { continue };
            let (a, b) = (root(&mut parent, a.domain), root(&mut parent, b.domain));
            if let Some(slot) = parent.get_mut(a.max(b)) {
                *slot = a.min(b);
            }
        }
    }
    let mut sets: BTreeMap<usize, (Vec<usize>, Vec<Moment>)> = BTreeMap::new();
    let mut local = vec![0; clocks];
    for (clock, slot) in local.iter_mut().enumerate() {
        let set = &mut sets.entry(root(&mut parent, clock)).or_default().0;
        *slot = set.len();
        set.push(clock);
    }
    for mut moment in list {
        let Some(first) = moment.parts.first().map(|part| part.domain) else { continue };
        for part in &mut moment.parts {
            part.domain = local.get(part.domain).copied().unwrap_or(0);
        }
        sets.entry(root(&mut parent, first)).or_default().1.push(moment);
    }
    sets.into_values().collect()
}

/// Clocks while they are being joined.
struct Joined {
    clocks: Vec<HostClock>,
    /// The longest that bounds contradicted one another by, over all sets whose clocks could not be joined.
    contradiction: Option<i64>,
    /// Clocks whose wall clock is proven wrong: by how much at least.
    wrong: Vec<(usize, i64)>,
    drifting: usize,
    /// There are calls that were not decoded.
    undecoded: bool,
}

impl Joined {
    fn new(domains: Vec<Domain>) -> Joined {
        let clocks = domains.into_iter().enumerate();
        let clocks = clocks.map(|(component, domain)| HostClock {
            constant: Some(0),
            base: domain.wall.unwrap_or(0),
            joined: domain.wall.is_some(),
            component,
            domain,
            ..HostClock::default()
        });
        Joined { clocks: clocks.collect(), contradiction: None, wrong: Vec::new(), drifting: 0, undecoded: false }
    }

    /// Joins the clocks of one set by its moments, if they do not contradict one another.
    fn component(&mut self, set: &[usize], moments: Vec<Moment>) {
        if set.len() < 2 {
            return;
        }
        let mut uses = vec![0_usize; set.len()];
        for part in moments.iter().flat_map(|moment| &moment.parts) {
            uses.get_mut(part.domain).into_iter().for_each(|uses| *uses += 1);
        }
        let most = uses.iter().copied().max();
        let reference = uses.iter().position(|&uses| Some(uses) == most).unwrap_or(0);
        let mut problem = Problem { clocks: set.len(), reference, moments };
        let rough = bounds::rough(&problem);
        let mut solved = Err(Contradiction(0));
        let mut slowness = 0;
        for drift in DRIFTS {
            slowness = drift.slowness;
            solved = bounds::solve(&problem, &rough, drift);
            if solved.is_ok() {
                break;
            }
        }
        if solved.is_err() {
            // What is no barrier may wait for less than it should.
            problem.moments.retain(|moment| moment.barrier);
            if !problem.moments.is_empty() {
                solved = bounds::solve(&problem, &rough, Drift { slowness });
            }
        }
        match solved {
            Ok(knots) => self.use_bounds(set, reference, slowness, knots),
            Err(Contradiction(by)) => self.contradiction = self.contradiction.max(Some(by)),
        }
    }

    fn use_bounds(&mut self, set: &[usize], reference: usize, slowness: i64, knots: Vec<Vec<(i64, Interval)>>) {
        let walls: Vec<Option<i64>> = set.iter().map(|&at| self.clocks.get(at)?.domain.wall).collect();
        let of_reference = walls.get(reference).copied().flatten();
        let component = set.first().copied().unwrap_or(0);
        for ((local, &at), knots) in set.iter().enumerate().zip(knots) {
            let wall =
                walls.get(local).copied().flatten().zip(of_reference).map(|(own, other)| own.saturating_sub(other));
            let Some(clock) = self.clocks.get_mut(at) else { continue };
            clock.component = component;
            clock.base = of_reference.unwrap_or(0);
            clock.joined = of_reference.is_some();
            if local == reference {
                continue;
            }
            clock.slowness = slowness;
            let (constant, knots) = choose(knots, wall);
            if let Some(wall) = wall {
                let outside = knots
                    .iter()
                    .map(|knot| wall.saturating_sub(knot.within.high).max(knot.within.low.saturating_sub(wall)))
                    .max();
                self.wrong.extend(outside.filter(|&by| by > WORTH_A_WORD).map(|by| (at, by)));
            }
            self.drifting += usize::from(constant.is_none());
            (clock.constant, clock.knots) = (constant, knots);
        }
        // A reference that knows no wall clock is placed by one that does.
        let by_other = set.iter().filter_map(|&at| self.clocks.get(at)).find_map(|clock| {
            let last = clock.knots.last();
            Some(clock.domain.wall?.saturating_sub(clock.constant.or(last.map(|knot| knot.offset))?))
        });
        if let (None, Some(base)) = (of_reference, by_other) {
            for &at in set {
                if let Some(clock) = self.clocks.get_mut(at) {
                    (clock.base, clock.joined) = (base, true);
                }
            }
        }
    }

    /// Makes times small numbers; clocks that are all joined by calls need no wall clock.
    fn place(&mut self) {
        let one = self.clocks.windows(2).all(|pair| matches!(pair, [a, b] if a.component == b.component));
        let least = self.clocks.iter().filter(|clock| clock.joined).map(|clock| clock.base).min().unwrap_or(0);
        for clock in &mut self.clocks {
            clock.base = if clock.joined { clock.base.saturating_sub(least) } else { 0 };
            clock.joined |= one;
        }
    }

    /// How far other clocks may be off, for each.
    fn compare(&mut self, ends: &[u64]) {
        let doubts: Vec<i64> = self.clocks.iter().zip(ends).map(|(clock, &end)| clock.own_doubt(end)).collect();
        // The largest two: the largest of all others is one of them.
        let mut order: Vec<usize> = (0..doubts.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(doubts.get(at).copied()));
        let unjoined = self.clocks.iter().filter(|clock| !clock.joined).count();
        let components: std::collections::BTreeSet<usize> = self.clocks.iter().map(|clock| clock.component).collect();
        for ((at, clock), &end) in self.clocks.iter_mut().enumerate().zip(ends) {
            clock.end = end;
            let other = order.iter().find(|&&other| other != at).and_then(|&other| doubts.get(other));
            let assumed = match components.len() {
                0 | 1 => 0,
                _ if unjoined > 0 => LATEST,
                _ => ASSUMED,
            };
            clock.apart = other.copied().unwrap_or(0).saturating_add(assumed);
        }
    }
}

/// The offsets between bounds: the wall clock's where nothing contradicts it, else the middle.
fn choose(bounds: Vec<(i64, Interval)>, wall: Option<i64>) -> (Option<i64>, Vec<Knot>) {
    let mut knots: Vec<Knot> = bounds.into_iter().map(|(at, within)| Knot { at, offset: 0, within }).collect();
    for knot in &mut knots {
        // Where calls bound it from one side alone, the wall clock must do for the other.
        let within = knot.within;
        let near = wall.map(|wall| wall.clamp(within.low, within.high));
        let near = near.or_else(|| if within.has_low() { Some(within.low) } else { None }).unwrap_or(within.high);
        if !within.has_low() && wall.is_some() {
            knot.within.low = near.saturating_sub(ASSUMED);
        }
        if !within.has_high() && wall.is_some() {
            knot.within.high = near.saturating_add(ASSUMED);
        }
    }
    let low = knots.iter().map(|knot| knot.within.low).max().unwrap_or(0);
    let high = knots.iter().map(|knot| knot.within.high).min().unwrap_or(0);
    if low <= high {
        let whole = Interval { low, high };
        let is_open = !whole.has_low() || !whole.has_high();
        let inside = wall.filter(|&wall| low <= wall && wall <= high);
        let finite = if whole.has_low() { low } else { high };
        let offset = inside.unwrap_or(if is_open { finite } else { whole.middle() });
        knots.iter_mut().for_each(|knot| knot.offset = offset);
        return (Some(offset), knots);
    }
    let mut before: Option<Knot> = None;
    for knot in &mut knots {
        knot.offset = knot.within.middle();
        if let Some(before) = before {
            // Time does not run backwards, however far apart the middles are.
            knot.offset = knot.offset.max(before.offset.saturating_sub(knot.at.saturating_sub(before.at)));
        }
        before = Some(*knot);
    }
    (None, knots)
}
