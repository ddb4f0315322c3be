//! Call sites of one process: from a return address to module and offset at once, to names in the background.
//!
//! Names are looked up by a worker thread while the job runs: the first lookup in a large object takes tens of
//! milliseconds, which the drain must not wait for. Module, build id and offset are kept in any case.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use rankdiff_trace::{Frame, FrameKind, SiteDef, SiteRef};
use rustc_hash::FxHashMap;

/// A return address to be named.
#[derive(Debug, Clone)]
pub struct Question {
    /// Process that it belongs to.
    pub process: u32,
    /// The site.
    pub site: SiteRef,
    /// A path at which the object can be opened now.
    pub open: PathBuf,
    /// What is known already; its `offset` is the return address's offset in the file.
    pub frame: Frame,
}

/// The named site of a process.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Process that it belongs to.
    pub process: u32,
    /// The site with names; frames outermost first (inlined functions follow the one they were inlined into).
    pub site: SiteDef,
}

/// The worker that names call sites.
#[derive(Debug)]
pub struct Resolver {
    questions: Option<Sender<Question>>,
    answers: Receiver<Answer>,
    worker: Option<JoinHandle<()>>,
    open: usize,
}

impl Resolver {
    /// Starts the worker.
    pub fn start() -> std::io::Result<Resolver> {
        let (questions, todo) = channel::<Question>();
        let (done, answers) = channel();
        let worker = std::thread::Builder::new().name("rankdiff-sites".to_owned()).spawn(move || {
            let symbolizer = Symbolizer::builder().enable_code_info(true).enable_inlined_fns(true).build();
            // One object's offsets are shared by many processes: each is looked up once.
            let mut known = FxHashMap::<(PathBuf, String, u64), Vec<Frame>>::default();
            for question in todo {
                let frame = &question.frame;
                let key = (PathBuf::from(&frame.module), frame.build_id.clone(), frame.offset);
                let frames = known.entry(key).or_insert_with(|| name(&symbolizer, &question.open, frame)).clone();
                let answer = Answer { process: question.process, site: SiteDef { id: question.site, frames } };
                if done.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Resolver { questions: Some(questions), answers, worker: Some(worker), open: 0 })
    }

    /// Asks for names.
    pub fn ask(&mut self, question: Question) {
        if self.questions.as_ref().is_some_and(|questions| questions.send(question).is_ok()) {
            self.open += 1;
        }
    }

    /// Answers that are there by now.
    pub fn answers(&mut self) -> Vec<Answer> {
        let answers: Vec<Answer> = self.answers.try_iter().collect();
        self.open = self.open.saturating_sub(answers.len());
        answers
    }

    /// Questions without an answer.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Waits for all answers, at most until the deadline.
    pub fn finish(mut self, deadline: std::time::Instant) -> Vec<Answer> {
        self.questions = None;
        let mut answers = Vec::new();
        while self.open > 0 {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(answer) => {
                    answers.push(answer);
                    self.open -= 1;
                }
                // Past the deadline the worker is left to itself: it ends with the process.
                Err(_) => return answers,
            }
        }
        if let Some(worker) = self.worker.take() {
            // The worker only ends by a closed channel or a panic of its own, which must not become ours.
            let _ = worker.join();
        }
        answers
    }
}

/// Names of the frames at this offset: the function and what was inlined into it.
fn name(symbolizer: &Symbolizer, open: &Path, frame: &Frame) -> Vec<Frame> {
    // The return address is the instruction after the call, which may belong to the next line or function.
    let call = frame.offset.saturating_sub(1);
    // A process that has ended takes its own view of the file system along; the file is usually still where it was.
    let open = if open.exists() { open } else { Path::new(&frame.module) };
    let source = Source::Elf(Elf::new(open));
    let named = symbolizer.symbolize_single(&source, Input::FileOffset(call));
    let Ok(Symbolized::Sym(symbol)) = named else {
        return vec![frame.clone()];
    };
    let location = |code: Option<&blazesym::symbolize::CodeInfo<'_>>| {
        code.map_or((String::new(), 0), |code| (code.to_path().display().to_string(), code.line.unwrap_or(0)))
    };
    let (file, line) = location(symbol.code_info.as_deref());
    let mut frames =
        vec![Frame { function: short(&symbol.name), file, line, kind: FrameKind::Native, ..frame.clone() }];
    for inlined in &symbol.inlined {
        let (file, line) = location(inlined.code_info.as_ref());
        frames.push(Frame { function: short(&inlined.name), file, line, ..frame.clone() });
    }
    frames
}

/// A Rust path without its modules: debug information gives some functions with and some without. Names of other languages
/// that have `::` in them have arguments or parameters too, and stay as they are.
fn short(name: &str) -> String {
    let is_path = !name.contains(['(', '<', ' ']);
    name.rsplit("::").next().filter(|_| is_path).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn only_plain_paths_are_shortened() {
        assert_eq!(short("rankdiff::demo::rank::validate"), "validate");
        assert_eq!(short("train_step"), "train_step");
        assert_eq!(short("c10d::Work::wait(std::chrono::milliseconds)"), "c10d::Work::wait(std::chrono::milliseconds)");
        assert_eq!(short("<T as core::fmt::Debug>::fmt"), "<T as core::fmt::Debug>::fmt");
    }
}
