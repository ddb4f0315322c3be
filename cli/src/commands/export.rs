//! `rankdiff export`: a trace into another tool's format.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankdiff_analyzer::export::{self, EXPORTERS, ExportError, Exporter, Job, Progress, Shape, Surveyed, Target};
use rankdiff_analyzer::render::escape;
use rankdiff_trace::JobDir;

use crate::args::Export;
use crate::failure::{Failure, USAGE};
use crate::load::newest;
use crate::output::Output;
use crate::room;
use crate::staged::{StagedDir, StagedFile};
use crate::unpacked::Inputs;

/// Stands for stdout.
const STDOUT: &str = "-";
/// Between two lines of progress.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &Export, output: &Output) -> Result<u8, Failure> {
    let exporter = exporter(&args.to)?;
    let shape = shape(exporter, args)?;
    let paths = if args.paths.is_empty() { vec![newest(Path::new("."))?] } else { args.paths.clone() };
    for path in &paths {
        // Before anything is named after it.
        if let Err(error) = path.metadata() {
            return Err(Failure::message(USAGE, format_args!("cannot read {}: {error}", path.display())));
        }
    }
    let destination = match &args.output {
        Some(named) => named.clone(),
        None => default_name(&paths, exporter, shape)?,
    };
    let inputs = Inputs::open(&paths)?;
    let mut job = Job::default();
    let mut problems: Vec<String> = inputs.remarks().to_vec();
    for path in inputs.paths() {
        let found = JobDir::open(path).map_err(|error| Failure::new(USAGE, error))?;
        problems.extend(found.problems().iter().map(ToString::to_string));
        job.infos.extend_from_slice(found.infos());
        job.streams.extend_from_slice(found.streams());
    }
    let job = Surveyed::of(job);
    let (progress, found) = write(&job, exporter, shape, &destination, args, output)?;
    problems.extend(found);
    for problem in problems {
        output.warn(escape(&inputs.shown(&problem)));
    }
    let Progress { processes, calls } = progress;
    if destination.as_os_str() != STDOUT {
        let what = if processes == 1 { "process" } else { "processes" };
        output.say(format_args!("{calls} calls of {processes} {what} written to {}", destination.display()));
    }
    Ok(0)
}

fn exporter(name: &str) -> Result<&'static dyn Exporter, Failure> {
    export::exporter_named(name).ok_or_else(|| {
        let names: Vec<&str> = EXPORTERS.iter().map(|exporter| exporter.name()).collect();
        Failure::message(USAGE, format_args!("unknown format `{name}`; there are: {}", names.join(", ")))
    })
}

fn shape(exporter: &dyn Exporter, args: &Export) -> Result<Shape, Failure> {
    let shapes = exporter.shapes();
    let refused = |why: &str| Err(Failure::message(USAGE, format_args!("{} {why}", exporter.name())));
    let to_stdout = args.output.as_ref().is_some_and(|path| path.as_os_str() == STDOUT);
    if args.per_process && !(shapes.contains(&Shape::File) && shapes.contains(&Shape::Directory)) {
        return refused("has no form with a file for each process; leave --per-process out");
    }
    let shape = if args.per_process { Some(Shape::Directory) } else { shapes.first().copied() };
    match shape {
        Some(Shape::Directory) if to_stdout => refused("is written into a directory: give one with -o"),
        Some(shape) => Ok(shape),
        None => refused("cannot be written"),
    }
}

/// The first trace's name with the format's suffix, in the current directory.
fn default_name(paths: &[PathBuf], exporter: &dyn Exporter, shape: Shape) -> Result<PathBuf, Failure> {
    let name = paths.first().and_then(|path| path.canonicalize().ok());
    let name = name.as_deref().and_then(Path::file_stem);
    let Some(name) = name else {
        return Err(Failure::message(USAGE, "nothing to name the export after: give a name with -o"));
    };
    let mut name = name.to_owned();
    name.push(match shape {
        Shape::File => exporter.suffix().to_owned(),
        Shape::Directory => exporter.suffix().replace('.', "-"),
    });
    Ok(PathBuf::from(name))
}

fn write(
    job: &Surveyed,
    exporter: &dyn Exporter,
    shape: Shape,
    to: &Path,
    args: &Export,
    output: &Output,
) -> Result<(Progress, Vec<String>), Failure> {
    let wanted =
        |at: usize| args.rank.as_ref().is_none_or(|ranks| job.ranks(at).iter().any(|&rank| ranks.contains(rank)));
    if args.rank.is_some() && !(0..job.len()).any(&wanted) {
        return Err(Failure::message(USAGE, "no process of the trace plays one of these ranks"));
    }
    room::check((0..job.len()).filter(|&at| wanted(at)).map(|at| job.calls_of(at)).max().unwrap_or(0))?;
    let mut teller = Teller { job, output, next: Instant::now() + PAUSE, told: false };
    let mut tell = |progress| teller.tell(progress);
    let failed = |error: ExportError| Failure::new(USAGE, error);
    let done = if to.as_os_str() == STDOUT {
        job.export(exporter, Target::File(Box::new(io::stdout())), &wanted, &mut tell).map_err(failed)?
    } else if shape == Shape::File {
        let mut staged = StagedFile::create(to, args.force)?;
        let done = job.export(exporter, Target::File(staged.writer()), &wanted, &mut tell).map_err(failed)?;
        staged.keep()?;
        done
    } else {
        let staged = StagedDir::create(to, args.force, true)?;
        let done = job.export(exporter, Target::Directory(staged.path()), &wanted, &mut tell);
        let done = done.map_err(|error| staged.failed(&error))?;
        staged.keep()?;
        done
    };
    teller.end();
    Ok(done)
}

/// Progress of a long export, in one line of the terminal.
struct Teller<'a> {
    job: &'a Surveyed,
    output: &'a Output,
    next: Instant,
    told: bool,
}

impl Teller<'_> {
    fn tell(&mut self, progress: Progress) {
        if Instant::now() < self.next || !self.output.is_talkative() || !io::stderr().is_terminal() {
            return;
        }
        self.next = Instant::now() + PAUSE;
        self.told = true;
        let (processes, calls) = (progress.processes, progress.calls);
        let (all, all_calls) = (self.job.len(), self.job.calls());
        // Who does not see it misses nothing.
        let _ = write!(io::stderr(), "\r{processes} of {all} processes, {calls} of {all_calls} calls");
    }

    fn end(&self) {
        if self.told {
            let _ = writeln!(io::stderr());
        }
    }
}
