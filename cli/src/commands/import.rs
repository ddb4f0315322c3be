//! `rankdiff import`: files of other formats as a trace directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use rankdiff_analyzer::input::{self, ImportError, Importer, Stored, store};
use rankdiff_analyzer::render::escape;
use tempfile::TempDir;

use crate::args::Import;
use crate::drafts::Draft;
use crate::failure::{Failure, USAGE};
use crate::output::Output;
use crate::staged::StagedDir;

/// Stands for stdin.
const STDIN: &str = "-";
/// Bytes of a file by which its format is told.
const HEAD: usize = 64 << 10;

/// Runs the command.
pub(crate) fn run(args: &Import, output: &Output) -> Result<u8, Failure> {
    let staged = StagedDir::create(&args.output, false, false)?;
    let mut stored = Stored::default();
    for path in &args.files {
        let source: Box<dyn BufRead> = if path.as_os_str() == STDIN {
            Box::new(BufReader::with_capacity(HEAD, io::stdin()))
        } else {
            Box::new(opened(path)?)
        };
        let (source, importer) = sniffed(path, source)?;
        let importer = importer.ok_or_else(|| Failure::new(USAGE, foreign(path)))?;
        output.detail(format_args!("{}: {}", path.display(), importer.summary()));
        read(importer, path, source, staged.path(), &mut stored).map_err(|error| staged.failed(&error))?;
    }
    if stored.processes == 0 {
        return Err(Failure::message(USAGE, "there is no process in what was given; nothing was imported"));
    }
    staged.keep()?;
    for remark in &stored.remarks {
        output.warn(escape(remark));
    }
    let what = if stored.processes == 1 { "process" } else { "processes" };
    output.say(format_args!(
        "{} calls of {} {what} written to {}",
        stored.calls,
        stored.processes,
        args.output.display()
    ));
    Ok(0)
}

fn foreign(path: &Path) -> ImportError {
    ImportError::Foreign { path: path.to_owned(), known: input::known() }
}

fn opened(path: &Path) -> Result<BufReader<File>, Failure> {
    let file = File::open(path).and_then(|file| {
        // A directory opens, and fails only when it is read.
        if file.metadata()?.is_dir() { Err(io::Error::from(io::ErrorKind::IsADirectory)) } else { Ok(file) }
    });
    let file = file.map_err(|source| Failure::new(USAGE, ImportError::Read { path: path.to_owned(), source }))?;
    Ok(BufReader::with_capacity(HEAD, file))
}

/// A source with the importer that knows its beginning.
type Sniffed<'a> = (Box<dyn BufRead + 'a>, Option<&'static dyn Importer>);

fn sniffed<'a>(path: &Path, mut source: Box<dyn BufRead + 'a>) -> Result<Sniffed<'a>, Failure> {
    let head = source.fill_buf();
    let head = head.map_err(|source| Failure::new(USAGE, ImportError::Read { path: path.to_owned(), source }))?;
    let importer = input::importer_of(head);
    Ok((source, importer))
}

fn read(
    importer: &dyn Importer,
    path: &Path,
    source: Box<dyn BufRead + '_>,
    dir: &Path,
    stored: &mut Stored,
) -> Result<(), ImportError> {
    let mut input = importer.open(path, source)?;
    store(&mut *input, dir, stored)
}

/// A trace directory of its own, and what was left out.
pub(crate) type Imported = (Draft<TempDir>, Vec<String>);

/// A file of another format as a trace directory of its own, with what was left out; `None` if it is in no format that can
/// be imported.
pub(crate) fn as_trace(path: &Path) -> Result<Option<Imported>, Failure> {
    if !path.is_file() {
        return Ok(None);
    }
    let (source, importer) = sniffed(path, Box::new(opened(path)?))?;
    let Some(importer) = importer else { return Ok(None) };
    let place = Draft::make(|| tempfile::Builder::new().prefix("rankdiff-import-").tempdir())?;
    let mut stored = Stored::default();
    read(importer, path, source, place.path(), &mut stored).map_err(|error| Failure::new(USAGE, error))?;
    if stored.processes == 0 {
        return Err(Failure::message(USAGE, format_args!("{} holds no process", path.display())));
    }
    Ok(Some((place, stored.remarks)))
}
