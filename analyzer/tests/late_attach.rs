//! Records that begin in the middle, of calls that return at once: when a rank issued a call says little of which call it is.

use rankdiff_analyzer::finding::Class;
use rankdiff_analyzer::{Options, Report, analyze};
use rankdiff_trace::Completion;
use rankdiff_trace::testgen::emit::to_traces;
use rankdiff_trace::testgen::scenario::parse;

/// Four ranks that call barriers a millisecond apart, and at the end something else; rank 3 does so later. All are
/// attached to in the middle. Completions are known or not.
fn report(barriers: u32, late_ms: u32, last: [&str; 2], completions: bool) -> Report {
    let barriers = format!("{{repeat: {barriers}, do: [barrier - - @world a]}}");
    let text = format!(
        "id: late\nworld: 4\nstep_ms: 1\ngroups: {{world: {{ranks: [0,1,2,3], level: nccl}}}}\n\
         attached_at: {{\"0\": 900, \"1\": 1000, \"2\": 1100, \"3\": 1200}}\n\
         streams:\n  \"0-2\": [{barriers}, {}]\n  \"3\": [{{sleep_ms: {late_ms}}}, {barriers}, {}]\n\
         end: {{\"0-3\": alive_waiting}}\nverdict: {{class: clean}}\n",
        last[0], last[1]
    );
    let scenarios = parse("late.yaml", &text).expect("the scenario is right");
    let mut traces = to_traces(&scenarios[0]).expect("it can be played");
    if !completions {
        traces.iter_mut().flat_map(|trace| &mut trace.calls).for_each(|call| call.completion = Completion::Unknown);
    }
    analyze(traces, &Options::default())
}

#[test]
fn who_issues_its_calls_later_makes_no_other_call() {
    for completions in [false, true] {
        let last = "all_reduce 8 f32 @world b";
        let found = report(3000, 240, [last, last], completions);
        let grave: Vec<&str> = found.findings.iter().map(|finding| finding.headline.as_str()).collect();
        assert!(!matches!(found.class, Class::CodeDivergence | Class::ParameterMismatch), "{grave:?}");
    }
}

#[test]
fn completions_tell_which_call_differs() {
    let found = report(3000, 240, ["all_reduce 8 f32 @world b pending", "all_gather 8 f32 @world c pending"], true);
    assert_eq!(found.class, Class::CodeDivergence, "{:#?}", found.findings);
}

#[test]
fn a_call_from_another_line_is_the_same_call() {
    let last = ["all_reduce 8 f32 @world step>b", "all_reduce 8 f32 @world step>b_on_some"];
    let found = report(5600, 0, last, true);
    let grave: Vec<&str> = found.findings.iter().map(|finding| finding.headline.as_str()).collect();
    assert!(!matches!(found.class, Class::CodeDivergence | Class::ParameterMismatch), "{grave:?}");
}
