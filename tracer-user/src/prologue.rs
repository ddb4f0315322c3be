//! Where the probes of a function go: decodes its first instructions.
//!
//! A breakpoint on an instruction that the kernel emulates costs a fraction of one on an instruction that it has to
//! single-step, which matters most in virtual machines. So the entry probe moves to the first emulated instruction of
//! the straight-line start of the function, as long as everything that the entry program reads is still in its place:
//! argument registers, the return address and stack arguments (the description carries by how much the stack pointer
//! moved). The return probe replaces the return address at the top of the stack, so it must run while the stack pointer
//! still points there: it moves along only over instructions that leave the stack pointer alone (endbr64 above all).
//! Past a push it would overwrite a saved register of the caller.
//!
//! Not here: which functions are probed (`points`).

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

/// What a probe costs where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PointCost {
    /// The kernel emulates the instruction.
    Emulated,
    /// The kernel single-steps the instruction.
    Stepped,
}

/// Where an entry probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// Bytes from the function's start.
    pub delta: u64,
    /// Bytes that the instructions before it took from the stack pointer.
    pub stack_shift: u16,
    /// Cost.
    pub cost: PointCost,
}

/// Where a return probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitPoint {
    /// Bytes from the function's start.
    pub delta: u64,
    /// Cost.
    pub cost: PointCost,
}

/// What the kernel can do with an instruction under a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRules {
    /// Emulates the long forms of nop (`0f 1f`); Linux 6.18 and newer.
    pub long_nops: bool,
}

impl KernelRules {
    /// The rules of a kernel release.
    pub fn of_release(major: u32, minor: u32) -> KernelRules {
        KernelRules { long_nops: (major, minor) >= (6, 18) }
    }

    /// Whether the kernel emulates the instruction that these bytes are (`arch/x86/kernel/uprobes.c`: the branch and
    /// push operations).
    pub fn emulates(self, instruction: &[u8]) -> bool {
        if !accepts(instruction) {
            return false;
        }
        let plain = instruction.iter().position(|&byte| !is_legacy_prefix(byte)).unwrap_or(instruction.len());
        let (prefixes, code) = instruction.split_at_checked(plain).unwrap_or((instruction, &[]));
        match code {
            // push of a register: no prefix but REX.B alone.
            [0x50..=0x57] | [0x41, 0x50..=0x57] => prefixes.is_empty(),
            // nop, with any operand-size prefixes; with f3 it is pause.
            [0x90] => prefixes.iter().all(|&byte| byte == 0x66),
            [0x0f, 0x1f, ..] => self.long_nops,
            // call and jumps; with an operand-size prefix they are refused.
            [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => !prefixes.contains(&0x66),
            _ => false,
        }
    }
}

/// Longest straight-line start that is looked through.
const MAX_PROLOGUE: u64 = 160;
/// Longest body that is searched for branches back into the start.
const MAX_BODY: usize = 1 << 16;

/// Places the probes of the function whose code begins with `code`.
///
/// `code` should be the whole body, as far as the symbol tells its size: branches in it that lead back into its start
/// bound how far a probe may move.
pub fn locate(code: &[u8], rules: KernelRules) -> (EntryPoint, ExitPoint) {
    let cost = |delta: u64| match instruction_at(code, delta) {
        Some(bytes) if rules.emulates(bytes) => PointCost::Emulated,
        _ => PointCost::Stepped,
    };
    let entry = entry_point(code, rules).unwrap_or(EntryPoint { delta: 0, stack_shift: 0, cost: PointCost::Stepped });
    // What was passed left the stack pointer and the return address alone, unless the pointer was moved.
    let exit = if entry.stack_shift == 0 { entry.delta } else { 0 };
    (entry, ExitPoint { delta: exit, cost: cost(exit) })
}

/// Whether the kernel puts a probe on the instruction at this place at all. It looks only when the file is mapped, and
/// says nothing then: a probe on another instruction never fires.
pub fn takes_probe(code: &[u8], delta: u64) -> bool {
    instruction_at(code, delta).is_some_and(accepts)
}

/// The first instruction of the straight-line start that the kernel emulates; if there is none, the first that it
/// accepts.
fn entry_point(code: &[u8], rules: KernelRules) -> Option<EntryPoint> {
    let mut walk = Walk::new(code);
    let mut fallback = None;
    let mut bound = None;
    loop {
        let (delta, bytes, instruction) = walk.next()?;
        if delta > 0 {
            // Found out only when the first instruction does not do: most functions begin with a push.
            let bound = *bound.get_or_insert_with(|| first_inner_target(code));
            if delta >= bound {
                return fallback;
            }
        }
        let point = |cost| EntryPoint { delta, stack_shift: walk.shift, cost };
        if rules.emulates(bytes) {
            return Some(point(PointCost::Emulated));
        }
        if fallback.is_none() && accepts(bytes) {
            fallback = Some(point(PointCost::Stepped));
        }
        if !walk.pass(&instruction) {
            return fallback;
        }
    }
}

/// The state of a walk through the straight-line start of a function.
struct Walk<'a> {
    code: &'a [u8],
    decoder: Decoder<'a>,
    info: InstructionInfoFactory,
    /// Bytes taken from the stack pointer so far.
    shift: u16,
    /// How far below its value at the entry the frame pointer is, once it was set from the stack pointer.
    frame: Option<u16>,
}

impl<'a> Walk<'a> {
    fn new(code: &'a [u8]) -> Walk<'a> {
        Walk {
            code,
            decoder: Decoder::with_ip(64, code, 0, DecoderOptions::NONE),
            info: InstructionInfoFactory::new(),
            shift: 0,
            frame: None,
        }
    }

    /// The next instruction: its place, its bytes, itself.
    fn next(&mut self) -> Option<(u64, &'a [u8], Instruction)> {
        if !self.decoder.can_decode() || self.decoder.ip() >= MAX_PROLOGUE {
            return None;
        }
        let start = self.decoder.position();
        let delta = self.decoder.ip();
        let instruction = self.decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        Some((delta, self.code.get(start..self.decoder.position())?, instruction))
    }

    /// Takes the instruction's effect into account; `false` if what the entry program reads may not be in its place
    /// after it.
    fn pass(&mut self, instruction: &Instruction) -> bool {
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
        let pointer_written = self
            .info
            .info(instruction)
            .used_registers()
            .iter()
            .any(|used| is_write(used.access()) && used.register().full_register() == Register::RSP);
        let before = self.shift;
        if pointer_written {
            let Some(shift) = moved_stack(instruction, self.shift) else { return false };
            self.shift = shift;
        }
        let info = self.info.info(instruction);
        for used in info.used_registers() {
            if !is_write(used.access()) {
                continue;
            }
            match used.register().full_register() {
                Register::RDI | Register::RSI | Register::RDX | Register::RCX | Register::R8 | Register::R9 => {
                    return false;
                }
                Register::RBP => {
                    let from_stack =
                        instruction.code() == Code::Mov_r64_rm64 || instruction.code() == Code::Mov_rm64_r64;
                    let from_stack = from_stack
                        && instruction.op0_register() == Register::RBP
                        && instruction.op1_register() == Register::RSP;
                    self.frame = from_stack.then_some(before);
                }
                _ => {}
            }
        }
        // A store must not reach what is read: it has to lie below the return address, in the function's own frame. The
        // store of a push does by construction.
        info.used_memory().iter().filter(|used| is_write(used.access())).all(|used| {
            if pointer_written {
                return true;
            }
            let base = match used.base() {
                Register::RSP => Some(self.shift),
                Register::RBP => self.frame,
                _ => None,
            };
            let (Some(base), Register::None) = (base, used.index()) else { return false };
            let size = i64::try_from(used.memory_size().size()).unwrap_or(i64::MAX);
            (used.displacement() as i64)
                .checked_sub(i64::from(base))
                .and_then(|start| start.checked_add(size.max(1)))
                .is_some_and(|end| end <= 0)
        })
    }
}

/// The shift after an instruction that moves the stack pointer by a fixed number of bytes downwards.
fn moved_stack(instruction: &Instruction, shift: u16) -> Option<u16> {
    let down = match instruction.code() {
        Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm32 | Code::Pushq_imm8 => 8,
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32
            if instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP =>
        {
            i64::try_from(instruction.immediate(1)).ok()?
        }
        Code::Lea_r64_m
            if instruction.op0_register() == Register::RSP
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            (instruction.memory_displacement64() as i64).checked_neg()?
        }
        _ => return None,
    };
    if down < 0 {
        return None;
    }
    u16::try_from(down).ok()?.checked_add(shift)
}

fn is_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// The lowest place after the first byte that a branch of the body leads to: code from there on runs more than once
/// per call, or without what comes before.
fn first_inner_target(code: &[u8]) -> u64 {
    let code = code.get(..MAX_BODY).unwrap_or(code);
    let end = code.len() as u64;
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut lowest = u64::MAX;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let branch =
            matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
        let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
        if branch && near {
            let target = instruction.near_branch_target();
            if target > 0 && target < end {
                lowest = lowest.min(target);
            }
        }
    }
    lowest
}

/// The bytes of the instruction at this place.
fn instruction_at(code: &[u8], delta: u64) -> Option<&[u8]> {
    let rest = code.get(usize::try_from(delta).ok()?..)?;
    let instruction = Decoder::new(64, rest, DecoderOptions::NONE).decode();
    if instruction.is_invalid() { None } else { rest.get(..instruction.len()) }
}

/// Whether the kernel puts a probe on the instruction at all: it refuses lock and most segment prefixes.
fn accepts(instruction: &[u8]) -> bool {
    !instruction
        .iter()
        .take_while(|&&byte| is_legacy_prefix(byte))
        .any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
}

fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests;
