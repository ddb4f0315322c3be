//! Predefined handles of each ABI, turned into what they mean.
//!
//! MPICH's family has integer constants whose top two bits say what kind of handle it is; the standard ABI has small
//! integers in a pointer; Open MPI has the addresses of the library's globals, which are found by name through the symbol
//! table (of the executable where it holds a copy of them). What is not predefined was made at run time.

use rankdiff_trace::{Basic, RedOp, Reduction};
use rustc_hash::FxHashMap;

use crate::decode::Context;
use crate::spec::{Abi, Offsets};

/// MPICH, Intel MPI, MVAPICH and others of the family.
pub(super) const MPICH: Abi = Abi { name: "mpich", handle_bytes: 4, offsets: Offsets::NONE };
/// Open MPI.
pub(super) const OPEN_MPI: Abi = Abi { name: "openmpi", handle_bytes: 8, offsets: Offsets::NONE };
/// The standard ABI of MPI 5.
pub(super) const STANDARD: Abi = Abi { name: "mpi-abi", handle_bytes: 8, offsets: Offsets::NONE };

/// Kind bits of MPICH's handles: 0 invalid, 1 predefined, 2 and 3 made at run time.
const MPICH_KIND_SHIFT: u32 = 30;
/// Handles below are constants of the standard ABI.
const STANDARD_CONSTANTS: u64 = 0x1000;

/// Numbers that mean something other than themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Root argument of the root of an intercommunicator.
    pub(super) root: i64,
    /// Root argument of a member of the root's group that is not the root.
    pub(super) proc_null: i64,
    /// Colour of a member that a split leaves out.
    pub(super) undefined: i64,
    /// Buffer argument that means the other buffer.
    pub(super) in_place: u64,
    /// Split by shared memory.
    pub(super) split_shared: i64,
}

const MPICH_NUMBERS: Numbers =
    Numbers { root: -3, proc_null: -1, undefined: -32766, in_place: u64::MAX, split_shared: 1 };
const OPEN_MPI_NUMBERS: Numbers = Numbers { root: -4, proc_null: -2, undefined: -32766, in_place: 1, split_shared: 0 };
const STANDARD_NUMBERS: Numbers =
    Numbers { root: -4, proc_null: -3, undefined: -32766, in_place: 1, split_shared: 221 };

/// What a datatype handle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeHandle {
    /// No type.
    Null,
    /// So many of a basic type; the name is MPI's, in lower case.
    Predefined(&'static str, Basic, u64),
    /// Predefined, but not in our table: a value that is equal in every process of the job.
    Unlisted(u64),
    /// Made at run time.
    Made,
}

/// What a communicator handle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommHandle {
    /// No communicator.
    Null,
    /// All processes that started together.
    World,
    /// This process.
    Itself,
    /// Made at run time.
    Made,
}

struct TypeRow {
    name: &'static str,
    basic: Basic,
    repeat: u64,
    mpich: u64,
    standard: u64,
    open_mpi: &'static str,
}

macro_rules! types {
    ($($name:literal $basic:ident $repeat:literal $mpich:literal $standard:literal $open_mpi:literal;)*) => {
        &[$(TypeRow {
            name: $name, basic: Basic::$basic, repeat: $repeat, mpich: $mpich, standard: $standard, open_mpi: $open_mpi,
        }),*]
    };
}

/// Name, basic type, repetitions, and the handle in each ABI (0 or empty: it has none).
///
/// Types of one kind and size are one basic type, whatever they are called: a job that mixes them works, and a report
/// about it would be noise. Fortran's types count as the C types that they are made of, its LOGICAL as an integer of its
/// size. The markers LB and UB carry nothing.
const TYPES: &[TypeRow] = types! {
    "char" Char 1 0x4c000101 0x243 "char";
    "signed_char" I8 1 0x4c000118 0x244 "signed_char";
    "unsigned_char" U8 1 0x4c000102 0x245 "unsigned_char";
    "byte" Byte 1 0x4c00010d 0x247 "byte";
    "packed" Packed 1 0x4c00010f 0x207 "packed";
    "wchar" Wchar 1 0x4c00040e 0x23c "wchar";
    "short" I16 1 0x4c000203 0x208 "short";
    "unsigned_short" U16 1 0x4c000204 0x20c "unsigned_short";
    "int" I32 1 0x4c000405 0x209 "int";
    "unsigned" U32 1 0x4c000406 0x20d "unsigned";
    "long" I64 1 0x4c000807 0x20a "long";
    "unsigned_long" U64 1 0x4c000808 0x20e "unsigned_long";
    "long_long" I64 1 0x4c000809 0x20b "long_long_int";
    "unsigned_long_long" U64 1 0x4c000819 0x20f "unsigned_long_long";
    "float" F32 1 0x4c00040a 0x210 "float";
    "double" F64 1 0x4c00080b 0x214 "double";
    "long_double" F80 1 0x4c00100c 0x220 "long_double";
    "float16" F16 1 0x4c000246 0 "short_float";
    "bfloat16" Bf16 1 0x4c00024c 0 "";
    "int8_t" I8 1 0x4c000137 0x240 "int8_t";
    "int16_t" I16 1 0x4c000238 0x248 "int16_t";
    "int32_t" I32 1 0x4c000439 0x250 "int32_t";
    "int64_t" I64 1 0x4c00083a 0x258 "int64_t";
    "uint8_t" U8 1 0x4c00013b 0x241 "uint8_t";
    "uint16_t" U16 1 0x4c00023c 0x249 "uint16_t";
    "uint32_t" U32 1 0x4c00043d 0x251 "uint32_t";
    "uint64_t" U64 1 0x4c00083e 0x259 "uint64_t";
    "aint" I64 1 0x4c000843 0x201 "aint";
    "offset" I64 1 0x4c000844 0x203 "offset";
    "count" I64 1 0x4c000845 0x202 "count";
    "c_bool" Bool 1 0x4c00013f 0x238 "c_bool";
    "cxx_bool" Bool 1 0x4c000133 0x239 "cxx_bool";
    "c_float_complex" C64 1 0x4c000840 0x212 "c_float_complex";
    "c_complex" C64 1 0 0 "c_complex";
    "c_double_complex" C128 1 0x4c001041 0x216 "c_double_complex";
    "c_long_double_complex" C256 1 0x4c002042 0x224 "c_long_double_complex";
    "cxx_float_complex" C64 1 0x4c000834 0x213 "cxx_cplex";
    "cxx_double_complex" C128 1 0x4c001035 0x217 "cxx_dblcplex";
    "cxx_long_double_complex" C256 1 0x4c002036 0x225 "cxx_ldblcplex";
    "float_int" F32I32 1 0x8c000000 0x228 "float_int";
    "double_int" F64I32 1 0x8c000001 0x229 "double_int";
    "long_int" I64I32 1 0x8c000002 0x22a "long_int";
    "short_int" I16I32 1 0x8c000003 0x22c "short_int";
    "2int" I32I32 1 0x4c000816 0x22b "2int";
    "long_double_int" F80I32 1 0x8c000004 0x22d "longdbl_int";
    "character" Char 1 0x4c00011a 0x21e "character";
    "logical" I32 1 0x4c00041d 0x218 "logical";
    "logical1" I8 1 0x4c000147 0x2c0 "logical1";
    "logical2" I16 1 0x4c000248 0x2c8 "logical2";
    "logical4" I32 1 0x4c000449 0x2d0 "logical4";
    "logical8" I64 1 0x4c00084a 0x2d8 "logical8";
    "logical16" I128 1 0x4c00104b 0x2e0 "";
    "integer" I32 1 0x4c00041b 0x219 "integer";
    "integer1" I8 1 0x4c00012d 0x2c1 "integer1";
    "integer2" I16 1 0x4c00022f 0x2c9 "integer2";
    "integer4" I32 1 0x4c000430 0x2d1 "integer4";
    "integer8" I64 1 0x4c000831 0x2d9 "integer8";
    "integer16" I128 1 0x4c001032 0x2e1 "integer16";
    "real" F32 1 0x4c00041c 0x21a "real";
    "real2" F16 1 0x4c000226 0x2ca "real2";
    "real4" F32 1 0x4c000427 0x2d2 "real4";
    "real8" F64 1 0x4c000829 0x2da "real8";
    "real16" F128 1 0x4c00102b 0x2e2 "real16";
    "double_precision" F64 1 0x4c00081f 0x21c "dblprec";
    "complex" C64 1 0x4c00081e 0x21b "cplex";
    "double_complex" C128 1 0x4c001022 0x21d "dblcplex";
    "complex4" F16 2 0x4c00042e 0x2d3 "complex4";
    "complex8" C64 1 0x4c000828 0x2db "complex8";
    "complex16" C128 1 0x4c00102a 0x2e3 "complex16";
    "complex32" C256 1 0x4c00202c 0x2eb "complex32";
    "long_double_complex" C256 1 0 0 "ldblcplex";
    "c_short_float_complex" F16 2 0 0 "c_short_float_complex";
    "cxx_short_float_complex" F16 2 0 0 "cxx_sfltcplex";
    "2integer" I32I32 1 0x4c000820 0x232 "2integer";
    "2real" F32 2 0x4c000821 0x230 "2real";
    "2double_precision" F64 2 0x4c001023 0x231 "2dblprec";
    "2complex" C64 2 0x4c001024 0 "2cplex";
    "2double_complex" C128 2 0x4c002025 0 "2dblcplex";
    "lb" Byte 0 0x4c000010 0 "lb";
    "ub" Byte 0 0x4c000011 0 "ub";
};

/// Reduction, and its handle in each ABI.
const REDUCTIONS: &[(Reduction, u64, u64, &str)] = &[
    (Reduction::Max, 0x5800_0001, 0x23, "max"),
    (Reduction::Min, 0x5800_0002, 0x22, "min"),
    (Reduction::Sum, 0x5800_0003, 0x21, "sum"),
    (Reduction::Prod, 0x5800_0004, 0x24, "prod"),
    (Reduction::Land, 0x5800_0005, 0x30, "land"),
    (Reduction::Band, 0x5800_0006, 0x28, "band"),
    (Reduction::Lor, 0x5800_0007, 0x31, "lor"),
    (Reduction::Bor, 0x5800_0008, 0x29, "bor"),
    (Reduction::Lxor, 0x5800_0009, 0x32, "lxor"),
    (Reduction::Bxor, 0x5800_000a, 0x2a, "bxor"),
    (Reduction::MinLoc, 0x5800_000b, 0x38, "minloc"),
    (Reduction::MaxLoc, 0x5800_000c, 0x39, "maxloc"),
    (Reduction::Replace, 0x5800_000d, 0x3c, "replace"),
    (Reduction::NoOp, 0x5800_000e, 0x3d, "no_op"),
];

/// Handles of one process under one ABI.
#[derive(Debug)]
pub(super) struct Handles {
    abi: Abi,
    types: FxHashMap<u64, TypeHandle>,
    reductions: FxHashMap<u64, RedOp>,
}

impl Handles {
    /// Handles under this ABI.
    pub(super) fn new(abi: Abi) -> Handles {
        let mut types = FxHashMap::default();
        let mut reductions = FxHashMap::default();
        if abi != OPEN_MPI {
            let constant = |mpich, standard| if abi == MPICH { mpich } else { standard };
            for row in TYPES {
                types
                    .insert(constant(row.mpich, row.standard), TypeHandle::Predefined(row.name, row.basic, row.repeat));
            }
            for &(reduction, mpich, standard, _) in REDUCTIONS {
                reductions.insert(constant(mpich, standard), RedOp::Predefined(reduction));
            }
            types.remove(&0);
            types.insert(constant(0x0c00_0000, 0x200), TypeHandle::Null);
            reductions.insert(constant(0x1800_0000, 0x20), RedOp::None);
        }
        Handles { abi, types, reductions }
    }

    /// Width of a handle in bytes.
    pub(super) fn width(&self) -> u8 {
        self.abi.handle_bytes
    }

    /// The ABI's special numbers.
    pub(super) fn numbers(&self) -> &'static Numbers {
        if self.abi == MPICH {
            &MPICH_NUMBERS
        } else if self.abi == OPEN_MPI {
            &OPEN_MPI_NUMBERS
        } else {
            &STANDARD_NUMBERS
        }
    }

    /// What the datatype handle is.
    pub(super) fn datatype(&mut self, handle: u64, context: &dyn Context) -> TypeHandle {
        if let Some(&known) = self.types.get(&handle) {
            return known;
        }
        if self.abi != OPEN_MPI {
            return if self.is_constant(handle) { TypeHandle::Unlisted(handle) } else { TypeHandle::Made };
        }
        let Some(name) = self.global(handle, context) else { return TypeHandle::Made };
        let meaning = match name.as_str() {
            "datatype_null" => TypeHandle::Null,
            other => match TYPES.iter().find(|row| !row.open_mpi.is_empty() && row.open_mpi == other) {
                Some(row) => TypeHandle::Predefined(row.name, row.basic, row.repeat),
                None => TypeHandle::Unlisted(name_hash(other)),
            },
        };
        self.types.insert(handle, meaning);
        meaning
    }

    /// What the reduction handle is. One that is not predefined is the program's own.
    pub(super) fn reduction(&mut self, handle: u64, context: &dyn Context) -> RedOp {
        if let Some(&known) = self.reductions.get(&handle) {
            return known;
        }
        if self.abi != OPEN_MPI {
            return if self.is_constant(handle) { RedOp::Raw(handle) } else { RedOp::Dynamic };
        }
        let Some(name) = self.global(handle, context) else { return RedOp::Dynamic };
        let name = name.strip_prefix("op_").unwrap_or(&name);
        let meaning = match name {
            "null" => RedOp::None,
            other => match REDUCTIONS.iter().find(|row| row.3 == other) {
                Some(row) => RedOp::Predefined(row.0),
                None => RedOp::Raw(name_hash(other)),
            },
        };
        self.reductions.insert(handle, meaning);
        meaning
    }

    /// What the communicator handle is.
    pub(super) fn communicator(&self, handle: u64, context: &dyn Context) -> CommHandle {
        if self.abi == OPEN_MPI {
            return match self.global(handle, context).as_deref() {
                _ if handle == 0 => CommHandle::Null,
                Some("comm_null") => CommHandle::Null,
                Some("comm_world") => CommHandle::World,
                Some("comm_self") => CommHandle::Itself,
                _ => CommHandle::Made,
            };
        }
        let constants = if self.abi == MPICH { [0x0400_0000, 0x4400_0000, 0x4400_0001] } else { [0x100, 0x101, 0x102] };
        match constants.iter().position(|&constant| constant == handle) {
            Some(0) => CommHandle::Null,
            Some(1) => CommHandle::World,
            Some(_) => CommHandle::Itself,
            None if handle == 0 => CommHandle::Null,
            None => CommHandle::Made,
        }
    }

    fn is_constant(&self, handle: u64) -> bool {
        if self.abi == MPICH { handle >> MPICH_KIND_SHIFT <= 1 } else { handle < STANDARD_CONSTANTS }
    }

    /// The part of a global's name after Open MPI's prefix.
    fn global(&self, handle: u64, context: &dyn Context) -> Option<String> {
        let symbol = context.symbol_at(handle)?;
        let name = symbol.split_once('@').map_or(symbol.as_str(), |(name, _)| name);
        name.strip_prefix("ompi_mpi_").map(str::to_owned)
    }
}

/// A number for a name (64-bit FNV-1a): equal in every process.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Basic, RedOp, Reduction};

    use super::{CommHandle, Handles, MPICH, OPEN_MPI, REDUCTIONS, STANDARD, TYPES, TypeHandle};
    use crate::mpi::tests::Process;

    #[test]
    fn no_handle_means_two_things() {
        let columns: [fn(&super::TypeRow) -> u64; 2] = [|row| row.mpich, |row| row.standard];
        for column in columns {
            let mut seen: Vec<u64> = TYPES.iter().map(column).filter(|&handle| handle != 0).collect();
            let all = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), all);
        }
        let mut names: Vec<&str> = TYPES.iter().map(|row| row.open_mpi).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(REDUCTIONS.len(), 14, "all predefined reductions of MPI");
    }

    #[test]
    fn sizes_in_mpich_handles_are_the_sizes_of_the_basics() {
        // Bits 8 to 15 of a predefined datatype handle are the element's size, a check of the table by the library's
        // own words.
        for row in TYPES.iter().filter(|row| row.mpich >> 26 == 0x13) {
            assert_eq!(row.mpich >> 8 & 0xff, row.basic.size() * row.repeat, "{}", row.name);
        }
    }

    #[test]
    fn one_type_in_three_abis() {
        let process = Process::default().global(0x7000, "ompi_mpi_float").global(0x7100, "ompi_mpi_op_max");
        for (abi, float, max) in
            [(MPICH, 0x4c00_040a, 0x5800_0001), (STANDARD, 0x210, 0x23), (OPEN_MPI, 0x7000, 0x7100)]
        {
            let mut handles = Handles::new(abi);
            for _ in 0..2 {
                assert_eq!(handles.datatype(float, &process), TypeHandle::Predefined("float", Basic::F32, 1));
                assert_eq!(handles.reduction(max, &process), RedOp::Predefined(Reduction::Max));
            }
        }
    }

    #[test]
    fn null_made_and_unlisted() {
        let process = Process::default()
            .global(0x7000, "ompi_mpi_datatype_null@@OMPI")
            .global(0x7100, "ompi_mpi_newer")
            .global(0x7200, "environ")
            .global(0x7300, "ompi_mpi_op_null")
            .global(0x7400, "ompi_mpi_op_newer");
        let mut open_mpi = Handles::new(OPEN_MPI);
        assert_eq!(open_mpi.datatype(0x7000, &process), TypeHandle::Null);
        assert!(matches!(open_mpi.datatype(0x7100, &process), TypeHandle::Unlisted(_)));
        assert_eq!(open_mpi.datatype(0x7200, &process), TypeHandle::Made);
        assert_eq!(open_mpi.datatype(0x5555_0000, &process), TypeHandle::Made);
        assert_eq!(open_mpi.reduction(0x7300, &process), RedOp::None);
        assert!(matches!(open_mpi.reduction(0x7400, &process), RedOp::Raw(_)));
        assert_eq!(open_mpi.reduction(0x5555_0000, &process), RedOp::Dynamic);

        let mut mpich = Handles::new(MPICH);
        assert_eq!(mpich.datatype(0x0c00_0000, &process), TypeHandle::Null);
        assert_eq!(mpich.datatype(0x4c00_04ff, &process), TypeHandle::Unlisted(0x4c00_04ff));
        assert_eq!(mpich.datatype(0x8c00_0005, &process), TypeHandle::Made);
        assert_eq!(mpich.reduction(0x9800_0000, &process), RedOp::Dynamic);
        assert_eq!(mpich.reduction(0x5800_000f, &process), RedOp::Raw(0x5800_000f));

        let mut standard = Handles::new(STANDARD);
        assert_eq!(standard.datatype(0x200, &process), TypeHandle::Null);
        assert_eq!(standard.datatype(0x2ff, &process), TypeHandle::Unlisted(0x2ff));
        assert_eq!(standard.datatype(0x5555_0000, &process), TypeHandle::Made);
    }

    #[test]
    fn communicators_of_three_abis() {
        let process = Process::default()
            .global(0x10, "ompi_mpi_comm_null")
            .global(0x20, "ompi_mpi_comm_world")
            .global(0x30, "ompi_mpi_comm_self");
        for (abi, null, world, itself, made) in [
            (MPICH, 0x0400_0000, 0x4400_0000, 0x4400_0001, 0x8400_0002),
            (STANDARD, 0x100, 0x101, 0x102, 0x5555_0000),
            (OPEN_MPI, 0x10, 0x20, 0x30, 0x5555_0000),
        ] {
            let handles = Handles::new(abi);
            assert_eq!(handles.communicator(null, &process), CommHandle::Null);
            assert_eq!(handles.communicator(world, &process), CommHandle::World);
            assert_eq!(handles.communicator(itself, &process), CommHandle::Itself);
            assert_eq!(handles.communicator(made, &process), CommHandle::Made);
            assert_eq!(handles.communicator(0, &process), CommHandle::Null);
        }
    }
}
