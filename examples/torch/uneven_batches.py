#!/usr/bin/env python3
"""The last rank's shard holds one batch fewer: it leaves the epoch's loop early and averages the loss while the others are
in one more backward pass.
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import job

BATCHES = 6


def main(rank):
    model = DDP(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    short = rank.faulty and rank.rank == rank.world - 1
    for _ in range(2):
        total = torch.zeros(1)
        for _ in range(BATCHES - 1 if short else BATCHES):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 20)).pow(2).mean()
            rank.note_gradients(model)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        rank.note("allreduce", total, op="sum")
        dist.all_reduce(total)


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
