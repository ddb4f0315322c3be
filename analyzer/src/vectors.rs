//! The vector forms: members pass different vectors, and what one sends to another must be what that one expects.
//!
//! A vector that was not read, or was cut, is not compared: absence proves nothing.

use rankdiff_trace::{Call, CallFlags, Op};

/// One pair of members that disagrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Who sends, in the communicator's ranks.
    pub(crate) sender: usize,
    /// Who receives.
    pub(crate) receiver: usize,
    /// Elements sent.
    pub(crate) sent: u64,
    /// Elements expected.
    pub(crate) expected: u64,
}

/// Whether the call has vectors to compare.
pub(crate) fn has_vectors(call: &Call) -> bool {
    (!call.sends.is_empty() || !call.recvs.is_empty()) && !call.flags.contains(CallFlags::VECTORS_CUT)
}

/// Pairs that disagree in one instance. `calls` is in the communicator's order, `None` where a member has no call there.
pub(crate) fn disagreements(calls: &[Option<&Call>]) -> Vec<Pair> {
    let op = calls.iter().flatten().next().map(|call| call.op);
    match op {
        Some(Op::AllToAll | Op::AllToAllV) => exchange(calls),
        // Every member's vector says what each member contributes (gather) or gets (scatter of the reduction).
        Some(Op::AllGatherV) => contributions(calls, |call| &call.recvs),
        Some(Op::ReduceScatterV) => same_vector(calls),
        Some(Op::GatherV) => contributions(calls, |call| &call.recvs),
        Some(Op::ScatterV) => scattered(calls),
        _ => Vec::new(),
    }
}

fn usable(call: Option<&Call>) -> Option<&Call> {
    call.filter(|call| has_vectors(call))
}

fn exchange(calls: &[Option<&Call>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let size = calls.len();
    for (sender, call) in calls.iter().enumerate() {
        let Some(call) = usable(*call).filter(|call| call.sends.len() == size) else { continue };
        for (receiver, other) in calls.iter().enumerate() {
            let Some(other) = usable(*other).filter(|other| other.recvs.len() == size) else { continue };
            if let (Some(&sent), Some(&expected)) = (call.sends.get(receiver), other.recvs.get(sender))
                && sent != expected
            {
                pairs.push(Pair { sender, receiver, sent, expected });
            }
        }
    }
    pairs
}

/// What each member contributes against what the members with a vector expect of it.
fn contributions(calls: &[Option<&Call>], vector: fn(&Call) -> &Vec<u64>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (receiver, call) in calls.iter().enumerate() {
        let Some(call) = usable(*call).filter(|call| vector(call).len() == calls.len()) else { continue };
        for (sender, other) in calls.iter().enumerate() {
            let in_place = other.is_some_and(|other| other.flags.contains(CallFlags::IN_PLACE));
            let (Some(sent), Some(&expected)) = (other.and_then(|other| other.count), vector(call).get(sender)) else {
                continue;
            };
            if sent != expected && !in_place {
                pairs.push(Pair { sender, receiver, sent, expected });
            }
        }
    }
    pairs
}

fn scattered(calls: &[Option<&Call>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (sender, call) in calls.iter().enumerate() {
        let Some(call) = usable(*call).filter(|call| call.sends.len() == calls.len()) else { continue };
        for (receiver, other) in calls.iter().enumerate() {
            let in_place = other.is_some_and(|other| other.flags.contains(CallFlags::IN_PLACE));
            let (Some(&sent), Some(expected)) = (call.sends.get(receiver), other.and_then(|other| other.count)) else {
                continue;
            };
            if sent != expected && !in_place && sender != receiver {
                pairs.push(Pair { sender, receiver, sent, expected });
            }
        }
    }
    pairs
}

/// All members pass one vector.
fn same_vector(calls: &[Option<&Call>]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let with_vectors: Vec<(usize, &Call)> =
        calls.iter().enumerate().filter_map(|(at, call)| Some((at, usable(*call)?))).collect();
    let Some(&(first, reference)) = with_vectors.first() else { return pairs };
    for &(at, call) in with_vectors.iter().skip(1) {
        if call.recvs.len() != reference.recvs.len() {
            continue;
        }
        if let Some((mine, theirs)) = reference.recvs.iter().zip(&call.recvs).find(|(mine, theirs)| mine != theirs) {
            pairs.push(Pair { sender: first, receiver: at, sent: *mine, expected: *theirs });
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Call, CallFlags, Op};

    use super::{Pair, disagreements};

    fn all_to_all(sends: &[u64], recvs: &[u64]) -> Call {
        Call { op: Op::AllToAllV, sends: sends.to_vec(), recvs: recvs.to_vec(), ..Call::default() }
    }

    #[test]
    fn uneven_splits_that_pair_up_are_silent() {
        let calls = [all_to_all(&[3, 1], &[3, 2]), all_to_all(&[2, 4], &[1, 4])];
        assert!(disagreements(&[Some(&calls[0]), Some(&calls[1])]).is_empty());
    }

    #[test]
    fn the_pair_that_disagrees_is_named() {
        let calls = [all_to_all(&[3, 1], &[3, 2]), all_to_all(&[2, 4], &[5, 4])];
        let found = disagreements(&[Some(&calls[0]), Some(&calls[1])]);
        assert_eq!(found, [Pair { sender: 0, receiver: 1, sent: 1, expected: 5 }]);
    }

    #[test]
    fn cut_and_missing_vectors_prove_nothing() {
        let mut cut = all_to_all(&[9, 9], &[9, 9]);
        cut.flags = CallFlags::VECTORS_CUT;
        let whole = all_to_all(&[3, 1], &[3, 2]);
        assert!(disagreements(&[Some(&whole), Some(&cut)]).is_empty());
        assert!(disagreements(&[Some(&whole), None]).is_empty());
    }
}
