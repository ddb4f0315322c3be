//! Element types and reductions, as a signature compares them.
//!
//! Codes are part of the file format (docs/format.md).

use std::fmt;

macro_rules! coded {
    ($(#[$meta:meta])* $enum:ident { $($variant:ident = $code:literal, $name:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each name says what it is")]
        pub enum $enum { $($variant = $code,)* }
        impl $enum {
            /// Every value, in the order of the codes.
            pub const ALL: &'static [$enum] = &[$($enum::$variant,)*];
            /// The code in the file format.
            pub fn code(self) -> u8 { self as u8 }
            /// The value with this code.
            pub fn from_code(code: u8) -> Option<$enum> {
                match code { $($code => Some($enum::$variant),)* _ => None }
            }
            /// The short name used in reports.
            pub fn name(self) -> &'static str { match self { $($enum::$variant => $name,)* } }
            /// The value of this name.
            pub fn from_name(name: &str) -> Option<$enum> {
                match name { $($name => Some($enum::$variant),)* _ => None }
            }
        }
        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

coded! {
    /// A basic element type.
    Basic {
        I8 = 1, "i8"; U8 = 2, "u8"; I16 = 3, "i16"; U16 = 4, "u16"; I32 = 5, "i32"; U32 = 6, "u32"; I64 = 7, "i64";
        U64 = 8, "u64"; I128 = 9, "i128"; U128 = 10, "u128"; F16 = 11, "f16"; Bf16 = 12, "bf16"; F32 = 13, "f32";
        F64 = 14, "f64"; F80 = 15, "f80"; F128 = 16, "f128"; F8E4M3 = 17, "f8e4m3"; F8E5M2 = 18, "f8e5m2";
        F8E8M0 = 19, "f8e8m0"; C64 = 20, "c64"; C128 = 21, "c128"; C256 = 22, "c256"; Bool = 23, "bool";
        Byte = 24, "byte"; Char = 25, "char"; Packed = 26, "packed"; F32I32 = 27, "f32_i32"; F64I32 = 28, "f64_i32";
        I64I32 = 29, "i64_i32"; I32I32 = 30, "i32_i32"; I16I32 = 31, "i16_i32"; Wchar = 32, "wchar";
        F80I32 = 33, "f80_i32"; Hif8 = 34, "hif8";
    }
}

impl Basic {
    /// Bytes that one element carries (without padding).
    pub fn size(self) -> u64 {
        match self {
            Basic::I8
            | Basic::U8
            | Basic::F8E4M3
            | Basic::F8E5M2
            | Basic::F8E8M0
            | Basic::Hif8
            | Basic::Bool
            | Basic::Byte
            | Basic::Char
            | Basic::Packed => 1,
            Basic::I16 | Basic::U16 | Basic::F16 | Basic::Bf16 => 2,
            Basic::I32 | Basic::U32 | Basic::F32 | Basic::Wchar => 4,
            Basic::I16I32 => 6,
            Basic::I64 | Basic::U64 | Basic::F64 | Basic::C64 | Basic::F32I32 | Basic::I32I32 => 8,
            Basic::F64I32 | Basic::I64I32 => 12,
            Basic::I128 | Basic::U128 | Basic::F80 | Basic::F128 | Basic::C128 => 16,
            Basic::F80I32 => 20,
            Basic::C256 => 32,
        }
    }
}

coded! {
    /// A predefined reduction.
    Reduction {
        Sum = 1, "sum"; Prod = 2, "prod"; Max = 3, "max"; Min = 4, "min"; Avg = 5, "avg"; Land = 6, "land";
        Band = 7, "band"; Lor = 8, "lor"; Bor = 9, "bor"; Lxor = 10, "lxor"; Bxor = 11, "bxor"; MaxLoc = 12, "maxloc";
        MinLoc = 13, "minloc"; Replace = 14, "replace"; NoOp = 15, "no_op";
    }
}

/// The element type of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum DType {
    /// The operation carries no elements, or the argument was not significant on this rank.
    #[default]
    None,
    /// A basic type.
    Basic(Basic),
    /// A derived type: index into the stream's type definitions ([`TypeDef`]).
    Derived(u32),
    /// The handle's value could not be turned into a type; equal values of one library mean equal types.
    Raw(u64),
}

/// A derived type, by what it transfers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TypeDef {
    /// Index that [`DType::Derived`] refers to.
    pub id: u32,
    /// Name for reports; empty if it has none.
    pub name: String,
    /// Bytes transferred per element; `None` if unknown.
    pub size: Option<u64>,
    /// The type signature: runs of (basic type, repetitions), adjacent runs merged; empty if unknown.
    pub runs: Vec<(Basic, u64)>,
}

/// The reduction of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RedOp {
    /// The operation has none.
    #[default]
    None,
    /// Predefined.
    Predefined(Reduction),
    /// Made at run time and local to a process (a pre-multiplied sum, a user function): compares equal to any other
    /// dynamic one, since handles and function addresses differ between processes.
    Dynamic,
    /// The handle's value could not be turned into a reduction.
    Raw(u64),
}

impl fmt::Display for RedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedOp::None => f.pad("-"),
            RedOp::Predefined(reduction) => f.pad(reduction.name()),
            RedOp::Dynamic => f.pad("dynamic"),
            RedOp::Raw(raw) => write!(f, "reduction {raw:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Basic, Reduction};

    #[test]
    fn codes_and_names_are_unique_and_invertible() {
        for &basic in Basic::ALL {
            assert_eq!(Basic::from_code(basic.code()), Some(basic));
            assert_eq!(Basic::from_name(basic.name()), Some(basic));
            assert!(basic.size() > 0);
        }
        for &reduction in Reduction::ALL {
            assert_eq!(Reduction::from_code(reduction.code()), Some(reduction));
            assert_eq!(Reduction::from_name(reduction.name()), Some(reduction));
        }
    }
}
