//! Streams of a program as flat lists of steps, and the place of a fault in one of them.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::program::{Event, Program};

/// One step of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// A line of the document, without indentation.
    pub(super) text: String,
    pub(super) group: Option<usize>,
    /// It takes a position on its group.
    pub(super) positional: bool,
    /// Its event of the body and the round; `None`: before or behind the loop.
    pub(super) spot: Option<(usize, u64)>,
    /// The same, where the events behind the loop are one more round.
    pub(super) event: Option<(usize, u64)>,
}

impl Step {
    /// A collective that no event stands for.
    pub(super) fn collective(text: String, group: usize) -> Step {
        Step { text, group: Some(group), positional: true, spot: None, event: None }
    }

    /// A send, a receive or a creation that no event stands for.
    pub(super) fn other(text: String, group: usize) -> Step {
        Step { text, group: Some(group), positional: false, spot: None, event: None }
    }
}

/// All that a rank does.
pub(super) fn stream(program: &Program, rank: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |events: &[Event], round: Option<u64>| {
        for (index, event) in events.iter().enumerate() {
            let spot = round.filter(|&round| round < program.rounds).map(|round| (index, round));
            let place = round.map(|round| (index, round));
            let calls = program.calls(rank, event).into_iter();
            steps.extend(calls.map(|text| Step {
                text,
                group: event.group(),
                positional: event.has_position(),
                spot,
                event: place,
            }));
        }
    };
    add(&program.prologue, None);
    for round in 0..program.rounds {
        add(&program.body, Some(round));
    }
    add(&program.epilogue, Some(program.rounds));
    steps
}

/// The place of a fault.
#[derive(Debug, Clone)]
pub(super) struct Place<'p> {
    pub(super) program: &'p Program,
    pub(super) event: usize,
    pub(super) group: usize,
    pub(super) rank: u32,
    pub(super) round: u64,
    /// The rank's stream, and where in it the event begins.
    pub(super) steps: Vec<Step>,
    pub(super) at: usize,
}

impl<'p> Place<'p> {
    /// Some member's part in some round of an event of the body that `fits`.
    pub(super) fn choose(rng: &mut Rng, program: &'p Program, fits: impl Fn(&Event) -> bool) -> Option<Place<'p>> {
        let suited: Vec<usize> = (0..program.body.len())
            .filter(|&at| program.body.get(at).is_some_and(|event| event.group().is_some() && fits(event)))
            .collect();
        let event = *rng.choice(&suited)?;
        let group = program.body.get(event)?.group()?;
        let rank = *rng.choice(&program.groups.get(group)?.ranks)?;
        Place::of(program, event, rank, rng.u64(0..program.rounds))
    }

    /// A member's part in an event of the body.
    pub(super) fn of(program: &'p Program, event: usize, rank: u32, round: u64) -> Option<Place<'p>> {
        let group = program.body.get(event)?.group()?;
        let steps = stream(program, rank);
        let at = steps.iter().position(|step| step.spot == Some((event, round)))?;
        Some(Place { program, event, group, rank, round, steps, at })
    }

    /// The event itself.
    pub(super) fn event(&self) -> &'p Event {
        &self.program.body[self.event]
    }

    /// The group's name.
    pub(super) fn name(&self) -> &'p str {
        &self.program.groups[self.group].name
    }

    /// The group's members.
    pub(super) fn members(&self) -> &'p [u32] {
        &self.program.groups[self.group].ranks
    }

    /// Position on the group of the step at an index of the stream.
    pub(super) fn position(&self, at: usize) -> u64 {
        position(&self.steps, at, self.group)
    }

    /// The streams with this rank's replaced.
    pub(super) fn changed(&self, steps: Vec<Step>) -> BTreeMap<u32, Vec<Step>> {
        BTreeMap::from([(self.rank, steps)])
    }
}

/// Whether the event's group has so many members.
pub(super) fn is_of_size(program: &Program, event: &Event, least: usize) -> bool {
    event.group().and_then(|group| program.groups.get(group)).is_some_and(|group| group.ranks.len() >= least)
}

/// Position on a group of what stands at an index of a stream.
pub(super) fn position(steps: &[Step], at: usize, group: usize) -> u64 {
    steps.iter().take(at).filter(|step| step.positional && step.group == Some(group)).count() as u64
}

/// How a job with a fault is written down.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    /// Ranks that do not wait at the end, and how they stand.
    pub(super) ends: BTreeMap<u32, String>,
    /// Further lines of the document.
    pub(super) lines: Vec<String>,
}

/// The document of a program in which some ranks' streams are others.
pub(super) fn document(program: &Program, id: &str, changed: &BTreeMap<u32, Vec<Step>>, ending: &Ending) -> String {
    let lines = |rank: u32| match changed.get(&rank) {
        Some(steps) => steps.iter().map(|step| step.text.clone()).collect(),
        None => program.stream(rank),
    };
    let streams: Vec<Vec<String>> = (0..program.world).map(lines).collect();
    let waiting: Vec<String> =
        (0..program.world).filter(|rank| !ending.ends.contains_key(rank)).map(|rank| rank.to_string()).collect();
    let mut ends: Vec<String> = ending.ends.iter().map(|(rank, end)| format!("\"{rank}\": {end}")).collect();
    if !waiting.is_empty() {
        ends.push(format!("\"{}\": alive_waiting", waiting.join(",")));
    }
    let mut program = program.clone();
    program.blind.extend(ending.lines.iter().cloned());
    program.document_of(id, &format!("{{{}}}", ends.join(", ")), &streams)
}

impl Step {
    /// How many calls it stands for.
    pub(super) fn calls(&self) -> usize {
        if self.text.starts_with("- {") {
            // Calls of a batch stand in quotes.
            self.text.matches('"').count() / 2
        } else {
            usize::from(self.text.contains(" @"))
        }
    }
}
