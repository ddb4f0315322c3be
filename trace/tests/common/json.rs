//! The content of a trace as JSON lines: what the second reader prints, and what a sample of the format is compared with.
//!
//! Fields are named here one by one, so that a field which a later version adds changes no line of an older trace.

use rankdiff_trace::{Call, Completion, DType, EndedBy, Life, ProcessState, ProcessTrace, RedOp};
use serde_json::{Value, json};

/// Every record of a trace.
pub(crate) fn lines(trace: &ProcessTrace) -> Vec<Value> {
    let mut lines = Vec::new();
    lines.extend(trace.ranks.iter().map(|def| {
        json!({"record": "rank", "rank": def.rank, "world": def.world, "local_rank": def.local_rank,
               "attempt": def.attempt, "source": def.source as u8})
    }));
    lines.extend(trace.comms.iter().map(|def| {
        json!({"record": "comm", "id": def.id.0, "identity": format!("{:032x}", def.identity.0),
               "provenance": def.provenance as u8, "name": def.name, "desc": def.desc, "library": def.library,
               "level": def.level as u8, "semantics": def.semantics.0, "size": def.size, "my_rank": def.my_rank,
               "members": def.members, "owner": def.owner, "parent": def.parent.0, "ordinal": def.ordinal,
               "color": def.color, "key": def.key, "inter": def.inter})
    }));
    lines.extend(trace.types.iter().map(|def| {
        let runs: Vec<Value> = def.runs.iter().map(|&(basic, times)| json!([basic.code(), times])).collect();
        json!({"record": "type", "id": def.id, "name": def.name, "size": def.size, "runs": runs})
    }));
    lines.extend(trace.sites.iter().map(|def| {
        let frame = |frame: &rankdiff_trace::Frame| {
            json!({"kind": frame.kind as u8, "function": frame.function, "file": frame.file, "line": frame.line,
                   "module": frame.module, "build_id": frame.build_id, "offset": frame.offset})
        };
        json!({"record": "site", "id": def.id.0, "frames": def.frames.iter().map(frame).collect::<Vec<_>>()})
    }));
    lines.extend(trace.labels.iter().map(|(id, text)| json!({"record": "label", "id": id, "text": text})));
    lines.extend(trace.calls.iter().map(call));
    lines.extend(trace.clocks.iter().map(|clock| {
        json!({"record": "clock", "monotonic": clock.monotonic, "boottime": clock.boottime,
               "realtime": clock.realtime})
    }));
    lines.extend(trace.gaps.iter().map(|gap| {
        json!({"record": "gap", "cause": gap.cause as u8, "thread": gap.thread,
               "first_thread_seq": gap.first_thread_seq, "events": gap.events, "after": gap.after,
               "before": gap.before})
    }));
    lines.extend(trace.states.iter().map(state));
    lines.extend(trace.threads.iter().map(|thread| {
        json!({"record": "thread", "at": thread.at, "tid": thread.tid, "name": thread.name, "state": thread.state,
               "syscall": thread.syscall, "device": thread.device, "request": thread.request,
               "result": thread.result, "each_ms": thread.each_ms, "times": thread.times,
               "since_ms": thread.since_ms, "cpu_ms": thread.cpu_ms, "wchan": thread.wchan,
               "python": thread.python, "native": thread.native, "io": thread.io, "children": thread.children})
    }));
    lines.extend(trace.logs.iter().map(|line| json!({"record": "log", "at": line.at, "text": line.text})));
    lines.extend(trace.attributes.iter().map(|attribute| {
        json!({"record": "attribute", "rank": attribute.rank, "key": attribute.key, "value": attribute.value})
    }));
    lines.extend(trace.steps.iter().map(|step| {
        json!({"record": "step", "at": step.at, "thread": step.thread, "first_thread_seq": step.first_thread_seq,
               "step": step.step})
    }));
    lines
}

fn completion(completion: Completion) -> Value {
    match completion {
        Completion::Unknown => Value::Null,
        Completion::At(time) => json!(time),
        Completion::Pending => json!("pending"),
    }
}

fn call(call: &Call) -> Value {
    let dtype = match call.dtype {
        DType::None => Value::Null,
        DType::Basic(basic) => json!(["basic", basic.code()]),
        DType::Derived(id) => json!(["derived", id]),
        DType::Raw(raw) => json!(["raw", raw]),
    };
    let redop = match call.redop {
        RedOp::None => Value::Null,
        RedOp::Predefined(reduction) => json!(["predefined", reduction.code()]),
        RedOp::Dynamic => json!(["dynamic"]),
        RedOp::Raw(raw) => json!(["raw", raw]),
    };
    json!({"record": "call", "op": call.op.name(), "code": call.op.code(), "comm": call.comm.0, "made": call.made.0,
           "flags": call.flags.0, "count": call.count, "dtype": dtype, "redop": redop, "root": call.root,
           "peer": call.peer, "tag": call.tag, "sends": call.sends, "recvs": call.recvs, "thread": call.thread,
           "thread_seq": call.thread_seq, "stream": call.stream, "group": call.group, "seq": call.seq,
           "enter": call.enter, "exit": call.exit, "completion": completion(call.completion),
           "result": call.result, "site": call.site.0, "label": call.label, "rank": call.rank})
}

fn state(state: &ProcessState) -> Value {
    let mut line = json!({"record": "state", "at": state.at});
    let more = match &state.life {
        Life::Exited(code) => json!({"life": 1, "code": code}),
        Life::Signaled { signal, by } => {
            let (by, pid, name) = match by {
                EndedBy::Unknown => (0, 0, ""),
                EndedBy::OomKiller => (1, 0, ""),
                EndedBy::Watchdog => (2, 0, ""),
                EndedBy::Launcher => (3, 0, ""),
                EndedBy::User => (4, 0, ""),
                EndedBy::Itself => (5, 0, ""),
                EndedBy::Process(pid, name) => (6, *pid, name.as_str()),
            };
            json!({"life": 2, "signal": signal, "by": by, "pid": pid, "name": name})
        }
        Life::Waiting => json!({"life": 3}),
        Life::Running => json!({"life": 4}),
        Life::Blocked => json!({"life": 5}),
        Life::Stopped => json!({"life": 6}),
        Life::Alive => json!({"life": 7}),
    };
    let (Value::Object(line_), Value::Object(more)) = (&mut line, more) else { panic!("both are objects") };
    line_.extend(more);
    line
}
