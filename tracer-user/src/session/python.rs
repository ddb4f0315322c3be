//! Interpreters of the recorded processes: found with what is mapped, told to the eBPF programs.

use std::sync::Arc;

use rankdiff_common::event::Header;
use rankdiff_common::python::{Code, Stack};

use super::Session;
use crate::interpreter::{Interpreter, Stacks};
use crate::maps::Mapping;
use crate::planner::Request;

impl Session {
    /// Keeps what was found of the interpreter in a file.
    pub(super) fn take_interpreter(
        &mut self,
        request: &Request,
        found: Result<Interpreter, crate::interpreter::Unsupported>,
    ) {
        match found {
            Ok(interpreter) => {
                self.interpreters.insert(request.key, Arc::new(interpreter));
            }
            Err(error) => self.news.problems.push(format!("{}: {error}", request.shown.display())),
        }
    }

    /// Finds the interpreter among what a process has had mapped since a moment, unless it is known.
    pub(super) fn find_interpreter(&mut self, pid: u32, mappings: &[Mapping], since: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let is_known = process.stacks.interpreter().is_some() && self.attacher.has_python(pid);
        if self.interpreters.is_empty() || is_known {
            return;
        }
        let found = mappings.iter().find_map(|mapping| {
            let key = mapping.key?;
            let interpreter = self.interpreters.get(&key)?;
            Some((interpreter, interpreter.config(self.objects.get(&key)?, mapping)?))
        });
        if let Some((interpreter, config)) = found {
            process.stacks.set_interpreter(Arc::clone(interpreter), since);
            if let Err(error) = self.attacher.set_python(pid, config) {
                self.news.problems.push(error.to_string());
            }
        }
    }

    /// A child runs the interpreter that its parent runs. The programs have copied the settings, if they had them when it
    /// was made; it may be gone by now.
    pub(super) fn inherit_interpreter(&mut self, parent: u32, child: u32) {
        let known = self.processes.get(&parent).and_then(|parent| parent.stacks.interpreter()).cloned();
        if let (Some(interpreter), Some(process)) = (known, self.processes.get_mut(&child)) {
            process.stacks.set_interpreter(interpreter, 0);
        }
        if !self.attacher.has_python(child) {
            self.to_scan.insert(child);
        }
    }

    pub(super) fn stack(&mut self, stack: &Stack) {
        self.of_stack(&stack.header, |stacks| stacks.add_stack(stack));
    }

    pub(super) fn code(&mut self, code: &Code) {
        self.of_stack(&code.header, |stacks| stacks.add_code(code));
    }

    fn of_stack(&mut self, header: &Header, act: impl FnOnce(&mut Stacks)) {
        act(&mut self.process(header.tgid).stacks);
    }
}
