//! The grid job is healthy by construction, each change changes its rank's stream and no other, and nothing depends on
//! how or in which order streams are made.

use super::{Border, Change, Grid, GridError, GridFiles, GridSpec, GroupKind, LateAttach, Lost, Plant, STEP_CALLS};
use crate::call::{Call, Completion};
use crate::digest::{DigestState, Digests, Restart};
use crate::evidence::{GapCause, Life};
use crate::job::JobDir;
use crate::op::Op;
use crate::rankset::RankSet;
use crate::stream::ProcessTrace;
use crate::writer::WriterOptions;

fn small() -> GridSpec {
    GridSpec { tensor: 2, pipeline: 3, data: 4, calls: 700, vectors: true, ..GridSpec::default() }
}

fn grid(spec: GridSpec) -> Grid {
    Grid::new(spec).expect("a shape that can be made")
}

fn with(change: Change, rank: u32, call: u64) -> Grid {
    grid(GridSpec { plant: Some(Plant { change, rank, call }), ..small() })
}

fn digests(trace: &ProcessTrace) -> Digests {
    let mut state = DigestState::new();
    trace.comms.iter().for_each(|def| state.define_comm(def));
    trace.calls.iter().for_each(|call| state.absorb(call));
    state.seal_block()
}

/// Groups of a kind.
fn groups(grid: &Grid, kind: GroupKind) -> Vec<Vec<u32>> {
    (0..grid.world())
        .map(|rank| (rank, grid.members(kind, rank)))
        .filter(|(rank, all)| all[0] == *rank)
        .map(|g| g.1)
        .collect()
}

/// Ranks whose chains differ from those of most members, and communicators whose pair sums are not zero.
fn unequal(grid: &Grid) -> (RankSet, u64) {
    let traces = grid.traces().expect("small");
    let digests: Vec<Digests> = traces.iter().map(digests).collect();
    let mut others = RankSet::new();
    let mut pairs = 0;
    for kind in GroupKind::ALL {
        for members in groups(grid, kind) {
            let chain = |rank: u32| -> Vec<(u64, u64, u64)> {
                let table = &digests[rank as usize];
                let points = table.checkpoints.iter().chain(&table.ends);
                points.filter(|p| p.comm == grid.comm(kind)).map(|p| (p.base, p.upto, p.running)).collect()
            };
            let lines: Vec<_> = members.iter().map(|&rank| chain(rank)).collect();
            for (&rank, line) in members.iter().zip(&lines) {
                if lines.iter().filter(|other| *other == line).count() * 2 < members.len() {
                    others.insert(rank);
                }
            }
            if members.len() == 2 && lines[0] != lines[1] {
                others = others.union(&members.iter().copied().collect());
            }
            let ends = members.iter().flat_map(|&rank| &digests[rank as usize].ends);
            let sum =
                ends.filter(|end| end.comm == grid.comm(kind)).fold(0, |sum: u64, end| sum.wrapping_add(end.pairs));
            pairs += u64::from(sum != 0);
        }
    }
    (others, pairs)
}

#[test]
fn a_healthy_job_is_healthy() {
    for blocking in [false, true] {
        let grid = grid(GridSpec { blocking, ..small() });
        assert_eq!(unequal(&grid), (RankSet::new(), 0));
        assert!(!grid.hangs() && grid.planted().is_none());
        for kind in GroupKind::ALL {
            for members in groups(&grid, kind) {
                let lines: Vec<Vec<Call>> = members
                    .iter()
                    .map(|&rank| grid.calls(rank).filter(|call| call.comm == grid.comm(kind)).collect())
                    .collect();
                for (at, call) in lines[0].iter().enumerate() {
                    let entries = lines.iter().map(|line| line[at].enter);
                    let returns = lines.iter().map(|line| line[at].exit.expect("it returned"));
                    if blocking {
                        assert!(entries.max() < returns.min(), "nobody leaves {call:?} before the last has entered");
                    }
                    assert_eq!(call.seq, Some(at as u64));
                }
            }
        }
        for rank in 0..grid.world() {
            let calls: Vec<Call> = grid.calls(rank).collect();
            assert_eq!(calls.len() as u64, grid.spec().calls);
            assert!(calls.windows(2).all(|pair| pair[0].exit.expect("returned") < pair[1].enter));
            let mut next = [0, 0];
            for call in &calls {
                let thread = usize::from(call.thread != calls[0].thread);
                assert_eq!(call.thread_seq, next[thread]);
                next[thread] += 1;
            }
        }
    }
}

#[test]
fn a_change_changes_its_rank_alone() {
    let healthy = grid(small()).traces().expect("small");
    for change in Change::ALL {
        for call in [3, 250, 400, 640] {
            let rank = 13;
            let sure = grid(small()).next_vector(call).filter(|_| change == Change::Split).unwrap_or(call);
            let changed = with(change, rank, sure);
            let traces = changed.traces().expect("small");
            for (at, (one, other)) in (0_u32..).zip(traces.iter().zip(&healthy)) {
                assert_eq!(one == other, at != rank, "{change:?} at {sure}, rank {at}");
            }
            let (mine, right) = (&traces[rank as usize].calls, &healthy[rank as usize].calls);
            let same = mine.iter().zip(right).take_while(|(one, other)| one == other).count() as u64;
            assert_eq!(same, sure, "{change:?}");
            let planted = changed.planted().expect("planted");
            assert_eq!(right[sure as usize].seq, Some(planted.position));
            assert_eq!(right[sure as usize].comm, changed.comm(planted.group));
            let (others, pairs) = unequal(&changed);
            let members = changed.members(planted.group, rank);
            if change == Change::Split {
                assert_eq!((others, pairs), (RankSet::new(), 1));
            } else {
                assert!(others.contains(rank), "{change:?} at {sure}");
                // With one against one nobody is the majority.
                let most = if members.len() == 2 { 2 } else { 1 };
                assert!(others.len() <= most && others.iter().all(|rank| members.contains(&rank)));
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_streams_and_another_seed_others() {
    let traces = |seed| grid(GridSpec { seed, ..small() }).traces().expect("small");
    assert_eq!(traces(1), traces(1));
    assert_ne!(traces(1), traces(2));
}

#[test]
fn files_hold_what_memory_holds_whatever_the_threads() {
    let spec = GridSpec {
        late: vec![LateAttach { rank: 2, first: 200, positions: true }],
        lost: vec![Lost { rank: 5, first: 300, calls: 50 }],
        ..small()
    };
    let grid = grid(spec);
    let mut open = RankSet::new();
    open.insert(7);
    let options = WriterOptions { block_calls: 128, ..WriterOptions::default() };
    let mut bytes = Vec::new();
    for threads in [1, 3] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let files = GridFiles { options: options.clone(), segment_calls: Some(250), open: open.clone(), threads };
        let written = grid.write(dir.path(), &files).expect("written");
        assert_eq!((written.streams, written.total.lost_records), (24, 0));
        assert_eq!(written.total.calls, 24 * 700 - 200 - 50);
        assert_eq!(written.total.segments, 24 * 3 - 1, "three segments each, the late rank has two");
        bytes.push(written.total.bytes);
        let job = JobDir::open(dir.path()).expect("a trace");
        assert_eq!(job.streams().len(), 24);
        for stream in job.streams() {
            let outcome = stream.read();
            assert_eq!(outcome.problems, []);
            let rank = outcome.trace.ranks[0].rank;
            let expected = ProcessTrace { closed: rank != 7, ..grid.trace(rank) };
            assert_eq!(outcome.trace, expected, "rank {rank}");
        }
        assert!(grid.write(dir.path(), &files).is_err(), "the directory holds a trace");
    }
    assert_eq!(bytes[0], bytes[1]);
}

#[test]
fn what_the_recorder_missed_is_a_gap() {
    let spec = GridSpec {
        late: vec![
            LateAttach { rank: 0, first: 100, positions: true },
            LateAttach { rank: 1, first: 100, positions: false },
        ],
        lost: vec![Lost { rank: 2, first: 90, calls: 20 }, Lost { rank: 2, first: 690, calls: 100 }],
        ..small()
    };
    let grid = grid(spec);
    let right: Vec<Call> = self::grid(small()).calls(0).collect();
    let known = grid.trace(0);
    assert_eq!(known.calls.len(), 600);
    assert!(known.calls.iter().zip(&right[100..]).all(|(one, other)| (one.seq, one.enter) == (other.seq, other.enter)));
    assert_eq!(known.calls[0].thread_seq, 0, "threads are counted by the recorder");
    assert_eq!((known.gaps.len(), known.gaps[0].cause), (1, GapCause::LateAttach));
    assert!(digests(&known).ends.iter().all(|end| end.base > 0 && end.restart == Restart::None));
    assert!(grid.trace(1).calls.iter().all(|call| call.seq.is_none()));

    let lossy = grid.trace(2);
    assert_eq!(lossy.calls.len(), 700 - 20 - 10);
    let lost: u64 = lossy.gaps.iter().filter_map(|gap| gap.events).sum();
    assert_eq!(lost, 30);
    assert!(lossy.gaps.iter().all(|gap| gap.cause == GapCause::RingFull && gap.after < gap.before));
    assert_eq!(lossy.gaps.iter().filter(|gap| gap.before == u64::MAX).count(), 1);
    let line: Vec<u64> =
        lossy.calls.iter().filter(|call| call.thread == lossy.calls[0].thread).map(|c| c.thread_seq).collect();
    let jumps: u64 = line.windows(2).map(|pair| pair[1] - pair[0] - 1).sum();
    assert!(jumps > 0 && jumps <= 20, "{jumps} missing on the first thread");
}

#[test]
fn a_blocking_job_stops_where_the_change_lets_nobody_through() {
    for (change, call) in [(Change::Missing, 300), (Change::Extra, 411), (Change::Op, 575), (Change::Missing, 699)] {
        let spec = GridSpec { blocking: true, plant: Some(Plant { change, rank: 9, call }), ..small() };
        let grid = grid(spec);
        assert!(grid.hangs(), "{change:?}");
        let planted = grid.planted().expect("planted");
        let last: Vec<Option<Call>> = (0..grid.world()).map(|rank| grid.calls(rank).last()).collect();
        let mut waiting = 0;
        for (rank, last) in (0_u32..).zip(&last) {
            let last = last.as_ref().expect("everybody made calls");
            let life = &grid.trace(rank).states[0].life;
            if last.completion != Completion::Pending {
                assert_eq!((life, call), (&Life::Exited(0), 699), "a call at the very end keeps only its group");
                continue;
            }
            assert_eq!((life, last.exit), (&Life::Waiting, None));
            waiting += 1;
            // Some member is not in this call: it stands in another, or this one differs.
            let kind = GroupKind::ALL[last.comm.0 as usize - 1];
            let all = grid.members(kind, rank);
            let here =
                |other: &u32| last.comm == self::last(&grid, *other).comm && last.seq == self::last(&grid, *other).seq;
            let together = all.iter().filter(|other| here(other)).count();
            let differs = all.iter().filter(|other| here(other)).any(|other| self::last(&grid, *other).op != last.op);
            assert!(together < all.len() || differs, "{change:?}: rank {rank} waits in a call that all made");
        }
        assert!(waiting == grid.world() || (call == 699 && waiting == 1), "{waiting}");
        let at_change =
            |rank: &u32| last[*rank as usize].as_ref().is_some_and(|call| call.comm == grid.comm(planted.group));
        assert!(grid.members(planted.group, 9).iter().any(at_change));
    }
    for change in [Change::Count, Change::Dtype] {
        let spec = GridSpec { blocking: true, plant: Some(Plant { change, rank: 9, call: 300 }), ..small() };
        assert!(!grid(spec).hangs(), "wrong numbers stop nobody");
    }
}

fn last(grid: &Grid, rank: u32) -> Call {
    grid.calls(rank).last().expect("it made calls")
}

#[test]
fn borders_are_where_the_files_have_them() {
    let grid = grid(GridSpec { calls: 3000, ..small() });
    let options = WriterOptions { block_calls: 512, ..WriterOptions::default() };
    let files = GridFiles { options, segment_calls: Some(1200), ..GridFiles::default() };
    for kind in GroupKind::ALL {
        let total = grid.positions(kind, 3000);
        for border in Border::ALL {
            let Some(call) = grid.at(kind, border, &files) else {
                assert!(total <= 257 && matches!(border, Border::Checkpoint(_)), "{kind:?} {border:?}");
                continue;
            };
            let (there, position) = grid.place(call);
            assert_eq!(there, kind);
            assert_eq!(grid.index(kind, position), call);
            let next = grid.index(kind, position + 1);
            match border {
                Border::FirstBlock => assert!(call < 512),
                Border::Checkpoint(beside) => assert_eq!(position, 256_u64.checked_add_signed(beside).expect("small")),
                Border::BlockEnd => assert!(call < 512 && next >= 512),
                Border::BlockBegin => assert!(call >= 512 && grid.index(kind, position - 1) < 512),
                Border::SegmentEnd => assert!(call < 1200 && next >= 1200),
                Border::SegmentBegin => assert!(call >= 1200 && grid.index(kind, position - 1) < 1200),
                Border::Tail => assert_eq!(position, total - 2),
            }
        }
    }
    let short = self::grid(GridSpec { calls: STEP_CALLS, ..small() });
    for border in [Border::BlockEnd, Border::BlockBegin, Border::SegmentBegin, Border::Checkpoint(0)] {
        assert_eq!(short.at(GroupKind::Tensor, border, &files), None, "{border:?}");
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let shapes = [
        GridSpec { calls: 0, ..small() },
        GridSpec { tensor: 0, ..small() },
        GridSpec { tensor: 1, pipeline: 1, data: 1, ..small() },
        GridSpec { tensor: u32::MAX, pipeline: u32::MAX, data: u32::MAX, ..small() },
        GridSpec { per_node: 0, ..small() },
    ];
    for shape in shapes {
        assert_eq!(Grid::new(shape.clone()).expect_err("no such job"), GridError::Shape, "{shape:?}");
    }
    let barrier = STEP_CALLS - 1;
    assert_eq!(grid(small()).turn(barrier).op, Op::Barrier);
    let plants = [
        Plant { change: Change::Count, rank: 0, call: barrier },
        Plant { change: Change::Dtype, rank: 0, call: barrier },
        Plant { change: Change::Split, rank: 0, call: 0 },
        Plant { change: Change::Op, rank: 0, call: 700 },
        Plant { change: Change::Order, rank: 0, call: 699 },
    ];
    for plant in plants {
        let error = Grid::new(GridSpec { plant: Some(plant), ..small() }).expect_err("nothing to change");
        assert!(error.to_string().contains("24 ranks x 700 calls"), "{error}");
    }
    let refused = |plant| {
        let spec = GridSpec { plant: Some(plant), ..small() };
        Grid::new(spec).expect_err("nothing to change").to_string()
    };
    assert!(refused(plants[0]).contains("(a barrier carries nothing)"), "{}", refused(plants[0]));
    assert!(refused(plants[2]).contains("(the next with split vectors is 9)"), "{}", refused(plants[2]));
    let nobody = refused(Plant { change: Change::Op, rank: 24, call: 0 });
    assert!(nobody.contains("no rank 24") && nobody.contains("0 to 23"), "{nobody}");
    let big = grid(GridSpec { calls: 1_000_000, ..small() });
    assert!(matches!(big.traces(), Err(GridError::TooLarge { calls: 24_000_000, .. })));
}

#[test]
fn sizes_of_the_growth_series_have_their_ranks() {
    for ranks in [2, 8, 16, 64, 512, 4096, 10_240] {
        let grid = grid(GridSpec::of_size(ranks, 10));
        assert_eq!(grid.world(), ranks);
    }
    let GridSpec { tensor, pipeline, data, .. } = GridSpec::of_size(10_240, 10);
    assert_eq!((tensor, pipeline, data), (8, 10, 128));
}
