//! The jobs under `examples/torch`: which releases of torch are here, and the verdicts that the jobs must get.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{root, skipped, target_dir};

/// A release of torch that the jobs run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torch {
    /// Debian's package.
    Debian,
    /// The wheel that `cargo xtask setup` put into the build folder.
    Wheel,
}

impl Torch {
    fn python(self) -> PathBuf {
        match self {
            Torch::Debian => PathBuf::from("/usr/bin/python3"),
            Torch::Wheel => target_dir().join("torch/bin/python"),
        }
    }

    /// The interpreter; `None`, said loudly, if this release is not here.
    pub fn find(self, test: &str) -> Option<PathBuf> {
        let python = self.python();
        let mut probe = Command::new(&python);
        probe.args(["-c", "import torch.distributed"]).stdout(Stdio::null()).stderr(Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            return Some(python);
        }
        skipped(
            test,
            match self {
                Torch::Debian => "it needs the package python3-torch",
                Torch::Wheel => "it needs the wheel of torch: cargo xtask setup",
            },
        );
        None
    }
}

/// The command of a job: its file's name, and its arguments behind a space.
pub fn job(python: &Path, name: &str, more: &[&str]) -> Vec<String> {
    let mut words = name.split(' ');
    let file = root().join("examples/torch").join(format!("{}.py", words.next().unwrap_or_default()));
    let arguments = words.chain(more.iter().copied()).map(str::to_owned);
    [python.display().to_string(), file.display().to_string()].into_iter().chain(arguments).collect()
}

/// The verdicts by job (`examples/torch/verdicts.json`).
///
/// # Panics
/// If the file is none of that kind.
pub fn verdicts() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(root().join("examples/torch/verdicts.json")).expect("the verdicts' file");
    serde_json::from_str(&text).expect("verdicts by job")
}
