#!/usr/bin/env python3
"""A training loop over mpi4py in which rank 0 alone runs a collective of its own in validate().

    mpirun -n 4 python3 mpi_validate_rank0.py              hangs at the first validation
    mpirun -n 4 python3 mpi_validate_rank0.py --healthy    ends with exit code 0

The mistake is a common one: "only rank 0 logs", and the logging averages a metric over all ranks.
"""

import argparse
from array import array

from mpi4py import MPI


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", action="store_true", help="every rank averages the metric")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=5, help="steps between validations")
    return parser.parse_args()


def train_step(comm, step):
    gradient = array("f", [comm.rank + step] * 1024)
    total = array("f", [0.0] * 1024)
    comm.Allreduce(gradient, total, op=MPI.SUM)


def average_metric(comm, value):
    own = array("d", [value])
    mean = array("d", [0.0])
    comm.Allreduce(own, mean, op=MPI.SUM)
    return mean[0] / comm.size


def validate(comm, step, healthy):
    if healthy or comm.rank == 0:
        loss = average_metric(comm, 1.0 / (step + 1))
        if comm.rank == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    comm.Barrier()


def main():
    args = parse_args()
    comm = MPI.COMM_WORLD
    for step in range(args.steps):
        train_step(comm, step)
        if step % args.every == args.every - 1:
            validate(comm, step, args.healthy)


if __name__ == "__main__":
    main()
