//! Builds the eBPF object that the tracer embeds, and checks that the committed one is what its source gives.
//!
//! No nightly toolchain: Debian's `rustc-web` has a `core` for `bpfel-unknown-none`, and `bpf-linker` links against the
//! same LLVM. The object must not depend on where it was built, so every path is remapped and debug information is
//! stripped; only BTF stays.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The package that holds the programs.
const PACKAGE: &str = "rankdiff-ebpf";
/// Target of the programs.
const TARGET: &str = "bpfel-unknown-none";
/// The committed object, from the root of the checkout.
const OBJECT: &str = "tracer-user/ebpf/rankdiff.bpf.o";
/// Release of the compiler that the committed object was built with; another gives other bytes.
const RUSTC_RELEASE: &str = "1.96.0";
/// Where that compiler's library came from. Not remappable, as it is compiled already.
const RUSTC_SOURCE: &str = "/usr/src/rustc-1.96.0";
/// Release of the linker, likewise.
const LINKER_RELEASE: &str = "0.13.0";
/// Major version of LLVM, for both.
const LLVM: &str = "22";
/// Processor whose `pt_regs` the programs read.
const ARCH: &str = "x86_64";

/// Settings that decide the bytes, whatever the workspace's own profile says. Debug information is where BTF comes from;
/// one unit, so that the order of functions does not vary.
const PROFILE: [&str; 7] = [
    "profile.release.opt-level=3",
    "profile.release.debug=\"full\"",
    "profile.release.codegen-units=1",
    "profile.release.lto=false",
    "profile.release.strip=false",
    "profile.release.overflow-checks=false",
    "profile.release.debug-assertions=false",
];

/// Builds the object; into the tree, or with `check` elsewhere and from nothing, to compare.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let tools = Tools::find()?;
    if check {
        return compare(root, &tools);
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let object = build(root, &target.join("ebpf"), &tools)?;
    let path = root.join(OBJECT);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(&path, &object).with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("{OBJECT}: {} bytes", object.len()));
    Ok(())
}

/// Builds from a copy of the source in another folder with an empty target folder, and compares the bytes.
fn compare(root: &Path, tools: &Tools) -> Result<()> {
    let committed =
        fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}: run cargo xtask ebpf"))?;
    let scratch = Scratch::new()?;
    let copy = scratch.0.join("checkout of another name");
    copy_sources(root, &copy)?;
    let built = build(&copy, &scratch.0.join("target"), tools)?;
    if let Some(at) = first_difference(&committed, &built) {
        bail!(
            "{OBJECT} is not what its source gives: {} bytes committed, {} built, first difference at byte {at}. Run \
             cargo xtask ebpf and commit the result",
            committed.len(),
            built.len()
        );
    }
    say(&format!("{OBJECT}: {} bytes, as built from source", built.len()));
    Ok(())
}

/// Index of the first byte in which the two differ.
fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    let common = left.len().min(right.len());
    left.iter().zip(right).position(|(left, right)| left != right).or((left.len() != right.len()).then_some(common))
}

/// Copies what the build reads: the two packages, the lock, and of the other members of the workspace their manifests and
/// sources, without which cargo takes none of it.
fn copy_sources(root: &Path, to: &Path) -> Result<()> {
    for entry in walk(root)? {
        let relative = entry.strip_prefix(root)?;
        let wanted = relative.starts_with("tracer-ebpf")
            || relative.starts_with("tracer-common")
            || relative.file_name().is_some_and(|name| name == "Cargo.toml" || name == "Cargo.lock")
            || relative.extension().is_some_and(|extension| extension == "rs");
        if wanted {
            let into = to.join(relative);
            if let Some(folder) = into.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&entry, &into).with_context(|| format!("cannot copy {}", entry.display()))?;
        }
    }
    Ok(())
}

/// Files below a folder, without build output and hidden folders.
fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type()?;
        if kind.is_dir() && !hidden && name != "target" {
            found.extend(walk(&entry.path())?);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Builds and gives the stripped object.
fn build(root: &Path, target: &Path, tools: &Tools) -> Result<Vec<u8>> {
    let mut command = Command::new(&tools.cargo);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--release", "--locked", "--package", PACKAGE, "--target", TARGET])
        .args(PROFILE.iter().flat_map(|setting| ["--config", setting]))
        .arg("--target-dir")
        .arg(target)
        .env("RUSTC", &tools.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(root)?)
        .env("PATH", tools.path()?);
    for name in ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    run_command(&mut command, "building the eBPF programs")?;
    let linked = target.join(TARGET).join("release").join(PACKAGE);
    let stripped = target.join("rankdiff.bpf.o");
    // Keeps .BTF and .BTF.ext.
    run_command(
        Command::new(&tools.strip).arg("--strip-debug").arg(&linked).arg("-o").arg(&stripped),
        "stripping the eBPF object",
    )?;
    fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))
}

/// Flags of the compiler, separated as cargo wants them.
fn rustflags(root: &Path) -> Result<OsString> {
    let mut flags = vec![
        OsString::from(format!("--cfg=bpf_target_arch=\"{ARCH}\"")),
        OsString::from(format!("--check-cfg=cfg(bpf_target_arch,values(\"{ARCH}\"))")),
        // Atomic additions that give the old value; the kernel has them from 5.12 on.
        OsString::from("-Ctarget-cpu=v3"),
        OsString::from("-Clink-arg=--btf"),
    ];
    // These files are nowhere: the linker would otherwise copy their lines into BTF.
    flags.push(remap(root, "/rankdiff"));
    for folder in registry_folders()? {
        flags.push(remap(&folder, "/registry"));
    }
    let mut joined = OsString::new();
    for (index, flag) in flags.iter().enumerate() {
        if index > 0 {
            joined.push("\x1f");
        }
        joined.push(flag);
    }
    Ok(joined)
}

/// The flag that gives the paths below a folder another name.
fn remap(folder: &Path, name: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.push(folder);
    flag.push("=");
    flag.push(name);
    flag
}

/// Folders with the unpacked packages, one per registry.
fn registry_folders() -> Result<Vec<PathBuf>> {
    let sources = cargo_home()?.join("registry").join("src");
    let mut folders = Vec::new();
    if let Ok(entries) = fs::read_dir(&sources) {
        for entry in entries {
            folders.push(entry?.path());
        }
    }
    folders.sort();
    Ok(folders)
}

/// Cargo's folder.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = env::home_dir().context("no home folder: set CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// The programs that build the object.
struct Tools {
    cargo: OsString,
    rustc: OsString,
    linker: PathBuf,
    strip: OsString,
}

impl Tools {
    /// Finds them, or says what to install.
    fn find() -> Result<Tools> {
        let tools = Tools {
            cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            rustc: env::var_os("RANKDIFF_BPF_RUSTC").unwrap_or_else(|| "/usr/bin/rustc".into()),
            linker: find_linker()?,
            strip: env::var_os("RANKDIFF_LLVM_STRIP").unwrap_or_else(|| format!("llvm-strip-{LLVM}").into()),
        };
        tools.check_rustc()?;
        tools.check_linker()?;
        output(Command::new(&tools.strip).arg("--version")).with_context(|| {
            format!(
                "no {}: apt-get install llvm-{LLVM} (another program: RANKDIFF_LLVM_STRIP)",
                tools.strip.to_string_lossy()
            )
        })?;
        Ok(tools)
    }

    fn check_rustc(&self) -> Result<()> {
        let name = self.rustc.to_string_lossy();
        let install = "apt-get install rustc-web libstd-rust-web-dev-bpf (another compiler: RANKDIFF_BPF_RUSTC)";
        let version = output(Command::new(&self.rustc).arg("-vV")).with_context(|| format!("no {name}: {install}"))?;
        let field = |key: &str| version.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("").trim().to_owned();
        let release = field("release:");
        ensure!(
            release == RUSTC_RELEASE,
            "{name} is {release}; the object is built with {RUSTC_RELEASE}, another gives other bytes: {install}"
        );
        ensure!(
            !Path::new(RUSTC_SOURCE).exists(),
            "{RUSTC_SOURCE} is there: the linker would copy lines of it into the object, which must be the same \
             everywhere; move the folder away for the build"
        );
        let llvm = field("LLVM version:");
        ensure!(llvm.split('.').next() == Some(LLVM), "{name} has LLVM {llvm}, not {LLVM}: {install}");
        let sysroot = output(Command::new(&self.rustc).args(["--print", "sysroot"]))?;
        let core = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
        ensure!(core.is_dir(), "{name} has no core for {TARGET}: apt-get install libstd-rust-web-dev-bpf");
        Ok(())
    }

    fn check_linker(&self) -> Result<()> {
        let version = output(Command::new(&self.linker).arg("--version"))
            .with_context(|| format!("cannot run {}: {}", self.linker.display(), install_linker()))?;
        ensure!(
            version.split_whitespace().any(|word| word == LINKER_RELEASE),
            "{} is '{}', not {LINKER_RELEASE}: {}",
            self.linker.display(),
            version.trim(),
            install_linker()
        );
        Ok(())
    }

    /// PATH on which the compiler finds the linker.
    fn path(&self) -> Result<OsString> {
        let mut folders: Vec<PathBuf> = self.linker.parent().map(Path::to_path_buf).into_iter().collect();
        folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
        env::join_paths(folders).context("a folder of PATH has a separator in its name")
    }
}

/// How to get the linker.
fn install_linker() -> String {
    format!(
        "apt-get install llvm-{LLVM}-dev, then PATH=/usr/lib/llvm-{LLVM}/bin:$PATH LLVM_PREFIX=/usr/lib/llvm-{LLVM} \
         LLVM_SYS_221_PREFIX=/usr/lib/llvm-{LLVM} cargo install bpf-linker --version {LINKER_RELEASE} --locked \
         --no-default-features --features llvm-{LLVM}"
    )
}

/// The linker, on PATH or where cargo installs programs.
fn find_linker() -> Result<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    folders.push(cargo_home()?.join("bin"));
    let found = folders.iter().map(|folder| folder.join("bpf-linker")).find(|path| path.is_file());
    found.with_context(|| format!("no bpf-linker: {}", install_linker()))
}

/// Runs a command that may print.
fn run_command(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("{what}: cannot start {command:?}"))?;
    ensure!(status.success(), "{what}: {command:?} failed with {status}");
    Ok(())
}

/// Runs a command and gives what it printed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A folder of its own that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = env::temp_dir().join(format!("rankdiff-ebpf-check-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn differences_are_found_where_they_begin() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
        assert_eq!(first_difference(b"", b"a"), Some(0));
    }
}
