//! A made-up process, and what each operation says in it under each ABI.

mod collectives;
mod communicators;
mod robustness;

use std::collections::BTreeMap;

use crate::decode::{Context, RawCall};
use crate::mpi::MPI;
use crate::spec::Function;

/// A process as a decoder may ask about it.
#[derive(Debug, Clone, Default)]
pub(in crate::mpi) struct Process {
    size: Option<u32>,
    rank: Option<u32>,
    inter: bool,
    symbols: BTreeMap<u64, String>,
}

impl Process {
    pub(in crate::mpi) fn member(rank: u32, size: u32) -> Process {
        Process { size: Some(size), rank: Some(rank), ..Process::default() }
    }

    /// Of an intercommunicator.
    pub(in crate::mpi) fn inter(mut self) -> Process {
        self.inter = true;
        self
    }

    /// With a global of this name at this address.
    pub(in crate::mpi) fn global(mut self, address: u64, name: &str) -> Process {
        self.symbols.insert(address, name.to_owned());
        self
    }
}

impl Context for Process {
    fn comm_size(&self) -> Option<u32> {
        self.size
    }
    fn comm_rank(&self) -> Option<u32> {
        self.rank
    }
    fn comm_is_inter(&self) -> bool {
        self.inter
    }
    fn symbol_at(&self, address: u64) -> Option<String> {
        self.symbols.get(&address).cloned()
    }
}

/// What a probe recorded.
#[derive(Debug, Clone, Default)]
pub(in crate::mpi) struct Recorded {
    args: Vec<u64>,
    regions: Vec<Vec<u8>>,
}

impl Recorded {
    /// These values, in the order of the function's arguments.
    pub(in crate::mpi) fn new(args: impl IntoIterator<Item = u64>) -> Recorded {
        Recorded { args: args.into_iter().collect(), regions: Vec::new() }
    }

    /// And an array of ints.
    pub(in crate::mpi) fn ints(mut self, values: &[i32]) -> Recorded {
        self.regions.push(values.iter().flat_map(|value| value.to_le_bytes()).collect());
        self
    }

    /// And an array of 64-bit values or handles.
    pub(in crate::mpi) fn longs(mut self, values: &[u64]) -> Recorded {
        self.regions.push(values.iter().flat_map(|value| value.to_le_bytes()).collect());
        self
    }

    /// And an array of 32-bit handles.
    pub(in crate::mpi) fn handles32(mut self, values: &[u64]) -> Recorded {
        self.regions.push(values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect());
        self
    }

    pub(in crate::mpi) fn raw(&self) -> RawCall<'_> {
        let region = |index: usize| self.regions.get(index).map_or(&[][..], Vec::as_slice);
        RawCall { args: &self.args, regions: [region(0), region(1)], stack_unreadable: false }
    }
}

pub(in crate::mpi) fn function(symbol: &str) -> &'static Function {
    MPI.functions.iter().find(|function| function.symbol == symbol).expect("a known function")
}
