//! Communicators of one process: from a library's handle and its generation to a definition in the stream.

use rankdiff_libs::decode::{CommFacts, Decoded, Decoder, Lineage, Predefined};
use rankdiff_libs::spec::Library;
use rankdiff_trace::{CommDef, CommIdentity, CommRef, Op, Provenance, RankDef};
use rustc_hash::FxHashMap;

/// A handle that means one communicator: library, value, generation.
type Handle = (&'static str, u64, u32);

/// The communicators that a process has used.
#[derive(Debug, Default)]
pub struct Communicators {
    defs: Vec<CommDef>,
    by_handle: FxHashMap<Handle, CommRef>,
    /// Newest generation of each handle.
    newest: FxHashMap<(&'static str, u64), u32>,
    /// Starts of persistent operations per communicator, which the kernel's counter does not see.
    extra: FxHashMap<CommRef, u64>,
    /// Collectives that the kernel's counter had seen after the last one recorded.
    counted: FxHashMap<CommRef, u64>,
}

/// A creation call that has not returned.
#[derive(Debug, Clone)]
pub struct Creation {
    /// The operation.
    pub op: Op,
    /// The communicator it was called on.
    pub parent: CommRef,
    /// Ordinal on the parent.
    pub ordinal: Option<u64>,
    /// What its arguments said.
    pub decoded: Decoded,
    /// The communicator, where it could be defined at the entry.
    pub made: CommRef,
}

impl Creation {
    /// Whether this member is certain to get a communicator, and which one, before the call returns: so that a rank that
    /// waits in a creation for ever is seen to wait there. Other creations may leave this member out.
    pub fn is_certain(&self) -> bool {
        match self.op {
            Op::CommInit => self.decoded.new_identity.is_known(),
            Op::CommDup => true,
            Op::CommSplit => self.decoded.color.is_some(),
            _ => false,
        }
    }
}

impl Communicators {
    /// The definition.
    pub fn get(&self, comm: CommRef) -> Option<&CommDef> {
        self.defs.get((comm.0 as usize).checked_sub(1)?)
    }

    /// The communicator that this handle means, if it is known.
    pub fn find(&self, library: &'static Library, handle: u64, generation: u32) -> Option<CommRef> {
        self.by_handle.get(&(library.name, handle, generation)).copied()
    }

    fn add(&mut self, library: &'static Library, mut def: CommDef) -> CommDef {
        def.id = CommRef(self.defs.len() as u32 + 1);
        def.library = library.name.to_owned();
        def.level = library.level;
        def.semantics = library.semantics;
        self.defs.push(def.clone());
        def
    }

    /// From now on this handle means this communicator.
    pub fn bind(&mut self, library: &'static Library, handle: u64, generation: u32, comm: CommRef) {
        self.by_handle.insert((library.name, handle, generation), comm);
        self.newest.insert((library.name, handle), generation);
    }

    /// Defines the communicator of a handle that is used without its creation having been seen.
    pub fn add_unseen(
        &mut self,
        library: &'static Library,
        handle: u64,
        generation: u32,
        predefined: Option<Predefined>,
        rank: Option<&RankDef>,
    ) -> CommDef {
        let def = match predefined {
            Some(known) if known.world => CommDef {
                identity: known.identity,
                provenance: Provenance::Predefined,
                name: known.name.to_owned(),
                size: rank.and_then(|rank| rank.world),
                my_rank: rank.map(|rank| rank.rank),
                ..CommDef::default()
            },
            // A communicator that holds this process alone has no partner to be compared with.
            Some(known) => CommDef {
                identity: CommIdentity::UNKNOWN,
                provenance: Provenance::Predefined,
                name: known.name.to_owned(),
                size: Some(1),
                my_rank: Some(0),
                ..CommDef::default()
            },
            None => CommDef { provenance: Provenance::Unknown, ..CommDef::default() },
        };
        let def = self.add(library, def);
        self.bind(library, handle, generation, def.id);
        def
    }

    /// Defines the communicator that a creation call is about to make, or made.
    pub fn add_created(&mut self, library: &'static Library, creation: &Creation, host: &str) -> CommDef {
        let Creation { op, parent, ordinal, decoded, .. } = creation;
        let from = self.get(*parent);
        let color = decoded.color.unwrap_or(0);
        let identity = match (decoded.lineage, from, ordinal) {
            _ if decoded.new_identity.is_known() => decoded.new_identity,
            (Lineage::Colour, Some(from), Some(ordinal)) => from.identity.child(*ordinal, color),
            (Lineage::Node, Some(from), Some(ordinal)) => {
                CommIdentity::root(host, &from.identity.child(*ordinal, color).0.to_le_bytes())
            }
            _ => CommIdentity::UNKNOWN,
        };
        let copy = *op == Op::CommDup;
        let def = CommDef {
            identity,
            provenance: Provenance::Created,
            name: decoded.new_name.clone(),
            size: decoded.new_size.or_else(|| from.filter(|_| copy)?.size),
            my_rank: decoded.new_rank.or_else(|| from.filter(|_| copy)?.my_rank),
            parent: *parent,
            ordinal: ordinal.unwrap_or(0),
            // In other creations it is a number that only tells communicators apart.
            color: decoded.color.filter(|_| *op == Op::CommSplit),
            key: decoded.key,
            inter: decoded.new_inter || from.is_some_and(|from| copy && from.inter),
            ..CommDef::default()
        };
        self.add(library, def)
    }

    /// The program asked for a communicator's size or its rank in it; returns the definition if that is news.
    pub fn learn(&mut self, comm: CommRef, size: Option<u32>, rank: Option<u32>) -> Option<CommDef> {
        let def = self.defs.get_mut((comm.0 as usize).checked_sub(1)?)?;
        // On a communicator between two groups both numbers are those of the own group.
        if def.inter {
            return None;
        }
        let news = (size.is_some() && def.size != size) || (rank.is_some() && def.my_rank != rank);
        def.size = size.or(def.size);
        def.my_rank = rank.or(def.my_rank);
        news.then(|| def.clone())
    }

    /// A communicator's own object says what it is; returns the definition if that is news.
    pub fn learn_facts(&mut self, comm: CommRef, facts: &CommFacts) -> Option<CommDef> {
        let def = self.defs.get_mut((comm.0 as usize).checked_sub(1)?)?;
        let before = (def.identity, def.size, def.my_rank, def.name.len(), def.desc.len());
        if !def.identity.is_known() && facts.identity.is_known() {
            def.identity = facts.identity;
            if def.provenance == Provenance::Unknown {
                def.provenance = Provenance::Inferred;
            }
        }
        def.size = def.size.or(facts.size);
        def.my_rank = def.my_rank.or(facts.rank);
        for (text, fact) in [(&mut def.name, &facts.name), (&mut def.desc, &facts.desc)] {
            if text.is_empty() {
                text.clone_from(fact);
            }
        }
        let after = (def.identity, def.size, def.my_rank, def.name.len(), def.desc.len());
        (before != after).then(|| def.clone())
    }

    /// The communicator that this handle meant last.
    pub fn newest(&self, library: &'static Library, handle: u64) -> Option<CommRef> {
        let generation = self.newest.get(&(library.name, handle))?;
        self.find(library, handle, *generation)
    }

    /// Notes the kernel's counter after a collective.
    pub fn note_counted(&mut self, comm: CommRef, counted: u64) {
        self.counted.insert(comm, counted);
    }

    /// The kernel's counter after the last collective that was seen; 0 where none was, unless the communicator's first
    /// calls were not seen either (then nobody knows).
    pub fn counted(&self, comm: CommRef) -> Option<u64> {
        let unseen = self.get(comm)?.provenance == Provenance::Unknown;
        self.counted.get(&comm).copied().or((!unseen).then_some(0))
    }

    /// Notes the start of a persistent operation; returns how many there were before.
    pub fn count_persistent(&mut self, comm: CommRef) -> u64 {
        let count = self.extra.entry(comm).or_default();
        *count += 1;
        *count - 1
    }

    /// Starts of persistent operations so far: what is added to the kernel's counter.
    pub fn persistent(&self, comm: CommRef) -> u64 {
        self.extra.get(&comm).copied().unwrap_or(0)
    }

    /// Forgets everything: the process runs another program.
    pub fn clear(&mut self) {
        // Definitions keep their ids: the stream goes on.
        self.by_handle.clear();
        self.newest.clear();
        self.extra.clear();
        self.counted.clear();
    }
}

/// Whether this handle stands for no communicator.
pub fn is_null(decoder: &dyn Decoder, handle: u64, context: &dyn rankdiff_libs::decode::Context) -> bool {
    handle == 0 || decoder.is_null_comm(handle, context)
}
