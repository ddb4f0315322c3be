#!/usr/bin/env python3
"""A metric is gathered under `if rank == 0`: the other ranks go on to the next step."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import job


def log_losses(rank, loss):
    own = loss.detach().reshape(1)
    losses = [torch.zeros(1) for _ in range(rank.world)]
    rank.note("allgather", own)
    dist.all_gather(losses, own)


def main(rank):
    model = DDP(nn.Linear(20, 1))
    for step in range(6):
        loss = model(torch.randn(4, 20)).pow(2).mean()
        rank.note_gradients(model)
        loss.backward()
        if step == 3 and (not rank.faulty or rank.rank == 0):
            log_losses(rank, loss)


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
