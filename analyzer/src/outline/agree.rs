//! What the digests of two streams say of each other: where they agree, where they differ, and what they do not tell.
//!
//! Equal hashes prove agreement. Unequal ones prove nothing but where to look: a handle may differ between processes and
//! mean the same.

use rankdiff_trace::{CHECKPOINT_EVERY, ChainPoint, Restart};

/// Positions: from, and one past the last.
pub(super) type Span = (u64, u64);

/// The whole history of a chain in three numbers, if nothing is missing in it: its first position, one past its last, and
/// the hash over all between. Equal histories are equal calls.
pub(super) type History = (u64, u64, u64);

/// The history of a chain that never restarted.
pub(super) fn history(points: &[ChainPoint]) -> Option<History> {
    let last = points.last()?;
    let whole = points.iter().all(|point| point.base == last.base && point.restart == Restart::None);
    whole.then_some((last.base, last.upto, last.running))
}

/// Positions that are known to have been called, in order: where a chain restarted, those before are known up to the last
/// point that was written.
pub(super) fn made(points: &[ChainPoint]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for point in points {
        match spans.last_mut() {
            Some(span) if span.0 == point.base => span.1 = span.1.max(point.upto),
            // A chain that goes back proves nothing of what is where.
            Some(span) if point.base < span.1 => return Vec::new(),
            _ => spans.push((point.base, point.upto)),
        }
    }
    spans.retain(|span| span.0 < span.1);
    spans
}

/// What digests say of two members of one communicator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Relation {
    /// Spans in which they differ, as far as they can be told apart; ascending.
    pub(super) differ: Vec<Span>,
    /// Spans that both have called and of which nothing is proven; ascending.
    pub(super) unproven: Vec<Span>,
}

/// Compares two members' chain points, each in order.
pub(super) fn relate(one: &[ChainPoint], other: &[ChainPoint]) -> Relation {
    let mut found = Relation::default();
    let (Some(one_end), Some(other_end)) = (one.last(), other.last()) else { return found };
    let begin = one.first().map_or(0, |point| point.base).max(other.first().map_or(0, |point| point.base));
    let end = one_end.upto.min(other_end.upto);
    // Up to here agreement is proven, or a difference or doubt was noted.
    let mut judged = begin;
    let mut agreed = true;
    let (mut at, mut there) = (0, 0);
    while let (Some(a), Some(b)) = (one.get(at), other.get(there)) {
        if a.upto != b.upto {
            if a.upto < b.upto {
                at += 1;
            } else {
                there += 1;
            }
            continue;
        }
        (at, there) = (at + 1, there + 1);
        let upto = a.upto.min(end);
        if upto <= judged {
            continue;
        }
        let whole = a.base == b.base && a.base <= begin;
        let interval = upto.saturating_sub(CHECKPOINT_EVERY);
        match (a.interval, b.interval) {
            // Equal from the common base on: whatever was open before is settled.
            _ if whole && a.running == b.running => {
                found = Relation::default();
                agreed = true;
            }
            (Some(left), Some(right)) if interval <= judged => {
                if left != right {
                    // An interval that reaches back into a difference may hold nothing but that one.
                    match found.differ.last_mut().filter(|span| span.1 > interval) {
                        Some(span) => span.1 = upto,
                        None => found.differ.push((judged, upto)),
                    }
                    agreed = false;
                }
            }
            (Some(left), Some(right)) => {
                found.unproven.push((judged, interval));
                agreed = false;
                if left != right {
                    found.differ.push((interval, upto));
                }
            }
            // All before agreed, so the difference is here.
            _ if whole && agreed => {
                found.differ.push((judged, upto));
                agreed = false;
            }
            // Points between checkpoints say nothing once the chains have parted: the next checkpoint does.
            _ if !upto.is_multiple_of(CHECKPOINT_EVERY) => continue,
            _ => {
                found.unproven.push((judged, upto));
                agreed = false;
            }
        }
        judged = upto;
    }
    if judged < end {
        found.unproven.push((judged, end));
    }
    found
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Call, CallFlags, ChainPoint, CommDef, CommRef, DType, DigestState, Op};

    use super::{history, made, relate};

    /// The points of a stream whose calls have these counts, from a position on, sealed every so many calls.
    fn points(from: u64, counts: &[u64], block: usize) -> Vec<ChainPoint> {
        let mut state = DigestState::new();
        state.define_comm(&CommDef { id: CommRef(1), ..CommDef::default() });
        let mut points = Vec::new();
        for (index, counts) in counts.chunks(block).enumerate() {
            for (at, &count) in counts.iter().enumerate() {
                state.absorb(&Call {
                    op: Op::AllReduce,
                    comm: CommRef(1),
                    seq: Some(from + (index * block + at) as u64),
                    count: Some(count),
                    dtype: DType::Basic(rankdiff_trace::Basic::F32),
                    redop: rankdiff_trace::RedOp::Predefined(rankdiff_trace::Reduction::Sum),
                    flags: if count == 999 { CallFlags::UNREADABLE } else { CallFlags::default() },
                    ..Call::default()
                });
            }
            let digests = state.seal_block();
            points.extend(digests.checkpoints);
            points.extend(digests.ends);
        }
        points
    }

    fn counts(len: usize) -> Vec<u64> {
        (0..len as u64).map(|at| at % 7).collect()
    }

    #[test]
    fn equal_streams_have_equal_histories_whatever_their_blocks() {
        let (a, b) = (points(0, &counts(700), 100), points(0, &counts(700), 333));
        assert_eq!(history(&a), history(&b));
        assert_eq!(relate(&a, &b), super::Relation::default());
        assert_eq!(made(&a), [(0, 700)]);
    }

    #[test]
    fn one_other_call_is_found_between_two_checkpoints() {
        let mut other = counts(2000);
        other[700] = 50;
        let found = relate(&points(0, &counts(2000), 64), &points(0, &other, 64));
        // Blocks end more often than checkpoints come, at the same positions here.
        assert_eq!(found.differ.first(), Some(&(640, 768)));
        let apart = relate(&points(0, &counts(2000), 90), &points(0, &other, 64));
        assert_eq!(apart.differ, [(512, 768)]);
        // The last checkpoint is at 1,792; behind it both hashes hold the difference.
        assert_eq!(apart.unproven, [(1792, 2000)]);
    }

    #[test]
    fn a_member_that_was_seen_late_agrees_where_whole_intervals_do() {
        let all = counts(1200);
        let late = points(300, &all[300..], 100);
        let found = relate(&points(0, &all, 100), &late);
        assert_eq!(found.differ, []);
        assert_eq!(found.unproven, [(300, 512), (1024, 1200)]);
    }

    #[test]
    fn a_shorter_stream_is_a_prefix_where_a_point_of_the_other_says_so() {
        let all = counts(700);
        let found = relate(&points(0, &all, 100), &points(0, &all[..600], 100));
        assert_eq!(found, super::Relation::default());
        let odd = relate(&points(0, &all, 100), &points(0, &all[..650], 100));
        assert_eq!((odd.differ.len(), odd.unproven), (0, vec![(600, 650)]));
    }

    #[test]
    fn what_cannot_be_read_is_not_proven() {
        let mut unread = counts(1000);
        unread[10] = 999;
        let found = relate(&points(0, &counts(1000), 250), &points(0, &unread, 250));
        assert_eq!(found.differ, []);
        assert_eq!(found.unproven.first(), Some(&(11, 256)));
        assert_eq!(history(&points(0, &unread, 250)), None);
        assert_eq!(made(&points(0, &unread, 5)), [(0, 10), (11, 1000)]);
    }
}
