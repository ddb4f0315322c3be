//! Canonical reports: one of each shape that a renderer must do well.

use rankdiff_analyzer::finding::{
    CallText, Class, ClockJoin, Confidence, Coverage, Evidence, Finding, GroupRef, Report, Severity, Side,
    StepPosition, Whom, WindowRow,
};
use rankdiff_trace::{CommIdentity, Frame, FrameKind, RankSet};

/// A report and the name of its golden files.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) report: Report,
}

pub(crate) fn all() -> Vec<Case> {
    let case = |name, report| Case { name, report };
    vec![
        case("op-mismatch", op_mismatch()),
        case("even-split", even_split()),
        case("hidden-shift", hidden_shift()),
        case("object-collective", object_collective()),
        case("parameter-mismatch", parameter_mismatch()),
        case("straggler", straggler()),
        case("driver-stall", driver_stall()),
        case("rank-failed", rank_failed()),
        case("wait-cycle", wait_cycle()),
        case("unmatched-send", unmatched_send()),
        case("unknown", unknown()),
        case("clean", clean()),
        case("clean-with-gaps", clean_with_gaps()),
        case("ranks-4096", ranks_4096()),
        case("crowded", crowded()),
        case("hostile", hostile()),
    ]
}

pub(crate) fn ranks(text: &str) -> RankSet {
    text.parse().expect("a rank set")
}

pub(crate) fn finding(code: &'static str, name: &'static str, class: Class, headline: &str) -> Finding {
    Finding {
        code,
        name,
        severity: Severity::Error,
        class,
        what: None,
        group: None,
        first_divergence: None,
        first_visible: None,
        step: None,
        sides: Vec::new(),
        window: Vec::new(),
        suspects: RankSet::new(),
        waiting: RankSet::new(),
        direct_victims: RankSet::new(),
        transitive_victims: RankSet::new(),
        cycle: Vec::new(),
        stalled: RankSet::new(),
        late: RankSet::new(),
        late_ms: None,
        failed: RankSet::new(),
        missing_callers: RankSet::new(),
        collateral_exits: RankSet::new(),
        evidence: Vec::new(),
        common: Vec::new(),
        confidence: Confidence::High,
        headline: headline.to_owned(),
        detail: Vec::new(),
    }
}

fn group(name: &str, desc: &str, library: &str, members: &str) -> Option<GroupRef> {
    Some(GroupRef {
        identity: CommIdentity::root(library, name.as_bytes()),
        name: name.to_owned(),
        desc: desc.to_owned(),
        library: library.to_owned(),
        ranks: ranks(members),
    })
}

fn coverage(expected: u32, calls: u64) -> Coverage {
    Coverage {
        ranks_expected: expected as usize,
        ranks_seen: (0..expected).collect(),
        calls,
        compared: 1.0,
        attempts: 1,
        ..Coverage::default()
    }
}

pub(crate) fn report(findings: Vec<Finding>, summary: &str, coverage: Coverage) -> Report {
    let verdict = findings.iter().find(|finding| finding.severity >= Severity::Warning);
    Report {
        class: verdict.map_or(Class::Clean, |finding| finding.class),
        confidence: verdict.map_or(Confidence::High, |finding| finding.confidence),
        summary: summary.to_owned(),
        findings,
        coverage,
    }
}

fn python(function: &str, file: &str, line: u32) -> Frame {
    Frame { kind: FrameKind::Python, function: function.into(), file: file.into(), line, ..Frame::default() }
}

fn native(function: &str, module: &str, offset: u64) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: function.into(),
        module: module.into(),
        build_id: "8a1f".into(),
        offset,
        ..Frame::default()
    }
}

fn call(op: &str, count: u64, site: &str) -> CallText {
    CallText {
        op: op.into(),
        count: Some(count),
        dtype: Some("f32".into()),
        redop: op.contains("reduce").then(|| "sum".into()),
        site: site.into(),
        pending: true,
        ..CallText::default()
    }
}

fn side(set: &str, call: CallText) -> Side {
    Side { ranks: ranks(set), call: Some(call), state: String::new() }
}

fn row(position: u64, set: &str, call: CallText) -> WindowRow {
    WindowRow { position, ranks: ranks(set), call }
}

fn absent(set: &str, state: &str) -> Side {
    Side { ranks: ranks(set), call: None, state: state.to_owned() }
}

fn fact(kind: &str, set: &str, text: &str) -> Evidence {
    Evidence { kind: kind.to_owned(), ranks: ranks(set), text: text.to_owned() }
}

/// With whole stacks, as the recorder takes them.
fn stacked(call: CallText, function: &str, line: u32) -> CallText {
    let wrapper = "/opt/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py";
    let frames = vec![
        python("<module>", "/home/u/train/trainer_stage2.py", 401),
        python(function, "/home/u/train/trainer_stage2.py", line),
        python("wrapper", wrapper, 81),
        native("c10d::ProcessGroupNCCL::collective", "/opt/venv/lib/libtorch_cuda.so", 0x51c3a0),
    ];
    CallText { site: format!("<module>>{function}>wrapper"), seq: Some(80), frames, ..call }
}

fn op_mismatch() -> Report {
    let mut d = finding(
        "D001",
        "op-mismatch",
        Class::CodeDivergence,
        "call 80 differs: 7 ranks call barrier, rank 6 calls all_reduce",
    );
    d.group = group("process group 0", "world", "nccl", "0-7");
    (d.first_divergence, d.first_visible) = (Some(80), Some(80));
    d.step = Some(StepPosition { number: 20, call: 0, period: 4 });
    d.sides = vec![
        side("0-5,7", stacked(call("barrier", 1, ""), "_validate", 212)),
        side("6", stacked(call("all_reduce", 6_553_600, ""), "generator_backward", 148)),
    ];
    d.window = ["generator_backward", "discriminator_backward", "discriminator_backward"]
        .into_iter()
        .zip(77..)
        .map(|(function, position)| row(position, "0-7", stacked(call("all_reduce", 6_553_600, ""), function, 148)))
        .collect();
    d.suspects = ranks("6");
    d.waiting = ranks("0-5,7");
    d.direct_victims = ranks("0-5,7");
    d.detail = vec![
        "the 80 calls before it agree (20 whole steps of 4): seven ranks begin validation where rank 6 begins a 21st step"
            .into(),
        "rank 6 is one step behind; results on this group since call 80 are not to be trusted".into(),
    ];
    d.evidence = vec![fact("agreement", "0-7", "digests of calls 0-79 are equal on all 8 ranks")];
    d.common = vec!["exactly local rank 6".into()];
    report(vec![d], "call 80 on process group 0: rank 6 calls all_reduce where 7 ranks call barrier", coverage(8, 648))
}

fn even_split() -> Report {
    let mut d = finding("D001", "op-mismatch", Class::CodeDivergence, "call 80 differs: barrier against all_reduce");
    d.group = group("world", "", "nccl", "0-7");
    (d.first_divergence, d.first_visible) = (Some(80), Some(80));
    d.sides = vec![
        side("0", call("barrier", 1, "train.py:212:_validate")),
        side("6", call("all_reduce", 6_553_600, "train.py:148:train_step>gen_backward")),
    ];
    d.waiting = ranks("0,6");
    d.confidence = Confidence::Medium;
    d.detail = vec!["the 80 calls before it agree on the two ranks that were seen".into()];
    let coverage = Coverage { ranks_seen: ranks("0,6"), missing: ranks("1-5,7"), compared: 0.0, ..coverage(8, 162) };
    report(vec![d], "call 80 on world differs between ranks 0 and 6", coverage)
}

fn object_collective() -> Report {
    let mut d = finding("D001", "op-mismatch", Class::CodeDivergence, "call 12 differs: rank 2 calls all_reduce");
    d.group = group("world", "", "c10d", "0-3");
    (d.first_divergence, d.first_visible) = (Some(12), Some(12));
    let object = |count, dtype: &str, caller: &str| CallText {
        redop: None,
        dtype: Some(dtype.into()),
        root: Some(Whom::Rank(0)),
        object: Some("broadcast_object_list"),
        ..call("broadcast", count, &format!("main>{caller}>broadcast_object_list"))
    };
    d.window = vec![
        row(9, "0-3", call("all_reduce", 64, "train>step")),
        row(10, "0-3", object(3, "i64", "load")),
        row(11, "0-3", object(512, "u8", "load")),
    ];
    d.sides = vec![side("0-1,3", object(3, "i64", "save")), side("2", call("all_reduce", 64, "train>step"))];
    d.suspects = ranks("2");
    d.waiting = ranks("0-3");
    report(
        vec![d],
        "call 12 on world: rank 2 calls all_reduce where 3 ranks call broadcast_object_list",
        coverage(4, 52),
    )
}

fn hidden_shift() -> Report {
    let mut d = finding("D003", "missing-call", Class::CodeDivergence, "rank 3 lacks one all_reduce at call 240");
    d.group = group("dp1", "data_parallel", "nccl", "0-3");
    (d.first_divergence, d.first_visible) = (Some(240), Some(552));
    d.step = Some(StepPosition { number: 60, call: 0, period: 4 });
    d.sides = vec![
        side("0-2", call("all_reduce", 1024, "train.py:90:log_loss")),
        side("3", call("all_reduce", 6_553_600, "train.py:88:train_step>backward")),
    ];
    let one = |site| call("all_reduce", 1024, site);
    d.window = vec![
        row(238, "0-3", one("train.py:88:forward")),
        row(239, "0-3", one("train.py:89:backward")),
        row(240, "0-2", one("train.py:90:log_loss")),
        row(240, "3", one("train.py:88:forward")),
        row(241, "0-2", one("train.py:88:forward")),
        row(241, "3", one("train.py:89:backward")),
    ];
    d.suspects = ranks("3");
    d.waiting = ranks("0-2");
    d.detail = vec!["equal signatures hid the shift for 312 calls; from call 552 on counts differ".into()];
    d.common = vec!["host n1".into(), "the last pipeline stage".into()];
    report(vec![d], "rank 3 lacks one all_reduce at call 240 on dp1", coverage(4, 2212))
}

fn parameter_mismatch() -> Report {
    let mut d = finding(
        "D010",
        "count-mismatch",
        Class::ParameterMismatch,
        "call 12: 409600 elements against 409598 on rank 0",
    );
    d.what = Some("count");
    d.group = group("world", "", "mpi", "0-7");
    (d.first_divergence, d.first_visible) = (Some(12), Some(12));
    let done = |count| CallText {
        pending: false,
        root: Some(Whom::Rank(3)),
        ..call("reduce", count, "solve>reduce_residual")
    };
    d.sides = vec![side("1-7", done(409_600)), side("0", done(409_598))];
    d.suspects = ranks("0");
    d.detail = vec!["every call completed: results on world since call 12 are not to be trusted".into()];
    report(vec![d], "call 12 on world: rank 0 passes 409598 elements, 7 ranks 409600", coverage(8, 400))
}

fn straggler() -> Report {
    let mut s = finding("S001", "straggler", Class::Straggler, "rank 0 has not entered call 34; 7 ranks wait for it");
    s.severity = Severity::Warning;
    s.confidence = Confidence::Medium;
    s.group = group("world", "", "gloo", "0-7");
    s.sides = vec![side("1-7", call("barrier", 1, "main>after_preprocess")), absent("0", "running on the CPU")];
    s.waiting = ranks("1-7");
    s.direct_victims = ranks("1-7");
    s.late = ranks("0");
    s.late_ms = Some(1_860_000);
    s.suspects = ranks("0");
    s.evidence = vec![
        fact("thread", "0", "main thread runs datasets.map (prep.py:61), 1,812 s of CPU time in the last 1,860 s"),
        fact("thread", "0", "32 children, writing 40 times a second to *.arrow"),
    ];
    report(vec![s], "rank 0 is late by 31 min on world, still running", coverage(8, 272))
}

fn driver_stall() -> Report {
    let mut h =
        finding("H010", "driver-stall", Class::DriverStall, "ranks 2,4,6-7 repeat one failing ioctl and never arrive");
    h.group = group("world", "", "nccl", "0-7");
    h.sides = vec![
        side(
            "0-1,3,5",
            CallText {
                op: "comm_init".into(),
                pending: true,
                site: "main>barrier_after_load".into(),
                ..CallText::default()
            },
        ),
        absent("2,4,6-7", "in ioctl on /dev/gpu0"),
    ];
    h.stalled = ranks("2,4,6-7");
    h.suspects = ranks("2,4,6-7");
    h.waiting = ranks("0-1,3,5");
    h.evidence = vec![fact(
        "thread",
        "2,4,6-7",
        "ioctl 0xc0104b05 on /dev/gpu0 returns ETIMEDOUT every 10.24 s, 27 times in 277 s, below from_pretrained (train.py:41)",
    )];
    h.common = vec!["NUMA node 1".into()];
    report(vec![h], "ranks 2,4,6-7 are stalled in ioctl on /dev/gpu0", coverage(8, 4))
}

fn rank_failed() -> Report {
    let mut f = finding(
        "F001",
        "rank-failed",
        Class::RankFailed,
        "rank 2 was ended by signal 9 (out of memory) before call 1,204",
    );
    f.group = group("world", "", "nccl", "0-3");
    f.first_visible = Some(1204);
    f.sides = vec![
        side("0-1,3", call("all_gather", 65536, "train.py:88:train_step>forward")),
        absent("2", "ended by signal 9 at 14:03:22"),
    ];
    f.failed = ranks("2");
    f.suspects = ranks("2");
    f.waiting = ranks("0-1,3");
    f.direct_victims = ranks("0-1,3");
    f.collateral_exits = ranks("0-1,3");
    f.evidence = vec![
        fact("exit", "2", "signal 9, sent by the kernel's out-of-memory killer"),
        fact("exit", "0-1,3", "exit code 6, 600 s after rank 2 ended: their time-out, not their fault"),
    ];
    let coverage = Coverage { truncated: ranks("2"), ..coverage(4, 4815) };
    report(vec![f], "rank 2 was ended by signal 9 before call 1,204 on world", coverage)
}

fn wait_cycle() -> Report {
    let mut h = finding(
        "H001",
        "wait-cycle",
        Class::OrderInversion,
        "4 ranks wait for each other across tp0, dp1, tp1 and dp0",
    );
    let on = |op: &str, group: &str, site: &str| CallText {
        site: format!("train_step>{site}.{group}"),
        ..call(op, 4096, "")
    };
    h.sides = vec![
        side("0", on("all_reduce", "tp0", "forward")),
        side("1", on("all_reduce", "dp1", "reduce_grads")),
        side("3", on("all_reduce", "tp1", "forward")),
        side("2", on("all_reduce", "dp0", "reduce_grads")),
    ];
    h.cycle = vec![0, 1, 3, 2];
    h.waiting = ranks("0-3");
    h.detail = vec![
        "rank 0 waits on tp0 for rank 1, which waits on dp1 for rank 3, which waits on tp1 for rank 2, which waits on dp0 for rank 0".into(),
        "ranks 0 and 3 call tensor_parallel first, ranks 1 and 2 data_parallel first; make all ranks use one order".into(),
    ];
    report(vec![h], "ranks 0-3 wait for each other in a circle", coverage(4, 1600))
}

fn unmatched_send() -> Report {
    let mut p = finding(
        "P001",
        "unmatched-p2p",
        Class::P2pMismatch,
        "rank 1 expects 2048 elements from rank 0, which sends 1024",
    );
    p.group = group("pp0", "pipeline_parallel", "nccl", "0-1");
    let p2p = |op: &str, count, peer, tag| CallText {
        peer: Some(Whom::Rank(peer)),
        tag: Some(tag),
        ..call(op, count, "schedule>exchange")
    };
    p.sides =
        vec![side("0", p2p("send", 1024, 1, 7)), side("1", CallText { pending: false, ..p2p("recv", 2048, 0, 7) })];
    report(vec![p], "rank 1 expects 2048 elements from rank 0, which sends 1024", coverage(2, 90))
}

fn unknown() -> Report {
    let mut h = finding("H020", "not-arrived", Class::Unknown, "ranks 2,4,6-7 have not arrived, cause unknown");
    h.severity = Severity::Warning;
    h.confidence = Confidence::Low;
    h.group = group("world", "", "nccl", "0-7");
    h.sides = vec![
        side(
            "0-1,3,5",
            CallText {
                op: "comm_init".into(),
                pending: true,
                site: "main>barrier_after_load".into(),
                ..CallText::default()
            },
        ),
        absent("2,4,6-7", "alive, blocked in the kernel; no call recorded"),
    ];
    h.waiting = ranks("0-1,3,5");
    h.detail =
        vec!["no threads and no system calls were recorded: run `rankdiff dump` on the hosts of ranks 2,4,6-7".into()];
    report(vec![h], "ranks 2,4,6-7 have not arrived on world, cause unknown", coverage(8, 4))
}

fn clean() -> Report {
    report(Vec::new(), "no divergence up to call 643 (coverage 100 %)", coverage(8, 5152))
}

fn clean_with_gaps() -> Report {
    let mut note = finding("Q001", "lost-events", Class::Clean, "57 calls lost on rank 3");
    note.severity = Severity::Note;
    let coverage = Coverage {
        ranks_seen: ranks("0-6"),
        missing: ranks("7"),
        truncated: ranks("1"),
        gaps: vec![
            fact("lost", "3", "57 calls lost in a full ring buffer, after call 120 of the rank"),
            fact("attach", "2", "recorded from 5.0 s on; positions before call 412 are not known"),
        ],
        problems: vec![
            "n1-4711-99.0003.rdt at 8192: block checksum is wrong, 4,096 calls skipped; copy the file again".into(),
        ],
        compared: 0.9431,
        attempts: 2,
        clocks: Some(ClockJoin {
            clocks: 2,
            calls: 1_204,
            within_ns: Some(38_412),
            text: vec![
                "clocks of 2 nodes joined to within 38 us by 1204 collective calls".into(),
                "wall clocks of 1 node are proven wrong and were not used, by 3.2 s at least on 'n1'".into(),
            ],
        }),
        ..coverage(8, 4_412)
    };
    let mut clean = report(vec![note], "no divergence up to call 643 (coverage 94 %)", coverage);
    clean.confidence = Confidence::Medium;
    clean
}

/// Odd ranks against even ones: the worst case for compressed rank sets.
fn ranks_4096() -> Report {
    let parity = |odd: u32| (0..4096).filter(|rank| rank % 2 == odd).collect::<RankSet>();
    let mut d = finding("D001", "op-mismatch", Class::CodeDivergence, "call 9,120 differs on every odd rank but one");
    d.group = group("world", "", "nccl", "0-4095");
    (d.first_divergence, d.first_visible) = (Some(9120), Some(9120));
    let mut odd = parity(1);
    odd = odd.difference(&ranks("77"));
    d.sides = vec![
        Side { ranks: parity(0), call: Some(call("all_reduce", 1 << 20, "step>sync")), state: String::new() },
        Side { ranks: odd.clone(), call: Some(call("all_gather", 1 << 20, "step>shard")), state: String::new() },
        absent("77", "exited with code 0"),
    ];
    d.suspects = odd.union(&ranks("77"));
    d.waiting = ranks("0-76,78-4095");
    d.common = vec!["the odd ranks".into()];
    d.cycle = (0..4096).collect();
    d.evidence = (0..64)
        .map(|host| fact("host", &format!("{}-{}", host * 64, host * 64 + 63), "same code on all ranks of the host"))
        .collect();
    let gaps = (0..512)
        .map(|rank| {
            fact("lost", &(rank * 8).to_string(), "12 calls lost in a full ring buffer, after call 40 of the rank")
        })
        .collect();
    let coverage = Coverage { gaps, compared: 0.99997, ..coverage(4096, 37_355_520) };
    report(vec![d], "call 9,120 on world differs on the odd ranks", coverage)
}

/// More of everything than a screen holds.
fn crowded() -> Report {
    let mut first = op_mismatch().findings.remove(0);
    first.sides = (0_u32..16)
        .map(|rank| side(&rank.to_string(), call("all_reduce", 1000 + u64::from(rank), "loop>bucket")))
        .collect();
    first.suspects = RankSet::new();
    first.detail = (0..12).map(|n| format!("detail line {n}, which says one thing about one bucket")).collect();
    first.evidence = (0..20).map(|n| fact("thread", &n.to_string(), &format!("fact {n}"))).collect();
    let others = (0..9).map(|_| straggler().findings.remove(0));
    let findings = std::iter::once(first).chain(others).collect();
    let mut coverage = coverage(16, 1296);
    coverage.problems = (0..40).map(|n| format!("file{n}.rdt at 0: not a segment; leave it out")).collect();
    report(findings, "call 80 differs on 16 ranks", coverage)
}

/// Everything that a trace controls tries to take the terminal over.
pub(crate) fn hostile() -> Report {
    let attack = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\r\n\u{202e}ok: no divergence\u{200b}\u{2028}\x7f";
    let mut d = finding("D001", "op-mismatch", Class::CodeDivergence, &format!("call 1 differs on {attack}"));
    d.group = group(attack, attack, attack, "0-2");
    let evil = CallText {
        op: attack.into(),
        dtype: Some(attack.into()),
        redop: Some(attack.into()),
        frames: vec![python(attack, attack, 3)],
        ..call("x", 1, attack)
    };
    d.sides = vec![side("0", evil), side("1", call("all_reduce", 8, attack)), absent("2", attack)];
    d.detail = vec![attack.into(), format!("{attack} {}", "long ".repeat(4000))];
    d.evidence = vec![fact(attack, "0-1", attack), fact("log", "", &"x".repeat(100_000))];
    d.common = vec![attack.into()];
    let mut coverage = coverage(3, 3);
    coverage.gaps = vec![fact(attack, "0", attack)];
    coverage.problems = vec![attack.into()];
    report(vec![d], attack, coverage)
}
