//! Lines of everything beside calls: clocks, gaps, states, log lines, attributes, step marks.

use std::borrow::Cow;

use rankdiff_trace::{
    Attribute, ClockSnapshot, EndedBy, Gap, Life, LogLine, ProcessState, Record, StepMark, ThreadState,
};
use serde::{Deserialize, Serialize};

use super::call::is_default;
use super::{Clock, Refused, names};

/// The clocks of one moment.
pub(super) type ClockLine = Clock;

impl From<&ClockSnapshot> for Clock {
    fn from(clock: &ClockSnapshot) -> Clock {
        Clock::from(*clock)
    }
}

impl Clock {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Clock(self.into()))
    }
}

/// Missing calls.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GapLine<'a> {
    #[serde(borrow)]
    cause: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    thread: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    first_thread_seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    /// Absent: from the start.
    #[serde(default, skip_serializing_if = "is_default")]
    after_ns: u64,
    /// Absent: to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before_ns: Option<u64>,
}

impl From<&Gap> for GapLine<'_> {
    fn from(gap: &Gap) -> Self {
        GapLine {
            cause: names::cause(gap.cause),
            thread: gap.thread,
            first_thread_seq: gap.first_thread_seq,
            events: gap.events,
            after_ns: gap.after,
            before_ns: (gap.before != u64::MAX).then_some(gap.before),
        }
    }
}

impl GapLine<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Gap(Gap {
            // A gap whose cause is not known is still a gap.
            cause: names::cause_of(&self.cause).unwrap_or_default(),
            thread: self.thread,
            first_thread_seq: self.first_thread_seq,
            events: self.events,
            after: self.after_ns,
            before: self.before_ns.unwrap_or(u64::MAX),
        }))
    }
}

/// How the process stood.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StateLine<'a> {
    at_ns: u64,
    #[serde(borrow)]
    life: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// Who ended it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by_pid: Option<u32>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    by_name: Option<Cow<'a, str>>,
}

impl<'a> From<&'a ProcessState> for StateLine<'a> {
    fn from(state: &'a ProcessState) -> StateLine<'a> {
        let name = match &state.life {
            Life::Exited(_) => "exited",
            Life::Signaled { .. } => "signaled",
            Life::Waiting => "waiting",
            Life::Running => "running",
            Life::Blocked => "blocked",
            Life::Stopped => "stopped",
            Life::Alive => "alive",
        };
        let mut line = StateLine {
            at_ns: state.at,
            life: name.into(),
            code: None,
            signal: None,
            by: None,
            by_pid: None,
            by_name: None,
        };
        match &state.life {
            Life::Exited(code) => line.code = Some(*code),
            Life::Signaled { signal, by } => {
                line.signal = Some(*signal);
                let name = match by {
                    EndedBy::Unknown => "unknown",
                    EndedBy::OomKiller => "oom_killer",
                    EndedBy::Watchdog => "watchdog",
                    EndedBy::Launcher => "launcher",
                    EndedBy::User => "user",
                    EndedBy::Itself => "itself",
                    EndedBy::Process(pid, name) => {
                        line.by_pid = Some(*pid);
                        line.by_name = Some(name.as_str().into());
                        "process"
                    }
                };
                line.by = Some(name.into());
            }
            _ => {}
        }
        line
    }
}

impl StateLine<'_> {
    pub(super) fn record(self) -> Result<Record, Refused> {
        let missing = |field: &str| Refused::Wrong(format!("life `{}` needs `{field}`", self.life));
        let by = match self.by.as_deref() {
            Some("oom_killer") => EndedBy::OomKiller,
            Some("watchdog") => EndedBy::Watchdog,
            Some("launcher") => EndedBy::Launcher,
            Some("user") => EndedBy::User,
            Some("itself") => EndedBy::Itself,
            Some("process") => {
                let name = self.by_name.as_deref().unwrap_or_default().to_owned();
                EndedBy::Process(self.by_pid.ok_or_else(|| missing("by_pid"))?, name)
            }
            _ => EndedBy::Unknown,
        };
        let life = match &*self.life {
            "exited" => Life::Exited(self.code.ok_or_else(|| missing("code"))?),
            "signaled" => Life::Signaled { signal: self.signal.ok_or_else(|| missing("signal"))?, by },
            "waiting" => Life::Waiting,
            "running" => Life::Running,
            "blocked" => Life::Blocked,
            "stopped" => Life::Stopped,
            "alive" => Life::Alive,
            _ => return Err(Refused::Newer),
        };
        Ok(Record::State(ProcessState { at: self.at_ns, life }))
    }
}

/// What a thread was doing.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ThreadLine<'a> {
    at_ns: u64,
    tid: u32,
    #[serde(borrow, skip_serializing_if = "is_default")]
    name: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    state: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    syscall: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    device: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<u64>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    result: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    each_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ms: Option<u64>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    wchan: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    python: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    native: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_default")]
    io: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<u64>,
}

impl<'a> From<&'a ThreadState> for ThreadLine<'a> {
    fn from(state: &'a ThreadState) -> ThreadLine<'a> {
        ThreadLine {
            at_ns: state.at,
            tid: state.tid,
            name: state.name.as_str().into(),
            state: state.state.as_str().into(),
            syscall: state.syscall.as_str().into(),
            device: state.device.as_str().into(),
            request: state.request,
            result: state.result.as_str().into(),
            each_ms: state.each_ms,
            times: state.times,
            since_ms: state.since_ms,
            cpu_ms: state.cpu_ms,
            wchan: state.wchan.as_str().into(),
            python: state.python.as_str().into(),
            native: state.native.as_str().into(),
            io: state.io.as_str().into(),
            children: state.children,
        }
    }
}

impl ThreadLine<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Thread(ThreadState {
            at: self.at_ns,
            tid: self.tid,
            name: self.name.into_owned(),
            state: self.state.into_owned(),
            syscall: self.syscall.into_owned(),
            device: self.device.into_owned(),
            request: self.request,
            result: self.result.into_owned(),
            each_ms: self.each_ms,
            times: self.times,
            since_ms: self.since_ms,
            cpu_ms: self.cpu_ms,
            wchan: self.wchan.into_owned(),
            python: self.python.into_owned(),
            native: self.native.into_owned(),
            io: self.io.into_owned(),
            children: self.children,
        }))
    }
}

/// A log line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LogLineLine<'a> {
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) at_ns: u64,
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
}

impl LogLineLine<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Log(LogLine { at: self.at_ns, text: self.text.into_owned() }))
    }
}

/// An attribute of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AttributeLine<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

impl<'a> From<&'a Attribute> for AttributeLine<'a> {
    fn from(pair: &'a Attribute) -> AttributeLine<'a> {
        AttributeLine { rank: pair.rank, key: pair.key.as_str().into(), value: pair.value.as_str().into() }
    }
}

impl AttributeLine<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        let (key, value) = (self.key.into_owned(), self.value.into_owned());
        Ok(Record::Attribute(Attribute { rank: self.rank, key, value }))
    }
}

/// The start of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepLine {
    at_ns: u64,
    #[serde(default)]
    thread: u32,
    #[serde(default)]
    first_thread_seq: u64,
    step: u64,
}

impl From<&StepMark> for StepLine {
    fn from(mark: &StepMark) -> StepLine {
        StepLine { at_ns: mark.at, thread: mark.thread, first_thread_seq: mark.first_thread_seq, step: mark.step }
    }
}

impl StepLine {
    #[expect(clippy::unnecessary_wraps, reason = "as every line's")]
    pub(super) fn record(self) -> Result<Record, Refused> {
        Ok(Record::Step(StepMark {
            at: self.at_ns,
            thread: self.thread,
            first_thread_seq: self.first_thread_seq,
            step: self.step,
        }))
    }
}
