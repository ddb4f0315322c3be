//! The Python stacks of one process: keys to frames, frames to functions and lines.
//!
//! What a key stands for came before the first call that has it, unless it was lost; then it comes with a later one. A
//! stack that is not the calling thread's own is context, and made of text, so that nothing takes it for the caller.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rankdiff_common::python::{self, MAX_FRAMES, MAX_STATES, Stack, StackFrame, status};
use rankdiff_trace::{Frame, FrameKind};
use rustc_hash::FxHashMap;

use super::{Code, Interpreter};

/// Most memory that stacks and code objects of one process take, about.
const MAX_BYTES: usize = 64 << 20;

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Everything that will ever be.
    All(Vec<Frame>),
    /// Some of it was lost and may still come.
    Part(Vec<Frame>),
}

/// Stacks and code objects of a process.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    interpreter: Option<Arc<Interpreter>>,
    since: u64,
    codes: FxHashMap<(u64, u64), Code>,
    stacks: FxHashMap<u64, Kept>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Kept {
    status: u32,
    thread: String,
    /// Innermost first.
    frames: Box<[StackFrame]>,
}

impl Stacks {
    /// Tells the process's interpreter, and since when it is known to be there. Stacks may have come before.
    pub fn set_interpreter(&mut self, interpreter: Arc<Interpreter>, since: u64) {
        self.interpreter = Some(interpreter);
        self.since = since;
    }

    /// The process has run another program since a moment: forgets all, unless the interpreter was found later. Records
    /// about processes are taken with a delay.
    pub fn exec(&mut self, time: u64) {
        if self.since <= time {
            *self = Stacks::default();
        }
    }

    /// The process's interpreter; `None`: it has none that is known.
    pub fn interpreter(&self) -> Option<&Arc<Interpreter>> {
        self.interpreter.as_ref()
    }

    /// Takes a stack.
    pub fn add_stack(&mut self, stack: &Stack) {
        let count = (stack.count as usize).min(MAX_FRAMES);
        let frames: Box<[StackFrame]> = stack.frames.iter().take(count).copied().collect();
        let name = stack.thread.split(|&byte| byte == 0).next().unwrap_or_default();
        let thread = String::from_utf8_lossy(name).into_owned();
        let size = size_of::<Kept>() + size_of_val(&*frames) + thread.len();
        if self.has_room(size) {
            self.stacks.insert(stack.key, Kept { status: stack.status, thread, frames });
        }
    }

    /// Takes a code object.
    pub fn add_code(&mut self, record: &python::Code) {
        let pid = record.header.tgid;
        let code = Code::of(record, &|address, size| {
            let mut bytes = vec![0; size];
            File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut bytes, address).ok()?;
            Some(bytes)
        });
        if self.has_room(code.size()) {
            self.codes.insert((record.address, record.stamp), code);
        }
    }

    fn has_room(&mut self, size: usize) -> bool {
        let fits = self.bytes.saturating_add(size) <= MAX_BYTES;
        if fits {
            self.bytes += size;
        }
        fits
    }

    /// The frames of a key, outermost first.
    pub fn find(&self, key: u64) -> Found {
        if key == 0 {
            return Found::All(Vec::new());
        }
        let (Some(interpreter), Some(stack)) = (&self.interpreter, self.stacks.get(&key)) else {
            return Found::Part(vec![note("(Python frames not recorded)".to_owned())]);
        };
        let mut complete = true;
        let mut frames: Vec<Frame> = Vec::with_capacity(stack.frames.len() + 2);
        frames.extend(missing(stack.status, stack.frames.is_empty()).map(|why| note(why.to_owned())));
        for frame in stack.frames.iter().rev().filter(|frame| frame.code != 0) {
            let code = self.codes.get(&(frame.code, frame.stamp));
            complete &= code.is_some();
            frames.push(named(code, frame, interpreter));
        }
        if stack.status & status::CONTEXT != 0 {
            frames = frames.iter().map(as_context).collect();
            frames.push(note(format!("thread {}", stack.thread)));
        }
        if complete { Found::All(frames) } else { Found::Part(frames) }
    }
}

/// Why frames are missing at the outer end, if they are.
fn missing(flags: u32, is_empty: bool) -> Option<&'static str> {
    const _: () = assert!(MAX_STATES == 128 && MAX_FRAMES == 40, "the texts name these");
    let has = |bit: u32| flags & bit != 0;
    if has(status::MANY_THREADS) {
        Some("(Python frames unknown: the process has more than 128 Python threads)")
    } else if has(status::UNREADABLE) {
        Some(if is_empty { "(Python frames could not be read)" } else { "(outer Python frames could not be read)" })
    } else if has(status::CUT) {
        Some("(outer Python frames left out: the stack has more than 40)")
    } else {
        None
    }
}

fn named(code: Option<&Code>, frame: &StackFrame, interpreter: &Interpreter) -> Frame {
    let Some(code) = code else { return note("(Python function not recorded)".to_owned()) };
    let line = code.line(&interpreter.layout, frame.code, frame.instruction).unwrap_or(0);
    Frame {
        kind: FrameKind::Python,
        function: if code.function.is_empty() { "(name unreadable)".to_owned() } else { code.function.clone() },
        file: code.file.clone(),
        line,
        ..Frame::default()
    }
}

/// A frame that is not the caller's. It has no line of its own, as the call was not made there.
fn as_context(frame: &Frame) -> Frame {
    let file = frame.file.rsplit('/').next().unwrap_or_default();
    match (file.is_empty(), frame.line) {
        (true, _) => note(format!("main thread in {}", frame.function)),
        (false, 0) => note(format!("main thread in {} ({file})", frame.function)),
        (false, line) => note(format!("main thread in {} ({file}, line {line})", frame.function)),
    }
}

fn note(text: String) -> Frame {
    Frame { kind: FrameKind::Text, function: text, ..Frame::default() }
}
