//! Which files a command is going to map, so that probes are in place before its first call.
//!
//! A prediction may hold files that are never mapped (probes on them cost nothing) and may miss files: a library that
//! is first seen when it is loaded is attached then. So everything here is bounded, and what cannot be followed is a
//! note. Nothing is run. Not here: which of the files hold a library (`points`).

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rankdiff_libs::registry::LIBRARIES;
use rustc_hash::FxHashSet;

use crate::elf::ElfInfo;
use crate::loader::Loader;
use crate::maps::FileKey;
use crate::points::matches_pattern;
use crate::python;

/// Most programs of one command line that are followed.
const MAX_PROGRAMS: usize = 64;
/// Deepest chain of scripts and interpreters.
const MAX_SHEBANGS: usize = 5;
/// Most extension modules of a Python that are looked into.
const MAX_EXTENSIONS: usize = 5000;
/// Longest first line of a script.
const MAX_SHEBANG: u64 = 512;

/// Files that a command is expected to map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Files, each once, in the order in which they were found.
    pub files: Vec<PathBuf>,
    /// Dynamic linkers of the programs, which tell of libraries loaded later.
    pub interpreters: Vec<PathBuf>,
    /// What could not be followed, and why.
    pub notes: Vec<String>,
}

/// Predicts the files of a command started with this environment in the current folder.
pub fn predict(command: &[OsString], env: &[(OsString, OsString)]) -> Prediction {
    let Some((program, args)) = command.split_first() else { return Prediction::default() };
    let mut predictor = Predictor {
        loader: Loader::new(env),
        search: value(env, "PATH").map(ToOwned::to_owned),
        prediction: Prediction::default(),
        seen: FxHashSet::default(),
        programs: 0,
    };
    match predictor.find_program(program) {
        Some(path) => predictor.program(&path, 0),
        None => predictor.prediction.notes.push(format!("{}: no such program", program.to_string_lossy())),
    }
    // A launcher's arguments name the program that matters (mpiexec -n 4 ./job, sh -c 'exec ./job', torchrun job.py);
    // those of an ordinary program seldom name another, and then probes on it do no harm.
    let words = args.iter().flat_map(|arg| arg.as_bytes().split(|byte| byte.is_ascii_whitespace()));
    for word in words {
        let word = OsStr::from_bytes(trim_quotes(word));
        if predictor.programs < MAX_PROGRAMS
            && let Some(path) = predictor.find_argument(word)
        {
            predictor.program(&path, 0);
        }
    }
    for preload in predictor.loader.preloads() {
        predictor.object(&preload);
    }
    predictor.prediction
}

/// The value of a variable.
pub(crate) fn value<'a>(env: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
}

struct Predictor {
    loader: Loader,
    search: Option<OsString>,
    prediction: Prediction,
    seen: FxHashSet<FileKey>,
    programs: usize,
}

impl Predictor {
    /// Follows a program: a script's interpreter, an executable's libraries, Python's packages.
    fn program(&mut self, path: &Path, depth: usize) {
        if depth > MAX_SHEBANGS || self.programs >= MAX_PROGRAMS {
            return;
        }
        self.programs += 1;
        match shebang(path) {
            Some(words) => {
                for behind in python::behind_shim(path) {
                    self.program(&behind, depth + 1);
                }
                if let Some(interpreter) = self.interpreter_of(&words) {
                    self.program(&interpreter, depth + 1);
                } else {
                    let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
                    self.prediction.notes.push(format!("{}: its interpreter {name} was not found", path.display()));
                }
            }
            None => {
                self.object(path);
                if python::is_interpreter(path) {
                    self.packages(path);
                }
            }
        }
    }

    /// Adds an ELF file and everything that it needs.
    fn object(&mut self, path: &Path) {
        let mut open = vec![(path.to_owned(), Vec::new())];
        while let Some((path, inherited)) = open.pop() {
            let Ok(key) = FileKey::of(&path) else { continue };
            if !self.seen.insert(key) {
                continue;
            }
            let Ok(needs) = self.loader.needs(&path, &inherited) else { continue };
            if let Some(interpreter) = needs.interpreter
                && !self.prediction.interpreters.contains(&interpreter)
            {
                self.prediction.interpreters.push(interpreter);
            }
            for missing in needs.missing {
                self.prediction.notes.push(format!("{}: needs {missing}, which was not found", path.display()));
            }
            self.prediction.files.push(path);
            open.extend(needs.found.into_iter().rev().map(|found| (found, needs.rpath.clone())));
        }
    }

    /// Adds the collective libraries among a Python's packages, and the extensions that need one.
    fn packages(&mut self, interpreter: &Path) {
        let looked = Cell::new(0_usize);
        let wanted = |path: &Path, name: &str| {
            if is_named_like_one(name) {
                return true;
            }
            if !name.contains(".so") || looked.get() >= MAX_EXTENSIONS {
                return false;
            }
            looked.set(looked.get() + 1);
            ElfInfo::read_needs(path).is_ok_and(|elf| elf.needed().iter().any(|needed| is_named_like_one(needed)))
        };
        let found = python::libraries(interpreter, self.loader.env(), &wanted);
        if found.cut || looked.get() >= MAX_EXTENSIONS {
            self.prediction.notes.push(format!(
                "{}: has too many packages to look through all; a library in one of the others is found when it is \
                 loaded",
                interpreter.display()
            ));
        }
        for file in found.files {
            self.object(&file);
        }
    }

    /// The program that a script's first line names.
    fn interpreter_of(&self, words: &[OsString]) -> Option<PathBuf> {
        let (first, rest) = words.split_first()?;
        if Path::new(first).file_name() != Some(OsStr::new("env")) {
            return self.find_program(first);
        }
        // env [-S] [NAME=VALUE]… PROGRAM
        let program = rest.iter().find(|word| {
            let bytes = word.as_bytes();
            !bytes.starts_with(b"-") && !bytes.contains(&b'=')
        })?;
        self.find_program(program)
    }

    fn find_program(&self, name: &OsStr) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            return is_executable(&path).then_some(path);
        }
        let search = self.search.as_deref().unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
        std::env::split_paths(search).map(|folder| folder.join(name)).find(|path| is_executable(path))
    }

    /// The file that a word of the command line names: a program, or a script that its interpreter is given.
    fn find_argument(&self, word: &OsStr) -> Option<PathBuf> {
        let bytes = word.as_bytes();
        if bytes.is_empty() || bytes.starts_with(b"-") {
            return None;
        }
        if bytes.contains(&b'/') {
            let path = PathBuf::from(word);
            // A library that a program is told to load need not be executable.
            let named = path.file_name().and_then(OsStr::to_str).is_some_and(is_named_like_one) && path.is_file();
            return (named || is_executable(&path) || (path.is_file() && shebang(&path).is_some())).then_some(path);
        }
        // A bare word is looked up as a launcher does; one of a few letters is hardly a program (`-n 4`).
        if bytes.iter().all(u8::is_ascii_digit) { None } else { self.find_program(word) }
    }
}

/// Whether a file is named like a collective library.
pub(crate) fn is_named_like_one(name: &str) -> bool {
    LIBRARIES.iter().flat_map(|library| library.file_patterns).any(|pattern| matches_pattern(pattern, name))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The words of a script's first line; `None` if the file is no script.
fn shebang(path: &Path) -> Option<Vec<OsString>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(MAX_SHEBANG).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let words: Vec<OsString> = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    (!words.is_empty()).then_some(words)
}

fn trim_quotes(word: &[u8]) -> &[u8] {
    let quote = |byte: &u8| matches!(byte, b'\'' | b'"' | b';' | b'&' | b'(' | b')');
    let start = word.iter().position(|byte| !quote(byte)).unwrap_or(word.len());
    let end = word.iter().rposition(|byte| !quote(byte)).map_or(start, |last| last + 1);
    word.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::{Prediction, predict, shebang, trim_quotes};

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    fn env(path: &str) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), path.into())]
    }

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("own file");
        path
    }

    fn has(prediction: &Prediction, name: &str) -> bool {
        prediction
            .files
            .iter()
            .any(|file| file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
    }

    #[test]
    fn a_program_brings_its_libraries_and_its_dynamic_linker() {
        let found = predict(&command(&["sh", "-c", "true"]), &env("/usr/bin:/bin"));
        assert!(has(&found, "libc.so"), "{found:?}");
        assert!(found.interpreters.iter().any(|path| path.to_string_lossy().contains("ld-")), "{found:?}");
    }

    #[test]
    fn scripts_lead_to_their_interpreters_through_env_too() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let inner = script(dir.path(), "inner", "#!/usr/bin/env -S FOO=1 sh -e\nexit 0\n");
        let outer = script(dir.path(), "outer", &format!("#!{} -x\n", inner.display()));
        let found = predict(&command(&[outer.to_str().expect("text")]), &env("/usr/bin:/bin"));
        assert!(has(&found, "dash") || has(&found, "sh") || has(&found, "bash"), "{found:?}");
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("loop");
        let path = script(dir.path(), "loop", &format!("#!{}\n", path.display()));
        assert_eq!(predict(&command(&[path.to_str().expect("text")]), &env("/bin")).files, Vec::<PathBuf>::new());
    }

    #[test]
    fn a_launchers_arguments_are_followed() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let job = script(dir.path(), "job", "#!/bin/cat\n");
        let text = format!("exec '{}' --steps 3", job.display());
        let found = predict(&command(&["sh", "-c", &text]), &env("/usr/bin:/bin"));
        assert!(has(&found, "cat"), "{found:?}");
    }

    #[test]
    fn a_pythons_extension_that_needs_a_collective_library_is_followed() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let packages = dir.path().join("lib/python3.11/site-packages/binding");
        fs::create_dir_all(&packages).expect("writable");
        fs::create_dir_all(dir.path().join("bin")).expect("writable");
        fs::copy("/bin/true", dir.path().join("bin/python3.11")).expect("writable");
        let source = packages.join("x.c");
        fs::write(&source, "int f(void) { return 1; }").expect("writable");
        let gcc = |out: &Path, args: &[&str]| {
            let mut command = std::process::Command::new("gcc");
            command.args(["-shared", "-fPIC", "-o"]).arg(out).arg(&source).args(args);
            command.status().is_ok_and(|status| status.success())
        };
        let library = dir.path().join("libmpi.so.40");
        if !gcc(&library, &["-Wl,-soname,libmpi.so.40"]) {
            crate::skip::skipped(format_args!("no gcc"));
            return;
        }
        let library = library.to_str().expect("text");
        let rpath = format!("-Wl,--no-as-needed,-rpath,{}", dir.path().display());
        assert!(gcc(&packages.join("binding.so"), &[&rpath, library]));
        assert!(gcc(&packages.join("other.so"), &[]));
        let python = dir.path().join("bin/python3.11");
        let found = predict(&command(&[python.to_str().expect("text"), "job.py"]), &env("/usr/bin"));
        assert!(has(&found, "binding.so") && !has(&found, "other.so"), "{found:?}");
        assert!(
            found.files.iter().any(|file| file.ends_with("libmpi.so.40") && file.starts_with(dir.path())),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_not_there_is_a_note() {
        let found = predict(&command(&["no-such-program-here"]), &env("/usr/bin"));
        assert!(found.files.is_empty());
        assert!(found.notes.iter().any(|note| note.contains("no-such-program-here")), "{found:?}");
        assert_eq!(predict(&[], &env("/usr/bin")), Prediction::default());
    }

    #[test]
    fn words_lose_their_quotes() {
        assert_eq!(trim_quotes(b"'./a b'"), b"./a b");
        assert_eq!(trim_quotes(b"\";"), b"");
        assert_eq!(shebang(Path::new("/proc/self/exe")), None);
    }
}
