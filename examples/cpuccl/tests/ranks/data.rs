//! Elements as numbers, written without the library's own arithmetic.

use std::ffi::c_int;

const I8: c_int = 0;
const U8: c_int = 1;
const I32: c_int = 2;
const U32: c_int = 3;
const I64: c_int = 4;
const U64: c_int = 5;
const F16: c_int = 6;
const F32: c_int = 7;
const F64: c_int = 8;
/// The number of types that reductions know; `ncclBfloat16` is the last.
pub(crate) const TYPES: c_int = 10;

/// Bytes per element.
pub(crate) fn size(data_type: c_int) -> usize {
    match data_type {
        I8 | U8 => 1,
        I32 | U32 | F32 => 4,
        I64 | U64 | F64 => 8,
        _ => 2,
    }
}

/// Whether an average is exact down to the integer below.
pub(crate) fn is_integer(data_type: c_int) -> bool {
    data_type <= U64
}

/// How far a result may be off, relative to its size: the halves round.
pub(crate) fn tolerance(data_type: c_int) -> f64 {
    match data_type {
        F32 => 1e-6,
        F64 => 1e-12,
        _ if is_integer(data_type) => 0.0,
        _ => 1e-2,
    }
}

/// Appends a small positive integer as an element.
pub(crate) fn encode(data_type: c_int, value: u8, out: &mut Vec<u8>) {
    // 2^exponent is the greatest power of two in the value; what is left of it fills the mantissa from the top.
    let exponent = value.max(1).ilog2();
    let fraction = u16::from(value) - (1 << exponent);
    match data_type {
        I8 | U8 => out.push(value),
        I32 | U32 => out.extend(u32::from(value).to_le_bytes()),
        I64 | U64 => out.extend(u64::from(value).to_le_bytes()),
        F16 => out.extend((((exponent as u16 + 15) << 10) | (fraction << (10 - exponent))).to_le_bytes()),
        F32 => out.extend(f32::from(value).to_le_bytes()),
        F64 => out.extend(f64::from(value).to_le_bytes()),
        _ => out.extend((((exponent as u16 + 127) << 7) | (fraction << (7 - exponent))).to_le_bytes()),
    }
}

/// The value of one element.
pub(crate) fn decode(data_type: c_int, bytes: &[u8]) -> f64 {
    fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("the element's size")
    }
    let half = |mantissa_bits: i32, bias: i32| {
        let bits = i32::from(u16::from_le_bytes(fixed(bytes)));
        let one = 1 << mantissa_bits;
        f64::from(one + bits % one) * 2_f64.powi((bits >> mantissa_bits) - bias - mantissa_bits)
    };
    match data_type {
        I8 => f64::from(i8::from_le_bytes(fixed(bytes))),
        U8 => f64::from(bytes[0]),
        I32 => f64::from(i32::from_le_bytes(fixed(bytes))),
        U32 => f64::from(u32::from_le_bytes(fixed(bytes))),
        I64 => i64::from_le_bytes(fixed(bytes)) as f64,
        U64 => u64::from_le_bytes(fixed(bytes)) as f64,
        F16 => half(10, 15),
        F32 => f64::from(f32::from_le_bytes(fixed(bytes))),
        F64 => f64::from_le_bytes(fixed(bytes)),
        _ => half(7, 127),
    }
}
