//! `rankdiff pack`: a trace as one file to send to somebody, and back.

use std::ffi::OsStr;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use rankdiff_analyzer::render::escape;
use rankdiff_trace::TraceDir;
use rankdiff_trace::pack::{Limits, PackOptions, Packed, is_pack, pack, unpack};
use rankdiff_tracer::caller::Caller;

use crate::args::Pack;
use crate::drafts::{Draft, Named};
use crate::failure::{Failure, USAGE};
use crate::load::newest;
use crate::output::Output;
use crate::units::bytes;

/// Ending of the file's name.
const ENDING: &str = "rdpack";
/// Stands for stdout.
const STDOUT: &str = "-";

/// Runs the command.
pub(crate) fn run(args: &Pack, output: &Output) -> Result<u8, Failure> {
    match &args.unpack {
        Some(file) => unpack_into(file, args, output),
        None => {
            let dir = args.dir.clone().map_or_else(|| newest(Path::new(".")), Ok)?;
            pack_up(&dir, args, output)
        }
    }
}

/// Name for what is made of this, in the current directory.
fn name_after(path: &Path) -> Result<PathBuf, Failure> {
    let full = path
        .canonicalize()
        .map_err(|error| Failure::message(USAGE, format_args!("cannot read {}: {error}", path.display())))?;
    full.file_name().map(PathBuf::from).ok_or_else(|| {
        Failure::message(USAGE, format_args!("{} has no name to call it after: give one with -o", path.display()))
    })
}

fn pack_up(dir: &Path, args: &Pack, output: &Output) -> Result<u8, Failure> {
    if is_pack(dir) {
        let what = format!("{} is a pack already", dir.display());
        let advice = if args.redact { "; unpack it to redact it (`rankdiff pack --unpack`)" } else { "" };
        return Err(Failure::message(USAGE, format_args!("{what}{advice}")));
    }
    if args.output.as_ref().is_some_and(|file| file.as_os_str() == STDOUT) {
        return to_stdout(dir, args, output);
    }
    let file = match &args.output {
        Some(file) => file.clone(),
        None => {
            let mut name = name_after(dir)?.into_os_string();
            name.push(".");
            name.push(ENDING);
            PathBuf::from(name)
        }
    };
    let (place, name) = split(&file)?;
    let created = Draft::make(|| Ok(Named::new(&file, place.create_file(name)?)));
    let mut created = created.map_err(|error| {
        let there = error.kind() == std::io::ErrorKind::AlreadyExists;
        let advice = if there { "; it is not written over: give another name with -o" } else { "" };
        Failure::message(USAGE, format_args!("cannot create {}: {error}{advice}", file.display()))
    })?;
    let out = &created.get_mut().inner;
    let result = write(dir, args, BufWriter::new(out));
    if result.is_err() {
        // A part of a pack is of no use to anybody; it was created here.
        let _ = place.remove(name);
    }
    let size = out.metadata()?.len();
    let packed = result?;
    created.keep(drop);
    say(&packed, &format!("{}: ", file.display()), &format!(" in {}", bytes(size)), args, output);
    Ok(0)
}

/// Packs into a pipe or what the shell has opened.
fn to_stdout(dir: &Path, args: &Pack, output: &Output) -> Result<u8, Failure> {
    let out = std::io::stdout();
    if out.is_terminal() {
        return Err(Failure::message(USAGE, "a pack is nothing for a terminal: give a file with -o, or a pipe"));
    }
    let packed = write(dir, args, out.lock())?;
    say(&packed, "", "", args, output);
    Ok(0)
}

fn say(packed: &Packed, before: &str, size: &str, args: &Pack, output: &Output) {
    for problem in &packed.problems {
        output.warn(escape(problem));
    }
    output.say(format_args!(
        "{before}{} of {} files{size}{}",
        bytes(packed.bytes),
        packed.files,
        if args.redact { "; hosts, paths, arguments and texts are replaced" } else { "" }
    ));
}

fn write(dir: &Path, args: &Pack, out: impl Write) -> Result<Packed, Failure> {
    let options = PackOptions { redact: args.redact };
    pack(dir, options, out).map_err(|error| Failure::new(USAGE, error))
}

/// The directory that a file is created in, and its name there.
fn split(file: &Path) -> Result<(TraceDir, &str), Failure> {
    let name = file.file_name().and_then(OsStr::to_str);
    let name = name.ok_or_else(|| Failure::message(USAGE, format_args!("{} is no name of a file", file.display())))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = TraceDir::open(parent)
        .map_err(|error| Failure::message(USAGE, format_args!("cannot write into {}: {error}", parent.display())))?;
    Ok((owned(opened), name))
}

/// Under sudo, what is created belongs to the caller.
fn owned(dir: TraceDir) -> TraceDir {
    match Caller::from_environment() {
        Some(caller) => dir.with_owner(caller.owner()),
        None => dir,
    }
}

fn unpack_into(file: &Path, args: &Pack, output: &Output) -> Result<u8, Failure> {
    let dir = match &args.output {
        Some(dir) => dir.clone(),
        None => {
            let name = name_after(file)?;
            // Without its ending; a name without one would be the file's own.
            if name.extension().is_some_and(|ending| ending == ENDING) {
                name.with_extension("")
            } else {
                return Err(Failure::message(
                    USAGE,
                    "the file's name does not end in .rdpack: give a directory with -o",
                ));
            }
        }
    };
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::message(
            USAGE,
            format_args!("{} is not empty: unpack into a new directory, given with -o", dir.display()),
        ));
    }
    let is_new = !dir.exists();
    let caller = Caller::from_environment();
    let create = || TraceDir::create(&dir, caller.as_ref().map(Caller::owner)).map(|into| Named::new(&dir, into));
    let mut created = Draft::make(create)
        .map_err(|error| Failure::message(USAGE, format_args!("cannot make {}: {error}", dir.display())))?;
    let limits = args.max_size.map_or_else(Limits::default, |bytes| Limits { bytes, ratio: None });
    let unpacked = unpack(file, &created.get_mut().inner, limits).map_err(|error| {
        if is_new {
            // It was made here, and is empty again; if it cannot be removed it does no harm.
            let _ = std::fs::remove_dir(&dir);
        }
        Failure::new(USAGE, error)
    })?;
    created.keep(drop);
    output.say(format_args!(
        "{}: {} in {} files{}",
        dir.display(),
        bytes(unpacked.bytes),
        unpacked.files,
        if unpacked.redacted { "; hosts, paths, arguments and texts were replaced before it was packed" } else { "" }
    ));
    output.hint(format_args!("  rankdiff analyze {}", dir.display()));
    Ok(0)
}
