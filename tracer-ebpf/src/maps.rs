//! The maps. Created per load, never pinned: when the tracer ends, they are gone.
//!
//! Hash maps are preallocated, as kernels before 6.1 demand of tracing programs; the loader may choose other sizes.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use rankdiff_common::map::{
    CommCounters, CommKey, Config, DEFAULT_RING_BYTES, MAX_COMMS, MAX_PEERS, MAX_THREADS, MAX_WATCHED,
    PROCESS_RING_BYTES, PeerKey, ThreadState, lost,
};
use rankdiff_common::probe::{Chains, MAX_PROBES, ProbeDesc};
use rankdiff_common::python::{MAX_CODES, MAX_PYTHON, MAX_STACKS, PythonConfig};

#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);
#[map]
pub(crate) static PROCESSES: RingBuf = RingBuf::with_byte_size(PROCESS_RING_BYTES, 0);
#[map]
pub(crate) static PROBES: Array<ProbeDesc> = Array::with_max_entries(MAX_PROBES, 0);
#[map]
pub(crate) static CHAINS: Array<Chains> = Array::with_max_entries(MAX_PROBES, 0);
#[map]
pub(crate) static WATCHED: HashMap<u32, u32> = HashMap::with_max_entries(MAX_WATCHED, 0);
#[map]
pub(crate) static COMMS: HashMap<CommKey, CommCounters> = HashMap::with_max_entries(MAX_COMMS, 0);
#[map]
pub(crate) static PEERS: HashMap<PeerKey, u64> = HashMap::with_max_entries(MAX_PEERS, 0);
#[map]
pub(crate) static THREADS: HashMap<u64, ThreadState> = HashMap::with_max_entries(MAX_THREADS, 0);
#[map]
pub(crate) static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(lost::COUNT, 0);
#[map]
pub(crate) static CONFIG: Array<Config> = Array::with_max_entries(1, 0);
#[map]
pub(crate) static PYTHON: HashMap<u32, PythonConfig> = HashMap::with_max_entries(MAX_PYTHON, 0);
#[map]
pub(crate) static STACKS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(MAX_STACKS, 0);
#[map]
pub(crate) static CODES: LruHashMap<u64, u64> = LruHashMap::with_max_entries(MAX_CODES, 0);

/// Flag of a map update: only if the key is not there yet.
pub(crate) const NO_EXIST: u64 = 1;

/// The settings.
#[inline(always)]
pub(crate) fn config() -> Option<&'static Config> {
    CONFIG.get(0)
}
