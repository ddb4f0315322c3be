//! Damage of the kinds that disks, networks and people do, at random places.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::truth::Stream;

/// Several segments of several blocks.
static STREAM: LazyLock<std::sync::Mutex<Stream>> =
    LazyLock::new(|| std::sync::Mutex::new(Stream::short(32, 2500, true)));

/// What happens to the bytes of a segment.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    /// A run of equal bytes, as a hole in a sparse file or a page that was never written.
    Fill(Index, usize, u8),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    /// Bytes from another place of the file.
    Move(Index, Index, usize),
    Truncate(Index),
    Append(Vec<u8>),
    /// The end of the file once more.
    Repeat(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let some = || vec(any::<u8>(), 1..60);
    prop_oneof![
        6 => (any::<Index>(), 0_u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Set(at, value)),
        2 => (any::<Index>(), 1_usize..4096, prop_oneof![Just(0), any::<u8>()])
            .prop_map(|(at, length, value)| Damage::Fill(at, length, value)),
        2 => (any::<Index>(), 1_usize..500).prop_map(|(at, length)| Damage::Remove(at, length)),
        2 => (any::<Index>(), some()).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => (any::<Index>(), any::<Index>(), 1_usize..500).prop_map(|(from, to, length)| Damage::Move(from, to, length)),
        1 => any::<Index>().prop_map(Damage::Truncate),
        1 => some().prop_map(Damage::Append),
        1 => any::<Index>().prop_map(Damage::Repeat),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match damage {
        Damage::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
        Damage::Set(at, value) => bytes[at.index(length)] = *value,
        Damage::Fill(at, count, value) => {
            let at = at.index(length);
            bytes[at..(at + count).min(length)].fill(*value);
        }
        Damage::Remove(at, count) => {
            let at = at.index(length);
            bytes.drain(at..(at + count).min(length));
        }
        Damage::Insert(at, new) => {
            let at = at.index(length);
            bytes.splice(at..at, new.iter().copied());
        }
        Damage::Move(from, to, count) => {
            let from = from.index(length);
            let moved = bytes[from..(from + count).min(length)].to_vec();
            let to = to.index(length);
            let end = (to + moved.len()).min(length);
            bytes.splice(to..end, moved);
        }
        Damage::Truncate(at) => bytes.truncate(at.index(length)),
        Damage::Append(new) => bytes.extend_from_slice(new),
        Damage::Repeat(at) => bytes.extend_from_within(at.index(length)..),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_segment(place: Index, damages in vec(damage(), 1..4)) {
        let stream = STREAM.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = place.index(stream.segments.len());
        let original = &stream.segments[place];
        let mut bytes = original.clone();
        for damage in &damages {
            apply(&mut bytes, damage);
        }
        let outcome = stream.with(place, &bytes);
        let read = stream.read_of(&outcome);
        for (other, (found, written)) in read.iter().zip(stream.written()).enumerate() {
            prop_assert!(other == place || *found == written, "damage in segment {}: read {:?}", place, read);
        }
        // Bytes behind the end block belong to nothing, and a cut between two blocks looks like a recorder that
        // was killed there; whatever else differs is named.
        if !bytes.starts_with(original) && !original.starts_with(&bytes) {
            prop_assert!(!outcome.problems.is_empty(), "damage in segment {} went unseen: {:?}", place, damages);
        }
        prop_assert!(outcome.problems.len() <= 2, "{:?}", outcome.problems);
    }

    /// All segments at once.
    #[test]
    fn every_segment_damaged(damages in vec((any::<Index>(), damage()), 1..9)) {
        let stream = STREAM.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut segments = stream.segments.clone();
        for (place, damage) in &damages {
            let place = place.index(segments.len());
            apply(&mut segments[place], damage);
        }
        let mut grown = 0;
        for (path, (bytes, original)) in stream.paths().iter().zip(segments.iter().zip(&stream.segments)) {
            std::fs::write(path, bytes).expect("write");
            grown += bytes.len().saturating_sub(original.len());
        }
        stream.read(grown, stream.paths());
        for (path, original) in stream.paths().iter().zip(&stream.segments) {
            std::fs::write(path, original).expect("write");
        }
    }
}
