#!/usr/bin/env python3
"""One rank passes something else to a collective that all ranks call.

    --fault shape       another number of elements
    --fault dtype       another element type
    --fault reduction   another reduction: no error, a wrong sum
    --fault root        another root of a broadcast: no error, other weights on that rank
"""

import torch
import torch.distributed as dist

import job

FAULTS = ("shape", "dtype", "reduction", "root")


def main(rank):
    odd = rank.faulty and rank.rank == rank.world - 1
    fault = rank.args.fault if odd else None
    for step in range(3):
        now = fault if step == 1 else None
        weights = torch.full((100,), float(rank.rank))
        root = 1 if now == "root" else 0
        rank.note("broadcast", weights, root=root)
        dist.broadcast(weights, src=root)

        dtype = torch.float64 if now == "dtype" else torch.float32
        gradient = torch.ones(992 if now == "shape" else 1000, dtype=dtype)
        operators = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
        operator = "max" if now == "reduction" else "sum"
        rank.note("allreduce", gradient, op=operator)
        dist.all_reduce(gradient, op=operators[operator])
    rank.note("barrier")
    dist.barrier()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__, FAULTS).parse_args())
