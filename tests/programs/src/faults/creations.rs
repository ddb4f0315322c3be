//! Communicators whose creation not everybody calls, or not with the same list.

use std::collections::BTreeMap;

use fastrand::Rng;
use rankdiff_trace::RankSet;

use super::explain::goes_on;
use super::place::{Ending, Step, document, stream};
use super::truth::{Placed, Truth};
use super::{Case, Fault};
use crate::program::{Group, Made, Program};

/// Name of the group to be made, and of the same with another list.
const FRESH: &str = "fresh_0";
const OTHER: &str = "fresh_1";

pub(super) fn inject(rng: &mut Rng, program: &Program, fault: Fault, id: &str) -> Option<Case> {
    let world = program.groups.iter().position(|group| group.name == "world")?;
    if program.world < 4 {
        return None;
    }
    let mut members: Vec<u32> = program.groups[world].ranks.clone();
    rng.shuffle(&mut members);
    members.truncate(rng.usize(3..members.len()));
    members.sort_unstable();
    let odd = members[rng.usize(0..members.len())];
    let by = if fault == Fault::OtherMembers { "init" } else { "split" };
    let color = (by == "split").then_some(77);
    let made = |ranks: Vec<u32>, name: &str| Group {
        name: name.to_owned(),
        ranks,
        level: program.groups[world].level,
        made: Some(Made { by, parent: Some("world".to_owned()), color }),
        ..Group::default()
    };
    let mut changed_program = program.clone();
    changed_program.groups.push(made(members.clone(), FRESH));
    if fault == Fault::OtherMembers {
        // The odd one's list lacks a member.
        let without = members.iter().copied().find(|&rank| rank != odd)?;
        changed_program.groups.push(made(members.iter().copied().filter(|&rank| rank != without).collect(), OTHER));
    }
    let program = &changed_program;
    // Everybody but these takes part: whoever is not of the group, or one rank.
    let outside: RankSet = program.groups[world].ranks.iter().copied().filter(|rank| !members.contains(rank)).collect();
    let missing = if rng.bool() { outside } else { RankSet::from_iter([odd]) };
    let round = rng.u64(0..program.rounds);
    let mut changed = BTreeMap::new();
    for &rank in &program.groups[world].ranks {
        let mut steps = stream(program, rank);
        let at = steps.iter().position(|step| step.event.is_some_and(|event| event.1 > round)).unwrap_or(steps.len());
        let site = "train.py:77:make>new_group";
        let call = match fault {
            Fault::OtherMembers if !members.contains(&rank) => None,
            Fault::OtherMembers => {
                let name = if rank == odd { OTHER } else { FRESH };
                Some(format!("- comm_init - - @{name} {site}"))
            }
            // Nothing tells a rank that left its last call out from one that is late.
            _ if missing.contains(rank) && !goes_on(program, &steps[at..]) => return None,
            _ if missing.contains(rank) => None,
            _ => {
                let color = if members.contains(&rank) { "77" } else { "none" };
                Some(format!("- comm_split - - @world {site} color={color} key={rank}"))
            }
        };
        let Some(call) = call else { continue };
        let mut made = Step::other(call, world);
        if !program.blocking {
            // Creating a communicator holds the thread, whatever its calls do.
            made.text.push_str(" pending");
            steps.truncate(at);
        }
        steps.insert(at, made);
        changed.insert(rank, steps);
    }
    let (suspects, guilty) = match fault {
        Fault::OtherMembers => (RankSet::from_iter([odd]), vec![odd]),
        _ => (missing.clone(), missing.iter().collect()),
    };
    let places = [FRESH, OTHER, "world"].map(|name| Placed { group: name.to_owned(), first: Vec::new() });
    let truth = Truth {
        class: "group_creation",
        what: None,
        places: places.into(),
        suspects,
        or_none: false,
        cycle: None,
        says: "",
    };
    Some(Case { document: document(program, id, &changed, &Ending::default()), truths: vec![truth], guilty })
}
