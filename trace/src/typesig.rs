//! Type signatures in normal form: what 'count x type' transfers, whatever the type was called or how it was built.
//!
//! The flattened sequence of basic types of a call is a word. Two calls transfer the same if their words are equal, and
//! a word is written in exactly one way as its shortest period repeated: `4 x (f32,f32)` and `8 x f32` are both f32
//! eight times. This works on runs, so a type of a million elements costs no more than one of two.
//!
//! Not here: layout (displacements, padding). Members may scatter the same elements differently in memory.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::datatype::{Basic, TypeDef};

/// The shortest period of a type signature.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Nothing is transferred (count 0, or a type without elements): the same for every type.
    Empty,
    /// One basic element.
    Basic(Basic),
    /// A sequence that is no repetition of a shorter one, as runs; adjacent runs differ.
    Runs(Arc<[(Basic, u64)]>),
    /// A handle that could not be turned into a type; equal values mean equal types, unequal ones mean nothing.
    Raw(u64),
    /// A derived type of which only the size in bytes is known.
    Sized(u64),
}

impl Unit {
    /// Bytes of one unit; `None` if not known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Unit::Empty => Some(0),
            Unit::Basic(basic) => Some(basic.size()),
            Unit::Runs(runs) => {
                runs.iter().try_fold(0_u64, |sum, &(basic, times)| sum.checked_add(basic.size().checked_mul(times)?))
            }
            Unit::Raw(_) => None,
            Unit::Sized(bytes) => Some(*bytes),
        }
    }

    /// Basic elements in one unit; `None` if not known.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Unit::Empty => Some(0),
            Unit::Basic(_) => Some(1),
            Unit::Runs(runs) => runs.iter().try_fold(0_u64, |sum, &(_, times)| sum.checked_add(times)),
            Unit::Raw(_) | Unit::Sized(_) => None,
        }
    }

    /// Whether the flattened sequence is known, so that unequal units are unequal types.
    pub fn is_exact(&self) -> bool {
        matches!(self, Unit::Empty | Unit::Basic(_) | Unit::Runs(_))
    }
}

/// One element of a derived type in normal form: `times` units.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NormalType {
    /// The shortest period.
    pub unit: Unit,
    /// How often it is repeated in one element of the type.
    pub times: u64,
}

impl NormalType {
    /// The normal form of a definition; `None` if neither its runs nor its size are known.
    pub fn of(def: &TypeDef) -> Option<NormalType> {
        if !def.runs.is_empty() {
            return of_runs(&def.runs);
        }
        match def.size? {
            0 => Some(NormalType { unit: Unit::Empty, times: 0 }),
            bytes => Some(NormalType { unit: Unit::Sized(bytes), times: 1 }),
        }
    }
}

/// The derived types of a stream in normal form.
#[derive(Debug, Clone, Default)]
pub struct TypeTable(FxHashMap<u32, Option<NormalType>>);

impl TypeTable {
    /// A table of these definitions.
    pub fn new(types: &[TypeDef]) -> TypeTable {
        let mut table = TypeTable::default();
        for def in types {
            table.insert(def);
        }
        table
    }

    /// Adds or replaces a definition.
    pub fn insert(&mut self, def: &TypeDef) {
        self.0.insert(def.id, NormalType::of(def));
    }

    /// The normal form of a type; `None` if it is not defined or nothing is known of it.
    pub fn get(&self, id: u32) -> Option<&NormalType> {
        self.0.get(&id)?.as_ref()
    }

    /// Whether the type is there with another signature.
    pub(crate) fn differs(&self, def: &TypeDef) -> bool {
        self.0.get(&def.id).is_some_and(|known| *known != NormalType::of(def))
    }
}

/// The normal form of a sequence given as runs; `None` if a run is longer than can be counted.
fn of_runs(runs: &[(Basic, u64)]) -> Option<NormalType> {
    let mut merged: Vec<(Basic, u64)> = Vec::with_capacity(runs.len());
    for &(basic, times) in runs.iter().filter(|run| run.1 > 0) {
        match merged.last_mut() {
            Some(last) if last.0 == basic => last.1 = last.1.checked_add(times)?,
            _ => merged.push((basic, times)),
        }
    }
    let (Some(&first), Some(&last)) = (merged.first(), merged.last()) else {
        return Some(NormalType { unit: Unit::Empty, times: 0 });
    };
    if merged.len() == 1 {
        return Some(NormalType { unit: Unit::Basic(first.0), times: first.1 });
    }
    // Where the ends are of one basic type, repetitions merge at their borders: (a2 b1)(a2 b1) has no such border,
    // (a1 b1 a1)(a1 b1 a1) reads a1 b1 a2 b1 a1. Seen as a ring, with the last run moved to the front, the borders are
    // ordinary runs again, and a word has the same number of periods as any of its rotations.
    let closed = first.0 == last.0;
    if closed {
        merged.pop();
        if let Some(front) = merged.first_mut() {
            front.1 = first.1.checked_add(last.1)?;
        }
    }
    let period = shortest_period(&merged);
    let times = (merged.len() / period) as u64;
    let mut unit: Vec<(Basic, u64)> = merged.into_iter().take(period).collect();
    if closed {
        if let Some(front) = unit.first_mut() {
            front.1 = first.1;
        }
        unit.push(last);
    }
    Some(NormalType { unit: Unit::Runs(unit.into()), times })
}

/// Length of the shortest prefix of which the whole is a repetition (at least 1; the whole if there is none).
fn shortest_period(word: &[(Basic, u64)]) -> usize {
    let mut borders = vec![0_usize; word.len()];
    let mut border = 0;
    for index in 1..word.len() {
        while border > 0 && word[index] != word[border] {
            border = borders[border - 1];
        }
        if word[index] == word[border] {
            border += 1;
        }
        borders[index] = border;
    }
    let period = word.len() - borders.last().copied().unwrap_or(0);
    if word.len().is_multiple_of(period.max(1)) { period.max(1) } else { word.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{NormalType, Unit, of_runs};
    use crate::datatype::{Basic, TypeDef};

    /// The elements that `count` elements of the type stand for.
    fn expand(normal: &NormalType, count: u64) -> Vec<Basic> {
        let one: Vec<Basic> = match &normal.unit {
            Unit::Empty => vec![],
            Unit::Basic(basic) => vec![*basic],
            Unit::Runs(runs) => runs.iter().flat_map(|&(basic, times)| vec![basic; times as usize]).collect(),
            Unit::Raw(_) | Unit::Sized(_) => panic!("not exact"),
        };
        one.repeat((normal.times * count) as usize)
    }

    fn flatten(runs: &[(Basic, u64)], count: u64) -> Vec<Basic> {
        let one: Vec<Basic> = runs.iter().flat_map(|&(basic, times)| vec![basic; times as usize]).collect();
        one.repeat(count as usize)
    }

    fn runs() -> impl Strategy<Value = Vec<(Basic, u64)>> {
        let basic = prop_oneof![Just(Basic::F32), Just(Basic::I32)];
        proptest::collection::vec((basic, 0_u64..3), 1..7)
    }

    proptest! {
        #[test]
        fn normal_form_keeps_the_elements(runs in runs(), count in 0_u64..4) {
            prop_assert_eq!(expand(&of_runs(&runs).expect("small"), count), flatten(&runs, count));
        }

        /// Equal normal forms exactly where the flattened sequences are equal.
        #[test]
        fn normal_form_is_canonical(a in runs(), b in runs(), m in 1_u64..4, n in 1_u64..4) {
            let (x, y) = (of_runs(&a).expect("small"), of_runs(&b).expect("small"));
            let same_form = x.unit == y.unit && x.times * m == y.times * n;
            prop_assert_eq!(same_form, flatten(&a, m) == flatten(&b, n));
        }

        #[test]
        fn repetition_only_changes_the_times(a in runs(), k in 1_usize..5) {
            let (once, more) = (of_runs(&a).expect("small"), of_runs(&a.repeat(k)).expect("small"));
            prop_assert_eq!(&once.unit, &more.unit);
            prop_assert_eq!(once.times * k as u64, more.times);
        }
    }

    #[test]
    fn sizes_and_the_unknown() {
        let def = |size, runs: Vec<(Basic, u64)>| TypeDef { id: 1, name: String::new(), size, runs };
        assert_eq!(NormalType::of(&def(None, vec![])), None);
        assert_eq!(NormalType::of(&def(Some(0), vec![])).map(|normal| normal.unit), Some(Unit::Empty));
        assert_eq!(NormalType::of(&def(Some(12), vec![])).map(|normal| normal.unit), Some(Unit::Sized(12)));
        let huge = NormalType::of(&def(None, vec![(Basic::F32, u64::MAX), (Basic::I32, u64::MAX)])).expect("runs");
        assert_eq!(huge.unit.size(), None, "a size that overflows is not known");
    }
}
