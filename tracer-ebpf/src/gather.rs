//! Values behind pointers: follows the chains of a probe and puts what it finds side by side into one region.
//!
//! What a chain means is user space's business; here a pointer that cannot be followed only leaves its bit unset.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use rankdiff_common::probe::{Chain, Chains, LONG_REGION, MAX_CHAINS, MAX_REGIONS, MAX_STEPS};

use crate::maps::CHAINS;
use crate::memory::{masked, read_user, read_user_into};
use crate::values::Values;

// A chain's place and size are masked, each to less than one region; together they stay inside the two that a record has.
const _: () = assert!(LONG_REGION.is_power_of_two() && MAX_REGIONS == 2 && MAX_CHAINS <= 64);
const MASK: u64 = LONG_REGION as u64 - 1;

/// Fills the first region of a record and gives its size; 0: the probe has no chains.
#[inline(always)]
pub(crate) fn gather(regions: *mut [[u8; LONG_REGION]; MAX_REGIONS], probe: u32, values: &mut Values) -> u32 {
    let Some(chains) = CHAINS.get(probe) else { return 0 };
    // A read at address 0 fails, and a read that fails leaves zeros.
    // SAFETY: the record is writable.
    read_user_into(unsafe { &raw mut (*regions)[0] }, 0);
    let mask = follow_all(regions.cast(), chains, values);
    // SAFETY: the mask's bytes are the first of the region, which is aligned to 8 bytes in the record.
    unsafe { regions.cast::<u64>().write(mask) };
    LONG_REGION as u32
}

#[inline(always)]
fn follow_all(region: *mut u8, chains: &Chains, values: &mut Values) -> u64 {
    let mut mask = 0;
    for index in 0..MAX_CHAINS {
        let chain = &chains.chains[index];
        if chain.bytes == 0 {
            break;
        }
        if follow(region, chain, values).is_some() {
            mask |= 1 << index;
        }
    }
    mask
}

#[inline(always)]
fn follow(region: *mut u8, chain: &Chain, values: &mut Values) -> Option<()> {
    let mut address = values.get(chain.source)?;
    let mut offset = chain.offsets[0];
    for step in 0..MAX_STEPS {
        if step < usize::from(chain.steps) {
            address = read_user(address.wrapping_add(u64::from(offset)))?;
            offset = chain.offsets[step + 1];
        }
    }
    let into = masked::<MASK>(usize::from(chain.into));
    let bytes = masked::<MASK>(usize::from(chain.bytes)) as u32;
    let address = address.wrapping_add(u64::from(offset));
    // SAFETY: inside the record's two regions, as asserted above. The kernel checks the address.
    let failed = unsafe { bpf_probe_read_user(region.add(into).cast(), bytes, address as *const _) };
    (failed == 0).then_some(())
}
