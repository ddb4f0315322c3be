//! Reads ELF files in a thread of its own: a large library takes a second, which the drain must not wait for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::elf::ElfInfo;
use crate::interpreter::{Interpreter, Unsupported};
use crate::maps::FileKey;
use crate::points::{FilePlan, PlanOptions, plan};

/// A file to look into.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which file it is.
    pub key: FileKey,
    /// A path at which it can be opened now.
    pub open: PathBuf,
    /// Its path for messages.
    pub shown: PathBuf,
    /// Whether its symbols are wanted although it is no collective library (an executable's, an interpreter's).
    pub symbols: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub request: Request,
    /// Its probes; `None` if it is no collective library.
    pub plan: Option<FilePlan>,
    /// Its symbols, where wanted or where it is a library.
    pub elf: Option<Arc<ElfInfo>>,
    /// The Python interpreter in it, if it holds one.
    pub interpreter: Option<Result<Interpreter, Unsupported>>,
    /// Why it could not be read.
    pub error: Option<String>,
}

/// Looks into a file.
pub fn inspect(request: Request, options: &PlanOptions) -> Found {
    let (plan, elf) = match plan(&request.open, options) {
        Ok(Some(plan)) => {
            let elf = Arc::clone(&plan.elf);
            (Some(plan), elf)
        }
        Ok(None) if request.symbols => match ElfInfo::read(&request.open) {
            Ok(elf) => (None, Arc::new(elf)),
            Err(error) => return failed(request, &error),
        },
        Ok(None) => return Found { request, plan: None, elf: None, interpreter: None, error: None },
        Err(error) => return failed(request, &error),
    };
    let interpreter = Interpreter::find(&elf, &request.open);
    Found { request, plan, elf: Some(elf), interpreter, error: None }
}

fn failed(request: Request, error: &dyn std::fmt::Display) -> Found {
    let error = format!("{}: {error}", request.shown.display());
    Found { request, plan: None, elf: None, interpreter: None, error: Some(error) }
}

/// The worker.
#[derive(Debug)]
pub struct Planner {
    requests: Sender<Request>,
    found: Receiver<Found>,
    open: usize,
}

impl Planner {
    /// Starts the worker; it ends when the planner is dropped.
    pub fn start(options: PlanOptions) -> std::io::Result<Planner> {
        let (requests, todo) = channel::<Request>();
        let (done, found) = channel();
        std::thread::Builder::new().name("rankdiff-elf".to_owned()).spawn(move || {
            for request in todo {
                if done.send(inspect(request, &options)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Planner { requests, found, open: 0 })
    }

    /// Asks for a file.
    pub fn ask(&mut self, request: Request) {
        if self.requests.send(request).is_ok() {
            self.open += 1;
        }
    }

    /// What was found by now.
    pub fn found(&mut self) -> Vec<Found> {
        let found: Vec<Found> = self.found.try_iter().collect();
        self.open = self.open.saturating_sub(found.len());
        found
    }

    /// Files asked for and not yet found.
    pub fn open(&self) -> usize {
        self.open
    }
}
