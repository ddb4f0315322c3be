//! What a rank did that explains a wait: the one call that it left out where others wait for it, or the one too many that it
//! waits in alone.
//!
//! That the call is missing, or that nobody else makes it, is known before; so unlike in `merged` others may well do without
//! it, and of what fits a rank's program only this is looked for. Two others in its role must have gone on as it did, or the
//! rank itself in its rounds before and in more behind.

use rankdiff_trace::Op;

use crate::align::Alignment;
use crate::merged::{
    Departure, Deviation, LOOK_BACK, Program, Rejoined, Roles, What, best_rejoined, broken_rhythms, is_whole, parted,
    placed,
};

/// What is known of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Odd {
    /// The rank lacks it, else it made it once too often.
    pub(crate) lacks: bool,
    /// The communicator.
    pub(crate) comm: usize,
    /// Which of the two, of a send or a receive.
    pub(crate) message: Option<Op>,
}

/// Calls behind the odd one that must go on as before where only a rank's own rounds tell: fewer agree by chance, as those
/// of a pipeline's schedule do.
const BEHIND: usize = 9;
/// Other members of a communicator whose rounds are compared.
const OTHERS: usize = 2;

/// The place where a rank left such a call out, or made it, with at least so many calls behind that go on as before.
pub(crate) fn find(alignment: &Alignment<'_>, rank: u32, odd: Odd, least: u64) -> Option<Deviation> {
    let whole = is_whole(alignment);
    let mut roles = Roles::default();
    let stream = alignment.stream_of(rank)?;
    let played = roles.of_rank(alignment, stream);
    let how = if odd.lacks { Departure::Lacks(1) } else { Departure::Extra(1) };
    let whats = [true, false].into_iter().flat_map(|sizes| [true, false].map(|messages| What { messages, sizes }));
    let mut whats = whats.filter(|what| if what.messages { whole } else { odd.message.is_none() });
    let told = whats.find_map(|what| {
        let (mine, _, parted) = parted(alignment, rank, &mut roles, what, false)?;
        let fits = |one: &Rejoined| {
            let here = if odd.lacks {
                one.message == odd.message && played.contains(&(odd.comm, one.role))
            } else {
                mine.calls.get(one.at).is_some_and(|call| (call.comm, call.message) == (odd.comm, odd.message))
            };
            one.how == how && here && one.matched >= least
        };
        let best = best_rejoined(&mine, &parted, alignment.options.k_shift, fits)?;
        Some(Deviation { exact: best.exact, ..placed(&mine, best.at, odd.comm, odd.message, how) })
    });
    told.or_else(|| of_own_past(alignment, rank, odd).filter(|_| whole))
}

/// The place that only the rank's own rounds tell, if those of other members do not have the same: what breaks the rounds of
/// all is the program's.
fn of_own_past(alignment: &Alignment<'_>, rank: u32, odd: Odd) -> Option<Deviation> {
    let found = broken_round(alignment, rank, odd)?;
    let others = alignment.tracks(odd.comm).iter().map(|track| track.rank).filter(|&other| other != rank).take(OTHERS);
    let usual = |other: u32| broken_round(alignment, other, odd).is_some_and(|other| other.pos == found.pos);
    let mut others = others.filter(|_| odd.message.is_none());
    (!others.any(usual)).then_some(found)
}

/// The first round of a rank that lacks the call, or has it once more, and is followed by whole ones.
fn broken_round(alignment: &Alignment<'_>, rank: u32, odd: Odd) -> Option<Deviation> {
    let mut roles = Roles::default();
    let mine = Program::of(alignment, rank, &mut roles, What { messages: true, sizes: false })?;
    let from = mine.calls.len().saturating_sub(LOOK_BACK);
    let keys: Vec<u32> = mine.from(from).iter().map(|call| call.key).collect();
    broken_rhythms(&keys).into_iter().find_map(|(at, period)| {
        let before = at.checked_sub(period)?;
        let call = mine.calls.get(from + if odd.lacks { before } else { at })?;
        // The call of the round before that stands so far behind the break.
        let expected = |ahead: usize| keys.get(before + (ahead + usize::from(odd.lacks)) % period);
        let behind = at + usize::from(!odd.lacks);
        let enough = BEHIND.max(2 * period);
        let whole = (0..enough).all(|ahead| keys.get(behind + ahead).is_some_and(|key| Some(key) == expected(ahead)));
        let how = if odd.lacks { Departure::Lacks(1) } else { Departure::Extra(1) };
        let fits = (call.comm, call.message) == (odd.comm, odd.message) && whole;
        let found = placed(&mine, from + at, odd.comm, odd.message, how);
        fits.then_some(Deviation { by_own_past: true, ..found })
    })
}
