//! Words for findings: calls as reports show them, counts, durations.

use rankdiff_trace::{Call, CallFlags, Op, RankSet, RedOp, Semantics};

use crate::align::Alignment;
use crate::comms::Comm;
use crate::finding::{CallText, Side, Whom};
use crate::index::{Entry, Progress, Track};
use crate::objects;

/// 'n thing' with the plural where it belongs, and digits in groups of three.
pub(crate) fn counted(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A number with a comma after every third digit.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Sets of ranks in sentences.
pub(crate) trait Who {
    /// 'rank 6', 'ranks 0-5,7'; '61 ranks (0,4,8,…)' where the list would be the longer part of the sentence.
    fn who(&self) -> String;
}

/// Longest list of ranks in a sentence.
const LONGEST: usize = 40;

impl Who for RankSet {
    fn who(&self) -> String {
        let all = self.to_string();
        if all.len() <= LONGEST {
            return self.phrase();
        }
        let few: Vec<&str> = all.split(',').take(3).collect();
        format!("{} ranks ({},…)", self.len(), few.join(","))
    }
}

/// Milliseconds as seconds with the digits that matter.
pub(crate) fn seconds(ms: u64) -> String {
    if ms < 1000 {
        return format!("{ms} ms");
    }
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A duration in the units people use for its size.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A small number as a word, as sentences have it.
pub(crate) fn number(n: usize) -> String {
    const WORDS: [&str; 13] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    WORDS.get(n).map_or_else(|| n.to_string(), |word| (*word).to_owned())
}

/// An ordinal number: 21st.
pub(crate) fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// The article before a number in digits.
pub(crate) fn article(n: u64) -> &'static str {
    let text = n.to_string();
    if text.starts_with('8')
        || (matches!(n, 11 | 18) || text.len() % 3 == 2 && (text.starts_with("11") || text.starts_with("18")))
    {
        "an"
    } else {
        "a"
    }
}

/// The operation's name; with a leading `i` where the library tells the forms apart.
pub(crate) fn op_name(call: &Call, semantics: Semantics) -> String {
    let told_apart = semantics.contains(Semantics::NONBLOCKING_DISTINCT);
    if told_apart && call.flags.contains(CallFlags::NONBLOCKING) {
        format!("i{}", call.op.name())
    } else {
        call.op.name().to_owned()
    }
}

/// A call in a few words: 'ALL_REDUCE of 4096 f32', 'BARRIER'.
pub(crate) fn call_phrase(call: &CallText, may_be_barrier: bool) -> String {
    if may_be_barrier && call.op == "all_reduce" && call.count == Some(1) {
        return "all_reduce of 1 element (a barrier or a scalar reduction)".to_owned();
    }
    if let Some(object) = call.object {
        return format!("{} ({})", object.to_uppercase(), objects::part(call.dtype.as_deref()));
    }
    let op = call.op.to_uppercase();
    match (call.count, &call.dtype) {
        _ if call.op.ends_with("barrier") || call.op.starts_with("comm_") => op,
        (Some(count), Some(dtype)) => format!("{op} of {count} {dtype}"),
        (Some(count), None) => format!("{op} of {count}"),
        _ => op,
    }
}

/// A call as a report shows it. `stream` is where it was recorded.
pub(crate) fn call_text(alignment: &Alignment<'_>, comm: Option<&Comm<'_>>, stream: usize, call: &Call) -> CallText {
    let site = alignment.index.sites.get(stream).and_then(|sites| sites.get(&call.site)).copied().unwrap_or(0);
    let site = alignment.tables.site_of(site);
    let whom = |local: u32| match comm.map_or(Some(local), |comm| comm.global(local)) {
        Some(rank) => Whom::Rank(rank),
        None => Whom::InGroup(local),
    };
    let label = alignment
        .attempt
        .streams
        .get(stream)
        .and_then(|stream| stream.trace.labels.iter().find(|(id, _)| *id == call.label && call.label != 0))
        .map(|(_, text)| text.as_str());
    let mut text = CallText {
        op: op_name(call, comm.map(|comm| comm.semantics).unwrap_or_default()),
        count: call.count,
        dtype: dtype_text(alignment, stream, call),
        redop: (call.redop != RedOp::None).then(|| call.redop.to_string()),
        root: call.root.map(whom),
        peer: call.peer.map(whom),
        tag: call.tag,
        site: site.map(|site| site.text.clone()).unwrap_or_default(),
        frames: site.map(|site| site.frames.clone()).unwrap_or_default(),
        object: site.and_then(|site| objects::function_of(&site.frames)),
        seq: call.seq,
        pending: false,
    };
    if let Some(label) = label {
        text.site = if text.site.is_empty() { label.to_owned() } else { format!("{} [{label}]", text.site) };
    }
    text
}

fn dtype_text(alignment: &Alignment<'_>, stream: usize, call: &Call) -> Option<String> {
    use rankdiff_trace::DType;
    match call.dtype {
        DType::None => None,
        DType::Basic(basic) => Some(basic.name().to_owned()),
        DType::Raw(raw) => Some(format!("type {raw:#x}")),
        DType::Derived(id) => {
            let def = alignment.attempt.streams.get(stream)?.trace.derived(id)?;
            let runs: Vec<String> = def.runs.iter().take(4).map(|(basic, times)| format!("{times}x{basic}")).collect();
            let shape = if runs.is_empty() {
                def.size.map(|bytes| format!("{bytes} bytes")).unwrap_or_default()
            } else {
                runs.join("+")
            };
            Some(if def.name.is_empty() { shape } else { format!("{} ({shape})", def.name) })
        }
    }
}

/// The call of an entry.
pub(crate) fn entry_text(alignment: &Alignment<'_>, comm: &Comm<'_>, track: &Track<'_>, entry: &Entry<'_>) -> CallText {
    let mut text = call_text(alignment, Some(comm), track.stream, entry.call);
    text.seq = Some(entry.pos);
    text.pending = entry.progress == Progress::Pending;
    text
}

/// A side without a call.
pub(crate) fn absent_side(ranks: RankSet, state: String) -> Side {
    Side { ranks, call: None, state }
}

/// Whether a framework's barrier may stand behind this call.
pub(crate) fn may_be_barrier(comm: &Comm<'_>, op: Op) -> bool {
    op == Op::AllReduce && comm.semantics.contains(Semantics::BARRIER_IS_ALL_REDUCE)
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::RankSet;

    use super::{Who as _, counted, duration, number, ordinal, seconds};

    #[test]
    fn numbers_read_well() {
        assert_eq!(seconds(10_240), "10.24 s");
        assert_eq!(seconds(900), "900 ms");
        assert_eq!(seconds(20_000), "20 s");
        assert_eq!(duration(590_000), "9 min 50 s");
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(number(7), "seven");
        assert_eq!((0..3).collect::<RankSet>().who(), "ranks 0-2");
        assert_eq!((0..40).map(|rank| rank * 2).collect::<RankSet>().who(), "40 ranks (0,2,4,…)");
        assert_eq!(number(20), "20");
        let ordinals: Vec<String> = [1, 2, 3, 11, 12, 21, 113].map(ordinal).to_vec();
        assert_eq!(ordinals, ["1st", "2nd", "3rd", "11th", "12th", "21st", "113th"]);
    }
}
