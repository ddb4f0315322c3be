//! Call sites of one process: a return address and a Python stack, numbered and defined in the stream.
//!
//! A site is defined at its first call with what is known at once; names of compiled code come later, and so does a Python
//! stack that was lost. Each makes a new definition of the same number, and later definitions replace earlier ones.

use rankdiff_trace::{Frame, Record, SiteDef, SiteRef};
use rustc_hash::FxHashMap;

use crate::calls::Shared;
use crate::interpreter::Found;
use crate::process::Process;
use crate::sites::{Answer, Question};

/// Most sites of one process that are told apart by their Python stacks; calls beyond have the site of their address.
const MAX_SITES: usize = 1 << 16;

/// The sites of a process.
#[derive(Debug, Default)]
pub struct CallSites {
    ids: FxHashMap<(u64, u64), SiteRef>,
    count: u32,
    sites: FxHashMap<SiteRef, Site>,
}

/// One site.
#[derive(Debug, Default)]
struct Site {
    /// Python frames, outermost first.
    python: Vec<Frame>,
    /// Whether some of them were lost and may still come.
    waits: bool,
    /// Frames of compiled code, outermost first.
    native: Vec<Frame>,
}

impl Site {
    fn definition(&self, id: SiteRef) -> Record {
        Record::Site(SiteDef { id, frames: self.python.iter().chain(&self.native).cloned().collect() })
    }
}

impl CallSites {
    /// Forgets what belongs to a program's memory image; numbers go on.
    pub fn clear(&mut self) {
        self.ids.clear();
        // Their names may still come, but what calls refer to is in the stream.
        self.sites.clear();
    }

    /// Sites so far.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl Process {
    /// The site of a call, defined in the stream before it is used.
    pub(crate) fn site(&mut self, address: u64, stack: u64, shared: &mut Shared<'_>) -> SiteRef {
        let known = self.sites.ids.get(&(address, stack)).copied();
        let full = known.is_none() && self.sites.ids.len() >= MAX_SITES;
        let stack = if full { 0 } else { stack };
        if let Some(id) = known.or_else(|| self.sites.ids.get(&(address, stack)).copied()) {
            self.complete(id, stack);
            return id;
        }
        let mut place = self.image.place(self.pid, address, shared.objects);
        if place.is_none() {
            self.refresh_image(shared.objects);
            place = self.image.place(self.pid, address, shared.objects);
        }
        let (python, waits) = match self.stacks.find(stack) {
            Found::All(frames) => (frames, false),
            Found::Part(frames) => (frames, true),
        };
        if place.is_none() && python.is_empty() {
            return SiteRef::default();
        }
        self.sites.count += 1;
        let id = SiteRef(self.sites.count);
        let native = place.iter().map(|place| place.frame.clone()).collect();
        let site = Site { python, waits, native };
        let definition = site.definition(id);
        self.sites.ids.insert((address, stack), id);
        self.sites.sites.insert(id, site);
        self.write(definition);
        if let (Some(resolver), Some(place)) = (shared.resolver.as_deref_mut(), place) {
            resolver.ask(Question { process: self.pid, site: id, open: place.open, frame: place.frame });
        }
        id
    }

    /// Defines a site again if what was lost of its stack has come.
    fn complete(&mut self, id: SiteRef, stack: u64) {
        if !self.sites.sites.get(&id).is_some_and(|site| site.waits) {
            return;
        }
        let (python, waits) = match self.stacks.find(stack) {
            Found::All(frames) => (frames, false),
            Found::Part(frames) => (frames, true),
        };
        let Some(site) = self.sites.sites.get_mut(&id) else { return };
        site.waits = waits;
        if site.python != python {
            site.python = python;
            let definition = site.definition(id);
            self.write(definition);
        }
    }

    /// Defines a site again, with the names of its compiled code.
    pub(crate) fn named(&mut self, answer: Answer) {
        let definition = match self.sites.sites.get_mut(&answer.site.id) {
            Some(site) => {
                site.native = answer.site.frames;
                site.definition(answer.site.id)
            }
            // Asked for by a program that the process no longer runs; it had no Python stack, or has lost it.
            None => return,
        };
        self.write(definition);
    }
}
