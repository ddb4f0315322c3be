//! What explains the calls that a rank executed, given those that it should have made: calls that are missing, calls too
//! many, another order. All of it that fits is right; where one of these needs fewer calls it stands for the longer ones.

use super::evidence;
use super::executed::Executed;
use super::place::{Place, Step, position};
use super::truth::{Placed, Truth};
use crate::program::Program;

/// Calls that may be missing or too many, and how far a call may have moved.
const MOST: usize = 12;

/// Calls behind one that is missing which do not yet tell that it will not come.
const FEW: usize = 3;

/// A rank's calls as they should be and as far as they were made.
pub(super) struct Story<'s> {
    program: &'s Program,
    rank: u32,
    own: Vec<&'s Step>,
    made: Vec<&'s Step>,
    /// It did not come to the end of its stream.
    cut: bool,
    /// It is held by the last call that it made.
    held: bool,
}

impl<'s> Story<'s> {
    /// `own`: what the program says; `faulty`: what the rank was to do, of which it executed a part.
    pub(super) fn of(
        program: &'s Program,
        rank: u32,
        own: &'s [Step],
        faulty: &'s [Step],
        executed: &Executed,
    ) -> Story<'s> {
        let calls = |steps: &'s [Step]| steps.iter().filter(|step| is_shared(program, step)).collect::<Vec<&Step>>();
        let entered = executed.0.get(rank as usize).map_or(&[][..], Vec::as_slice);
        let mut left = entered.len();
        let made: Vec<&Step> = faulty
            .iter()
            .take_while(|step| {
                let all = step.calls() <= left;
                left = left.saturating_sub(step.calls());
                all
            })
            .collect();
        let cut = made.len() < faulty.len();
        let held = program.blocking && entered.last().is_some_and(|made| made.pending);
        let made = made.into_iter().filter(|step| is_shared(program, step)).collect();
        Story { program, rank, own: calls(own), made, cut, held }
    }

    /// How many calls agree.
    fn common(&self) -> usize {
        self.own.iter().zip(&self.made).take_while(|(a, b)| a.text == b.text).count()
    }

    /// Whether the rank did what it should as far as it came: nothing tells this from one that is late.
    pub(super) fn is_behind(&self) -> bool {
        self.common() == self.made.len()
    }

    /// Everything that fits, and what else is right where there is nothing to compare the rank with.
    pub(super) fn answers(&'s self, place: &Place<'_>, executed: &Executed) -> Vec<Truth> {
        let mut truths = self.truths();
        if truths.is_empty() {
            return truths;
        }
        let common = self.common();
        let of = |steps: &'s [&Step]| steps.iter().filter(|step| step.positional).map(|step| &step.text);
        // As long as one is the other's beginning, the rank is ahead or behind.
        let collectives = of(&self.own).zip(of(&self.made)).any(|(a, b)| a != b);
        let last = self.held && self.made.len() == common + 1;
        // A rank that is held by a call which it made in every round may as well have begun one more than the others.
        let begins = last && self.made.get(common).is_some_and(|step| self.is_made_again(common, &step.text));
        if begins || !evidence::exists(place, executed, collectives, self.held) {
            evidence::undecided(&mut truths, self.rank);
        }
        if !evidence::of_messages(place, executed, self.held) {
            // Only the collectives can be compared: in a run of equal ones nothing tells which is missing.
            let run = self.run_of(common);
            for truth in truths.iter_mut().filter(|truth| truth.class == "code_divergence") {
                truth.places.iter_mut().filter(|held| held.group == run.group).for_each(|held| {
                    held.first
                        .extend(run.first.iter().copied().filter(|pos| !held.first.contains(pos)).collect::<Vec<_>>());
                });
            }
        }
        if last && !evidence::is_known(executed, self.rank) {
            let other: Vec<Truth> = truths.iter().filter(|truth| truth.class == "code_divergence").cloned().collect();
            truths.extend(other.into_iter().map(|truth| Truth { class: "parameter_mismatch", ..truth }));
        }
        truths
    }

    /// Everything that fits.
    fn truths(&self) -> Vec<Truth> {
        let common = self.common();
        if self.is_behind() {
            return Vec::new();
        }
        let mut truths = Vec::new();
        // A rank that is held by a call which stands later in its program left out all before it, however many those are.
        let last = self.held && self.made.len() == common + 1;
        let most = if last { self.own.len() } else { MOST };
        let lacks = (1..=most).find(|&calls| self.fits(self.own.get(common + calls..), self.made.get(common..)));
        if let Some(calls) = lacks {
            if self.held && self.made.len() - common <= FEW {
                // What it left out might have come behind the call that holds it.
                truths.extend(["order_inversion", "p2p_deadlock"].map(|class| Truth::circle(class, self.rank)));
            }
            let truth = self.truth(&self.own, common, calls);
            // A send or receive that is missing is one without a partner.
            let message = self.own.get(common).is_some_and(|step| !step.positional);
            let unpaired = truth.clone().filter(|_| message);
            truths.extend(unpaired.map(|truth| Truth { class: "p2p_mismatch", or_none: true, ..truth }));
            truths.extend(truth);
        }
        let extra = (1..=MOST).find(|&calls| self.fits(self.own.get(common..), self.made.get(common + calls..)));
        // A rank that lacks fewer calls than it would have too many lacks them.
        // One that made a known call and then nothing is ahead of the others, as far as anybody sees.
        let ahead = |calls: usize| {
            let known = self.made.get(common).is_some_and(|call| self.own.iter().any(|own| own.text == call.text));
            known && common + calls == self.made.len() && common == self.own.len()
        };
        if let Some(calls) = extra.filter(|&calls| lacks.is_none_or(|lacks| calls <= lacks) && !ahead(calls)) {
            truths.extend(self.truth(&self.made, common, calls));
        }
        // One call in place of another, with all behind it as it should be: of a rank that is held by it nothing more is seen,
        // so that a call too many, or one that belongs elsewhere, looks the same.
        let instead = self.own.get(common).is_some_and(|step| step.positional)
            && self.fits(self.own.get(common + 1..), self.made.get(common + 1..));
        if instead {
            truths.extend(self.truth(&self.own, common, 1));
        }
        truths.extend(self.reordered(common));
        truths
    }

    /// Whether what was made is what should follow, to its end unless the rank did not come to the end.
    fn fits(&self, own: Option<&[&Step]>, made: Option<&[&Step]>) -> bool {
        let (Some(own), Some(made)) = (own, made) else { return false };
        let whole = self.cut || own.len() == made.len();
        whole && own.len() >= made.len() && own.iter().zip(made).all(|(a, b)| a.text == b.text)
    }

    /// Code divergence: these calls of one of the two streams are not in the other.
    fn truth(&self, stream: &[&Step], at: usize, calls: usize) -> Option<Truth> {
        let first = stream.get(at)?;
        let group = first.group?;
        let mut places = vec![self.place(stream, at)?];
        // In a run of equal calls nothing tells which one it is.
        for earlier in (0..at).rev() {
            if stream.get(earlier)?.text != stream.get(earlier + calls)?.text {
                break;
            }
            places.push(self.place(stream, earlier)?);
        }
        let mut truth = Truth::of("code_divergence", "", Vec::new(), self.rank);
        truth.places = vec![Placed { group: self.program.groups[group].name.clone(), first: Vec::new() }];
        truth.places = places.into_iter().fold(Vec::new(), |mut held: Vec<Placed>, place| {
            match held.iter_mut().find(|other| other.group == place.group) {
                Some(other) => other.first.extend(place.first),
                None => held.push(place),
            }
            held
        });
        // One of two members is no minority.
        let small = |place: &Placed| {
            let group = self.program.groups.iter().find(|group| group.name == place.group);
            group.is_some_and(|group| group.ranks.len() < 3)
        };
        truth.or_none = truth.places.iter().any(small);
        Some(truth)
    }

    /// Communicator and position of a call; a message has none.
    fn place(&self, stream: &[&Step], at: usize) -> Option<Placed> {
        let step = stream.get(at)?;
        let group = step.group?;
        let before: Vec<Step> = stream.iter().take(at).map(|step| (*step).clone()).collect();
        let first = if step.positional { vec![position(&before, at, group)] } else { Vec::new() };
        Some(Placed { group: self.program.groups[group].name.clone(), first })
    }

    /// The collectives of one kind right before the one that is missing, as places.
    fn run_of(&self, at: usize) -> Placed {
        let none = Placed { group: String::new(), first: Vec::new() };
        let Some(odd) = self.own.get(at).filter(|step| step.positional) else { return none };
        let before = self.own.iter().enumerate().take(at).rev().filter(|(_, step)| step.positional);
        let run = before.take_while(|(_, step)| step.text == odd.text).map(|(at, _)| at);
        let first = run.filter_map(|at| Some(self.place(&self.own, at)?.first)).flatten().collect();
        Placed { group: odd.group.map_or(String::new(), |group| self.program.groups[group].name.clone()), first }
    }

    /// Whether a call was made several times before.
    fn is_made_again(&self, before: usize, text: &str) -> bool {
        self.own.iter().take(before).filter(|step| step.text == text).count() > 1
    }

    /// The same calls in another order, as far as they were made.
    fn reordered(&self, common: usize) -> Vec<Truth> {
        let mut truths = Vec::new();
        let width = (2..=MOST + 1).find(|&width| {
            let (Some(own), Some(made)) = (self.own.get(common..common + width), self.made.get(common..common + width))
            else {
                return false;
            };
            same_calls(own, made) && self.fits(self.own.get(common + width..), self.made.get(common + width..))
        });
        // A rank that is held by a call which should come later, or may come again in another round, shows no more.
        let later = |text: &String| self.own.iter().skip(common).take(MOST).any(|step| step.text == *text);
        let ahead = self.held
            && self.made.len() == common + 1
            && self.made.get(common).is_some_and(|step| self.is_made_again(common, &step.text) || later(&step.text));
        if width.is_none() && !ahead {
            return truths;
        }
        let (Some(expected), Some(call)) = (self.own.get(common), self.made.get(common)) else { return truths };
        if expected.group == call.group && expected.positional && call.positional {
            truths.extend(self.place(&self.own, common).map(|place| {
                let mut truth = Truth::of("order_inversion", "", Vec::new(), self.rank);
                truth.places = vec![place];
                truth
            }));
        }
        truths.extend(self.next_round(common));
        if self.held {
            truths.extend(["order_inversion", "p2p_deadlock"].map(|class| Truth::circle(class, self.rank)));
        }
        truths
    }
}

impl Story<'_> {
    /// A call put off to the end of the record, where the loop might begin anew with it: it may as well be missing, and that
    /// one of the next round.
    fn next_round(&self, common: usize) -> Option<Truth> {
        let group = self.own.get(common)?.group;
        let of_group = |steps: &[&Step]| -> Vec<String> {
            steps.iter().filter(|step| step.positional && step.group == group).map(|step| step.text.clone()).collect()
        };
        let (own, made) = (of_group(&self.own), of_group(&self.made));
        let at = own.iter().zip(&made).take_while(|(a, b)| a == b).count();
        let (last, rest) = made.get(at..)?.split_last()?;
        let shifted = own.get(at + 1..)?.iter().zip(rest).all(|(a, b)| a == b) && own.len() == made.len();
        let follows = own.windows(2).any(|pair| Some(&pair[0]) == rest.last() && &pair[1] == last);
        (shifted && follows).then(|| self.truth(&self.own, common, 1)).flatten()
    }
}

fn same_calls(one: &[&Step], other: &[&Step]) -> bool {
    let sorted = |steps: &[&Step]| {
        let mut texts: Vec<String> = steps.iter().map(|step| step.text.clone()).collect();
        texts.sort();
        texts
    };
    sorted(one) == sorted(other)
}

/// Whether a step is a call that others take part in.
pub(super) fn is_shared(program: &Program, step: &Step) -> bool {
    step.group.and_then(|group| program.groups.get(group)).is_some_and(|group| group.ranks.len() > 1)
}

/// Whether among these steps is a call that others take part in and that is executed, not only recorded into a graph.
pub(super) fn goes_on(program: &Program, steps: &[Step]) -> bool {
    steps.iter().any(|step| is_shared(program, step) && !step.text.contains(" captured"))
}
