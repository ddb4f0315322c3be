//! Offsets of kernel structure members, from the kernel's own type information (BTF).
//!
//! The eBPF programs are written in Rust, for which there is no relocation by the loader; they read these offsets from
//! their configuration. Only what that takes is read: structures, unions, their members. Every length is checked.

use std::fs;
use std::io;

use rankdiff_common::ABI_VERSION;
use rankdiff_common::map::Config;

/// Where the kernel puts its types.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
/// Deepest nesting of members without a name that is searched.
const MAX_DEPTH: u32 = 8;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_CONST: u32 = 10;
const KIND_VOLATILE: u32 = 9;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// The types could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("{KERNEL_BTF}: {0}; the kernel needs CONFIG_DEBUG_INFO_BTF=y")]
    Io(#[from] io::Error),
    /// It is damaged.
    #[error("{KERNEL_BTF}: damaged type information: {0}")]
    Damaged(&'static str),
}

/// A kernel's types.
#[derive(Debug)]
pub struct Types {
    bytes: Vec<u8>,
    /// Place of each type's record; types are numbered from 1.
    records: Vec<usize>,
    strings: (usize, usize),
}

/// Start of a type's record.
struct Record {
    at: usize,
    name: u32,
    info: u32,
}

impl Record {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn count(&self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Member offsets carry a width as well.
    fn bitfields(&self) -> bool {
        self.info >> 31 != 0
    }
}

impl Types {
    /// The running kernel's types.
    pub fn of_kernel() -> Result<Types, BtfError> {
        Types::parse(fs::read(KERNEL_BTF)?)
    }

    /// Reads types.
    pub fn parse(bytes: Vec<u8>) -> Result<Types, BtfError> {
        let damaged = BtfError::Damaged;
        let word = |at: usize| word(&bytes, at);
        let magic = word(0).ok_or(damaged("shorter than its header"))?;
        if magic as u16 != MAGIC {
            return Err(damaged("not BTF of this machine's byte order"));
        }
        let field = |at: usize| word(at).map(|value| value as usize).ok_or(damaged("shorter than its header"));
        let header = field(4)?;
        let section = |offset: usize, length: usize| {
            let start = header.checked_add(offset)?;
            let end = start.checked_add(length)?;
            (end <= bytes.len()).then_some((start, end))
        };
        let (start, end) = section(field(8)?, field(12)?).ok_or(damaged("types outside the file"))?;
        let strings = section(field(16)?, field(20)?).ok_or(damaged("names outside the file"))?;
        let mut types = Types { bytes, records: Vec::new(), strings };
        let mut at = start;
        while at < end {
            let record = types.record_at(at).ok_or(damaged("a type is cut off"))?;
            types.records.push(at);
            let trailer = trailer_bytes(&record).ok_or(damaged("a type of unknown kind"))?;
            at = at.checked_add(12 + trailer).filter(|&next| next <= end).ok_or(damaged("a type is cut off"))?;
        }
        Ok(types)
    }

    /// Offset in bytes of a member of the structure of this name, members of unnamed members included.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        (1..=self.records.len()).find_map(|id| {
            let record = self.record(id as u32)?;
            if record.kind() != KIND_STRUCT || self.name(record.name)? != structure.as_bytes() {
                return None;
            }
            self.offset_in(&record, member.as_bytes(), MAX_DEPTH)
        })
    }

    fn offset_in(&self, record: &Record, member: &[u8], depth: u32) -> Option<u32> {
        for index in 0..record.count() {
            let at = record.at + 12 + index * 12;
            let (name, kind, bits) = (word(&self.bytes, at)?, word(&self.bytes, at + 4)?, word(&self.bytes, at + 8)?);
            let bits = if record.bitfields() { bits & 0xff_ffff } else { bits };
            let name = self.name(name)?;
            if name == member {
                return Some(bits / 8);
            }
            if name.is_empty()
                && depth > 0
                && let Some(inner) = self.structure(kind)
                && let Some(offset) = self.offset_in(&inner, member, depth - 1)
            {
                return (bits / 8).checked_add(offset);
            }
        }
        None
    }

    /// The structure or union that a type is, behind qualifiers.
    fn structure(&self, id: u32) -> Option<Record> {
        let mut record = self.record(id)?;
        for _ in 0..MAX_DEPTH {
            match record.kind() {
                KIND_STRUCT | KIND_UNION => return Some(record),
                KIND_CONST | KIND_VOLATILE | KIND_TYPEDEF | KIND_TYPE_TAG => {
                    record = self.record(word(&self.bytes, record.at + 8)?)?;
                }
                _ => return None,
            }
        }
        None
    }

    fn record(&self, id: u32) -> Option<Record> {
        self.record_at(*self.records.get((id as usize).checked_sub(1)?)?)
    }

    fn record_at(&self, at: usize) -> Option<Record> {
        Some(Record { at, name: word(&self.bytes, at)?, info: word(&self.bytes, at + 4)? })
    }

    fn name(&self, offset: u32) -> Option<&[u8]> {
        let (start, end) = self.strings;
        let rest = self.bytes.get(start.checked_add(offset as usize)?..end)?;
        rest.split(|&byte| byte == 0).next()
    }
}

/// The eBPF programs' settings for this kernel. What its types do not have stays 0: the programs then do without.
pub fn config(types: &Types) -> Config {
    let offset = |structure: &str, member: &str| types.offset(structure, member).unwrap_or(0);
    let mut config = Config {
        abi: ABI_VERSION,
        task_exit_code: offset("task_struct", "exit_code"),
        task_tgid: offset("task_struct", "tgid"),
        task_pid: offset("task_struct", "pid"),
        task_signal: offset("task_struct", "signal"),
        signal_live: offset("signal_struct", "live"),
        task_utask: offset("task_struct", "utask"),
        utask_return_instances: offset("uprobe_task", "return_instances"),
        return_address: offset("return_instance", "orig_ret_vaddr"),
        return_stack: offset("return_instance", "stack"),
        return_next: offset("return_instance", "next"),
        task_fsbase: 0,
    };
    if let (Some(thread), Some(fsbase)) =
        (types.offset("task_struct", "thread"), types.offset("thread_struct", "fsbase"))
    {
        config.task_fsbase = thread.saturating_add(fsbase);
    }
    // Offset 0 may be right within these, so it is the way to them that says whether they are known.
    let known =
        ["orig_ret_vaddr", "stack", "next"].iter().all(|member| types.offset("return_instance", member).is_some());
    if !known || types.offset("uprobe_task", "return_instances").is_none() {
        config.task_utask = 0;
    }
    config
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes that follow the 12 of every record.
fn trailer_bytes(record: &Record) -> Option<usize> {
    let count = record.count();
    Some(match record.kind() {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => count * 12,
        KIND_ENUM | KIND_FUNC_PROTO => count * 8,
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | KIND_TYPE_TAG => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{KERNEL_BTF, Types, config};

    /// A structure `outer { int a; struct { int b; int c; }; }`, its inner one unnamed.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0a\0b\0c\0";
        let words: &[u32] = &[
            // 1: int
            1,
            1 << 24,
            4,
            32, //
            // 2: struct { int b; int c; }
            0,
            4 << 24 | 2,
            8,
            13,
            1,
            0,
            15,
            1,
            32, //
            // 3: struct outer { int a; <2>; }
            5,
            4 << 24 | 2,
            12,
            11,
            1,
            0,
            0,
            2,
            32,
        ];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let types = words.len() as u32 * 4;
        for word in [24, 0, types, types, strings.len() as u32].iter().chain(words) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(strings);
        bytes
    }

    #[test]
    fn members_of_unnamed_members_are_found() {
        let types = Types::parse(sample()).expect("valid");
        assert_eq!(types.offset("outer", "a"), Some(0));
        assert_eq!(types.offset("outer", "b"), Some(4));
        assert_eq!(types.offset("outer", "c"), Some(8));
        assert_eq!(types.offset("outer", "d"), None);
        assert_eq!(types.offset("other", "a"), None);
    }

    #[test]
    fn the_running_kernel_has_what_the_programs_need() {
        if !std::path::Path::new(KERNEL_BTF).exists() {
            crate::skip::skipped(format_args!("this kernel has no {KERNEL_BTF}"));
            return;
        }
        let config = config(&Types::of_kernel().expect("readable"));
        assert!(config.task_tgid > 0 && config.task_exit_code > 0 && config.task_signal > 0, "{config:?}");
        assert!(config.task_pid > 0 && config.task_utask > 0 && config.task_fsbase > 0, "{config:?}");
        assert_eq!(config.task_tgid, config.task_pid + 4, "pid and tgid are neighbours: {config:?}");
    }

    proptest! {
        #[test]
        fn damaged_types_are_refused_without_panic(cut in 0..200_usize, at in 0..200_usize, byte in any::<u8>()) {
            let mut bytes = sample();
            bytes.truncate(cut);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            if let Ok(types) = Types::parse(bytes) {
                types.offset("outer", "c");
            }
        }
    }
}
