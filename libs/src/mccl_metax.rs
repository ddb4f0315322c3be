//! MetaX's MCCL: NCCL 2.16 under another prefix, vector forms, and `Ext` twins with the same arguments.
//!
//! Known from its header and from programs that call it; no release of the library itself was looked at.

use rankdiff_trace::Level;

use crate::nccl_family::{self, FamilyDecoder, core_functions, family, since_2_14};
use crate::spec::{Function, Library, concat, no_fields, nothing_to_inspect, total};

const OWN: &[Function] = family! { "mccl":
    "Gather" Gather ROOTED COMPOSED;
    "Scatter" Scatter ROOTED COMPOSED;
    "AllToAll" AllToAll ALL_GATHER COMPOSED;
    "AllToAllv" AllToAllV ALL_TO_ALL_V COMPOSED;
    "AllToAlld" AllToAllV ALL_TO_ALL_D COMPOSED;
    "AllReduceExt" AllReduce ALL_REDUCE ENQUEUES;
    "ReduceScatterExt" ReduceScatter ALL_REDUCE ENQUEUES;
    "AllGatherExt" AllGather ALL_GATHER ENQUEUES;
    "SendExt" Send SEND ENQUEUES;
    "RecvExt" Recv RECV ENQUEUES;
    "AllToAllExt" AllToAll ALL_GATHER COMPOSED;
    "AllToAllvExt" AllToAllV ALL_TO_ALL_V COMPOSED;
    "AllToAlldExt" AllToAllV ALL_TO_ALL_D COMPOSED;
    "CommInitRankMulti" CommInit INIT_RANK CREATES;
};

const PARTS: &[&[Function]] = &[core_functions!("mccl"), since_2_14!("mccl"), OWN];
static FUNCTIONS: [Function; total(PARTS)] = concat(PARTS);

/// MetaX's MCCL, told from the other library of that name by the query for its device.
pub(crate) static MCCL_METAX: Library = Library {
    name: "mccl-metax",
    file_patterns: &["libmccl.so*"],
    marker_symbols: &["mcclCommMcDevice"],
    alias_prefixes: &["p"],
    level: Level::Library,
    semantics: nccl_family::SEMANTICS,
    functions: &FUNCTIONS,
    abi: nccl_family::abi,
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |_| FamilyDecoder::boxed("mccl-metax"),
};
