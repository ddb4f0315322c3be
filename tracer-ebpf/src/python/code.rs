//! A code object as a record: names, first line, line table, all copied at first sight. It may be freed soon after.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use rankdiff_common::event::kind;
use rankdiff_common::map::{ThreadState, lost};
use rankdiff_common::python::{Code, FILE_BYTES, NAME_BYTES, PythonConfig, TABLE_BYTES};

use super::{mix, owner, text};
use crate::maps::CODES;
use crate::memory::read_user_or_zero;
use crate::output::{NOT_COUNTED, header, reserve, submit};

/// Sends a code object unless it is known; counts it as unsent if there was no room for it.
#[inline(never)]
pub(super) fn send(thread: &mut ThreadState, config: &PythonConfig, address: u64, stamp: u64) {
    let pid_tgid = bpf_get_current_pid_tgid();
    let id = mix(mix(owner(config, (pid_tgid >> 32) as u32), address), stamp);
    if CODES.get_ptr(&id).is_some() {
        return;
    }
    let Some(mut entry) = reserve::<Code>(lost::STACK) else {
        thread.python_unsent += 1;
        return;
    };
    fill(entry.as_mut_ptr(), config, address, stamp);
    submit(entry);
    let _ = CODES.insert(&id, &0, 0);
}

/// Writes the record.
#[inline(never)]
fn fill(record: *mut Code, config: &PythonConfig, address: u64, stamp: u64) {
    let at = |offset: u32| read_user_or_zero(address.wrapping_add(u64::from(offset)));
    // SAFETY: writable, by the caller.
    unsafe {
        (*record).header = header(kind::CODE, 0, 0, bpf_get_current_pid_tgid(), NOT_COUNTED);
        (*record).address = address;
        (*record).stamp = stamp;
        (*record).first_line = at(config.code_first_line) as u32;

        let file = text::string(config, at(config.code_file));
        let skipped = file.bytes.saturating_sub(FILE_BYTES as u64);
        let from = file.data.wrapping_add(skipped);
        (*record).file_length = file.length;
        (*record).file_state = file.state;
        (*record).file_error = text::copy::<FILE_BYTES>((&raw mut (*record).file).cast(), from, file.bytes);

        let name = text::string(config, at(config.code_name));
        (*record).name_length = name.length;
        (*record).name_state = name.state;
        (*record).name_error = text::copy::<NAME_BYTES>((&raw mut (*record).name).cast(), name.data, name.bytes);

        let (size, data) = text::bytes(at(config.code_lines));
        (*record).table_address = data;
        (*record).table_bytes = size;
        (*record).table_error = text::copy::<TABLE_BYTES>((&raw mut (*record).table).cast(), data, size);
    }
}
