//! c10d, the process groups of torch.distributed, over Gloo: what a PyTorch job on CPUs calls.
//!
//! The methods of `c10d::ProcessGroupGloo` are C++ and take everything by reference: which tensor, of how many elements
//! and of which type, with which reduction and root, lies behind pointers, in structs whose layout differs between
//! releases. Data flow: [`layout`] reads the offsets off the library's own code, [`fields`] turns them into the ways that
//! the recorder follows, [`decoder`] gives the values their meaning; [`functions`] lists the methods under the names of all
//! releases.
//!
//! Deliberately not here: Gloo's own functions, which run on worker threads in another order (what they carry is what these
//! methods say, so recording them too would count everything twice); the wrapper of `TORCH_DISTRIBUTED_DEBUG=DETAIL`, which
//! calls these methods, on the job's group and on one of its own; c10d over NCCL, whose calls are recorded at NCCL's level.

mod decoder;
mod fields;
mod functions;
mod layout;

use rankdiff_trace::{Level, Semantics};

use crate::spec::{Abi, Library, Offsets};

/// Name of the library in traces, and name space of its communicators' identities.
const NAME: &str = "c10d";

/// Process groups over Gloo. Their calls enqueue and return at once; a send is not sent before its receive is posted.
pub(crate) static GLOO: Library = Library {
    name: NAME,
    file_patterns: &["libtorch_cpu.so*"],
    marker_symbols: &[functions::MARKER],
    alias_prefixes: &[],
    level: Level::Framework,
    semantics: Semantics::P2P_SIZE_EXACT,
    functions: functions::FUNCTIONS,
    abi: |_| Abi { name: "unknown", handle_bytes: 8, offsets: Offsets::NONE },
    inspect: layout::inspect,
    fields: fields::fields,
    decoder: decoder::C10dDecoder::boxed,
};

#[cfg(test)]
mod tests;
