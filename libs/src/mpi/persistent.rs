//! What persistent requests stand for, until they are freed.

use rustc_hash::FxHashMap;

use crate::decode::Started;

/// Most persistent requests of one process at one time.
const MAX_REQUESTS: usize = 1 << 16;

/// Persistent requests of one process by handle.
#[derive(Debug, Default)]
pub(super) struct Requests {
    operations: FxHashMap<u64, Started>,
}

impl Requests {
    /// The request stands for this operation from now on.
    pub(super) fn made(&mut self, request: u64, operation: Started) {
        if self.operations.len() < MAX_REQUESTS || self.operations.contains_key(&request) {
            self.operations.insert(request, operation);
        }
    }

    /// The request is gone: its handle may come to mean another one, also of a kind that is not recorded.
    pub(super) fn freed(&mut self, request: u64) {
        self.operations.remove(&request);
    }

    /// What starting these requests issues, in order.
    pub(super) fn started(&self, requests: &[u64]) -> Vec<Started> {
        requests.iter().filter_map(|request| self.operations.get(request)).cloned().collect()
    }
}
