//! What people and programs get to see of where ranks stand: of documents of the corpus, of a job of hundreds of ranks, and
//! of one whose names are hostile.

use std::fs;
use std::sync::OnceLock;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use rankdiff_analyzer::render::{DUMP_SCHEMA_VERSION, RenderOptions, dump_json, dump_text};
use rankdiff_analyzer::standing::{Chain, CommStanding, Frontier, Link, RankStanding};
use rankdiff_analyzer::{Options, Query, Standing, standing};
use rankdiff_trace::ProcessTrace;
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::grid::{Change, Grid, GridFiles, GridSpec, Plant};
use rankdiff_trace::testgen::scenario::load;
use serde_json::Value;

use super::{at_width, colored, folder, is_terminal_safe, reports, schema, without_styles};

/// Lines of a screen, less one for the prompt.
const SCREEN: usize = 36;

/// One document of the corpus for each shape that a dump can have: a majority and one that differs, two sides of one, a
/// circle, a chain of two links, a busy rank, a driver call, a device, lost events, a healthy end.
const DOCUMENTS: [(&str, &str); 9] = [
    ("cases/h1-seed-backward-vs-validate.yaml", "H1"),
    ("cases/h5-order-inversion.yaml", "H5a"),
    ("cases/h5-order-inversion.yaml", "H5b"),
    ("cases/h6-straggler.yaml", "H6"),
    ("cases/h7-driver-stall.yaml", "H7"),
    ("cases/h1-seed-backward-vs-validate.yaml", "H1-control"),
    ("checks/rank-failed.yaml", "rank-failed-chain"),
    ("checks/device-stall.yaml", "device-stall"),
    ("checks/lost-events.yaml", "lost-events-end"),
];

fn traces(file: &str, id: &str) -> Vec<ProcessTrace> {
    let scenarios = load(&folder("../tests/corpus").join(file)).expect("the corpus is sound");
    let scenario = scenarios.iter().find(|scenario| scenario.id() == id).expect("a document of the corpus");
    to_traces(scenario).expect("the corpus is sound")
}

/// 256 ranks, of which one leaves a call out: all others end up behind it.
fn large() -> Vec<ProcessTrace> {
    let plant = Plant { change: Change::Missing, rank: 77, call: 500 };
    let spec = GridSpec { blocking: true, plant: Some(plant), ..GridSpec::of_size(256, 700) };
    let dir = tempfile::tempdir().expect("a temporary directory");
    Grid::new(spec).expect("a sound job").write(dir.path(), &GridFiles::default()).expect("written");
    let job = rankdiff_trace::JobDir::open(dir.path()).expect("a trace");
    job.streams().iter().map(|stream| stream.read().trace).collect()
}

fn all() -> &'static [(String, Standing)] {
    static ALL: OnceLock<Vec<(String, Standing)>> = OnceLock::new();
    ALL.get_or_init(make)
}

fn make() -> Vec<(String, Standing)> {
    let of = |traces: &[ProcessTrace]| standing(traces, &Options::default(), &Query::default());
    let mut found: Vec<(String, Standing)> =
        DOCUMENTS.iter().map(|(file, id)| (format!("dump-{}", id.to_lowercase()), of(&traces(file, id)))).collect();
    found.push(("dump-256-ranks".to_owned(), of(&large())));
    found
}

fn text(standing: &Standing, options: &RenderOptions) -> String {
    let mut bytes = Vec::new();
    dump_text(standing, options, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("dumps are UTF-8")
}

fn json(standing: &Standing) -> String {
    let mut bytes = Vec::new();
    dump_json(standing, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("dumps are UTF-8")
}

/// What stands in the golden files.
pub(crate) fn outputs() -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    for (name, standing) in all() {
        outputs.push((format!("{name}.80.txt"), text(standing, &at_width(80))));
        outputs.push((format!("{name}.120.txt"), text(standing, &at_width(120))));
        if name == "dump-h1" {
            outputs.push((format!("{name}.color.txt"), text(standing, &colored())));
            outputs.push((format!("{name}.json"), json(standing)));
        }
    }
    outputs
}

#[test]
fn a_dump_fits_a_screen_and_its_width() {
    for (name, standing) in all() {
        for width in [80, 100] {
            let text = text(standing, &at_width(width));
            let height = text.lines().count();
            assert!(height <= SCREEN, "{name} at {width} takes {height} lines:\n{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{name} is wider than {width}: {line}");
            }
        }
    }
}

#[test]
fn every_rank_is_somewhere_and_once() {
    for (name, standing) in all() {
        let mut told = 0;
        for one in &standing.ranks {
            told += one.ranks.len();
            assert!(one.ranks.is_subset(&standing.ranks_seen), "{name}");
        }
        assert_eq!(told, standing.ranks_seen.len(), "{name}");
    }
}

#[test]
fn what_was_cut_is_counted_and_all_has_it() {
    let job = large();
    let query = Query { each: true, ..Query::default() };
    let everything = standing(&job, &Options::default(), &query);
    let short = text(&everything, &at_width(100));
    assert!(short.contains("lines more (--all, --rank, --comm)"), "{short}");
    let long = text(&everything, &RenderOptions { verbose: true, ..at_width(100) });
    assert!(!long.contains("--all"), "{long}");
    // Each of the tensor-parallel groups of the job has a line of its own.
    assert_eq!(long.matches("(tensor_parallel, 8 ranks").count(), 32, "{long}");
}

#[test]
fn a_question_about_ranks_or_communicators_is_answered_for_these() {
    let job = large();
    let ask = |query: Query| standing(&job, &Options::default(), &query);
    let one = ask(Query { ranks: Some(reports::ranks("77")), ..Query::default() });
    assert_eq!(one.ranks.iter().map(|group| group.ranks.to_string()).collect::<Vec<_>>(), ["77"]);
    assert!(!one.comms.is_empty() && one.comms.iter().all(|comm| comm.ranks.contains(77)));
    let named = ask(Query { comm: Some("tensor_parallel".to_owned()), ..Query::default() });
    assert_eq!(named.comms.len(), 32);
    let nothing = ask(Query { comm: Some("no such name".to_owned()), ..Query::default() });
    assert!(nothing.comms.is_empty() && nothing.ranks.is_empty() && nothing.chains.is_empty());
}

#[test]
fn colour_changes_nothing_else_in_dumps() {
    for (name, standing) in all() {
        let coloured = text(standing, &colored());
        assert!(coloured.contains("\x1b["), "{name}: no colour");
        assert_eq!(without_styles(&coloured), text(standing, &at_width(100)), "{name}");
    }
}

#[test]
fn dump_json_is_as_its_schema_says() {
    let committed = fs::read_to_string(folder("../docs/schema/dump-1.0.json")).expect("the schema is committed");
    let schema: Value = serde_json::from_str(&committed).expect("the schema is JSON");
    assert_eq!(schema["properties"]["schema_version"]["const"], DUMP_SCHEMA_VERSION);
    for (name, standing) in all() {
        let value: Value = serde_json::from_str(&json(standing)).expect("JSON");
        assert_eq!(schema::problems(&schema, &value), Vec::<String>::new(), "{name}");
        for broken in ["chains", "ranks", "communicators"] {
            let mut broken_value = value.clone();
            broken_value[broken] = Value::Null;
            assert!(!schema::problems(&schema, &broken_value).is_empty(), "{broken} went unnoticed");
        }
    }
}

/// A dump with this text in every place.
fn hostile(mut next: impl FnMut() -> String) -> Standing {
    let mut standing = all().first().map(|(_, standing)| standing.clone()).expect("a dump");
    let mut call = standing.ranks.iter().find_map(|one| one.call.clone()).expect("a call");
    call.op = next();
    call.dtype = Some(next());
    call.site = next();
    for frame in &mut call.frames {
        frame.function = next();
        frame.file = next();
    }
    standing.problems = vec![next()];
    let ranks = || reports::ranks("0-7");
    standing.ranks = vec![RankStanding {
        ranks: ranks(),
        life: next(),
        call: Some(call.clone()),
        on: next(),
        facts: vec![next()],
        ..RankStanding::default()
    }];
    let link = Link { distance: 1, ranks: ranks(), call: call.clone(), on: next(), comms: 1, ..Link::default() };
    standing.chains = vec![Chain { roots: ranks(), links: vec![link], ..Chain::default() }];
    let mut group = standing.comms.first().expect("a communicator").group.clone();
    (group.name, group.desc, group.library) = (next(), next(), next());
    let frontier = Frontier { ranks: ranks(), entered: (1, 1), call: Some(call), doubt: next(), ..Frontier::default() };
    standing.comms =
        vec![CommStanding { group, comms: 1, ranks: ranks(), frontiers: vec![frontier], ..CommStanding::default() }];
    standing
}

proptest! {
    /// Any text in any place stays printable, and JSON keeps it.
    #[test]
    fn any_text_in_a_dump_is_safe(texts in proptest::collection::vec(any::<String>(), 8), color in any::<bool>(), width in 0_usize..200) {
        let mut texts = texts.into_iter().cycle();
        let standing = hostile(|| texts.next().unwrap_or_default());
        for verbose in [false, true] {
            let shown = text(&standing, &RenderOptions { color, verbose, ..at_width(width) });
            prop_assert!(is_terminal_safe(&without_styles(&shown)), "{}", shown);
        }
        let json = json(&standing);
        prop_assert!(is_terminal_safe(&json), "{}", json);
        let value: Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(value["problems"][0].as_str(), Some(standing.problems[0].as_str()));
    }
}

/// The page about reports shows a dump: this one.
#[test]
fn the_page_shows_what_is_printed() {
    let page = fs::read_to_string(folder("../docs/report.md")).expect("the page is there");
    let (_, chain) = all().iter().find(|(name, _)| name == "dump-rank-failed-chain").expect("a dump");
    for line in text(chain, &at_width(116)).lines() {
        assert!(page.contains(&format!("\n    {line}\n")), "docs/report.md lacks: {line}");
    }
}
