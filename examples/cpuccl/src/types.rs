//! NCCL's enumerations and the errors of this crate.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};

/// `ncclUniqueId`: 128 opaque bytes that one rank makes and every rank is given.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId {
    /// The bytes; random, so that two jobs never meet in one communicator.
    pub internal: [u8; 128],
}

/// `ncclResult_t`, as the C functions return it.
pub type Code = c_int;

/// `ncclSuccess`.
pub const SUCCESS: Code = 0;
/// `ncclInProgress`, the answer of `cpucclStreamQuery` while work is queued.
pub const IN_PROGRESS: Code = 7;

/// Why a call failed. The ranks' disagreement is never among the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// `ncclSystemError`: a system call failed.
    System,
    /// `ncclInternalError`: a thread could not be started or ended by itself.
    Internal,
    /// `ncclInvalidArgument`.
    InvalidArgument,
    /// `ncclInvalidUsage`.
    InvalidUsage,
}

/// The result of a checked call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The `ncclResult_t` of this error.
    pub const fn code(self) -> Code {
        match self {
            Self::System => 2,
            Self::Internal => 3,
            Self::InvalidArgument => 4,
            Self::InvalidUsage => 5,
        }
    }
}

/// The text of a result code.
pub const fn code_text(code: Code) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (this library has none)",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"operation in progress",
        8 => c"operation timed out",
        _ => c"unknown result code",
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps `text` for `ncclGetLastError` and returns `error`.
pub fn fail<T>(error: Error, text: &str) -> Result<T> {
    // A NUL byte cannot be in `text`, which comes from this crate's own format strings; an empty message is the harmless fallback.
    LAST_ERROR.set(CString::new(text).unwrap_or_default());
    Err(error)
}

/// Pointer to the calling thread's last error text, valid until the next failing call of this thread.
pub fn last_error() -> *const std::ffi::c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// 0
    I8,
    /// 1
    U8,
    /// 2
    I32,
    /// 3
    U32,
    /// 4
    I64,
    /// 5
    U64,
    /// 6
    F16,
    /// 7
    F32,
    /// 8
    F64,
    /// 9
    Bf16,
    /// 10 and 11: eight-bit floats are moved, never reduced.
    F8,
}

impl DataType {
    /// The type of a C enumerator.
    pub fn from_c(value: c_int) -> Result<Self> {
        Ok(match value {
            0 => Self::I8,
            1 => Self::U8,
            2 => Self::I32,
            3 => Self::U32,
            4 => Self::I64,
            5 => Self::U64,
            6 => Self::F16,
            7 => Self::F32,
            8 => Self::F64,
            9 => Self::Bf16,
            10 | 11 => Self::F8,
            _ => return fail(Error::InvalidArgument, &format!("{value} is not an ncclDataType_t")),
        })
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// A reduction, resolved: a dynamic operator has been looked up on its communicator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RedOp {
    /// `ncclSum`
    Sum,
    /// `ncclProd`
    Prod,
    /// `ncclMax`
    Max,
    /// `ncclMin`
    Min,
    /// `ncclAvg`: a sum, divided by the number of ranks at the end.
    Avg,
    /// `ncclRedOpCreatePreMulSum`: each rank scales its own input. The scalar's bytes, in its type's representation.
    PreMulSum([u8; 8]),
}

/// The first `ncclRedOp_t` that names a dynamic operator; smaller values are built in.
pub const FIRST_DYNAMIC_OP: c_int = 5;

impl RedOp {
    /// The built-in operator of a C enumerator, `None` for a dynamic one.
    pub fn builtin(value: c_int) -> Result<Option<Self>> {
        Ok(Some(match value {
            0 => Self::Sum,
            1 => Self::Prod,
            2 => Self::Max,
            3 => Self::Min,
            4 => Self::Avg,
            FIRST_DYNAMIC_OP.. => return Ok(None),
            _ => return fail(Error::InvalidArgument, &format!("{value} is not an ncclRedOp_t")),
        }))
    }
}
