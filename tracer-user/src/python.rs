//! Collective libraries that come with a Python's packages: wheels carry their own copies, which `import` maps.
//!
//! The interpreter is never run: its package folders follow from where it lies, from `pyvenv.cfg`, PYTHONPATH and the
//! folders of the user. Not here: conda's activation scripts, packages that editable installs lead to.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::predict::value;

/// Deepest folder below a package folder that is looked into (`nvidia/cu13/lib/x.so` is the fourth).
const MAX_DEPTH: usize = 4;
/// Most folders that are looked into.
const MAX_FOLDERS: usize = 20_000;

/// Most versions of Python behind one shim.
const MAX_VERSIONS: usize = 16;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    /// The files.
    pub(crate) files: Vec<PathBuf>,
    /// There were too many folders to look into all.
    pub(crate) cut: bool,
}

/// Whether a program is a Python interpreter, by its name.
pub(crate) fn is_interpreter(path: &Path) -> bool {
    let named = |path: &Path| {
        let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
        name.strip_prefix(b"python")
            .or_else(|| name.strip_prefix(b"pypy"))
            .is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.' || *byte == b't'))
    };
    named(path) || fs::canonicalize(path).is_ok_and(|path| named(&path))
}

/// The interpreters that a pyenv shim may start: which one depends on files and variables that are read when it runs.
pub(crate) fn behind_shim(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else { return Vec::new() };
    if !is_interpreter(path) || folder.file_name() != Some(OsStr::new("shims")) {
        return Vec::new();
    }
    let versions = folder.with_file_name("versions");
    let mut found: Vec<PathBuf> = fs::read_dir(versions)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.is_file())
        .take(MAX_VERSIONS)
        .collect();
    found.sort();
    found
}

/// The wanted files among a Python's packages.
pub(crate) fn libraries(
    interpreter: &Path,
    env: &[(OsString, OsString)],
    wanted: &dyn Fn(&Path, &str) -> bool,
) -> Packages {
    let mut packages = Packages::default();
    let mut folders = 0;
    let mut roots = Vec::new();
    for root in package_folders(interpreter, env) {
        let Ok(root) = fs::canonicalize(root) else { continue };
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    for root in roots {
        search(&root, MAX_DEPTH, &mut folders, wanted, &mut packages);
    }
    packages
}

/// Folders with packages, best first.
fn package_folders(interpreter: &Path, env: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        value(env, "PYTHONPATH").map(|list| std::env::split_paths(list).collect()).unwrap_or_default();
    if let Some(home) = value(env, "HOME") {
        folders.extend(version_folders(&Path::new(home).join(".local/lib"), &["site-packages"]));
    }
    let mut prefixes: Vec<PathBuf> = Vec::new();
    // The link in a virtual environment's bin tells the environment; where it leads to, the Python that it was made of.
    let mut current = Some(interpreter.to_owned());
    for _ in 0..8 {
        let Some(path) = current else { break };
        if let Some(prefix) = path.parent().and_then(Path::parent) {
            let uses_base = fs::read_to_string(prefix.join("pyvenv.cfg"))
                .map(|text| text.lines().any(|line| is_true(line, "include-system-site-packages")));
            prefixes.push(prefix.to_owned());
            if matches!(uses_base, Ok(false)) {
                break;
            }
        }
        current = fs::read_link(&path).ok().map(|to| path.parent().unwrap_or(Path::new("/")).join(to));
    }
    for prefix in prefixes {
        for lib in ["lib", "lib64"] {
            folders.extend(version_folders(&prefix.join(lib), &["site-packages", "dist-packages"]));
        }
        // Debian keeps packages of every version of Python 3 in one folder, and local ones below /usr/local.
        folders.push(prefix.join("lib/python3/dist-packages"));
        if prefix == Path::new("/usr") {
            folders.extend(version_folders(Path::new("/usr/local/lib"), &["site-packages", "dist-packages"]));
        }
    }
    folders
}

/// `NAME = true` in a configuration file.
fn is_true(line: &str, name: &str) -> bool {
    line.split_once('=').is_some_and(|(key, value)| key.trim() == name && value.trim().eq_ignore_ascii_case("true"))
}

/// `LIB/python*/NAME` for each name.
fn version_folders(lib: &Path, names: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(lib) else { return Vec::new() };
    let mut versions: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"python"))
        .map(|entry| entry.path())
        .collect();
    versions.sort();
    versions
        .iter()
        .flat_map(|version| names.iter().map(|name| version.join(name)))
        .filter(|path| path.is_dir())
        .collect()
}

fn search(
    folder: &Path,
    depth: usize,
    folders: &mut usize,
    wanted: &dyn Fn(&Path, &str) -> bool,
    packages: &mut Packages,
) {
    *folders += 1;
    if *folders > MAX_FOLDERS {
        packages.cut = true;
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links to folders are not followed: they lead in circles, or to what is found anyway.
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_dir() {
            let skip = [OsStr::new("__pycache__"), OsStr::new("include"), OsStr::new("share")];
            if depth > 1 && !skip.contains(&name.as_os_str()) {
                search(&entry.path(), depth - 1, folders, wanted, packages);
            }
        } else {
            let path = entry.path();
            if name.to_str().is_some_and(|name| wanted(&path, name)) {
                packages.files.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{behind_shim, is_interpreter, libraries};

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().expect("has a parent")).expect("writable");
        fs::write(path, b"x").expect("writable");
    }

    #[test]
    fn interpreters_are_known_by_name() {
        for name in ["/usr/bin/python3", "/opt/x/python", "/x/python3.13t", "/x/pypy3"] {
            assert!(is_interpreter(Path::new(name)), "{name}");
        }
        for name in ["/usr/bin/pythonista", "/bin/sh", "/x/python-config", "/"] {
            assert!(!is_interpreter(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_shim_may_start_any_version_that_has_the_program() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let shim = dir.path().join("shims/python3");
        touch(&shim);
        touch(&dir.path().join("versions/3.11.7/bin/python3"));
        touch(&dir.path().join("versions/3.12.1/bin/python3"));
        touch(&dir.path().join("versions/2.7/bin/python"));
        let names: Vec<_> = behind_shim(&shim);
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].ends_with("3.11.7/bin/python3"));
        assert!(behind_shim(Path::new("/usr/bin/python3")).is_empty());
    }

    #[test]
    fn libraries_of_an_environment_and_of_its_base_are_found() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (base, venv) = (dir.path().join("base"), dir.path().join("venv"));
        touch(&base.join("bin/python3.11"));
        touch(&base.join("lib/python3.11/site-packages/mpich/lib/libx.so.12"));
        touch(&venv.join("lib/python3.11/site-packages/nvidia/nccl/lib/libx.so.2"));
        touch(&venv.join("lib/python3.11/site-packages/a/b/c/d/e/libx.so.9"));
        touch(&venv.join("lib/python3.11/site-packages/other.so"));
        fs::create_dir_all(venv.join("bin")).expect("writable");
        let python = venv.join("bin/python");
        symlink(base.join("bin/python3.11"), &python).expect("writable");
        symlink(&venv, venv.join("lib/python3.11/site-packages/circle")).expect("writable");
        let names = || -> Vec<String> {
            let found = libraries(&python, &[], &|_, name| name.starts_with("libx.so"));
            assert!(!found.cut);
            found.files.iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect()
        };
        // Without its configuration file the environment is no boundary.
        assert_eq!(names(), ["libx.so.2", "libx.so.12"]);
        fs::write(venv.join("pyvenv.cfg"), "home = x\ninclude-system-site-packages = false\n").expect("writable");
        assert_eq!(names(), ["libx.so.2"]);
        fs::write(venv.join("pyvenv.cfg"), "include-system-site-packages = true\n").expect("writable");
        assert_eq!(names(), ["libx.so.2", "libx.so.12"]);
    }
}
