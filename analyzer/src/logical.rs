//! Equal signatures with another meaning: the call sites or the arguments' names differ where they never did before.
//!
//! Members may call from different lines, so a difference alone says nothing. What tells is that a site is one where all
//! members have met: code that both ran together is now met by other code on one of them.

use rankdiff_trace::Op;
use rustc_hash::FxHashMap;

use crate::align::{Alignment, Comparison, What};
use crate::diverge::{Divergence, Kind, suspects};

/// What a call meant at its place: site and label.
type Meaning = (u32, u32);

pub(crate) fn find(alignment: &Alignment<'_>, comm: usize, compared: &Comparison) -> Option<Divergence> {
    let tracks = alignment.tracks(comm);
    let mut pairs: FxHashMap<(Meaning, Meaning), u64> = FxHashMap::default();
    let groups_at = |pos: u64| -> Vec<(Meaning, Vec<usize>)> {
        let mut groups: Vec<(Meaning, Vec<usize>)> = Vec::new();
        for (at, track) in tracks.iter().enumerate() {
            let Some(entry) = track.at(pos) else { continue };
            let meaning = (entry.site, entry.label);
            match groups.iter_mut().find(|(held, _)| *held == meaning) {
                Some((_, members)) => members.push(at),
                None => groups.push((meaning, vec![at])),
            }
        }
        groups.sort_by_key(|(_, members)| (std::cmp::Reverse(members.len()), members.first().copied()));
        groups
    };
    for &pos in &compared.meanings {
        if let [(a, _), (b, _)] = groups_at(pos).as_slice() {
            *pairs.entry(((*a).min(*b), (*a).max(*b))).or_default() += 1;
        }
    }
    compared.meanings.iter().find_map(|&pos| {
        let groups = groups_at(pos);
        let [(a, _), (b, _)] = groups.as_slice() else { return None };
        let run = pairs.get(&((*a).min(*b), (*a).max(*b))).copied().unwrap_or(0);
        // Only of members that were seen at a place together is it known that the place is common to them.
        let there: Vec<usize> = groups.iter().flat_map(|group| group.1.iter().copied()).collect();
        let met = |meaning: &Meaning| {
            compared.met.holds(*meaning, there.iter().copied()) || met_crosswise(alignment, comm, compared, *meaning)
        };
        let exclusive = met(a) && met(b);
        let same_site = a.0 == b.0;
        let op = tracks.iter().find_map(|track| track.at(pos)).map(|entry| entry.call.op)?;
        let reduces = matches!(op, Op::AllReduce | Op::Reduce | Op::ReduceScatter | Op::Scan | Op::Exscan);
        // Arguments with two names that are reduced into one number; gathering differently named parts is legal.
        let names_mixed = same_site
            && a.1 != 0
            && b.1 != 0
            && reduces
            && (exclusive || compared.met.holds_site(a.0, &there) || run > 1);
        let sites_mixed = !same_site && (exclusive || (met(a) || met(b)) && run > 1);
        if !(names_mixed || sites_mixed || same_site && exclusive) {
            return None;
        }
        let groups: Vec<Vec<usize>> = groups.into_iter().map(|group| group.1).collect();
        let at = groups.iter().flatten().filter_map(|&at| {
            let track = tracks.get(at)?;
            Some(alignment.entered(track.stream, track.at(pos)?.call))
        });
        Some(Divergence {
            comm,
            kind: Kind::Meaning { exclusive, run },
            what: What::Op,
            visible: pos,
            first: Some(pos),
            at: at.min().unwrap_or(0),
            suspects: suspects(alignment, comm, &groups),
            groups,
            open: false,
            again: run.saturating_sub(1) as usize,
            pairs: Vec::new(),
        })
    })
}

/// Whether every member made calls of this meaning, if never at one position.
fn met_crosswise(alignment: &Alignment<'_>, comm: usize, compared: &Comparison, meaning: Meaning) -> bool {
    // Names only: one site for every argument, so that a name is either one rank's own or shared by all.
    if meaning.1 == 0 {
        return false;
    }
    alignment.tracks(comm).iter().all(|track| {
        compared.meanings.iter().any(|&pos| track.at(pos).is_some_and(|entry| (entry.site, entry.label) == meaning))
    })
}
