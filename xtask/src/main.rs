//! Everything CI runs: `cargo xtask COMMAND`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

mod bench;
mod ci;
mod corpus;
mod demo_traces;
mod dist;
mod docs;
mod ebpf;
mod flight_recorder;
mod fuzz;
mod long;
mod process;
mod results;
mod sample;
mod setup;
mod torch;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Everything CI runs")]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build the eBPF object that the tracer embeds.
    Ebpf {
        /// Build it from nothing in another folder and compare it with the committed one instead.
        #[arg(long)]
        check: bool,
    },
    /// Install what tests and builds need beside Rust.
    Setup,
    /// Run everything that CI runs.
    Ci {
        /// Run only this step (may be given several times).
        #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(ci::names()))]
        only: Vec<String>,
    },
    /// Run the scenario files with their right answers against the static binary.
    Corpus,
    /// Generate docs/checks from the analyzer's registry.
    Docs {
        /// Only say whether the pages are current.
        #[arg(long)]
        check: bool,
    },
    /// Build the static binary, target/dist/rankdiff.
    Dist {
        /// Run it in an old Debian as well (needs root and a Debian mirror).
        #[arg(long)]
        check_old: bool,
    },
    /// Record the traces that `rankdiff demo` shows where nothing can be recorded (needs root).
    DemoTraces,
    /// Measure what recording, storing and analyzing cost, and how often the diagnosis is right: side by side.
    Bench {
        /// Parts to measure; all if none is named.
        #[arg(value_parser = PossibleValuesParser::new(bench::parts()))]
        parts: Vec<String>,
        /// A twentieth of the work or less: shows that it runs, not how fast.
        #[arg(long)]
        quick: bool,
        /// Where traces of up to a gigabyte are made and removed [default: the system's folder for such].
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Add the results to docs/long-run.md.
        #[arg(long, conflicts_with = "quick")]
        save: bool,
    },
    /// Feed the readers with inputs that nobody wrote, and keep what makes one fail.
    Fuzz {
        /// Only this target.
        #[arg(value_parser = PossibleValuesParser::new(fuzz::names()))]
        target: Option<String>,
        /// Seconds for each target.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Check the samples of the trace format.
    Sample {
        /// Write the sample of this version, once and for all.
        #[arg(long)]
        write: bool,
    },
    /// Repeat what repeats itself far more often than CI does, and add the results to docs/long-run.md.
    Long {
        /// Repetitions of each test.
        #[arg(long, default_value_t = 200)]
        repeat: u32,
        /// Seconds of fuzzing, over all targets.
        #[arg(long, value_name = "N", default_value_t = 600)]
        fuzz_seconds: u64,
        /// Run only this part (may be given several times).
        #[arg(long, value_name = "PART", value_parser = PossibleValuesParser::new(long::parts()))]
        only: Vec<String>,
        /// Where traces of up to a gigabyte are made and removed [default: the system's folder for such].
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let root = root()?;
    match args.command {
        Task::Ebpf { check } => ebpf::run(&root, check),
        Task::Setup => setup::run(&root),
        Task::Ci { only } => ci::run(&root, &only),
        Task::Corpus => corpus::run(&root),
        Task::Docs { check } => docs::run(&root, check),
        Task::Dist { check_old } => {
            dist::build(&root)?;
            if check_old { dist::check_old(&root) } else { Ok(()) }
        }
        Task::DemoTraces => demo_traces::run(&root),
        Task::Bench { parts, quick, dir, save } => {
            bench::run(&root, &parts, &bench::How { quick, dir, save, programs: None })
        }
        Task::Fuzz { target, seconds } => fuzz::run(&root, target.as_deref(), seconds).map(drop),
        Task::Sample { write } => sample::run(&root, write),
        Task::Long { repeat, fuzz_seconds, only, dir } => {
            let bench = bench::How { dir, ..bench::How::default() };
            long::run(&root, &long::How { repeat, fuzz_seconds, only, bench })
        }
    }
}

/// Root of the checkout.
fn root() -> Result<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(parent.context("xtask has no folder above it")?.to_path_buf())
}

#[expect(clippy::print_stderr, reason = "the program's errors")]
fn complain(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
