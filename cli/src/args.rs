//! The command line: flags and their help, nothing else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rankdiff_trace::testgen::grid::{GridSpec, Plant};
use rankdiff_trace::{Keep, RankSet};

use crate::load::Decode;

/// Says where the ranks of a distributed job first stopped agreeing on their collective calls.
#[derive(Debug, Parser)]
#[command(
    name = "rankdiff",
    version,
    about,
    max_term_width = 100,
    propagate_version = true,
    after_help = "Start with `rankdiff demo`. To record a job of your own: `rankdiff record -- mpirun -n 4 ./job`.\n\
                  Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 usage or unreadable input, 3 inconclusive\n\
                  with --strict; `record` passes the job's own code through (128+n for a signal, 124 after --timeout)\n\
                  and uses 125 for its own failures, 126 and 127 for a command that cannot be run or found."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Colour the output.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Global options")]
    pub(crate) color: Color,
    /// Say more on stderr; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Say nothing on stderr but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a real local job with a known fault, record it with eBPF and show the verdict.
    Demo(Demo),
    /// Start a job, record its collective calls and say what went wrong.
    Record(Record),
    /// Analyze recorded traces: the first divergence, who waits for whom, what is missing.
    Analyze(Analyze),
    /// Print the calls of a trace, one line each.
    Show(Show),
    /// Say where the ranks stand: who waits for whom, where each rank is, how far each communicator has come.
    Dump(Dump),
    /// Write a trace in another tool's format: Parquet tables, JSON Lines, a Perfetto timeline.
    Export(Export),
    /// Turn files of another format into a trace directory.
    Import(Import),
    /// Pack a trace into one file to send to somebody, or unpack one.
    Pack(Pack),
    /// Turn a scenario file, or a large made-up job, into a trace directory
    Synth(Synth),
    /// List the functions of a process or library that would be probed, and how.
    ListProbes(ListProbes),
    /// Check what recording needs on this machine, and say how to get what is missing.
    Doctor,
    /// Explain a finding's code: what it means, why it matters, how to fix it.
    Explain(Explain),
    /// Print a shell's completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands into a directory.
    Man {
        /// Write one page per command into this directory.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// The demo's job: starts its ranks and waits for them.
    #[command(hide = true)]
    DemoJob(DemoJob),
    /// One rank of the demo's job.
    #[command(hide = true)]
    DemoRank(DemoJob),
}

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff demo          rank 6 is one step behind when the others validate\n  \
                        rankdiff demo stall    four of eight ranks are held in a driver call before the first barrier")]
pub(crate) struct Demo {
    /// Which story.
    #[arg(value_enum, default_value_t = Story::Diverge)]
    pub(crate) story: Story,
    /// Keep the trace here [default: rankdiff-trace-TIME in the current directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The fault's place.
    #[command(flatten)]
    pub(crate) fault: Fault,
}

/// Which story the demo tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Story {
    /// One rank is a step behind and makes another call than the rest.
    Diverge,
    /// Half of the ranks never arrive: a driver call is retried for ever.
    Stall,
}

/// Where the demo's fault lies (for tests: the verdict must follow).
#[derive(Debug, Clone, Args)]
pub(crate) struct Fault {
    /// Rank that goes wrong.
    #[arg(long, hide = true, default_value_t = 6)]
    pub(crate) fault_rank: u32,
    /// Steps before the others validate.
    #[arg(long, hide = true, default_value_t = 20)]
    pub(crate) fault_step: u32,
    /// Nothing goes wrong.
    #[arg(long, hide = true)]
    pub(crate) healthy: bool,
    /// Number of ranks.
    #[arg(long, hide = true, default_value_t = 8)]
    pub(crate) ranks: u32,
}

/// The hidden commands of the demo's job.
#[derive(Debug, Args)]
pub(crate) struct DemoJob {
    /// Which story.
    #[arg(long, value_enum, default_value_t = Story::Diverge)]
    pub(crate) story: Story,
    /// The fault's place.
    #[command(flatten)]
    pub(crate) fault: Fault,
}

/// `record`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff record -- mpirun -n 4 ./job\n  \
                        rankdiff record -o trace --timeout 10m -- torchrun --nproc-per-node=8 train.py\n  \
                        rankdiff record --keep 30m -- ./long_job             full calls of the last 30 minutes only\n  \
                        srun rankdiff record -o /scratch/trace -- ./job      one recorder per task, one directory")]
pub(crate) struct Record {
    /// Write the trace into this directory [default: rankdiff-trace-TIME in the current directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// End the job after this time (`90`, `90s`, `10m`, `2h`), after a look at what each rank is doing.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Look at the ranks when no call was made for this long, and take waits longer than this for a hang.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) stall_after: Duration,
    /// Size of the ring buffer between kernel and recorder in MiB, a power of two.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = ring_mib)]
    pub(crate) ring: u32,
    /// Probe this library or executable as well (found by itself where the job names or loads it).
    #[arg(long = "library", value_name = "FILE")]
    pub(crate) libraries: Vec<PathBuf>,
    /// Keep the calls of this much time (`30m`, `2h`), or as many of the latest as fit (`2GiB`); of older ones only the
    /// digests.
    #[arg(long, value_name = "TIME|SIZE", value_parser = crate::units::keep, allow_negative_numbers = true)]
    pub(crate) keep: Option<Keep>,
    /// Never take more room than this on the disk (`10GiB`); once it is used up, the job goes on without being
    /// recorded.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::disk, allow_negative_numbers = true)]
    pub(crate) max_disk: Option<u64>,
    /// Record into a directory that holds another run's trace, as a part of the same job (the nodes of one run need not
    /// say it).
    #[arg(long)]
    pub(crate) join: bool,
    /// Do not analyze at the end.
    #[arg(long)]
    pub(crate) no_verdict: bool,
    /// Command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What is reported, and when it fails.
#[derive(Debug, Clone, Args)]
pub(crate) struct Report {
    /// How to print the report: full, concise or json.
    #[arg(long, value_name = "FORMAT", default_value = "full")]
    pub(crate) format: String,
    /// Fail (exit 1) from this severity on.
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = FailOn::Error)]
    pub(crate) fail_on: FailOn,
    /// Exit 3 where nothing can be told.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Waits longer than this are a hang, mismatches need no limit.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) stall_after: Duration,
    /// Report these codes only (`D001`, or a prefix: `D`).
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) select: Vec<String>,
    /// Leave these codes out.
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,
}

/// Severities to fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Notes and graver.
    Note,
    /// Warnings and errors.
    Warning,
    /// Errors.
    Error,
    /// Nothing.
    Never,
}

/// `analyze`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rankdiff analyze                      the newest trace in the current directory\n  \
                        rankdiff analyze trace --format json\n  rankdiff analyze trace --fail-on warning --strict"
)]
pub(crate) struct Analyze {
    /// Trace directories or files (*.rdt, *.rdpack, JSON Lines) [default: the newest rankdiff-trace-* here].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Decode all calls, or only those that the digests of the ranks' calls leave in question: then call sites and
    /// lateness of calls that agree are not looked at. `auto`: all of up to two million calls.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Decode::Auto)]
    pub(crate) decode: Decode,
    /// Report.
    #[command(flatten)]
    pub(crate) report: Report,
}

/// `show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rankdiff show --last 5                the last calls of each rank of the newest trace\n  \
                        rankdiff show trace --rank 0-3 --format json-lines\n  \
                        rankdiff show trace --info            what it holds, counted"
)]
pub(crate) struct Show {
    /// Trace directories or files (*.rdt, *.rdpack, JSON Lines) [default: the newest rankdiff-trace-* here].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only these ranks (`0-3,8`).
    #[arg(long, value_name = "RANKS")]
    pub(crate) rank: Option<RankSet>,
    /// Only calls on communicators whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,
    /// Only the last N calls of each rank.
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// How to print: a line for each call, or the summary of --info.
    #[arg(long, value_enum, default_value_t = ShowFormat::Text)]
    pub(crate) format: ShowFormat,
    /// A summary instead of the calls: hosts, ranks, calls, bytes, gaps, coverage, clocks.
    #[arg(long, conflicts_with_all = ["comm", "last"])]
    pub(crate) info: bool,
}

/// How `show` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowFormat {
    /// For people.
    Text,
    /// For programs: one object a line.
    JsonLines,
    /// For programs: the summary as one object; only with --info.
    Json,
}

/// `dump`.
#[derive(Debug, Args)]
#[command(
    after_help = "Ranks and communicators in one situation are one line, so that a job of any size fits a screen.\n\n\
                        Examples:\n  rankdiff dump                         the newest trace in the current directory\n  \
                        rankdiff dump trace --rank 6,12-15    these ranks in detail\n  \
                        rankdiff dump trace --comm tp         communicators with 'tp' in their name, one by one\n  \
                        rankdiff dump trace --format json | jq '.chains[0].roots'"
)]
pub(crate) struct Dump {
    /// Trace directories or files (*.rdt, *.rdpack, JSON Lines) [default: the newest rankdiff-trace-* here].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only these ranks (`0-3,8`) and what they have to do with, in detail.
    #[arg(long, value_name = "RANKS")]
    pub(crate) rank: Option<RankSet>,
    /// Only communicators whose name or description contains this, each for itself.
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,
    /// Everything, however long: every communicator for itself, ranks that differ in details apart.
    #[arg(long)]
    pub(crate) all: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// How `dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// For people.
    Text,
    /// For programs: one object.
    Json,
}

/// `export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff export trace --to parquet -o tables     for DuckDB, pandas, polars\n  \
                        rankdiff export trace --to perfetto              open the file in ui.perfetto.dev\n  \
                        rankdiff export trace --to jsonl -o - | jq 'select(.kind == \"call\")'")]
pub(crate) struct Export {
    /// Trace directories or files (*.rdt, *.rdpack, JSON Lines) [default: the newest rankdiff-trace-* here].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The format: parquet, jsonl or perfetto.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: String,
    /// Write to this file or directory; `-` is stdout [default: the trace's name here, with the format's ending].
    #[arg(short, long, value_name = "FILE|DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace what is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// A file for each process, in a directory (jsonl).
    #[arg(long)]
    pub(crate) per_process: bool,
    /// Only processes that play one of these ranks (`0-3,8`).
    #[arg(long, value_name = "RANKS")]
    pub(crate) rank: Option<RankSet>,
}

/// `import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads what `rankdiff export --to jsonl` writes. `analyze`, `show` and `export` take such files as they are.\n\n\
                        Examples:\n  rankdiff import job.jsonl -o trace\n  zstdcat job.jsonl.zst | rankdiff import - -o trace"
)]
pub(crate) struct Import {
    /// Files; `-` is stdin. All of them become one trace.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The trace directory to write; must be empty or not be there.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// `pack`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff pack trace                          makes trace.rdpack\n  \
                        rankdiff pack trace --redact -o for-you.rdpack\n  \
                        rankdiff pack --unpack for-you.rdpack        makes the directory for-you\n  \
                        rankdiff analyze for-you.rdpack              without unpacking it first")]
pub(crate) struct Pack {
    /// The trace's directory [default: the newest rankdiff-trace-* here].
    #[arg(value_name = "DIR", conflicts_with = "unpack")]
    pub(crate) dir: Option<PathBuf>,
    /// Write to this file, `-` is stdout (a directory with --unpack); nothing is ever written over [default: named
    /// after the trace].
    #[arg(short, long, value_name = "FILE|DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out host names, folders, arguments, attributes and log lines; functions, names of source files and times
    /// stay, and so does the verdict.
    #[arg(long, conflicts_with = "unpack")]
    pub(crate) redact: bool,
    /// Unpack this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) unpack: Option<PathBuf>,
    /// Unpack so much at most, however small the file is [default: 16GiB, and 100 times the file].
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size, requires = "unpack", conflicts_with = "dir")]
    pub(crate) max_size: Option<u64>,
}

/// `synth`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff synth job.yaml -o DIR         a job described in text\n  \
                  rankdiff synth --grid tp=8,pp=2,dp=4 --plant op@5000:rank=7 -o DIR")]
pub(crate) struct Synth {
    /// Scenario file (YAML, one or more documents).
    #[arg(required_unless_present = "grid")]
    pub(crate) file: Option<PathBuf>,
    /// Which document, by its id; needed where the file holds several.
    #[arg(long, value_name = "ID")]
    pub(crate) case: Option<String>,
    /// A large made-up training job instead: ranks of a tensor, pipeline and data parallel group (tp=8,pp=10,dp=128).
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["file", "case"])]
    pub(crate) grid: Option<GridSpec>,
    /// Calls of each rank of a grid; 96 are a step.
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "file")]
    pub(crate) calls: u64,
    /// What one rank of a grid does otherwise, at which of its calls: op, count, dtype, missing, extra, order or split.
    #[arg(long, value_name = "CHANGE@CALL:rank=RANK", conflicts_with = "file")]
    pub(crate) plant: Option<Plant>,
    /// Calls of a grid block, so that a change may stop the job.
    #[arg(long, conflicts_with = "file")]
    pub(crate) blocking: bool,
    /// A grid has calls with uneven split vectors.
    #[arg(long, conflicts_with = "file")]
    pub(crate) vectors: bool,
    /// Seed of a grid's times.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "file")]
    pub(crate) seed: u64,
    /// The trace directory to write; must not hold a trace.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

/// `list-probes`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rankdiff list-probes 4711                 a running process\n  \
                        rankdiff list-probes libnccl.so.2         a library (path, or a name the loader finds)")]
pub(crate) struct ListProbes {
    /// Process id, or library or executable.
    #[arg(value_name = "PID|FILE")]
    pub(crate) target: String,
}

/// `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Code (`D001`) or name (`op-mismatch`); without one, all are listed.
    pub(crate) code: Option<String>,
}

/// Longest time that can be said, in hours: a hundred years. What is computed with it stays within its nanoseconds.
const LONGEST_H: f64 = 876_000.0;

/// Parses `90`, `90s`, `1.5s`, `500ms`, `10m`, `2h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    // The number first: without one, the rest is no unit.
    let number: f64 = number.parse().map_err(|_| "expected a number with a unit, such as 30s or 10m".to_owned())?;
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit `{unit}`: use ms, s, m or h")),
    };
    let seconds = number * factor;
    if seconds <= LONGEST_H * 3600.0 {
        Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
    } else {
        Err(format!("is too long: the most is {LONGEST_H}h"))
    }
}

fn ring_mib(text: &str) -> Result<u32, String> {
    let mib: u32 = text.parse().map_err(|_| "expected a number of MiB".to_owned())?;
    if mib.is_power_of_two() && mib <= 1024 { Ok(mib) } else { Err("must be a power of two, at most 1024".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::{Cli, duration};
    use clap::{CommandFactory as _, Parser as _};
    use std::time::Duration;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_with_a_value_is_said() {
        for (words, said) in [
            (&["record", "--keep", "-1", "job"][..], "expected a time (30m, 2h) or a size (2GiB, 500MiB)"),
            (&["record", "--keep", "99999999999999999999h", "job"], "is too long: the most is 876000h"),
            (&["record", "--max-disk", "-5", "job"], "such as 2GiB"),
            (&["record", "--max-disk", "abc", "job"], "such as 2GiB"),
            (&["record", "--timeout", "abc", "job"], "such as 30s or 10m"),
            (&["pack", "trace", "--max-size", "5"], "cannot be used with"),
            (&["pack", "--max-size", "5"], "--unpack"),
        ] {
            let error = Cli::try_parse_from([&["rankdiff"], words].concat()).expect_err("wrong").to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("90").expect("seconds"), Duration::from_secs(90));
        assert_eq!(duration("1.5s").expect("seconds"), Duration::from_millis(1500));
        assert_eq!(duration("250ms").expect("milliseconds"), Duration::from_millis(250));
        assert_eq!(duration("2h").expect("hours"), Duration::from_secs(7200));
        for bad in ["", "s", "5 parsecs", "-1", "1e400h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
