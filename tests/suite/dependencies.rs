//! Which package may depend on which (docs/architecture.md says why): held by the packages' manifests as cargo reads
//! them.

use std::collections::{BTreeMap, BTreeSet};

use rankdiff_tests::cargo;
use serde_json::Value;

/// Packages of the workspace, and the packages of the workspace that each may depend on, for its tests as well.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rankdiff-common", &[]),
    ("rankdiff-ebpf", &["rankdiff-common"]),
    ("rankdiff-trace", &[]),
    ("rankdiff-libs", &["rankdiff-trace"]),
    ("rankdiff-tracer", &["rankdiff-common", "rankdiff-libs", "rankdiff-trace"]),
    ("rankdiff-analyzer", &["rankdiff-libs", "rankdiff-trace"]),
    ("cpuccl", &[]),
    ("rankdiff", &["cpuccl", "rankdiff-analyzer", "rankdiff-trace", "rankdiff-tracer"]),
];

/// Packages that nothing depends on and that are shipped in nothing: they may depend on anything.
const TOOLS: &[&str] = &["rankdiff-programs", "rankdiff-tests", "xtask"];

/// Packages that other packages alone may depend on, and why.
const CONFINED: &[(&str, &[&str], &str)] = &[
    ("aya", &["rankdiff-common", "rankdiff-tracer", "xtask"], "what analyzes traces is portable and needs no root"),
    ("anyhow", &["rankdiff", "rankdiff-tests", "xtask"], "libraries name their errors"),
    ("clap", &["rankdiff", "xtask"], "the command line is the binary's"),
    ("tokio", &["rankdiff", "rankdiff-tracer"], "only what records waits for several things at once"),
];

/// Each package's dependencies of every kind, a package's dependency on itself (a feature for its tests) aside.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = cargo().args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).expect("a name");
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let own = name(package);
            let others = list(&package["dependencies"]).iter().map(name).filter(|other| *other != own).collect();
            (own, others)
        })
        .collect()
}

#[test]
fn packages_depend_only_on_what_they_may() {
    let packages = dependencies();
    let expected: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).chain(TOOLS.iter().copied()).collect();
    let found: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    assert_eq!(found, expected, "a package came or went: give it its place in this rule and in docs/architecture.md");
    for (package, others) in &packages {
        let own: Vec<&str> = others.iter().map(String::as_str).filter(|other| expected.contains(other)).collect();
        if let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) {
            for other in own {
                assert!(allowed.contains(&other), "{package} may not depend on {other}: see docs/architecture.md");
            }
        } else {
            assert!(TOOLS.contains(&package.as_str()));
        }
        for tool in TOOLS {
            assert!(package == "xtask" || !others.contains(*tool), "{package} depends on the tool {tool}");
        }
    }
}

#[test]
fn confined_packages_stay_where_they_are() {
    for (package, others) in dependencies() {
        for (confined, users, why) in CONFINED {
            let uses = others.contains(*confined);
            assert!(!uses || users.contains(&package.as_str()), "{package} may not depend on {confined}: {why}");
        }
    }
}
