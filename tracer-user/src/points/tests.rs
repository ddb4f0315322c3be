//! Plans of small libraries made for the purpose, and of the MPI libraries that are installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankdiff_libs::registry::LIBRARIES;
use rankdiff_libs::spec::{Abi, Arg, Function, Library, Offsets, Pass, Role, Traits, no_fields, nothing_to_inspect};
use rankdiff_trace::{Level, Op, Semantics};

use super::{FilePlan, PlanOptions, list_probes, matches_pattern, place_text, plan};
use crate::prologue::{KernelRules, PointCost};

static TOY: Library = Library {
    name: "toy",
    file_patterns: &["libtoy.so*"],
    marker_symbols: &["toy_reduce"],
    alias_prefixes: &["p"],
    level: Level::Library,
    semantics: Semantics(0),
    functions: &[
        Function {
            symbol: "toy_reduce",
            op: Op::Reduce,
            args: &[Arg { role: Role::Comm, index: 1, pass: Pass::Handle }],
            traits: Traits { returns: true, ..Traits::NONE },
        },
        Function { symbol: "toy_poll", op: Op::Wait, args: &[], traits: Traits { high_rate: true, ..Traits::NONE } },
        Function { symbol: "toy_absent", op: Op::Wait, args: &[], traits: Traits::NONE },
    ],
    abi: |defines| Abi {
        name: if defines("toy_wide") { "wide" } else { "narrow" },
        handle_bytes: 4,
        offsets: Offsets::NONE,
    },
    inspect: nothing_to_inspect,
    fields: no_fields,
    decoder: |abi| (LIBRARIES[0].decoder)(abi),
};
static TOYS: &[&Library] = &[&TOY];

fn options() -> PlanOptions {
    PlanOptions { libraries: TOYS, high_rate: false, rules: KernelRules { long_nops: false } }
}

fn build(folder: &Path, name: &str, text: &str, args: &[&str]) -> Option<PathBuf> {
    let (source, out) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).expect("writable");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-fPIC", "-fcf-protection", "-o"]).arg(&out).arg(&source).args(args);
    if command.status().is_ok_and(|status| status.success()) {
        return Some(out);
    }
    crate::skip::skipped(format_args!("no gcc"));
    None
}

fn names(plan: &FilePlan) -> Vec<&str> {
    let mut names: Vec<&str> = plan.probes.iter().map(|probe| probe.symbol.as_str()).collect();
    names.sort_unstable();
    names
}

const TEXT: &str = "\
    extern int printf(const char *, ...);\n\
    int toy_wide;\n\
    int toy_reduce(int count, int comm) { return printf(\"%d\", comm) + printf(\"%d\", count); }\n\
    int toy_poll(void) { return printf(\"x\") + 1; }\n";

#[test]
fn a_library_is_known_by_its_symbols_under_any_name() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(path) = build(dir.path(), "renamed", TEXT, &["-shared"]) else { return };
    let found = plan(&path, &options()).expect("readable").expect("the toy library");
    assert_eq!(found.libraries.len(), 1);
    assert_eq!(names(&found), ["toy_reduce"]);
    assert_eq!(found.probes[0].abi.name, "wide");
    assert_eq!(found.link_map, None);
    let rows = list_probes(&found);
    assert_eq!((rows[0].library.as_str(), rows[0].entry.as_str()), ("toy (wide)", "emulated +4"));
    assert_eq!(rows[0].exit, "emulated +4");
    let all = plan(&path, &PlanOptions { high_rate: true, ..options() }).expect("readable").expect("the toy library");
    assert_eq!(names(&all), ["toy_poll", "toy_reduce"]);
}

#[test]
fn a_name_at_the_same_place_is_probed_once_and_one_elsewhere_too() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let same = format!("{TEXT}int ptoy_reduce(int, int) __attribute__((alias(\"toy_reduce\")));\n");
    let Some(path) = build(dir.path(), "same", &same, &["-shared"]) else { return };
    assert_eq!(names(&plan(&path, &options()).expect("readable").expect("found")), ["toy_reduce"]);
    let apart = format!("{TEXT}int ptoy_reduce(int a, int b) {{ return printf(\"%d\", a * b) + a; }}\n");
    let path = build(dir.path(), "apart", &apart, &["-shared"]).expect("built above");
    assert_eq!(names(&plan(&path, &options()).expect("readable").expect("found")), ["ptoy_reduce", "toy_reduce"]);
}

#[test]
fn a_library_linked_statically_is_found_and_one_that_is_only_used_is_not() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let main = format!("{TEXT}int main(void) {{ return toy_reduce(1, 2); }}\n");
    let Some(path) = build(dir.path(), "static", &main, &[]) else { return };
    assert_eq!(names(&plan(&path, &options()).expect("readable").expect("found")), ["toy_reduce"]);
    let library = build(dir.path(), "libtoy.so", TEXT, &["-shared"]).expect("built above");
    let user = "int toy_reduce(int, int); int main(void) { return toy_reduce(1, 2); }";
    let path = build(dir.path(), "user", user, &[library.to_str().expect("text")]).expect("built above");
    assert!(plan(&path, &options()).expect("readable").is_none());
}

#[test]
fn a_library_without_its_symbols_is_a_note() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(path) = build(dir.path(), "libtoy.so", "int other(void) { return 1; }", &["-shared", "-s"]) else {
        return;
    };
    let found = plan(&path, &options()).expect("readable").expect("something to say");
    assert!(found.probes.is_empty() && found.libraries.is_empty());
    assert!(found.notes[0].contains("toy"), "{:?}", found.notes);
}

#[test]
fn a_function_whose_start_takes_no_probe_is_a_note() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let of = |start: &str| {
        let text = format!(
            "__asm__(\".text\\n.globl toy_reduce\\n.type toy_reduce,@function\\ntoy_reduce:\\n{start}\\nret\\n\\
             .size toy_reduce,.-toy_reduce\\n\");\n"
        );
        let path = build(dir.path(), "libtoy.so", &text, &["-shared"])?;
        plan(&path, &options()).expect("readable")
    };
    // lock addl $0,(%rsp)
    let Some(none) = of(".byte 0xf0,0x83,0x04,0x24,0x00") else { return };
    assert!(none.probes.is_empty() && none.notes[0].contains("not recorded"), "{:?}", none.notes);
    // cs nop; sub $8,%rsp; call: the entry finds a place, the return has none.
    let entry = of(".byte 0x2e,0x90\\nsub $8,%rsp\\ncall 1f\\n1: add $16,%rsp").expect("built above");
    assert_eq!((entry.probes[0].entry.delta, entry.probes[0].exit), (6, None));
    assert!(entry.notes[0].contains("returns are not recorded"), "{:?}", entry.notes);
    assert!(!crate::describe::has_return(&entry.probes[0].desc));
}

#[test]
fn the_dynamic_linker_has_a_hook() {
    let path = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !path.exists() {
        crate::skip::skipped(format_args!("no {}", path.display()));
        return;
    }
    let found = plan(path, &options()).expect("readable").expect("the hook");
    assert!(found.link_map.is_some() && found.probes.is_empty());
}

#[test]
fn places_read_well() {
    assert_eq!(place_text(0, PointCost::Emulated), "emulated");
    assert_eq!(place_text(4, PointCost::Emulated), "emulated +4");
    assert_eq!(place_text(0, PointCost::Stepped), "stepped");
}

#[test]
fn patterns_match_as_a_shell_does() {
    for (pattern, name, matches) in [
        ("libx.so*", "libx.so", true),
        ("libx.so*", "libx.so.2", true),
        ("libx.so*", "liby.so.2", false),
        ("lib*x*.so", "lib1x2.so", true),
        ("lib*x*.so", "lib12.so", false),
        ("*", "", true),
        ("a", "a", true),
        ("a*a", "a", false),
    ] {
        assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
    }
}

#[test]
fn the_installed_mpi_libraries_are_probed_where_it_is_cheap() {
    for path in ["/usr/lib/x86_64-linux-gnu/libmpi.so.40", "/usr/lib/x86_64-linux-gnu/libmpich.so.12"] {
        let path = Path::new(path);
        if !path.exists() {
            crate::skip::skipped(format_args!("{} is not installed", path.display()));
            continue;
        }
        let found = plan(path, &PlanOptions { libraries: LIBRARIES, ..options() }).expect("readable").expect("MPI");
        let probe = |name: &str| {
            found.probes.iter().find(|probe| probe.function.symbol == name).unwrap_or_else(|| panic!("{name}"))
        };
        for name in ["MPI_Allreduce", "MPI_Barrier", "MPI_Bcast", "MPI_Alltoall", "MPI_Comm_split"] {
            assert_eq!(probe(name).entry.cost, PointCost::Emulated, "{name} in {}", path.display());
        }
        let stepped: Vec<&str> = found
            .probes
            .iter()
            .filter(|probe| probe.entry.cost == PointCost::Stepped)
            .map(|probe| probe.function.symbol)
            .collect();
        println!("{}: {} probes, stepped: {stepped:?}", path.display(), found.probes.len());
        assert!(stepped.len() * 10 < found.probes.len(), "{stepped:?}");
        let offsets: Vec<u64> = found.probes.iter().map(|probe| probe.offset).collect();
        assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "each place once");
    }
}
