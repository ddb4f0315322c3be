//! The corpus as input: every document parses and emits, and what comes out is what the text says, by hand.

use std::path::{Path, PathBuf};

use proptest::prelude::{ProptestConfig, proptest};

use super::call::Outcome;
use super::emit::to_traces;
use super::scenario::{Scenario, load, parse};
use super::schedule::Schedule;
use crate::call::{CallFlags, Completion, FrameKind};
use crate::comm::{Level, Provenance, Semantics};
use crate::datatype::{Basic, DType, RedOp, Reduction};
use crate::evidence::{EndedBy, Gap, GapCause, Life};
use crate::op::Op;
use crate::stream::ProcessTrace;

const MS: u64 = 1_000_000;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the corpus is in the repository")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files
}

fn scenario(id: &str) -> Scenario {
    let found = corpus().into_iter().flat_map(|file| load(&file).expect("a valid file"));
    found.into_iter().find(|scenario| scenario.id() == id).unwrap_or_else(|| panic!("{id} is in the corpus"))
}

fn traces(text: &str) -> Vec<ProcessTrace> {
    let scenarios = parse("test.yaml", text).expect("a valid scenario");
    to_traces(&scenarios[0]).expect("a possible scenario")
}

fn small(blocking: bool, world: u32, streams: &str) -> Vec<ProcessTrace> {
    let members: Vec<String> = (0..world).map(|rank| rank.to_string()).collect();
    let members = members.join(",");
    traces(&format!("id: T\nworld: {world}\nblocking: {blocking}\ngroups: {{world: [{members}]}}\nstreams:\n{streams}"))
}

#[test]
fn every_document_parses_and_emits() {
    let mut documents = 0;
    for file in corpus() {
        for scenario in load(&file).expect("a valid file") {
            documents += 1;
            let traces = to_traces(&scenario).expect("a possible scenario");
            assert_eq!(traces.len(), scenario.world as usize - scenario.missing_files.len(), "{}", scenario.id());
            for trace in &traces {
                assert_eq!((trace.ranks.len(), trace.states.len()), (1, 1), "{}", scenario.id());
                for call in &trace.calls {
                    let comm = trace.comm(call.comm);
                    assert!(comm.is_some() || call.op == Op::CommInit, "{}: {call:?}", scenario.id());
                    assert!(trace.site(call.site).is_some(), "{}: {call:?}", scenario.id());
                    assert!(call.exit.is_none_or(|exit| exit > call.enter));
                }
                assert!(trace.calls.is_sorted_by_key(|call| call.enter), "{}", scenario.id());
            }
        }
    }
    assert!(documents >= 27, "{documents} documents");
}

/// Every call of the corpus is entered and completes unless its flags say otherwise, as the corpus's own checker has it.
#[test]
fn flags_and_schedule_agree() {
    let scenarios = corpus().into_iter().flat_map(|file| load(&file).expect("a valid file"));
    for scenario in scenarios {
        let schedule = Schedule::of(&scenario).expect("possible times");
        for rank in scenario.streams.iter().flat_map(|stream| stream.ranks.iter()) {
            let program = schedule.program(rank).expect("a stream");
            for (index, &call) in program.calls.iter().enumerate() {
                let spec = &scenario.calls[call as usize];
                let completion = schedule.fate(rank, index).map(|fate| fate.completion);
                let right = match spec.outcome {
                    Outcome::NeverEntered => completion.is_none(),
                    Outcome::Pending | Outcome::Incomplete => completion == Some(Completion::Pending),
                    Outcome::Natural | Outcome::Done => matches!(completion, Some(Completion::At(_))),
                };
                assert!(right, "{} rank {rank}: {spec:?}: {completion:?}", scenario.id());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Scenario files with pieces moved, doubled or taken out are errors or other scenarios, never a panic.
    #[test]
    fn damaged_files_never_panic(file in 0_usize..8, cuts in proptest::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, 0_usize..40), 1..4)) {
        let files = corpus();
        let mut text = std::fs::read_to_string(&files[file % files.len()]).expect("readable");
        for (from, to, length) in cuts {
            let chars: Vec<char> = text.chars().collect();
            let place = |part: f64| (part * chars.len() as f64) as usize;
            let piece = &chars[place(from)..(place(from) + length).min(chars.len())];
            let (head, tail) = chars.split_at(place(to));
            // Take something out where the piece is put in, so that all kinds of damage come up.
            let tail = &tail[(length % 3).min(tail.len())..];
            text = head.iter().chain(piece).chain(tail).collect();
        }
        for scenario in parse("damaged.yaml", &text).unwrap_or_default() {
            _ = to_traces(&scenario);
        }
    }
}

/// 20 micro-steps of 4 calls every 40 ms, then the one that differs.
#[test]
fn h1_by_hand() {
    let traces = to_traces(&scenario("H1")).expect("possible");
    assert_eq!(traces.len(), 8);
    let (rank0, rank6) = (&traces[0], &traces[6]);
    assert_eq!((rank0.calls.len(), rank6.calls.len()), (81, 81));
    let first = &rank0.calls[0];
    assert_eq!((first.op, first.count, first.dtype), (Op::AllReduce, Some(6_553_600), DType::Basic(Basic::F32)));
    assert_eq!((first.redop, first.seq, first.thread_seq), (RedOp::Predefined(Reduction::Sum), Some(0), 0));
    assert_eq!((first.enter, first.exit), (40 * MS, Some(40 * MS + 10_000)));
    assert_eq!((first.completion, first.result), (Completion::At(41 * MS), Some(0)));
    let (last0, last6) = (&rank0.calls[80], &rank6.calls[80]);
    assert_eq!((last0.op, last0.seq, last0.enter), (Op::Barrier, Some(80), 81 * 40 * MS));
    assert_eq!((last6.op, last6.seq, last6.enter), (Op::AllReduce, Some(80), 81 * 40 * MS));
    assert_eq!((last0.completion, last0.exit), (Completion::Pending, Some(81 * 40 * MS + 10_000)));
    // Everybody waits, so the recorder looked 60 s after the last entry.
    assert_eq!((rank0.states[0].at, &rank0.states[0].life), ((81 * 40 + 60_000) * MS, &Life::Waiting));
    let comm = rank0.comm(last0.comm).expect("defined");
    assert_eq!((comm.name.as_str(), comm.level, comm.library.as_str()), ("world", Level::Framework, "c10d"));
    assert_eq!((comm.provenance, comm.size, comm.my_rank), (Provenance::Declared, Some(8), Some(0)));
    assert_eq!(comm.identity, rank6.comms[0].identity);
    let frames = &rank0.site(first.site).expect("defined").frames;
    assert_eq!(frames.iter().map(|frame| frame.function.as_str()).collect::<Vec<_>>(), ["train_step", "gen_backward"]);
    assert!(frames.iter().all(|frame| frame.kind == FrameKind::Text));
    let healthy = to_traces(&scenario("H1-control")).expect("possible");
    assert_eq!((healthy[6].states[0].at, &healthy[6].states[0].life), (4000 * MS, &Life::Exited(0)));
    assert_eq!(healthy[6].calls[81].completion, Completion::At(82 * 40 * MS + MS));
}

#[test]
fn h1c_has_only_what_the_library_level_saw() {
    let traces = to_traces(&scenario("H1c")).expect("possible");
    let last = &traces[0].calls[80];
    assert_eq!((last.op, last.count, last.redop), (Op::AllReduce, Some(1), RedOp::Predefined(Reduction::Sum)));
    assert_eq!(traces[0].comms.len(), 1, "no framework group where no framework call was seen");
    assert_eq!((traces[0].comms[0].library.as_str(), traces[0].comms[0].level), ("nccl", Level::Library));
    assert!(traces[0].comms[0].semantics.contains(Semantics::BARRIER_IS_ALL_REDUCE));
    let missing = to_traces(&scenario("H1b")).expect("possible");
    assert_eq!(missing.iter().map(|trace| trace.ranks[0].rank).collect::<Vec<_>>(), [0, 6]);
    assert_eq!(missing[1].calls[79].completion, Completion::At(80 * 40 * MS + MS), "absent ranks did their part");
}

#[test]
fn h2_control_sleeps_and_completes_when_the_last_came() {
    let traces = to_traces(&scenario("H2-control")).expect("possible");
    let (late, waiting) = (&traces[0].calls[150], &traces[1].calls[150]);
    assert_eq!((late.enter, waiting.enter), ((151 * 30 + 95_000) * MS, 151 * 30 * MS));
    assert_eq!(waiting.completion, Completion::At((151 * 30 + 95_001) * MS));
    assert_eq!(late.completion, waiting.completion);
    let two = to_traces(&scenario("H2")).expect("possible");
    assert_eq!((two[0].calls[150].op, two[0].calls[150].root), (Op::Broadcast, Some(0)));
}

/// Blocking calls: 10 rounds of two; each call follows 15 ms after the completion of the one before.
#[test]
fn h5b_blocks_and_never_enters_what_comes_after() {
    let traces = to_traces(&scenario("H5b")).expect("possible");
    for trace in &traces {
        assert_eq!(trace.calls.len(), 21);
        let last = &trace.calls[20];
        assert_eq!((last.seq, last.exit, last.completion), (Some(10), None, Completion::Pending));
        assert_eq!((trace.calls[0].enter, trace.calls[0].exit), (15 * MS, Some(16 * MS)));
        assert_eq!((trace.calls[1].enter, trace.calls[19].enter), (31 * MS, (15 + 19 * 16) * MS));
        assert_eq!(last.enter, (15 + 20 * 16) * MS);
        assert!(trace.comms.iter().all(|comm| comm.library == "mpi"));
        assert!(trace.comms[0].semantics.contains(Semantics::BLOCKING | Semantics::NONBLOCKING_DISTINCT));
        assert_eq!(trace.comms.len(), 2, "tp and dp");
    }
    let dp1 = traces[3].comms.iter().find(|comm| comm.name == "dp1").expect("rank 3 is in dp1");
    assert_eq!((&dp1.members[..], dp1.my_rank), (&[1, 3][..], Some(1)));
    assert_eq!(to_traces(&scenario("H5b-control")).expect("possible")[2].calls.len(), 22);
}

#[test]
fn h6_evidence_and_ends() {
    let traces = to_traces(&scenario("H6")).expect("possible");
    assert_eq!(traces[0].calls.len(), 1);
    assert_eq!(traces[1].calls.iter().map(|call| call.enter).collect::<Vec<_>>(), [2000 * MS, 10_000 * MS]);
    let thread = &traces[0].threads[0];
    assert_eq!((thread.name.as_str(), thread.cpu_ms, thread.children), ("main", Some(585_000), Some(32)));
    assert_eq!((thread.at, thread.tid, thread.since_ms), (600_000 * MS, traces[0].key.pid, Some(10_000)));
    assert_eq!((&traces[0].states[0].life, traces[0].states[0].at), (&Life::Running, 600_000 * MS));
    let aborted = &to_traces(&scenario("H6b")).expect("possible")[3];
    assert_eq!(aborted.states[0].life, Life::Signaled { signal: 6, by: EndedBy::Watchdog });
    assert_eq!((aborted.states[0].at, aborted.logs[0].at), (1_810_000 * MS, 1_810_000 * MS));
    assert_eq!(aborted.calls[1].completion, Completion::Pending);
}

#[test]
fn h7_creation_makes_the_group() {
    let traces = to_traces(&scenario("H7")).expect("possible");
    let call = &traces[0].calls[0];
    assert_eq!(
        (call.op, call.count, call.enter, call.completion),
        (Op::CommInit, Some(8), 136_000 * MS, Completion::Pending)
    );
    let made = traces[0].comm(call.made).expect("defined");
    assert_eq!((made.name.as_str(), made.provenance, call.seq), ("world", Provenance::Created, None));
    assert!(traces[2].comms.is_empty() && traces[2].calls.is_empty(), "nobody made it there");
    assert_eq!((traces[2].threads[0].request, traces[2].threads[0].times), (Some(0xc010_4b05), Some(27)));
    assert_ne!(traces[0].threads[1].tid, traces[0].key.pid);
    let healthy = to_traces(&scenario("H7-control")).expect("possible");
    assert_eq!(healthy[0].calls[0].completion, Completion::At(140_001 * MS));
    assert_eq!(healthy[0].calls[1].comm, healthy[0].calls[0].made);
}

#[test]
fn h8b_pairs_messages_and_keeps_vectors() {
    let traces = to_traces(&scenario("H8b")).expect("possible");
    let first = &traces[1].calls[0];
    assert_eq!((first.op, &first.sends[..], &first.recvs[..]), (Op::AllToAll, &[2, 4][..], &[1, 4][..]));
    let send = &traces[1].calls[2];
    assert_eq!((send.op, send.peer, send.seq), (Op::Send, Some(1), Some(0)));
    let recv = &traces[3].calls[0];
    assert_eq!((recv.op, recv.peer, recv.enter), (Op::Recv, Some(0), 10 * MS));
    assert_eq!(
        (send.enter, send.completion, recv.completion),
        (30 * MS, Completion::At(31 * MS), Completion::At(31 * MS))
    );
    assert_eq!(traces[1].calls[4 * 23 + 2].seq, Some(23));
    let ep0 = traces[0].comms.iter().find(|comm| comm.name == "ep0").expect("rank 0 is in ep0");
    assert_eq!(ep0.desc, "expert_parallel");
    // Four calls and a sleep of 10 ms, every 10 ms: the second round begins at 60 ms.
    assert_eq!(traces[0].calls[4].enter, 60 * MS);
}

/// 390 calls every 50 ms; rank 2 is seen from 5,000 ms on, rank 3 lacks calls 121 to 177.
#[test]
fn h8c_gaps() {
    let traces = to_traces(&scenario("H8c")).expect("possible");
    assert_eq!(traces[0].calls.len(), 390);
    let late = &traces[2];
    assert_eq!((late.calls.len(), late.calls[0].enter, late.calls[0].seq), (390 - 99, 5000 * MS, None));
    assert_eq!(late.calls[0].thread_seq, 0);
    let cause = GapCause::LateAttach;
    assert_eq!(late.gaps, [Gap { cause, before: 5000 * MS, ..Gap::default() }]);
    let lossy = &traces[3];
    assert_eq!(lossy.calls.len(), 390 - 57);
    assert_eq!((lossy.calls[119].seq, lossy.calls[120].seq, lossy.calls[120].thread_seq), (Some(119), Some(177), 177));
    let expected = Gap {
        cause: GapCause::RingFull,
        thread: lossy.key.pid,
        first_thread_seq: 120,
        events: Some(57),
        after: 120 * 50 * MS,
        before: 178 * 50 * MS,
    };
    assert_eq!(lossy.gaps, [expected]);
}

#[test]
fn torn_files_offsets_and_attributes() {
    let text = "id: T\nworld: 2\nstep_ms: 10\ngroups: {world: [0, 1]}\nstreams:\n  \"0-1\":\n    - repeat: 10\n      mark: step\n      \
                mark_from: 5\n      do: [all_reduce 4 f32 @world a.py:3:f arg=w]\ntruncated: {\"1\": 45}\nclock_offset_ms: {\"0\": -7}\n\
                rank_info: {\"0-1\": {host: [a, b], numa: 1, local_rank: 0}}\nend: {\"0\": {signal: 9, t: 99, by: oom_killer}, \"1\": alive_running}";
    let traces = traces(text);
    assert_eq!((traces[0].calls[0].enter, traces[1].calls[0].enter), (10 * MS, 17 * MS), "none can be before 0");
    assert_eq!((traces[1].calls.len(), traces[1].steps.len(), traces[1].closed), (4, 4, false));
    assert_eq!((traces[1].steps[0].step, traces[1].steps[3].first_thread_seq), (5, 3));
    assert_eq!(traces[1].gaps, [Gap { cause: GapCause::Torn, after: 52 * MS, before: u64::MAX, ..Gap::default() }]);
    assert_eq!(traces[1].key.host, "b");
    assert_eq!((traces[0].attributes.len(), traces[0].ranks[0].local_rank), (3, Some(0)));
    assert_eq!(traces[0].labels, [(1, "w".to_owned())]);
    // The kill is said to be at 99 ms, but the last call was made at 100 ms and returned: the end moves after it.
    assert_eq!((traces[0].states[0].at, traces[0].calls[9].exit), (101_010_000, Some(100_010_000)));
    assert_eq!(traces[0].calls[9].completion, Completion::At(101 * MS), "before the end at 101.01 ms");
    let frame = &traces[0].sites[0].frames[0];
    assert_eq!((frame.file.as_str(), frame.line, frame.function.as_str()), ("a.py", 3, "f"));
}

#[test]
fn flags_say_how_calls_end() {
    let traces = small(
        true,
        2,
        "  \"0\": [iall_reduce 1 f32 @world s, all_reduce 1 f32 @world s done, barrier - - @world s error=15,\n      \
         all_reduce 1 f32 @world s captured, all_reduce 1 f32 @world s dur=20, all_reduce 1 f32 @world s incomplete]\n  \
         \"1\": [iall_reduce 1 f32 @world s, all_reduce 2 f32 @world s done, sleep_ms: 100,\n      \
         all_reduce 1 f32 @world s done, all_reduce 1 f32 @world s, all_reduce 1 f32 @world s, barrier - - @world s]\n",
    );
    let calls = &traces[0].calls;
    assert_eq!(calls.len(), 6);
    assert!(calls[0].flags.contains(CallFlags::NONBLOCKING));
    assert_eq!((calls[0].exit, calls[0].completion), (Some(10 * MS + 10_000), Completion::At(11 * MS)));
    assert_eq!((calls[1].enter, calls[1].exit, calls[1].flags), (20 * MS, Some(21 * MS), CallFlags::DONE));
    // Rank 1's third call is an all_reduce at 131 ms: the barrier ends with its error 1 ms later.
    assert_eq!((calls[2].enter, calls[2].exit, calls[2].result), (31 * MS, Some(132 * MS), Some(15)));
    assert_eq!((calls[3].seq, calls[3].flags, calls[3].completion), (None, CallFlags::CAPTURED, Completion::Unknown));
    assert_eq!((calls[4].enter, calls[4].seq, calls[4].exit), (152 * MS, Some(3), Some(172 * MS)));
    assert_eq!(traces[1].calls[3].exit, Some(153 * MS), "a long call is long for its own rank only");
    assert_eq!((calls[5].enter, calls[5].exit, calls[5].flags), (182 * MS, None, CallFlags::INCOMPLETE));
    assert_eq!((calls[5].completion, traces[1].calls[4].exit), (Completion::Pending, Some(183 * MS)));
    assert_eq!((traces[1].calls[5].seq, traces[1].calls[5].exit), (Some(5), None), "rank 0 never comes to it");
}

#[test]
fn batches_have_numbers_and_enter_at_once() {
    let batch = "{group_call: [send 4 f32 @world s peer=%, recv 4 f32 @world s peer=%]}";
    let (zero, one) = (batch.replace('%', "1"), batch.replace('%', "0"));
    let traces = small(
        true,
        2,
        &format!("  \"0\": [{zero}, barrier - - @world s, {zero}]\n  \"1\": [{one}, barrier - - @world s, {one}]\n")
            .replace("[send", "[\"send")
            .replace(", recv", "\", \"recv")
            .replace("]}", "\"]}"),
    );
    let shape: Vec<(Op, u32, u64, Option<u64>)> =
        traces[0].calls.iter().map(|call| (call.op, call.group, call.enter / MS, call.seq)).collect();
    let expected = [
        (Op::Send, 1, 10, Some(0)),
        (Op::Recv, 1, 10, Some(0)),
        (Op::Barrier, 0, 21, Some(0)),
        (Op::Send, 2, 32, Some(1)),
        (Op::Recv, 2, 32, Some(1)),
    ];
    assert_eq!(shape, expected);
    assert!(traces[0].calls[0].flags.contains(CallFlags::GROUPED));
    assert!(traces[0].calls.iter().all(|call| matches!(call.completion, Completion::At(_))));
}

#[test]
fn splits_make_the_group_of_their_colour() {
    let text = "id: T\nworld: 4\nblocking: true\ngroups:\n  world: [0,1,2,3]\n  even: {ranks: [0,2], created_by: split, parent: world, color: 0}\n  \
                odd: {ranks: [3,1], created_by: split, parent: world, color: 1}\nstreams:\n  \
                \"0,2\": [comm_split - - @world s color=0 key=5, all_reduce 1 f32 @even s, comm_free - - @even s]\n  \
                \"1,3\": [comm_split - - @world s color=1, broadcast 1 f32 @odd s root=1]\n";
    let traces = traces(text);
    let split = &traces[3].calls[0];
    let (world, odd) = (traces[3].comm(split.comm).expect("world"), traces[3].comm(split.made).expect("odd"));
    assert_eq!((world.name.as_str(), odd.name.as_str(), split.tag, split.seq), ("world", "odd", Some(1), Some(0)));
    assert_eq!((odd.provenance, odd.parent, odd.ordinal, odd.color), (Provenance::Created, world.id, 0, Some(1)));
    assert_eq!((&odd.members[..], odd.my_rank, traces[3].calls[1].root), (&[3, 1][..], Some(0), Some(1)));
    assert_eq!(traces[0].comms.iter().find(|comm| comm.name == "even").expect("made").key, Some(5));
    let free = &traces[0].calls[2];
    assert_eq!((free.op, free.comm, free.seq), (Op::CommFree, traces[0].calls[0].made, None));
    assert_eq!(traces[0].comms.len(), 2, "rank 0 knows nothing of the odd ranks' group");
}

#[test]
fn levels_are_communicators_of_their_own() {
    let traces = small(
        false,
        2,
        "  \"0-1\": [barrier 1 f32 @world s, barrier 1 f32 @world s level=nccl, barrier 1 f32 @world s level=gloo]\n",
    );
    let libraries: Vec<&str> = traces[1].comms.iter().map(|comm| comm.library.as_str()).collect();
    assert_eq!(libraries, ["c10d", "nccl", "gloo"]);
    assert!(traces[1].calls.iter().all(|call| call.seq == Some(0)));
    assert_eq!(traces[1].comms[2].level, Level::Transport);
    assert_ne!(traces[1].comms[0].identity, traces[1].comms[1].identity);
}

/// Two threads of one rank: the one that waits does not hold the other.
#[test]
fn threads_block_alone() {
    let traces = small(
        true,
        2,
        "  \"0\": [barrier - - @world s, all_reduce 1 f32 @world s thread=bg, barrier - - @world s]\n  \
         \"1\": [sleep_ms: 500, barrier - - @world s, all_reduce 1 f32 @world s thread=7, barrier - - @world s]\n",
    );
    let times: Vec<(u64, Option<u64>)> = traces[0].calls.iter().map(|call| (call.enter / MS, call.seq)).collect();
    assert_eq!(times, [(10, Some(0)), (20, Some(1)), (521, Some(2))]);
    assert_eq!(traces[0].calls[1].thread_seq, 0);
    assert_eq!((traces[1].calls[1].thread, traces[1].calls[0].thread), (7, traces[1].key.pid));
}

#[test]
fn derived_types_match_by_what_they_transfer() {
    let traces = small(
        true,
        2,
        "  \"0\": [all_reduce 2 type:pair:2xf32 @world s, send 1 type:cell:96 @world s peer=1]\n  \
         \"1\": [all_reduce 4 f32 @world s, recv 12 f64 @world s peer=0]\n",
    );
    assert!(traces.iter().flat_map(|trace| &trace.calls).all(|call| call.exit.is_some()));
    assert_eq!(traces[0].types[0].runs, [(Basic::F32, 2)]);
    assert_eq!((traces[0].types[1].size, traces[0].calls[1].dtype), (Some(96), DType::Derived(2)));
}

#[test]
fn errors_name_file_document_and_text() {
    let base = "id: A\nworld: 2\ngroups: {world: [0, 1]}\n";
    let ok = "id: B\nworld: 1\ngroups: {world: [0]}\nstreams: {\"0\": []}\n---\n";
    for (rest, line, part) in [
        ("streams: {\"0-1\": [all_reduce 4 f31 @world s]}", 9, "f31"),
        ("streams: {\"0-1\": [all_reduce 4 f32 @wrld s]}", 9, "wrld"),
        ("streams: {\"0-1\": [broadcast 4 f32 @world s root=2]}", 9, "root=2"),
        ("streams: {\"0\": []}", 9, "without a stream"),
        ("streams: {\"0-1\": [], \"1\": []}", 9, "twice"),
        ("streams: {\"0-2\": []}", 9, "world of 2"),
        ("streams: {\"0-1\": [{repeat: -1, do: []}]}", 9, "negative"),
        ("streams: {\"0-1\": [{repeat: 1}]}", 9, "do:"),
        ("streams: {\"0-1\": [{sleep: 1}]}", 9, "sleep"),
        ("streams: {\"0-1\": []}\nspeed: 1", 10, "speed"),
        ("streams: {\"0-1\": []}\nend: {\"0\": dead}", 10, "dead"),
        ("streams: {\"0-1\": []}\nend: {\"0\": {exited: 0, signal: 1}}", 10, "either"),
        ("streams: {\"0-1\": []}\nrank_info: {\"0-1\": {host: [a]}}", 10, "1 values for 2 ranks"),
        ("streams: {\"0-1\": []}\nevidence: {\"0\": {threads: [{state: lazy}]}}", 10, "lazy"),
        ("streams: {\"0-1\": []}\nblocking: maybe", 10, "maybe"),
        ("streams: {\"0-1\": []}\nstep_ms: -1", 10, "step_ms"),
    ] {
        let error = parse("jobs.yaml", &format!("{ok}{base}{rest}")).expect_err(rest);
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("jobs.yaml:{line}: document A: ")), "{shown}");
        assert!(shown.contains(part), "{shown}");
    }
    let twice = format!("{ok}{ok}").trim_end_matches("---\n").to_owned();
    assert!(parse("x", &twice).expect_err("one id for two").to_string().contains("another document"));
    let outside = "id: A\nworld: 2\ngroups: {half: [0]}\nstreams: {\"0-1\": [barrier - - @half s]}";
    assert!(parse("x", outside).expect_err("no member").to_string().contains("rank 1 is no member"));
    let circle =
        "id: A\nworld: 1\ngroups: {a: {ranks: [0], parent: b}, b: {ranks: [0], parent: a}}\nstreams: {\"0\": []}";
    assert!(parse("x", circle).expect_err("a circle").to_string().contains("circle"));
    let back = "id: A\nworld: 1\ngroups: {a: [0]}\nstreams: {\"0\": [barrier - - @a s t=50, barrier - - @a s t=20]}";
    let error = to_traces(&parse("x", back).expect("valid")[0]).expect_err("time runs back");
    assert!(error.to_string().starts_with("x: document A: rank 0: 'barrier @a s' has t=20"), "{error}");
    assert!(load(Path::new("/nonexistent/x.yaml")).expect_err("no file").to_string().contains("cannot be read"));
}

#[test]
fn hostile_sizes_are_refused_at_once() {
    let job = |streams: &str| {
        parse("x", &format!("id: A\nworld: 8\ngroups: {{w: [0,1,2,3,4,5,6,7]}}\nstreams: {{\"0-7\": {streams}}}"))
    };
    let nested = format!(
        "{}{}",
        "[{repeat: 9000000000000000000, do: ".repeat(12),
        "[barrier - - @w s]".to_owned() + &"}]".repeat(12)
    );
    for streams in [
        "[{repeat: 9000000000000000000, do: [barrier - - @w s]}]",
        "[{repeat: 9000000000000000000, do: [{sleep_ms: 1}]}]",
        "[{repeat: 9000000000000000000, do: []}]",
        "[{repeat: 1300000, do: [barrier - - @w s]}]",
        "[{repeat: 99999, do: [\"all_to_all - f32 @w s splits=[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8]\"]}]",
        &nested,
    ] {
        let error = job(streams).expect_err("too large").to_string();
        assert!(error.contains("calls of all ranks together"), "{error}");
    }
    let deep = format!("{}{}", "[{repeat: 1, do: ".repeat(25), "[]".to_owned() + &"}]".repeat(25));
    assert!(job(&deep).expect_err("too deep").to_string().contains("nested"));
    for world in ["0", "65537", "99999999999999999999", "-1"] {
        let text = format!("id: A\nworld: {world}\ngroups: {{w: [0]}}\nstreams: {{}}");
        assert!(parse("x", &text).expect_err(world).to_string().contains("world"));
    }
    let many: String = (0..70).map(|index| format!("  g{index}: 0-65535\n")).collect();
    let text = format!("id: A\nworld: 65536\ngroups:\n{many}streams: {{}}");
    assert!(parse("x", &text).expect_err("too many members").to_string().contains("members"));
    let text = "id: A\nworld: 65536\ngroups: {w: 0-65535}\nstreams: {0-65535: []}";
    let error = to_traces(&parse("x", text).expect("valid")[0]).expect_err("2^32 members").to_string();
    assert!(error.contains("4294967296"), "{error}");
    let text = "id: A\nworld: 1\ngroups: {w: [0]}\nstreams: {\"0\": [{repeat: 2000001, do: [barrier - - @w s]}]}";
    let error = to_traces(&parse("x", text).expect("valid")[0]).expect_err("memory").to_string();
    assert!(error.contains("write it to a directory"), "{error}");
}

/// The right answers of a scenario are nowhere in what is built from it.
#[test]
fn the_verdict_is_not_kept() {
    let text = "id: A\nworld: 1\ngroups: {w: [0]}\nverdict: {class: xyzzy_secret, must_say: [xyzzy_secret]}\nstreams: {\"0\": []}";
    let scenarios = parse("x", text).expect("valid");
    let traces = to_traces(&scenarios[0]).expect("possible");
    assert!(!format!("{scenarios:?}{traces:?}").contains("xyzzy_secret"));
}
