//! What a function's first instructions access, for libraries whose layouts are read off their code.
//!
//! Straight-line reading in the order of the file: branches are passed over, not followed, so this says what the code
//! accesses, never when. Not here: what an offset means (`rankdiff-libs`), where probes go (`prologue`).

use std::fs::File;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rankdiff_libs::spec::{Access, AccessKind, Binary};

use crate::elf::ElfInfo;
use crate::points::read_code;

/// Instructions of a function that are looked at.
const MOST_INSTRUCTIONS: usize = 48;
/// Argument registers, in order.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// An open file and its symbols.
pub(crate) struct Code<'a> {
    /// File.
    pub(crate) file: &'a File,
    /// Its symbols.
    pub(crate) elf: &'a ElfInfo,
}

impl Binary for Code<'_> {
    fn defines(&self, symbol: &str) -> bool {
        self.elf.defines(symbol)
    }

    fn accesses(&self, symbol: &str) -> Vec<Access> {
        let code = self.elf.function(symbol).and_then(|function| read_code(self.file, self.elf, function).ok());
        code.map_or(Vec::new(), |code| accesses(&code))
    }
}

/// The accesses of these instructions.
fn accesses(code: &[u8]) -> Vec<Access> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut overwritten = [false; ARGUMENTS.len()];
    let mut found = Vec::new();
    for _ in 0..MOST_INSTRUCTIONS {
        if !decoder.can_decode() {
            break;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            break;
        }
        found.extend(access(&instruction, &overwritten));
        for used in info.info(&instruction).used_registers() {
            let full = used.register().full_register();
            let written = !matches!(used.access(), iced_x86::OpAccess::Read | iced_x86::OpAccess::CondRead);
            for (argument, slot) in ARGUMENTS.iter().zip(&mut overwritten) {
                *slot |= written && *argument == full;
            }
        }
        // A call leaves nothing in the argument registers.
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            overwritten = [true; ARGUMENTS.len()];
        }
    }
    found
}

/// The access of one instruction relative to a register of the caller's choice.
fn access(instruction: &Instruction, overwritten: &[bool; ARGUMENTS.len()]) -> Option<Access> {
    let base = instruction.memory_base();
    let plain = instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
        && !matches!(base, Register::None | Register::RIP | Register::EIP | Register::RSP | Register::RBP);
    let to_memory = instruction.op0_kind() == OpKind::Memory;
    let from_memory = instruction.op1_kind() == OpKind::Memory;
    if !plain || !(to_memory || from_memory) {
        return None;
    }
    let offset = u16::try_from(instruction.memory_displacement64()).ok()?;
    let kind = match instruction.mnemonic() {
        Mnemonic::Lea => AccessKind::Address,
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd if from_memory => AccessKind::Load,
        Mnemonic::Mov if to_memory => AccessKind::Store,
        _ => return None,
    };
    let bytes = if kind == AccessKind::Address { 0 } else { instruction.memory_size().size() };
    let moved = if kind == AccessKind::Store { instruction.op1_register() } else { Register::None };
    let argument = ARGUMENTS
        .iter()
        .zip(overwritten)
        .position(|(register, overwritten)| *register == moved.full_register() && !overwritten);
    Some(Access {
        kind,
        offset,
        bytes: u8::try_from(bytes).ok()?,
        argument: argument.and_then(|index| u8::try_from(index).ok()),
    })
}

#[cfg(test)]
mod tests {
    use rankdiff_libs::spec::{Access, AccessKind};

    use super::accesses;

    fn access(kind: AccessKind, offset: u16, bytes: u8, argument: Option<u8>) -> Access {
        Access { kind, offset, bytes, argument }
    }

    #[test]
    fn loads_stores_and_addresses_are_told_apart() {
        // mov rax,[rdi+0x98]; movzx edi,word [rax+0xa0]; lea rax,[rbx+0x30]; mov [rbx+0x20],rax; ret
        let code = b"\x48\x8b\x87\x98\0\0\0\x0f\xb7\xb8\xa0\0\0\0\x48\x8d\x43\x30\x48\x89\x43\x20\xc3";
        let expected = [
            access(AccessKind::Load, 0x98, 8, None),
            access(AccessKind::Load, 0xa0, 2, None),
            access(AccessKind::Address, 0x30, 0, None),
            access(AccessKind::Store, 0x20, 8, None),
        ];
        assert_eq!(accesses(code), expected);
    }

    #[test]
    fn an_argument_counts_until_it_is_overwritten() {
        // mov [rdi+0x10],esi; mov edx,esi; mov [rdi+0x14],edx; call 0; mov [rbx+0x18],esi
        let code = b"\x89\x77\x10\x89\xf2\x89\x57\x14\xe8\0\0\0\0\x89\x73\x18";
        let expected = [
            access(AccessKind::Store, 0x10, 4, Some(1)),
            access(AccessKind::Store, 0x14, 4, None),
            access(AccessKind::Store, 0x18, 4, None),
        ];
        assert_eq!(accesses(code), expected);
    }

    #[test]
    fn the_stack_globals_and_bytes_that_are_no_code_are_passed_over() {
        // mov rax,[rsp+8]; mov rax,[rip+8]; mov rax,fs:[0x28]; mov [rdi-8],rax; an undefined instruction
        let code = b"\x48\x8b\x44\x24\x08\x48\x8b\x05\x08\0\0\0\x64\x48\x8b\x04\x25\x28\0\0\0\x48\x89\x47\xf8\x06";
        assert_eq!(accesses(code), []);
        assert_eq!(accesses(&[]), []);
    }
}
