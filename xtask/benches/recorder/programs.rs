//! The C programs of the bench, and talking to a caller that is pinned to a processor.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Where the sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/recorder/c");
/// The library's file name, in a folder per variant.
const LIBRARY: &str = "libtarget.so";
/// The variants; each has a copy of the library, since a probe belongs to a file.
const VARIANTS: &[&str] = &["none", "empty", "entry", "both", "bpftrace", "interposed", "loss", "python"];

/// Goes down to the wanted number of frames, its own module among them, and stays there.
const PYTHON: &str = "\
import ctypes, sys
measure = ctypes.CDLL(sys.argv[1]).measure
def below(frames):
    if frames == 1:
        return measure(int(sys.argv[2]))
    return below(frames - 1)
sys.exit(below(int(sys.argv[3]) - 1))
";

/// Compiled programs.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Compiles them into a folder.
    pub(crate) fn build(folder: &Path) -> Result<Programs> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let programs = Programs { folder: folder.to_path_buf() };
        let original = folder.join(LIBRARY);
        compile(&["-shared", "-fPIC"], "library.c", &original, &[])?;
        for variant in VARIANTS {
            let copy = programs.library(variant);
            let of_its_own = folder.join(variant);
            fs::create_dir_all(&of_its_own).with_context(|| format!("cannot make {}", of_its_own.display()))?;
            fs::copy(&original, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        }
        compile(&["-shared", "-fPIC"], "interpose.c", &programs.interposer(), &["-ldl".as_ref()])?;
        compile(&[], "caller.c", &programs.caller(), &[original.as_ref()])?;
        compile(&["-shared", "-fPIC"], "caller.c", &programs.shared_caller(), &[original.as_ref()])?;
        Ok(programs)
    }

    /// The caller, as a library for Python.
    fn shared_caller(&self) -> PathBuf {
        self.folder.join("libcaller.so")
    }

    /// The caller.
    pub(crate) fn caller(&self) -> PathBuf {
        self.folder.join("caller")
    }

    fn interposer(&self) -> PathBuf {
        self.folder.join("libinterpose.so")
    }

    /// The variant's library.
    pub(crate) fn library(&self, variant: &str) -> PathBuf {
        self.folder.join(variant).join(LIBRARY)
    }

    /// Starts a caller of the variant's library on a processor.
    pub(crate) fn start(&self, library: &Path, interposed: bool, processor: usize) -> Result<Caller> {
        let mut preload = library.as_os_str().to_owned();
        if interposed {
            let inner = preload;
            preload = self.interposer().into_os_string();
            preload.push(":");
            preload.push(inner);
        }
        Caller::start(Command::new(self.caller()).arg(processor.to_string()).env("LD_PRELOAD", preload))
    }

    /// Starts a caller below so many Python frames.
    pub(crate) fn start_python(&self, python: &Path, frames: u32, processor: usize) -> Result<Caller> {
        let mut command = Command::new(python);
        command.args(["-c", PYTHON]).arg(self.shared_caller()).args([processor.to_string(), frames.to_string()]);
        Caller::start(command.env("LD_PRELOAD", self.library("python")))
    }
}

fn compile(flags: &[&str], source: &str, to: &Path, more: &[&std::ffi::OsStr]) -> Result<()> {
    let status = Command::new("cc")
        .args(["-O1", "-fno-omit-frame-pointer", "-fcf-protection=none", "-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .arg("-o")
        .arg(to)
        .arg(Path::new(SOURCES).join(source))
        .args(more)
        .status()
        .context("no cc: run cargo xtask setup")?;
    ensure!(status.success(), "compiling {source} failed");
    Ok(())
}

/// A caller that waits for work. It ends when its input does.
#[derive(Debug)]
pub(crate) struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Caller {
    fn start(command: &mut Command) -> Result<Caller> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the caller")?;
        let input = child.stdin.take().context("the caller has no input")?;
        let output = BufReader::new(child.stdout.take().context("the caller has no output")?);
        Ok(Caller { child, input: Some(input), output })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes calls; ns of CPU time per call. A tenth more is called before, not counted.
    pub(crate) fn batch(&mut self, calls: u64) -> Result<f64> {
        let input = self.input.as_mut().context("the caller was ended")?;
        writeln!(input, "{calls}").context("the caller is gone")?;
        let mut line = String::new();
        self.output.read_line(&mut line).context("the caller is gone")?;
        let taken: u64 = line.trim().parse().with_context(|| format!("the caller said '{}'", line.trim()))?;
        Ok(taken as f64 / calls as f64)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.input = None;
        // It was told to end; whether it did well no longer matters.
        let _ = self.child.wait();
    }
}
