//! Lines of calls and of returns.

use std::borrow::Cow;

use rankdiff_trace::{Basic, Call, CommRef, Completion, DType, Op, Record, RedOp, Reduction, Return, SiteRef, limits};
use serde::{Deserialize, Serialize};

use super::{Refused, bounded, names};

/// Whether a field is left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Most names of flags in a list: there are 32 bits.
pub(super) const MOST_BITS: usize = 32;

/// A call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallLine<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    comm: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    made: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MOST_BITS>"
    )]
    flags: Vec<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    dtype: Option<Typed<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    redop: Option<Reduced<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<i64>,
    #[serde(default, skip_serializing_if = "<[u64]>::is_empty", deserialize_with = "vector")]
    sends: Cow<'a, [u64]>,
    #[serde(default, skip_serializing_if = "<[u64]>::is_empty", deserialize_with = "vector")]
    recvs: Cow<'a, [u64]>,
    thread: u32,
    thread_seq: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    stream: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    group: u32,
    enter_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completion: Option<Completed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    site: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    label: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
}

fn vector<'de, 'a, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u64]>, D::Error> {
    bounded::list::<_, _, { limits::MAX_VECTOR }>(deserializer).map(Cow::Owned)
}

/// An element type: a basic type's name, a derived type's number, or the handle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Typed<'a> {
    Name(#[serde(borrow)] Cow<'a, str>),
    Derived {
        #[serde(rename = "type")]
        id: u32,
    },
    Raw {
        raw: u64,
    },
}

/// A reduction: its name ('dynamic' for one made at run time), or the handle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Reduced<'a> {
    Name(#[serde(borrow)] Cow<'a, str>),
    Raw { raw: u64 },
}

/// Name of a reduction that was made at run time.
const DYNAMIC: &str = "dynamic";

/// When it was complete, or that it was not.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Completed {
    At(u64),
    Pending(Pending),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Pending {
    Pending,
}

impl Completed {
    fn of(completion: Completion) -> Option<Completed> {
        match completion {
            Completion::Unknown => None,
            Completion::At(ns) => Some(Completed::At(ns)),
            Completion::Pending => Some(Completed::Pending(Pending::Pending)),
        }
    }

    fn completion(this: Option<Completed>) -> Completion {
        match this {
            None => Completion::Unknown,
            Some(Completed::At(ns)) => Completion::At(ns),
            Some(Completed::Pending(Pending::Pending)) => Completion::Pending,
        }
    }
}

impl<'a> From<&'a Call> for CallLine<'a> {
    fn from(call: &'a Call) -> CallLine<'a> {
        CallLine {
            op: call.op.name().into(),
            comm: call.comm.0,
            made: call.made.0,
            seq: call.seq,
            flags: names::flags(call.flags),
            count: call.count,
            dtype: match call.dtype {
                DType::None => None,
                DType::Basic(basic) => Some(Typed::Name(basic.name().into())),
                DType::Derived(id) => Some(Typed::Derived { id }),
                DType::Raw(raw) => Some(Typed::Raw { raw }),
            },
            redop: match call.redop {
                RedOp::None => None,
                RedOp::Predefined(reduction) => Some(Reduced::Name(reduction.name().into())),
                RedOp::Dynamic => Some(Reduced::Name(DYNAMIC.into())),
                RedOp::Raw(raw) => Some(Reduced::Raw { raw }),
            },
            root: call.root,
            peer: call.peer,
            tag: call.tag,
            sends: Cow::Borrowed(&call.sends),
            recvs: Cow::Borrowed(&call.recvs),
            thread: call.thread,
            thread_seq: call.thread_seq,
            stream: call.stream,
            group: call.group,
            enter_ns: call.enter,
            exit_ns: call.exit,
            completion: Completed::of(call.completion),
            result: call.result,
            site: call.site.0,
            label: call.label,
            rank: call.rank,
        }
    }
}

impl CallLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        let dtype = match self.dtype {
            None => DType::None,
            Some(Typed::Name(name)) => DType::Basic(Basic::from_name(&name).ok_or(Refused::Newer)?),
            Some(Typed::Derived { id }) => DType::Derived(id),
            Some(Typed::Raw { raw }) => DType::Raw(raw),
        };
        let redop = match self.redop {
            None => RedOp::None,
            Some(Reduced::Name(name)) if name == DYNAMIC => RedOp::Dynamic,
            Some(Reduced::Name(name)) => RedOp::Predefined(Reduction::from_name(&name).ok_or(Refused::Newer)?),
            Some(Reduced::Raw { raw }) => RedOp::Raw(raw),
        };
        Ok(Record::Call(Call {
            op: Op::from_name(&self.op).ok_or(Refused::Newer)?,
            comm: CommRef(self.comm),
            made: CommRef(self.made),
            seq: self.seq,
            flags: names::flags_of(&self.flags)?,
            count: self.count,
            dtype,
            redop,
            root: self.root,
            peer: self.peer,
            tag: self.tag,
            sends: self.sends.into_owned(),
            recvs: self.recvs.into_owned(),
            thread: self.thread,
            thread_seq: self.thread_seq,
            stream: self.stream,
            group: self.group,
            enter: self.enter_ns,
            exit: self.exit_ns,
            completion: Completed::completion(self.completion),
            result: self.result,
            site: SiteRef(self.site),
            label: self.label,
            rank: self.rank,
        }))
    }
}

/// The return of a call that stands before it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReturnLine {
    thread: u32,
    thread_seq: u64,
    exit_ns: u64,
    result: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    made: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completion: Option<Completed>,
}

impl From<&Return> for ReturnLine {
    fn from(entry: &Return) -> ReturnLine {
        ReturnLine {
            thread: entry.thread,
            thread_seq: entry.thread_seq,
            exit_ns: entry.exit,
            result: entry.result,
            made: entry.made.0,
            completion: Completed::of(entry.completion),
        }
    }
}

impl ReturnLine {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Return(Return {
            thread: self.thread,
            thread_seq: self.thread_seq,
            exit: self.exit_ns,
            result: self.result,
            made: CommRef(self.made),
            completion: Completed::completion(self.completion),
        }))
    }
}
