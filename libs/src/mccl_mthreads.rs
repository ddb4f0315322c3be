//! Moore Threads' MCCL: NCCL under another prefix, which MetaX's library happens to share.
//!
//! Known from programs that call it; no release of the library itself was looked at.

use rankdiff_trace::Level;

use crate::nccl_family::{self, FamilyDecoder, core_functions, family, since_2_14};
use crate::spec::{Function, Library, concat, no_fields, nothing_to_inspect, total};

const OWN: &[Function] = family! { "mccl":
    "AllToAll" AllToAll ALL_GATHER COMPOSED;
};

const PARTS: &[&[Function]] = &[core_functions!("mccl"), since_2_14!("mccl"), OWN];
static FUNCTIONS: [Function; total(PARTS)] = concat(PARTS);

/// Moore Threads' MCCL, told from the other library of that name by the query for its device.
pub(crate) static MCCL_MTHREADS: Library = Library {
    name: "mccl-mthreads",
    file_patterns: &["libmccl.so*"],
    marker_symbols: &["mcclCommMuDevice"],
    alias_prefixes: &["p"],
    level: Level::Library,
    semantics: nccl_family::SEMANTICS,
    functions: &FUNCTIONS,
    abi: nccl_family::abi,
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |_| FamilyDecoder::boxed("mccl-mthreads"),
};
