//! What a record can prove: whether there is anything to compare a rank with where it left its program.

use super::executed::Executed;
use super::place::{Place, Step, stream};
use super::truth::Truth;
use crate::program::Program;
use crate::shape::kind;

/// Rounds before the fault that show what the rank does in each.
const ROUNDS: u64 = 2;
/// Calls behind it that must go on as before: fewer agree by chance.
const BEHIND: u64 = 9;

/// Whether ranks in the same role, or the rank's own earlier rounds, show what should have been at the place. Without
/// `collectives` only its messages differ.
pub(super) fn exists(place: &Place<'_>, executed: &Executed, collectives: bool, held: bool) -> bool {
    of_messages(place, executed, held) || collectives && peers(place, executed, false) > 1
}

/// Whether there is something to compare the rank's sends and receives with as well.
pub(super) fn of_messages(place: &Place<'_>, executed: &Executed, held: bool) -> bool {
    own_past(place, held) || peers(place, executed, true) > 1
}

/// Whether the rank makes several calls in each round, and did so before and, unless it is held, does so again behind.
fn own_past(place: &Place<'_>, held: bool) -> bool {
    let in_round = place.steps.iter().filter(|step| {
        let shared = step.group.is_some_and(|group| place.program.groups[group].ranks.len() > 1);
        shared && step.spot.is_some_and(|spot| spot.1 == place.round)
    });
    let in_round = in_round.count() as u64;
    let behind = (place.program.rounds - place.round - 1) * in_round;
    place.round >= ROUNDS && in_round > 1 && (held || behind >= BEHIND && behind >= 2 * in_round)
}

/// Ranks that do the same as this one on their groups of the same kinds, and came to show what follows the place: members
/// that are held by what the rank did show nothing.
fn peers(place: &Place<'_>, executed: &Executed, messages: bool) -> usize {
    let program = place.program;
    let own = part(program, place.rank, &place.steps, messages);
    let before = place.steps.get(..place.at).unwrap_or_default();
    let shared_before = part(program, place.rank, before, messages).len();
    let others = (0..program.world).filter(|&rank| rank != place.rank);
    let alike = |&rank: &u32| {
        let steps = stream(program, rank);
        if part(program, rank, &steps, messages) != own {
            return false;
        }
        let through = (0..steps.len()).find(|&at| part(program, rank, &steps[..=at], messages).len() > shared_before);
        let calls = through.map_or(0, |at| steps[..=at].iter().map(Step::calls).sum::<usize>());
        executed.0.get(rank as usize).is_some_and(|made| made.len() > calls)
    };
    others.filter(alike).count()
}

/// What a rank does, with the kinds of its groups and the places of ranks in them.
fn part(program: &Program, rank: u32, steps: &[Step], messages: bool) -> Vec<String> {
    let shared = |step: &&Step| {
        let group = step.group.and_then(|group| program.groups.get(group));
        group.is_some_and(|group| group.ranks.len() > 1 && group.ranks.contains(&rank))
    };
    steps.iter().filter(shared).filter(|step| messages || step.positional).map(|step| local(program, step)).collect()
}

/// A step's text as every rank of its role has it.
fn local(program: &Program, step: &Step) -> String {
    let members = step.group.and_then(|group| program.groups.get(group)).map_or(&[][..], |group| &group.ranks);
    let place = |rank: &str| {
        let digits: String = rank.chars().take_while(char::is_ascii_digit).collect();
        members.iter().position(|member| member.to_string() == digits).map_or(rank.to_owned(), |at| at.to_string())
    };
    let word = |word: &str| match (word.strip_prefix('@'), word.split_once('=')) {
        (Some(name), _) => format!("@{}", kind(name)),
        (None, Some((key @ ("root" | "peer"), rank))) => format!("{key}={}", place(rank)),
        // What each member passes is its own.
        (None, Some(("splits" | "recv_splits", _))) => String::new(),
        _ => word.to_owned(),
    };
    let mut words: Vec<String> = step.text.split(' ').map(word).collect();
    if words.len() > 4 && words[1] != "{group_call:" {
        // Groups of one kind need not pass equal numbers of elements.
        words[2] = String::new();
    }
    if words[0] == "-" && words[1] == "{group_call:" {
        // Inside a batch there is no order.
        words.sort();
    }
    words.join(" ")
}

/// Whether somebody else, or the rank itself before, was seen to make the call that holds a rank; if not, nothing tells a
/// wrong argument from another place of the program.
pub(super) fn is_known(executed: &Executed, rank: u32) -> bool {
    let Some((last, before)) = executed.0.get(rank as usize).and_then(|made| made.split_last()) else { return false };
    let others = executed.0.iter().enumerate().filter(|(other, _)| *other != rank as usize).flat_map(|(_, made)| made);
    before.iter().chain(others).any(|made| made.shape == last.shape)
}

/// Whether the record shows what follows the last call of a rank where it belongs: somebody else went on behind a call of its
/// operation, elements and site, or the rank itself did, on whatever communicator. If not, the same call may come next on
/// each communicator of a loop over several, and nothing tells a call on another one from another order.
pub(super) fn is_followed(executed: &Executed, rank: u32) -> bool {
    let Some(last) = executed.0.get(rank as usize).and_then(|made| made.last()) else { return true };
    executed
        .0
        .iter()
        .any(|made| made.split_last().is_some_and(|(_, before)| before.iter().any(|one| one.shape == last.shape)))
}

/// Right answers where nothing proves what a rank did wrong: only that others wait for it.
pub(super) fn undecided(truths: &mut Vec<Truth>, rank: u32) {
    let mut open = Truth::circle("unknown", rank);
    open.cycle = None;
    truths.push(open);
    truths.push(Truth::circle("order_inversion", rank));
    truths.push(Truth::circle("p2p_deadlock", rank));
    let message = Truth { cycle: None, ..Truth::circle("p2p_mismatch", rank) };
    truths.push(message);
}
