//! Definitions by key, the latest of each, in the order in which they first came.
//!
//! A writer keeps them so that every later segment can begin with them and reads alone; a reader collects them.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::call::{SiteDef, SiteRef};
use crate::comm::{CommDef, CommRef, RankDef};
use crate::datatype::TypeDef;

/// Definitions of one kind.
#[derive(Debug)]
pub(crate) struct Latest<K, T> {
    records: Vec<T>,
    places: FxHashMap<K, usize>,
}

impl<K, T> Default for Latest<K, T> {
    fn default() -> Latest<K, T> {
        Latest { records: Vec::new(), places: FxHashMap::default() }
    }
}

impl<K: Hash + Eq, T> Latest<K, T> {
    /// Adds a definition; it takes the place of an earlier one with its key.
    pub(crate) fn define(&mut self, key: K, record: T) {
        let place = *self.places.entry(key).or_insert(self.records.len());
        match self.records.get_mut(place) {
            Some(old) => *old = record,
            None => self.records.push(record),
        }
    }

    pub(crate) fn records(&self) -> &[T] {
        &self.records
    }

    pub(crate) fn into_records(self) -> Vec<T> {
        self.records
    }
}

/// The definitions of a stream.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Ranks are told apart by (rank, attempt).
    pub(crate) ranks: Latest<(u32, u32), RankDef>,
    pub(crate) comms: Latest<CommRef, CommDef>,
    pub(crate) types: Latest<u32, TypeDef>,
    pub(crate) sites: Latest<SiteRef, SiteDef>,
    pub(crate) labels: Latest<u32, (u32, String)>,
}

impl Definitions {
    pub(crate) fn rank(&mut self, def: RankDef) {
        self.ranks.define((def.rank, def.attempt), def);
    }

    pub(crate) fn comm(&mut self, def: CommDef) {
        self.comms.define(def.id, def);
    }

    pub(crate) fn derived(&mut self, def: TypeDef) {
        self.types.define(def.id, def);
    }

    pub(crate) fn site(&mut self, def: SiteDef) {
        self.sites.define(def.id, def);
    }

    pub(crate) fn label(&mut self, id: u32, text: String) {
        self.labels.define(id, (id, text));
    }
}
