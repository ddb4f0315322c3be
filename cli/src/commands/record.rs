//! `rankdiff record`: starts a job, records it, shows the verdict.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankdiff_tracer::attach::LoadOptions;
use rankdiff_tracer::place::Storage;
use rankdiff_tracer::points::PlanOptions;
use rankdiff_tracer::privilege;
use rankdiff_tracer::record::{self, Ended, RecordError, RecordOptions, Recorded, Watcher};
use rankdiff_tracer::session::{Attached, Totals};

use crate::args::{FailOn, Record, Report};
use crate::commands::analyze;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, RECORDER, TIMED_OUT};
use crate::load::{DEFAULT_PREFIX, Decode, load};
use crate::output::Output;
use crate::units::bytes;

/// Runs the command.
pub(crate) fn run(args: &Record, output: &Output) -> Result<u8, Failure> {
    let dir = args.output.clone().unwrap_or_else(default_dir);
    let options = RecordOptions {
        command: args.command.clone(),
        environment: Vec::new(),
        dir: dir.clone(),
        storage: Storage { keep: args.keep, max_disk: args.max_disk, join: args.join, named: args.output.is_some() },
        timeout: args.timeout,
        stall_after: args.stall_after,
        end_on_stall: false,
        load: LoadOptions { ring_bytes: args.ring << 20 },
        plan: PlanOptions::default(),
        files: args.libraries.clone(),
    };
    let recorded = record(&options, output)?;
    say_end(&recorded, &dir, output);
    if !args.no_verdict
        && recorded.totals.streams > 0
        && let Err(failure) = verdict(&dir, args.stall_after, output)
    {
        // The exit code is the job's, whatever becomes of the report.
        output.error(&failure);
    }
    Ok(match (recorded.status, recorded.ended) {
        (Some(status), _) => record::exit_code(status).clamp(0, 255) as u8,
        (None, _) => TIMED_OUT,
    })
}

/// Records, with progress on stderr.
pub(crate) fn record(options: &RecordOptions, output: &Output) -> Result<Recorded, Failure> {
    refuse_without_privilege()?;
    record::record(options, &mut Progress { output }).map_err(failure)
}

/// A directory name that sorts by time.
pub(crate) fn default_dir() -> PathBuf {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    PathBuf::from(format!("{DEFAULT_PREFIX}{seconds}-{}", std::process::id()))
}

/// What is missing and how to get it, before anything is started.
pub(crate) fn refuse_without_privilege() -> Result<(), Failure> {
    let missing: Vec<String> = privilege::missing()
        .into_iter()
        .map(|requirement| {
            let fix = if requirement.fix.is_empty() { String::new() } else { format!("\n    {}", requirement.fix) };
            format!("  {}: {}{fix}", requirement.name, requirement.detail)
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::message(
        RECORDER,
        format_args!(
            "recording is not possible here:\n{}\n  `rankdiff doctor` shows all of it; `rankdiff analyze` and `show` \
             work without",
            missing.join("\n")
        ),
    ))
}

fn failure(error: RecordError) -> Failure {
    let code = match &error {
        RecordError::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        RecordError::Start { .. } => NOT_EXECUTABLE,
        _ => RECORDER,
    };
    Failure::new(code, error)
}

/// Analyzes the trace and prints the report; the exit code is the job's, not the report's.
fn verdict(dir: &Path, stall_after: Duration, output: &Output) -> Result<(), Failure> {
    let report = Report {
        format: "full".to_owned(),
        fail_on: FailOn::Never,
        strict: false,
        stall_after,
        select: Vec::new(),
        ignore: Vec::new(),
    };
    let loaded = load(&[dir.to_owned()], Decode::Auto, output)?;
    let found = analyze::report(loaded, &report)?;
    analyze::print(&found, &report, output)?;
    Ok(())
}

fn say_end(recorded: &Recorded, dir: &Path, output: &Output) {
    let Totals { streams, calls, lost, unwritten, bytes, .. } = recorded.totals;
    match recorded.ended {
        Some(Ended::Timeout) => output.say("the time given by --timeout has passed; the job was ended"),
        Some(Ended::Stall) => output.say("no rank makes progress any more; the job was ended"),
        None => {}
    }
    if streams == 0 {
        output.warn(
            "no call of a known collective library was seen (use --library FILE if the job loads one from an unusual \
             place; `rankdiff list-probes FILE` says what is known of it)",
        );
    } else {
        output.say(format_args!("{calls} calls of {} recorded ({bytes} bytes)", plural(streams, "process")));
    }
    if lost > 0 {
        output.warn(format_args!("{lost} calls were lost in a full ring buffer; --ring gives it more room"));
    }
    if recorded.full && unwritten > 0 {
        output.warn(format_args!("{unwritten} calls are not recorded: --max-disk was reached"));
    } else if unwritten > 0 || recorded.totals.write_failed {
        output.warn(format_args!("{unwritten} calls could not be written"));
    }
    let dropped = recorded.dropped;
    if dropped.calls > 0 {
        output.say(format_args!("{} older calls were dropped by --keep; their digests are kept", dropped.calls));
    }
    if recorded.not_given {
        output.warn("some files of the trace still belong to root: they could not be given to you");
    }
    output.say(format_args!("trace: {}", dir.display()));
}

/// '1 file', '2 files', '2 processes'.
fn plural(count: usize, noun: &str) -> String {
    match (count, noun.ends_with('s')) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{count} {noun}es"),
        (_, false) => format!("{count} {noun}s"),
    }
}

/// Progress on stderr.
struct Progress<'a> {
    output: &'a Output,
}

impl Progress<'_> {
    fn problems(&self, attached: &Attached) {
        for problem in &attached.problems {
            self.output.detail(format_args!("note: {problem}"));
        }
    }
}

impl Watcher for Progress<'_> {
    fn attached(&mut self, attached: &Attached) {
        let points: usize = attached.files.iter().map(|(_, points)| points).sum();
        let files = attached.files.len();
        if files > 0 {
            self.output.say(format_args!("recording: {points} probe points in {}", plural(files, "file")));
        }
        for (path, points) in &attached.files {
            self.output.detail(format_args!("  {points} in {}", path.display()));
        }
        self.problems(attached);
    }

    fn news(&mut self, attached: &Attached) {
        for (path, points) in &attached.files {
            self.output.detail(format_args!("loaded later: {points} probe points in {}", path.display()));
        }
        self.problems(attached);
    }

    fn stalled(&mut self, since: Duration) {
        self.output.warn(format_args!(
            "no collective call for {since:.0?}; what each rank is doing was recorded (Ctrl-C ends the job and shows the \
             verdict)",
        ));
    }

    fn without_tail(&mut self, problem: &str) {
        self.output.warn(format_args!("{problem}; a recorder that is killed loses what it saw in its last second"));
    }

    fn full(&mut self, limit: u64) {
        self.output.warn(format_args!(
            "the trace takes the {} that --max-disk allows: calls are not recorded from here on; the job goes on",
            bytes(limit)
        ));
    }
}
