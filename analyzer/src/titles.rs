//! What reports call communicators that nobody has named: by what they are, the same in every run of the program.

use crate::comms::Comm;
use crate::words::{Who as _, ordinal};

/// Longest chain of parents that is followed.
const DEEPEST: usize = 16;

/// Gives every communicator of which enough is known a title.
pub(crate) fn give(list: &mut [Comm<'_>], world: Option<u32>) {
    let worlds = worlds(list, world);
    let titles: Vec<String> = (0..list.len()).map(|at| title(list, &worlds, at, 0)).collect();
    for (comm, title) in list.iter_mut().zip(titles) {
        comm.title = title;
    }
    number_alike(list);
}

/// Nameless communicators of all ranks that are made from none, where no other of their level is the world.
fn worlds(list: &[Comm<'_>], world: Option<u32>) -> Vec<usize> {
    let highest = list.iter().flat_map(|comm| comm.members.iter().copied()).max().map_or(0, |rank| rank as usize + 1);
    let size = world.map_or(highest, |world| world as usize).max(highest);
    let is_named = |level| list.iter().any(|comm| comm.level == level && comm.name == "world");
    (0..list.len())
        .filter(|&at| {
            list.get(at).is_some_and(|comm| {
                let whole = comm.members_known && comm.members.len() == size && size > 0;
                comm.name.is_empty() && whole && !has_parent(comm) && !is_named(comm.level)
            })
        })
        .collect()
}

fn has_parent(comm: &Comm<'_>) -> bool {
    comm.parent.is_some() || comm.views.iter().any(|(_, def)| def.parent != rankdiff_trace::CommRef::NONE)
}

fn title(list: &[Comm<'_>], worlds: &[usize], at: usize, depth: usize) -> String {
    let Some(comm) = list.get(at) else { return String::new() };
    if !comm.name.is_empty() {
        return comm.name.clone();
    }
    if worlds.contains(&at) {
        return "world".to_owned();
    }
    let ranks = comm.ranks().who();
    let parent = comm.parent.filter(|_| depth < DEEPEST).map(|parent| title(list, worlds, parent, depth + 1));
    let color = comm.views.iter().find_map(|(_, def)| def.color);
    match (parent.filter(|parent| !parent.is_empty()), color) {
        _ if comm.members.is_empty() => String::new(),
        // Members that are not all known would look like all.
        (Some(parent), Some(color)) if !comm.members_known => format!("split of {parent}, color {color}"),
        (Some(parent), None) if !comm.members_known => format!("child of {parent}"),
        (Some(parent), Some(color)) => format!("split of {parent}, color {color} ({ranks})"),
        (Some(parent), None) => format!("child of {parent} ({ranks})"),
        (None, _) if comm.members_known => format!("{ranks} of world"),
        (None, _) => String::new(),
    }
}

/// Communicators that would be called the same are numbered in the order in which they were made.
fn number_alike(list: &mut [Comm<'_>]) {
    let made = |comm: &Comm<'_>| {
        let first = comm.views.iter().map(|(stream, def)| (*stream, def.ordinal, def.id)).min();
        (first, comm.identity)
    };
    let mut order: Vec<usize> = (0..list.len())
        .filter(|&at| list.get(at).is_some_and(|comm| comm.name.is_empty() && !comm.title.is_empty()))
        .collect();
    order.sort_by_key(|&at| list.get(at).map(|comm| (comm.level, comm.title.clone(), made(comm))));
    let mut before: Option<(rankdiff_trace::Level, String, u64)> = None;
    for at in order {
        let Some(comm) = list.get_mut(at) else { continue };
        let count = match &before {
            Some((level, title, count)) if *level == comm.level && *title == comm.title => count + 1,
            _ => 1,
        };
        before = Some((comm.level, comm.title.clone(), count));
        if count > 1 {
            comm.title = format!("{}, the {}", comm.title, ordinal(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{CommDef, CommIdentity, CommRef};

    use super::give;
    use crate::comms::Comm;

    fn comm<'a>(members: &[u32], parent: Option<usize>, def: &'a CommDef) -> Comm<'a> {
        Comm {
            members: members.to_vec(),
            members_known: true,
            parent,
            identity: CommIdentity(7),
            views: vec![(0, def)],
            ..Comm::default()
        }
    }

    fn titles(list: &mut [Comm<'_>]) -> Vec<String> {
        give(list, Some(4));
        list.iter().map(Comm::display).collect()
    }

    #[test]
    fn nameless_ones_are_called_by_what_they_are() {
        let plain = CommDef::default();
        let odd = CommDef { color: Some(1), parent: CommRef(1), ..CommDef::default() };
        let again = CommDef { ordinal: 1, ..odd.clone() };
        let mut list = [
            comm(&[0, 1, 2, 3], None, &plain),
            comm(&[3, 1], Some(0), &again),
            comm(&[1, 3], Some(0), &odd),
            comm(&[0, 2], None, &plain),
        ];
        assert_eq!(
            titles(&mut list),
            [
                "world",
                "split of world, color 1 (ranks 1,3), the 2nd",
                "split of world, color 1 (ranks 1,3)",
                "ranks 0,2 of world"
            ]
        );
    }

    #[test]
    fn a_name_stays_and_leaves_no_second_world() {
        let plain = CommDef::default();
        let named = Comm { name: "world".to_owned(), ..comm(&[0, 1, 2, 3], None, &plain) };
        let unknown = Comm { members_known: false, members: vec![2], ..comm(&[], None, &plain) };
        let mut list = [named, comm(&[0, 1, 2, 3], None, &plain), unknown];
        assert_eq!(titles(&mut list), ["world", "ranks 0-3 of world", "communicator 0000000000000007"]);
    }
}
