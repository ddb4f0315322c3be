//! Probe points on hand-written code, on what gcc makes, and on every function of the installed MPI libraries, the last
//! against a rule of its own over objdump's text.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::{EntryPoint, ExitPoint, KernelRules, PointCost, locate};
use crate::elf::{ElfInfo, FunctionSymbol};

const OLD: KernelRules = KernelRules { long_nops: false };
const NEW: KernelRules = KernelRules { long_nops: true };

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const RET: &[u8] = &[0xc3];
const PUSH_RBP: &[u8] = &[0x55];
const PUSH_R15: &[u8] = &[0x41, 0x57];

fn emulated(delta: u64, stack_shift: u16) -> EntryPoint {
    EntryPoint { delta, stack_shift, cost: PointCost::Emulated }
}

const STEPPED: EntryPoint = EntryPoint { delta: 0, stack_shift: 0, cost: PointCost::Stepped };

fn exit(delta: u64, cost: PointCost) -> ExitPoint {
    ExitPoint { delta, cost }
}

fn at(parts: &[&[u8]], rules: KernelRules) -> (EntryPoint, ExitPoint) {
    locate(&parts.concat(), rules)
}

#[test]
fn a_push_first_takes_both_probes() {
    assert_eq!(at(&[PUSH_RBP, RET], OLD), (emulated(0, 0), exit(0, PointCost::Emulated)));
    assert_eq!(at(&[PUSH_R15, RET], OLD), (emulated(0, 0), exit(0, PointCost::Emulated)));
}

#[test]
fn endbr64_is_passed_by_both_probes() {
    assert_eq!(at(&[ENDBR64, PUSH_RBP, RET], OLD), (emulated(4, 0), exit(4, PointCost::Emulated)));
    assert_eq!(at(&[ENDBR64, RET], OLD), (STEPPED, exit(0, PointCost::Stepped)));
}

#[test]
fn the_return_probe_stays_before_a_change_of_the_stack_pointer() {
    // sub $0x28,%rsp; call
    let code: &[&[u8]] = &[&[0x48, 0x83, 0xec, 0x28], &[0xe8, 0, 0, 0, 0], RET];
    assert_eq!(at(code, OLD), (emulated(4, 0x28), exit(0, PointCost::Stepped)));
    // push $1 (not emulated); push %rbp
    assert_eq!(at(&[&[0x6a, 1], PUSH_RBP, RET], OLD), (emulated(2, 8), exit(0, PointCost::Stepped)));
    // push %fs (by its two-byte form) is not understood
    assert_eq!(at(&[&[0x0f, 0xa0], PUSH_RBP, RET], OLD), (STEPPED, exit(0, PointCost::Stepped)));
}

#[test]
fn an_argument_register_is_never_passed_once_it_is_written() {
    // mov %rsi,%rdi; xor %edx,%edx; lea 8(%rsp),%r9; movzbl %cl,%ecx; xchg %r8,%rax
    let writes: &[&[u8]] =
        &[&[0x48, 0x89, 0xf7], &[0x31, 0xd2], &[0x4c, 0x8d, 0x4c, 0x24, 8], &[0x0f, 0xb6, 0xc9], &[0x49, 0x90]];
    for &write in writes {
        assert_eq!(at(&[write, PUSH_RBP, RET], OLD).0, STEPPED, "{write:x?}");
    }
    // mov %rdi,%rax; test %esi,%esi; cmp $1,%edx: nothing is lost
    let reads: &[&[u8]] = &[&[0x48, 0x89, 0xf8], &[0x85, 0xf6], &[0x83, 0xfa, 1]];
    for &read in reads {
        let delta = read.len() as u64;
        let both = (emulated(delta, 0), exit(delta, PointCost::Emulated));
        assert_eq!(at(&[read, PUSH_RBP, RET], OLD), both, "{read:x?}");
    }
}

#[test]
fn a_jump_or_call_is_a_place_but_never_passed() {
    assert_eq!(at(&[&[0x85, 0xff], &[0x74, 5], PUSH_RBP, RET], OLD).0, emulated(2, 0));
    assert_eq!(at(&[&[0x85, 0xff], &[0x0f, 0x84, 0, 1, 0, 0], RET], OLD).0, emulated(2, 0));
    assert_eq!(at(&[&[0xe9, 0, 1, 0, 0]], OLD).0, emulated(0, 0));
    // call *%rax; push %rbp: behind a call nothing is in place
    assert_eq!(at(&[&[0xff, 0xd0], PUSH_RBP, RET], OLD).0, STEPPED);
    // With an operand-size prefix a jump is refused.
    assert!(!OLD.emulates(&[0x66, 0xe9, 0, 0]));
    assert!(!OLD.emulates(&[0xff, 0xe0]));
}

#[test]
fn nops_depend_on_the_kernel_and_their_prefixes() {
    assert!(OLD.emulates(&[0x90]) && OLD.emulates(&[0x66, 0x90]));
    assert!(!OLD.emulates(&[0xf3, 0x90]), "pause");
    assert!(!OLD.emulates(&[0x41, 0x90]), "xchg %eax,%r8d");
    let nop5: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];
    assert!(!OLD.emulates(nop5) && NEW.emulates(nop5));
    let with_segment: &[u8] = &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    assert!(!NEW.emulates(with_segment), "the kernel refuses a probe on a segment prefix");
    // On an old kernel a long nop is passed, by the return probe as well.
    assert_eq!(at(&[nop5, PUSH_RBP, RET], OLD), (emulated(5, 0), exit(5, PointCost::Emulated)));
    assert_eq!(at(&[nop5, PUSH_RBP, RET], NEW), (emulated(0, 0), exit(0, PointCost::Emulated)));
    // Where no place is emulated, the first that is accepted at all.
    let (entry, _) = at(&[with_segment, &[0x48, 0x89, 0xf8], RET], NEW);
    assert_eq!(entry, EntryPoint { delta: 10, stack_shift: 0, cost: PointCost::Stepped });
}

#[test]
fn a_place_that_a_branch_leads_back_to_is_not_used() {
    // endbr64; push %rbp; … jmp to +4: the entry probe would fire again.
    let code: &[&[u8]] = &[ENDBR64, PUSH_RBP, &[0x31, 0xc0], &[0xeb, 0xfb]];
    assert_eq!(at(code, OLD).0, STEPPED);
    // To the first instruction: no worse than a probe there.
    let code: &[&[u8]] = &[ENDBR64, PUSH_RBP, &[0x31, 0xc0], &[0xeb, 0xf7]];
    assert_eq!(at(code, OLD).0, emulated(4, 0));
}

#[test]
fn stores_are_passed_only_into_the_own_frame() {
    // mov %rax,-8(%rsp) (below the stack pointer); push
    assert_eq!(at(&[&[0x48, 0x89, 0x44, 0x24, 0xf8], PUSH_RBP], OLD).0, emulated(5, 0));
    // mov %rax,8(%rsp): the first stack argument
    assert_eq!(at(&[&[0x48, 0x89, 0x44, 0x24, 8], PUSH_RBP], OLD).0, STEPPED);
    // sub $0x18,%rsp; mov %rax,8(%rsp); call
    let code: &[&[u8]] = &[&[0x48, 0x83, 0xec, 0x18], &[0x48, 0x89, 0x44, 0x24, 8], &[0xe8, 0, 0, 0, 0]];
    assert_eq!(at(code, OLD).0, emulated(9, 0x18));
    // sub $0x18,%rsp; mov %rax,0x18(%rsp): the return address
    let code: &[&[u8]] = &[&[0x48, 0x83, 0xec, 0x18], &[0x48, 0x89, 0x44, 0x24, 0x18], &[0xe8, 0, 0, 0, 0]];
    assert_eq!(at(code, OLD).0, STEPPED);
    // movl $0,(%rdi): what an argument points to
    assert_eq!(at(&[&[0xc7, 0x07, 0, 0, 0, 0], PUSH_RBP], OLD).0, STEPPED);
}

#[test]
fn code_that_is_cut_off_or_no_code_gives_the_first_byte() {
    assert_eq!(locate(&[], OLD), (STEPPED, exit(0, PointCost::Stepped)));
    assert_eq!(locate(&[0xf3, 0x0f], OLD), (STEPPED, exit(0, PointCost::Stepped)));
    assert_eq!(locate(&[0xff; 40], OLD).0, STEPPED);
}

/// What gcc makes of a function with a loop, many arguments and a call, in several ways.
#[test]
fn gcc_makes_no_function_whose_probe_is_dear() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let source = dir.path().join("f.c");
    let text = "extern int sink(void *, int);\n\
        int seven(void *a, void *b, int c, int d, int e, long f, long g) {\n\
          int s = 0; for (int i = 0; i < c; i++) s += sink(a, i) + sink(b, d) + e; return s + f + g; }\n\
        int calls(void *a, int b) { return sink(a, b) + sink(a, 1); }\n";
    fs::write(&source, text).expect("writable");
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fcf-protection"], &["-O0", "-fcf-protection"], &["-O2", "-pg"]] {
        let out = dir.path().join("f.so");
        let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&out).arg(&source).args(flags).status();
        if !built.is_ok_and(|status| status.success()) {
            crate::skip::skipped(format_args!("no gcc"));
            return;
        }
        let elf = ElfInfo::read(&out).expect("just built");
        let bytes = fs::read(&out).expect("just built");
        for name in ["seven", "calls"] {
            let function = elf.function(name).expect("defined above");
            let start = function.offset as usize;
            let code = &bytes[start..start + function.size as usize];
            let (entry, exit) = locate(code, OLD);
            assert_eq!(entry.cost, PointCost::Emulated, "{flags:?} {name}: {code:x?}");
            assert_eq!(exit.cost, PointCost::Emulated, "{flags:?} {name}: {code:x?}");
            assert_eq!(exit.delta, entry.delta, "{flags:?} {name}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_give_places_inside_the_code(code in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (entry, exit) = locate(&code, NEW);
        prop_assert!(entry.delta == 0 || entry.delta < code.len() as u64);
        prop_assert!(exit.delta <= entry.delta);
        prop_assert_eq!(exit.delta, if entry.stack_shift == 0 { entry.delta } else { 0 });
        if entry.cost == PointCost::Emulated {
            prop_assert!(KernelRules::emulates(NEW, super::instruction_at(&code, entry.delta).expect("decoded before")));
        }
    }
}

/// One line of objdump.
struct Line<'a> {
    address: u64,
    bytes: usize,
    text: &'a str,
}

fn disassemble(path: &Path, from: u64, to: u64) -> Option<String> {
    let mut command = Command::new("objdump");
    command.args(["-d", "-w"]).arg(format!("--start-address={from:#x}")).arg(format!("--stop-address={to:#x}"));
    let out = command.arg(path).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Lines by address, those inside a function.
fn lines<'a>(text: &'a str, functions: &[&FunctionSymbol]) -> BTreeMap<u64, Line<'a>> {
    let mut found = BTreeMap::new();
    let mut rest = functions;
    for line in text.lines() {
        let Some((address, columns)) = line.trim_start().split_once(":\t") else { continue };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        while let Some((first, tail)) = rest.split_first()
            && first.address + first.size <= address
        {
            rest = tail;
        }
        let Some((bytes, text)) = columns.split_once('\t') else { continue };
        if rest.first().is_some_and(|function| function.address <= address) {
            let bytes = bytes.split_whitespace().count();
            found.insert(address, Line { address, bytes, text: text.trim() });
        }
    }
    found
}

/// The rule over objdump's text: place and stack shift of the first emulated instruction.
fn expected(lines: &BTreeMap<u64, Line<'_>>, start: u64, size: u64) -> Option<(u64, u16)> {
    let body: Vec<&Line<'_>> = lines.range(start..start + size).map(|(_, line)| line).collect();
    let targets: Vec<u64> = body
        .iter()
        .filter(|line| line.text.starts_with('j') || line.text.starts_with("bnd j"))
        .filter_map(|line| u64::from_str_radix(line.text.split_whitespace().nth(1)?, 16).ok())
        .filter(|target| (start + 1..start + size).contains(target))
        .collect();
    let lowest = targets.into_iter().min().unwrap_or(u64::MAX);
    let mut shift = 0_i64;
    let mut frame = None;
    for line in body {
        let delta = line.address - start;
        if (delta > 0 && line.address >= lowest) || delta >= 160 {
            return None;
        }
        let text = line.text.split('#').next().unwrap_or_default().trim();
        let (name, operands) = text.split_once(' ').map_or((text, ""), |(name, rest)| (name, rest.trim()));
        let found = Some((delta, shift as u16));
        match name {
            "push" if operands.starts_with('%') && line.bytes <= 2 => return found,
            "nop" | "xchg" if line.bytes <= 2 && (operands.is_empty() || operands == "%ax,%ax") => return found,
            "call" | "jmp" => return if operands.starts_with('*') { None } else { found },
            _ if name.starts_with('j') => return found,
            "ret" | "leave" | "hlt" | "ud2" | "int3" | "bnd" | "notrack" | "syscall" | "rep" | "repz" | "lock" => {
                return None;
            }
            "endbr64" | "nopw" | "nopl" | "cs" | "cmp" | "cmpl" | "cmpb" | "cmpq" | "cmpw" | "test" | "testb"
            | "testl" | "ucomiss" | "ucomisd" | "comiss" | "comisd" => continue,
            _ => {}
        }
        if name == "push" || name == "pushq" {
            shift += 8;
            continue;
        }
        let target = split_operands(operands);
        match target {
            "%rsp" => {
                let number = operands.strip_prefix('$').and_then(|rest| rest.strip_prefix("0x"));
                let number = number.and_then(|rest| i64::from_str_radix(rest.split(',').next()?, 16).ok());
                let lea = operands.strip_prefix("-0x").and_then(|rest| rest.strip_suffix("(%rsp),%rsp"));
                let lea = lea.and_then(|rest| i64::from_str_radix(rest, 16).ok());
                match (name, number, lea) {
                    ("sub", Some(number), _) if number < 0x10000 => shift += number,
                    ("lea", _, Some(number)) => shift += number,
                    _ => return None,
                }
                if shift > 0xffff {
                    return None;
                }
            }
            "%rbp" => frame = (operands == "%rsp,%rbp").then_some(shift),
            _ if target.ends_with(')') => {
                let width =
                    if name.ends_with("ps") || name.starts_with("movdq") || name.ends_with("pd") { 16 } else { 8 };
                let width = match (name, operands.split(',').next().unwrap_or_default()) {
                    (name, _) if name.ends_with('l') && name != "shl" && name != "rol" => 4,
                    ("movb", _) => 1,
                    (_, source) if source.starts_with("%e") || (source.starts_with("%r") && source.ends_with('d')) => 4,
                    (_, source) if source.len() == 3 && source.ends_with('l') => 1,
                    _ => width,
                };
                let (displacement, base) = target.split_once('(').unwrap_or_default();
                let base = match base {
                    "%rsp)" => shift,
                    "%rbp)" => frame?,
                    _ => return None,
                };
                let (sign, digits) = displacement.strip_prefix('-').map_or((1, displacement), |rest| (-1, rest));
                let digits = digits.strip_prefix("0x").unwrap_or("0");
                let place = sign * i64::from_str_radix(digits, 16).ok()? - base;
                if place + width > 0 {
                    return None;
                }
            }
            _ if is_argument_register(target) => return None,
            _ => {}
        }
        if name.starts_with("xchg") && operands.split(',').any(is_argument_register) {
            return None;
        }
    }
    None
}

/// The last operand: the target in this notation.
fn split_operands(operands: &str) -> &str {
    let mut depth = 0;
    let mut last = 0;
    for (index, letter) in operands.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => last = index + 1,
            _ => {}
        }
    }
    operands.get(last..).unwrap_or_default()
}

fn is_argument_register(name: &str) -> bool {
    let names = [
        "rdi", "edi", "di", "dil", "rsi", "esi", "si", "sil", "rdx", "edx", "dx", "dl", "dh", "rcx", "ecx", "cx", "cl",
        "ch", "r8", "r8d", "r8w", "r8b", "r9", "r9d", "r9w", "r9b",
    ];
    name.strip_prefix('%').is_some_and(|name| names.contains(&name))
}

/// Every exported function of the libraries that are installed, named by `prefix`.
fn check_library(path: &Path, prefixes: &[&str]) {
    if !path.exists() {
        crate::skip::skipped(format_args!("{} is not installed", path.display()));
        return;
    }
    let elf = ElfInfo::read(path).expect("an installed library");
    let wanted = |function: &&FunctionSymbol| {
        function.dynamic && function.size != 0 && prefixes.iter().any(|prefix| function.name.starts_with(prefix))
    };
    let functions: Vec<&FunctionSymbol> = elf.functions().iter().filter(wanted).collect();
    let from = functions.iter().map(|function| function.address).min().expect("it has some");
    let to = functions.iter().map(|function| function.address + function.size).max().expect("it has some");
    let Some(text) = disassemble(path, from, to) else {
        crate::skip::skipped(format_args!("no objdump"));
        return;
    };
    let lines = lines(&text, &functions);
    let bytes = fs::read(path).expect("an installed library");
    let mut counts = [0_usize; 4];
    for function in functions {
        let start = function.offset as usize;
        let code = bytes.get(start..start + function.size as usize).expect("inside the file");
        let (entry, exit) = locate(code, OLD);
        let rule = expected(&lines, function.address, function.size);
        let found = (entry.cost == PointCost::Emulated).then_some((entry.delta, entry.stack_shift));
        assert_eq!(found, rule, "{} {}: {:x?}", path.display(), function.name, &code[..code.len().min(64)]);
        counts[usize::from(entry.cost == PointCost::Stepped)] += 1;
        counts[2 + usize::from(exit.cost == PointCost::Stepped)] += 1;
    }
    println!(
        "{}: entry {} emulated, {} stepped; exit {} emulated, {} stepped",
        path.display(),
        counts[0],
        counts[1],
        counts[2],
        counts[3]
    );
    assert!(counts[0] > 20, "{}: too few functions were seen", path.display());
}

#[test]
fn every_function_of_mpich_has_the_best_place() {
    check_library(Path::new("/usr/lib/x86_64-linux-gnu/libmpich.so.12"), &["MPI_", "PMPI_"]);
}

#[test]
fn every_function_of_open_mpi_has_the_best_place() {
    check_library(Path::new("/usr/lib/x86_64-linux-gnu/libmpi.so.40"), &["MPI_", "PMPI_"]);
}

#[test]
fn every_function_of_nccl_has_the_best_place() {
    // Not a package of the system: the folder of a wheel is given by whoever has one.
    let Some(path) = std::env::var_os("RANKDIFF_NCCL") else {
        crate::skip::skipped(format_args!("RANKDIFF_NCCL does not name a libnccl.so"));
        return;
    };
    check_library(Path::new(&path), &["nccl", "pnccl"]);
}
