//! MPI jobs, over both libraries: every fault gets its verdict, every healthy job gets none.

use rankdiff_tests::examples::{Mpi, slot};
use rankdiff_tests::random::Random;
use rankdiff_tests::{is_privileged, repetitions, report};

use crate::jobs::{At, Case, Drawn, Who, all_well, check_faulty, check_healthy};

/// What a launcher ends with depends on the library, and sometimes on the counts: a message may or may not fit.
/// What becomes of the job depends on the library's algorithm for that size and number of ranks: it hangs, the library
/// notices, or nobody does.
const ANY_END: &[i32] = &[0, 14, 15, 16, 124];

const FAULTY: &[Case] = &[
    case("op", "code_divergence", None, At::Difference, Who::OddOneOut, ANY_END),
    case("root", "parameter_mismatch", Some("root"), At::Difference, Who::OddOneOut, ANY_END),
    case("redop", "parameter_mismatch", Some("redop"), At::Difference, Who::OddOneOut, &[0]),
    case("dtype", "parameter_mismatch", Some("dtype"), At::Difference, Who::OddOneOut, &[0]),
    case("count", "parameter_mismatch", Some("count"), At::Difference, Who::OddOneOut, ANY_END),
    case("missing", "code_divergence", None, At::Difference, Who::OddOneOut, ANY_END),
    Case {
        classes: &["uneven_inputs", "rank_failed"],
        ..case("early_exit", "", None, At::End, Who::Blamed, &[0, 1, 9, 15, 124])
    },
    Case {
        classes: &["uneven_inputs", "code_divergence"],
        ..case("early_finalize", "", None, At::End, Who::Blamed, &[124])
    },
    case("killed", "rank_failed", None, At::End, Who::Failed, &[9, 137]),
    case("abort", "rank_failed", None, At::End, Who::Failed, &[3]),
    case("blocking_vs_nonblocking", "code_divergence", None, At::Difference, Who::OddOneOut, ANY_END),
    case("gatherv", "parameter_mismatch", Some("splits"), At::EachStep("MPI_Gatherv"), Who::Party, ANY_END),
    case("alltoallv", "parameter_mismatch", Some("splits"), At::EachStep("MPI_Alltoallv"), Who::Party, ANY_END),
    case("comm_order", "order_inversion", None, At::Nowhere, Who::InCircle, &[124]),
];

const HEALTHY: &[&str] = &[
    "plain",
    "in_place",
    "vforms",
    "insignificant",
    "split",
    "dup",
    "intercomm",
    "userop",
    "zero",
    "nonblocking",
    "persistent",
    "derived",
    "create_group",
    "cart",
];

const fn case(
    name: &'static str,
    class: &'static str,
    what: Option<&'static str>,
    at: At,
    who: Who,
    codes: &'static [i32],
) -> Case {
    // A list of one class has to live somewhere.
    let classes: &'static [&'static str] = match class.as_bytes() {
        b"code_divergence" => &["code_divergence"],
        b"parameter_mismatch" => &["parameter_mismatch"],
        b"order_inversion" => &["order_inversion"],
        b"rank_failed" => &["rank_failed"],
        _ => &[],
    };
    Case { name, classes, what, at, who, codes }
}

fn faulty(mpi: Mpi, test: &str) {
    let (true, Some(program)) = (is_privileged(test), mpi.flavour().build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(1);
    let mut complaints = Vec::new();
    for case in (0..rounds).flat_map(|_| FAULTY) {
        let _slot = slot();
        let drawn = Drawn::new(&mut random, 3..6);
        let mut job = mpi.launcher(drawn.ranks);
        job.push(program.display().to_string());
        job.extend(drawn.arguments(case.name));
        complaints.extend(check_faulty(case, drawn, "6s", &job));
    }
    all_well(&complaints, rounds as usize * FAULTY.len());
    report(&format!("{mpi:?}: {} jobs with a fault, each with its verdict", rounds as usize * FAULTY.len()));
}

fn healthy(mpi: Mpi, test: &str) {
    let (true, Some(program)) = (is_privileged(test), mpi.flavour().build(test)) else { return };
    let mut random = Random::new(test);
    let rounds = repetitions(1);
    let mut jobs = 0;
    let mut complaints = Vec::new();
    for _ in 0..rounds {
        let twins = FAULTY.iter().map(|case| (case.name, true));
        // The first has the most ranks, and one of the others has one more than it is usual.
        for (number, (name, is_twin)) in HEALTHY.iter().map(|name| (*name, false)).chain(twins).enumerate() {
            let _slot = slot();
            let ranks = if number == 0 { 16 } else { 2 + random.within(0..4) };
            let drawn = Drawn::new(&mut random, ranks..ranks + 1);
            let mut job = mpi.launcher(ranks);
            job.push(program.display().to_string());
            job.extend(drawn.arguments(name));
            job.extend(is_twin.then(|| "--healthy".to_owned()));
            complaints.extend(check_healthy(&job));
            jobs += 1;
        }
    }
    all_well(&complaints, jobs);
    report(&format!("{mpi:?}: {jobs} jobs without a fault, nothing said"));
}

#[test]
fn mpich_faults_are_found_repeated() {
    faulty(Mpi::Mpich, "mpich_faults");
}

#[test]
fn openmpi_faults_are_found_repeated() {
    faulty(Mpi::OpenMpi, "openmpi_faults");
}

#[test]
fn nothing_is_said_of_healthy_mpich_jobs_repeated() {
    healthy(Mpi::Mpich, "healthy_mpich");
}

#[test]
fn nothing_is_said_of_healthy_openmpi_jobs_repeated() {
    healthy(Mpi::OpenMpi, "healthy_openmpi");
}
