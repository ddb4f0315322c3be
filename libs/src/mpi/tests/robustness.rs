//! No raw value and no order of calls panics, or makes a decoder keep or give more than its limits.

use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_oneof, proptest};

use super::{Process, Recorded};
use crate::mpi::MPI;
use crate::mpi::handles::{MPICH, OPEN_MPI, STANDARD};

/// Values near those that mean something, and any other.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0_u64..8,
        (-40_000_i64..0).prop_map(|value| value as u64),
        0x4c00_0000_u64..0x4c00_2100,
        0x8c00_0000_u64..0x8c00_0020,
        0x200_u64..0x300,
        0x7000_u64..0x7004,
    ]
}

fn process() -> impl Strategy<Value = Process> {
    (any::<Option<u32>>(), prop::option::of(0_u32..200), any::<bool>()).prop_map(|(rank, size, inter)| {
        let process = Process { rank, size, inter, ..Process::default() };
        process
            .global(0x7000, "ompi_mpi_int")
            .global(0x7001, "ompi_mpi_2real")
            .global(0x7002, "ompi_mpi_op_sum")
            .global(0x7003, "ompi_mpi_")
    })
}

proptest! {
    // Each case is a whole sequence of calls under three ABIs.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_sequence_of_raw_calls_panics(
        calls in prop::collection::vec(
            (
                0..MPI.functions.len(),
                prop::collection::vec(value(), 0..9),
                prop::collection::vec(any::<i32>(), 0..129),
                prop::collection::vec(value(), 0..65),
                any::<bool>(),
                prop_oneof![0..1_i64, any::<i64>()],
                value(),
            ),
            1..40,
        ),
        process in process(),
    ) {
        for abi in [MPICH, STANDARD, OPEN_MPI] {
            let mut decoder = (MPI.decoder)(abi);
            for (index, args, ints, longs, stack_unreadable, result, out) in &calls {
                let function = &MPI.functions[*index];
                let recorded = Recorded::new(args.iter().copied()).ints(ints).longs(longs);
                let mut raw = recorded.raw();
                raw.stack_unreadable = *stack_unreadable;
                let decoded = decoder.enter(function, &raw, &process);
                assert!(decoded.sends.len() <= 200 && decoded.recvs.len() <= 200);
                assert!(decoder.requests(function, &raw).len() <= 130);
                assert!(decoder.started(function, &raw, &process).len() <= 130);
                decoder.exit(function, &raw, *result, Some(*out), &process);
                for definition in decoder.take_types() {
                    assert!(definition.runs.len() <= 64 && definition.id > 0);
                }
                decoder.predefined(*out, &process);
                decoder.is_null_comm(*out, &process);
            }
        }
    }
}
