//! Jobs over the NCCL API, the library shared or inside the program: every fault gets its verdict, every healthy job
//! gets none. Calls return at once here; a rank that hangs sits in a wait for its stream.

use rankdiff_tests::examples::{Flavour, slot};
use rankdiff_tests::random::Random;
use rankdiff_tests::{is_privileged, repetitions, report};

use crate::jobs::{At, Case, Drawn, Who, all_well, check_faulty, check_healthy};

const FAULTY: &[Case] = &[
    Case { name: "op", classes: DIVERGENCE, what: None, at: At::Difference, who: Who::OddOneOut, codes: HANGS },
    Case {
        name: "count",
        classes: PARAMETER,
        what: Some("count"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: HANGS,
    },
    Case {
        name: "off_by_one",
        classes: PARAMETER,
        what: Some("count"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: ENDS,
    },
    Case {
        name: "dtype",
        classes: PARAMETER,
        what: Some("dtype"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: ENDS,
    },
    Case {
        name: "redop",
        classes: PARAMETER,
        what: Some("redop"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: ENDS,
    },
    Case {
        name: "root",
        classes: PARAMETER,
        what: Some("root"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: &[0, 124],
    },
    Case {
        name: "root_hang",
        classes: PARAMETER,
        what: Some("root"),
        at: At::Difference,
        who: Who::OddOneOut,
        codes: HANGS,
    },
    Case {
        name: "missing",
        classes: DIVERGENCE,
        what: None,
        at: At::Difference,
        who: Who::OddOneOut,
        codes: &[0, 124],
    },
    Case { name: "early_exit", classes: &["uneven_inputs"], what: None, at: At::End, who: Who::Blamed, codes: HANGS },
    Case { name: "killed", classes: &["rank_failed"], what: None, at: At::End, who: Who::Failed, codes: HANGS },
    Case { name: "group", classes: MESSAGES, what: None, at: At::Nowhere, who: Who::Party, codes: HANGS },
    Case { name: "send_recv", classes: MESSAGES, what: None, at: At::Nowhere, who: Who::Party, codes: HANGS },
    Case {
        name: "ungrouped",
        classes: &["p2p_deadlock"],
        what: None,
        at: At::Nowhere,
        who: Who::AllInCircle,
        codes: HANGS,
    },
    Case {
        name: "split",
        classes: &["group_creation"],
        what: None,
        at: At::Nowhere,
        who: Who::MissingCaller,
        codes: HANGS,
    },
    Case {
        name: "comm_order",
        classes: &["order_inversion"],
        what: None,
        at: At::Nowhere,
        who: Who::Party,
        codes: HANGS,
    },
];

const DIVERGENCE: &[&str] = &["code_divergence"];
const PARAMETER: &[&str] = &["parameter_mismatch"];
const MESSAGES: &[&str] = &["p2p_mismatch", "p2p_deadlock"];
/// The recorder ends it.
const HANGS: &[i32] = &[124];
/// It ends, with a wrong result.
const ENDS: &[i32] = &[0];

const HEALTHY: &[&str] = &["plain", "all_kinds", "premulsum", "threads"];

fn faulty(flavour: Flavour, test: &str) {
    let (true, Some(program)) = (is_privileged(test), flavour.build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(1);
    let mut complaints = Vec::new();
    for case in (0..rounds).flat_map(|_| FAULTY) {
        let _slot = slot();
        let drawn = Drawn::new(&mut random, 3..7);
        let mut job = vec![program.display().to_string()];
        job.extend(drawn.arguments(case.name));
        job.extend(["--ranks".to_owned(), drawn.ranks.to_string()]);
        complaints.extend(check_faulty(case, drawn, "4s", &job));
    }
    all_well(&complaints, rounds as usize * FAULTY.len());
    report(&format!("nccl, {flavour:?}: {} jobs with a fault, each with its verdict", rounds as usize * FAULTY.len()));
}

#[test]
fn faults_over_a_shared_library_are_found_repeated() {
    faulty(Flavour::Dynamic, "nccl_dynamic_faults");
}

#[test]
fn faults_over_a_static_library_are_found_repeated() {
    faulty(Flavour::Static, "nccl_static_faults");
}

#[test]
fn nothing_is_said_of_healthy_nccl_jobs_repeated() {
    let test = "healthy_nccl";
    let flavours = [Flavour::Dynamic, Flavour::Static];
    let [Some(dynamic), Some(inside)] = flavours.map(|flavour| flavour.build(test)) else { return };
    if !is_privileged(test) {
        return;
    }
    let mut random = Random::new(test);
    let rounds = repetitions(1);
    let mut jobs = 0;
    let mut complaints = Vec::new();
    for _ in 0..rounds {
        let twins = FAULTY.iter().map(|case| (case.name, true));
        for (number, (name, is_twin)) in HEALTHY.iter().map(|name| (*name, false)).chain(twins).enumerate() {
            let _slot = slot();
            let ranks = if number == 0 { 16 } else { 2 + random.within(0..6) };
            let drawn = Drawn::new(&mut random, ranks..ranks + 1);
            let program = if random.within(0..2) == 0 { &dynamic } else { &inside };
            let mut job = vec![program.display().to_string()];
            job.extend(drawn.arguments(name));
            job.extend(["--ranks".to_owned(), ranks.to_string()]);
            job.extend(is_twin.then(|| "--healthy".to_owned()));
            complaints.extend(check_healthy(&job));
            jobs += 1;
        }
    }
    all_well(&complaints, jobs);
    report(&format!("nccl: {jobs} jobs without a fault, nothing said"));
}
