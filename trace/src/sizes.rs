//! The most bytes that a record takes in a payload, before it is encoded: what keeps blocks below their limits.

use crate::call::{Call, SiteDef};
use crate::comm::CommDef;
use crate::datatype::TypeDef;
use crate::evidence::{Attribute, LogLine, ProcessState, ThreadState};
use crate::limits;
use crate::payload::Decoded;
use crate::stream::Record;

/// Bytes of the numbers of any record: fewer than 28 varints of at most ten bytes.
const NUMBERS: usize = 280;

/// A string in the table and its length.
fn string(text: &str) -> usize {
    text.len().min(limits::MAX_STRING) + 5
}

/// A record without strings or lists.
pub(crate) const PLAIN: usize = NUMBERS;

/// Any record: what it is called in messages, and its size.
pub(crate) fn record(record: &Record) -> (&'static str, usize) {
    match record {
        Record::Rank(_) => ("rank definition", PLAIN),
        Record::Comm(def) => ("communicator definition", comm(def)),
        Record::Type(def) => ("type definition", derived(def)),
        Record::Site(def) => ("call site", site(def)),
        Record::Label(_, text) => ("label", label(text)),
        Record::Call(made) => ("call", call(made)),
        Record::Return(_) => ("return", PLAIN),
        Record::Clock(_) => ("clock snapshot", PLAIN),
        Record::Gap(_) => ("gap", PLAIN),
        Record::State(life) => ("process state", state(life)),
        Record::Thread(look) => ("thread state", thread(look)),
        Record::Log(line) => ("log line", log(line)),
        Record::Attribute(pair) => ("attribute", attribute(pair)),
        Record::Step(_) => ("step mark", PLAIN),
    }
}

/// A call. Its vectors are what may be large.
#[inline]
pub(crate) fn call(call: &Call) -> usize {
    NUMBERS + 10 * (call.sends.len() + call.recvs.len())
}

pub(crate) fn comm(def: &CommDef) -> usize {
    NUMBERS + string(&def.name) + string(&def.desc) + string(&def.library) + members(def)
}

/// A list over its limit is as large as no block allows, so that the record is refused.
fn members(def: &CommDef) -> usize {
    if def.members.len() > limits::MAX_MEMBERS { limits::MAX_RAW } else { 5 * def.members.len() }
}

pub(crate) fn derived(def: &TypeDef) -> usize {
    NUMBERS + string(&def.name) + 11 * def.runs.len().min(limits::MAX_RUNS)
}

pub(crate) fn site(def: &SiteDef) -> usize {
    let skipped = def.frames.len().saturating_sub(limits::MAX_FRAMES);
    let frames = def.frames.iter().skip(skipped);
    NUMBERS
        + frames
            .map(|frame| {
                60 + string(&frame.function) + string(&frame.file) + string(&frame.module) + string(&frame.build_id)
            })
            .sum::<usize>()
}

pub(crate) fn label(text: &str) -> usize {
    NUMBERS + string(text)
}

fn state(state: &ProcessState) -> usize {
    match &state.life {
        crate::evidence::Life::Signaled { by: crate::evidence::EndedBy::Process(_, name), .. } => {
            NUMBERS + string(name)
        }
        _ => NUMBERS,
    }
}

fn thread(state: &ThreadState) -> usize {
    let strings = [
        &state.name,
        &state.state,
        &state.syscall,
        &state.device,
        &state.result,
        &state.wchan,
        &state.python,
        &state.native,
        &state.io,
    ];
    NUMBERS + strings.into_iter().map(|text| string(text)).sum::<usize>()
}

fn log(line: &LogLine) -> usize {
    NUMBERS + string(&line.text)
}

pub(crate) fn attribute(attribute: &Attribute) -> usize {
    NUMBERS + string(&attribute.key) + string(&attribute.value)
}

/// A record of numbers in memory.
const SMALL: usize = 64;

/// What the records of a decoded block take in memory, about; calls and returns, of which the header tells, not counted.
pub(crate) fn held(decoded: &Decoded) -> usize {
    match decoded {
        Decoded::Ranks(defs) => defs.len() * SMALL,
        Decoded::Comms(defs) => defs.iter().map(comm).sum(),
        Decoded::Types(defs) => defs.iter().map(derived).sum(),
        Decoded::Sites(defs) => defs.iter().map(site).sum(),
        Decoded::Labels(defs) => defs.iter().map(|(_, text)| label(text)).sum(),
        Decoded::States(states) => states.iter().map(state).sum(),
        Decoded::Threads(states) => states.iter().map(thread).sum(),
        Decoded::Logs(lines) => lines.iter().map(log).sum(),
        Decoded::Attributes(pairs) => pairs.iter().map(attribute).sum(),
        Decoded::Clocks(clocks) => clocks.len() * SMALL,
        Decoded::Gaps(gaps) => gaps.len() * SMALL,
        Decoded::Steps(steps) => steps.len() * SMALL,
        Decoded::Calls(_)
        | Decoded::Returns(_)
        | Decoded::Frontier(_)
        | Decoded::TailRows(_)
        | Decoded::End(_)
        | Decoded::Expired
        | Decoded::Unknown => 0,
    }
}
