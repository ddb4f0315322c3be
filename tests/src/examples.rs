//! The jobs under `examples/`, built once, and how they are started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use crate::{root, skipped, target_dir};

/// Recordings at one time: each has a job of several processes, and few processors to share.
const SLOTS: usize = 2;

/// Leave to record; given back when dropped.
#[derive(Debug)]
pub struct Slot(());

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// Waits for leave to record.
pub fn slot() -> Slot {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    while *taken >= SLOTS {
        taken = FREED.wait(taken).unwrap_or_else(PoisonError::into_inner);
    }
    *taken += 1;
    Slot(())
}

impl Drop for Slot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}

/// A way in which the example jobs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `mpi_job` over MPICH.
    Mpich,
    /// `mpi_job` over Open MPI.
    OpenMpi,
    /// `nccl_job` over the shared library.
    Dynamic,
    /// `nccl_job` with the library inside.
    Static,
    /// `nccl_calls`.
    Calls,
}

impl Flavour {
    fn target(self) -> &'static str {
        match self {
            Flavour::Mpich => "mpich",
            Flavour::OpenMpi => "openmpi",
            Flavour::Dynamic => "cpuccl-dynamic",
            Flavour::Static => "cpuccl-static",
            Flavour::Calls => "calls",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Flavour::Mpich => "mpi_job.mpich",
            Flavour::OpenMpi => "mpi_job.openmpi",
            Flavour::Dynamic => "nccl_job.dynamic",
            Flavour::Static => "nccl_job.static",
            Flavour::Calls => "nccl_calls",
        }
    }

    /// What it needs that a machine may lack.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Flavour::Mpich => &["make", "mpicc.mpich", "mpiexec.hydra"],
            Flavour::OpenMpi => &["make", "mpicc.openmpi", "mpirun.openmpi"],
            Flavour::Dynamic | Flavour::Static | Flavour::Calls => &["make", "cc"],
        }
    }

    /// The built job; `None`, said loudly, if this machine lacks what it needs.
    ///
    /// # Panics
    /// If everything is there and it does not build, or if it may not be skipped.
    pub fn build(self, test: &str) -> Option<PathBuf> {
        static BUILT: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let missing: Vec<&str> = self.needs().iter().copied().filter(|name| !on_path(name)).collect();
        if !missing.is_empty() {
            skipped(test, &format!("it needs {}", missing.join(", ")));
            return None;
        }
        let folder = folder();
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if !built.contains(&self.target()) {
            let status = Command::new("make")
                .args(["--silent", "-C"])
                .arg(root().join("examples"))
                .arg(format!("OUT={}", folder.display()))
                .arg(self.target())
                .env("CARGO_TARGET_DIR", target_dir())
                .status();
            assert!(status.is_ok_and(|status| status.success()), "make -C examples {} failed", self.target());
            built.push(self.target());
        }
        Some(folder.join(self.file()))
    }
}

/// Where the jobs are built.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| target_dir().join("examples"))
}

/// Whether a program is found where programs are looked for.
pub fn on_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// The library that the NCCL jobs use.
pub fn cpuccl() -> PathBuf {
    folder().join("libcpuccl.so")
}

/// A real `libnccl`: the one that `RANKDIFF_NCCL` names, else the one that `cargo xtask setup` unpacked.
pub fn real_nccl() -> Option<PathBuf> {
    let named = std::env::var_os("RANKDIFF_NCCL").map(|path| root().join(path));
    let unpacked = target_dir().join("nccl/nvidia/nccl/lib/libnccl.so.2");
    named.into_iter().chain([unpacked]).find(|path| path.is_file())
}

/// An MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
}

impl Mpi {
    /// How its jobs are built.
    pub fn flavour(self) -> Flavour {
        match self {
            Mpi::Mpich => Flavour::Mpich,
            Mpi::OpenMpi => Flavour::OpenMpi,
        }
    }

    /// The command that starts a job of so many ranks.
    pub fn launcher(self, ranks: u32) -> Vec<String> {
        let words: &[&str] = match self {
            Mpi::Mpich => &["mpiexec.hydra"],
            Mpi::OpenMpi => &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
        };
        words.iter().map(|word| (*word).to_owned()).chain(["-n".to_owned(), ranks.to_string()]).collect()
    }
}
