//! What pairs up: the members' sums over split vectors, and over messages, are zero if every pair agrees.

use rankdiff_trace::{ChainPoint, StreamOutline};
use rustc_hash::FxHashMap;

use super::agree::Span;
use super::classes::Member;

/// What the pair sums of a communicator say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Splits {
    /// The first span in which vectors do not pair up, if one does not.
    pub(super) differ: Option<Span>,
    /// A span of which that is not known, since somebody's vectors were not.
    pub(super) unproven: Option<Span>,
}

/// The pair sums of all members, compared where all of them have a point.
pub(super) fn splits(members: &[Member], outlines: &[StreamOutline]) -> Splits {
    let points = |member: &Member| {
        let stream = outlines.get(member.stream);
        stream.and_then(|stream| stream.chains.get(&member.comm)).map_or(&[][..], Vec::as_slice)
    };
    let has_vectors =
        |point: &ChainPoint| point.pairs_base < point.upto && (point.pairs != 0 || point.pairs_base != point.base);
    if !members.iter().flat_map(points).any(has_vectors) {
        return Splits::default();
    }
    // By position: members that have a point there, and their sum; apart by where the sums begin.
    let mut sums: FxHashMap<(u64, u64), (usize, u64)> = FxHashMap::default();
    for member in members {
        let mut before = None;
        for point in points(member) {
            // A checkpoint at a block's end is told twice.
            let place = (point.pairs_base, point.upto);
            if point.pairs_base >= point.upto {
                continue;
            }
            if before.replace(place) == Some(place) {
                continue;
            }
            let sum = sums.entry(place).or_default();
            *sum = (sum.0 + 1, sum.1.wrapping_add(point.pairs));
        }
    }
    let mut whole: Vec<(u64, u64, u64)> = sums
        .into_iter()
        .filter(|(_, (count, _))| *count == members.len())
        .map(|((base, upto), (_, sum))| (upto, base, sum))
        .collect();
    whole.sort_unstable();
    let begin = members.iter().filter_map(|member| Some(points(member).first()?.base)).max().unwrap_or(0);
    let end = members.iter().map(|member| points(member).last().map_or(0, |point| point.upto)).min().unwrap_or(0);
    let mut found = Splits::default();
    let mut proven = begin;
    for (upto, base, sum) in whole {
        if base > proven {
            found.unproven.get_or_insert((proven, base));
            proven = base;
        }
        if sum != 0 {
            found.differ = Some((proven, upto));
            return found;
        }
        proven = proven.max(upto);
    }
    if proven < end {
        found.unproven.get_or_insert((proven, end));
    }
    found
}

/// Whether all messages of a communicator are known and pair up; `None` where it has none.
pub(super) fn messages(members: &[Member], outlines: &[StreamOutline]) -> Option<bool> {
    let points = members.iter().filter_map(|member| outlines.get(member.stream)?.messages.get(&member.comm));
    let mut any = false;
    let (mut sum, mut unknown) = (0_u64, 0);
    for point in points {
        any = true;
        sum = sum.wrapping_add(point.sum);
        unknown += point.unknown;
    }
    any.then_some(sum == 0 && unknown == 0)
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Basic, Call, CommDef, CommRef, DType, DigestState, Op, StreamOutline};

    use super::{Member, messages, splits};

    const COMM: CommRef = CommRef(1);

    /// Two members that exchange so many elements, `counts` by position; what each expects is what the other sends.
    fn outlines(counts: &[u64], wrong: Option<usize>) -> Vec<StreamOutline> {
        (0..2_u32)
            .map(|rank| {
                let mut state = DigestState::new();
                let def = CommDef { id: COMM, my_rank: Some(rank), size: Some(2), ..CommDef::default() };
                state.define_comm(&def);
                let mut outline = StreamOutline::default();
                for (at, &count) in counts.iter().enumerate() {
                    let more = u64::from(rank == 1 && wrong == Some(at));
                    state.absorb(&Call {
                        op: Op::AllToAllV,
                        comm: COMM,
                        seq: Some(at as u64),
                        dtype: DType::Basic(Basic::F32),
                        sends: vec![count, count],
                        recvs: vec![count, count + more],
                        ..Call::default()
                    });
                    let (op, peer) = if rank == 0 { (Op::Send, 1) } else { (Op::Recv, 0) };
                    state.absorb(&Call {
                        op,
                        comm: COMM,
                        seq: Some(at as u64),
                        peer: Some(peer),
                        count: Some(count + more),
                        dtype: DType::Basic(Basic::F32),
                        ..Call::default()
                    });
                    if at % 100 == 99 || at + 1 == counts.len() {
                        let digests = state.seal_block();
                        let points = digests.checkpoints.into_iter().chain(digests.ends);
                        outline.chains.entry(COMM).or_default().extend(points);
                        outline.messages.extend(digests.p2p.into_iter().map(|point| (COMM, point)));
                    }
                }
                outline
            })
            .collect()
    }

    #[test]
    fn vectors_and_messages_that_pair_up_add_up_to_nothing() {
        let members = [0, 1].map(|stream| Member { stream, comm: COMM });
        let counts: Vec<u64> = (0..600).map(|at| at % 9).collect();
        let sound = outlines(&counts, None);
        assert_eq!(splits(&members, &sound), super::Splits::default());
        assert_eq!(messages(&members, &sound), Some(true));
        let wrong = outlines(&counts, Some(333));
        assert_eq!(splits(&members, &wrong).differ, Some((300, 400)), "between two ends of blocks");
        assert_eq!(messages(&members, &wrong), Some(false));
        assert_eq!(messages(&members, &[StreamOutline::default(), StreamOutline::default()]), None);
    }
}
