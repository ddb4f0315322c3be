//! Probes in the running kernel: attached to a library made for the purpose, called from a program that checks that
//! nothing it owns was touched. Needs CAP_SYS_ADMIN; without it every test says that it was skipped.

#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rankdiff_common::event::{flag, kind};
use rankdiff_libs::registry::LIBRARIES;
use rankdiff_libs::spec::{Abi, Arg, Function, Library, Offsets, Pass, Role, Traits, no_fields, nothing_to_inspect};
use rankdiff_trace::{Level, Op, Semantics};
use rankdiff_tracer::attach::{AttachError, Attacher, LoadOptions, Rings};
use rankdiff_tracer::maps::read_maps;
use rankdiff_tracer::points::{FilePlan, PlanOptions, plan};
use rankdiff_tracer::predict::predict;
use rankdiff_tracer::privilege;
use rankdiff_tracer::prologue::PointCost;

/// `f(_, _, int count, long, long, long, long on_stack, int comm)`: the last two have no register.
const ARGS: &[Arg] = &[
    Arg { role: Role::SendBuffer, index: 0, pass: Pass::Pointer },
    Arg { role: Role::Count, index: 2, pass: Pass::I32 },
    Arg { role: Role::Other, index: 5, pass: Pass::I64 },
    Arg { role: Role::Other, index: 6, pass: Pass::I64 },
    Arg { role: Role::Comm, index: 7, pass: Pass::Handle },
];

const RETURNS: Traits = Traits { returns: true, ..Traits::NONE };

const fn function(symbol: &'static str, traits: Traits) -> Function {
    Function { symbol, op: Op::AllReduce, args: ARGS, traits }
}

static TOY: Library = Library {
    name: "toy",
    file_patterns: &["libtoy.so*"],
    marker_symbols: &["toy_push"],
    alias_prefixes: &[],
    level: Level::Library,
    semantics: Semantics(0),
    functions: &[
        function("toy_push", RETURNS),
        function("toy_endbr", RETURNS),
        function("toy_mov", RETURNS),
        function("toy_sub", RETURNS),
        function("toy_sub_entry", Traits::NONE),
        function("toy_jump", RETURNS),
        function("toy_leaf", RETURNS),
    ],
    abi: |_| Abi { name: "toy", handle_bytes: 4, offsets: Offsets::NONE },
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |abi| (LIBRARIES[0].decoder)(abi),
};
static TOYS: &[&Library] = &[&TOY];

/// Function, place and cost of its entry and return probes, and how far the stack pointer moved before the entry probe.
const PLACES: &[(&str, u64, Option<u64>, PointCost, u16)] = &[
    ("toy_push", 0, Some(0), PointCost::Emulated, 0),
    ("toy_endbr", 4, Some(4), PointCost::Emulated, 0),
    ("toy_mov", 3, Some(3), PointCost::Emulated, 0),
    ("toy_sub", 0, Some(0), PointCost::Stepped, 0),
    ("toy_sub_entry", 4, None, PointCost::Emulated, 24),
    ("toy_jump", 2, Some(2), PointCost::Emulated, 0),
    ("toy_leaf", 0, Some(0), PointCost::Stepped, 0),
];

const LIBRARY: &str = r#"
#define F(name, body) __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" body "\n.size " #name ",.-" #name "\n");
F(toy_push, "push %rbx\n push %rbp\n mov %rsp,%rbp\n xor %ebx,%ebx\n lea 1(%rdx),%eax\n pop %rbp\n pop %rbx\n ret")
F(toy_endbr, "endbr64\n push %r12\n push %r13\n mov $7,%r12d\n mov %r12,%r13\n lea 1(%rdx),%eax\n pop %r13\n pop %r12\n ret")
F(toy_mov, "mov %rdi,%rax\n push %r14\n push %r15\n xor %r14d,%r14d\n xor %r15d,%r15d\n lea 1(%rdx),%eax\n pop %r15\n pop %r14\n ret")
F(toy_sub, "sub $24,%rsp\n call 1f\n add $24,%rsp\n ret\n 1: lea 1(%rdx),%eax\n ret")
F(toy_sub_entry, "sub $24,%rsp\n call 1f\n add $24,%rsp\n ret\n 1: lea 1(%rdx),%eax\n ret")
F(toy_jump, "test %edx,%edx\n js 1f\n lea 1(%rdx),%eax\n ret\n 1: xor %eax,%eax\n ret")
F(toy_leaf, "lea 1(%rdx),%eax\n ret")
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
long call_checked(void *function, const long *args);
__asm__(".text\n.globl call_checked\n.type call_checked,@function\ncall_checked:\n"
"push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n sub $8,%rsp\n"
"mov %rdi,%rax\n mov %rsi,%r11\n push 56(%r11)\n push 48(%r11)\n"
"mov 0(%r11),%rdi\n mov 8(%r11),%rsi\n mov 16(%r11),%rdx\n mov 24(%r11),%rcx\n mov 32(%r11),%r8\n mov 40(%r11),%r9\n"
"mov $0x1111,%rbx\n mov $0x2222,%rbp\n mov $0x3333,%r12\n mov $0x4444,%r13\n mov $0x5555,%r14\n mov $0x6666,%r15\n"
"call *%rax\n add $16,%rsp\n"
"cmp $0x1111,%rbx\n jne 1f\n cmp $0x2222,%rbp\n jne 1f\n cmp $0x3333,%r12\n jne 1f\n"
"cmp $0x4444,%r13\n jne 1f\n cmp $0x5555,%r14\n jne 1f\n cmp $0x6666,%r15\n jne 1f\n jmp 2f\n"
"1: mov $-99,%rax\n 2: add $8,%rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
".size call_checked,.-call_checked\n");
static int run(void *library, int rounds) {
  const char *names[] = {"toy_push", "toy_endbr", "toy_mov", "toy_sub", "toy_sub_entry", "toy_jump", "toy_leaf"};
  for (int round = 0; round < rounds; round++)
    for (int i = 0; i < 7; i++) {
      long args[8] = {0x1000 + i, 0, 100 * round + i, 0, 0, 0x7fffffffffff0000, 0x5eed000000000000 + i, 40 + i};
      long result = call_checked(dlsym(library, names[i]), args);
      if ((int)result != 100 * round + i + 1) { printf("wrong %s %ld\n", names[i], result); return 1; }
    }
  return 0;
}
int main(int argc, char **argv) {
  getchar();
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) { printf("%s\n", dlerror()); return 2; }
  if (run(library, 3)) return 1;
  printf("ran\n"); fflush(stdout);
  getchar();
  pid_t child = fork();
  if (child == 0) _exit(run(library, 1) ? 1 : 5);
  int status; waitpid(child, &status, 0);
  printf("child %d\n", (int)child); fflush(stdout);
  getchar();
  return WEXITSTATUS(status) == 5 ? 0 : 1;
}
"#;

/// Says that a test ends early; it fails where nothing may be skipped, unless it is this program run without rights.
fn skipped(why: std::fmt::Arguments<'_>) {
    println!("SKIPPED: {why}");
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    let required = is_set("RANKDIFF_REQUIRE_PRIVILEGED") && !is_set("RANKDIFF_TEST_UNPRIVILEGED");
    assert!(!required, "may not be skipped: {why}");
}

fn permitted() -> bool {
    let missing = privilege::missing();
    for requirement in &missing {
        skipped(format_args!("{requirement}"));
    }
    missing.is_empty()
}

fn build(folder: &Path, name: &str, text: &str, args: &[&str]) -> Option<PathBuf> {
    let (source, out) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).expect("writable");
    let status = Command::new("gcc").args(["-O1", "-o"]).arg(&out).arg(&source).args(args).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(out);
    }
    skipped(format_args!("no gcc"));
    None
}

fn toy_plan(path: &Path) -> FilePlan {
    let options = PlanOptions { libraries: TOYS, ..PlanOptions::default() };
    plan(path, &options).expect("readable").expect("the toy library")
}

/// The program under test, waiting for a line before each part.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(program: &Path, library: &Path) -> Program {
        let mut child = Command::new(program)
            .arg(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("just built");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Program { child, input, output }
    }

    fn go(&mut self) {
        self.input.write_all(b"\n").expect("it waits for a line");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }
}

/// A record, its fields read by their places.
struct Record(Vec<u8>);

impl Record {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
    fn kind(&self) -> u8 {
        self.0[0]
    }
    fn probe(&self) -> u16 {
        self.u32(0).to_le_bytes()[2..].try_into().map(u16::from_le_bytes).expect("two bytes")
    }
    fn tgid(&self) -> u32 {
        self.u32(8)
    }
}

/// All records up to one that satisfies a condition.
fn drain(rings: &mut Rings, last: impl Fn(&Record) -> bool) -> Vec<Record> {
    let mut records = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        // Records about processes first: calls that came before one of them are in the other ring by then.
        let mut later = Vec::new();
        while let Some(item) = rings.processes.next() {
            later.push(Record(item.to_vec()));
        }
        while let Some(item) = rings.calls.next() {
            records.push(Record(item.to_vec()));
        }
        records.append(&mut later);
        if records.iter().any(&last) {
            return records;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the record that ends it did not come; kinds: {:?}", records.iter().map(Record::kind).collect::<Vec<_>>());
}

/// Checks the entries and returns of `rounds` rounds of one process.
fn check_calls(records: &[Record], tgid: u32, rounds: usize, attacher: &Attacher, caller: std::ops::Range<u64>) {
    let of = |wanted: u8| records.iter().filter(move |record| record.kind() == wanted && record.tgid() == tgid);
    let entries: Vec<&Record> = of(kind::ENTER).collect();
    assert_eq!(entries.len(), rounds * PLACES.len());
    for (ordinal, entry) in entries.iter().enumerate() {
        let (round, i) = ((ordinal / PLACES.len()) as u64, ordinal % PLACES.len());
        let probe = attacher.probe(entry.probe()).expect("an attached probe");
        let name = probe.function.symbol;
        assert_eq!(name, PLACES[i].0);
        let arg = |index: usize| entry.u64(72 + 8 * index);
        assert_eq!(entry.u64(24), ordinal as u64, "{name}: ordinal on the thread");
        assert_eq!(arg(0), 0x1000 + i as u64, "{name}: rdi");
        assert_eq!(arg(1), 100 * round + i as u64, "{name}: rdx");
        assert_eq!(arg(2), 0x7fff_ffff_ffff_0000, "{name}: r9");
        assert_eq!(arg(3), 0x5eed_0000_0000_0000 + i as u64, "{name}: first stack slot");
        assert_eq!(entry.u64(32), 40 + i as u64, "{name}: communicator, on the stack");
        assert_eq!(entry.u64(40), round, "{name}: position on its communicator");
        let unreadable = flag::STACK_UNREADABLE | flag::COMM_UNREADABLE | flag::NO_SEQ | flag::NESTED;
        assert_eq!(entry.0[1] & unreadable, 0, "{name}: flags");
        assert!(caller.contains(&entry.u64(56)), "{name}: return address {:#x} outside {caller:x?}", entry.u64(56));
    }
    let exits: Vec<(String, i32)> = of(kind::EXIT)
        .map(|exit| {
            let probe = attacher.probe(exit.probe()).expect("an attached probe");
            (probe.function.symbol.to_owned(), exit.u64(32) as i32)
        })
        .collect();
    let expected: Vec<(String, i32)> = (0..rounds)
        .flat_map(|round| {
            let with_return = PLACES.iter().enumerate().filter(|(_, place)| place.2.is_some());
            with_return.map(move |(i, place)| (place.0.to_owned(), (100 * round + i + 1) as i32))
        })
        .collect();
    assert_eq!(exits, expected);
}

#[test]
fn calls_are_recorded_and_the_program_notices_nothing() {
    check_toy(Attacher::load);
}

#[test]
fn calls_are_recorded_with_probes_attached_one_by_one() {
    check_toy(Attacher::load_one_by_one);
}

fn check_toy(load: fn(&LoadOptions) -> Result<Attacher, AttachError>) {
    let dir = tempfile::tempdir().expect("temporary folder");
    if !permitted() {
        return;
    }
    let Some(library) = build(dir.path(), "libtoy.so", LIBRARY, &["-shared", "-fPIC"]) else { return };
    let program = build(dir.path(), "program", PROGRAM, &["-ldl"]).expect("built above");

    let plan = toy_plan(&library);
    for &(name, entry, exit, cost, shift) in PLACES {
        let probe = plan.probes.iter().find(|probe| probe.symbol == name).expect("planned");
        assert_eq!((probe.entry.delta, probe.entry.cost, probe.entry.stack_shift), (entry, cost, shift), "{name}");
        assert_eq!(probe.exit.map(|exit| exit.delta), exit, "{name}");
    }
    let options = LoadOptions { ring_bytes: 1 << 20 };
    let mut attacher = load(&options).expect("permitted");
    let summary = attacher.attach(&plan).expect("permitted");
    assert_eq!((summary.attached, summary.present, summary.failed), (PLACES.len(), 0, Vec::new()));
    let again = attacher.attach(&toy_plan(&library)).expect("permitted");
    assert_eq!((again.attached, again.present), (0, PLACES.len()));
    assert_eq!(attacher.probes().count(), PLACES.len());
    let interpreter = rankdiff_tracer::elf::ElfInfo::read(&program).expect("just built");
    let interpreter = interpreter.interpreter().expect("a dynamic program").to_owned();
    assert!(attacher.attach_link_map(&interpreter).expect("permitted"));
    assert!(!attacher.attach_link_map(&interpreter).expect("permitted"), "it is attached already");
    let mut rings = attacher.take_rings().expect("not taken yet");
    assert!(matches!(attacher.take_rings(), Err(AttachError::RingTaken)));

    // A process that nobody watches leaves no trace.
    let mut other = Program::start(&program, &library);
    for _ in 0..3 {
        other.go();
    }
    assert!(other.child.wait().expect("own child").success());

    let mut watched = Program::start(&program, &library);
    let pid = watched.child.id();
    attacher.watch(pid).expect("there is room");
    assert!(attacher.is_watched(pid));
    watched.go();
    assert_eq!(watched.line(), "ran");
    let caller = {
        let maps = read_maps(pid).expect("it waits");
        let code = maps.iter().find(|mapping| mapping.executable && mapping.path == program).expect("its code");
        code.start..code.end
    };
    assert_eq!(attacher.thread_calls(pid), [(pid, 3 * PLACES.len() as u64)]);
    watched.go();
    let line = watched.line();
    let child: u32 = line.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("the child's pid");
    watched.go();
    assert!(watched.child.wait().expect("own child").success(), "registers or results were changed");

    let records = drain(&mut rings, |record| record.kind() == kind::TASK_END && record.tgid() == pid);
    check_calls(&records, pid, 3, &attacher, caller.clone());
    check_calls(&records, child, 1, &attacher, caller);
    assert!(records.iter().all(|record| record.tgid() == pid || record.tgid() == child), "only watched processes");
    let count = |wanted: u8, tgid: u32| {
        records.iter().filter(|record| record.kind() == wanted && record.tgid() == tgid).count()
    };
    assert!(count(kind::LINK_MAP, pid) >= 1, "dlopen was seen");
    let fork = records.iter().find(|record| record.kind() == kind::FORK).expect("the fork was seen");
    assert_eq!((fork.tgid(), fork.u32(32)), (pid, child));
    let end =
        records.iter().find(|record| record.kind() == kind::TASK_END && record.tgid() == child).expect("it ended");
    assert_eq!((end.u64(32), end.u32(40), end.u32(44)), (PLACES.len() as u64, 5 << 8, 1), "calls, status, last");
    assert_eq!(attacher.lost().iter().sum::<u64>(), 0);
    attacher.forget_process(pid);
    attacher.unwatch(pid).expect("never fails");
    assert!(!attacher.is_watched(pid) && attacher.thread_calls(pid).is_empty());
}

const MPI_PROGRAM: &str = r#"
#include <mpi.h>
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  long in[7] = {1, 2, 3, 4, 5, 6, 7}, out[7];
  for (int i = 0; i < 3; i++) MPI_Allreduce(in, out, 7, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &half);
  MPI_Bcast(out, 5, MPI_LONG, 1, half);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return out[2] == 6 ? 0 : 1;
}
"#;

/// What one rank called: function, position on its communicator.
type Calls = Vec<(&'static str, Option<u64>)>;

/// A real MPI: everything attached beforehand as predicted from the command line.
fn check_mpi(compiler: &str, launcher: &[&str]) {
    let dir = tempfile::tempdir().expect("temporary folder");
    if !permitted() {
        return;
    }
    let (source, program) = (dir.path().join("job.c"), dir.path().join("job"));
    fs::write(&source, MPI_PROGRAM).expect("writable");
    let built = Command::new(compiler).arg("-o").arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        skipped(format_args!("no {compiler}"));
        return;
    }
    let mut command: Vec<std::ffi::OsString> = launcher.iter().map(Into::into).collect();
    command.push(program.into());
    let env: Vec<_> = std::env::vars_os().collect();
    let mut attacher = Attacher::load(&LoadOptions::default()).expect("permitted");
    let mut attached = 0;
    for file in predict(&command, &env).files {
        if let Some(plan) = plan(&file, &PlanOptions::default()).expect("readable") {
            let summary = attacher.attach(&plan).expect("permitted");
            assert_eq!(summary.failed, Vec::<String>::new(), "{}", file.display());
            attached += summary.attached;
        }
    }
    assert!(attached > 50, "the MPI library was not predicted: {attached} probes");
    let mut rings = attacher.take_rings().expect("not taken yet");

    let mut child = Command::new("sh")
        .args(["-c", "read line; exec \"$@\"", "sh"])
        .args(&command)
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    attacher.watch(child.id()).expect("there is room");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"\n").expect("it waits for a line");
    drop(input);
    let launcher_pid = child.id();
    let status = child.wait().expect("own child");
    if !status.success() {
        skipped(format_args!("{launcher:?} does not run here: {status}"));
        return;
    }
    let records = drain(&mut rings, |record| record.kind() == kind::TASK_END && record.tgid() == launcher_pid);
    let mut ranks: std::collections::BTreeMap<u32, Calls> = std::collections::BTreeMap::new();
    let mut returned = 0;
    for record in &records {
        let Some(probe) = attacher.probe(record.probe()) else { continue };
        match record.kind() {
            kind::ENTER | kind::ENTER_SHORT | kind::ENTER_LONG => {
                let name = probe.function.symbol;
                assert_eq!(record.0[1] & flag::NESTED, 0, "{name}: a call of its own");
                assert_ne!(record.u64(56), 0, "{name}: its call site is known");
                if let Some(slot) = probe.function.slot(Role::Count) {
                    let expected = if name == "MPI_Bcast" { 5 } else { 7 };
                    assert_eq!(record.u64(72 + 8 * slot) as u32, expected, "{name}: count");
                }
                let seq = (record.0[1] & flag::NO_SEQ == 0).then(|| record.u64(40));
                ranks.entry(record.tgid()).or_default().push((name, seq));
            }
            kind::EXIT => {
                assert_eq!(record.u64(32) as i32, 0, "{}: result", probe.function.symbol);
                returned += usize::from(probe.function.symbol == "MPI_Allreduce");
            }
            _ => {}
        }
    }
    assert_eq!(ranks.len(), 2, "two ranks: {ranks:?}");
    for calls in ranks.values() {
        let of = |name: &str| -> Vec<Option<u64>> {
            calls.iter().filter(|call| call.0 == name).map(|call| call.1).collect()
        };
        assert_eq!(of("MPI_Allreduce"), [Some(0), Some(1), Some(2)], "{calls:?}");
        assert_eq!(of("MPI_Barrier"), [Some(3)], "{calls:?}");
        assert_eq!(of("MPI_Comm_split"), [Some(0)], "{calls:?}");
        assert_eq!(of("MPI_Bcast"), [Some(0)], "the first on the new communicator: {calls:?}");
        assert_eq!(of("MPI_Comm_free").len(), 1, "{calls:?}");
    }
    assert_eq!(returned, 6);
    assert_eq!(attacher.lost().iter().sum::<u64>(), 0);
}

#[test]
fn mpich_is_recorded_from_its_first_call() {
    check_mpi("mpicc.mpich", &["mpiexec.mpich", "-n", "2"]);
}

#[test]
fn open_mpi_is_recorded_from_its_first_call() {
    check_mpi("mpicc.openmpi", &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]);
}

#[test]
fn a_place_that_the_kernel_refuses_costs_no_other() {
    let dir = tempfile::tempdir().expect("temporary folder");
    if !permitted() {
        return;
    }
    let Some(library) = build(dir.path(), "libtoy.so", LIBRARY, &["-shared", "-fPIC"]) else { return };
    let mut plan = toy_plan(&library);
    plan.probes[1].offset = 1 << 40; // behind the end of the file
    for load in [Attacher::load, Attacher::load_one_by_one] {
        let mut attacher = load(&LoadOptions::default()).expect("permitted");
        let summary = attacher.attach(&plan).expect("permitted");
        assert_eq!(summary.attached, PLACES.len() - 1, "{summary:?}");
        assert!(summary.failed.len() == 1, "{summary:?}");
        assert_eq!(attacher.probes().count(), PLACES.len() - 1);
        assert!(
            attacher.probes().all(|probe| attacher.probe(probe.index).is_some_and(|same| same.symbol == probe.symbol))
        );
    }
}

#[test]
fn a_file_that_was_replaced_is_not_probed() {
    let dir = tempfile::tempdir().expect("temporary folder");
    if !permitted() {
        return;
    }
    let Some(library) = build(dir.path(), "libtoy.so", LIBRARY, &["-shared", "-fPIC"]) else { return };
    let plan = toy_plan(&library);
    let copy = dir.path().join("copy");
    fs::copy(&library, &copy).expect("writable");
    fs::rename(&copy, &library).expect("writable");
    let mut attacher = Attacher::load(&LoadOptions::default()).expect("permitted");
    let error = attacher.attach(&plan).expect_err("another file now");
    assert!(matches!(error, AttachError::Replaced { .. }), "{error}");
}

/// Run by the next test as a user without rights.
#[test]
fn loading_as_this_user() {
    if std::env::var_os("RANKDIFF_TEST_UNPRIVILEGED").is_none() {
        return;
    }
    match Attacher::load(&LoadOptions::default()) {
        Ok(_) => println!("loaded"),
        Err(error) => println!("error: {error}"),
    }
}

/// What the test above prints for a user with these capabilities alone; `None` if it cannot be tried.
fn as_user(capabilities: &str) -> Option<String> {
    let this = std::env::current_exe().expect("this test");
    let run = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")])
        .arg(this)
        .args(["--exact", "loading_as_this_user", "--nocapture"])
        .env("RANKDIFF_TEST_UNPRIVILEGED", "1")
        .output();
    let Some(output) = run.ok().filter(|output| output.status.success()) else {
        skipped(format_args!("setpriv does not run here"));
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn without_rights_the_error_says_what_is_missing_and_what_to_do() {
    let Some(text) = as_user("-all") else { return };
    assert!(text.contains("CAP_SYS_ADMIN") && text.contains("sudo "), "{text}");
}

#[test]
fn two_smaller_capabilities_do_on_a_newer_kernel() {
    if privilege::kernel_release().is_none_or(|release| release < (6, 6)) {
        skipped(format_args!("this kernel is older than 6.6"));
        return;
    }
    let Some(text) = as_user("-all,+bpf,+perfmon") else { return };
    assert!(text.contains("loaded"), "{text}");
    let Some(text) = as_user("-all,+perfmon") else { return };
    assert!(text.contains("CAP_BPF"), "{text}");
}
