//! Whose a Python frame is: the user's own, or a framework's or the language's.
//!
//! The innermost frames of a call are wrappers that are the same everywhere. Who reads a report looks for the line of their
//! own code that led there. Data only: a framework that is missing is one more name here.

/// Packages whose frames are no user's code, by the names of their folders below `site-packages` or `dist-packages`.
///
/// A user's own package that is installed there is not among them and so counts as the user's.
pub const PACKAGES: &[&str] = &[
    "accelerate",
    "apex",
    "cffi",
    "colossalai",
    "cupy",
    "cupyx",
    "deepspeed",
    "fairscale",
    "flax",
    "functorch",
    "horovod",
    "ignite",
    "jax",
    "jaxlib",
    "lightning",
    "lightning_fabric",
    "lightning_utilities",
    "megatron",
    "mpi4py",
    "numba",
    "numpy",
    "nvidia",
    "optax",
    "peft",
    "pytorch_lightning",
    "ray",
    "sentence_transformers",
    "tensorflow",
    "torch",
    "torchdata",
    "torchtitan",
    "torchvision",
    "transformer_engine",
    "transformers",
    "trl",
    "vllm",
    "xformers",
];

/// Of these, the ones that are also used from a checkout, where no `site-packages` is in their path: the last folders
/// before a file of theirs.
pub const CHECKOUTS: &[&str] =
    &["deepspeed/runtime", "megatron/core", "megatron/training", "torch/distributed", "torch/nn"];

/// Folders in which packages are installed.
const INSTALLED: &[&str] = &["site-packages", "dist-packages"];

/// Whether a Python source file belongs to a framework, or to Python itself.
pub fn is_framework(file: &str) -> bool {
    if file.starts_with("<frozen ") {
        return true;
    }
    let parts: Vec<&str> = file.split('/').collect();
    if let Some(at) = parts.iter().rposition(|part| INSTALLED.contains(part)) {
        let package = parts.get(at + 1).copied().unwrap_or_default();
        let package = package.strip_suffix(".py").unwrap_or(package);
        return PACKAGES.contains(&package);
    }
    let is_library = |pair: &[&str]| pair.first() == Some(&"lib") && pair.get(1).is_some_and(|name| is_version(name));
    if parts.windows(2).any(is_library) {
        return true;
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    CHECKOUTS
        .iter()
        .any(|checkout| folder.split('/').collect::<Vec<_>>().windows(2).any(|pair| pair.join("/") == *checkout))
}

/// `python3.11` and the like: the folder of the standard library.
fn is_version(name: &str) -> bool {
    name.strip_prefix("python3.").is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{PACKAGES, is_framework};

    #[test]
    fn frameworks_and_the_standard_library_are_told_from_the_users_code() {
        for file in [
            "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
            "/usr/lib/python3/dist-packages/torch/autograd/__init__.py",
            "/usr/lib/python3.11/threading.py",
            "/opt/conda/lib/python3.12/runpy.py",
            "<frozen importlib._bootstrap>",
            "/src/Megatron-LM/megatron/core/pipeline_parallel/schedules.py",
            "/venv/lib/python3.11/site-packages/mpi4py/run.py",
        ] {
            assert!(is_framework(file), "{file}");
        }
        for file in [
            "train.py",
            "/home/user/torch_train.py",
            "/home/user/torch/train.py",
            "/venv/lib/python3.11/site-packages/ourmodel/loop.py",
            "<string>",
            "<ipython-input-3-abc>",
            "",
        ] {
            assert!(!is_framework(file), "{file}");
        }
    }

    #[test]
    fn the_list_is_sorted_and_has_nothing_twice() {
        assert!(PACKAGES.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
