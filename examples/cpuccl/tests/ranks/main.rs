//! Jobs of several processes: this test binary starts itself once per rank. Each job has a limit, after which its ranks are killed.

mod data;
mod random;

use std::ffi::c_int;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, ptr, thread};

use cpuccl::api::{
    cpucclStreamQuery, cpucclStreamSynchronize, ncclCommAbort, ncclCommDestroy, ncclCommInitRank, ncclCommSplit,
    ncclGetLastError, ncclGetUniqueId, ncclGroupEnd, ncclGroupStart,
};
use cpuccl::calls::{ncclAllReduce, ncclBroadcast, ncclRecv, ncclReduce, ncclSend};
use cpuccl::comm::Comm;
use cpuccl::types::{IN_PROGRESS, SUCCESS, UniqueId};

pub(crate) const SUM: c_int = 0;
const MAX: c_int = 2;
pub(crate) const I32: c_int = 2;
const F32: c_int = 7;
/// More than a channel buffers.
const LARGE: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Hung,
}

/// Runs `scenario` on `ranks` processes for at most `limit`.
fn job(scenario: &str, ranks: usize, seed: u64, limit: Duration) -> Outcome {
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: the pointer is to a live id.
    assert_eq!(unsafe { ncclGetUniqueId(&raw mut id) }, SUCCESS);
    let id: String = id.internal.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut children: Vec<Child> = (0..ranks)
        .map(|rank| {
            Command::new(env::current_exe().expect("own path"))
                .args(["one_rank", "--exact", "--nocapture", "--test-threads=1"])
                .env("CPUCCL_TEST", scenario)
                .env("CPUCCL_TEST_RANK", rank.to_string())
                .env("CPUCCL_TEST_RANKS", ranks.to_string())
                .env("CPUCCL_TEST_SEED", seed.to_string())
                .env("CPUCCL_TEST_ID", &id)
                .stdout(Stdio::null())
                .spawn()
                .expect("start a rank")
        })
        .collect();
    let end = Instant::now() + limit;
    let mut outcome = Outcome::Passed;
    for child in &mut children {
        let status = loop {
            match child.try_wait().expect("wait for a rank") {
                None if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                status => break status,
            }
        };
        match status {
            Some(status) if status.success() => {}
            Some(_) => outcome = Outcome::Failed,
            None => {
                child.kill().expect("kill a rank");
                child.wait().expect("reap a rank");
                outcome = Outcome::Hung;
            }
        }
    }
    // A job that ends before all ranks have arrived leaves the file under its name.
    let _ = std::fs::remove_file(format!("/dev/shm/cpuccl-{}", &id[..32]));
    outcome
}

const ENOUGH: Duration = Duration::from_secs(60);
/// Long against the milliseconds that the same job takes when it is right.
const HANG: Duration = Duration::from_secs(3);

/// One rank's side of a job.
pub(crate) struct Rank {
    pub(crate) world: *const Comm,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) seed: u64,
}

/// Fails with the library's own words.
pub(crate) fn check(code: c_int) {
    // SAFETY: the text lives until this thread's next failure.
    let text = unsafe { std::ffi::CStr::from_ptr(ncclGetLastError(ptr::null())) };
    assert_eq!(code, SUCCESS, "{}", text.to_string_lossy());
}

fn number(name: &str) -> u64 {
    env::var(name).expect("set by the parent").parse().expect("a number")
}

/// Not a test by itself: the entry of the child processes.
#[test]
fn one_rank() {
    let Ok(scenario) = env::var("CPUCCL_TEST") else { return };
    let text = env::var("CPUCCL_TEST_ID").expect("set by the parent");
    let mut id = UniqueId { internal: [0; 128] };
    for (place, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).expect("two hex digits");
    }
    let (rank, ranks) = (number("CPUCCL_TEST_RANK") as usize, number("CPUCCL_TEST_RANKS") as usize);
    if scenario == "absent" && rank == 0 {
        return;
    }
    let mut world = ptr::null();
    // SAFETY: the out-pointer is live.
    check(unsafe { ncclCommInitRank(&raw mut world, ranks as c_int, id, rank as c_int) });
    let me = Rank { world, rank, ranks, seed: number("CPUCCL_TEST_SEED") };
    match scenario.as_str() {
        "random" => random::run(&me),
        "abort" => return me.abort(),
        "two threads" => me.two_ranks_in_one_process(),
        "op" => me.other_op(),
        "count" => me.all_reduce(if rank == 0 { 2 * LARGE } else { LARGE }, F32, SUM),
        "short count" => me.all_reduce(if rank == 0 { 90 } else { 100 }, F32, SUM),
        "dtype" => me.all_reduce(100, if rank == 0 { I32 } else { F32 }, SUM),
        "redop" => me.all_reduce(100, F32, if rank == 0 { MAX } else { SUM }),
        "root" => me.other_root(),
        "ungrouped" => me.exchange(false, LARGE),
        "ungrouped small" => me.exchange(false, 100),
        "grouped" => me.exchange(true, LARGE),
        "split" => me.split_alone(),
        _ => {}
    }
    // SAFETY: the communicator is live and not used again.
    check(unsafe { ncclCommDestroy(world) });
}

impl Rank {
    fn all_reduce(&self, count: usize, data_type: c_int, op: c_int) {
        let mut buffer = vec![1.0_f32; count];
        let data = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer lives until the stream was synchronised.
        unsafe {
            check(ncclAllReduce(data, data.cast(), count, data_type, op, self.world, ptr::null()));
            check(cpucclStreamSynchronize(ptr::null()));
        }
    }

    fn other_op(&self) {
        let mut buffer = vec![1_i32; 100];
        let data = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer lives until the stream was synchronised.
        unsafe {
            check(if self.rank == 1 {
                ncclBroadcast(data, data.cast(), 100, I32, 0, self.world, ptr::null())
            } else {
                ncclAllReduce(data, data.cast(), 100, I32, SUM, self.world, ptr::null())
            });
            check(cpucclStreamSynchronize(ptr::null()));
        }
    }

    /// Rank 2 of 4 takes itself for the source: nobody waits, and ranks 2 and 3 keep its data.
    fn other_root(&self) {
        let mut buffer = vec![self.rank as i32; 100];
        let data = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer lives until the stream was synchronised.
        unsafe {
            check(ncclBroadcast(
                data,
                data.cast(),
                100,
                I32,
                if self.rank == 2 { 2 } else { 0 },
                self.world,
                ptr::null(),
            ));
            check(cpucclStreamSynchronize(ptr::null()));
        }
        assert_eq!(buffer[99], if self.rank < 2 { 0 } else { 2 });
    }

    /// Every rank sends to the next one first and then receives.
    fn exchange(&self, grouped: bool, count: usize) {
        let output = vec![self.rank as i32; count];
        let mut input = vec![-1_i32; count];
        let (next, previous) = ((self.rank + 1) % self.ranks, (self.rank + self.ranks - 1) % self.ranks);
        // SAFETY: the buffers live until the stream was synchronised.
        unsafe {
            if grouped {
                check(ncclGroupStart());
            }
            check(ncclSend(output.as_ptr().cast(), count, I32, next as c_int, self.world, ptr::null()));
            check(ncclRecv(input.as_mut_ptr().cast(), count, I32, previous as c_int, self.world, ptr::null()));
            if grouped {
                check(ncclGroupEnd());
            }
            check(cpucclStreamSynchronize(ptr::null()));
        }
        assert!(input.iter().all(|&value| value == previous as i32));
    }

    /// The last rank does not take part in a split.
    fn split_alone(&self) {
        let mut child = ptr::null();
        if self.rank + 1 < self.ranks {
            // SAFETY: the parent and the out-pointer are live.
            check(unsafe { ncclCommSplit(self.world, 0, 0, &raw mut child, ptr::null_mut()) });
        }
    }

    /// Rank 0 starts a call nobody joins and gives up.
    fn abort(&self) {
        if self.rank > 0 {
            return;
        }
        let mut buffer = vec![0_u8; 64];
        let data = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer outlives the communicator, whose worker ends in the abort.
        unsafe {
            check(ncclReduce(data, data, 64, 1, SUM, 0, self.world, ptr::null()));
            thread::sleep(Duration::from_millis(50));
            assert_eq!(cpucclStreamQuery(ptr::null()), IN_PROGRESS);
            check(ncclCommAbort(self.world));
            assert_eq!(cpucclStreamQuery(ptr::null()), SUCCESS);
        }
    }

    /// One thread drives both ranks of a communicator through groups.
    fn two_ranks_in_one_process(&self) {
        let mut id = UniqueId { internal: [0; 128] };
        let mut pair = [ptr::null(); 2];
        let mut values = [[3_i32; 50], [4; 50]];
        // SAFETY: all pointers are to locals that live until the stream was synchronised.
        unsafe {
            check(ncclGetUniqueId(&raw mut id));
            check(ncclGroupStart());
            for (rank, comm) in pair.iter_mut().enumerate() {
                check(ncclCommInitRank(comm, 2, id, rank as c_int));
            }
            check(ncclGroupEnd());
            check(ncclGroupStart());
            for (comm, values) in pair.iter().zip(&mut values) {
                let data = values.as_mut_ptr().cast();
                check(ncclAllReduce(data, data.cast(), 50, I32, SUM, *comm, ptr::null()));
            }
            check(ncclGroupEnd());
            check(cpucclStreamSynchronize(ptr::null()));
            for comm in pair {
                check(ncclCommDestroy(comm));
            }
        }
        assert_eq!(values, [[7; 50]; 2]);
    }
}

#[test]
fn random_calls_match_the_reference() {
    for ranks in 2..=8 {
        for seed in 0..3 {
            assert_eq!(
                job("random", ranks, seed * 10 + ranks as u64, ENOUGH),
                Outcome::Passed,
                "{ranks} ranks, seed {seed}"
            );
        }
    }
}

#[test]
fn one_process_may_hold_several_ranks() {
    assert_eq!(job("two threads", 2, 0, ENOUGH), Outcome::Passed);
}

#[test]
fn an_abort_ends_a_call_that_waits() {
    assert_eq!(job("abort", 2, 0, ENOUGH), Outcome::Passed);
}

#[test]
fn a_grouped_exchange_passes() {
    assert_eq!(job("grouped", 4, 0, ENOUGH), Outcome::Passed);
}

#[test]
fn mismatches_that_nobody_waits_for_pass_silently() {
    for scenario in ["dtype", "redop", "short count", "root", "ungrouped small"] {
        assert_eq!(job(scenario, 4, 0, ENOUGH), Outcome::Passed, "{scenario}");
    }
}

#[test]
fn mismatches_that_leave_a_rank_waiting_hang() {
    for scenario in ["op", "count", "ungrouped", "absent", "split"] {
        assert_eq!(job(scenario, 4, 0, HANG), Outcome::Hung, "{scenario}");
    }
}
