//! Small streams for the tests of this crate.

use std::sync::OnceLock;

use rankdiff_trace::Call;

use crate::index::{Base, Entry, Progress, Track};

fn call() -> &'static Call {
    static CALL: OnceLock<Call> = OnceLock::new();
    CALL.get_or_init(Call::default)
}

/// A track with one call per letter; equal letters are equal signatures.
pub(crate) fn track(signatures: &str) -> Track<'static> {
    with_sites(signatures, &"\0".repeat(signatures.len()))
}

/// A track of calls that have returned.
pub(crate) fn returned(signatures: &str) -> Track<'static> {
    static CALL: OnceLock<Call> = OnceLock::new();
    let mut track = track(signatures);
    for entry in &mut track.entries {
        entry.call = CALL.get_or_init(|| Call { exit: Some(1), ..Call::default() });
    }
    track
}

/// A track with one call per letter and a call site per letter.
pub(crate) fn with_sites(signatures: &str, sites: &str) -> Track<'static> {
    let entries = signatures
        .bytes()
        .zip(sites.bytes())
        .enumerate()
        .map(|(pos, (sig, site))| Entry {
            pos: pos as u64,
            call: call(),
            sig: u32::from(sig),
            site: u32::from(site),
            label: 0,
            step: None,
            progress: Progress::Done,
        })
        .collect();
    Track {
        stream: 0,
        rank: 0,
        entries,
        base: Base::Known,
        blind_after: None,
        blind_before: false,
        made: Vec::new(),
        class: None,
    }
}
