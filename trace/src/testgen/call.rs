//! One call in text: `op count dtype @group site [key=value …] [flag …]`.
//!
//! Names of groups and ranks are checked where the whole scenario is known ([`super::scenario`]), not here.

use crate::comm::{Level, Semantics};
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::op::{Op, OpKind};

/// Most milliseconds that a time in a scenario may say (some 30 years).
const MAX_MS: f64 = 1e12;

/// The layer at which a call was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LevelName {
    /// The framework's process groups.
    C10d,
    /// A device collective library; calls return at once.
    Nccl,
    /// A transport below the framework.
    Gloo,
    /// A message-passing library.
    Mpi,
}

impl LevelName {
    /// The level of this name.
    pub fn from_name(name: &str) -> Option<LevelName> {
        [LevelName::C10d, LevelName::Nccl, LevelName::Gloo, LevelName::Mpi]
            .into_iter()
            .find(|level| level.name() == name)
    }

    /// The name, which is the library's in the trace.
    pub fn name(self) -> &'static str {
        match self {
            LevelName::C10d => "c10d",
            LevelName::Nccl => "nccl",
            LevelName::Gloo => "gloo",
            LevelName::Mpi => "mpi",
        }
    }

    /// Where it lives.
    pub fn level(self) -> Level {
        match self {
            LevelName::C10d => Level::Framework,
            LevelName::Nccl | LevelName::Mpi => Level::Library,
            LevelName::Gloo => Level::Transport,
        }
    }

    /// What its calls mean, in a scenario whose calls block or do not.
    pub fn semantics(self, blocking: bool) -> Semantics {
        let own = match self {
            LevelName::C10d => Semantics::GROUP_P2P_UNORDERED | Semantics::P2P_SIZE_EXACT,
            LevelName::Nccl => {
                Semantics::GROUP_P2P_UNORDERED
                    | Semantics::GROUP_ORDER_ACROSS_COMMS
                    | Semantics::SENDS_MAY_BUFFER
                    | Semantics::BARRIER_IS_ALL_REDUCE
                    | Semantics::P2P_SIZE_EXACT
            }
            LevelName::Gloo => Semantics::default(),
            LevelName::Mpi => Semantics::NONBLOCKING_DISTINCT | Semantics::SENDS_MAY_BUFFER,
        };
        if blocking { own | Semantics::BLOCKING } else { own }
    }
}

/// The element type of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum TypeSpec {
    /// `-`
    #[default]
    None,
    /// A basic type.
    Basic(Basic),
    /// `type:NAME:96` or `type:NAME:4xf32+2xi64`.
    Derived {
        /// Its name.
        name: String,
        /// Bytes of one element.
        size: u64,
        /// Runs of basic types, adjacent equal ones merged; empty where only the size was given.
        runs: Vec<(Basic, u64)>,
    },
}

impl TypeSpec {
    /// Bytes of one element, if it has any.
    pub fn size(&self) -> Option<u64> {
        match self {
            TypeSpec::None => None,
            TypeSpec::Basic(basic) => Some(basic.size()),
            TypeSpec::Derived { size, .. } => Some(*size),
        }
    }

    /// As a trace says it, where `derived` is the index of the stream's definition.
    pub fn dtype(&self, derived: u32) -> DType {
        match self {
            TypeSpec::None => DType::None,
            TypeSpec::Basic(basic) => DType::Basic(*basic),
            TypeSpec::Derived { .. } => DType::Derived(derived),
        }
    }
}

/// How a call ended, as far as the text says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Outcome {
    /// Nothing said: it completes when its instance does.
    #[default]
    Natural,
    /// Never completed.
    Pending,
    /// Complete on other members, not on this rank.
    Incomplete,
    /// Returned although the partner made another call.
    Done,
    /// Not in the trace: what the program would have done next.
    NeverEntered,
}

/// A call as a scenario writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallSpec {
    /// What is called.
    pub op: Op,
    /// The i-form.
    pub nonblocking: bool,
    /// Elements.
    pub count: Option<u64>,
    /// Element type.
    pub dtype: TypeSpec,
    /// Name of the group.
    pub group: String,
    /// The call site's text.
    pub site: String,
    /// Root, a global rank.
    pub root: Option<u32>,
    /// Peer, a global rank.
    pub peer: Option<u32>,
    /// Tag of a send or receive.
    pub tag: Option<i64>,
    /// Reduction; none where the operation has none.
    pub redop: RedOp,
    /// Device stream, as written.
    pub stream: String,
    /// Thread, as written; empty: the main thread.
    pub thread: String,
    /// Elements for each member.
    pub splits: Vec<u64>,
    /// Elements from each member.
    pub recv_splits: Vec<u64>,
    /// Colour of a split: not given, `none`, or a number.
    pub color: Option<Option<i64>>,
    /// Key of a split.
    pub key: Option<i64>,
    /// What the argument was.
    pub arg: String,
    /// True time of the entry, ns.
    pub t: Option<u64>,
    /// Time from entry to completion, ns.
    pub dur: Option<u64>,
    /// The level, if it is not the group's.
    pub level: Option<LevelName>,
    /// How it ended.
    pub outcome: Outcome,
    /// Recorded into a graph, not executed.
    pub captured: bool,
    /// The error that it returned.
    pub error: Option<String>,
}

impl CallSpec {
    /// What is recorded at this level: below the framework a barrier is an all-reduce of one element.
    pub fn seen_at(&self, level: LevelName) -> Seen {
        let barrier_below = self.op == Op::Barrier && level.semantics(false).contains(Semantics::BARRIER_IS_ALL_REDUCE);
        if !barrier_below {
            return Seen { op: self.op, count: self.count, dtype: self.dtype.clone(), redop: self.redop };
        }
        let dtype = if self.dtype == TypeSpec::None { TypeSpec::Basic(Basic::F32) } else { self.dtype.clone() };
        let redop = if self.redop == RedOp::None { RedOp::Predefined(Reduction::Sum) } else { self.redop };
        Seen { op: Op::AllReduce, count: self.count.or(Some(1)), dtype, redop }
    }

    /// The result code of the error: its number, or 1 where it is a name.
    pub fn error_code(&self) -> Option<i64> {
        self.error.as_deref().map(|code| code.parse().ok().filter(|&number| number != 0).unwrap_or(1))
    }
}

/// The part of a call that depends on the level at which it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What is called.
    pub op: Op,
    /// Elements.
    pub count: Option<u64>,
    /// Element type.
    pub dtype: TypeSpec,
    /// Reduction.
    pub redop: RedOp,
}

impl Seen {
    /// Bytes transferred, where they can be told.
    pub fn bytes(&self) -> Option<u64> {
        Some(self.count?.saturating_mul(self.dtype.size()?))
    }

    /// Whether two members' calls match. A derived type is compared by the bytes it transfers.
    pub fn agrees(&self, other: &Seen, vectors: bool) -> bool {
        if self.op != other.op {
            return false;
        }
        if self.op == Op::Barrier {
            return true;
        }
        // Members of a v-form pass as many elements as each has.
        let own = matches!(self.op, Op::AllGatherV | Op::ReduceScatterV | Op::GatherV | Op::ScatterV | Op::AllToAllV);
        if vectors || own {
            return self.dtype == other.dtype && self.redop == other.redop;
        }
        let derived = [self, other].into_iter().any(|seen| matches!(seen.dtype, TypeSpec::Derived { .. }));
        let shape = if derived {
            self.bytes() == other.bytes()
        } else {
            (self.count, &self.dtype) == (other.count, &other.dtype)
        };
        shape && self.redop == other.redop
    }
}

/// Milliseconds as ns. `None` if negative, not finite or absurdly large.
pub(super) fn ns(ms: f64) -> Option<u64> {
    (0.0..=MAX_MS).contains(&ms).then(|| (ms * 1e6).round() as u64)
}

/// Reads a call. The error says what is wrong; the caller knows where the text stands.
pub fn parse(text: &str) -> Result<CallSpec, String> {
    let mut words = text.split_whitespace();
    let mut need =
        |what: &str| words.next().ok_or_else(|| format!("the call lacks its {what} (op count dtype @group site …)"));
    let (op, nonblocking) = parse_op(need("op")?)?;
    let count = match need("count")? {
        "-" => None,
        digits => Some(number(digits, "count")?),
    };
    let dtype = parse_type(need("dtype")?)?;
    let group = need("group")?;
    let Some(name) = group.strip_prefix('@').filter(|name| is_word(name)) else {
        return Err(format!("'{group}' is no group: @name is expected"));
    };
    let site = need("site")?;
    if site.contains('=') || is_flag(site) || site.split('>').any(str::is_empty) {
        return Err(format!("'{site}' is no call site: frames joined by > are expected"));
    }
    let mut call = CallSpec {
        op,
        nonblocking,
        count,
        dtype,
        group: name.to_owned(),
        site: site.to_owned(),
        root: None,
        peer: None,
        tag: None,
        redop: if op.has_reduction() { RedOp::Predefined(Reduction::Sum) } else { RedOp::None },
        stream: String::new(),
        thread: String::new(),
        splits: Vec::new(),
        recv_splits: Vec::new(),
        color: None,
        key: None,
        arg: String::new(),
        t: None,
        dur: None,
        level: None,
        outcome: Outcome::Natural,
        captured: false,
        error: None,
    };
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        let key = word.split_once('=').map_or(word, |(key, _)| key);
        if seen.contains(&key) {
            return Err(format!("'{key}' is given twice"));
        }
        seen.push(key);
        match word.split_once('=') {
            Some((key, value)) => set_key(&mut call, key, value)?,
            None => set_flag(&mut call, word)?,
        }
    }
    if op.kind() == OpKind::PointToPoint && call.peer.is_none() {
        return Err(format!("a {op} needs peer="));
    }
    let has_vectors = !call.splits.is_empty() || !call.recv_splits.is_empty();
    if has_vectors && !matches!(op, Op::AllToAll | Op::AllToAllV) {
        return Err(format!("splits belong to all_to_all, not to {op}"));
    }
    if call.count.is_none() && !call.splits.is_empty() {
        call.count = Some(call.splits.iter().fold(0, |sum, part| u64::saturating_add(sum, *part)));
    }
    Ok(call)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn is_flag(word: &str) -> bool {
    matches!(word, "pending" | "incomplete" | "done" | "captured" | "never_entered")
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let parsed = if digits.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
    parsed.ok_or_else(|| format!("{what}: '{text}' is no whole number in range"))
}

fn parse_op(word: &str) -> Result<(Op, bool), String> {
    let kind = |op: &Op| op.kind();
    let callable =
        |op: &Op| matches!(kind(op), OpKind::Collective | OpKind::PointToPoint | OpKind::CommCreate | OpKind::CommFree);
    if let Some(op) = Op::from_name(word).filter(callable) {
        return Ok((op, false));
    }
    let blocking = word.strip_prefix('i').and_then(Op::from_name);
    match blocking.filter(|op| matches!(kind(op), OpKind::Collective | OpKind::PointToPoint)) {
        Some(op) => Ok((op, true)),
        None => Err(format!("'{word}' is no operation that a scenario can make")),
    }
}

fn parse_type(word: &str) -> Result<TypeSpec, String> {
    let error = || format!("'{word}' is no element type: -, a basic type, type:NAME:BYTES or type:NAME:4xf32+2xi64");
    if word == "-" {
        return Ok(TypeSpec::None);
    }
    let Some(rest) = word.strip_prefix("type:") else {
        return Basic::from_name(word).map(TypeSpec::Basic).ok_or_else(error);
    };
    let (name, shape) = rest.split_once(':').ok_or_else(error)?;
    if name.is_empty() || shape.is_empty() {
        return Err(error());
    }
    if shape.bytes().all(|byte| byte.is_ascii_digit()) {
        let size = shape.parse().map_err(|_| error())?;
        return Ok(TypeSpec::Derived { name: name.to_owned(), size, runs: Vec::new() });
    }
    let mut runs: Vec<(Basic, u64)> = Vec::new();
    let mut size = 0_u64;
    for run in shape.split('+') {
        let (times, basic) = run.split_once('x').ok_or_else(error)?;
        let times: u64 = number(times, "repetitions")?;
        let basic = Basic::from_name(basic).ok_or_else(error)?;
        size = times.checked_mul(basic.size()).and_then(|bytes| bytes.checked_add(size)).ok_or_else(error)?;
        match runs.last_mut() {
            Some((last, repeated)) if *last == basic => *repeated = repeated.saturating_add(times),
            _ => runs.push((basic, times)),
        }
    }
    Ok(TypeSpec::Derived { name: name.to_owned(), size, runs })
}

fn set_flag(call: &mut CallSpec, word: &str) -> Result<(), String> {
    let outcome = match word {
        "captured" => {
            call.captured = true;
            return Ok(());
        }
        "pending" => Outcome::Pending,
        "incomplete" => Outcome::Incomplete,
        "done" => Outcome::Done,
        "never_entered" => Outcome::NeverEntered,
        _ => return Err(format!("'{word}' is no flag")),
    };
    if call.outcome != Outcome::Natural {
        return Err(format!("flag '{word}' contradicts another one"));
    }
    call.outcome = outcome;
    Ok(())
}

fn set_key(call: &mut CallSpec, key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("'{key}=' has no value"));
    }
    match key {
        "root" => call.root = Some(number(value, key)?),
        "peer" => call.peer = Some(number(value, key)?),
        "tag" => call.tag = Some(number(value, key)?),
        "key" => call.key = Some(number(value, key)?),
        "color" if value == "none" => call.color = Some(None),
        "color" => call.color = Some(Some(number(value, key)?)),
        "redop" => call.redop = parse_redop(value)?,
        "stream" => value.clone_into(&mut call.stream),
        "thread" => value.clone_into(&mut call.thread),
        "arg" => value.clone_into(&mut call.arg),
        "splits" => call.splits = parse_list(value, key)?,
        "recv_splits" => call.recv_splits = parse_list(value, key)?,
        "t" => call.t = Some(parse_ms(value, key)?),
        "dur" => call.dur = Some(parse_ms(value, key)?),
        "level" => {
            let level = LevelName::from_name(value);
            call.level = Some(level.ok_or_else(|| format!("level: '{value}' is none of c10d, nccl, gloo, mpi"))?);
        }
        "error" => call.error = Some(value.to_owned()),
        _ => return Err(format!("'{key}=' is no key of a call")),
    }
    Ok(())
}

fn parse_ms(value: &str, key: &str) -> Result<u64, String> {
    value.parse().ok().and_then(ns).ok_or_else(|| format!("{key}: '{value}' is no time in ms"))
}

/// A name, or a handle's number: those from 5 on are made at run time.
fn parse_redop(value: &str) -> Result<RedOp, String> {
    if let Ok(handle) = value.parse::<u64>() {
        return Ok(if handle >= 5 { RedOp::Dynamic } else { RedOp::Raw(handle) });
    }
    Reduction::from_name(value).map(RedOp::Predefined).ok_or_else(|| format!("redop: '{value}' is no reduction"))
}

fn parse_list(value: &str, key: &str) -> Result<Vec<u64>, String> {
    let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| format!("{key}: '{value}' is no list such as [3,1,0,2]"))?;
    inner.split(',').map(|part| number(part, key)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{Outcome, TypeSpec, parse};
    use crate::datatype::{Basic, RedOp, Reduction};
    use crate::op::Op;

    #[test]
    fn a_call_with_everything() {
        let call = parse(
            "iall_to_all 6 type:cell:4xf32+2xf32+2xi64 @ep_0 a.py:3:f>b::c tag=-1 splits=[3,1,0,2] recv_splits=[3,2,1,0] \
             stream=7 thread=bg color=none key=-2 arg=w.grad t=12.5 dur=3 level=mpi error=15 captured pending",
        )
        .expect("valid");
        assert_eq!((call.op, call.nonblocking, call.count), (Op::AllToAll, true, Some(6)));
        let runs = vec![(Basic::F32, 6), (Basic::I64, 2)];
        assert_eq!(call.dtype, TypeSpec::Derived { name: "cell".to_owned(), size: 40, runs });
        assert_eq!((call.t, call.dur), (Some(12_500_000), Some(3_000_000)));
        assert_eq!((call.color, call.key, call.tag), (Some(None), Some(-2), Some(-1)));
        assert_eq!((call.splits.len(), call.recv_splits.len()), (4, 4));
        assert_eq!((call.outcome, call.captured, call.error_code()), (Outcome::Pending, true, Some(15)));
        assert_eq!(call.seen_at(super::LevelName::Mpi).bytes(), Some(240));
    }

    #[test]
    fn reductions_have_defaults_and_handles() {
        let redop = |text: &str| parse(text).expect("valid").redop;
        assert_eq!(redop("all_reduce 1 f32 @w s"), RedOp::Predefined(Reduction::Sum));
        assert_eq!(redop("all_reduce 1 f32 @w s redop=max"), RedOp::Predefined(Reduction::Max));
        assert_eq!(redop("all_reduce 1 f32 @w s redop=7"), RedOp::Dynamic);
        assert_eq!(redop("broadcast 1 f32 @w s root=0"), RedOp::None);
        assert_eq!(redop("barrier - - @w s"), RedOp::None);
    }

    #[test]
    fn wrong_calls_say_what_is_wrong() {
        for (text, part) in [
            ("", "op"),
            ("all_reduce 1 f32 @w", "site"),
            ("all_reduced 1 f32 @w s", "all_reduced"),
            ("group_start - - @w s", "group_start"),
            ("all_reduce x f32 @w s", "count"),
            ("all_reduce +1 f32 @w s", "count"),
            ("all_reduce 99999999999999999999 f32 @w s", "count"),
            ("all_reduce 1 f31 @w s", "f31"),
            ("all_reduce 1 type:a:9x @w s", "type"),
            ("all_reduce 1 type:a:9223372036854775807xf64 @w s", "type"),
            ("all_reduce 1 f32 w s", "group"),
            ("all_reduce 1 f32 @w pending", "call site"),
            ("all_reduce 1 f32 @w a>>b", "call site"),
            ("all_reduce 1 f32 @w s root=x", "root"),
            ("all_reduce 1 f32 @w s root=1 root=1", "twice"),
            ("all_reduce 1 f32 @w s pending pending", "twice"),
            ("all_reduce 1 f32 @w s colour=1", "colour"),
            ("all_reduce 1 f32 @w s redop=", "value"),
            ("all_reduce 1 f32 @w s pending done", "contradicts"),
            ("all_reduce 1 f32 @w s stuck", "stuck"),
            ("all_reduce 1 f32 @w s t=nan", "time"),
            ("all_reduce 1 f32 @w s t=1e300", "time"),
            ("all_reduce 1 f32 @w s splits=[1]", "splits"),
            ("all_to_all 1 f32 @w s splits=[1,x]", "splits"),
            ("all_to_all 1 f32 @w s splits=1", "splits"),
            ("send 1 f32 @w s", "peer"),
            ("all_reduce 1 f32 @w s level=rccl", "level"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn never_panics(text in "[a-z_]{0,12} [0-9-]{0,22} [a-z:0-9x+]{0,20} @?[a-z]{0,3} [a-z>:]{0,8} [a-z_]{0,12}=?[\\[0-9,.\\]]{0,24}") {
            _ = parse(&text);
        }
    }
}
