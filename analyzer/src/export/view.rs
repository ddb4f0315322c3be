//! One process's numbers as words: communicators, types, call sites, labels, steps, ranks.

use rankdiff_trace::{
    Call, CallFlags, CommDef, CommIdentity, CommRef, DType, Frame, Op, ProcessTrace, RedOp, Semantics, SiteRef,
};
use rustc_hash::FxHashMap;

use super::survey::{Comm, Process, Survey};
use crate::tables;
use crate::words;

/// A process as exporters see it.
pub(super) struct View<'a> {
    pub(super) trace: &'a ProcessTrace,
    pub(super) process: &'a Process,
    survey: &'a Survey,
    comms: FxHashMap<CommRef, (String, &'a CommDef)>,
    sites: FxHashMap<SiteRef, Site<'a>>,
    labels: FxHashMap<u32, &'a str>,
    /// Name and bytes of an element.
    types: FxHashMap<u32, (String, Option<u64>)>,
    own_rank: Option<u32>,
}

/// A call site.
pub(super) struct Site<'a> {
    /// In one line, outermost frame first.
    pub(super) text: String,
    /// The innermost frame of which most is known.
    pub(super) frame: &'a Frame,
}

impl<'a> View<'a> {
    pub(super) fn of(trace: &'a ProcessTrace, process: &'a Process, survey: &'a Survey) -> View<'a> {
        let title = |def: &'a CommDef| {
            let known = survey.comms.get(&def.identity);
            Comm::title(known.map_or(def, |comm| &comm.def))
        };
        let site = |frames: &'a [Frame]| {
            let known = frames.iter().rev().find(|frame| !frame.file.is_empty());
            let frame = known.or_else(|| frames.iter().rev().find(|frame| !frame.function.is_empty()));
            Some(Site { text: tables::site_text(frames), frame: frame.or(frames.last())? })
        };
        let named = |def: &rankdiff_trace::TypeDef| {
            let name = if def.name.is_empty() { format!("type#{}", def.id) } else { def.name.clone() };
            let runs = || {
                let bytes = |&(basic, times): &(rankdiff_trace::Basic, u64)| basic.size().checked_mul(times);
                def.runs.iter().map(bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))
            };
            (name, def.size.or_else(|| if def.runs.is_empty() { None } else { runs() }))
        };
        View {
            trace,
            process,
            survey,
            comms: trace.comms.iter().map(|def| (def.id, (title(def), def))).collect(),
            sites: trace.sites.iter().filter_map(|def| Some((def.id, site(&def.frames)?))).collect(),
            labels: trace.labels.iter().map(|(id, text)| (*id, text.as_str())).collect(),
            types: trace.types.iter().map(|def| (def.id, named(def))).collect(),
            own_rank: trace.ranks.last().map(|def| def.rank).or_else(|| process.ranks.first().copied()),
        }
    }

    /// The global rank that made a call.
    pub(super) fn rank(&self, call: &Call) -> Option<u32> {
        let owner = |comm: CommRef| self.comms.get(&comm).and_then(|known| known.1.owner);
        call.rank.or_else(|| owner(call.comm)).or_else(|| owner(call.made)).or(self.own_rank)
    }

    /// The rank of what is not a call.
    pub(super) fn own_rank(&self) -> Option<u32> {
        self.own_rank
    }

    /// Title and definition of a communicator.
    pub(super) fn comm(&self, comm: CommRef) -> Option<(&str, &'a CommDef)> {
        self.comms.get(&comm).map(|(title, def)| (title.as_str(), *def))
    }

    /// The operation, with a leading `i` for a non-blocking form where the library tells the forms apart.
    pub(super) fn op(&self, call: &Call) -> String {
        let semantics = self.comm(call.comm).map_or(Semantics::default(), |known| known.1.semantics);
        words::op_name(call, semantics)
    }

    pub(super) fn dtype(&self, dtype: DType) -> Option<String> {
        match dtype {
            DType::None => None,
            DType::Basic(basic) => Some(basic.name().to_owned()),
            DType::Raw(raw) => Some(format!("type {raw:#x}")),
            DType::Derived(id) => {
                Some(self.types.get(&id).map_or_else(|| format!("type#{id}"), |known| known.0.clone()))
            }
        }
    }

    /// Bytes of the call's elements: of its count, or of all that a vector form sends (receives, where it only does that).
    pub(super) fn bytes(&self, call: &Call) -> Option<u64> {
        let element = match call.dtype {
            DType::Basic(basic) => basic.size(),
            DType::Derived(id) => self.types.get(&id)?.1?,
            DType::None | DType::Raw(_) => return None,
        };
        let vector = if call.sends.is_empty() { &call.recvs } else { &call.sends };
        elements(vector).or(call.count)?.checked_mul(element)
    }

    pub(super) fn site(&self, site: SiteRef) -> Option<&Site<'a>> {
        self.sites.get(&site)
    }

    pub(super) fn label(&self, label: u32) -> Option<&'a str> {
        self.labels.get(&label).copied().filter(|text| !text.is_empty())
    }

    /// A time of the process as wall clock, ns since 1970.
    pub(super) fn wall_time(&self, ns: u64) -> i64 {
        self.survey.wall_time(&self.process.key.host, ns)
    }

    /// A time of the process on the job's clock, ns.
    pub(super) fn job_time(&self, ns: u64) -> i64 {
        self.survey.job_time(&self.process.key.host, ns)
    }

    /// Indices of the calls in the order of their entries.
    pub(super) fn by_entry(&self) -> Vec<usize> {
        let calls = &self.trace.calls;
        let mut order: Vec<usize> = (0..calls.len()).collect();
        let key = |&at: &usize| calls.get(at).map(|call| (call.enter, call.thread, call.thread_seq));
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
        }
        order
    }
}

/// The sum of a split vector; `None` if there is none, or it is no number of elements.
pub(super) fn elements(vector: &[u64]) -> Option<u64> {
    if vector.is_empty() {
        return None;
    }
    vector.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count))
}

/// A communicator's identity as text: all 128 bits.
pub(super) fn identity(identity: CommIdentity) -> Option<String> {
    identity.is_known().then(|| format!("{:032x}", identity.0))
}

/// Names of a call's flags, joined by commas.
pub(super) fn flags(call: &Call) -> Option<String> {
    (call.flags != CallFlags::default()).then(|| crate::jsonl::flag_names(call.flags).join(","))
}

pub(super) fn redop(call: &Call) -> Option<String> {
    (call.redop != RedOp::None).then(|| call.redop.to_string())
}

/// A call in a few words, as reports have it: 'ALL_REDUCE 4096 f32 sum'.
pub(super) fn phrase(view: &View<'_>, call: &Call) -> String {
    let mut text = view.op(call).to_uppercase();
    if call.op == Op::Barrier {
        return text;
    }
    let count = call.count.map(|count| count.to_string());
    for part in [count, view.dtype(call.dtype), redop(call)].into_iter().flatten() {
        text.push(' ');
        text.push_str(&part);
    }
    text
}
