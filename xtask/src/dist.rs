//! The binary that is shipped: one static file that runs on any x86-64 Linux, whatever its C library.
//!
//! The symbol table and the line tables stay: the ranks of `rankdiff demo` live in this very file and are probed and
//! named there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{process, setup};

/// What an old system's trial needs beside `setup`.
const OLD_PACKAGES: &[(&str, &str)] = &[("debootstrap", "makes the old system")];
/// Debian 11: glibc 2.31, older than what any supported kernel comes with.
const OLD_SUITE: &str = "bullseye";
/// Longest that one command may take in the old system.
const OLD_TIMEOUT_S: &str = "120";

/// Where the binary is put.
pub(crate) fn binary(root: &Path) -> PathBuf {
    process::target_dir(root).join("dist").join("rankdiff")
}

/// Builds the binary and checks that it is what it should be.
pub(crate) fn build(root: &Path) -> Result<()> {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // Panic messages and line tables must not carry the names of this machine's folders.
    flags.push(format!("--remap-path-prefix={}=/rankdiff", root.display()));
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    let mut command = process::cargo(root);
    command
        // With a target named, build scripts and macros are not built with these flags.
        .args(["build", "--locked", "--release", "--package", "rankdiff", "--target", process::TARGET])
        // Line tables of our own code only: those of the dependencies would be two thirds of the file.
        .args(["--config", "profile.release.package.\"*\".debug=false"])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS");
    process::run(&mut command)?;
    let built = process::target_dir(root).join(process::TARGET).join("release").join("rankdiff");
    check(&built)?;
    let shipped = binary(root);
    replace(&built, &shipped)?;
    let version = process::output(Command::new(&shipped).arg("--version"))?;
    let size = fs::metadata(&shipped).with_context(|| format!("cannot read {}", shipped.display()))?.len();
    process::say(&format!("{}: {}, {:.1} MB, static", shipped.display(), version.trim(), size as f64 / 1e6));
    Ok(())
}

/// Puts the file in its place in one step, so that one that runs is not written to.
fn replace(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let beside = to.with_extension("new");
    fs::copy(from, &beside).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, to).with_context(|| format!("cannot write {}", to.display()))
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// No interpreter, no library, but a symbol table.
fn check(binary: &Path) -> Result<()> {
    let readelf = |what: &str| process::output(Command::new("readelf").args(["--wide", what]).arg(binary));
    judge(&readelf("--program-headers")?, &readelf("--dynamic")?, &readelf("--section-headers")?)
        .with_context(|| format!("{} cannot be shipped", binary.display()))
}

fn judge(segments: &str, dynamic: &str, sections: &str) -> Result<()> {
    let has_word = |text: &str, wanted: &str| text.split_whitespace().any(|word| word == wanted);
    ensure!(!has_word(segments, "INTERP"), "it asks for a dynamic linker");
    if let Some(line) = dynamic.lines().find(|line| line.contains("(NEEDED)")) {
        bail!("it needs a library: {}", line.trim());
    }
    ensure!(has_word(sections, ".symtab"), "it has no symbol table; the demo's ranks could not be probed");
    Ok(())
}

/// Runs the binary in an old Debian: version, doctor and the demo with its eBPF.
pub(crate) fn check_old(root: &Path) -> Result<()> {
    ensure!(process::is_root(), "a trial in an old system needs root");
    setup::install_packages(OLD_PACKAGES)?;
    let system = process::target_dir(root).join("old").join(OLD_SUITE);
    // The last thing that is made; an attempt that was cut off begins again.
    let ready = system.join("ready");
    if !ready.is_file() {
        if system.exists() {
            fs::remove_dir_all(&system).with_context(|| format!("cannot remove {}", system.display()))?;
        }
        fs::create_dir_all(&system).with_context(|| format!("cannot make {}", system.display()))?;
        process::run(Command::new("debootstrap").args(["--variant=minbase", OLD_SUITE]).arg(&system))?;
        fs::write(&ready, "").with_context(|| format!("cannot write {}", ready.display()))?;
    }
    replace(&binary(root), &system.join("usr/local/bin/rankdiff"))?;
    // Exit code 1 of the demo is its verdict: a finding.
    for (arguments, allowed) in [(&["--version"][..], &[0][..]), (&["doctor"], &[0]), (&["demo"], &[0, 1])] {
        in_old_system(&system, arguments, allowed)?;
    }
    Ok(())
}

/// Runs in a mount name space of its own, so that nothing stays mounted whatever happens.
fn in_old_system(system: &Path, arguments: &[&str], allowed: &[i32]) -> Result<()> {
    const ENTER: &str = r#"
        set -e
        system=$1 limit=$2
        shift 2
        for folder in proc sys dev; do mount --rbind "/$folder" "$system/$folder"; done
        mount -t tmpfs tmpfs "$system/tmp"
        exec timeout --kill-after=5 "$limit" chroot "$system" /usr/bin/env --chdir=/tmp rankdiff "$@"
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]);
    command.arg(system).arg(OLD_TIMEOUT_S).args(arguments);
    let what = format!("rankdiff {} in {OLD_SUITE}", arguments.join(" "));
    process::say(&format!("\n--- {what}"));
    let status = command.status().with_context(|| format!("cannot start {what}"))?;
    let code = status.code().with_context(|| format!("{what}: {status}"))?;
    ensure!(allowed.contains(&code), "{what}: exit code {code}, expected one of {allowed:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn what_is_not_static_is_not_shipped() {
        let sections = "  [30] .symtab  SYMTAB";
        assert!(judge("  LOAD 0x0", "There is no dynamic section in this file.", sections).is_ok());
        assert!(judge("  INTERP 0x0", "", sections).is_err());
        assert!(judge("  LOAD 0x0", "  0x1 (NEEDED)  Shared library: [libc.so.6]", sections).is_err());
        assert!(judge("  LOAD 0x0", "", "  [30] .strtab STRTAB").is_err());
    }
}
