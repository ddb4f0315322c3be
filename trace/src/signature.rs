//! Call signatures: what must agree on all members of one instance, in a form that compares and hashes.
//!
//! One place for both uses: the writer's digests hash [`Signature::write_canonical`], the analyzer compares
//! [`Signature::differences`]. The canonical bytes are specified in docs/format.md ('Signatures').
//!
//! Deliberately left out, because members legally differ in it or it says nothing about the match: local indices of
//! communicators, types, sites and labels; thread, stream and batch; times, results and completion; buffers and
//! [`CallFlags::IN_PLACE`]; the vectors of v-forms and of an all-to-all with splits (they are paired, see the pair sums
//! in [`crate::digest`]).
//!
//! The element type of a v-form is compared, but is not in its canonical bytes: a member that transfers nothing may pass
//! any type, so equal bytes for all could only be had by knowing what the others pass. The pair sums have it instead.

use crate::call::{Call, CallFlags};
use crate::comm::{CommDef, Semantics};
use crate::datatype::{Basic, DType, RedOp};
use crate::op::Op;
use crate::typesig::{TypeTable, Unit};

/// A part of a signature.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part<T> {
    /// The operation has no such part.
    Absent,
    /// Members legally differ in it here (v-forms, intercommunicators, members that take no part): not compared.
    LeftOut,
    /// The operation has it, but the call does not say it.
    Unknown,
    /// Its value.
    Is(T),
}

/// Which forms of an operation match each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// The library does not tell forms apart.
    Any = 0,
    /// Blocking.
    Blocking = 1,
    /// Non-blocking.
    Nonblocking = 2,
    /// The start of a persistent operation.
    Persistent = 3,
}

/// What is transferred.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Elements {
    /// The shortest period of the type signature.
    pub unit: Unit,
    /// How many units; `None`: left out (v-forms).
    pub times: Option<u128>,
}

impl Elements {
    /// `count` elements of a type; `None` if the type is not known.
    pub fn of(dtype: DType, count: u64, types: &TypeTable) -> Option<Elements> {
        let (unit, times) = unit_of(dtype, types)?;
        let times = u128::from(times) * u128::from(count);
        Some(if times == 0 {
            Elements { unit: Unit::Empty, times: Some(0) }
        } else {
            Elements { unit, times: Some(times) }
        })
    }

    /// Bytes transferred; `None` if not known.
    pub fn bytes(&self) -> Option<u128> {
        self.times?.checked_mul(u128::from(self.unit.size()?))
    }

    /// Appends the canonical bytes.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        match &self.unit {
            Unit::Empty => out.push(0),
            Unit::Basic(basic) => out.extend_from_slice(&[1, basic.code()]),
            Unit::Runs(runs) => {
                out.push(2);
                out.extend_from_slice(&(runs.len() as u64).to_le_bytes());
                for (basic, times) in runs.iter() {
                    out.push(basic.code());
                    out.extend_from_slice(&times.to_le_bytes());
                }
            }
            Unit::Raw(raw) => {
                out.push(3);
                out.extend_from_slice(&raw.to_le_bytes());
            }
            Unit::Sized(bytes) => {
                out.push(4);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
        }
        match self.times {
            None => out.push(0),
            Some(times) => {
                out.push(1);
                out.extend_from_slice(&times.to_le_bytes());
            }
        }
    }
}

fn unit_of(dtype: DType, types: &TypeTable) -> Option<(Unit, u64)> {
    match dtype {
        DType::None => None,
        DType::Basic(basic) => Some((Unit::Basic(basic), 1)),
        DType::Derived(id) => types.get(id).map(|normal| (normal.unit.clone(), normal.times)),
        DType::Raw(raw) => Some((Unit::Raw(raw), 1)),
    }
}

/// What must agree on all members of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The operation.
    pub op: Op,
    /// Its form, where forms are told apart.
    pub form: Form,
    /// Type and count.
    pub elements: Part<Elements>,
    /// Reduction.
    pub redop: Part<RedOp>,
    /// Root, in the communicator's ranks.
    pub root: Part<u32>,
    /// Whether equal signatures prove agreement: false with [`CallFlags::UNREADABLE`], where a part is
    /// [`Part::Unknown`], and where a derived type is known by its size only.
    pub complete: bool,
}

impl Signature {
    /// The signature of a call on a communicator. `types` are the derived types of the call's stream.
    pub fn of(call: &Call, comm: &CommDef, types: &TypeTable) -> Signature {
        Signature::with(call, comm.semantics, comm.inter, types)
    }

    /// The same from what matters of a communicator: what its calls mean and whether it connects two groups.
    pub fn with(call: &Call, semantics: Semantics, inter: bool, types: &TypeTable) -> Signature {
        let form = if !semantics.contains(Semantics::NONBLOCKING_DISTINCT) {
            Form::Any
        } else if call.flags.contains(CallFlags::PERSISTENT) {
            Form::Persistent
        } else if call.flags.contains(CallFlags::NONBLOCKING) {
            Form::Nonblocking
        } else {
            Form::Blocking
        };
        let elements = elements(call, inter, types);
        let redop = match call.redop {
            _ if !call.op.has_reduction() => Part::Absent,
            // The group without the root gives its reduction, the bystanders' argument is not significant.
            _ if call.flags.contains(CallFlags::BYSTANDER) => Part::LeftOut,
            RedOp::None => Part::Unknown,
            redop => Part::Is(redop),
        };
        let root = if !call.op.has_root() {
            Part::Absent
        } else if inter || call.flags.contains(CallFlags::ROOT_IS_SELF) || call.flags.contains(CallFlags::BYSTANDER) {
            Part::LeftOut
        } else {
            call.root.map_or(Part::Unknown, Part::Is)
        };
        // Two types of one size may be different types: equal sizes are no proof of agreement.
        let proves = !matches!(&elements, Part::Unknown | Part::Is(Elements { unit: Unit::Sized(_), .. }));
        let complete =
            !call.flags.contains(CallFlags::UNREADABLE) && proves && redop != Part::Unknown && root != Part::Unknown;
        Signature { op: call.op, form, elements, redop, root, complete }
    }

    /// Appends the bytes that digests hash (docs/format.md, 'Signatures'). Those of a v-form say nothing of its type.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.op.code().to_le_bytes());
        out.push(self.form as u8);
        let elements = match &self.elements {
            Part::Is(Elements { times: None, .. }) => &Part::LeftOut,
            elements => elements,
        };
        if let Some(elements) = write_part(elements, out) {
            elements.write_canonical(out);
        }
        match write_part(&self.redop, out) {
            None => {}
            Some(RedOp::None) => out.push(0),
            Some(RedOp::Predefined(reduction)) => out.extend_from_slice(&[1, reduction.code()]),
            Some(RedOp::Dynamic) => out.push(2),
            Some(RedOp::Raw(raw)) => {
                out.push(3);
                out.extend_from_slice(&raw.to_le_bytes());
            }
        }
        if let Some(root) = write_part(&self.root, out) {
            out.extend_from_slice(&root.to_le_bytes());
        }
    }

    /// In what two calls of one instance differ, and in what they cannot be compared.
    pub fn differences(&self, other: &Signature) -> Differences {
        let mut found = Differences::default();
        if self.op != other.op {
            // Arguments of different operations have nothing to be compared in.
            found.differ = found.differ.with(Fields::OP);
            return found;
        }
        if self.form != other.form {
            found.differ = found.differ.with(Fields::FORM);
        }
        match (&self.elements, &other.elements) {
            (Part::Is(mine), Part::Is(theirs)) => {
                let elements = compare_elements(mine, theirs);
                // Along each edge of a topology sender and receiver agree; members that share no edge need not.
                if is_neighborhood(self.op) {
                    found.unknown = found.unknown.with(elements.differ).with(elements.unknown);
                } else {
                    found.differ = found.differ.with(elements.differ);
                    found.unknown = found.unknown.with(elements.unknown);
                }
            }
            (Part::Unknown, _) | (_, Part::Unknown) => {
                found.unknown = found.unknown.with(Fields::COUNT).with(Fields::DTYPE);
            }
            _ => {}
        }
        match (&self.redop, &other.redop) {
            (Part::Is(mine), Part::Is(theirs)) if mine != theirs => {
                // An undecoded handle may be any reduction: a pointer differs between processes.
                let unsure = matches!(mine, RedOp::Raw(_)) || matches!(theirs, RedOp::Raw(_));
                let field = if unsure { &mut found.unknown } else { &mut found.differ };
                *field = field.with(Fields::REDOP);
            }
            (Part::Unknown, _) | (_, Part::Unknown) => found.unknown = found.unknown.with(Fields::REDOP),
            _ => {}
        }
        match (&self.root, &other.root) {
            (Part::Is(mine), Part::Is(theirs)) if mine != theirs => found.differ = found.differ.with(Fields::ROOT),
            (Part::Unknown, _) | (_, Part::Unknown) => found.unknown = found.unknown.with(Fields::ROOT),
            _ => {}
        }
        found
    }
}

/// Writes the tag of a part and gives its value if it has one.
fn write_part<'a, T>(part: &'a Part<T>, out: &mut Vec<u8>) -> Option<&'a T> {
    let (tag, value) = match part {
        Part::Absent => (0, None),
        Part::LeftOut => (1, None),
        Part::Unknown => (2, None),
        Part::Is(value) => (3, Some(value)),
    };
    out.push(tag);
    value
}

fn is_neighborhood(op: Op) -> bool {
    matches!(
        op,
        Op::NeighborAllGather
            | Op::NeighborAllGatherV
            | Op::NeighborAllToAll
            | Op::NeighborAllToAllV
            | Op::NeighborAllToAllW
    )
}

fn elements(call: &Call, inter: bool, types: &TypeTable) -> Part<Elements> {
    match call.op {
        Op::Barrier => return Part::Absent,
        // One type per pair, or arguments that belong to each member alone.
        Op::AllToAllW | Op::NeighborAllToAllW | Op::FileCollective | Op::WindowCollective => return Part::LeftOut,
        _ => {}
    }
    if call.flags.contains(CallFlags::BYSTANDER) {
        return Part::LeftOut;
    }
    // Between two groups each direction has a count of its own; only a full exchange of reductions has one for both.
    if inter && call.op != Op::AllReduce {
        return Part::LeftOut;
    }
    if is_vector_form(call) {
        if transfers_nothing(call) {
            return Part::Is(Elements { unit: Unit::Empty, times: None });
        }
        return match unit_of(call.dtype, types) {
            None | Some((Unit::Sized(_), _)) => Part::Unknown,
            Some((unit, _)) => Part::Is(Elements { unit, times: None }),
        };
    }
    match call.count.and_then(|count| Elements::of(call.dtype, count, types)) {
        None => Part::Unknown,
        Some(elements) => Part::Is(elements),
    }
}

/// Whether members legally pass different counts: an all-to-all with split vectors is a v-form whatever its name.
pub(crate) fn is_vector_form(call: &Call) -> bool {
    // Vectors that were too long to be kept were there.
    let split = || !call.sends.is_empty() || !call.recvs.is_empty() || call.flags.contains(CallFlags::VECTORS_CUT);
    call.op.is_vector() || call.op == Op::AllToAll && split()
}

/// Whether a v-form surely has no elements of its type, which then may be any and need not be known.
///
/// Count and vectors are in elements of the one type that a call carries. Where the type of the other side is not the
/// same, the recorder leaves that side's vector out, and the type is that of the side which the count tells.
fn transfers_nothing(call: &Call) -> bool {
    let vectors = || call.sends.iter().chain(&call.recvs);
    if vectors().any(|&elements| elements != 0) {
        return false;
    }
    let told = vectors().next().is_some();
    match call.op {
        // The count is the own block of the result alone: a member without one still reduces those of the others.
        Op::ReduceScatterV => told,
        Op::AllToAll | Op::AllToAllV if told => true,
        _ => call.count.map_or(told, |count| count == 0),
    }
}

fn compare_elements(mine: &Elements, theirs: &Elements) -> Differences {
    let mut found = Differences::default();
    if mine == theirs {
        return found;
    }
    // What was packed has the types that went into it and a size of its own, and may be received unpacked.
    let packed = |elements: &Elements| elements.unit == Unit::Basic(Basic::Packed);
    if packed(mine) != packed(theirs) {
        found.unknown = found.unknown.with(Fields::DTYPE).with(Fields::COUNT);
        return found;
    }
    // What is transferred in total decides where a type is known by its size or by its handle only.
    let (Some(times), Some(other_times)) = (mine.times, theirs.times) else {
        // A member of a v-form that transfers nothing passes any type.
        if mine.unit != theirs.unit && mine.unit != Unit::Empty && theirs.unit != Unit::Empty {
            let exact = mine.unit.is_exact() && theirs.unit.is_exact();
            let field = if exact { &mut found.differ } else { &mut found.unknown };
            *field = field.with(Fields::DTYPE);
        }
        return found;
    };
    if mine.unit == theirs.unit {
        found.differ = found.differ.with(Fields::COUNT);
        return found;
    }
    if times == 0 || other_times == 0 {
        found.differ = found.differ.with(Fields::COUNT);
        return found;
    }
    if mine.unit.is_exact() && theirs.unit.is_exact() {
        found.differ = found.differ.with(Fields::DTYPE);
        let total = |unit: &Unit, times: u128| unit.elements().and_then(|one| times.checked_mul(u128::from(one)));
        if total(&mine.unit, times) != total(&theirs.unit, other_times) {
            found.differ = found.differ.with(Fields::COUNT);
        }
        return found;
    }
    match (mine.bytes(), theirs.bytes()) {
        (Some(bytes), Some(other_bytes)) if bytes != other_bytes => found.differ = found.differ.with(Fields::COUNT),
        (Some(_), Some(_)) => found.unknown = found.unknown.with(Fields::DTYPE),
        _ => found.unknown = found.unknown.with(Fields::DTYPE).with(Fields::COUNT),
    }
    found
}

/// A set of the fields of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fields(u8);

impl Fields {
    /// The operation.
    pub const OP: Fields = Fields(1);
    /// Blocking, non-blocking or persistent.
    pub const FORM: Fields = Fields(1 << 1);
    /// The number of elements.
    pub const COUNT: Fields = Fields(1 << 2);
    /// The element type.
    pub const DTYPE: Fields = Fields(1 << 3);
    /// The reduction.
    pub const REDOP: Fields = Fields(1 << 4);
    /// The root.
    pub const ROOT: Fields = Fields(1 << 5);

    /// Whether every field of `other` is in it.
    pub fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }

    /// The fields of both.
    #[must_use]
    pub fn with(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// Whether it has no field.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How two signatures compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Differences {
    /// These differ.
    pub differ: Fields,
    /// These could not be compared: a part was not read, or a handle or type not decoded.
    pub unknown: Fields,
}

impl Differences {
    /// Nothing differs and everything could be compared.
    pub fn agree(self) -> bool {
        self.differ.is_empty() && self.unknown.is_empty()
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
