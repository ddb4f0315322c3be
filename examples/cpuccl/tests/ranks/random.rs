//! Random calls on random communicators, grouped or not, against a reference that knows every rank's input.

use std::ffi::{c_int, c_void};
use std::ptr;

use cpuccl::api::{
    cpucclStreamCreate, cpucclStreamDestroy, cpucclStreamSynchronize, ncclCommDestroy, ncclCommFinalize, ncclCommSplit,
    ncclGroupEnd, ncclGroupStart, ncclRedOpCreatePreMulSum, ncclRedOpDestroy,
};
use cpuccl::calls::{
    ncclAllGather, ncclAllReduce, ncclAlltoAll, ncclBcast, ncclBroadcast, ncclGather, ncclRecv, ncclReduce,
    ncclReduceScatter, ncclScatter, ncclSend,
};
use cpuccl::comm::Comm;
use cpuccl::shm::CHUNK;
use cpuccl::stream::Stream;

use crate::data::{TYPES, decode, encode, is_integer, size, tolerance};
use crate::{Rank, check};

const BATCHES: usize = 12;
const KINDS: u64 = 10;
/// Value of `op` that stands for a pre-multiplied sum with [`SCALAR`].
const PRE_MUL_SUM: c_int = 5;
const SCALAR: u8 = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % end
    }
}

/// A communicator with its members as ranks of the world, in order.
struct Group {
    comm: *const Comm,
    members: Vec<usize>,
}

/// What a call left behind, to be looked at once the streams are idle.
struct Pending {
    name: String,
    data_type: c_int,
    output: Vec<u8>,
    expected: Vec<f64>,
    op: Option<c_int>,
    input: Vec<u8>,
}

/// Element `at` of the input of `member` for call `call`: 1 or 2, so that a product over eight ranks is exact in every type.
fn value(call: u64, member: usize, at: usize) -> u8 {
    1 + (Random(call << 40 ^ (member as u64) << 32 ^ at as u64).below(2)) as u8
}

pub(crate) fn run(me: &Rank) {
    let mut random = Random(me.seed);
    let groups = groups(me);
    let streams: Vec<*const Stream> = (0..3)
        .map(|place| {
            let mut stream = ptr::null();
            if place > 0 {
                // SAFETY: the out-pointer is live.
                check(unsafe { cpucclStreamCreate(&raw mut stream) });
            }
            stream
        })
        .collect();
    let mut call = 0;
    for _ in 0..BATCHES {
        let grouped = random.below(2) == 0;
        if grouped {
            check(ncclGroupStart());
        }
        let mut pending: Vec<Pending> = Vec::new();
        for _ in 0..1 + random.below(5) {
            call += 1;
            let choice = random.below(groups.len() as u64) as usize;
            let stream = streams[random.below(streams.len() as u64) as usize];
            pending.push(issue(me, &groups[choice], stream, call, &mut random));
        }
        if grouped {
            check(ncclGroupEnd());
        }
        for stream in &streams {
            // SAFETY: the streams are live.
            check(unsafe { cpucclStreamSynchronize(*stream) });
        }
        pending.iter().for_each(|pending| pending.verify(&groups[0]));
    }
    for stream in streams.into_iter().skip(1) {
        // SAFETY: made above, not used again.
        check(unsafe { cpucclStreamDestroy(stream) });
    }
    for group in groups.into_iter().skip(1) {
        // SAFETY: made below, not used again.
        check(unsafe { ncclCommFinalize(group.comm) });
        // SAFETY: as above.
        check(unsafe { ncclCommDestroy(group.comm) });
    }
}

/// The world, a copy with the ranks reversed, and this rank's half of the world by parity.
fn groups(me: &Rank) -> Vec<Group> {
    let split = |colour, key, members: Vec<usize>| {
        let mut comm = ptr::null();
        // SAFETY: the parent and the out-pointer are live.
        check(unsafe { ncclCommSplit(me.world, colour, key, &raw mut comm, ptr::null_mut()) });
        Group { comm, members }
    };
    let parity = (0..me.ranks).filter(|rank| rank % 2 == me.rank % 2).collect();
    let groups = vec![
        Group { comm: me.world, members: (0..me.ranks).collect() },
        split(0, -(me.rank as c_int), (0..me.ranks).rev().collect()),
        split(me.rank as c_int % 2, 0, parity),
    ];
    let alone = split(if me.rank == 0 { 0 } else { -1 }, 0, vec![0]);
    assert_eq!(alone.comm.is_null(), me.rank > 0);
    // SAFETY: NULL, or made above and not used again.
    check(unsafe { ncclCommDestroy(alone.comm) });
    groups
}

fn count(random: &mut Random, data_type: c_int) -> usize {
    let chunk = CHUNK / size(data_type);
    match random.below(8) {
        0 => 0,
        1 => 1,
        2 => chunk - 1 + random.below(3) as usize,
        3 => random.below(3 * chunk as u64) as usize,
        _ => random.below(200) as usize,
    }
}

/// Issues one random call. The choices are the same on all ranks.
fn issue(me: &Rank, group: &Group, stream: *const Stream, call: u64, random: &mut Random) -> Pending {
    let kind = random.below(KINDS);
    let data_type = random.below(TYPES as u64) as c_int;
    let count = count(random, data_type);
    let op = random.below(PRE_MUL_SUM as u64 + 1) as c_int;
    let (root_choice, in_place) = (random.below(1 << 20) as usize, random.below(3) == 0);
    // Halves of a world of odd size differ in length; the choice is reduced to each one's own size.
    let (ranks, root) = (group.members.len(), root_choice % group.members.len());
    let own = group.members.iter().position(|&member| member == me.rank).expect("a member");
    let input_of = |member: usize, len: usize| -> Vec<u8> { (0..len).map(|at| value(call, member, at)).collect() };
    let all =
        |f: &dyn Fn(&[u8]) -> f64, at: usize| f(&(0..ranks).map(|rank| value(call, rank, at)).collect::<Vec<_>>());
    let reduced = |at: usize| all(&|values| reduce(op, data_type, values), at);
    let (input_len, output_len) = match kind {
        2 | 6 | 8 => (count, ranks * count),
        4 | 7 => (ranks * count, count),
        5 => (ranks * count, ranks * count),
        _ => (count, count),
    };
    let untouched = |len: usize| vec![0.0; len];
    let block = |at: usize| (at / count.max(1), at % count.max(1));
    let expected: Vec<f64> = match kind {
        0 => (0..count).map(reduced).collect(),
        1 | 9 => input_of(root, count).into_iter().map(f64::from).collect(),
        2 | 8 => (0..ranks * count).map(|at| f64::from(value(call, block(at).0, block(at).1))).collect(),
        3 if own == root => (0..count).map(reduced).collect(),
        4 => (0..count).map(|at| reduced(own * count + at)).collect(),
        5 => (0..ranks * count).map(|at| f64::from(value(call, block(at).0, own * count + block(at).1))).collect(),
        6 if own == root => (0..ranks * count).map(|at| f64::from(value(call, block(at).0, block(at).1))).collect(),
        7 => (0..count).map(|at| f64::from(value(call, root, own * count + at))).collect(),
        _ => untouched(output_len),
    };
    let mut input = Vec::new();
    input_of(own, input_len).into_iter().for_each(|value| encode(data_type, value, &mut input));
    let mut output = vec![0; output_len * size(data_type)];
    let (mut from, to) = (input.as_ptr().cast::<c_void>(), output.as_mut_ptr().cast::<c_void>());
    if in_place && matches!(kind, 0 | 1) {
        output.copy_from_slice(&input);
        from = to;
    }
    let shift = root_choice % ranks;
    let (comm, root) = (group.comm, root as c_int);
    let mut handle = op;
    // SAFETY: the buffers move into the result, their contents stay where they are until the streams were synchronised.
    unsafe {
        if op == PRE_MUL_SUM && matches!(kind, 0 | 3 | 4) {
            let mut scalar = Vec::new();
            encode(data_type, SCALAR, &mut scalar);
            check(ncclRedOpCreatePreMulSum(&raw mut handle, scalar.as_ptr().cast(), data_type, 1, comm));
        }
        check(match kind {
            0 => ncclAllReduce(from, to, count, data_type, handle, comm, stream),
            1 if in_place => ncclBcast(to, count, data_type, root, comm, stream),
            1 | 9 => ncclBroadcast(from, to, count, data_type, root, comm, stream),
            2 => ncclAllGather(from, to, count, data_type, comm, stream),
            3 => ncclReduce(from, to, count, data_type, handle, root, comm, stream),
            4 => ncclReduceScatter(from, to, count, data_type, handle, comm, stream),
            5 => ncclAlltoAll(from, to, count, data_type, comm, stream),
            6 => ncclGather(from, to, count, data_type, root, comm, stream),
            7 => ncclScatter(from, to, count, data_type, root, comm, stream),
            _ => all_gather_by_shifts(group, own, shift, from, to, count, data_type, stream),
        });
        if handle != op {
            check(ncclRedOpDestroy(handle, comm));
        }
    }
    let op = matches!(kind, 0 | 3 | 4).then_some(op);
    Pending { name: format!("call {call}, kind {kind}, count {count}"), data_type, output, expected, op, input }
}

/// An all-gather made of sends and receives to all ranks, starting at a random distance.
///
/// # Safety
/// As for `ncclAllGather`.
#[expect(clippy::too_many_arguments, reason = "an all-gather's own arguments, and two more")]
unsafe fn all_gather_by_shifts(
    group: &Group,
    own: usize,
    shift: usize,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    data_type: c_int,
    stream: *const Stream,
) -> c_int {
    let ranks = group.members.len();
    check(ncclGroupStart());
    for step in 0..ranks {
        let (next, previous) = ((own + shift + step) % ranks, (own + 2 * ranks - shift - step) % ranks);
        let block = to.cast::<u8>().wrapping_add(previous * count * size(data_type)).cast();
        // SAFETY: as promised by the caller.
        unsafe {
            check(ncclSend(from, count, data_type, next as c_int, group.comm, stream));
            check(ncclRecv(block, count, data_type, previous as c_int, group.comm, stream));
        }
    }
    ncclGroupEnd()
}

fn reduce(op: c_int, data_type: c_int, values: &[u8]) -> f64 {
    let values = || values.iter().copied().map(f64::from);
    match op {
        1 => values().product(),
        2 => values().fold(f64::MIN, f64::max),
        3 => values().fold(f64::MAX, f64::min),
        4 if is_integer(data_type) => (values().sum::<f64>() / values().count() as f64).floor(),
        4 => values().sum::<f64>() / values().count() as f64,
        PRE_MUL_SUM => values().sum::<f64>() * f64::from(SCALAR),
        _ => values().sum(),
    }
}

impl Pending {
    fn verify(&self, world: &Group) {
        let op = self.op;
        let width = size(self.data_type);
        assert_eq!(self.output.len(), self.expected.len() * width);
        for (at, (bytes, expected)) in self.output.chunks_exact(width).zip(&self.expected).enumerate() {
            // An output that the call does not write is still all zero, which has no normal form to decode.
            let found = if bytes.iter().all(|&byte| byte == 0) { 0.0 } else { decode(self.data_type, bytes) };
            // A product over eight ranks exceeds one signed byte and wraps.
            let expected = if self.data_type == 0 && *expected > 127.0 { *expected - 256.0 } else { *expected };
            let expected = if self.data_type <= 1 && expected == 256.0 { 0.0 } else { expected };
            assert!(
                (found - expected).abs() <= tolerance(self.data_type) * expected.abs(),
                "{} of {} ranks, type {}, op {op:?}, element {at}: {found} instead of {expected}; {} bytes in",
                self.name,
                world.members.len(),
                self.data_type,
                self.input.len(),
            );
        }
    }
}
