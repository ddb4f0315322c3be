//! CPython in a process: which version it is, where its parts lie, and what its frames and code objects mean.
//!
//! Everything here is taken from the file that holds the interpreter, never from its name, and checked against what the
//! file says of itself. A version that is not known is said to be so; its calls are recorded without Python lines. Not
//! here: other implementations of Python, which have no `_PyRuntime`; where packages lie (`python.rs`).

mod code;
mod layout;
mod lines;
mod stacks;

use std::path::Path;

use rankdiff_common::python::PythonConfig;

use crate::elf::{ElfInfo, open_regular};
use crate::maps::Mapping;

pub use code::Code;
pub use layout::Layout;
pub use lines::{LineFormat, line_of};
pub use stacks::{Found, Stacks};

/// An interpreter that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Its version is not among those whose parts are known.
    #[error("Python {0} is not known (3.9 to 3.14 are): its calls are recorded without Python lines")]
    Version(String),
    /// It was built without the global lock, and has its parts in other places.
    #[error("a free-threaded build of Python {0}: its calls are recorded without Python lines")]
    FreeThreaded(String),
    /// What the file says of itself is not what is known of its version.
    #[error("Python {version} has {what} in another place than is known: its calls are recorded without Python lines")]
    Layout {
        /// Version.
        version: String,
        /// What differs.
        what: &'static str,
    },
    /// The file could not be read.
    #[error("the Python interpreter in it could not be read: its calls are recorded without Python lines")]
    Unreadable,
}

/// The interpreter in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Address of `_PyRuntime` as linked.
    runtime: u64,
    /// Where its parts lie.
    pub layout: Layout,
}

impl Interpreter {
    /// The interpreter that a file defines; `None` if it defines none.
    pub fn find(elf: &ElfInfo, path: &Path) -> Option<Result<Interpreter, Unsupported>> {
        let runtime = elf.data_address("_PyRuntime")?;
        let read = |address: u64, size: usize| read_file(elf, path, address, size);
        let layout = match version(elf, &read) {
            Ok(version) => layout::of(version, &|size| read(runtime, size)),
            Err(error) => Err(error),
        };
        Some(layout.map(|layout| Interpreter { runtime, layout }))
    }

    /// The settings for a process that has the file mapped so.
    pub fn config(&self, elf: &ElfInfo, mapping: &Mapping) -> Option<PythonConfig> {
        Some(PythonConfig { runtime: elf.load_bias(mapping)?.wrapping_add(self.runtime), ..self.layout.config })
    }
}

/// Whether a mapped file may hold an interpreter, by its name; executables may in any case.
pub(crate) fn is_shared_interpreter(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libpython"))
}

/// Minor version of Python 3.
fn version(elf: &ElfInfo, read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Result<u8, Unsupported> {
    if let Some(address) = elf.data_address("Py_Version") {
        let bytes = read(address, 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        let [_, micro, minor, major, ..] = bytes.ok_or(Unsupported::Unreadable)?;
        return if major == 3 { Ok(minor) } else { Err(Unsupported::Version(format!("{major}.{minor}.{micro}"))) };
    }
    // Before 3.11 the version stands in no variable, but each one brought new functions.
    if elf.defines("PyModule_AddObjectRef") {
        Ok(10)
    } else if elf.defines("PyFrame_GetCode") {
        Ok(9)
    } else {
        Err(Unsupported::Version("older than 3.9".to_owned()))
    }
}

/// Bytes of the file at a link-time address.
fn read_file(elf: &ElfInfo, path: &Path, address: u64, size: usize) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let offset = elf.offset_of(address)?;
    let file = open_regular(path).ok()?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}
