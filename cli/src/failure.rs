//! Errors with the exit code that they end the program with.

use std::fmt;

/// Usage or unreadable input.
pub(crate) const USAGE: u8 = 2;
/// `record` failed before the job could run.
pub(crate) const RECORDER: u8 = 125;
/// The command exists but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// `record` ended the job after `--timeout`.
pub(crate) const TIMED_OUT: u8 = 124;

/// An error and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// An error with this code.
    pub(crate) fn new(code: u8, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code, error: error.into() }
    }

    /// A message with this code.
    pub(crate) fn message(code: u8, message: impl fmt::Display) -> Failure {
        Failure { code, error: anyhow::anyhow!("{message}") }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The error.
    pub(crate) fn error(&self) -> &anyhow::Error {
        &self.error
    }
}

/// Failures to write to stdout and the like.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(USAGE, error)
    }
}
