//! One rank of the demo's job: two models trained in turns, then validation.
//!
//! The functions are named after what they stand for; the recorder shows them as the calls' places.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use cpuccl::api::{cpucclStreamSynchronize, ncclCommDestroy, ncclCommInitRank, ncclGetUniqueId};
use cpuccl::calls::ncclAllReduce;
use cpuccl::comm::Comm;
use cpuccl::types::{Code, UniqueId};

use super::job::ID_VARIABLE;
use super::stall;
use crate::args::{DemoJob, Story};
use crate::failure::{Failure, USAGE};

/// `ncclFloat32`, `ncclFloat64`, `ncclSum`.
const FLOAT32: i32 = 7;
const FLOAT64: i32 = 8;
const SUM: i32 = 0;

/// Gradients of the two models, in elements: a hundredth of the job's that this is modelled after.
const GENERATOR: [usize; 2] = [65_536, 26_214];
const DISCRIMINATOR: [usize; 2] = [65_536, 10_485];
/// Steps that follow a validation.
const STEPS_AFTER: u32 = 4;
/// How long the driver takes to answer, and to fail.
const DRIVER_ANSWERS: Duration = Duration::from_millis(400);

/// A new unique id, hexadecimal.
pub(crate) fn new_id() -> Result<String, Failure> {
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: `id` is valid for writes.
    check("ncclGetUniqueId", unsafe { ncclGetUniqueId(&raw mut id) })?;
    Ok(id.internal.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes what the ranks leave behind if they were ended before all of them had joined.
pub(crate) fn clean_up(id: &str) {
    if let Some(id) = parse_id(id) {
        cpuccl::shm::remove_left_over(&id);
    }
}

fn parse_id(text: &str) -> Option<UniqueId> {
    let mut internal = [0; 128];
    for (index, byte) in internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(UniqueId { internal })
}

fn check(what: &str, code: Code) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::message(USAGE, format_args!("{what} failed with code {code}"))) }
}

/// A rank at work.
struct Rank {
    comm: *const Comm,
    data: Vec<f64>,
}

impl Rank {
    fn wait(&self) -> Result<(), Failure> {
        // SAFETY: NULL is the default stream.
        check("cpucclStreamSynchronize", unsafe { cpucclStreamSynchronize(ptr::null()) })
    }
}

/// An all-reduce in place. A macro, so that the call's place is the line and the function that use it.
#[collapse_debuginfo(yes)]
macro_rules! all_reduce {
    ($rank:expr, $count:expr, $dtype:expr) => {{
        let buffer: *mut c_void = $rank.data.as_mut_ptr().cast();
        // SAFETY: the buffer holds more than `$count` elements of either type and outlives the call: every function here
        // waits for the stream before it returns.
        check("ncclAllReduce", unsafe { ncclAllReduce(buffer, buffer, $count, $dtype, SUM, $rank.comm, ptr::null()) })
    }};
}

/// Gradients of the generator's backward pass.
#[inline(never)]
fn gen_backward(rank: &mut Rank) -> Result<(), Failure> {
    for count in GENERATOR {
        all_reduce!(rank, count, FLOAT32)?;
    }
    rank.wait()
}

/// Gradients of the discriminator's backward pass.
#[inline(never)]
fn disc_backward(rank: &mut Rank) -> Result<(), Failure> {
    for count in DISCRIMINATOR {
        all_reduce!(rank, count, FLOAT32)?;
    }
    rank.wait()
}

/// One micro-step: both models in turn.
#[inline(never)]
fn train_step(rank: &mut Rank) -> Result<(), Failure> {
    gen_backward(rank)?;
    disc_backward(rank)
}

/// Waits for every rank as a framework does over a library without a barrier: an all-reduce of one element.
#[inline(never)]
fn validate(rank: &mut Rank) -> Result<(), Failure> {
    all_reduce!(rank, 1, FLOAT32)?;
    rank.wait()?;
    sum_of_losses(rank)
}

/// Sums the losses that the ranks found.
#[inline(never)]
fn sum_of_losses(rank: &mut Rank) -> Result<(), Failure> {
    all_reduce!(rank, 3, FLOAT64)?;
    rank.wait()
}

/// Runs one rank.
pub(crate) fn run(args: &DemoJob) -> Result<u8, Failure> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
    let id = std::env::var(ID_VARIABLE).ok().as_deref().and_then(parse_id);
    let (Some(me), Some(world), Some(id)) = (number("RANK"), number("WORLD_SIZE"), id) else {
        return Err(Failure::message(USAGE, "this is a rank of `rankdiff demo` and is started by it"));
    };
    let late = me.cast_unsigned() == args.fault.fault_rank && !args.fault.healthy;
    if args.story == Story::Stall && is_held(me, world) && !args.fault.healthy {
        stall::retry_for_ever(DRIVER_ANSWERS)?;
    }
    let mut comm = ptr::null();
    // SAFETY: `comm` is valid for writes.
    check("ncclCommInitRank", unsafe { ncclCommInitRank(&raw mut comm, world, id, me) })?;
    let mut rank = Rank { comm, data: vec![1.0; 65_536] };
    // The fault of the report: this rank's step counter is one behind, so it trains where the others validate.
    let steps = args.fault.fault_step + u32::from(late && args.story == Story::Diverge);
    for _ in 0..steps {
        train_step(&mut rank)?;
    }
    validate(&mut rank)?;
    for _ in 0..STEPS_AFTER {
        train_step(&mut rank)?;
    }
    // SAFETY: the communicator was made above and is not used again.
    check("ncclCommDestroy", unsafe { ncclCommDestroy(comm) })?;
    Ok(0)
}

/// The second half of the report: the ranks on these devices never come back from their driver.
fn is_held(rank: i32, world: i32) -> bool {
    rank >= world / 2
}
