//! What can be wrong with a scenario, in words that lead to the place.

use std::fmt;

/// Most characters of an offending text that a message repeats.
const SHOWN: usize = 160;

/// A scenario file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The document's id, or 'number 2' where it has none yet; empty if the trouble is the file's.
    pub document: String,
    /// Line in the file, from 1; 0 if it is no single line's fault.
    pub line: usize,
    /// What is wrong and what is expected.
    pub problem: String,
    /// The text that is wrong; empty if nothing is there.
    pub text: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.document.is_empty() {
            write!(f, ": document {}", self.document)?;
        }
        write!(f, ": {}", self.problem)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": '{}'", self.text) }
    }
}

impl std::error::Error for ScenarioError {}

/// A fault before it is known in which file and document it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) problem: String,
    pub(super) text: String,
}

impl Fault {
    /// A fault at this line about this text.
    pub(super) fn new(line: usize, problem: impl Into<String>, text: &str) -> Fault {
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Fault { line, problem: problem.into(), text: shown }
    }

    /// Places the fault in a file's document.
    pub(super) fn in_document(self, file: &str, document: &str) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            document: document.to_owned(),
            line: self.line,
            problem: self.problem,
            text: self.text,
        }
    }
}
