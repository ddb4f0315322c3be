//! What a recorder may not be able to see of any call: completions, returns, counters, members, call sites, senders.
//!
//! A scenario says all of it, so this is taken from the records.

use fastrand::Rng;
use rankdiff_trace::{CallFlags, Completion, Op, OpKind, ProcessTrace, RankSet, Semantics, SiteRef};

/// What is not seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lens {
    /// When calls complete that return at once.
    pub completions: bool,
    /// When such calls return.
    pub returns: bool,
    /// Positions: none are counted.
    pub counters: bool,
    /// Who the members of a communicator are, beside this one's place and their number.
    pub members: bool,
    /// Call sites of these ranks.
    pub sites: RankSet,
    /// From whom a receive takes, and with which tag, on these ranks: from anybody.
    pub senders: RankSet,
    /// Whether the recorder ended the record: it still writes.
    pub closed: bool,
    /// The order of different threads' calls: they stand thread by thread.
    pub interleaving: bool,
}

impl Lens {
    /// Some of them; often none.
    pub fn random(rng: &mut Rng, world: u32) -> Lens {
        let mut lens = Lens::default();
        if rng.bool() {
            return lens;
        }
        lens.completions = rng.u8(0..2) == 0;
        lens.returns = rng.u8(0..5) == 0;
        lens.counters = rng.u8(0..5) == 0;
        lens.members = rng.u8(0..5) == 0;
        lens.interleaving = rng.u8(0..4) == 0;
        let ranks = |rng: &mut Rng| match rng.u8(0..10) {
            0 => (0..world).collect(),
            1 => RankSet::from_iter([rng.u32(0..world)]),
            _ => RankSet::new(),
        };
        lens.sites = ranks(rng);
        lens.senders = ranks(rng);
        lens
    }

    /// Whether all is seen.
    pub fn is_clear(&self) -> bool {
        *self == Lens::default()
    }

    /// Takes what is not seen out of the traces.
    pub fn apply(&self, traces: &mut [ProcessTrace]) {
        for trace in traces {
            self.apply_to(trace);
        }
    }

    fn apply_to(&self, trace: &mut ProcessTrace) {
        let rank = trace.ranks.first().map_or(0, |def| def.rank);
        let blocking: Vec<_> =
            trace.comms.iter().filter(|def| def.semantics.contains(Semantics::BLOCKING)).map(|def| def.id).collect();
        for call in &mut trace.calls {
            // What makes a communicator blocks wherever its calls do not.
            let at_once = call.op.kind() != OpKind::CommCreate
                && (!blocking.contains(&call.comm) || call.flags.contains(CallFlags::NONBLOCKING));
            if at_once && self.completions {
                call.completion = Completion::Unknown;
            }
            if at_once && self.returns {
                call.exit = None;
                call.result = None;
            }
            if self.counters {
                call.seq = None;
            }
            if self.sites.contains(rank) {
                call.site = SiteRef(0);
            }
            if self.senders.contains(rank) && call.op == Op::Recv {
                call.flags = call.flags.with(CallFlags::ANY_SOURCE).with(CallFlags::ANY_TAG);
                (call.peer, call.tag, call.seq) = (None, None, None);
            }
        }
        if self.members {
            trace.comms.iter_mut().for_each(|def| def.members.clear());
        }
        if self.interleaving {
            trace.calls.sort_by_key(|call| call.thread);
        }
        trace.closed &= !self.closed;
    }
}
