//! NCCL up to 2.32, and drop-in replacements that export its names (those of Iluvatar, Biren, MSCCL++).

use rankdiff_trace::Level;

use crate::nccl_family::{self, FamilyDecoder, collective_configs, core_functions, later_collectives};
use crate::nccl_family::{later_communicators, since_2_14};
use crate::spec::{Function, Library, concat, no_fields, nothing_to_inspect, total};

const PARTS: &[&[Function]] = &[
    core_functions!("nccl"),
    since_2_14!("nccl"),
    later_communicators!("nccl"),
    later_collectives!("nccl", ENQUEUES),
    collective_configs!("nccl"),
];
static FUNCTIONS: [Function; total(PARTS)] = concat(PARTS);

/// NCCL. RCCL exports the same names and more, so it comes before this in the registry.
pub(crate) static NCCL: Library = Library {
    name: "nccl",
    file_patterns: &["libnccl.so*"],
    marker_symbols: &["ncclAllReduce"],
    alias_prefixes: &["p"],
    level: Level::Library,
    semantics: nccl_family::SEMANTICS,
    functions: &FUNCTIONS,
    abi: nccl_family::abi,
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |_| FamilyDecoder::boxed("nccl"),
};
