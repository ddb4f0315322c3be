//! `rankdiff show --info`: what a trace holds, counted.

use std::io::Write;

use rankdiff_analyzer::render::escape;
use rankdiff_trace::inventory::{CommCount, GapCount, Inventory, ProcessCount};
use rankdiff_trace::{JobDir, JobInfo, RankSet};
use serde_json::{Value, json};

use crate::args::{Show, ShowFormat};
use crate::failure::{Failure, USAGE};
use crate::load::inputs;
use crate::output::Output;
use crate::units::bytes;

/// Calls that are decoded to count what digests do not tell: a second or two.
const DECODE: u64 = 5_000_000;
/// Processes and communicators that are listed.
const LISTED: usize = 64;

/// Prints what each of the inputs holds.
pub(crate) fn run(args: &Show, out: &mut dyn Write, output: &Output) -> Result<(), Failure> {
    let inputs = inputs(&args.paths, output)?;
    let mut objects = Vec::new();
    for path in inputs.paths() {
        let job = JobDir::open(path).map_err(|error| Failure::new(USAGE, error))?;
        let inventory = Inventory::take(&job, DECODE);
        let shown = inputs.shown(&path.to_string_lossy());
        match args.format {
            ShowFormat::Text => text(&inventory, &shown, args.rank.as_ref(), out)?,
            ShowFormat::JsonLines | ShowFormat::Json => objects.push(object(&inventory, &shown)),
        }
        for problem in &inventory.problems {
            output.warn(escape(&inputs.shown(&problem.to_string())));
        }
    }
    match args.format {
        ShowFormat::Text => {}
        ShowFormat::JsonLines => {
            for object in &objects {
                writeln!(out, "{object}")?;
            }
        }
        ShowFormat::Json => {
            // Several traces are a list; the usual one is itself.
            let whole = if let [one] = objects.as_slice() { one.clone() } else { Value::Array(objects) };
            writeln!(out, "{whole:#}")?;
        }
    }
    Ok(())
}

/// `1 call`, `2 calls`, `2 processes`.
fn counted(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix("ss")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(_)) => format!("{number} {noun}es"),
        (_, None) => format!("{number} {noun}s"),
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// ns since 1970 as UTC, to the second.
fn date(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days since 1970 to a date: H. Hinnant, 'chrono-compatible low-level date algorithms', civil_from_days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

fn text(inventory: &Inventory, path: &str, wanted: Option<&RankSet>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut line = |label: &str, text: String| writeln!(out, "{label:<15}{}", escape(&text));
    line("trace", path.to_owned())?;
    let of = inventory.world.map_or_else(String::new, |world| format!(" of {world}"));
    let processes = inventory.processes.len() as u64;
    line(
        "ranks",
        format!("{}{of}, {}, {}", inventory.ranks.phrase(), counted(processes, "process"), calls(inventory)),
    )?;
    line("job", job(inventory))?;
    for info in inventory.infos.iter().take(LISTED) {
        line("recorded", recorded(info))?;
    }
    if let Some((from, to)) = inventory.span {
        let seconds = to.saturating_sub(from) as f64 / 1e9;
        line("calls made", format!("{} to {}, {seconds:.3} s", date(from), date(to)))?;
    }
    let segments: u64 = inventory.processes.iter().map(|process| process.segments).sum();
    let each = if inventory.calls() == 0 { 0.0 } else { inventory.bytes() as f64 / inventory.calls() as f64 };
    line("files", format!("{}, {} ({each:.1} bytes a call)", counted(segments, "segment"), bytes(inventory.bytes())))?;
    let tails: Vec<u64> = inventory.processes.iter().filter_map(|process| process.tail_rows).collect();
    if !tails.is_empty() {
        let rows: u64 = tails.iter().sum();
        line("live tails", format!("{}, {rows} rows that are in no segment yet", tails.len()))?;
    }
    for (name, count) in inventory.hosts.iter().take(LISTED) {
        let processes = counted(count.processes, "process");
        line("host", format!("{name}: {processes}, {}", counted(count.snapshots, "clock snapshot")))?;
    }
    match &inventory.decoded {
        Some(decoded) => {
            let mut ops: Vec<(u64, &str)> = decoded.ops.iter().map(|(op, calls)| (*calls, op.name())).collect();
            ops.sort_unstable_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
            let ops: Vec<String> = ops.into_iter().map(|(calls, name)| format!("{name} {calls}")).collect();
            line("operations", if ops.is_empty() { "none".to_owned() } else { ops.join(", ") })?;
            line(
                "coverage",
                format!(
                    "{} of the calls have a return, {} a call site; {} made them",
                    percent(decoded.returned, decoded.calls),
                    percent(decoded.with_site, decoded.calls),
                    counted(decoded.threads, "thread")
                ),
            )?;
        }
        None => line("operations", format!("not counted: more than {DECODE} calls"))?,
    }
    for comm in inventory.comms.iter().take(LISTED) {
        line("communicator", communicator(comm))?;
    }
    if let Some(more) = inventory.comms.len().checked_sub(LISTED).filter(|&more| more > 0) {
        line("", format!("and {more} more communicators"))?;
    }
    for (cause, count) in inventory.gaps() {
        line("gaps", format!("{} {}", missing(&count), cause.describe()))?;
    }
    let unclosed = inventory.processes.iter().filter(|process| !process.closed).count() as u64;
    if unclosed > 0 {
        line(
            "open",
            format!("{} not closed by the recorder: it still writes, or was killed", counted(unclosed, "stream")),
        )?;
    }
    let is_wanted =
        |process: &&ProcessCount| wanted.is_none_or(|ranks| process.rank.is_some_and(|rank| ranks.contains(rank)));
    for process in inventory.processes.iter().filter(is_wanted).take(LISTED) {
        self::process(process, out)?;
    }
    if inventory.processes.iter().filter(is_wanted).count() > LISTED {
        writeln!(out, "and more processes; --rank shows those of some ranks")?;
    }
    Ok(())
}

fn calls(inventory: &Inventory) -> String {
    let expired = inventory.expired();
    let dropped = if expired == 0 { String::new() } else { format!(", {expired} of them as digests only") };
    format!("{}{dropped}", counted(inventory.calls(), "call"))
}

fn job(inventory: &Inventory) -> String {
    let ids: Vec<&str> = inventory.job_ids.iter().map(String::as_str).collect();
    let formats: Vec<String> = inventory.formats.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
    let redacted = if inventory.infos.iter().any(|info| info.redacted) { ", redacted" } else { "" };
    format!("{}, trace format {}{redacted}", ids.join(", "), formats.join(", "))
}

fn recorded(info: &JobInfo) -> String {
    let command = if info.command.is_empty() { String::new() } else { format!(": {}", info.command.join(" ")) };
    let how_long = match info.end_realtime {
        Some(end) => format!("for {:.1} s", end.saturating_sub(info.start_realtime) as f64 / 1e9),
        None => "without an end".to_owned(),
    };
    let launch = if info.launch.is_empty() { String::new() } else { format!(", launched as {}", info.launch) };
    let version = &info.recorder_version;
    format!("on {} at {} {how_long} by rankdiff {version}{launch}{command}", info.host, date(info.start_realtime))
}

fn communicator(comm: &CommCount) -> String {
    let name = if comm.name.is_empty() { comm.identity.to_string() } else { comm.name.clone() };
    let of = comm.size.map_or_else(String::new, |size| format!(" of {size}"));
    let (least, most) = comm.collectives;
    let each = if least == most { counted(most, "collective") } else { format!("{least} to {most} collectives") };
    let library = if comm.library.is_empty() { String::new() } else { format!(" ({})", comm.library) };
    format!("{name}{library}: {each} on each of {}{of} members", comm.members)
}

fn missing(count: &GapCount) -> String {
    match (count.calls, count.uncounted) {
        (calls, 0) => counted(calls, "call"),
        (0, uncounted) => format!("calls in {}", counted(uncounted, "place")),
        (calls, uncounted) => format!("{} and those in {}", counted(calls, "call"), counted(uncounted, "place")),
    }
}

fn process(process: &ProcessCount, out: &mut dyn Write) -> Result<(), Failure> {
    let rank = process.rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
    let end = process.life.as_ref().map_or_else(|| "state not recorded".to_owned(), |life| format!("{life:?}"));
    let text = format!(
        "{rank}: {}:{} {}, {}, {end}{}",
        process.key.host,
        process.key.pid,
        counted(process.calls, "call"),
        counted(process.comms, "communicator"),
        if process.closed { "" } else { ", recorder did not close the file" },
    );
    writeln!(out, "{}", escape(&text))?;
    for (cause, count) in &process.gaps {
        writeln!(out, "  gap: {} {}", missing(count), cause.describe())?;
    }
    Ok(())
}

fn object(inventory: &Inventory, path: &str) -> Value {
    let gap = |count: &GapCount| json!({"gaps": count.gaps, "calls": count.calls, "uncounted": count.uncounted});
    let gaps = |gaps: &std::collections::BTreeMap<rankdiff_trace::GapCause, GapCount>| -> Value {
        gaps.iter()
            .map(|(cause, count)| (cause.name().to_owned(), gap(count)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({
        "path": path,
        "job_ids": inventory.job_ids,
        "formats": inventory.formats.iter().map(|(major, minor)| format!("{major}.{minor}")).collect::<Vec<_>>(),
        "recorders": inventory.infos,
        "ranks": inventory.ranks.to_string(),
        "world": inventory.world,
        "calls": inventory.calls(),
        "calls_dropped": inventory.expired(),
        "bytes": inventory.bytes(),
        "first_call_realtime_ns": inventory.span.map(|span| span.0),
        "last_call_realtime_ns": inventory.span.map(|span| span.1),
        "decoded": inventory.decoded.as_ref().map(|decoded| json!({
            "calls": decoded.calls,
            "operations": decoded.ops.iter().map(|(op, calls)| (op.name().to_owned(), json!(calls)))
                .collect::<serde_json::Map<_, _>>(),
            "returned": decoded.returned,
            "with_site": decoded.with_site,
            "threads": decoded.threads,
        })),
        "hosts": inventory.hosts.iter().map(|(host, count)| json!({
            "host": host, "processes": count.processes, "clock_snapshots": count.snapshots,
        })).collect::<Vec<_>>(),
        "communicators": inventory.comms.iter().map(|comm| json!({
            "name": comm.name, "identity": comm.identity.to_string(), "library": comm.library, "size": comm.size,
            "members_seen": comm.members, "collectives_least": comm.collectives.0, "collectives_most": comm.collectives.1,
        })).collect::<Vec<_>>(),
        "gaps": gaps(&inventory.gaps()),
        "processes": inventory.processes.iter().map(|process| json!({
            "host": process.key.host, "pid": process.key.pid, "rank": process.rank, "segments": process.segments,
            "bytes": process.bytes, "calls": process.calls, "calls_dropped": process.expired,
            "tail_rows": process.tail_rows, "communicators": process.comms, "closed": process.closed,
            "gaps": gaps(&process.gaps),
        })).collect::<Vec<_>>(),
        "problems": inventory.problems.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::{counted, date, percent};

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399_000_000_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_868_799_000_000_000), "2000-02-29 23:59:59 UTC");
        assert_eq!(date(1_796_063_395_000_000_000), "2026-11-30 18:29:55 UTC");
        assert!(date(u64::MAX).starts_with("2554-"));
    }

    #[test]
    fn numbers() {
        assert_eq!(counted(1, "process"), "1 process");
        assert_eq!(counted(2, "process"), "2 processes");
        assert_eq!(counted(0, "call"), "0 calls");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "-");
    }
}
