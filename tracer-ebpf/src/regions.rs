//! Memory regions of an entry record.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use rankdiff_common::probe::{LONG_REGION, ProbeDesc, Region, SHORT_REGION, region};

use crate::memory::read_user_into;
use crate::values::Values;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Which record holds the regions of a description.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// There are none.
    None,
    /// One short region, the one with this index.
    Short(usize),
    /// A long region, or two.
    Long,
}

/// The record that holds the regions of a description.
#[inline(always)]
pub(crate) fn shape(desc: &ProbeDesc) -> Shape {
    match (desc.regions[0].mode, desc.regions[1].mode) {
        (region::NONE, region::NONE) => Shape::None,
        (region::SHORT | region::SHORT_BY_VALUE, region::NONE) => Shape::Short(0),
        (region::NONE, region::SHORT | region::SHORT_BY_VALUE) => Shape::Short(1),
        _ => Shape::Long,
    }
}

/// Fills a short region, with zeros if it cannot be read.
#[inline(always)]
pub(crate) fn read_short(into: *mut [u8; SHORT_REGION], region: Region, values: &mut Values) -> bool {
    // A read at address 0 fails, and a read that fails leaves zeros.
    read_user_into(into, address(region, values).unwrap_or(0))
}

/// Fills a long region as far as it can be read, the rest with zeros, and gives the number of bytes read.
#[inline(always)]
pub(crate) fn read_long(into: *mut [u8; LONG_REGION], region: Region, values: &mut Values) -> u32 {
    let address = address(region, values).unwrap_or(0);
    if read_user_into(into, address) {
        return LONG_REGION as u32;
    }
    // What may be missing is the next page.
    let left = (PAGE - (address & (PAGE - 1))) as u32;
    if left >= LONG_REGION as u32 {
        return 0;
    }
    // SAFETY: writable for LONG_REGION bytes; `left` is smaller. The kernel checks the address.
    let failed = unsafe { bpf_probe_read_user(into.cast(), left, address as *const _) };
    if failed == 0 { left } else { 0 }
}

/// Address of a region.
#[inline(always)]
fn address(region: Region, values: &mut Values) -> Option<u64> {
    match region.mode {
        region::NONE => None,
        region::SHORT_BY_VALUE => values.slot_address(region.source),
        _ => values.get(region.source),
    }
}
