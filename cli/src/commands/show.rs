//! `rankdiff show`: the calls of a trace, one line each, or a summary.

use std::io::{BufWriter, Write};

use rankdiff_analyzer::render::escape;
use rankdiff_trace::{Call, CallFlags, CommIdentity, CommRef, DType, Frame, ProcessTrace, SiteRef};
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

/// The call site, outermost first: functions joined by `>`, and the innermost known line.
fn site_text(trace: &ProcessTrace, site: SiteRef) -> String {
    let Some(def) = trace.site(site) else { return String::new() };
    let name = |frame: &Frame| {
        if frame.function.is_empty() && !frame.module.is_empty() {
            let module = frame.module.rsplit('/').next().unwrap_or_default();
            return format!("{module}+{:#x}", frame.offset);
        }
        frame.function.clone()
    };
    let functions: Vec<String> = def.frames.iter().map(name).filter(|name| !name.is_empty()).collect();
    let line = def.frames.iter().rev().find(|frame| frame.line > 0);
    let place = line.map_or_else(String::new, |frame| format!(" {}:{}", frame.file, frame.line));
    format!("{}{place}", functions.join(">"))
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
