//! Digests first: what is found by them, with few blocks decoded, is what is found in whole traces.

mod counts;
mod damaged;
mod made_up;
mod scale;
mod scenarios;

use std::path::Path;

use rankdiff_analyzer::finding::{Class, Finding};
use rankdiff_analyzer::render::ExitPolicy;
use rankdiff_analyzer::{Options, Report, analyze, analyze_outlines};
use rankdiff_trace::testgen::grid::GroupKind;
use rankdiff_trace::testgen::grid::{Border, Change, Grid, GridFiles, GridSpec, Plant};
use rankdiff_trace::{JobDir, WriterOptions, read_outlines};

/// Reads a job whole.
fn whole(dir: &Path) -> Report {
    let job = JobDir::open(dir).expect("a trace");
    analyze(job.streams().iter().map(|stream| stream.read().trace).collect(), &Options::default())
}

/// Reads a job by its digests, and at most so many of a hundred calls.
fn by_digests(dir: &Path, percent: u64) -> Report {
    let job = JobDir::open(dir).expect("a trace");
    let outlines = read_outlines(job.streams());
    let calls: u64 = outlines.iter().map(|outline| outline.calls).sum();
    let options = Options { decode_calls: Some(calls * percent / 100), ..Options::default() };
    analyze_outlines(outlines, &options)
}

/// Small blocks, several segments.
fn files() -> GridFiles {
    let options = WriterOptions { block_calls: 128, ..WriterOptions::default() };
    GridFiles { options, segment_calls: Some(1000), threads: 1, ..GridFiles::default() }
}

fn exit(report: &Report) -> u8 {
    let fail_on = Some(rankdiff_analyzer::finding::Severity::Error);
    ExitPolicy { fail_on, strict: false }.code(report)
}

/// In what two answers differ that should not.
fn differences(full: &Report, digests: &Report) -> Vec<String> {
    let mut found = Vec::new();
    if full.class != digests.class {
        found.push(format!("class {} by digests, {} in full", digests.class.name(), full.class.name()));
        return found;
    }
    if exit(full) != exit(digests) {
        found.push(format!("exit {} by digests, {} in full", exit(digests), exit(full)));
    }
    let verdict = |report: &Report| report.findings.first().filter(|_| report.class != Class::Clean).cloned();
    let (Some(a), Some(b)) = (verdict(full), verdict(digests)) else { return found };
    let group = |finding: &Finding| finding.group.as_ref().map(|group| group.name.clone());
    let mut same = |what: &str, one: String, other: String| {
        if one != other {
            found.push(format!("{what} {other} by digests, {one} in full"));
        }
    };
    // What a rank did in earlier rounds is not decoded: another call may be all that is seen of a missing one.
    if !(matches!(a.code, "D002" | "D003") && b.code == "D001") {
        same("code", a.code.to_owned(), b.code.to_owned());
    }
    same("group", format!("{:?}", group(&a)), format!("{:?}", group(&b)));
    same("visible", format!("{:?}", a.first_visible), format!("{:?}", b.first_visible));
    same("divergence", format!("{:?}", a.first_divergence), format!("{:?}", b.first_divergence));
    same("what", format!("{:?}", a.what), format!("{:?}", b.what));
    same("suspects", a.suspects.to_string(), b.suspects.to_string());
    same("sides", sides(&a), sides(&b));
    same("waiting", a.waiting.to_string(), b.waiting.to_string());
    found
}

fn sides(finding: &Finding) -> String {
    let side = |side: &rankdiff_analyzer::finding::Side| {
        let call = side.call.as_ref().map(|call| (call.op.clone(), call.count, call.seq));
        format!("{} {call:?} {}", side.ranks, side.state)
    };
    finding.sides.iter().map(side).collect::<Vec<_>>().join("; ")
}

/// Changes near borders, on each kind of communicator, in jobs that go on and jobs that stop: every fourth combination,
/// all of them with `RANKDIFF_ALL` set.
#[test]
fn a_planted_change_is_found_as_in_whole_traces() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    let all = std::env::var_os("RANKDIFF_ALL").is_some();
    for (number, kind) in [GroupKind::World, GroupKind::Tensor, GroupKind::Data].into_iter().enumerate() {
        for (at, change) in Change::ALL.into_iter().enumerate() {
            for (place, border) in Border::ALL.into_iter().enumerate() {
                if !all && (number + at + place) % 4 != 0 {
                    continue;
                }
                let blocking = (number + at + place / 4) % 2 == 0;
                let spec = GridSpec {
                    tensor: 4,
                    data: 4,
                    pipeline: 2,
                    calls: 2500,
                    blocking,
                    vectors: change == Change::Split,
                    ..GridSpec::default()
                };
                let healthy = Grid::new(spec.clone()).expect("a shape");
                let call = healthy.at(kind, border, &files()).map(|call| match change {
                    Change::Split => healthy.next_vector(call),
                    _ => Some(call),
                });
                let Some(Some(call)) = call else { continue };
                let plant = Plant { change, rank: (7 * at + 3 * place) as u32 % 32, call };
                let Ok(grid) = Grid::new(GridSpec { plant: Some(plant), ..spec }) else { continue };
                tried += 1;
                let dir = tempfile::tempdir().expect("temporary directory");
                grid.write(dir.path(), &files()).expect("written");
                let (full, digests) = (whole(dir.path()), by_digests(dir.path(), 40));
                let decoded = digests.coverage.decoding.as_ref().map(|decoding| decoding.blocks);
                let found = differences(&full, &digests);
                if !found.is_empty() || decoded.is_none() {
                    wrong.push(format!(
                        "{kind:?} {change:?} {border:?} {plant:?} blocking {blocking} ({decoded:?} decoded):\n    {}\n    full: {}\n    digests: {}",
                        found.join("\n    "),
                        full.summary,
                        digests.summary,
                    ));
                }
            }
        }
    }
    assert!(tried > 25, "{tried} jobs");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}
