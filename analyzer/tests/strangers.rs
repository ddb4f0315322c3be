//! Communicators of which nobody lists the members, where one member has no trace: who has which place is known only as far
//! as the others told it, and nothing is made up for the rest.

use rankdiff_analyzer::finding::Class;
use rankdiff_analyzer::{Options, Report, analyze};

use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;
use rankdiff_trace::{CallFlags, Op, ProcessTrace};

/// A job whose rank 1 has no trace, on a communicator in which the ranks' places are not their numbers.
fn traces(streams: &str, end: &str) -> Vec<ProcessTrace> {
    let text = format!(
        "id: strangers\nworld: 5\ngroups: {{part: {{ranks: [3,1,2,4], level: nccl}}}}\nmissing_files: \"1\"\nsnapshot_t: 60000\n\
         streams:\n  \"0\": []\n{streams}end: {end}\nverdict: {{class: clean}}\n"
    );
    let scenarios = parse("strangers.yaml", &text).expect("the scenario is right");
    let mut traces = to_traces(&scenarios[0]).expect("it can be played");
    for def in traces.iter_mut().flat_map(|trace| &mut trace.comms) {
        def.members.clear();
    }
    traces
}

fn report(streams: &str, end: &str) -> Report {
    analyze(traces(streams, end), &Options::default())
}

#[test]
fn a_message_from_who_has_no_trace_is_expected_from_nobody_else() {
    let streams = "  \"1\": [send 8 f32 @part x peer=2]\n  \"2\": [recv 8 f32 @part x peer=1]\n  \"3-4\": []\n";
    let report = report(streams, "{\"0-4\": {exited: 0, t: 900}}");
    assert_eq!(report.class, Class::Clean, "{:#?}", report.findings);
}

#[test]
fn a_receive_from_anybody_may_have_taken_what_was_not_recorded() {
    // Rank 2 takes a message of rank 1 from anybody; the one from rank 4 is on its way.
    let streams = "  \"1\": [send 8 f32 @part x peer=2]\n  \"2\": [recv 8 f32 @part x peer=1, recv 8 f32 @part y peer=4 pending]\n  \
                   \"3\": []\n  \"4\": [send 8 f32 @part y peer=2 pending]\n";
    let mut traces = traces(streams, "{\"1-4\": alive_waiting, \"0\": alive_running}");
    let taken =
        traces.iter_mut().flat_map(|trace| &mut trace.calls).find(|call| call.op == Op::Recv).expect("there is one");
    (taken.peer, taken.seq) = (None, None);
    taken.flags = taken.flags.with(CallFlags::ANY_SOURCE);
    let found = analyze(traces, &Options::default());
    assert!(found.findings.iter().all(|finding| finding.late.is_empty()), "rank 4 has come: {:#?}", found.findings);
}

#[test]
fn that_all_members_entered_is_not_claimed_of_some() {
    let found = report(
        "  \"1\": []\n  \"2-4\": [all_reduce 8 f32 @part x pending]\n",
        "{\"2-4\": alive_waiting, \"0-1\": alive_running}",
    );
    assert_eq!(found.class, Class::Unknown, "{:#?}", found.findings);
    let text: Vec<&String> = found.findings.iter().flat_map(|finding| &finding.detail).collect();
    assert!(text.iter().any(|line| line.contains("1 more member")), "{text:?}");
    assert!(found.findings.iter().all(|finding| finding.suspects.is_empty()));
}

#[test]
fn places_that_were_told_still_pair() {
    // Rank 2 has place 2 and rank 4 place 3.
    let streams = "  \"1\": []\n  \"2\": [send 8 f32 @part x peer=4 pending]\n  \"3\": []\n  \"4\": [recv 4 f32 @part x peer=2 pending]\n";
    let found = report(streams, "{\"1-4\": alive_waiting, \"0\": alive_running}");
    assert_eq!(found.class, Class::P2pMismatch, "{:#?}", found.findings);
}
