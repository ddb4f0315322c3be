//! Where ranks stand, of every document of the corpus and of made-up jobs with faults: the order of the input says nothing,
//! and digests tell the same as decoded calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankdiff_analyzer::{Options, Query, Standing, standing, standing_of_outlines};
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::generate::{Fault, FaultKind, GroupKind, Job, JobSpec};
use rankdiff_trace::testgen::scenario::load;
use rankdiff_trace::{
    ClockSnapshot, JobDir, ProcessTrace, RankSet, StreamFiles, StreamOutline, StreamWriter, WriterOptions,
    read_outlines,
};

fn documents() -> Vec<(String, Vec<ProcessTrace>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus");
    let mut files: Vec<PathBuf> = ["cases", "checks"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(corpus.join(folder)).expect("the corpus is there").flatten())
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let scenarios = files.iter().flat_map(|path| load(path).expect("the corpus is sound"));
    scenarios.map(|one| (one.id().to_owned(), to_traces(&one).expect("the corpus is sound"))).collect()
}

fn whole(traces: &[ProcessTrace]) -> Standing {
    standing(traces, &Options::default(), &Query::default())
}

/// Who waits in any link, and who is waited for.
fn waiting(standing: &Standing) -> (RankSet, RankSet) {
    let links = standing.chains.iter().flat_map(|chain| &chain.links);
    let roots = standing.chains.iter().flat_map(|chain| chain.roots.iter());
    (links.flat_map(|link| link.ranks.iter()).collect(), roots.collect())
}

#[test]
fn the_order_of_traces_says_nothing() {
    let mut waits = 0;
    for (id, traces) in documents() {
        let forward = whole(&traces);
        let mut turned = traces;
        turned.reverse();
        assert_eq!(forward, whole(&turned), "{id}");
        waits += usize::from(!forward.chains.is_empty());
    }
    assert!(waits > 30, "somebody waits in only {waits} documents");
}

#[test]
fn every_rank_is_told_once_and_every_link_leads_to_somebody() {
    for (id, traces) in documents() {
        let standing = whole(&traces);
        let told: usize = standing.ranks.iter().map(|one| one.ranks.len()).sum();
        assert_eq!(told, standing.ranks_seen.len(), "{id}");
        for chain in &standing.chains {
            let somebody = !chain.roots.is_empty()
                || !chain.cycle.is_empty()
                || !chain.differ.is_empty()
                || !chain.unsure.is_empty()
                || chain.links.iter().all(|link| link.distance == 0);
            assert!(somebody && !chain.links.is_empty(), "{id}: {chain:#?}");
            for link in &chain.links {
                assert!(!link.ranks.is_empty(), "{id}: {chain:#?}");
                // Who does not wait cannot be in a link.
                assert!(link.ranks.intersection(&chain.roots).is_empty(), "{id}: {chain:#?}");
            }
        }
    }
}

fn write(job: &Job, dir: &Path) {
    let options = WriterOptions { block_calls: 16, ..WriterOptions::default() };
    for rank in 0..job.spec().world() {
        let clock = ClockSnapshot { monotonic: 1, boottime: 1, realtime: 1_700_000_000_000_000_000 };
        let mut writer = StreamWriter::create(dir, &job.key(rank), clock, &options).expect("created");
        job.records(rank, &mut |record| writer.write(record)).expect("written");
        writer.close().expect("closed");
    }
}

/// The dump by digests of at most so many calls, of files in this order.
fn by_digests(streams: &[StreamFiles], calls: u64) -> Standing {
    let outlines: Vec<StreamOutline> = read_outlines(streams);
    let options = Options { decode_calls: Some(calls), ..Options::default() };
    standing_of_outlines(outlines, &options, &Query::default())
}

#[test]
fn digests_tell_where_the_ranks_of_made_up_jobs_stand() {
    let mut tried = 0;
    let mut shapes: BTreeSet<String> = BTreeSet::new();
    for seed in 0..6_u64 {
        for (number, kind) in FaultKind::ALL.into_iter().enumerate() {
            let spec = JobSpec { steps: 20 + seed % 17, ..JobSpec::small(seed) };
            let rank = (seed * 7 + number as u64) as u32 % spec.world();
            let fault = Fault { kind, rank, group: GroupKind::World, position: 3 + seed };
            let Ok(job) = Job::new(spec, Some(fault)) else { continue };
            let dir = tempfile::tempdir().expect("a temporary directory");
            write(&job, dir.path());
            let found = JobDir::open(dir.path()).expect("a trace");
            let traces: Vec<ProcessTrace> = found.streams().iter().map(|stream| stream.read().trace).collect();
            let (full, digests) = (whole(&traces), by_digests(found.streams(), 40));
            let title = format!("seed {seed} {kind:?} rank {rank}");
            assert_eq!(waiting(&full), waiting(&digests), "{title}");
            let entered = |standing: &Standing| -> Vec<(RankSet, (u64, u64))> {
                let fronts = standing.comms.iter().flat_map(|comm| &comm.frontiers);
                let mut all: Vec<_> = fronts.map(|front| (front.ranks.clone(), front.entered)).collect();
                all.sort();
                all
            };
            assert_eq!(entered(&full), entered(&digests), "{title}");
            // The order of files says nothing, digests or not.
            let mut turned: Vec<StreamFiles> = found.streams().to_vec();
            turned.reverse();
            assert_eq!(digests, by_digests(&turned, 40), "{title}");
            shapes.insert(format!("{:?}", waiting(&full)));
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried} jobs");
    assert!(shapes.len() > 3, "{} kinds of hang", shapes.len());
}
