//! The arithmetic of reductions, element by element, over buffers of any alignment.

use crate::types::{DataType, RedOp};

/// One element type. Integers wrap, half-precision types compute in `f32` and round to nearest even.
trait Element: Copy {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn divide(self, ranks: usize) -> Self;
}

macro_rules! integer {
    ($($name:ty => $wide:ty),*) => {$(
        impl Element for $name {
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn max(self, other: Self) -> Self { Ord::max(self, other) }
            fn min(self, other: Self) -> Self { Ord::min(self, other) }
            // In the wide type, since the number of ranks may not fit an element.
            fn divide(self, ranks: usize) -> Self { (<$wide>::from(self) / ranks as $wide) as Self }
        }
    )*};
}
integer!(i8 => i64, u8 => u64, i32 => i64, u32 => u64, i64 => i64, u64 => u64);

macro_rules! float {
    ($($name:ty),*) => {$(
        impl Element for $name {
            fn add(self, other: Self) -> Self { self + other }
            fn mul(self, other: Self) -> Self { self * other }
            fn max(self, other: Self) -> Self { self.max(other) }
            fn min(self, other: Self) -> Self { self.min(other) }
            fn divide(self, ranks: usize) -> Self { self / ranks as Self }
        }
    )*};
}
float!(f32, f64);

/// IEEE half precision.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct F16(u16);

/// The upper half of an `f32`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bf16(u16);

impl F16 {
    fn widen(self) -> f32 {
        let sign = u32::from(self.0 >> 15) << 31;
        let exponent = u32::from(self.0 >> 10) & 0x1f;
        let fraction = u32::from(self.0) & 0x3ff;
        match exponent {
            // Zero and subnormals are multiples of 2^-24, which f32 holds exactly.
            0 => f32::from_bits((fraction as f32 / 16_777_216.0).to_bits() | sign),
            31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
            _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
        }
    }

    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return Self(sign | 0x7e00);
        }
        // 65,520 and more rounds to infinity.
        if magnitude >= 0x477f_f000 {
            return Self(sign | 0x7c00);
        }
        let half = if magnitude < 0x3880_0000 {
            // Below 2^-14 the result counts 2^-24ths; the product is exact and adding 2^23 rounds it to an integer.
            let scaled = f32::from_bits(magnitude) * 16_777_216.0;
            ((scaled + 8_388_608.0).to_bits() & 0x7f_ffff) as u16
        } else {
            let rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
            ((rounded >> 13) - (112 << 10)) as u16
        };
        Self(sign | half)
    }
}

impl Bf16 {
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

macro_rules! half {
    ($($name:ident),*) => {$(
        impl Element for $name {
            fn add(self, other: Self) -> Self { Self::narrow(self.widen() + other.widen()) }
            fn mul(self, other: Self) -> Self { Self::narrow(self.widen() * other.widen()) }
            fn max(self, other: Self) -> Self { Self::narrow(self.widen().max(other.widen())) }
            fn min(self, other: Self) -> Self { Self::narrow(self.widen().min(other.widen())) }
            fn divide(self, ranks: usize) -> Self { Self::narrow(self.widen() / ranks as f32) }
        }
    )*};
}
half!(F16, Bf16);

/// Runs `$body` with `$element` standing for the Rust type of `$data_type`; eight-bit floats, which the API refuses to reduce, do nothing.
macro_rules! with_element {
    ($data_type:expr, $element:ident => $body:expr) => {
        match $data_type {
            DataType::I8 => {
                type $element = i8;
                $body
            }
            DataType::U8 => {
                type $element = u8;
                $body
            }
            DataType::I32 => {
                type $element = i32;
                $body
            }
            DataType::U32 => {
                type $element = u32;
                $body
            }
            DataType::I64 => {
                type $element = i64;
                $body
            }
            DataType::U64 => {
                type $element = u64;
                $body
            }
            DataType::F16 => {
                type $element = F16;
                $body
            }
            DataType::F32 => {
                type $element = f32;
                $body
            }
            DataType::F64 => {
                type $element = f64;
                $body
            }
            DataType::Bf16 => {
                type $element = Bf16;
                $body
            }
            DataType::F8 => {}
        }
    };
}

/// One rank's own input as it enters a reduction: scaled for a pre-multiplied sum, else unchanged.
///
/// # Safety
/// `input` is readable and `output` writable for `len` elements; they may be the same.
pub unsafe fn prepare(op: RedOp, data_type: DataType, input: *const u8, output: *mut u8, len: usize) {
    if let RedOp::PreMulSum(scalar) = op {
        // SAFETY: as promised by the caller; the scalar has eight bytes, the size of the largest element.
        with_element!(data_type, T => unsafe { map::<T>(input, output, len, |x| x.mul(scalar.as_ptr().cast::<T>().read_unaligned())) });
    } else {
        // SAFETY: as promised by the caller; `copy` allows overlap.
        unsafe { input.copy_to(output, len * data_type.size()) };
    }
}

/// `output = partial (op) prepare(input)`.
///
/// # Safety
/// `partial` and `input` are readable and `output` writable for `len` elements; `output` may be one of the other two.
pub unsafe fn combine(
    op: RedOp,
    data_type: DataType,
    partial: *const u8,
    input: *const u8,
    output: *mut u8,
    len: usize,
) {
    // SAFETY: as promised by the caller; the scalar has eight bytes, the size of the largest element.
    with_element!(data_type, T => unsafe {
        match op {
            RedOp::Sum | RedOp::Avg => zip::<T>(partial, input, output, len, Element::add),
            RedOp::Prod => zip::<T>(partial, input, output, len, Element::mul),
            RedOp::Max => zip::<T>(partial, input, output, len, Element::max),
            RedOp::Min => zip::<T>(partial, input, output, len, Element::min),
            RedOp::PreMulSum(scalar) => {
                let scalar = scalar.as_ptr().cast::<T>().read_unaligned();
                zip::<T>(partial, input, output, len, |sum, x| sum.add(x.mul(scalar)));
            }
        }
    });
}

/// What remains to be done to a complete reduction: the division of an average.
///
/// # Safety
/// `buffer` is readable and writable for `len` elements.
pub unsafe fn finish(op: RedOp, data_type: DataType, buffer: *mut u8, len: usize, ranks: usize) {
    if op == RedOp::Avg {
        // SAFETY: as promised by the caller.
        with_element!(data_type, T => unsafe { map::<T>(buffer, buffer, len, |x| x.divide(ranks)) });
    }
}

/// # Safety
/// `input` is readable and `output` writable for `len` elements of `T`, at any alignment.
unsafe fn map<T: Element>(input: *const u8, output: *mut u8, len: usize, f: impl Fn(T) -> T) {
    let (input, output) = (input.cast::<T>(), output.cast::<T>());
    for i in 0..len {
        // SAFETY: as promised by the caller.
        unsafe { output.add(i).write_unaligned(f(input.add(i).read_unaligned())) };
    }
}

/// # Safety
/// `a` and `b` are readable and `output` writable for `len` elements of `T`, at any alignment.
unsafe fn zip<T: Element>(a: *const u8, b: *const u8, output: *mut u8, len: usize, f: impl Fn(T, T) -> T) {
    let (a, b, output) = (a.cast::<T>(), b.cast::<T>(), output.cast::<T>());
    for i in 0..len {
        // SAFETY: as promised by the caller.
        unsafe { output.add(i).write_unaligned(f(a.add(i).read_unaligned(), b.add(i).read_unaligned())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_a_round_trip() {
        for bits in 0..=u16::MAX {
            let half = F16(bits);
            if !half.widen().is_nan() {
                assert_eq!(F16::narrow(half.widen()).0, bits);
            }
            if !Bf16(bits).widen().is_nan() {
                assert_eq!(Bf16::narrow(Bf16(bits).widen()).0, bits);
            }
        }
    }

    #[test]
    fn halves_round_to_nearest_even() {
        assert_eq!(F16::narrow(1.0).0, 0x3c00);
        assert_eq!(F16::narrow(2049.0).0, F16::narrow(2048.0).0);
        assert_eq!(F16::narrow(2051.0).0, F16::narrow(2052.0).0);
        assert_eq!(F16::narrow(65_519.0).0, 0x7bff);
        assert_eq!(F16::narrow(65_520.0).0, 0x7c00);
        assert_eq!(F16::narrow(-1.0e-8).0, 0x8000);
        assert_eq!(F16::narrow(6.0e-8).0, 1);
        assert!(F16::narrow(f32::NAN).widen().is_nan());
        assert_eq!(Bf16::narrow(257.0).0, Bf16::narrow(256.0).0);
        assert!(Bf16::narrow(f32::NAN).widen().is_nan());
    }

    #[test]
    fn integers_wrap_and_average_in_a_wide_type() {
        assert_eq!(Element::add(i8::MAX, 1), i8::MIN);
        assert_eq!(Element::divide(100_i8, 200), 0);
        assert_eq!(Element::divide(-7_i32, 2), -3);
    }
}
