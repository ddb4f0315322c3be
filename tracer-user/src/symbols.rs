//! Data symbols of one process image: names of the addresses that some libraries use as handles.
//!
//! An executable linked without position independence holds its own copy of such globals (COPY relocations), so the
//! executable is asked before the libraries.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::elf::ElfInfo;

/// Loaded objects of a process and what their addresses are called.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    objects: Vec<(u64, Arc<ElfInfo>)>,
    known: RefCell<FxHashMap<u64, Option<String>>>,
}

impl Symbols {
    /// Adds an object that is loaded at this bias (run-time address less link-time address).
    pub fn add(&mut self, bias: u64, elf: Arc<ElfInfo>) {
        self.objects.push((bias, elf));
        self.known.borrow_mut().clear();
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The data symbol at this address.
    pub fn at(&self, address: u64) -> Option<String> {
        if let Some(name) = self.known.borrow().get(&address) {
            return name.clone();
        }
        let name =
            self.objects.iter().find_map(|(bias, elf)| elf.data_at(address.wrapping_sub(*bias))).map(str::to_owned);
        self.known.borrow_mut().insert(address, name.clone());
        name
    }
}
