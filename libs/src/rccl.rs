//! AMD's RCCL (and Hygon's, which is a copy): NCCL's names and ABI, and vector forms of its own.
//!
//! Its all-to-all, gather and scatter are made of public sends and receives in a public batch, so their returns are
//! recorded to know those as parts. Deliberately not here: `mscclRunAlgo`, whose one call runs an algorithm loaded from a
//! file: what it transfers does not stand in its arguments.

use rankdiff_trace::Level;

use crate::nccl_family::{self, FamilyDecoder, collective_configs, core_functions, family, later_collectives};
use crate::nccl_family::{later_communicators, since_2_14};
use crate::spec::{Function, Library, concat, no_fields, nothing_to_inspect, total};

/// Both spellings: NCCL's, which newer releases follow, and the older one of its own.
const OWN: &[Function] = family! { "nccl":
    "AllToAll" AllToAll ALL_GATHER COMPOSED;
    "AllToAllv" AllToAllV ALL_TO_ALL_V COMPOSED;
    "AlltoAllv" AllToAllV ALL_TO_ALL_V COMPOSED;
    "AllReduceWithBias" AllReduce ALL_REDUCE ENQUEUES;
};

const PARTS: &[&[Function]] = &[
    core_functions!("nccl"),
    since_2_14!("nccl"),
    later_communicators!("nccl"),
    later_collectives!("nccl", COMPOSED),
    collective_configs!("nccl"),
    OWN,
];
static FUNCTIONS: [Function; total(PARTS)] = concat(PARTS);

/// RCCL, told from NCCL by the functions that only it has.
pub(crate) static RCCL: Library = Library {
    name: "rccl",
    file_patterns: &["librccl.so*"],
    marker_symbols: &["ncclAllToAllv", "ncclAlltoAllv", "ncclAllReduceWithBias", "mscclRunAlgo"],
    alias_prefixes: &["p"],
    level: Level::Library,
    semantics: nccl_family::SEMANTICS,
    functions: &FUNCTIONS,
    abi: nccl_family::abi,
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |_| FamilyDecoder::boxed("rccl"),
};
