//! Installs what the tests, the eBPF object and the benches need beside Rust. Quick when everything is there.
//!
//! Not here: a Rust toolchain (rustup brings it), and what only `cargo xtask dist --check-old` needs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{process, torch};

/// Debian packages, and what each is for.
const PACKAGES: &[(&str, &str)] = &[
    ("gcc", "compiles the C jobs and the callers of the benches"),
    ("g++", "links bpf-linker"),
    ("libc6-dev", "links the static binary"),
    ("make", "builds the C jobs"),
    ("binutils", "looks into the static binary"),
    ("python3", "runs the corpus"),
    ("python3-pip", "fetches NCCL and what reads exports"),
    ("python3-yaml", "reads the scenario files"),
    ("python3-zstandard", "unpacks blocks for the second reader of traces"),
    ("python3-xxhash", "computes digests for the second reader of traces"),
    ("python3-mpi4py", "Python jobs over MPI"),
    ("python3-torch", "jobs over torch.distributed"),
    ("python3-venv", "a newer torch beside it"),
    ("mpich", "runs jobs of one MPI"),
    ("libmpich-dev", "compiles jobs of one MPI"),
    ("openmpi-bin", "runs jobs of the other MPI"),
    ("libopenmpi-dev", "compiles jobs of the other MPI"),
    ("rustc-web", "compiles the eBPF programs"),
    ("libstd-rust-web-dev-bpf", "their core library"),
    ("llvm-22", "strips the eBPF object"),
    ("llvm-22-dev", "builds bpf-linker"),
    ("libpolly-22-dev", "builds bpf-linker"),
    ("libzstd-dev", "builds bpf-linker"),
    ("zlib1g-dev", "builds bpf-linker"),
    ("bpftrace", "compared with in the benches"),
];

/// Version of the linker of eBPF programs; `ebpf` refuses another.
const LINKER: &str = "0.13.0";
/// Where Debian puts the LLVM that it links against.
const LLVM: &str = "/usr/lib/llvm-22";

/// A build of NCCL whose functions are probed in the tests (it runs without a GPU as far as they need).
const NCCL_WHEEL: &str = "nvidia-nccl-cu12==2.32.3";
/// Where its library lies in the wheel.
const NCCL_LIBRARY: &str = "nvidia/nccl/lib/libnccl.so.2";

/// Python packages that read exports in the tests, from wheels alone.
const PYTHON_PACKAGES: &[&str] = &["duckdb==2.0.1", "perfetto==0.59.1", "protobuf==7.36.2"];
/// What can be imported when they are there.
const PYTHON_MODULES: &str = "import duckdb, perfetto.protos.perfetto.trace.perfetto_trace_pb2";

/// Installs what is missing.
pub(crate) fn run(root: &Path) -> Result<()> {
    install_packages(PACKAGES)?;
    install_linker(root)?;
    unpack_nccl(root)?;
    install_python_packages(root)?;
    torch::install(root)?;
    process::say("setup: everything is there");
    Ok(())
}

/// Installs the Debian packages that are missing.
pub(crate) fn install_packages(packages: &[(&str, &str)]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.iter().map(|(name, what)| format!("  {name}: {what}")).collect::<Vec<_>>().join("\n");
    ensure!(
        process::find_program("apt-get").is_some(),
        "these are missing, and there is no apt-get to install them with (the names are Debian's):\n{list}"
    );
    process::say(&format!("setup: installing\n{list}"));
    process::run(process::as_root("apt-get")?.args(["-qq", "update"]))?;
    let mut install = process::as_root("env")?;
    install.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "install", "--yes", "--no-install-recommends"]);
    install.args(missing.iter().map(|(name, _)| *name));
    process::run(&mut install)
}

/// Packages that are not installed. Without a package manager's database nothing is known to be there.
fn missing<'a>(packages: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(packages.iter().map(|(name, _)| *name))
        .output();
    // It fails when it knows one of them not at all, and prints the others all the same.
    let known = query.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let installed = |name: &str| {
        known
            .lines()
            .any(|line| line.split_once(' ').is_some_and(|(known, status)| known == name && status == "installed"))
    };
    packages.iter().copied().filter(|(name, _)| !installed(name)).collect()
}

fn install_linker(root: &Path) -> Result<()> {
    if linker_is_there() {
        return Ok(());
    }
    process::say(&format!("setup: installing bpf-linker {LINKER}"));
    let mut install = process::cargo(root);
    install
        .args(["install", "bpf-linker", "--version", LINKER, "--locked", "--force"])
        .args(["--no-default-features", "--features", "llvm-22"])
        .env("PATH", process::path_with(&Path::new(LLVM).join("bin"))?)
        .env("LLVM_PREFIX", LLVM)
        .env("LLVM_SYS_221_PREFIX", LLVM);
    process::run(&mut install)?;
    ensure!(linker_is_there(), "bpf-linker was installed, but neither PATH nor cargo's folder has it");
    Ok(())
}

fn linker_is_there() -> bool {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let installed = cargo_home.map(|home| home.join("bin/bpf-linker"));
    let candidates = process::find_program("bpf-linker").into_iter().chain(installed);
    let is_right = |path: &PathBuf| {
        Command::new(path)
            .arg("--version")
            .output()
            .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == LINKER))
    };
    // The first that exists is the one that is used.
    candidates.into_iter().find(|path| path.is_file()).is_some_and(|path| is_right(&path))
}

/// Where NCCL's library is unpacked.
pub(crate) fn nccl_library(root: &Path) -> PathBuf {
    process::target_dir(root).join("nccl").join(NCCL_LIBRARY)
}

fn unpack_nccl(root: &Path) -> Result<()> {
    let library = nccl_library(root);
    if library.is_file() {
        return Ok(());
    }
    process::say(&format!("setup: fetching {NCCL_WHEEL}"));
    let folder = process::target_dir(root).join("nccl");
    let wheels = folder.join("wheel");
    fs::create_dir_all(&wheels).with_context(|| format!("cannot make {}", wheels.display()))?;
    let python = process::python(&["pip", "zipfile"])?;
    let mut download = Command::new(&python);
    // Nothing is built or run: a wheel is an archive.
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", NCCL_WHEEL, "--dest"]);
    process::run(download.arg(&wheels))?;
    let wheel = fs::read_dir(&wheels)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .with_context(|| format!("pip left no wheel in {}", wheels.display()))?;
    process::run(Command::new(&python).args(["-m", "zipfile", "--extract"]).args([&wheel, &folder]))?;
    fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    ensure!(library.is_file(), "{NCCL_WHEEL} holds no {NCCL_LIBRARY}");
    Ok(())
}

/// Puts the Python packages into a folder of their own, where the tests look for them.
fn install_python_packages(root: &Path) -> Result<()> {
    let folder = process::target_dir(root).join("python");
    let python = process::python(&["pip"])?;
    let is_there = || process::succeeds(Command::new(&python).args(["-c", PYTHON_MODULES]).env("PYTHONPATH", &folder));
    if is_there() {
        return Ok(());
    }
    process::say(&format!("setup: fetching {}", PYTHON_PACKAGES.join(", ")));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]);
    process::run(install.arg(&folder).args(PYTHON_PACKAGES))?;
    ensure!(is_there(), "{} was installed, but cannot be imported", PYTHON_PACKAGES.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_package_that_nobody_has_is_missing() {
        let nobody = ("rankdiff-no-such-package", "nothing");
        assert_eq!(missing(&[nobody]), [nobody]);
    }
}
