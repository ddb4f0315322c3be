//! Which calls of a stream are missing, and where: every block says how many calls were written before it, so that what
//! was cut, lost or dropped is counted, and bounded by the calls around it.

use std::path::Path;

use crate::error::Problem;
use crate::evidence::{Gap, GapCause};
use crate::reader::Block;
use crate::stream_files::cut_before;

/// Keeps account of a stream's calls while it is read.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Calls of the recording that were read, or are known to be missing.
    accounted: u64,
    /// Latest time of a call so far.
    last: u64,
    /// Places where calls may be missing: the next block tells.
    open: Vec<Gap>,
    /// Places where calls are missing: the next call that is read bounds them.
    sure: Vec<Gap>,
}

impl Holes {
    /// Latest time of a call so far.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Calls may be missing here.
    pub(crate) fn open(&mut self) {
        self.open.push(self.torn());
    }

    /// A block begins: it tells how many calls are missing before it. The problem is one that nothing else showed: the
    /// segment before ends between two blocks, and so looks whole.
    pub(crate) fn before(&mut self, path: &Path, block: &Block) -> Option<Problem> {
        let calls_before = block.header().calls_before;
        let missing = calls_before.saturating_sub(self.accounted);
        self.accounted = self.accounted.max(calls_before);
        if missing == 0 {
            self.open.clear();
            return None;
        }
        let unseen = self.open.is_empty();
        if unseen {
            self.open();
        }
        // Of several holes nobody knows how many calls each took.
        let events = (self.open.len() == 1).then_some(missing);
        self.sure.extend(self.open.drain(..).map(|gap| Gap { events, ..gap }));
        unseen.then(|| cut_before(path, block.offset(), missing))
    }

    /// So many calls were read; `last`: the latest time among them.
    pub(crate) fn took(&mut self, calls: u64, last: u64) {
        self.accounted = self.accounted.saturating_add(calls);
        self.reached(last);
    }

    /// Calls were made until this time.
    pub(crate) fn reached(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// So many calls were made, are counted, and were dropped: those of blocks one after another are one gap.
    pub(crate) fn dropped(&mut self, calls: u64) {
        self.accounted = self.accounted.saturating_add(calls);
        match self.sure.last_mut().filter(|gap| gap.cause == GapCause::Expired) {
            Some(gap) => gap.events = gap.events.map(|events| events.saturating_add(calls)),
            None => self.sure.push(Gap { cause: GapCause::Expired, events: Some(calls), ..self.torn() }),
        }
    }

    /// A block of calls is read, the first of them at this time: it bounds what is missing before it.
    pub(crate) fn bounded(&mut self, first: u64) -> impl Iterator<Item = Gap> + '_ {
        self.sure.drain(..).map(move |gap| Gap { before: first, ..gap })
    }

    /// A call that no block holds was read: it bounds also where nobody knows whether calls are missing.
    pub(crate) fn all_bounded(&mut self, first: u64) -> impl Iterator<Item = Gap> + '_ {
        self.open.drain(..).chain(self.sure.drain(..)).map(move |gap| Gap { before: first, ..gap })
    }

    /// What nothing bounds.
    pub(crate) fn rest(self) -> impl Iterator<Item = Gap> {
        self.sure.into_iter().chain(self.open)
    }

    fn torn(&self) -> Gap {
        Gap { cause: GapCause::Torn, after: self.last, before: u64::MAX, ..Gap::default() }
    }
}
