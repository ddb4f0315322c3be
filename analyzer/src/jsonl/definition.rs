//! Lines of what calls refer to: ranks, communicators, types, call sites, labels.

use std::borrow::Cow;

use rankdiff_trace::{
    Basic, CommDef, CommIdentity, CommRef, Frame, FrameKind, RankDef, Record, SiteDef, SiteRef, TypeDef, limits,
};
use serde::{Deserialize, Serialize};

use super::call::{MOST_BITS, is_default};
use super::{Refused, bounded, names};

/// A rank that the process plays.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankLine<'a> {
    rank: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    world: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    local_rank: Option<u32>,
    #[serde(default)]
    attempt: u32,
    #[serde(borrow)]
    source: Cow<'a, str>,
}

impl From<&RankDef> for RankLine<'_> {
    fn from(def: &RankDef) -> Self {
        RankLine {
            rank: def.rank,
            world: def.world,
            local_rank: def.local_rank,
            attempt: def.attempt,
            source: names::source(def.source),
        }
    }
}

impl RankLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Rank(RankDef {
            rank: self.rank,
            world: self.world,
            local_rank: self.local_rank,
            attempt: self.attempt,
            source: names::source_of(&self.source)?,
        }))
    }
}

/// A communicator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CommLine<'a> {
    id: u32,
    /// 32 hexadecimal digits; absent if it is not known.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    identity: Option<Cow<'a, str>>,
    #[serde(borrow)]
    provenance: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    name: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    desc: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    library: Cow<'a, str>,
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MOST_BITS>"
    )]
    semantics: Vec<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    my_rank: Option<u32>,
    #[serde(default, skip_serializing_if = "<[u32]>::is_empty", deserialize_with = "members")]
    members: Cow<'a, [u32]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    parent: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    ordinal: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    color: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    inter: bool,
}

fn members<'de, 'a, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u32]>, D::Error> {
    bounded::list::<_, _, { limits::MAX_MEMBERS }>(deserializer).map(Cow::Owned)
}

impl<'a> From<&'a CommDef> for CommLine<'a> {
    fn from(def: &'a CommDef) -> CommLine<'a> {
        CommLine {
            id: def.id.0,
            identity: def.identity.is_known().then(|| format!("{:032x}", def.identity.0).into()),
            provenance: names::provenance(def.provenance),
            name: def.name.as_str().into(),
            desc: def.desc.as_str().into(),
            library: def.library.as_str().into(),
            level: names::level(def.level),
            semantics: names::semantics(def.semantics),
            size: def.size,
            my_rank: def.my_rank,
            members: Cow::Borrowed(&def.members),
            owner: def.owner,
            parent: def.parent.0,
            ordinal: def.ordinal,
            color: def.color,
            key: def.key,
            inter: def.inter,
        }
    }
}

impl CommLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        let identity = match self.identity {
            None => CommIdentity::UNKNOWN,
            Some(text) => {
                let digits = text.len() <= 32 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let parsed = digits.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
                CommIdentity(parsed.ok_or_else(|| Refused::Wrong("`identity` is not hexadecimal".to_owned()))?)
            }
        };
        Ok(Record::Comm(CommDef {
            id: CommRef(known(self.id)?),
            identity,
            provenance: names::provenance_of(&self.provenance)?,
            name: self.name.into_owned(),
            desc: self.desc.into_owned(),
            library: self.library.into_owned(),
            level: names::level_of(&self.level)?,
            semantics: names::semantics_of(&self.semantics)?,
            size: self.size,
            my_rank: self.my_rank,
            members: self.members.into_owned(),
            owner: self.owner,
            parent: CommRef(self.parent),
            ordinal: self.ordinal,
            color: self.color,
            key: self.key,
            inter: self.inter,
        }))
    }
}

/// 0 stands for 'none' where it is referred to, and is no definition's.
fn known(id: u32) -> Result<u32, Refused> {
    if id == 0 { Err(Refused::Wrong("`id` is 0, which means 'none' elsewhere".to_owned())) } else { Ok(id) }
}

/// A derived type.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TypeLine<'a> {
    id: u32,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Basic type and repetitions.
    #[serde(
        borrow,
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, { limits::MAX_RUNS }>"
    )]
    runs: Vec<(Cow<'a, str>, u64)>,
}

impl<'a> From<&'a TypeDef> for TypeLine<'a> {
    fn from(def: &'a TypeDef) -> TypeLine<'a> {
        let runs = def.runs.iter().map(|(basic, times)| (basic.name().into(), *times)).collect();
        TypeLine { id: def.id, name: def.name.as_str().into(), size: def.size, runs }
    }
}

impl TypeLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        let run = |(name, times): &(Cow<'_, str>, u64)| Basic::from_name(name).map(|basic| (basic, *times));
        let runs = self.runs.iter().map(run).collect::<Option<Vec<_>>>().ok_or(Refused::Newer)?;
        Ok(Record::Type(TypeDef { id: self.id, name: self.name.into_owned(), size: self.size, runs }))
    }
}

/// A call site, frames outermost first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SiteLine<'a> {
    id: u32,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, { limits::MAX_FRAMES }>")]
    frames: Vec<FrameLine<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FrameLine<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    function: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    file: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    line: u32,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    module: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "is_default")]
    build_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    offset: u64,
}

impl<'a> From<&'a SiteDef> for SiteLine<'a> {
    fn from(def: &'a SiteDef) -> SiteLine<'a> {
        let frame = |frame: &'a Frame| FrameLine {
            kind: names::frame(frame.kind),
            function: frame.function.as_str().into(),
            file: frame.file.as_str().into(),
            line: frame.line,
            module: frame.module.as_str().into(),
            build_id: frame.build_id.as_str().into(),
            offset: frame.offset,
        };
        SiteLine { id: def.id.0, frames: def.frames.iter().map(frame).collect() }
    }
}

impl SiteLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        let mut frames = Vec::with_capacity(self.frames.len());
        for frame in self.frames {
            frames.push(Frame {
                // A frame of a kind that is not known is still a frame.
                kind: names::frame_of(&frame.kind).unwrap_or(FrameKind::Text),
                function: frame.function.into_owned(),
                file: frame.file.into_owned(),
                line: frame.line,
                module: frame.module.into_owned(),
                build_id: frame.build_id.into_owned(),
                offset: frame.offset,
            });
        }
        Ok(Record::Site(SiteDef { id: SiteRef(known(self.id)?), frames }))
    }
}

/// A label.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LabelLine<'a> {
    pub(super) id: u32,
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
}

impl LabelLine<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Label(self.id, self.text.into_owned()))
    }
}
