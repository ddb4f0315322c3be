//! Digests: what lets members prove their agreement without their calls being decoded.
//!
//! - A **chain** per communicator: a running hash over the signatures of its executed collectives, written down at every
//!   sequence number that is a multiple of [`CHECKPOINT_EVERY`] and at the end of each block. Equal hash at equal
//!   sequence number and base proves that everything between agrees. An argument that could not be read, or a jump in
//!   the sequence numbers, restarts it. Each checkpoint also carries the hash of its last [`CHECKPOINT_EVERY`] calls
//!   alone, which compares between members whose chains begin at different places (late attach, a gap).
//! - A **pair sum** per communicator for what has no common value: the vectors of v-forms. Who sends adds
//!   h(from, to, ordinal, elements), who expects subtracts it; over all members the sum is zero.
//! - The same for **point-to-point** calls, which have no common position: comparable when all traffic is over.
//!
//! docs/format.md, 'Digests', is normative. Inequality proves nothing by itself (an undecoded handle may differ between
//! processes and mean the same): it tells where to decode.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::call::{Call, CallFlags};
use crate::comm::{CommDef, CommRef, Semantics};
use crate::limits;
use crate::op::{Op, OpKind};
use crate::signature::{Elements, is_vector_form};
use crate::signature_hash::SignatureHashes;
use crate::stream::Record;
use crate::typesig::{TypeTable, Unit};
use crate::wire::{Cursor, Malformed, put_varint};

/// Calls between two checkpoints of a chain.
pub const CHECKPOINT_EVERY: u64 = 256;

/// Why a chain does not begin at the communicator's first collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Restart {
    /// It did not restart: the base is the first collective that was recorded.
    #[default]
    None,
    /// A sequence number did not follow the one before, or was not known.
    Jump,
    /// A part of a signature was not known.
    Unreadable,
}

/// A chain at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainPoint {
    /// The communicator, as the stream numbers it.
    pub comm: CommRef,
    /// First sequence number in the running hash.
    pub base: u64,
    /// First sequence number that is not in it.
    pub upto: u64,
    /// Running hash over the calls `base..upto`.
    pub running: u64,
    /// Hash over the calls `upto - 256..upto` alone; at checkpoints, where all of them are known.
    pub interval: Option<u64>,
    /// Why the chain begins at its base.
    pub restart: Restart,
    /// First sequence number in the pair sum: later than `base` if a vector was not known.
    pub pairs_base: u64,
    /// Pair sum over the v-forms in `pairs_base..upto`.
    pub pairs: u64,
}

impl ChainPoint {
    /// Whether it is a checkpoint: a place that every member's chain passes.
    pub fn is_checkpoint(&self) -> bool {
        self.upto.is_multiple_of(CHECKPOINT_EVERY)
    }
}

/// Point-to-point calls of a communicator up to the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct P2pPoint {
    /// The communicator, as the stream numbers it.
    pub comm: CommRef,
    /// Sends in the sum.
    pub sends: u64,
    /// Receives in the sum.
    pub recvs: u64,
    /// Calls that are not in the sum because a part was not known (a receive from any source).
    pub unknown: u64,
    /// The sum.
    pub sum: u64,
}

/// The digest table of a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digests {
    /// Checkpoints that fall into the block, in order.
    pub checkpoints: Vec<ChainPoint>,
    /// Where each chain that the block moved stands at its end, by communicator.
    pub ends: Vec<ChainPoint>,
    /// Point-to-point sums of the communicators that the block used, by communicator.
    pub p2p: Vec<P2pPoint>,
}

/// Hashes that are remembered of each chain.
const RECENT: usize = crate::frontier::FRONTIER_CALLS;

const CHECKPOINT: u64 = 1;
const END: u64 = 2;
const P2P: u64 = 3;

const HAS_INTERVAL: u8 = 1;
const HAS_PAIRS: u8 = 2;
const RESTART_SHIFT: u8 = 2;

impl Digests {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.checkpoints.is_empty() && self.ends.is_empty() && self.p2p.is_empty()
    }

    /// Appends the table's bytes. Entries are written as (kind, length, body), so that unknown kinds are skipped. What
    /// does not fit a table (some 150,000 communicators at the end of a segment) is left out.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let full = out.len() + limits::MAX_TABLE;
        let mut body = Vec::with_capacity(48);
        let mut entry = |kind: u64, fill: &mut dyn FnMut(&mut Vec<u8>)| {
            body.clear();
            fill(&mut body);
            if out.len() + body.len() + 4 > full {
                return;
            }
            put_varint(out, kind);
            put_varint(out, body.len() as u64);
            out.extend_from_slice(&body);
        };
        for point in &self.checkpoints {
            entry(CHECKPOINT, &mut |body| encode_chain(point, body));
        }
        for point in &self.ends {
            entry(END, &mut |body| encode_chain(point, body));
        }
        for point in &self.p2p {
            entry(P2P, &mut |body| {
                for value in [u64::from(point.comm.0), point.sends, point.recvs, point.unknown] {
                    put_varint(body, value);
                }
                body.extend_from_slice(&point.sum.to_le_bytes());
            });
        }
    }

    /// Reads a table.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Digests, Malformed> {
        let mut digests = Digests::default();
        let mut cursor = Cursor::new(bytes);
        while !cursor.is_empty() {
            let kind = cursor.varint("a digest's kind")?;
            let length = cursor.length(limits::MAX_TABLE, "a digest's length")?;
            let mut body = Cursor::new(cursor.take(length, "a digest")?);
            match kind {
                CHECKPOINT => digests.checkpoints.push(decode_chain(&mut body)?),
                END => digests.ends.push(decode_chain(&mut body)?),
                P2P => digests.p2p.push(P2pPoint {
                    comm: CommRef(body.varint32("a digest's communicator")?),
                    sends: body.varint("a digest's sends")?,
                    recvs: body.varint("a digest's receives")?,
                    unknown: body.varint("a digest's unknown calls")?,
                    sum: body.u64("a digest's sum")?,
                }),
                _ => {}
            }
        }
        Ok(digests)
    }
}

fn encode_chain(point: &ChainPoint, out: &mut Vec<u8>) {
    let pairs = point.pairs_base != point.base || point.pairs != 0;
    let restart = match point.restart {
        Restart::None => 0,
        Restart::Jump => 1,
        Restart::Unreadable => 2,
    };
    let flags = (u8::from(point.interval.is_some()) * HAS_INTERVAL) | (u8::from(pairs) * HAS_PAIRS);
    put_varint(out, u64::from(point.comm.0));
    out.push(flags | (restart << RESTART_SHIFT));
    put_varint(out, point.base);
    put_varint(out, point.upto.wrapping_sub(point.base));
    out.extend_from_slice(&point.running.to_le_bytes());
    if let Some(interval) = point.interval {
        out.extend_from_slice(&interval.to_le_bytes());
    }
    if pairs {
        put_varint(out, point.pairs_base.wrapping_sub(point.base));
        out.extend_from_slice(&point.pairs.to_le_bytes());
    }
}

fn decode_chain(body: &mut Cursor<'_>) -> Result<ChainPoint, Malformed> {
    let comm = CommRef(body.varint32("a digest's communicator")?);
    let flags = body.u8("a digest's flags")?;
    let base = body.varint("a digest's base")?;
    let upto = base.wrapping_add(body.varint("a digest's position")?);
    let running = body.u64("a digest's hash")?;
    let interval = if flags & HAS_INTERVAL == 0 { None } else { Some(body.u64("a digest's hash")?) };
    let (pairs_base, pairs) = if flags & HAS_PAIRS == 0 {
        (base, 0)
    } else {
        (base.wrapping_add(body.varint("a digest's pair base")?), body.u64("a digest's pair sum")?)
    };
    let restart = match (flags >> RESTART_SHIFT) & 3 {
        0 => Restart::None,
        1 => Restart::Jump,
        _ => Restart::Unreadable,
    };
    Ok(ChainPoint { comm, base, upto, running, interval, restart, pairs_base, pairs })
}

/// What the digests need to know of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Facts {
    semantics: Semantics,
    inter: bool,
    my_rank: Option<u32>,
    size: Option<u32>,
}

impl Facts {
    fn of(def: &CommDef) -> Facts {
        Facts { semantics: def.semantics, inter: def.inter, my_rank: def.my_rank, size: def.size }
    }
}

#[derive(Debug, Default)]
struct Chain {
    facts: Facts,
    /// No collective was seen yet, or the position is not known: the next known one is the base.
    adrift: bool,
    point: ChainPoint,
    /// Hash of the calls since the last checkpoint, and the sequence number of the first one in it.
    interval: u64,
    interval_base: u64,
    /// The running hash behind each of the last calls, at the position modulo their number.
    recent: [u64; RECENT],
    touched: bool,
    p2p: P2pPoint,
    p2p_touched: bool,
}

impl Chain {
    fn new(comm: CommRef) -> Chain {
        Chain {
            adrift: true,
            point: ChainPoint { comm, ..ChainPoint::default() },
            p2p: P2pPoint { comm, ..P2pPoint::default() },
            ..Chain::default()
        }
    }

    fn restart(&mut self, base: u64, why: Restart) {
        self.adrift = false;
        self.point = ChainPoint {
            comm: self.point.comm,
            base,
            upto: base,
            running: 0,
            interval: None,
            restart: why,
            pairs_base: base,
            pairs: 0,
        };
        self.interval = 0;
        self.interval_base = base;
    }
}

/// The digests of a stream as it is written (or replayed).
#[derive(Debug, Default)]
pub struct DigestState {
    types: TypeTable,
    chains: FxHashMap<CommRef, Chain>,
    /// Communicators that the current block used.
    touched: Vec<CommRef>,
    checkpoints: Vec<ChainPoint>,
    signatures: SignatureHashes,
    scratch: Vec<u8>,
}

impl DigestState {
    /// A state before the first record.
    pub fn new() -> DigestState {
        DigestState::default()
    }

    /// Takes a communicator's definition. A later one of the same id refines it.
    pub fn define_comm(&mut self, def: &CommDef) {
        let chain = self.chains.entry(def.id).or_insert_with(|| Chain::new(def.id));
        chain.facts = Facts::of(def);
    }

    /// Whether calls of the current block were digested under another state of what this record defines. The block must
    /// end before it: definitions stand in front of the calls of their block, and whoever computes the digests anew
    /// has nothing but that order.
    pub(crate) fn outdates(&self, record: &Record) -> bool {
        match record {
            Record::Comm(def) => self
                .chains
                .get(&def.id)
                .is_some_and(|chain| (chain.touched || chain.p2p_touched) && chain.facts != Facts::of(def)),
            Record::Type(def) => !self.touched.is_empty() && self.types.differs(def),
            _ => false,
        }
    }

    /// Takes a type's definition.
    pub fn define_type(&mut self, def: &crate::datatype::TypeDef) {
        self.types.insert(def);
        self.signatures.forget();
    }

    /// Takes a call.
    pub fn absorb(&mut self, call: &Call) {
        let executed = !call.flags.contains(CallFlags::NESTED) && !call.flags.contains(CallFlags::CAPTURED);
        if !executed || call.comm == CommRef::NONE {
            return;
        }
        match call.op.kind() {
            OpKind::Collective => self.absorb_collective(call),
            OpKind::PointToPoint => self.absorb_p2p(call),
            _ => {}
        }
    }

    fn absorb_collective(&mut self, call: &Call) {
        let chain = self.chains.entry(call.comm).or_insert_with(|| Chain::new(call.comm));
        if !std::mem::replace(&mut chain.touched, true) && !chain.p2p_touched {
            self.touched.push(call.comm);
        }
        let Some(seq) = call.seq else {
            chain.restart(chain.point.upto, Restart::Jump);
            chain.adrift = true;
            return;
        };
        if chain.adrift {
            chain.restart(seq, chain.point.restart);
        } else if seq != chain.point.upto {
            chain.restart(seq, Restart::Jump);
        }
        let Facts { semantics, inter, .. } = chain.facts;
        let next = seq.wrapping_add(1);
        let Some(hash) = self.signatures.of(call, semantics, inter, &self.types) else {
            chain.restart(next, Restart::Unreadable);
            return;
        };
        chain.point.running = link(chain.point.running, hash);
        chain.interval = link(chain.interval, hash);
        chain.point.upto = next;
        chain.recent[(next % RECENT as u64) as usize] = chain.point.running;
        if is_vector_form(call) {
            match vector_sum(call, chain.facts, seq, &self.types, &mut self.scratch) {
                Some(sum) => chain.point.pairs = chain.point.pairs.wrapping_add(sum),
                None => {
                    chain.point.pairs_base = next;
                    chain.point.pairs = 0;
                }
            }
        }
        if chain.point.is_checkpoint() {
            let whole = next.wrapping_sub(chain.interval_base) == CHECKPOINT_EVERY;
            self.checkpoints.push(ChainPoint { interval: whole.then_some(chain.interval), ..chain.point });
            chain.interval = 0;
            chain.interval_base = next;
        }
    }

    fn absorb_p2p(&mut self, call: &Call) {
        let chain = self.chains.entry(call.comm).or_insert_with(|| Chain::new(call.comm));
        if !std::mem::replace(&mut chain.p2p_touched, true) && !chain.touched {
            self.touched.push(call.comm);
        }
        match p2p_hash(call, chain.facts, &self.types, &mut self.scratch) {
            None => chain.p2p.unknown += 1,
            Some(hash) if call.op == Op::Send => {
                chain.p2p.sends += 1;
                chain.p2p.sum = chain.p2p.sum.wrapping_add(hash);
            }
            Some(hash) => {
                chain.p2p.recvs += 1;
                chain.p2p.sum = chain.p2p.sum.wrapping_sub(hash);
            }
        }
    }

    /// The chain of a communicator behind each of its last calls, in order, the newest last: at most
    /// [`FRONTIER_CALLS`](crate::frontier::FRONTIER_CALLS), fewer behind a restart. Only the newest has a pair sum.
    pub(crate) fn tail(&self, comm: CommRef) -> Vec<ChainPoint> {
        let Some(chain) = self.chains.get(&comm) else { return Vec::new() };
        let ChainPoint { base, upto, .. } = chain.point;
        let from = upto.saturating_sub(RECENT as u64 - 1).max(base.wrapping_add(1));
        let at = |upto: u64| ChainPoint {
            upto,
            running: chain.recent[(upto % RECENT as u64) as usize],
            interval: None,
            pairs_base: upto,
            pairs: 0,
            ..chain.point
        };
        let mut points: Vec<ChainPoint> = (from..upto).map(at).collect();
        points.push(chain.point);
        points
    }

    /// Where the chain of a communicator stands; `None` before its first collective.
    pub(crate) fn chain_of(&self, comm: CommRef) -> Option<&ChainPoint> {
        self.chains.get(&comm).map(|chain| &chain.point)
    }

    /// The table of the block that ends here: its checkpoints, and the ends of what it used.
    pub fn seal_block(&mut self) -> Digests {
        let mut digests = Digests { checkpoints: std::mem::take(&mut self.checkpoints), ..Digests::default() };
        self.touched.sort_unstable();
        for comm in self.touched.drain(..) {
            let Some(chain) = self.chains.get_mut(&comm) else { continue };
            if std::mem::take(&mut chain.touched) {
                digests.ends.push(chain.point);
            }
            if std::mem::take(&mut chain.p2p_touched) {
                digests.p2p.push(chain.p2p);
            }
        }
        digests
    }
}

/// Where every communicator stands, for the end of a segment.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    chains: BTreeMap<CommRef, ChainPoint>,
    p2p: BTreeMap<CommRef, P2pPoint>,
}

impl Standing {
    /// Moves on by a block.
    pub(crate) fn advance(&mut self, block: &Digests) {
        self.chains.extend(block.ends.iter().map(|point| (point.comm, *point)));
        self.p2p.extend(block.p2p.iter().map(|point| (point.comm, *point)));
    }

    /// As a table.
    pub(crate) fn digests(&self) -> Digests {
        Digests {
            checkpoints: Vec::new(),
            ends: self.chains.values().copied().collect(),
            p2p: self.p2p.values().copied().collect(),
        }
    }
}

/// The next hash of a chain.
fn link(chain: u64, hash: u64) -> u64 {
    let mut bytes = [0_u8; 16];
    bytes[..8].copy_from_slice(&chain.to_le_bytes());
    bytes[8..].copy_from_slice(&hash.to_le_bytes());
    xxh3_64(&bytes)
}

/// Elements that prove what they transfer.
fn exact(call: &Call, count: u64, types: &TypeTable) -> Option<Elements> {
    Elements::of(call.dtype, count, types).filter(|elements| !matches!(elements.unit, Unit::Sized(_)))
}

/// What one member adds to the pair sum for a v-form; `None` if it cannot be known.
fn vector_sum(call: &Call, facts: Facts, seq: u64, types: &TypeTable, scratch: &mut Vec<u8>) -> Option<u64> {
    let me = facts.my_rank?;
    if facts.inter || call.flags.contains(CallFlags::VECTORS_CUT) {
        return None;
    }
    let size = facts.size.map(|size| size as usize);
    let whole = |vector: &[u64]| !vector.is_empty() && size.is_none_or(|size| size == vector.len());
    let at = |vector: &[u64], rank: u32| vector.get(rank as usize).copied();
    let in_place = call.flags.contains(CallFlags::IN_PLACE);
    let mut sum = 0_u64;
    let mut add = |from: u32, to: u32, count: u64, sends: bool| -> Option<()> {
        // Nothing sent and nothing expected are the same on both sides; sparse vectors stay cheap.
        if count == 0 {
            return Some(());
        }
        let elements = exact(call, count, types)?;
        scratch.clear();
        scratch.push(1);
        scratch.extend_from_slice(&from.to_le_bytes());
        scratch.extend_from_slice(&to.to_le_bytes());
        scratch.extend_from_slice(&seq.to_le_bytes());
        elements.write_canonical(scratch);
        let hash = xxh3_64(scratch);
        sum = if sends { sum.wrapping_add(hash) } else { sum.wrapping_sub(hash) };
        Some(())
    };
    match call.op {
        Op::AllToAllV | Op::AllToAll => {
            let sends = if in_place { &call.recvs } else { &call.sends };
            if !whole(sends) || !whole(&call.recvs) {
                return None;
            }
            for (peer, &count) in (0_u32..).zip(sends) {
                add(me, peer, count, true)?;
            }
            for (peer, &count) in (0_u32..).zip(&call.recvs) {
                add(peer, me, count, false)?;
            }
        }
        Op::AllGatherV => {
            if !whole(&call.recvs) {
                return None;
            }
            let own = if in_place { None } else { call.count };
            let own = own.or_else(|| at(&call.recvs, me))?;
            for (peer, &count) in (0_u32..).zip(&call.recvs) {
                add(me, peer, own, true)?;
                add(peer, me, count, false)?;
            }
        }
        Op::ReduceScatterV => {
            let blocks = if call.sends.is_empty() { &call.recvs } else { &call.sends };
            let own = at(blocks, me)?;
            if !whole(blocks) {
                return None;
            }
            for (peer, &count) in (0_u32..).zip(blocks) {
                add(me, peer, count, true)?;
                add(peer, me, own, false)?;
            }
        }
        Op::GatherV => {
            let root = call.root?;
            let mut own = if in_place { None } else { call.count };
            if root == me {
                if !whole(&call.recvs) {
                    return None;
                }
                own = own.or_else(|| at(&call.recvs, me));
                for (peer, &count) in (0_u32..).zip(&call.recvs) {
                    add(peer, me, count, false)?;
                }
            }
            add(me, root, own?, true)?;
        }
        Op::ScatterV => {
            let root = call.root?;
            let mut own = if in_place { None } else { call.count };
            if root == me {
                if !whole(&call.sends) {
                    return None;
                }
                own = own.or_else(|| at(&call.sends, me));
                for (peer, &count) in (0_u32..).zip(&call.sends) {
                    add(me, peer, count, true)?;
                }
            }
            add(root, me, own?, false)?;
        }
        // One type per pair, or edges of a topology that the stream does not describe.
        _ => return None,
    }
    Some(sum)
}

/// The hash of a send or receive; `None` if a part is not known.
fn p2p_hash(call: &Call, facts: Facts, types: &TypeTable, scratch: &mut Vec<u8>) -> Option<u64> {
    let flags = [CallFlags::UNREADABLE, CallFlags::ANY_SOURCE, CallFlags::ANY_TAG];
    if facts.inter || flags.iter().any(|&flag| call.flags.contains(flag)) {
        return None;
    }
    let (me, peer, seq) = (facts.my_rank?, call.peer?, call.seq?);
    let elements = exact(call, call.count?, types)?;
    let (from, to) = if call.op == Op::Send { (me, peer) } else { (peer, me) };
    scratch.clear();
    scratch.push(2);
    scratch.extend_from_slice(&from.to_le_bytes());
    scratch.extend_from_slice(&to.to_le_bytes());
    scratch.push(u8::from(call.tag.is_some()));
    scratch.extend_from_slice(&call.tag.unwrap_or(0).to_le_bytes());
    scratch.extend_from_slice(&seq.to_le_bytes());
    elements.write_canonical(scratch);
    Some(xxh3_64(scratch))
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
