//! The `rankdiff` binary: flags to library calls to exit codes.

mod args;
mod commands;
mod demo;
mod drafts;
mod failure;
mod load;
mod output;
mod room;
mod staged;
mod units;
mod unpacked;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    // A reader that closes the pipe (`| head`) ends us quietly, as it does other tools.
    // SAFETY: no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let cli = Cli::parse();
    let output = Output::new(&cli);
    output.start_logging();
    if makes_drafts(&cli.command) {
        drafts::watch();
    }
    let code = match run(cli.command, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.error(&failure);
            failure.code()
        }
    };
    ExitCode::from(code)
}

/// The commands that make drafts or unpack something; `record` and `demo` answer signals themselves.
fn makes_drafts(command: &Command) -> bool {
    matches!(
        command,
        Command::Analyze(_)
            | Command::Show(_)
            | Command::Dump(_)
            | Command::Export(_)
            | Command::Import(_)
            | Command::Pack(_)
    )
}

fn run(command: Command, output: &Output) -> Result<u8, Failure> {
    match command {
        Command::Demo(args) => demo::run(&args, output),
        Command::Record(args) => commands::record::run(&args, output),
        Command::Analyze(args) => commands::analyze::run(&args, output),
        Command::Show(args) => commands::show::run(&args, output),
        Command::Dump(args) => commands::dump::run(&args, output),
        Command::Export(args) => commands::export::run(&args, output),
        Command::Import(args) => commands::import::run(&args, output),
        Command::Pack(args) => commands::pack::run(&args, output),
        Command::Synth(args) => commands::synth::run(&args, output),
        Command::ListProbes(args) => commands::list_probes::run(&args, output),
        Command::Doctor => commands::doctor::run(output),
        Command::Explain(args) => commands::explain::run(&args, output),
        Command::Completions { shell } => commands::manual::completions(shell, output),
        Command::Man { out } => commands::manual::pages(out.as_deref(), output),
        Command::DemoJob(args) => demo::job::run(&args),
        Command::DemoRank(args) => demo::rank::run(&args),
    }
}
