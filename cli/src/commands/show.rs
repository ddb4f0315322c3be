//! `rankdiff show`: the calls of a trace, one line each, or a summary.

use std::io::{BufWriter, Write};

use rankdiff_analyzer::render::escape;
use rankdiff_trace::{Call, CallFlags, CommIdentity, CommRef, DType, Frame, FrameKind, ProcessTrace, SiteRef};
use rankdiff_tracer::frameworks::is_framework;
use serde_json::{Value, json};

use crate::args::{Show, ShowFormat};
use crate::commands::info;
use crate::failure::{Failure, USAGE};
use crate::load::{Decode, load};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &Show, output: &Output) -> Result<u8, Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.info {
        info::run(args, &mut out, output)?;
        out.flush()?;
        return Ok(0);
    }
    if args.format == ShowFormat::Json {
        return Err(Failure::message(USAGE, "calls are printed as json-lines, one object each; json is for --info"));
    }
    let loaded = load(&args.paths, Decode::All, output)?;
    for trace in &loaded.traces {
        calls(trace, args, &mut out)?;
    }
    out.flush()?;
    for problem in &loaded.problems {
        output.warn(escape(problem));
    }
    Ok(0)
}

fn rank_of(trace: &ProcessTrace, call: &Call) -> Option<u32> {
    call.rank
        .or_else(|| trace.comm(call.comm).and_then(|comm| comm.owner))
        .or_else(|| trace.ranks.last().map(|def| def.rank))
}

fn calls(trace: &ProcessTrace, args: &Show, out: &mut dyn Write) -> Result<(), Failure> {
    let wanted: Vec<&Call> = trace
        .calls
        .iter()
        .filter(|call| {
            args.rank.as_ref().is_none_or(|ranks| rank_of(trace, call).is_some_and(|rank| ranks.contains(rank)))
        })
        .filter(|call| args.comm.as_ref().is_none_or(|name| comm_name(trace, call.comm).contains(name.as_str())))
        .collect();
    let skip = args.last.map_or(0, |last| wanted.len().saturating_sub(last));
    for call in wanted.into_iter().skip(skip) {
        match args.format {
            ShowFormat::Text => writeln!(out, "{}", line(trace, call))?,
            ShowFormat::JsonLines | ShowFormat::Json => writeln!(out, "{}", object(trace, call))?,
        }
    }
    Ok(())
}

fn comm_name(trace: &ProcessTrace, comm: CommRef) -> String {
    match trace.comm(comm) {
        Some(def) if !def.name.is_empty() => def.name.clone(),
        Some(def) if def.identity.is_known() => def.identity.to_string(),
        Some(def) => format!("comm {}", def.id.0),
        None => "-".to_owned(),
    }
}

/// All digits of an identity, as exports have it; `None` if it is not known.
pub(crate) fn identity(identity: CommIdentity) -> Option<String> {
    identity.is_known().then(|| format!("{:032x}", identity.0))
}

fn dtype_name(trace: &ProcessTrace, dtype: DType) -> Option<String> {
    match dtype {
        DType::None => None,
        DType::Basic(basic) => Some(basic.name().to_owned()),
        DType::Raw(raw) => Some(format!("type {raw:#x}")),
        DType::Derived(id) => Some(
            trace
                .derived(id)
                .map(|def| def.name.clone())
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| format!("type#{id}")),
        ),
    }
}

fn op_name(call: &Call) -> String {
    let form = if call.flags.contains(CallFlags::NONBLOCKING) { "i" } else { "" };
    format!("{form}{}", call.op.name())
}

/// The call site, outermost first: functions joined by `>`, and the line that says most: in Python the innermost of the
/// user's own code, else the innermost that is known.
fn site_text(trace: &ProcessTrace, site: SiteRef) -> String {
    let Some(def) = trace.site(site) else { return String::new() };
    let name = |frame: &Frame| {
        if frame.function.is_empty() && !frame.module.is_empty() {
            let module = frame.module.rsplit('/').next().unwrap_or_default();
            return format!("{module}+{:#x}", frame.offset);
        }
        frame.function.clone()
    };
    let has_python = def.frames.iter().any(|frame| frame.kind == FrameKind::Python);
    // Nameless code below Python is how the interpreter calls; it says nothing beside the functions.
    let shown = |frame: &&Frame| !has_python || frame.kind != FrameKind::Native || !frame.function.is_empty();
    let functions: Vec<String> = def.frames.iter().filter(shown).map(name).filter(|name| !name.is_empty()).collect();
    let line = line_of(&def.frames);
    let place = line.map_or_else(String::new, |frame| format!(" {}:{}", frame.file, frame.line));
    format!("{}{place}", functions.join(">"))
}

/// The frame whose line stands for the whole stack.
fn line_of(frames: &[Frame]) -> Option<&Frame> {
    let known = || frames.iter().rev().filter(|frame| frame.line > 0);
    let python = || known().filter(|frame| frame.kind == FrameKind::Python);
    python().find(|frame| !is_framework(&frame.file)).or_else(|| python().next()).or_else(|| known().next())
}

/// One call as strace would print it.
fn line(trace: &ProcessTrace, call: &Call) -> String {
    let rank = rank_of(trace, call).map_or_else(|| format!("pid {}", trace.key.pid), |rank| format!("rank {rank}"));
    let seq = call.seq.map_or_else(String::new, |seq| format!("#{seq}"));
    let mut arguments = Vec::new();
    if let Some(count) = call.count {
        arguments.push(count.to_string());
    }
    arguments.extend(dtype_name(trace, call.dtype));
    if call.redop != rankdiff_trace::RedOp::None {
        arguments.push(call.redop.to_string());
    }
    for (name, value) in [("root", call.root), ("peer", call.peer)] {
        arguments.extend(value.map(|value| format!("{name}={value}")));
    }
    let sides = [("sends", &call.sends), ("recvs", &call.recvs)];
    arguments.extend(
        sides.iter().filter(|(_, vector)| !vector.is_empty()).map(|(name, vector)| format!("{name}={vector:?}")),
    );
    let end = match (call.exit, call.result) {
        (Some(exit), Some(result)) => {
            format!(" = {result} <{:.3} ms>", exit.saturating_sub(call.enter) as f64 / 1e6)
        }
        _ => String::new(),
    };
    let site = site_text(trace, call.site);
    let place = if site.is_empty() { String::new() } else { format!(" at {site}") };
    let text = format!(
        "{:>14.6} {rank} [{}] {}{seq} {}({}){end}{place}",
        call.enter as f64 / 1e9,
        call.thread,
        comm_name(trace, call.comm),
        op_name(call),
        arguments.join(" "),
    );
    escape(&text).into_owned()
}

/// One call as a JSON object; absent values are left out.
fn object(trace: &ProcessTrace, call: &Call) -> Value {
    let comm = trace.comm(call.comm);
    let mut object = json!({
        "rank": rank_of(trace, call),
        "pid": trace.key.pid,
        "thread": call.thread,
        "thread_seq": call.thread_seq,
        "op": op_name(call),
        "comm": comm_name(trace, call.comm),
        "comm_id": comm.and_then(|def| identity(def.identity)),
        "comm_size": comm.and_then(|def| def.size),
        "library": comm.map(|def| def.library.clone()),
        "seq": call.seq,
        "count": call.count,
        "dtype": dtype_name(trace, call.dtype),
        "redop": (call.redop != rankdiff_trace::RedOp::None).then(|| call.redop.to_string()),
        "root": call.root,
        "peer": call.peer,
        "tag": call.tag,
        "sends": (!call.sends.is_empty()).then_some(&call.sends),
        "recvs": (!call.recvs.is_empty()).then_some(&call.recvs),
        "stream": (call.stream != 0).then(|| format!("{:#x}", call.stream)),
        "group": (call.group != 0).then_some(call.group),
        "nested": call.flags.contains(CallFlags::NESTED).then_some(true),
        "enter_ns": call.enter,
        "exit_ns": call.exit,
        "result": call.result,
        "site": site_text(trace, call.site),
    });
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::{Frame, FrameKind};

    use super::line_of;

    fn frame(kind: FrameKind, file: &str, line: u32) -> Frame {
        Frame { kind, file: file.to_owned(), line, ..Frame::default() }
    }

    #[test]
    fn the_line_shown_is_the_users() {
        let wrapper = frame(FrameKind::Python, "/x/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83);
        let own = frame(FrameKind::Python, "/job/train.py", 12);
        let native = frame(FrameKind::Native, "allreduce.cpp", 7);
        let line = |frames: &[Frame]| line_of(frames).map(|frame| frame.line);
        assert_eq!(line(&[own.clone(), wrapper.clone(), native.clone()]), Some(12));
        assert_eq!(line(&[wrapper, native.clone()]), Some(83), "the innermost of Python where none is the user's");
        assert_eq!(line(&[frame(FrameKind::Python, "/job/train.py", 0), native]), Some(7));
        assert_eq!(line(&[]), None);
    }
}
