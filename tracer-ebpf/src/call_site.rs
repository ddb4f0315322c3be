//! The return address of a call, also where a return probe has already replaced it on the stack.

use aya_ebpf::helpers::generated::bpf_get_current_task;
use rankdiff_common::map::Config;

use crate::maps::config;
use crate::memory::read_kernel;

/// The kernel puts its trampoline into the highest page of the address space that is free, above the stack; no code
/// of a program lies there. (With five-level page tables only a program that asks for it gets higher addresses.)
const TRAMPOLINES_FROM: u64 = 0x7fff_ffff_d000;
/// Calls without a return so far that are searched.
const SEARCHED: usize = 4;

/// Where a call came from.
pub(crate) struct CallSite {
    /// Return address, 0 if not known.
    pub(crate) address: u64,
    /// Return probes that took this very return address (if that is not known, 1).
    pub(crate) return_probes: u32,
}

/// The call site from the word on the stack.
#[inline(always)]
pub(crate) fn call_site(return_word: u64, stack: u64) -> CallSite {
    if return_word < TRAMPOLINES_FROM {
        return CallSite { address: return_word, return_probes: 0 };
    }
    let mut found = CallSite { address: 0, return_probes: 0 };
    match config() {
        Some(config) if config.task_utask != 0 && search(config, stack, &mut found).is_some() => found,
        _ => CallSite { address: 0, return_probes: 1 },
    }
}

/// Searches the kernel's list of return addresses that it replaced in this thread, newest first.
#[inline(always)]
fn search(config: &Config, stack: u64, site: &mut CallSite) -> Option<()> {
    // SAFETY: no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let utask: u64 = read_kernel(task.wrapping_add(u64::from(config.task_utask)))?;
    let mut next: u64 = read_kernel(utask.wrapping_add(u64::from(config.utask_return_instances)))?;
    for _ in 0..SEARCHED {
        if next == 0 {
            break;
        }
        let at: u64 = read_kernel(next.wrapping_add(u64::from(config.return_stack)))?;
        if at == stack {
            site.address = read_kernel(next.wrapping_add(u64::from(config.return_address)))?;
            site.return_probes += 1;
        }
        next = read_kernel(next.wrapping_add(u64::from(config.return_next)))?;
    }
    (site.return_probes != 0).then_some(())
}
