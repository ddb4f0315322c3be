//! Hashes of signatures, remembered: a job makes the same few calls over and over, and to build a signature and hash it
//! takes longer than to look the hash up.
//!
//! What is remembered is found by everything that the signature depends on, except the derived types of the stream:
//! whoever redefines one calls [`SignatureHashes::forget`]. Calls with split vectors are never remembered. Not here:
//! what a signature is (`signature.rs`) and what its hash is good for (`digest.rs`).

use xxhash_rust::xxh3::xxh3_64;

use crate::call::{Call, CallFlags};
use crate::comm::Semantics;
use crate::datatype::{DType, RedOp};
use crate::op::Op;
use crate::signature::Signature;
use crate::typesig::TypeTable;

/// Signatures that are remembered; a power of two. A step of a job has some dozens.
const SLOTS: usize = 256;

/// What the signature of a call without vectors depends on, the definitions of types apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    count: Option<u64>,
    dtype: DType,
    redop: RedOp,
    root: Option<u32>,
    flags: CallFlags,
    semantics: Semantics,
    op: Op,
    inter: bool,
}

impl Key {
    fn of(call: &Call, semantics: Semantics, inter: bool) -> Key {
        let Call { count, dtype, redop, root, flags, op, .. } = *call;
        Key { count, dtype, redop, root, flags, semantics, op, inter }
    }

    /// Where it is remembered. What tells the calls of one step apart decides; all else only has to be equal.
    fn slot(&self) -> usize {
        let dtype = match self.dtype {
            DType::None => 0,
            DType::Basic(basic) => u64::from(basic.code()),
            DType::Derived(id) => u64::from(id),
            DType::Raw(raw) => raw,
        };
        let told = self.count.unwrap_or(0)
            ^ u64::from(self.op.code()) << 48
            ^ dtype.rotate_left(40)
            ^ u64::from(self.root.unwrap_or(0)) << 32;
        // Multiplying by 2^64 over the golden ratio spreads every bit upwards.
        (told.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize
    }
}

/// The hashes of the signatures that a stream used last.
#[derive(Debug, Default)]
pub(crate) struct SignatureHashes {
    /// Empty, or [`SLOTS`] places.
    slots: Vec<Option<(Key, Option<u64>)>>,
    scratch: Vec<u8>,
}

impl SignatureHashes {
    /// The hash of the call's signature on a communicator with these properties; `None` if it proves nothing
    /// ([`Signature::complete`]).
    #[inline]
    pub(crate) fn of(&mut self, call: &Call, semantics: Semantics, inter: bool, types: &TypeTable) -> Option<u64> {
        if !call.sends.is_empty() || !call.recvs.is_empty() {
            return self.compute(call, semantics, inter, types);
        }
        let key = Key::of(call, semantics, inter);
        let slot = key.slot();
        match self.slots.get(slot) {
            Some(Some((known, hash))) if *known == key => *hash,
            _ => self.learn(slot, key, call, types),
        }
    }

    /// Forgets everything: a type has another meaning from now on.
    pub(crate) fn forget(&mut self) {
        self.slots.clear();
    }

    #[cold]
    fn learn(&mut self, slot: usize, key: Key, call: &Call, types: &TypeTable) -> Option<u64> {
        let hash = self.compute(call, key.semantics, key.inter, types);
        self.slots.resize(SLOTS, None);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some((key, hash));
        }
        hash
    }

    fn compute(&mut self, call: &Call, semantics: Semantics, inter: bool, types: &TypeTable) -> Option<u64> {
        let signature = Signature::with(call, semantics, inter, types);
        if !signature.complete {
            return None;
        }
        self.scratch.clear();
        signature.write_canonical(&mut self.scratch);
        Some(xxh3_64(&self.scratch))
    }
}
