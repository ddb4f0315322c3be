//! Derived types, followed from their constructors: what a handle transfers, as a signature that other processes can
//! compare.
//!
//! A type is known by its content: two constructions that transfer the same share one definition, so a program that makes
//! its types anew in every step adds nothing. A type that transfers exactly one element of a basic type (a duplicate, a
//! resized one) is that basic type. Deliberately not followed: where the data lies (displacements, strides), which no
//! signature depends on; and distributed arrays, whose size depends on the rank.

use rankdiff_trace::{Basic, DType, TypeDef};
use rustc_hash::FxHashMap;

use super::handles::{Handles, TypeHandle};
use crate::decode::Context;
use crate::spec::{Function, Role};
use crate::values::Values;

/// Most runs of one signature; a type with more keeps its size only.
const MAX_RUNS: usize = 64;
/// Most definitions of one process; later ones are unknown types.
const MAX_DEFINITIONS: usize = 1 << 16;
/// Most live handles of one process.
const MAX_HANDLES: usize = 1 << 20;

/// What a type transfers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shape {
    size: Option<u64>,
    /// Empty if not known, or if nothing is transferred.
    runs: Vec<(Basic, u64)>,
}

impl Shape {
    const UNKNOWN: Shape = Shape { size: None, runs: Vec::new() };
    const NOTHING: Shape = Shape { size: Some(0), runs: Vec::new() };

    fn of(basic: Basic, repeat: u64) -> Shape {
        Shape::NOTHING.followed_by(&Shape { size: basic.size().checked_mul(repeat), runs: vec![(basic, repeat)] })
    }

    /// Whether the runs say all that is transferred.
    fn is_known(&self) -> bool {
        !self.runs.is_empty() || self.size == Some(0)
    }

    fn repeated(&self, times: u64) -> Shape {
        if times == 0 {
            return Shape::NOTHING;
        }
        let size = self.size.and_then(|size| size.checked_mul(times));
        let runs = match (self.runs.as_slice(), usize::try_from(times)) {
            (&[(basic, repeat)], _) => repeat.checked_mul(times).map_or_else(Vec::new, |repeat| vec![(basic, repeat)]),
            (runs, Ok(times)) if runs.len().checked_mul(times).is_some_and(|all| all <= 2 * MAX_RUNS) => {
                merged(runs.iter().copied().cycle().take(runs.len() * times))
            }
            _ => Vec::new(),
        };
        Shape { size, runs }
    }

    fn followed_by(&self, next: &Shape) -> Shape {
        let size = self.size.zip(next.size).and_then(|(one, other)| one.checked_add(other));
        let known = self.is_known() && next.is_known();
        let runs = if known { merged(self.runs.iter().chain(&next.runs).copied()) } else { Vec::new() };
        Shape { size, runs }
    }
}

/// Adjacent runs of one basic type made one; empty if there are too many.
fn merged(runs: impl Iterator<Item = (Basic, u64)>) -> Vec<(Basic, u64)> {
    let mut merged: Vec<(Basic, u64)> = Vec::new();
    for (basic, repeat) in runs.filter(|&(_, repeat)| repeat > 0) {
        if let Some((last, count)) = merged.last_mut()
            && *last == basic
        {
            let Some(sum) = count.checked_add(repeat) else { return Vec::new() };
            *count = sum;
        } else if merged.len() == MAX_RUNS {
            return Vec::new();
        } else {
            merged.push((basic, repeat));
        }
    }
    merged
}

/// A type as a call names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    /// The type.
    pub(super) dtype: DType,
    /// Whether what it transfers is known.
    pub(super) known: bool,
}

/// The types of one process.
#[derive(Debug, Default)]
pub(super) struct Types {
    made: FxHashMap<u64, (&'static str, Shape)>,
    ids: FxHashMap<(&'static str, Shape), u32>,
    shapes: Vec<Shape>,
    fresh: Vec<TypeDef>,
}

impl Types {
    /// The type that a call's handle names.
    pub(super) fn named(&mut self, handle: u64, handles: &mut Handles, context: &dyn Context) -> Named {
        let (name, shape) = match self.made.get(&handle) {
            Some(made) => made.clone(),
            None => match handles.datatype(handle, context) {
                TypeHandle::Null => return Named { dtype: DType::None, known: true },
                TypeHandle::Unlisted(value) => return Named { dtype: DType::Raw(value), known: true },
                TypeHandle::Predefined(name, basic, repeat) => (name, Shape::of(basic, repeat)),
                TypeHandle::Made => ("unknown", Shape::UNKNOWN),
            },
        };
        let known = shape.size.is_some();
        let dtype = match shape.runs.as_slice() {
            &[(basic, 1)] => DType::Basic(basic),
            _ => DType::Derived(self.define(name, shape)),
        };
        Named { dtype, known }
    }

    /// The basic type that the type repeats, and how often; `None` if it is of several kinds or not known.
    pub(super) fn unit(&self, dtype: DType) -> Option<(Basic, u64)> {
        match dtype {
            DType::Basic(basic) => Some((basic, 1)),
            DType::Derived(id) => match self.shape(id)?.runs.as_slice() {
                &[(basic, repeat)] => Some((basic, repeat)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether so many of one type and so many of another transfer the same; `None` if that is not known.
    pub(super) fn same(&self, one: (u64, DType), other: (u64, DType)) -> Option<bool> {
        if one == other || (one.0 == 0 && other.0 == 0) {
            return Some(true);
        }
        let (one, other) = (self.repeated(one)?, self.repeated(other)?);
        if one.size != other.size {
            return one.size.zip(other.size).map(|_| false);
        }
        let comparable = one.is_known() && other.is_known() && one.size.is_some();
        comparable.then(|| one.runs == other.runs)
    }

    fn repeated(&self, (count, dtype): (u64, DType)) -> Option<Shape> {
        match dtype {
            DType::Basic(basic) => Some(Shape::of(basic, count)),
            DType::Derived(id) => Some(self.shape(id)?.repeated(count)),
            _ if count == 0 => Some(Shape::NOTHING),
            _ => None,
        }
    }

    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// The definition's id; definitions have distinct contents, so their number is that of the program's kinds of types.
    fn define(&mut self, name: &'static str, shape: Shape) -> u32 {
        let key = (name, shape);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        // The last place is the unknown type's, whatever came before it.
        let key = if self.shapes.len() + 1 < MAX_DEFINITIONS { key } else { ("unknown", Shape::UNKNOWN) };
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        self.shapes.push(key.1.clone());
        let id = self.shapes.len() as u32;
        self.fresh.push(TypeDef { id, name: key.0.to_owned(), size: key.1.size, runs: key.1.runs.clone() });
        self.ids.insert(key, id);
        id
    }

    /// A constructor returned.
    pub(super) fn made(
        &mut self,
        function: &Function,
        values: &Values<'_>,
        new: u64,
        handles: &mut Handles,
        context: &dyn Context,
    ) {
        let name = constructor_name(function.symbol);
        let shape = self.constructed(name, values, handles, context);
        if self.made.len() < MAX_HANDLES || self.made.contains_key(&new) {
            self.made.insert(new, (name, shape));
        }
    }

    /// The type is freed: its handle may come to mean another one.
    pub(super) fn freed(&mut self, handle: u64) {
        self.made.remove(&handle);
    }

    /// Definitions made since the last call of this.
    pub(super) fn take(&mut self) -> Vec<TypeDef> {
        std::mem::take(&mut self.fresh)
    }

    fn constructed(
        &mut self,
        name: &'static str,
        values: &Values<'_>,
        handles: &mut Handles,
        context: &dyn Context,
    ) -> Shape {
        if name == "struct" {
            return self.structure(values, handles, context);
        }
        let Some(old) = values.get(Role::OldType).map(|old| self.shape_of(old, handles, context)) else {
            return Shape::UNKNOWN;
        };
        let times = match name {
            "dup" | "resized" => Some(1),
            // Blocks times elements of a block.
            "contiguous" | "vector" | "hvector" | "indexed_block" | "hindexed_block" => {
                values.all(Role::Extent).and_then(|extents| product(&extents))
            }
            "indexed" | "hindexed" => self.lengths(values).and_then(|lengths| sum(&lengths)),
            "subarray" => self.lengths(values).and_then(|lengths| product(&lengths)),
            _ => None,
        };
        times.map_or(Shape::UNKNOWN, |times| old.repeated(times))
    }

    /// A structure: blocks of several types.
    fn structure(&mut self, values: &Values<'_>, handles: &mut Handles, context: &dyn Context) -> Shape {
        let Some(lengths) = self.lengths(values) else { return Shape::UNKNOWN };
        let Some(types) = values.array(Role::BlockTypes, lengths.len()) else { return Shape::UNKNOWN };
        let mut whole = Shape::NOTHING;
        for (length, old) in lengths.into_iter().zip(types) {
            let block = self.shape_of(old, handles, context).repeated(length);
            whole = whole.followed_by(&block);
        }
        whole
    }

    /// The block lengths, as many as the first extent says.
    fn lengths(&self, values: &Values<'_>) -> Option<Vec<u64>> {
        values.array(Role::BlockLengths, usize::try_from(values.get(Role::Extent)?).ok()?)
    }

    fn shape_of(&self, handle: u64, handles: &mut Handles, context: &dyn Context) -> Shape {
        match self.made.get(&handle) {
            Some((_, shape)) => shape.clone(),
            None => match handles.datatype(handle, context) {
                TypeHandle::Predefined(_, basic, repeat) => Shape::of(basic, repeat),
                TypeHandle::Null | TypeHandle::Unlisted(_) | TypeHandle::Made => Shape::UNKNOWN,
            },
        }
    }
}

fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1_u64, |product, &factor| product.checked_mul(not_negative(factor)?))
}

fn sum(terms: &[u64]) -> Option<u64> {
    terms.iter().try_fold(0_u64, |sum, &term| sum.checked_add(not_negative(term)?))
}

/// Extents are signed where they come from.
fn not_negative(value: u64) -> Option<u64> {
    (value as i64 >= 0).then_some(value)
}

/// The constructor's name without the parts that do not change what it makes.
fn constructor_name(symbol: &'static str) -> &'static str {
    let name = symbol.strip_prefix("MPI_Type_").unwrap_or(symbol);
    let name = name.strip_prefix("create_").unwrap_or(name);
    name.strip_suffix("_c").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Basic, DType, TypeDef};

    use super::{MAX_RUNS, Shape, Types, constructor_name};
    use crate::mpi::handles::{Handles, MPICH};
    use crate::mpi::tests::{Process, Recorded, function};
    use crate::values::Values;

    const INT: u64 = 0x4c00_0405;
    const DOUBLE: u64 = 0x4c00_080b;

    struct Bench {
        types: Types,
        handles: Handles,
        process: Process,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { types: Types::default(), handles: Handles::new(MPICH), process: Process::default() }
        }

        fn make(&mut self, symbol: &str, recorded: &Recorded, new: u64) {
            let function = function(symbol);
            let raw = recorded.raw();
            let values = Values::new(function, &raw, 4);
            self.types.made(function, &values, new, &mut self.handles, &self.process);
        }

        fn dtype(&mut self, handle: u64) -> DType {
            self.types.named(handle, &mut self.handles, &self.process).dtype
        }

        fn runs(&mut self, handle: u64) -> (Option<u64>, Vec<(Basic, u64)>) {
            let DType::Derived(id) = self.dtype(handle) else { panic!("a derived type") };
            let shape = self.types.shape(id).expect("defined");
            (shape.size, shape.runs.clone())
        }
    }

    #[test]
    fn repeating_constructors() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_contiguous", &Recorded::new([3, INT, 0]), 0x8c00_0010);
        assert_eq!(bench.runs(0x8c00_0010), (Some(12), vec![(Basic::I32, 3)]));
        for symbol in
            ["MPI_Type_vector", "MPI_Type_create_hvector", "MPI_Type_create_indexed_block", "MPI_Type_vector_c"]
        {
            bench.make(symbol, &Recorded::new([4, 2, DOUBLE, 0]), 0x8c00_0011);
            assert_eq!(bench.runs(0x8c00_0011), (Some(64), vec![(Basic::F64, 8)]), "{symbol}");
        }
        bench.make("MPI_Type_vector", &Recorded::new([2, 5, 0x8c00_0010, 0]), 0x8c00_0012);
        assert_eq!(bench.runs(0x8c00_0012), (Some(120), vec![(Basic::I32, 30)]));
    }

    #[test]
    fn blocks_of_several_lengths_and_types() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_indexed", &Recorded::new([3, 0, INT, 0]).ints(&[1, 2, 4]), 0x8c00_0010);
        assert_eq!(bench.runs(0x8c00_0010), (Some(28), vec![(Basic::I32, 7)]));
        bench.make("MPI_Type_create_subarray", &Recorded::new([2, 0, DOUBLE, 0]).ints(&[3, 4]), 0x8c00_0011);
        assert_eq!(bench.runs(0x8c00_0011), (Some(96), vec![(Basic::F64, 12)]));
        let structure = Recorded::new([3, 0, 0, 0]).ints(&[1, 2, 3]).handles32(&[INT, DOUBLE, DOUBLE]);
        bench.make("MPI_Type_create_struct", &structure, 0x8c00_0012);
        assert_eq!(bench.runs(0x8c00_0012), (Some(44), vec![(Basic::I32, 1), (Basic::F64, 5)]));
        bench.make("MPI_Type_contiguous", &Recorded::new([2, 0x8c00_0012, 0]), 0x8c00_0013);
        let twice = vec![(Basic::I32, 1), (Basic::F64, 5), (Basic::I32, 1), (Basic::F64, 5)];
        assert_eq!(bench.runs(0x8c00_0013), (Some(88), twice));
        bench.make("MPI_Type_contiguous", &Recorded::new([1_000_000, 0x8c00_0012, 0]), 0x8c00_0014);
        assert_eq!(bench.runs(0x8c00_0014), (Some(44_000_000), vec![]), "too many runs to keep");
    }

    #[test]
    fn a_lengths_array_that_is_cut_makes_an_unknown_type() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_indexed", &Recorded::new([4, 0, INT, 0]).ints(&[1, 2, 4]), 0x8c00_0010);
        assert_eq!(bench.runs(0x8c00_0010), (None, vec![]));
        bench.make("MPI_Type_create_darray", &Recorded::new([INT, 0]), 0x8c00_0011);
        assert_eq!(bench.runs(0x8c00_0011), (None, vec![]));
        bench.make("MPI_Type_indexed", &Recorded::new([u64::from(u32::MAX), 0, INT, 0]).ints(&[1]), 0x8c00_0012);
        assert_eq!(bench.runs(0x8c00_0012), (None, vec![]), "a negative number of blocks");
    }

    #[test]
    fn one_element_is_the_basic_type_itself() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_dup", &Recorded::new([INT, 0]), 0x8c00_0010);
        bench.make("MPI_Type_create_resized", &Recorded::new([0x8c00_0010, 0]), 0x8c00_0011);
        assert_eq!(bench.dtype(0x8c00_0011), DType::Basic(Basic::I32));
        assert!(bench.types.take().is_empty());
    }

    #[test]
    fn equal_types_made_anew_are_one_definition() {
        let mut bench = Bench::new();
        for step in 0..100 {
            let handle = 0x8c00_0010 + step;
            bench.make("MPI_Type_contiguous", &Recorded::new([3, INT, 0]), handle);
            assert_eq!(bench.dtype(handle), DType::Derived(1));
            bench.types.freed(handle);
        }
        let definition = TypeDef { id: 1, name: "contiguous".to_owned(), size: Some(12), runs: vec![(Basic::I32, 3)] };
        assert_eq!(bench.types.take(), vec![definition]);
        assert!(bench.types.take().is_empty());
    }

    #[test]
    fn a_freed_handle_is_unknown_until_it_is_made_again() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_contiguous", &Recorded::new([3, INT, 0]), 0x8c00_0010);
        bench.types.freed(0x8c00_0010);
        let named = bench.types.named(0x8c00_0010, &mut bench.handles, &bench.process);
        assert!(!named.known);
        assert!(matches!(named.dtype, DType::Derived(_)));
    }

    #[test]
    fn amounts_compare_by_what_they_transfer() {
        let mut bench = Bench::new();
        bench.make("MPI_Type_contiguous", &Recorded::new([4, INT, 0]), 0x8c00_0010);
        let four = bench.dtype(0x8c00_0010);
        let unknown = bench.dtype(0x8c00_0099);
        let int = DType::Basic(Basic::I32);
        assert_eq!(bench.types.same((2, four), (8, int)), Some(true));
        assert_eq!(bench.types.same((2, four), (7, int)), Some(false));
        assert_eq!(bench.types.same((8, int), (8, DType::Basic(Basic::F32))), Some(false), "equal bytes, other type");
        assert_eq!(bench.types.same((0, four), (0, DType::None)), Some(true));
        assert_eq!(bench.types.same((1, unknown), (8, int)), None);
    }

    #[test]
    fn shapes_never_grow_beyond_their_limit() {
        let pair = Shape::of(Basic::I32, 1).followed_by(&Shape::of(Basic::F64, 1));
        assert_eq!(pair.repeated(MAX_RUNS as u64 / 2).runs.len(), MAX_RUNS);
        let more = pair.repeated(MAX_RUNS as u64 / 2 + 1);
        assert!(more.runs.is_empty() && !more.is_known());
        assert_eq!(pair.repeated(u64::MAX).size, None);
        assert!(Shape::of(Basic::I32, u64::MAX).repeated(2).runs.is_empty());
        assert!(!more.followed_by(&pair).is_known(), "what follows an unknown part is not known as a whole");
    }

    #[test]
    fn names_of_constructors() {
        assert_eq!(constructor_name("MPI_Type_create_hvector_c"), "hvector");
        assert_eq!(constructor_name("MPI_Type_struct"), "struct");
    }
}
