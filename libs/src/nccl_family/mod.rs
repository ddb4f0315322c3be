//! NCCL's API, which several vendors copied under NCCL's or their own prefix: shared tables and one decoder.
//!
//! Calls only enqueue work on a device stream, so returns are recorded where they carry something: creations (the new
//! handle), batch ends, releases. Deliberately not here: one-sided calls (`PutSignal`, `Signal`, `WaitSignal` have no
//! collective or paired meaning that a comparison could use), memory and window registration, and work that device code
//! issues itself, which passes no host function.

mod decoder;
mod shapes;
mod table;

use rankdiff_trace::Semantics;

pub(crate) use decoder::FamilyDecoder;
pub(crate) use shapes::{args, traits};
pub(crate) use table::{
    collective_configs, core_functions, family, later_collectives, later_communicators, since_2_14,
};

use crate::spec::{Abi, Defines, Offsets};

/// What the family's calls mean.
///
/// Calls are asynchronous. Inside a batch, sends and receives to different peers have no order, while collectives keep
/// one order over all communicators. Small sends may complete before their receive is posted, but a receive waits for as
/// much as it asks for.
pub(crate) const SEMANTICS: Semantics = Semantics(
    Semantics::GROUP_P2P_UNORDERED.0
        | Semantics::GROUP_ORDER_ACROSS_COMMS.0
        | Semantics::SENDS_MAY_BUFFER.0
        | Semantics::BARRIER_IS_ALL_REDUCE.0
        | Semantics::P2P_SIZE_EXACT.0,
);

/// The family has one ABI: handles are addresses.
pub(crate) fn abi(_defines: Defines<'_>) -> Abi {
    Abi { name: "nccl", handle_bytes: 8, offsets: Offsets::NONE }
}
