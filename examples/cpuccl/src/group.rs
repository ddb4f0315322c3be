//! Groups: calls that a thread collects and issues together.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::comm::{Batch, Comm};
use crate::protocol::Task;
use crate::stream::{Event, Stream, lock};
use crate::types::{Error, Result, fail};

/// One collective, send or receive, checked and ready.
#[derive(Debug)]
pub struct Call {
    /// Its communicator.
    pub comm: Arc<Comm>,
    /// The stream that orders it.
    pub stream: Arc<Stream>,
    /// What to do; several tasks for the calls that are made of sends and receives.
    pub tasks: Vec<Task>,
}

/// The making of a communicator, which blocks until the other ranks take part.
pub type Creation = Box<dyn FnOnce() -> Result<()> + Send>;

#[derive(Default)]
struct Group {
    depth: u32,
    calls: Vec<Call>,
    creations: Vec<Creation>,
    error: Option<Error>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Keeps the order of two threads' launches the same on all streams and communicators they share.
static LAUNCH: Mutex<()> = Mutex::new(());

/// Opens a group, or nests one more level.
pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Closes a level; the outermost one issues what was collected, or reports the first error of a collected call.
pub fn end() -> Result<()> {
    let group = GROUP.with_borrow_mut(|group| match group.depth {
        0 => None,
        1 => Some(std::mem::take(group)),
        _ => {
            group.depth -= 1;
            Some(Group::default())
        }
    });
    let Some(group) = group else {
        return fail(Error::InvalidUsage, "ncclGroupEnd without ncclGroupStart");
    };
    if let Some(error) = group.error {
        return Err(error);
    }
    create_all(group.creations)?;
    launch(group.calls)
}

/// Issues `call`, now or with its group.
pub fn submit(call: Call) -> Result<()> {
    let ungrouped = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(call);
        }
        group.calls.push(call);
        None
    });
    ungrouped.map_or(Ok(()), |call| launch(vec![call]))
}

/// Runs `creation`, now or with its group.
pub fn create(creation: Creation) -> Result<()> {
    let ungrouped = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(creation);
        }
        group.creations.push(creation);
        None
    });
    ungrouped.map_or(Ok(()), |creation| creation())
}

/// Remembers that a call failed, so that the whole group will not be issued.
pub fn note(error: Error) {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.error.get_or_insert(error);
        }
    });
}

/// Each creation waits for ranks that may be further down this very list: they run at the same time.
fn create_all(creations: Vec<Creation>) -> Result<()> {
    thread::scope(|scope| {
        let running: Vec<_> = creations.into_iter().map(|creation| scope.spawn(creation)).collect();
        for thread in running {
            let outcome = thread.join().unwrap_or(Err(Error::Internal));
            outcome.or_else(|error| fail(error, "a communicator of the group could not be made"))?;
        }
        Ok(())
    })
}

/// Queues one batch per communicator. A batch follows all that its streams held, and becomes the tail of those streams.
fn launch(calls: Vec<Call>) -> Result<()> {
    struct Part {
        comm: Arc<Comm>,
        streams: Vec<Arc<Stream>>,
        batch: Batch,
    }
    let _order = lock(&LAUNCH);
    let mut parts: Vec<Part> = Vec::new();
    for call in calls {
        let place = parts.iter().position(|part| Arc::ptr_eq(&part.comm, &call.comm)).unwrap_or_else(|| {
            let batch = Batch { tasks: Vec::new(), after: Vec::new(), end: Arc::new(Event::default()) };
            parts.push(Part { comm: Arc::clone(&call.comm), streams: Vec::new(), batch });
            parts.len() - 1
        });
        let part = &mut parts[place];
        part.batch.tasks.extend(call.tasks);
        if !part.streams.iter().any(|stream| Arc::ptr_eq(stream, &call.stream)) {
            part.batch.after.extend(call.stream.tail());
            part.streams.push(call.stream);
        }
    }
    let mut tails: Vec<(Arc<Stream>, Vec<Arc<Event>>)> = Vec::new();
    for part in &parts {
        for stream in &part.streams {
            let end = Arc::clone(&part.batch.end);
            match tails.iter_mut().find(|(known, _)| Arc::ptr_eq(known, stream)) {
                Some((_, ends)) => ends.push(end),
                None => tails.push((Arc::clone(stream), vec![end])),
            }
        }
    }
    for (stream, ends) in tails {
        stream.advance(ends);
    }
    let mut result = Ok(());
    for part in parts {
        // All of them: the streams already wait for each part's end.
        result = result.and(part.comm.queue(part.batch));
    }
    result
}
