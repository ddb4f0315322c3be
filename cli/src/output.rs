//! Where words go: reports to stdout, everything else to stderr; colour only where wanted.

use std::io::{self, IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};

use crate::args::{Cli, Color};
use crate::failure::Failure;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// How to speak.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    color: Color,
    /// How often `--verbose` was given.
    pub(crate) verbose: u8,
    quiet: bool,
}

impl Output {
    /// By the flags.
    pub(crate) fn new(cli: &Cli) -> Output {
        match cli.color {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
        Output { color: cli.color, verbose: cli.verbose, quiet: cli.quiet }
    }

    /// Logs of the libraries go to stderr.
    pub(crate) fn start_logging(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, 0) => "warn",
            (false, 1) => "info",
            (false, _) => "debug",
        };
        let filter = tracing_subscriber::EnvFilter::try_from_env("RANKDIFF_LOG")
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
        // A second subscriber cannot be: this is called once, from main.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(false) // the crate is built without colours
            .without_time()
            .with_target(false)
            .try_init();
    }

    fn wants_color(&self, terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Whether a report on stdout is coloured.
    pub(crate) fn stdout_color(&self) -> bool {
        self.wants_color(io::stdout().is_terminal())
    }

    /// Columns to lay a report out for.
    pub(crate) fn width(&self) -> usize {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
        columns.or_else(terminal).filter(|&width| width >= 40).unwrap_or(100)
    }

    /// Whether progress and remarks are wanted.
    pub(crate) fn is_talkative(&self) -> bool {
        !self.quiet
    }

    /// Progress and remarks.
    pub(crate) fn say(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// A remark only with `--verbose`.
    pub(crate) fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// What to do next.
    pub(crate) fn hint(&self, text: impl std::fmt::Display) {
        self.say(format_args!("{HINT}{text}{HINT:#}"));
    }

    /// Something the user should know although it goes on.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        self.say(format_args!("{WARNING}warning{WARNING:#}: {text}"));
    }

    /// Why it ends here.
    pub(crate) fn error(&self, failure: &Failure) {
        // Many causes are part of their effect's message already.
        let mut text = String::new();
        for cause in failure.error().chain().map(ToString::to_string) {
            if text.is_empty() {
                text = cause;
            } else if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        let _ = writeln!(anstream::stderr(), "{ERROR}error{ERROR:#}: {text}");
    }
}
