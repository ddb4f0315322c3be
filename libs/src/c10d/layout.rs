//! Where things lie in the objects of one build of torch, read off the build's own code.
//!
//! Small functions that a release exports load one member each, so their first instructions tell its offset; the tensors'
//! offsets must in addition be one of the combinations that were checked against a release's headers. What does not fit is
//! left unknown, and said: the call, its order and its group are recorded all the same.

use crate::spec::{Abi, Access, AccessKind, Binary, Inspected};

/// Numbers of the offsets.
pub(super) mod at {
    /// A group's rank; its size is 4 bytes behind.
    pub(crate) const RANK: usize = 0;
    /// A group's name (`std::string`).
    pub(crate) const NAME: usize = 1;
    /// A group's description (`std::string`).
    pub(crate) const DESC: usize = 2;
    /// A tensor's number of elements.
    pub(crate) const NUMEL: usize = 3;
    /// A tensor's type.
    pub(crate) const DTYPE: usize = 4;
    /// The reduction in the options of an all-reduce, reduce and reduce-scatter.
    pub(crate) const REDUCTION: usize = 5;
    /// The root in the options of a reduce.
    pub(crate) const REDUCE_ROOT: usize = 6;
    /// The prefix of a store (`std::string`); the store below it is 32 bytes behind.
    pub(crate) const PREFIX: usize = 7;
}

/// Offsets of a tensor's number of elements and type, and the size of what every counted object begins with.
struct TensorLayout {
    numel: u16,
    dtype: u16,
    counted: u16,
}

/// Checked against the headers of 1.13 to 2.1; 2.4 to 2.10; 2.15.
const TENSORS: &[TensorLayout] = &[
    TensorLayout { numel: 168, dtype: 176, counted: 24 },
    TensorLayout { numel: 160, dtype: 168, counted: 16 },
    TensorLayout { numel: 152, dtype: 160, counted: 16 },
];

/// The reduction operator's bytes behind the counted object's: the operator and a pointer.
const OPERATOR_BYTES: u16 = 16;
/// Bytes of a `std::string`; its text is at its first word, and behind its two first words if it is short.
const STRING_BYTES: u16 = 32;

const NUMEL: &str = "_ZNK2at23FunctionalTensorWrapper12numel_customEv";
const DTYPE: &str = "_ZN2at6native10is_complexERKNS_6TensorE";
const GROUP: &str = "_ZN4c10d12ProcessGroupC2Eii";
const BACKEND: &str = "_ZN4c10d7BackendC2Eii";
const PREFIX: &str = "_ZN4c10d11PrefixStore7joinKeyERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
/// Up to 1.13, what the wrapper wraps, and what Gloo's groups are, is a `ProcessGroup`; since 2.0 a `Backend`.
const WRAPS_GROUP: &str = "_ZN4c10d19ProcessGroupWrapperC1EN3c1013intrusive_ptrINS_12ProcessGroupENS1_6detail34intrusive_target_default_null_typeIS3_EEEENS2_INS_16ProcessGroupGlooENS5_IS8_EEEE";

/// Finds the offsets of a build.
pub(super) fn inspect(mut abi: Abi, binary: &dyn Binary) -> Inspected {
    let mut notes = Vec::new();
    let is_group = binary.defines(WRAPS_GROUP);
    abi.name = if is_group { "group" } else { "backend" };

    match tensor(binary) {
        Some(layout) => {
            abi.offsets.set(at::NUMEL, Some(layout.numel));
            abi.offsets.set(at::DTYPE, Some(layout.dtype));
            abi.offsets.set(at::REDUCTION, Some(layout.counted));
            abi.offsets.set(at::REDUCE_ROOT, Some(layout.counted + OPERATOR_BYTES));
        }
        None => notes.push(
            "the layout of this build's tensors is not known: sizes, types, reductions and roots of its calls are not \
             recorded"
                .to_owned(),
        ),
    }
    let base = binary.accesses(if is_group { GROUP } else { BACKEND });
    let rank = rank(&base);
    abi.offsets.set(at::RANK, rank);
    if let Some(rank) = rank.filter(|_| !is_group) {
        let [name, desc] = [rank + 16, rank + 16 + STRING_BYTES];
        if holds_string(&base, name) && holds_string(&base, desc) {
            abi.offsets.set(at::NAME, Some(name));
            abi.offsets.set(at::DESC, Some(desc));
        }
    }
    let prefix = prefix(&binary.accesses(PREFIX));
    abi.offsets.set(at::PREFIX, prefix);
    if prefix.is_none() && abi.offsets.get(at::NAME).is_none() {
        notes.push(
            "the layout of this build's process groups is not known: their calls are recorded, but not which group of \
             another rank they belong to"
                .to_owned(),
        );
    }
    Inspected { abi, notes }
}

fn tensor(binary: &dyn Binary) -> Option<&'static TensorLayout> {
    let numels = binary.accesses(NUMEL);
    let dtypes = binary.accesses(DTYPE);
    let loads = |accesses: &[Access], bytes: u8, offset: u16| {
        accesses.iter().any(|access| (access.kind, access.bytes, access.offset) == (AccessKind::Load, bytes, offset))
    };
    let mut fitting = TENSORS.iter().filter(|layout| {
        // The wrapped tensor is the first member behind those of the class itself.
        loads(&numels, 8, layout.numel) && loads(&dtypes, 2, layout.dtype)
    });
    let found = fitting.next();
    found.filter(|_| fitting.next().is_none())
}

/// The constructor of the base class stores its two arguments side by side.
fn rank(base: &[Access]) -> Option<u16> {
    let stored = |argument: u8| {
        let mut stores = base
            .iter()
            .filter(|access| (access.kind, access.bytes, access.argument) == (AccessKind::Store, 4, Some(argument)));
        stores.next().map(|access| access.offset)
    };
    let (rank, size) = (stored(1)?, stored(2)?);
    (rank.checked_add(4) == Some(size)).then_some(rank)
}

/// An empty string's text is inside it: its address is taken and stored.
fn holds_string(constructor: &[Access], offset: u16) -> bool {
    let has =
        |kind: AccessKind, offset: u16| constructor.iter().any(|access| access.kind == kind && access.offset == offset);
    has(AccessKind::Address, offset + 16) && has(AccessKind::Store, offset)
}

/// The text and the length of the prefix are what `joinKey` loads first.
fn prefix(accesses: &[Access]) -> Option<u16> {
    let loads: Vec<u16> = accesses
        .iter()
        .filter(|access| access.kind == AccessKind::Load && access.bytes == 8)
        .map(|access| access.offset)
        .take(2)
        .collect();
    let &[one, two] = loads.as_slice() else { return None };
    let offset = one.min(two);
    (one.abs_diff(two) == 8).then_some(offset)
}
