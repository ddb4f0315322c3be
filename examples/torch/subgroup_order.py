#!/usr/bin/env python3
"""Two overlapping groups: the last rank uses them in the other order."""

import datetime

import torch
import torch.distributed as dist

import job


def main(rank):
    # A group does not take the default group's timeout.
    timeout = datetime.timedelta(seconds=rank.args.timeout)
    wide = dist.new_group(list(range(rank.world)), timeout=timeout)
    narrow = dist.new_group(list(range(1, rank.world)), timeout=timeout)
    uses = [("wide", wide, torch.ones(8)), ("narrow", narrow, torch.ones(16))]
    if rank.faulty and rank.rank == rank.world - 1:
        uses.reverse()
    for _ in range(2):
        for name, group, tensor in uses:
            if name == "narrow" and rank.rank == 0:
                continue
            rank.note("allreduce", tensor, op="sum", group=name)
            dist.all_reduce(tensor, group=group)
    rank.note("barrier")
    dist.barrier()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
