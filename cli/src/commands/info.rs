//! `rankdiff show --info`: what a trace holds, counted.

use std::io::Write;

use rankdiff_analyzer::render::{escape, grouped};
use rankdiff_trace::inventory::{CallCount, CommCount, GapCount, Inventory, ProcessCount};
use rankdiff_trace::{JobDir, JobInfo, RankSet};
use serde_json::{Value, json};

use crate::args::{Show, ShowFormat};
use crate::commands::show::identity;
use crate::failure::{Failure, USAGE};
use crate::load::inputs;
use crate::output::Output;
use crate::units::bytes;

/// Calls that are decoded to count what digests do not tell: a second or two.
const DECODE: u64 = 5_000_000;
/// Processes, and communicators, that are listed.
const LISTED: usize = 8;
/// Hosts, and recorders, that are listed: what they say is mostly alike.
const ALIKE: usize = 3;

/// Prints what each of the inputs holds.
pub(crate) fn run(args: &Show, out: &mut dyn Write, output: &Output) -> Result<(), Failure> {
    let inputs = inputs(&args.paths, output)?;
    let mut objects = Vec::new();
    for path in inputs.paths() {
        let job = JobDir::open(path).map_err(|error| Failure::new(USAGE, error))?;
        let inventory = Inventory::take(&job, DECODE);
        let shown = inputs.shown(&path.to_string_lossy());
        match args.format {
            ShowFormat::Text => {
                let mut page = Page { out, all: output.verbose > 0 };
                page.text(&inventory, &shown, args.rank.as_ref())?;
            }
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

/// `1 call`, `2,000 calls`, `2 processes`.
fn counted(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix("ss")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(_)) => format!("{} {noun}es", grouped(number)),
        (_, None) => format!("{} {noun}s", grouped(number)),
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
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

/// The summary as text, of a screen's length unless all is wanted.
struct Page<'a> {
    out: &'a mut dyn Write,
    /// Lists are not cut.
    all: bool,
}

impl Page<'_> {
    fn line(&mut self, label: &str, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{label:<15}{}", escape(text))?)
    }

    /// How many of a list are shown: one more than `most` takes no more lines than to say so.
    fn shown(&self, of: usize, most: usize) -> usize {
        if self.all || of <= most + 1 { of } else { most }
    }

    /// Says what a list leaves out.
    fn rest(&mut self, left: usize, noun: &str) -> Result<(), Failure> {
        if left == 0 {
            return Ok(());
        }
        let more = counted(left as u64, &format!("more {noun}"));
        self.line("", &format!("and {more}; -v and --format json list all"))
    }

    fn list(
        &mut self,
        label: &str,
        noun: &str,
        most: usize,
        lines: impl ExactSizeIterator<Item = String>,
    ) -> Result<(), Failure> {
        let of = lines.len();
        let shown = self.shown(of, most);
        for text in lines.take(shown) {
            self.line(label, &text)?;
        }
        self.rest(of - shown, noun)
    }

    fn text(&mut self, inventory: &Inventory, path: &str, wanted: Option<&RankSet>) -> Result<(), Failure> {
        self.line("trace", path)?;
        let of = inventory.world.map_or_else(String::new, |world| format!(" of {}", grouped(u64::from(world))));
        let processes = counted(inventory.processes.len() as u64, "process");
        self.line("ranks", &format!("{}{of}, {processes}, {}", inventory.ranks.phrase(), calls(inventory)))?;
        if inventory.runs() > 1 {
            let runs = grouped(u64::from(inventory.runs()));
            self.line("runs", &format!("{runs}, one after the other; `analyze` reports the latest"))?;
        }
        self.line("job", &job(inventory))?;
        self.list("recorded", "recording", ALIKE, inventory.infos.iter().map(recorded))?;
        if let Some((from, to)) = inventory.span {
            let seconds = to.saturating_sub(from) as f64 / 1e9;
            self.line("calls made", &format!("{} to {}, {seconds:.3} s", date(from), date(to)))?;
        }
        self.line("files", &files(inventory))?;
        self.tails(inventory)?;
        let hosts = inventory.hosts.iter().map(|(name, count)| {
            let processes = counted(count.processes, "process");
            format!("{name}: {processes}, {}", counted(count.snapshots, "clock snapshot"))
        });
        self.list("host", "host", ALIKE, hosts)?;
        match &inventory.decoded {
            Some(decoded) => self.decoded(inventory, decoded)?,
            None => self.line("operations", &format!("not counted: more than {} calls", grouped(DECODE)))?,
        }
        let runs = inventory.runs();
        let comms = inventory.comms.iter().map(|comm| communicator(comm, runs));
        self.list("communicator", "communicator", LISTED, comms)?;
        for (cause, count) in inventory.gaps() {
            self.line("gaps", &format!("{} {}", missing(&count), cause.describe()))?;
        }
        let unclosed = inventory.processes.iter().filter(|process| !process.closed).count() as u64;
        if unclosed > 0 {
            let streams = counted(unclosed, "stream");
            self.line("open", &format!("{streams} not closed by the recorder: it still writes, or was killed"))?;
        }
        self.processes(inventory, wanted)
    }

    fn tails(&mut self, inventory: &Inventory) -> Result<(), Failure> {
        let tails: Vec<u64> = inventory.processes.iter().filter_map(|process| process.tail_rows).collect();
        if tails.is_empty() {
            return Ok(());
        }
        let (rows, number) = (grouped(tails.iter().sum()), grouped(tails.len() as u64));
        let room = bytes(inventory.tail_bytes());
        self.line("live tails", &format!("{number} with room for {room}, {rows} rows that are in no segment yet"))
    }

    /// What only the calls themselves tell.
    fn decoded(&mut self, inventory: &Inventory, decoded: &CallCount) -> Result<(), Failure> {
        let is_kept = inventory.expired() > 0;
        if decoded.calls == 0 {
            let why = if is_kept { "not known: --keep has dropped all calls" } else { "none: no segment holds a call" };
            return self.line("operations", why);
        }
        let of = if is_kept { format!("of the {} kept: ", counted(decoded.calls, "call")) } else { String::new() };
        let mut ops: Vec<(u64, &str)> = decoded.ops.iter().map(|(op, calls)| (*calls, op.name())).collect();
        ops.sort_unstable_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        let ops: Vec<String> = ops.into_iter().map(|(calls, name)| format!("{name} {}", grouped(calls))).collect();
        self.line("operations", &format!("{of}{}", ops.join(", ")))?;
        let returned = percent(decoded.returned, decoded.calls);
        let with_site = percent(decoded.with_site, decoded.calls);
        let (what, threads) = (if is_kept { "kept calls" } else { "calls" }, counted(decoded.threads, "thread"));
        self.line(
            "coverage",
            &format!("{returned} of the {what} have a return, {with_site} a call site; {threads} made them"),
        )
    }

    fn processes(&mut self, inventory: &Inventory, wanted: Option<&RankSet>) -> Result<(), Failure> {
        let is_wanted =
            |process: &&ProcessCount| wanted.is_none_or(|ranks| process.rank.is_some_and(|rank| ranks.contains(rank)));
        let chosen: Vec<&ProcessCount> = inventory.processes.iter().filter(is_wanted).collect();
        // Whoever names ranks wants to see them.
        let shown = if wanted.is_some() { chosen.len() } else { self.shown(chosen.len(), LISTED) };
        for process in chosen.iter().take(shown) {
            self::process(process, inventory.runs(), self.out)?;
        }
        match chosen.len() - shown {
            0 => Ok(()),
            left => {
                let more = counted(left as u64, "more process");
                Ok(writeln!(self.out, "and {more}; --rank shows those of some ranks, -v and --format json list all")?)
            }
        }
    }
}

/// Segments and their bytes. A tail is left out: it has its room from the start, whatever is in it.
fn files(inventory: &Inventory) -> String {
    let segments: u64 = inventory.processes.iter().map(|process| process.segments).sum();
    let sealed = inventory.bytes().saturating_sub(inventory.tail_bytes());
    let calls = inventory.calls();
    let each = if calls == 0 { String::new() } else { format!(" ({:.1} bytes a call)", sealed as f64 / calls as f64) };
    format!("{}, {}{each}", counted(segments, "segment"), bytes(sealed))
}

fn calls(inventory: &Inventory) -> String {
    let expired = inventory.expired();
    let dropped = if expired == 0 { String::new() } else { format!(", {} of them as digests only", grouped(expired)) };
    format!("{}{dropped}", counted(inventory.calls(), "call"))
}

fn job(inventory: &Inventory) -> String {
    let mut ids: Vec<String> = inventory.job_ids.iter().take(ALIKE).cloned().collect();
    if let Some(left @ 1..) = inventory.job_ids.len().checked_sub(ALIKE) {
        ids.push(format!("and {} (--format json lists all)", counted(left as u64, "more id")));
    }
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

fn communicator(comm: &CommCount, runs: u32) -> String {
    let name = if comm.name.is_empty() { comm.identity.to_string() } else { comm.name.clone() };
    let of = comm.size.map_or_else(String::new, |size| format!(" of {}", grouped(u64::from(size))));
    let (least, most) = comm.collectives;
    let each = if least == most {
        counted(most, "collective")
    } else {
        format!("{} to {}", grouped(least), counted(most, "collective"))
    };
    let library = if comm.library.is_empty() { String::new() } else { format!(" ({})", comm.library) };
    let run = if runs > 1 { format!(" in run {}", comm.run) } else { String::new() };
    format!("{name}{library}: {each} on each of {}{of} members{run}", grouped(comm.members))
}

fn missing(count: &GapCount) -> String {
    match (count.calls, count.uncounted) {
        (calls, 0) => counted(calls, "call"),
        (0, uncounted) => format!("calls in {}", counted(uncounted, "place")),
        (calls, uncounted) => format!("{} and those in {}", counted(calls, "call"), counted(uncounted, "place")),
    }
}

fn process(process: &ProcessCount, runs: u32, out: &mut dyn Write) -> Result<(), Failure> {
    let rank = process.rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
    let end = process.life.as_ref().map_or_else(|| "state not recorded".to_owned(), ToString::to_string);
    let run = if runs > 1 { format!(", run {}", process.run) } else { String::new() };
    let text = format!(
        "{rank}: {}:{} {}, {}, {end}{run}{}",
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
        "tail_bytes": inventory.tail_bytes(),
        "runs": inventory.runs(),
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
            "name": comm.name, "identity": identity(comm.identity), "library": comm.library, "size": comm.size,
            "run": comm.run, "members_seen": comm.members, "collectives_least": comm.collectives.0, "collectives_most": comm.collectives.1,
        })).collect::<Vec<_>>(),
        "gaps": gaps(&inventory.gaps()),
        "processes": inventory.processes.iter().map(|process| json!({
            "host": process.key.host, "pid": process.key.pid, "rank": process.rank, "segments": process.segments,
            "bytes": process.bytes, "tail_bytes": process.tail_bytes, "run": process.run,
            "state": process.life.as_ref().map(ToString::to_string), "calls": process.calls, "calls_dropped": process.expired,
            "tail_rows": process.tail_rows, "communicators": process.comms, "closed": process.closed,
            "gaps": gaps(&process.gaps),
        })).collect::<Vec<_>>(),
        "problems": inventory.problems.len(),
    })
}

#[cfg(test)]
mod tests {
    use rankdiff_trace::inventory::{CallCount, GapCount, Inventory, ProcessCount};
    use rankdiff_trace::{GapCause, Life, Op};

    use super::{Page, counted, date, percent};

    fn text(inventory: &Inventory, all: bool) -> String {
        let mut out = Vec::new();
        Page { out: &mut out, all }.text(inventory, "t", None).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    fn process(rank: u32) -> ProcessCount {
        ProcessCount {
            rank: Some(rank),
            calls: 2000,
            run: 1,
            bytes: 20_000,
            life: Some(Life::Waiting),
            closed: true,
            ..ProcessCount::default()
        }
    }

    #[test]
    fn lists_of_a_large_job_are_cut_and_say_so() {
        let inventory = Inventory { processes: (0..100).map(process).collect(), ..Inventory::default() };
        let short = text(&inventory, false);
        assert_eq!(short.matches("waiting in a call").count(), 8, "{short}");
        assert!(short.contains("and 92 more processes; --rank") && short.contains("200,000 calls"), "{short}");
        let long = text(&inventory, true);
        assert_eq!(long.matches("waiting in a call").count(), 100, "{long}");
        assert!(!long.contains("more process"), "{long}");
    }

    #[test]
    fn what_was_dropped_and_the_room_of_tails_are_told_apart() {
        let gaps = [(GapCause::Expired, GapCount { gaps: 1, calls: 1500, uncounted: 0 })].into();
        let one = ProcessCount {
            expired: 1500,
            gaps,
            bytes: 1_020_000,
            tail_bytes: 1_000_000,
            tail_rows: Some(0),
            ..process(0)
        };
        let decoded =
            CallCount { calls: 500, ops: [(Op::Barrier, 500)].into(), returned: 250, with_site: 500, threads: 1 };
        let mut inventory = Inventory { processes: vec![one], decoded: Some(decoded), ..Inventory::default() };
        let shown = text(&inventory, false);
        for words in [
            "(10.0 bytes a call)",
            "1 with room for 976.6 KiB, 0 rows",
            "of the 500 calls kept: barrier 500",
            "50.0 % of the kept calls have a return",
            "1,500 calls dropped by --keep",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        inventory.decoded = Some(CallCount::default());
        let shown = text(&inventory, false);
        assert!(shown.contains("--keep has dropped all calls") && !shown.contains("coverage"), "{shown}");
    }

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
        assert_eq!(counted(12_345, "call"), "12,345 calls");
        assert_eq!(percent(1, 3), "33.3 %");
    }
}
