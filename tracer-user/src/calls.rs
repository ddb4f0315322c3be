//! From a recorded entry or return to records: decoding, communicators, positions.

use std::sync::Arc;

use rankdiff_common::event::{Exit, flag};
use rankdiff_libs::decode::{CommFacts, Context, Decoded, Decoder, RawCall, Started};
use rankdiff_libs::spec::{Abi, Library, Role};
use rankdiff_trace::{Call, CallFlags, CommRef, Op, OpKind, Record, Semantics, SiteRef};
use rustc_hash::FxHashMap;

use crate::attach::AttachedProbe;
use crate::communicators::{self, Creation};
use crate::elf::ElfInfo;
use crate::events::Entry;
use crate::maps::FileKey;
use crate::process::{Process, StreamOptions};
use crate::sites::Resolver;
use crate::symbols::Symbols;
use crate::thread::{Open, Thread};

/// What a process's calls are made of.
#[derive(Default)]
pub struct Calls {
    decoders: Vec<(&'static str, Box<dyn Decoder>)>,
    /// Creations inside a batch whose handle is known only at its end, by thread and ordinal.
    grouped: FxHashMap<(u32, u64), Creation>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("decoders", &self.decoders.len()).finish_non_exhaustive()
    }
}

impl Calls {
    /// Forgets everything that belongs to a program's memory image.
    pub fn clear(&mut self) {
        self.decoders.clear();
        self.grouped.clear();
    }

    fn decoder(&mut self, library: &'static Library, abi: Abi) -> &mut dyn Decoder {
        let index = self.decoders.iter().position(|(name, _)| *name == library.name).unwrap_or_else(|| {
            self.decoders.push((library.name, (library.decoder)(abi)));
            self.decoders.len() - 1
        });
        self.decoders[index].1.as_mut()
    }
}

/// What all processes share.
#[derive(Debug)]
pub struct Shared<'a> {
    /// How streams are written.
    pub options: &'a StreamOptions,
    /// Objects that were read.
    pub objects: &'a FxHashMap<FileKey, Arc<ElfInfo>>,
    /// The worker that names call sites.
    pub resolver: Option<&'a mut Resolver>,
}

/// The decoder's view of the process and the call's communicator.
struct View<'a> {
    size: Option<u32>,
    rank: Option<u32>,
    inter: bool,
    symbols: &'a Symbols,
}

impl Context for View<'_> {
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
        self.symbols.at(address)
    }
}

fn view(process: &Process, comm: CommRef) -> View<'_> {
    let def = process.communicators.get(comm);
    View {
        size: def.and_then(|def| def.size),
        rank: def.and_then(|def| def.my_rank),
        inter: def.is_some_and(|def| def.inter),
        symbols: &process.image.symbols,
    }
}

fn raw<'a>(args: &'a [u64], regions: &'a [Vec<u8>; 2], flags: u8) -> RawCall<'a> {
    RawCall { args, regions: [&regions[0], &regions[1]], stack_unreadable: flags & flag::STACK_UNREADABLE != 0 }
}

impl Process {
    /// Takes the entry of a call.
    pub fn enter(&mut self, entry: Entry, probe: &AttachedProbe, shared: &mut Shared<'_>) {
        self.begin(shared.options);
        let header = entry.enter.header;
        let thread = self.threads.entry(header.tid).or_insert_with(|| Thread::new(header.tid, 0));
        if let Some(gap) = thread.enter(header.thread_seq, header.time) {
            // Calls before the gap leave first, so that the gap stands where the calls are missing.
            self.move_calls(true);
            self.gap(gap);
        }
        if self.image.mappings().is_empty() {
            self.refresh_image(shared.objects);
        }
        let args = entry.enter.args[..probe.function.args.len().min(entry.enter.args.len())].to_vec();
        let comm = self.comm_of(&entry, probe);
        let decoded = self.decode(&entry, &args, probe, comm);
        if let Some(facts) = &decoded.comm {
            self.learn_facts(comm, facts);
        }
        if probe.function.made_in_place().is_some() {
            self.made_in_place(&entry, probe, decoded, shared);
            return;
        }
        if probe.function.traits.auxiliary || probe.function.traits.persistent_init {
            let open = self.open(&entry, probe, comm, None, args, None);
            self.push(header.tid, open);
            return;
        }
        let site = self.site(entry.enter.return_address, entry.enter.stack, shared);
        if probe.function.traits.starts {
            self.started(&entry, &args, probe, site);
            return;
        }
        let mut call = self.call(&entry, probe, comm, &decoded);
        call.site = site;
        let creation = (call.op.kind() == OpKind::CommCreate).then_some(Creation {
            op: call.op,
            parent: comm,
            ordinal: call.seq,
            decoded,
            made: CommRef::NONE,
        });
        let creation = creation.map(|creation| self.creation_entered(creation, probe, shared));
        call.made = creation.as_ref().map_or(CommRef::NONE, |creation| creation.made);
        let open = self.open(&entry, probe, comm, Some(call), args, creation);
        self.push(header.tid, open);
    }

    /// Queues the operations that persistent requests issue when they are started.
    fn started(&mut self, entry: &Entry, args: &[u64], probe: &AttachedProbe, site: SiteRef) {
        let mut calls = std::mem::take(&mut self.calls);
        let decoder = calls.decoder(probe.library, probe.abi);
        let started = decoder.started(
            probe.function,
            &raw(args, &entry.regions, entry.enter.header.flags),
            &view(self, CommRef::NONE),
        );
        self.calls = calls;
        for Started { comm, function, decoded } in started {
            // The generation is the newest: a request outlives no communicator that is released and made again.
            let Some(comm) = self.communicators.newest(probe.library, comm) else { continue };
            let extra = self.communicators.count_persistent(comm);
            let counted = self.communicators.counted(comm);
            let mut call = self.call(entry, probe, comm, &decoded);
            call.op = function.op;
            call.seq = counted.map(|counted| counted + extra);
            call.flags = call.flags.with(CallFlags::PERSISTENT).with(CallFlags::NONBLOCKING);
            call.site = site;
            let open = Open {
                call: Some(call),
                comm,
                args: Vec::new(),
                regions: Default::default(),
                creation: None,
                returns: false,
                written: false,
                seq: entry.enter.header.thread_seq,
            };
            self.push(entry.enter.header.tid, open);
        }
    }

    fn push(&mut self, tid: u32, open: Open) {
        let complete = !open.returns;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.push(open);
            if complete {
                let calls: Vec<Call> = thread.take_complete().collect();
                for call in calls {
                    self.write(Record::Call(call));
                }
            }
        }
    }

    fn open(
        &self,
        entry: &Entry,
        probe: &AttachedProbe,
        comm: CommRef,
        call: Option<Call>,
        args: Vec<u64>,
        creation: Option<Creation>,
    ) -> Open {
        let traits = probe.function.traits;
        let returns = probe.exit.is_some();
        let learns = returns && (traits.auxiliary || traits.persistent_init);
        Open {
            call,
            comm,
            args: if learns { args } else { Vec::new() },
            regions: if learns { entry.regions.clone() } else { Default::default() },
            creation,
            returns,
            written: false,
            seq: entry.enter.header.thread_seq,
        }
    }

    /// The communicator of a call, defined in the stream before it is used.
    fn comm_of(&mut self, entry: &Entry, probe: &AttachedProbe) -> CommRef {
        if probe.function.arg(Role::Comm).is_none() || entry.enter.header.flags & flag::COMM_UNREADABLE != 0 {
            return CommRef::NONE;
        }
        self.comm_by_handle(entry.enter.comm, entry.enter.generation, probe)
    }

    fn comm_by_handle(&mut self, handle: u64, generation: u32, probe: &AttachedProbe) -> CommRef {
        if let Some(comm) = self.communicators.find(probe.library, handle, generation) {
            return comm;
        }
        let mut calls = std::mem::take(&mut self.calls);
        let decoder = calls.decoder(probe.library, probe.abi);
        let context = view(self, CommRef::NONE);
        let null = communicators::is_null(decoder, handle, &context);
        let predefined = decoder.predefined(handle, &context);
        self.calls = calls;
        if null {
            return CommRef::NONE;
        }
        let rank = self.rank().copied();
        let def = self.communicators.add_unseen(probe.library, handle, generation, predefined, rank.as_ref());
        let comm = def.id;
        self.write(Record::Comm(def));
        comm
    }

    fn decode(&mut self, entry: &Entry, args: &[u64], probe: &AttachedProbe, comm: CommRef) -> Decoded {
        let mut calls = std::mem::take(&mut self.calls);
        let decoder = calls.decoder(probe.library, probe.abi);
        let raw = raw(args, &entry.regions, entry.enter.header.flags);
        let decoded = decoder.enter(probe.function, &raw, &view(self, comm));
        let types = decoder.take_types();
        self.calls = calls;
        for def in types {
            self.write(Record::Type(def));
        }
        decoded
    }

    fn call(&mut self, entry: &Entry, probe: &AttachedProbe, comm: CommRef, decoded: &Decoded) -> Call {
        let enter = &entry.enter;
        let op = probe.function.op;
        let has = |bit: u8| enter.header.flags & bit != 0;
        let mut flags = CallFlags::default();
        for (set, flag) in [
            (probe.function.traits.nonblocking, CallFlags::NONBLOCKING),
            (decoded.in_place, CallFlags::IN_PLACE),
            (has(flag::NESTED), CallFlags::NESTED),
            (decoded.unreadable, CallFlags::UNREADABLE),
            (decoded.vectors_cut, CallFlags::VECTORS_CUT),
            (decoded.root_is_self, CallFlags::ROOT_IS_SELF),
            (decoded.bystander, CallFlags::BYSTANDER),
            (decoded.any_source, CallFlags::ANY_SOURCE),
            (decoded.any_tag, CallFlags::ANY_TAG),
            (has(flag::GROUPED), CallFlags::GROUPED),
        ] {
            if set {
                flags = flags.with(flag);
            }
        }
        let counted = comm != CommRef::NONE && !has(flag::NO_SEQ) && !has(flag::NESTED);
        let extra = if op.is_collective() { self.communicators.persistent(comm) } else { 0 };
        if counted && op.is_collective() {
            self.communicators.note_counted(comm, enter.comm_seq + 1);
        }
        Call {
            op,
            comm,
            seq: counted.then_some(enter.comm_seq.wrapping_add(extra)),
            flags,
            count: decoded.count,
            dtype: decoded.dtype,
            redop: decoded.redop,
            root: decoded.root,
            peer: decoded.peer,
            tag: decoded.tag.or(decoded.color.filter(|_| op == Op::CommSplit)),
            sends: decoded.sends.clone(),
            recvs: decoded.recvs.clone(),
            thread: enter.header.tid,
            thread_seq: enter.header.thread_seq,
            stream: decoded.stream,
            group: enter.group,
            enter: enter.header.time,
            ..Call::default()
        }
    }

    /// Takes the return of a call.
    pub fn exit(&mut self, exit: &Exit, probe: &AttachedProbe, shared: &mut Shared<'_>) {
        let header = exit.header;
        let result = i64::from(exit.result as u32 as i32);
        let out = (exit.header.flags & flag::OUT_UNREADABLE == 0).then_some(exit.out);
        self.learn(exit, probe, result, out);
        // A library whose return is not its completion may still be at work on the new communicator.
        let made = result == 0 || !probe.library.semantics.contains(Semantics::BLOCKING);
        if probe.function.op.kind() == OpKind::CommCreate && made {
            self.creation_returned(exit, probe, out, shared);
        }
        let Some(thread) = self.threads.get_mut(&header.tid) else { return };
        if let Some(record) = thread.returned(header.thread_seq, header.time, result) {
            self.write(record);
        }
        if let Some(thread) = self.threads.get_mut(&header.tid) {
            let calls: Vec<Call> = thread.take_complete().collect();
            for call in calls {
                self.write(Record::Call(call));
            }
        }
    }

    /// Gives the decoder what an auxiliary function's return says.
    fn learn(&mut self, exit: &Exit, probe: &AttachedProbe, result: i64, out: Option<u64>) {
        let mut calls = std::mem::take(&mut self.calls);
        let known = self
            .threads
            .get_mut(&exit.header.tid)
            .and_then(|thread| thread.find(exit.header.thread_seq))
            .map(|open| (open.comm, std::mem::take(&mut open.args), std::mem::take(&mut open.regions)));
        let (comm, args, regions) = known.unwrap_or_default();
        if !args.is_empty() {
            let decoder = calls.decoder(probe.library, probe.abi);
            decoder.exit(probe.function, &raw(&args, &regions, 0), result, out, &view(self, comm));
        }
        self.calls = calls;
        if let Some(number) = out.and_then(|out| u32::try_from(out).ok()).filter(|_| result == 0) {
            let size = probe.function.arg(Role::CommSize).map(|_| number);
            let rank = probe.function.arg(Role::CommRank).map(|_| number);
            if let Some(def) = self.communicators.learn(comm, size, rank) {
                self.learn_rank(&def);
                self.write(Record::Comm(def));
            }
        }
    }

    /// The call's communicator says what it is: a definition that says more replaces the one before.
    fn learn_facts(&mut self, comm: CommRef, facts: &CommFacts) {
        if let Some(def) = self.communicators.learn_facts(comm, facts) {
            if facts.is_world {
                self.learn_rank(&def);
            }
            self.write(Record::Comm(def));
        }
    }

    /// A communicator is made in memory that the caller gave, so its handle is known before it exists. The kernel began
    /// the handle's next generation with this entry.
    fn made_in_place(&mut self, entry: &Entry, probe: &AttachedProbe, decoded: Decoded, shared: &Shared<'_>) {
        let is_part = decoded.new_is_part;
        let creation =
            Creation { op: Op::CommInit, parent: CommRef::NONE, ordinal: None, decoded, made: CommRef::NONE };
        let def = self.communicators.add_created(probe.library, &creation, &shared.options.host);
        let generation = entry.enter.generation.wrapping_add(1);
        self.communicators.bind(probe.library, entry.enter.comm, generation, def.id);
        if !is_part {
            self.learn_rank(&def);
        }
        self.write(Record::Comm(def));
    }

    /// A creation was entered: the communicator is defined now if it is certain to come.
    fn creation_entered(&mut self, mut creation: Creation, probe: &AttachedProbe, shared: &Shared<'_>) -> Creation {
        if creation.is_certain() {
            let def = self.communicators.add_created(probe.library, &creation, &shared.options.host);
            creation.made = def.id;
            self.learn_rank(&def);
            self.write(Record::Comm(def));
        }
        creation
    }

    /// A creation returned: its communicator is defined now, or at the end of the batch that it belongs to.
    fn creation_returned(&mut self, exit: &Exit, probe: &AttachedProbe, out: Option<u64>, shared: &mut Shared<'_>) {
        let open = self.threads.get_mut(&exit.header.tid).and_then(|thread| thread.find(exit.header.thread_seq));
        let grouped = open
            .as_ref()
            .is_some_and(|open| open.call.as_ref().is_some_and(|call| call.flags.contains(CallFlags::GROUPED)));
        let creation = open.and_then(|open| open.creation.take());
        if grouped && probe.function.traits.out_at_group_end {
            if let Some(creation) = creation {
                self.calls.grouped.insert((exit.header.tid, exit.header.thread_seq), creation);
            }
        } else if let Some(out) = out {
            self.created(exit, probe, out, creation, shared);
        }
    }

    /// Defines the communicator that a creation made, if it made one.
    fn created(
        &mut self,
        exit: &Exit,
        probe: &AttachedProbe,
        handle: u64,
        creation: Option<Creation>,
        shared: &mut Shared<'_>,
    ) {
        self.begin(shared.options);
        let mut calls = std::mem::take(&mut self.calls);
        let decoder = calls.decoder(probe.library, probe.abi);
        let null = communicators::is_null(decoder, handle, &view(self, CommRef::NONE));
        self.calls = calls;
        if null || self.communicators.find(probe.library, handle, exit.generation).is_some() {
            return;
        }
        let made = match creation {
            Some(creation) if creation.made != CommRef::NONE => creation.made,
            Some(creation) => {
                let def = self.communicators.add_created(probe.library, &creation, &shared.options.host);
                let made = def.id;
                self.write(Record::Comm(def));
                made
            }
            // The entry was lost: the communicator exists, and nobody knows which it is.
            None => {
                let def = self.communicators.add_unseen(probe.library, handle, exit.generation, None, None);
                let made = def.id;
                self.write(Record::Comm(def));
                made
            }
        };
        self.communicators.bind(probe.library, handle, exit.generation, made);
        if let Some(open) =
            self.threads.get_mut(&exit.header.tid).and_then(|thread| thread.find(exit.header.thread_seq))
            && let Some(call) = &mut open.call
        {
            call.made = made;
        }
    }

    /// Takes an out handle that was read at the end of a batch.
    pub fn out(&mut self, out: &Exit, probe: &AttachedProbe, shared: &mut Shared<'_>) {
        if out.header.flags & flag::OUT_UNREADABLE == 0 {
            let creation = self.calls.grouped.remove(&(out.header.tid, out.header.thread_seq));
            self.created(out, probe, out.out, creation, shared);
        }
    }
}
